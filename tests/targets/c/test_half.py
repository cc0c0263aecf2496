"""Models in half precision on the C target: computed in float32, rounded where values leave."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tinycomp
from tests.targets.c.harness import make_model
from tinycomp.driver.pipeline import optimisation_passes
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.widen_half import WidenHalf
from tinycomp.target import Target

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
STEP = {HALVES[0]: 2.0**-10, HALVES[1]: 2.0**-7}
RNG = np.random.default_rng(7)


def normal(*shape: int, dtype: np.dtype = HALVES[0], scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def convolutional(dtype: np.dtype, batch: int | str = 2):
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "k", "l"], ["d"]),
        helper.make_node("LayerNormalization", ["d", "e", "h"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"]),
    ]
    constants = {
        "w": normal(8, 3, 3, 3, dtype=dtype, scale=0.3), "b": normal(8, dtype=dtype), "s": normal(8, dtype=dtype),
        "o": normal(8, dtype=dtype), "m": normal(8, dtype=dtype), "v": np.abs(normal(8)).astype(dtype) + dtype.type(1),
        "k": normal(8, 5, dtype=dtype), "l": normal(5, dtype=dtype), "e": normal(5, dtype=dtype),
        "h": normal(5, dtype=dtype),
    }  # fmt: skip
    feeds = {"x": normal(2, 3, 6, 6, dtype=dtype)}
    symbolic = {"x": (batch, 3, 6, 6)} if isinstance(batch, str) else None
    return make_model(nodes, feeds, constants, ["y"], 22, symbolic), feeds


def assert_near(found: np.ndarray, wanted: np.ndarray, steps: float) -> None:
    """Compare in steps of half precision at the largest."""
    assert found.dtype == wanted.dtype
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    assert np.abs(a - b).max() <= steps * STEP[found.dtype] * np.abs(b).max()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_network_runs_whole_and_is_near_what_rounding_every_result_gives(dtype):
    model, feeds = convolutional(dtype)
    module = tinycomp.compile(model, "c", strict=True)
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    assert_near(module(feeds["x"]), np.asarray(wanted).astype(dtype), 8)
    assert [r.dtype for r in (*module.inputs, *module.outputs)] == [dtype.name] * 2


def test_a_network_is_near_onnxruntime():
    model, feeds = convolutional(HALVES[0])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert_near(tinycomp.compile(model, "c")(feeds["x"]), session.run(None, feeds)[0], 4)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_it_is_the_float32_network_rounded_once(dtype):
    model, feeds = convolutional(dtype)
    graph = tinycomp.from_onnx(model)
    WidenHalf().run(graph)
    inner = {node.op for node in graph.nodes if node.output.dtype == dtype.name}
    assert inner == {"Cast"}
    assert len([n for n in graph.nodes if n.op == "Cast"]) == 2
    assert_near(tinycomp.compile(model, "c")(feeds["x"]), tinycomp.compile(graph, "host")(feeds["x"]), 1)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_symbolic_sizes(dtype):
    model, feeds = convolutional(dtype, "batch")
    module = tinycomp.compile(model, "c", strict=True)
    whole = module(feeds["x"])
    for rows in (1, 2):
        np.testing.assert_array_equal(module(feeds["x"][:rows]), whole[:rows])


def test_saved_and_loaded(tmp_path: Path):
    model, feeds = convolutional(HALVES[0])
    module = tinycomp.compile(model, "c")
    module.save(tmp_path / "half.tcm")
    loaded = tinycomp.load(tmp_path / "half.tcm")
    np.testing.assert_array_equal(loaded(feeds["x"]), module(feeds["x"]))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_verified_while_compiling(dtype):
    tinycomp.compile(convolutional(dtype)[0], "c", verify=True)


def chain(text: str, dtype: str, x: list[float], target: str = "c") -> np.ndarray:
    """Run operators on one vector ``%x`` to ``%y``."""
    source = f'graph @main opset {{"" = 20}} (%x: {dtype}[{len(x)}]) -> (%y) {{ {text} }}'
    module = tinycomp.compile(parse_graph(source, infer=infer_node_types), target)
    array = np.array(x, np.float32).astype(np.dtype(dtype) if dtype == "float16" else HALVES[1])
    return module(array)


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, -65504.0, 2.0**-24, -(2.0**-24), 2.0**-14, 1.0, 3.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("text", ["%y = Add(%x, %x)", "%y = Abs(%x)", "%y = Mul(%x, %x)", "%y = Neg(%x)"])
def test_extreme_values_of_one_operator_are_those_of_the_host(text, dtype):
    with np.errstate(all="ignore"):
        wanted = chain(text, dtype, SPECIAL, "host")
    found = chain(text, dtype, SPECIAL)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(found.astype(np.float32)), np.signbit(wanted.astype(np.float32)))


def test_nothing_overflows_in_between_but_where_values_leave():
    twice = "%t = Add(%x, %x) "
    assert chain(f"{twice} %y = Div(%t, %x)", "float16", [60000.0]).tolist() == [2.0]
    assert chain(f"{twice} %y = Neg(%t)", "float16", [60000.0]).tolist() == [-np.inf]


def test_a_cast_to_half_precision_rounds():
    text = f"%t = Add(%x, %x) %h = Cast(%t) {{to = {TensorProto.FLOAT16}}} %f = Cast(%h) {{to = 1}} %y = Sub(%f, %f)"
    assert np.isnan(chain(text, "float16", [60000.0])).all()
    narrow = f"%f = Cast(%x) {{to = 1}} %h = Cast(%f) {{to = {TensorProto.BFLOAT16}}} %y = Cast(%h) {{to = 1}}"
    assert chain(narrow, "float16", [1.0 + 2.0**-9]).tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%t = Add(%x, %x) %y = IsInf(%t)", [True, False]),
        ("%o: float16[] = const 1 %l: float16[] = const 0.0001 %t = Add(%o, %l) %s = Mul(%x, %t) %y = Equal(%s, %x)",
         [True, True]),
        (f"%l: float16[] = const 0.9999 %t = Mul(%x, %l) %y = Cast(%t) {{to = {TensorProto.INT32}}}", [60000, 1]),
    ],
)  # fmt: skip
def test_what_is_no_float_is_made_of_rounded_numbers(text, wanted):
    assert chain(text, "float16", [60000.0, 1.0], "host").tolist() == wanted
    assert chain(text, "float16", [60000.0, 1.0]).tolist() == wanted


def test_targets_of_half_precision_are_asked_first():
    npu = Target("npu")

    @npu.op("Neg")
    def _(node):
        return node.inputs[0].dtype == "float16"

    @npu.codegen
    def build(region):
        return np.negative

    graph = parse_graph(
        'graph @main opset {"" = 17} (%x: float16[2]) -> (%y) { %e = Exp(%x) %n = Neg(%e) %y = Exp(%n) }',
        infer=infer_node_types,
    )
    module = tinycomp.compile(graph, [npu, "c"], strict=True)
    assert [region.target for region in module.report().regions] == ["c", "npu", "c"]
    x = np.array([0.5, 1.0], np.float16)
    np.testing.assert_allclose(module(x), np.exp(-np.exp(x.astype("f4"))), rtol=3e-3)
    assert "widen-half" not in [p.name for p in optimisation_passes([npu])]
