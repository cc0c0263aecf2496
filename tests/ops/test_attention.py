"""Attention, FlexAttention and rotary embedding against onnx.reference and plain formulas."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tinycomp
from tests.cases.case import make_model
from tests.ops.harness import check, dtype_of, run_ours, sample
from tinycomp.errors import ExecutionError, TypeInferenceError
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import TensorType
from tinycomp.ops import OPS

REFERENCE = ("reference",)
# name: (query heads, key heads, further inputs by position, attributes)
CASES = {
    "plain": (4, 4, {}, {}),
    "grouped": (4, 2, {}, {}),
    "one_key_head": (4, 1, {}, {}),
    "scale": (2, 2, {}, {"scale": 0.3}),
    "softcap": (2, 2, {}, {"softcap": 0.5, "qk_matmul_output_mode": 1}),
    "causal": (2, 2, {}, {"is_causal": 1}),
    "causal_biased_scores": (2, 2, {}, {"is_causal": 1, "qk_matmul_output_mode": 2}),
    "probabilities": (2, 2, {}, {"is_causal": 1, "qk_matmul_output_mode": 3}),
    "bool_mask": (2, 2, {3: sample("bool", (5, 6))}, {}),
    "float_mask": (2, 2, {3: sample("float32", (2, 1, 5, 6))}, {}),
    "short_mask": (2, 2, {3: sample("float32", (5, 4))}, {}),
    "short_bool_mask": (2, 2, {3: sample("bool", (5, 4))}, {"is_causal": 1}),
    "cache": (4, 2, {4: sample("float32", (2, 2, 3, 8), 7), 5: sample("float32", (2, 2, 3, 4), 8)}, {"is_causal": 1}),
    "lengths": (2, 2, {6: np.array([6, 2])}, {}),
    "lengths_causal": (2, 2, {6: np.array([6, 3])}, {"is_causal": 1}),
    "window": (2, 2, {}, {"left_window_size": 2, "right_window_size": 1}),
    "window_causal": (2, 2, {}, {"left_window_size": 1, "is_causal": 1}),
    "window_lengths": (2, 2, {6: np.array([6, 4])}, {"left_window_size": 2, "is_causal": 1}),
    "fully_masked": (2, 2, {3: np.zeros((5, 6), bool)}, {"qk_matmul_output_mode": 3}),
    "double_softmax": (2, 2, {}, {"softmax_precision": 11}),
}


def operands(query_heads, key_heads, further=(), dtype="float32"):
    """Return Q (2, Hq, 5, 8), K (2, Hk, 6, 8), V (2, Hk, 6, 4) and further inputs."""
    shapes = [(2, query_heads, 5, 8), (2, key_heads, 6, 8), (2, key_heads, 6, 4)]
    inputs = [sample(dtype, shape, seed, -1, 1) for seed, shape in enumerate(shapes)]
    further = dict(further)
    return inputs + [further.get(i) for i in range(3, max(further, default=2) + 1)]


@pytest.mark.parametrize("name", CASES)
def test_attention(name):
    query_heads, key_heads, further, attrs = CASES[name]
    check("Attention", operands(query_heads, key_heads, further), attrs, 25, 4, against=REFERENCE, atol=1e-5)


@pytest.mark.parametrize("version", [23, 24])
def test_older_versions(version):
    check("Attention", operands(4, 2), {"is_causal": 1}, version, 1, against=REFERENCE)


def test_rank_3_is_rank_4_with_heads_side_by_side():
    four = operands(4, 2)
    three = [x.swapaxes(1, 2).reshape(2, x.shape[2], -1) for x in four]
    attrs = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}
    (got, key, _, _), _ = check("Attention", three, attrs, 25, 4, against=REFERENCE, atol=1e-5)
    (want,) = run_ours("Attention", four, {"is_causal": 1})
    np.testing.assert_array_equal(got, want.swapaxes(1, 2).reshape(got.shape))
    np.testing.assert_array_equal(key, four[1])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-6)])
def test_dtypes(dtype, tolerance):
    inputs = operands(4, 2, dtype=dtype)
    (got,) = run_ours("Attention", inputs, {"is_causal": 1})
    (want,) = run_ours("Attention", [x.astype(np.float32) for x in inputs], {"is_causal": 1})
    assert got.dtype == inputs[0].dtype
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=tolerance, atol=tolerance)


def test_mode_0_shows_the_scores_before_the_cap():
    inputs = operands(2, 2)
    scores = run_ours("Attention", inputs, {"softcap": 0.1}, 25, 4)[3]
    np.testing.assert_allclose(scores, inputs[0] @ inputs[1].swapaxes(2, 3) / np.sqrt(8), rtol=1e-4, atol=1e-5)


def test_attention_errors():
    q, k, v = operands(4, 2)
    with pytest.raises(ExecutionError, match="the heads of queries are no multiple of those of keys"):
        run_ours("Attention", [q[:, :3], k, v])
    with pytest.raises(ExecutionError, match="contradictory cache inputs"):
        run_ours("Attention", [q, k, v, None, k])
    with pytest.raises(ExecutionError, match=r"q_num_heads does not divide the hidden size; .* found 3"):
        run_ours("Attention", [q[..., 0], k, v], {"q_num_heads": 3})
    with pytest.raises(ExecutionError, match="unknown qk_matmul_output_mode; expected one of 0, 1, 2, 3; found 4"):
        run_ours("Attention", [q, k, v], {"qk_matmul_output_mode": 4})


@pytest.mark.parametrize("rank", [3, 4])
def test_macs(rank):
    shapes = [(2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 4)] if rank == 4 else [(2, 5, 32), (2, 6, 16), (2, 6, 8)]
    node = Node("Attention", "", 23, tuple(Value(f"x{i}", TensorType("float32", s)) for i, s in enumerate(shapes)))
    node.attrs = {"q_num_heads": 4, "kv_num_heads": 2}
    assert OPS.find("Attention").macs(node) == 2 * 4 * 5 * 6 * (8 + 4)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [0, 4])
@pytest.mark.parametrize("with_positions", [False, True])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embedding(interleaved, dim, with_positions, rank):
    x = sample("float32", (2, 3, 5, 8))
    x = x if rank == 4 else x.swapaxes(1, 2).reshape(2, 5, 24)
    shape = (10, (dim or 8) // 2) if with_positions else (2, 5, (dim or 8) // 2)
    caches = [sample("float32", shape, seed, -1, 1) for seed in (1, 2)]
    positions = [np.arange(10).reshape(2, 5)[:, ::-1].copy()] if with_positions else []
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": dim, "num_heads": 3 if rank == 3 else None}
    check("RotaryEmbedding", [x, *caches, *positions], attrs, 23, against=REFERENCE)


def test_rotary_embedding_errors():
    x, cache = sample("float32", (2, 3, 5, 8)), sample("float32", (10, 4))
    with pytest.raises(ExecutionError, match="operand 1 has the wrong rank; expected 3 dimensions"):
        run_ours("RotaryEmbedding", [x, cache, cache])
    with pytest.raises(ExecutionError, match=r"index out of bounds; expected indices in \[-10, 9\]"):
        run_ours("RotaryEmbedding", [x, cache, cache, np.full((2, 5), 10)])
    with pytest.raises(ExecutionError, match="num_heads is missing"):
        run_ours("RotaryEmbedding", [x[:, 0], cache, cache])


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
def test_flex_attention_dtypes(dtype: str, precision: str) -> None:
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
    feeds = dict(zip("qkv", arrays()[:3], strict=True))
    model = make_model([node], feeds, {}, ["y"], domains={"ai.onnx.preview": 1})
    (want,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(tinycomp.compile(model)(**feeds), want, rtol=1e-5, atol=1e-6)


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
    with pytest.raises(ExecutionError, match="score_mod changes shape or dtype"):
        compiled(model)(*arrays())
    with pytest.raises(ExecutionError, match=r"score_mod changes shape or dtype; expected float32\[2, 4, 3, 5\]"):
        OPS.find("FlexAttention", "ai.onnx.preview").kernel(*arrays()[:3], score_mod=lambda s: (s[..., :1],))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [((Q, K, (2, 2, 4, 6)), "K and V differ in length"), ((Q, K[1:], V), "operand 1 has the wrong rank; expected 4")],
)
def test_operands_that_do_not_fit_are_refused(shapes: tuple, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        run_ours("FlexAttention", [np.ones(s, np.float32) for s in shapes], version=1, domain="ai.onnx.preview")
