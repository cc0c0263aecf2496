from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import run_reference
from tinycomp.errors import ExecutionError, UnsupportedError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import SequenceType, TensorType
from tinycomp.ops import OPS, bind
from tinycomp.ops.reference import bind_reference

F23 = TensorType("float32", (2, 3))


def node(op, version, inputs, outputs=1, domain="", **attrs):
    """Return a node whose operands have the given types."""
    values = [None if t is None else Value(f"v{i}", t) for i, t in enumerate(inputs)]
    graph = Graph()
    return graph.add(op, values, attrs, domain=domain, version=version, outputs=outputs) if inputs else None


def test_an_operator_without_kernel_runs_in_the_reference():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert OPS.find("HannWindow") is None
    run = bind_reference("HannWindow", "", 17, {}, [TensorType("int64", ())], [TensorType("float32", None)])
    (got,) = run(np.array(8))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.sin(np.pi * np.arange(8) / 8) ** 2, atol=1e-6)
    run = bind_reference("Add", "", 14, {}, [F23, F23], [F23])
    np.testing.assert_array_equal(run(x, x)[0], 2 * x)


def test_a_result_of_an_unexpected_shape_is_refused():
    """The reference's Adagrad broadcasts; the operator takes tensors of one shape."""
    domain, types = "ai.onnx.preview.training", [TensorType("float32", (1,))] * 2
    operands = [TensorType("float32", ()), TensorType("int64", ()), *types, TensorType("float32", (8,))]
    run = bind_reference("Adagrad", domain, 1, {}, operands, [types[0], operands[-1]], where="step")
    one = np.ones(1, np.float32)
    with pytest.raises(ExecutionError, match=r"step: Adagrad gave .*expected float32\[1\]; found shape \[8\]"):
        run(np.float32(0.1), np.array(1), one, one, np.ones(8, np.float32))


def test_absent_inputs_and_unwanted_outputs():
    x = np.array([3, 1, 3], np.float32)
    type_ = TensorType("float32", (3,))
    run = bind_reference(
        "Unique", "", 11, {"sorted": 1}, [type_], [TensorType("float32", None), None, TensorType("int64", None)]
    )
    values, first, inverse = run(x)
    assert values.tolist() == [1, 3]
    assert first is None
    assert inverse.tolist() == [1, 0, 1]
    scalar = TensorType("float32", ())
    run = bind_reference("Clip", "", 13, {}, [type_, None, scalar], [type_])
    assert run(x, None, np.array(2, np.float32))[0].tolist() == [2, 1, 2]


def test_the_machine_learning_domain():
    attrs = {"threshold": 1.5}
    type_ = TensorType("float32", (3,))
    run = bind_reference("Binarizer", "ai.onnx.ml", 1, attrs, [type_], [type_])
    assert run(np.array([1, 2, 3], np.float32))[0].tolist() == [0, 1, 1]


def test_text_comes_back_as_objects():
    text = TensorType("string", (2,))
    run = bind_reference("StringConcat", "", 20, {}, [text, text], [text])
    (got,) = run(np.array(["a", "b"], object), np.array(["c", "d"], object))
    assert got.dtype == object
    assert got.tolist() == ["ac", "bd"]


def test_sequences():
    sequence = SequenceType(TensorType("float32", None))
    run = bind_reference("SequenceConstruct", "", 11, {}, [F23, F23], [sequence])
    x = np.ones((2, 3), np.float32)
    (got,) = run(x, x)
    assert isinstance(got, list)
    run = bind_reference("SequenceLength", "", 11, {}, [sequence], [TensorType("int64", ())])
    assert run(got)[0] == 2


def test_results_have_the_dtype_that_onnx_asks_for():
    # onnx.reference sums int32 in int64.
    x = np.ones((2, 3), np.int32)
    type_ = TensorType("int32", (2, 3))
    wide = run_reference("ReduceSumSquare", [x], {"axes": [1]}, 1)[0]
    run = bind_reference("ReduceSumSquare", "", 1, {"axes": [1]}, [type_], [TensorType("int32", (2, 1))])
    assert wide.dtype == np.int64
    assert run(x)[0].dtype == np.int32


def test_unknown_operators():
    with pytest.raises(
        UnsupportedError, match=r"relu_17: no kernel for operator Rleu, version 1 of domain com\.vendor"
    ):
        bind_reference("Rleu", "com.vendor", 1, {}, [F23], [F23], "relu_17")


def test_a_failure_of_the_reference_is_typed():
    run = bind_reference("MatMul", "", 13, {}, [F23, F23], [F23], "mm")
    with pytest.raises(ExecutionError, match=r"mm: MatMul failed in onnx\.reference"):
        run(np.ones((2, 3), "f"), np.ones((2, 3), "f"))


def test_bind_chooses_the_tier():
    x = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)
    run, tier = bind(node("LeakyRelu", 16, [F23], alpha=0.5))
    assert tier == "numpy"
    assert run(x)[0].tolist() == [[-0.5, 0, 2], [3, -2, 5]]
    run, tier = bind(node("HannWindow", 17, [TensorType("int64", ())]))
    assert tier == "reference"
    assert run(np.array(4))[0].shape == (4,)


def test_bind_gives_one_entry_per_result():
    run, _ = bind(node("TopK", 11, [F23, TensorType("int64", (1,))], outputs=2))
    assert len(run(np.ones((2, 3), "f"), np.array([1]))) == 2
    run, _ = bind(node("Unique", 11, [F23], outputs=1))
    assert len(run(np.ones((2, 3), "f"))) == 1
    run, _ = bind(node("Split", 18, [F23], outputs=2, num_outputs=2))
    assert [y.shape for y in run(np.ones((2, 3), "f"))] == [(1, 3), (1, 3)]


def test_bind_ignores_the_memory_hint_of_old_operators():
    run, _ = bind(node("Relu", 1, [F23], consumed_inputs=[0]))
    assert run(np.full((2, 3), -1, "f"))[0].max() == 0


def test_the_node_class_is_the_one_of_the_ir():
    assert isinstance(node("Relu", 14, [F23]), Node)


def test_bind_hands_bodies_captures_and_types_to_control_flow():
    body = Graph("body")
    for name, type_ in (("i", TensorType("int64", ())), ("c", TensorType("bool", ())), ("k", F23)):
        body.add_input(name, type_)
    condition, outer = body.inputs[1], body.inputs[2]
    doubled = body.add("Add", [outer, outer]).output
    body.set_outputs([condition, doubled])
    graph = Graph()
    trips, captured = Value("n", TensorType("int64", ())), Value("k", F23)
    loop = graph.add(
        "Loop", [trips, None, captured], bodies={"body": body}, captures=1, types=[TensorType("float32", (None, 2, 3))]
    )
    run, tier = bind(loop, {"body": lambda i, c, k: (c, k + k)})
    x = np.ones((2, 3), np.float32)
    assert tier == "numpy"
    np.testing.assert_array_equal(run(np.array(4), None, x)[0], np.full((4, 2, 3), 2))
    assert run(np.array(0), None, x)[0].shape == (0, 2, 3)


def test_failures_of_kernels_name_the_node():
    gather = node("Gather", 13, [F23, TensorType("int64", (1,))])
    gather.sources = ("embedding",)
    run, _ = bind(gather)
    with pytest.raises(
        ExecutionError, match=r"^embedding \(Gather\): index out of bounds; expected indices in \[-2, 1"
    ):
        run(np.ones((2, 3), "f"), np.array([5]))
    add = node("Add", 14, [F23, F23])
    add.sources = ("residual",)
    run, _ = bind(add)
    with pytest.raises(ExecutionError, match=r"^residual \(Add\): the operands do not broadcast"):
        run(np.ones((2, 3), "f"), np.ones((2, 4), "f"))
