"""Sizes that are elements of integer inputs: one program serves every value, as onnxruntime does, or says why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinycomp
from tests import records
from tinycomp.errors import ArtifactError, ExecutionError
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.regions import NativeRegion

X = np.arange(60, dtype=np.float32).reshape(5, 12)
FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
FLOATS = ("x", FLOAT, ["n", 12])
MOST = 2**63 - 1
Declared = tuple[str, int, list[Any]]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Declared],
    outputs: Sequence[tuple[str, int]],
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "values", [helper.make_tensor_value_info(*declared) for declared in inputs],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def regions(module: Module) -> list[str]:
    return [step.tier for step in module._parts.plan.steps]


def program_of(module: Module) -> Program:
    (step,) = module._parts.plan.steps
    assert isinstance(step.run, NativeRegion)
    return step.run.program


def assert_as_onnxruntime(model: onnx.ModelProto, feeds: Sequence[dict[str, np.ndarray]]) -> Module:
    module, session = tinycomp.compile(model, target="c"), ort.InferenceSession(model.SerializeToString())
    for feed in feeds:
        found = module(*feed.values())
        wanted = session.run(None, feed)
        for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
            np.testing.assert_array_equal(a, b, strict=True, err_msg=str(feed))
    return module


def integers(*elements: int, dtype: type = np.int64) -> np.ndarray:
    return np.array(elements, dtype)


CASES: dict[str, tuple[Sequence[Declared], Sequence[Sequence[np.ndarray]]]] = {
    "Slice": (
        [FLOATS, ("b", INT64, [1]), ("c", INT64, [1])],
        [
            (X, integers(start), integers(end))
            for start in (-MOST - 1, -7, -2, 0, 1, 9)
            for end in (-6, -1, 0, 3, 100, MOST)
        ],
    ),
    "Expand": ([("x", FLOAT, ["n", 1]), ("b", INT64, [3])],
        [(X[:, :1], integers(*shape)) for shape in ((2, 5, 3), (1, 1, 1), (0, 5, 1), (2, 1, 0))]),
    "Reshape": (
        [FLOATS, ("b", INT64, [3])],
        [
            *((X, integers(*shape)) for shape in ((2, 5, 6), (0, 12, -1), (0, -1, 3), (-1, 4, 5), (60, 1, 1))),
            (X[:0], integers(0, 3, 4)),
        ],
    ),
    "Tile": ([FLOATS, ("b", INT64, [2])], [(X, integers(*times)) for times in ((2, 5), (0, 1), (1, 1))]),
    "ConstantOfShape": ([("b", INT64, [2])], [(integers(2, 5),), (integers(0, 1),)]),
    "Pad": ([FLOATS, ("b", INT64, [4])],
        [(X, integers(*pads)) for pads in ((2, 5, 0, 1), (0, 0, 0, 0), (-1, 0, -2, 3))]),
    "Trilu": ([FLOATS, ("b", INT64, [])], [(X, np.array(k)) for k in (0, 3, -3, 100, -100)]),
}  # fmt: skip


@pytest.mark.parametrize("op", CASES)
def test_an_operator_is_one_program_for_all_values(op: str):
    inputs, feeds = CASES[op]
    names = [name for name, *_ in inputs]
    model = model_of([helper.make_node(op, names, ["y"], name="node")], inputs, [("y", FLOAT)])
    module = assert_as_onnxruntime(model, [dict(zip(names, feed, strict=True)) for feed in feeds])
    assert regions(module) == ["c"]


Chosen = tuple[str, dict[str, Any], Sequence[Declared], Sequence[Sequence[np.ndarray]]]
TWO = [FLOATS, ("b", INT64, [2])]
BLOCK = X.reshape(5, 3, 4)
AXES: dict[str, Chosen] = {
    "reduction, axes kept": ("ReduceSum", {"keepdims": 1}, [("x", FLOAT, ["n", 3, "m"]), ("b", INT64, [2])],
        [(BLOCK, integers(*axes)) for axes in ((0, 1), (-1, 0), (1, 2), (2, 1), (-3, -2))]),
    "reduction, axes removed": ("ReduceMax", {"keepdims": 0}, [("x", FLOAT, ["n", 3, "m"]), ("b", INT64, [1])],
        [(block, integers(axis)) for axis in (0, 1, 2, -1, -2, -3) for block in (BLOCK, BLOCK[:2, :, 1:])]),
    "running sum": ("CumSum", {}, [FLOATS, ("b", INT64, [])], [(X, np.array(axis)) for axis in (0, 1, -1, -2)]),
    "slice": (
        "Slice",
        {},
        [FLOATS, *((name, INT64, [2]) for name in "bcde")],
        [
            (X, integers(*starts), integers(*ends), integers(*axes), integers(*steps))
            for starts, ends in (((1, 0), (4, 9)), ((-1, -2), (-9, 1)), ((9, 9), (0, -99)))
            for axes in ((0, 1), (1, 0), (-1, 0))
            for steps in ((1, 1), (2, -1), (-3, -2))
        ],
    ),
    "pad": (
        "Pad",
        {},
        [FLOATS, ("b", INT64, [2]), ("c", FLOAT, []), ("d", INT64, [1])],
        [
            (X, integers(*pads), np.array(7, np.float32), integers(axis))
            for pads in ((1, 2), (-1, 3))
            for axis in (0, 1, -2)
        ],
    ),
    "reflected": ("Pad", {"mode": "reflect"}, [FLOATS, ("b", INT64, [4])], [(X, integers(1, 2, 3, 4))]),
}  # fmt: skip


@pytest.mark.parametrize("case", AXES)
def test_axes_and_steps_of_a_run(case: str):
    op, attrs, inputs, feeds = AXES[case]
    names = [name for name, *_ in inputs]
    model = model_of([helper.make_node(op, names, ["y"], name="node", **attrs)], inputs, [("y", FLOAT)])
    module = assert_as_onnxruntime(model, [dict(zip(names, feed, strict=True)) for feed in feeds])
    assert regions(module) == ["c"]


@pytest.mark.parametrize("axes", [(0, 2), (1, 1), (-2, 0), (-3, 1)])
def test_axes_out_of_range_or_repeated_are_refused(axes: tuple[int, int]):
    model = model_of([helper.make_node("ReduceSum", ["x", "b"], ["y"], keepdims=0, name="node")], TWO, [("y", FLOAT)])
    module = tinycomp.compile(model, target="c")
    assert module(X, integers(0, 1)) == X.sum()
    with pytest.raises(
        ExecutionError, match=r"node \(ReduceSum\).*an axis is named twice, or is out of range for rank 2"
    ):
        module(X, integers(*axes))


def test_a_step_of_zero_is_refused():
    inputs = [FLOATS, *((name, INT64, [1]) for name in "bcde")]
    model = model_of([helper.make_node("Slice", [*"xbcde"], ["y"], name="node")], inputs, [("y", FLOAT)])
    with pytest.raises(ExecutionError, match="a step is 0"):
        tinycomp.compile(model, target="c")(X, integers(0), integers(2), integers(0), integers(0))


def test_range():
    inputs: list[Declared] = [("a", INT64, []), ("b", INT64, [])]
    node = helper.make_node("Range", ["a", "b", "step"], ["y"])
    for step in (2, -1):
        model = model_of([node], inputs, [("y", INT64)], {"step": np.array(step)})
        feeds = [{"a": np.array(a), "b": np.array(b)} for a in (0, -4, 3) for b in (7, -9, 3)]
        assert regions(assert_as_onnxruntime(model, feeds)) == ["c"]


def test_top_k():
    node = helper.make_node("TopK", ["x", "k"], ["best", "places"], name="node")
    model = model_of([node], [FLOATS, ("k", INT64, [1])], [("best", FLOAT), ("places", INT64)])
    module = assert_as_onnxruntime(model, [{"x": X, "k": integers(k)} for k in (0, 1, 5, 12)])
    assert regions(module) == ["c"]
    with pytest.raises(ExecutionError) as error:
        module(X, integers(13))
    assert "k is larger than the axis: k[0] of 12; found n = 5, k[0] = 13" in str(error.value)
    with pytest.raises(ExecutionError) as error:
        module(X, integers(-1))
    assert "k is negative: k[0] is below 0; found n = 5, k[0] = -1" in str(error.value)


def test_a_reshape_that_does_not_come_out_even_names_the_input():
    model = model_of([helper.make_node("Reshape", ["x", "to"], ["y"])], [FLOATS, ("to", INT64, [2])], [("y", FLOAT)])
    module = tinycomp.compile(model, target="c")
    with pytest.raises(ExecutionError) as error:
        module(X, integers(7, 7))
    assert "[n, 12] and [to[0], to[1]] have different numbers of elements" in str(error.value)
    assert "found n = 5, to[0] = 7, to[1] = 7" in str(error.value)


def last_rows() -> onnx.ModelProto:
    """Return a model that takes as many rows from the end as an int32 input says, and as many zeros."""
    nodes = [
        helper.make_node("Cast", ["k"], ["wide"], to=INT64),
        helper.make_node("Neg", ["wide"], ["minus"]),
        helper.make_node("Unsqueeze", ["minus", "zero"], ["start"]),
        helper.make_node("Slice", ["x", "start", "end", "zero"], ["rows"]),
        helper.make_node("Add", ["rows", "rows"], ["twice"]),
        helper.make_node("MatMul", ["twice", "w"], ["y"]),
        helper.make_node("Add", ["wide", "one"], ["more"]),
    ]
    constants = {"zero": integers(0), "end": integers(MOST), "one": np.array(1), "w": np.eye(12, dtype=np.float32)}
    return model_of(nodes, [FLOATS, ("k", INT32, [])], [("y", FLOAT), ("more", INT64)], constants)


def test_arithmetic_on_elements_is_followed():
    feeds = [{"x": X, "k": np.array(k, np.int32)} for k in (1, 3, 5, 9, -2, 3)]
    module = assert_as_onnxruntime(last_rows(), feeds)
    assert regions(module) == ["c"]
    assert program_of(module).symbols == ("n", "k[0]")


def test_elements_are_data_as_well():
    """What is beyond all sizes counts as less in a size, but is computed with as it is."""
    nodes = [helper.make_node("Slice", ["x", "start", "end"], ["y"]), helper.make_node("Sub", ["end", "one"], ["less"])]
    constants = {"start": integers(1), "one": integers(1)}
    model = model_of(nodes, [FLOATS, ("end", INT64, [1])], [("y", FLOAT), ("less", INT64)], constants)
    assert_as_onnxruntime(model, [{"x": X, "end": integers(end)} for end in (MOST, 4, -MOST, 1 << 50)])


def test_elements_that_a_region_computes_end_it():
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["whole"], to=INT64),
        helper.make_node("Unsqueeze", ["whole", "zero"], ["end"]),
        helper.make_node("Slice", ["x", "zero", "end", "zero"], ["rows"]),
        helper.make_node("Add", ["rows", "rows"], ["y"]),
    ]
    model = model_of(nodes, [FLOATS], [("y", FLOAT)], {"zero": integers(0)})
    module = assert_as_onnxruntime(model, [{"x": X - shift} for shift in (59, 57, 55, 61)])
    assert regions(module) == ["c", "c"]


def test_values_that_decide_no_sizes_are_no_sizes():
    nodes = [helper.make_node("Add", ["k", "k"], ["y"]), helper.make_node("Mul", ["y", "k"], ["z"])]
    module = tinycomp.compile(model_of(nodes, [("k", INT64, [2])], [("z", INT64)]), target="c")
    assert program_of(module).symbols == ()


def test_a_saved_module_reads_them():
    module = tinycomp.load(tinycomp.compile(last_rows(), target="c").to_bytes())
    rows, more = module(X, np.array(2, np.int32))
    np.testing.assert_array_equal(rows, 2 * X[-2:])
    assert more == 3


def test_many_elements_are_no_sizes():
    nodes = [helper.make_node("Expand", ["x", "to"], ["y"])]
    module = tinycomp.compile(model_of(nodes, [("x", FLOAT, [1]), ("to", INT64, [9])], [("y", FLOAT)]), target="c")
    assert regions(module) == ["numpy"]


@pytest.mark.parametrize(("key", "value"), [("dtype", "float32"), ("elements", [0, 1])])
def test_a_description_with_damaged_elements_is_refused(key: str, value: Any):
    program = program_of(tinycomp.compile(last_rows(), target="c"))
    assert records.again(program).symbols == program.symbols
    said = records.read(encoded(program))
    (spec,) = [spec for spec in records.of_kind(said, "buffer") if spec["elements"]]
    spec[key] = value
    with pytest.raises(ArtifactError, match="elements that could be sizes"):
        records.program(said, program.constants)


def test_a_dimension_called_as_an_element_keeps_the_region_on_the_host():
    nodes = [helper.make_node("Expand", ["x", "k"], ["y"]), helper.make_node("Add", ["y", "y"], ["z"])]
    model = model_of(nodes, [("x", FLOAT, ["k[0]"]), ("k", INT64, [2])], [("z", FLOAT)])
    module = assert_as_onnxruntime(model, [{"x": X[0], "k": integers(3, 12)}, {"x": X[0, :1], "k": integers(0, 4)}])
    assert any(
        "which stands for an element of an input" in str(reason)
        for host in module.report().hosts
        for reason in host.reasons
    )
