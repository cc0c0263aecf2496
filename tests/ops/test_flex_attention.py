"""FlexAttention: its graphs, what they capture, and its types, against onnx.reference and a formula."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tinycomp
from tests.ops.harness import dtype_of, sample
from tinycomp.errors import ExecutionError, ModelError, TypeInferenceError
from tinycomp.ir.types import TensorType
from tinycomp.ops import OPS

Q, K, V = (2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)
"""Two query heads share a head of keys and values."""
_NUMBERS = {"float16": 10, "bfloat16": 16, "float32": 1, "float64": 11}


def text(precision: str, score: str, dtype: str = "float", attributes: str = "") -> str:
    return f"""
    <ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview" : 1]>
    main ({dtype}[2, 4, L, 8] q, {dtype}[2, 2, S, 8] k, {dtype}[2, 2, S, 6] v, {precision}[1, 4, 1, 1] slope) => (y) {{
        wide = Add(slope, slope)
        y = ai.onnx.preview.FlexAttention <
            {attributes}
            score_mod = mod ({precision}[B, H, M, N] s) => ({precision}[B, H, M, N] r) {{ {score} }},
            prob_mod = keep ({precision}[B, H, M, N] p) => ({precision}[B, H, M, N] r) {{ r = Mul(p, wide) }}
        > (q, k, v)
    }}"""


def arrays(dtype: str = "float32", precision: str = "float32") -> list[np.ndarray]:
    slope = np.linspace(0.5, 1.25, 4).reshape(1, 4, 1, 1).astype(dtype_of(precision))
    return [*(sample(dtype, shape, seed, -1, 1) for seed, shape in enumerate((Q, K, V))), slope]


def formula(q: np.ndarray, k: np.ndarray, v: np.ndarray, slope: np.ndarray) -> np.ndarray:
    k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(8) * slope)
    return scores / scores.sum(-1, keepdims=True) * 2 * slope @ v


def compiled(model: str, **options: object) -> tinycomp.Module:
    return tinycomp.compile(onnx.parser.parse_model(model), **options)


@pytest.mark.parametrize("target", [[], "c"])
def test_graphs_may_read_outer_values(target: object) -> None:
    q, k, v, slope = arrays()
    y = compiled(text("float", "r = Mul(s, slope)"), target=target)(q, k, v, slope)
    np.testing.assert_allclose(y, formula(q, k, v, slope), rtol=1e-5, atol=1e-6)


def test_a_constant_outside_moves_into_the_graphs() -> None:
    model = onnx.parser.parse_model(text("float", "r = Mul(s, slope)"))
    q, k, v, slope = arrays()
    del model.graph.input[3]
    model.graph.initializer.append(onnx.numpy_helper.from_array(slope, "slope"))
    module = tinycomp.compile(model)
    np.testing.assert_allclose(module(q, k, v), formula(q, k, v, slope), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float16", "float32"), ("bfloat16", "float32"), ("float16", "float16"), ("float32", "float64"),
        ("float64", "float64"),
    ],
)  # fmt: skip
def test_dtypes(dtype: str, precision: str) -> None:
    names = {"float32": "float", "float64": "double"}
    model = text(
        names.get(precision, precision), "r = Mul(s, slope)", names.get(dtype, dtype),
        f"softmax_precision = {_NUMBERS[precision]},",
    )  # fmt: skip
    feeds = arrays(dtype, precision)
    y = compiled(model)(*feeds)
    assert y.dtype == dtype_of(dtype)
    exact = formula(*(x.astype(np.float64) for x in feeds))
    tolerance = {"float16": 5e-3, "bfloat16": 5e-2}.get(dtype, 1e-5)
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


def test_without_graphs_it_is_attention() -> None:
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", scale=0.25)
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in zip("qkv", (Q, K, V), strict=True)]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.preview", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    feeds = arrays()[:3]
    (want,) = ReferenceEvaluator(model).run(None, dict(zip("qkv", feeds, strict=True)))
    np.testing.assert_allclose(tinycomp.compile(model)(*feeds), want, rtol=1e-5, atol=1e-6)


def test_bodies_are_typed_from_the_operands_and_stay_after_export() -> None:
    graph = tinycomp.from_onnx(onnx.parser.parse_model(text("float", "r = Mul(s, slope)")))
    (node,) = (n for n in graph.nodes if n.op == "FlexAttention")
    assert node.bodies["score_mod"].inputs[0].type == TensorType("float32", (2, 4, "L", "S"))
    assert node.output.type == TensorType("float32", (2, 4, "L", 6))
    assert node.captures == 2
    feeds = arrays()
    again = tinycomp.compile(tinycomp.to_onnx(graph))
    np.testing.assert_allclose(again(*feeds), formula(*feeds), rtol=1e-5, atol=1e-6)


def test_a_graph_of_another_result_type_is_refused() -> None:
    model = onnx.parser.parse_model(text("float", "r = Cast <to = 11> (s)"))
    model.graph.node[1].attribute[0].g.output[0].ClearField("type")
    with pytest.raises(
        TypeInferenceError,
        match=r"FlexAttention\): score_mod returns a value of the wrong type; "
        r"expected float32\[2, 4, L, S\]; found float64\[2, 4, L, S\]",
    ):
        tinycomp.from_onnx(model)


def test_a_graph_that_changes_the_shape_is_refused() -> None:
    model = text("float", "r = ReduceMax(s, axis) ").replace("wide = ", "axis = Constant<value_ints=[2]>() wide = ")
    with pytest.raises(TypeInferenceError, match="score_mod returns a value of the wrong type"):
        compiled(model)(*arrays())
    with pytest.raises(ExecutionError, match=r"score_mod changes shape or dtype; expected float32\[2, 4, 3, 5\]"):
        OPS.find("FlexAttention", "ai.onnx.preview").kernel(*arrays()[:3], score_mod=lambda s: (s[..., :1],))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [((Q, K, (2, 2, 4, 6)), "Q, K and V do not fit"), ((Q, K[1:], V), "operands of a wrong rank")],
)
def test_operands_that_do_not_fit_are_refused(shapes: tuple, message: str) -> None:
    with pytest.raises(ModelError, match=f"FlexAttention: {message}"):
        OPS.find("FlexAttention", "ai.onnx.preview").kernel(*(np.ones(s, np.float32) for s in shapes))
