"""Attention, FlexAttention (whose scores and probabilities pass through graphs of the model) and rotary embedding.

Inside, heads have an axis of their own: queries (B, Hq, L, D), keys (B, Hk, S, D), values (B, Hk, S, E). With grouped
queries Hq is a multiple of Hk, and consecutive query heads share a key head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.types import UNKNOWN, UNKNOWN_DTYPE, TensorType, Type, dtype_name, numpy_dtype
from tinycomp.ops.activation import softmax_along
from tinycomp.ops.numeric import Array, compute_dtype, fix_indices, node_shape, quiet, rounder, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Sizes
from tinycomp.records import dataclass
from tinycomp.symbolic import Size

FAMILY = OpFamily("attention")

RAW, CAPPED, BIASED, PROBABILITIES = range(4)
_PRECISIONS: dict[int, np.dtype[Any]] = {
    NUMBER_BY_DTYPE["float32"]: np.dtype(np.float32),
    NUMBER_BY_DTYPE["float16"]: np.dtype(np.float16),
    NUMBER_BY_DTYPE["float64"]: np.dtype(np.float64),
    NUMBER_BY_DTYPE["bfloat16"]: numpy_dtype("bfloat16"),
}


@dataclass(frozen=True)
class MaskRule:
    """Which keys a query may see by its position.

    Attributes:
        causal: Whether later keys are hidden.
        left: How many earlier keys are visible; -1 for all.
        right: How many later keys are visible; -1 for all.
        offset: Position of the first query among the keys: one number, or an array (B, 1, 1, 1).
    """

    causal: bool
    left: int
    right: int
    offset: int | Array

    def visible(self, queries: int, keys: int) -> Array | None:
        """Return a bool array that broadcasts to (B, Hq, queries, keys); None if everything is visible."""
        if not self.causal and self.left < 0 and self.right < 0:
            return None
        ahead = np.arange(keys) - (np.arange(queries)[:, None] + self.offset)
        seen = np.ones_like(ahead, dtype=bool)
        if self.causal:
            seen &= ahead <= 0
        if self.left >= 0:
            seen &= -ahead <= self.left
        if self.right >= 0:
            seen &= ahead <= self.right
        return seen


def split_heads(x: Array, heads: int | None) -> Array:
    """Return (B, heads, L, D) from that or from (B, L, heads * D)."""
    if x.ndim == 4 or heads is None:
        return x
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def heads_of(facts: Facts, index: int, heads: int | None, name: str, what: str) -> Sizes:
    """Return the sizes (B, heads, L, D) of an operand that has them, or is (B, L, heads * D).

    Args:
        facts: What is known of the node.
        index: The operand.
        heads: The number of heads that the node says; it counts where heads have no dimension of their own.
        name: The attribute that says it.
        what: What messages call the operand.
    """
    shape = facts.shape(index)
    if shape is None or len(shape) == _BY_HEAD:
        return shape or (None,) * _BY_HEAD
    facts.require(len(shape) == _BY_HEAD - 1, f"{what} has the wrong rank", expected="3 or 4 dimensions",
                  found=facts.shown(index))  # fmt: skip
    if heads is None:
        facts.fail(f"{name} is missing", expected="a number of heads, since the operands have three dimensions")
    facts.require(heads >= 1, f"{name} is out of range", expected="1 or more", found=heads)
    facts.require_divisible(shape[2], heads, f"{name} does not divide the hidden size")
    return (shape[0], heads, shape[1], None if shape[2] is None else shape[2] // heads)


_BY_HEAD = 4
"""Dimensions where heads have one of their own."""


def grouped_matmul(per_query_head: Array, per_key_head: Array) -> Array:
    """Multiply (B, Hq, L, M) by (B, Hk, M, N), each key head serving Hq / Hk query heads, to (B, Hq, L, N)."""
    batch, heads, length, _ = per_query_head.shape
    groups = per_key_head.shape[1]
    stacked = per_query_head.reshape(batch, groups, heads // groups, length, per_query_head.shape[3])
    product: Array = np.matmul(stacked, per_key_head[:, :, None])
    return product.reshape(batch, heads, length, per_key_head.shape[3])


def _bias(mask: Array | None, hidden: list[Array], keys: int, dtype: np.dtype[np.float32]) -> Array:
    """Return what is added to the scores: the mask, and -inf where something hides a key."""
    low = np.array(-np.inf, dtype=dtype)
    bias: Array = np.zeros((1, 1), dtype=dtype)
    if mask is not None:
        bias = np.where(mask, 0, low).astype(dtype) if mask.dtype == bool else mask.astype(dtype)
        missing = keys - mask.shape[-1]
        if missing > 0:
            bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, missing)], constant_values=-np.inf)
    for where in hidden:
        bias = np.where(where, low, bias)
    return bias


def masked_softmax(scores: Array, bias: Array) -> Array:
    """Return the softmax of ``scores`` over the last axis; a row whose bias or scores are all -inf becomes zeros."""
    blind = np.isneginf(bias.max(axis=-1, keepdims=True, initial=-np.inf))
    blind = blind | np.isneginf(scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.where(blind, np.zeros((), scores.dtype), softmax_along(scores, -1))


def scaled_scores(q: Array, k: Array, scale: float | None) -> Array:
    """Return the products of queries and keys, (B, Hq, L, S), in the dtype that ``q`` is computed in.

    Both factors take a square root of the scale, as ONNX asks, so that the product cannot overflow first. Root, factors
    and product are rounded to the dtype of ``q``.
    """
    wide, step = compute_dtype(q.dtype), rounder(q.dtype)
    root = step(np.sqrt(1 / np.sqrt(q.shape[3]) if scale is None else scale).astype(wide))
    return step(grouped_matmul(step(q.astype(wide) * root), step(k.astype(wide) * root).swapaxes(2, 3)))


def _attention_macs(node: Node) -> Size:
    """Return the MACs of both products; heads of rank-3 operands cancel out."""
    q, k, v = (node_shape(node.inputs[i]) for i in range(3))
    past = node.optional_operand(4)
    keys = (k[-2] if len(k) > 1 else 1) + (node_shape(past)[2] if past is not None and len(node_shape(past)) > 2 else 0)
    if len(q) == 4 and len(v) == 4:
        return q[0] * q[1] * q[2] * keys * (q[3] + v[3])
    if len(q) != 3 or len(v) != 3:
        return 0
    repeats = int(node.attrs.get("q_num_heads", 1)) // max(int(node.attrs.get("kv_num_heads", 1)), 1)
    return q[0] * q[1] * keys * (q[2] + v[2] * max(repeats, 1))


@FAMILY.op("Attention", traits={"output_count"}, macs=_attention_macs)
@quiet
def attention(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = RAW,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    outputs: int = 1,
) -> tuple[Array, ...]:
    """Return scaled dot-product attention with cache, masks, windows and soft cap.

    Returns:
        The result in the rank of ``q``; the keys and values seen, (B, Hk, S, …); the scores or probabilities that
        ``qk_matmul_output_mode`` asks for, (B, Hq, L, S).
    """
    heads = split_heads(q, q_num_heads)
    present_key = _extended(past_key, split_heads(k, kv_num_heads))
    present_value = _extended(past_value, split_heads(v, kv_num_heads))
    if nonpad_kv_seqlen is not None:
        nonpad_kv_seqlen = np.minimum(nonpad_kv_seqlen, _LONGEST)
    length, keys = heads.shape[2], present_key.shape[2]
    wide, step = compute_dtype(q.dtype), rounder(q.dtype)
    raw = scaled_scores(heads, present_key, scale)
    capped = step(softcap * step(np.tanh(step(raw / softcap)))) if softcap > 0 else raw
    offset = _first_position(past_key, nonpad_kv_seqlen, length)
    rule = MaskRule(bool(is_causal), left_window_size, right_window_size, offset)
    bias = _bias(attn_mask, _hidden(rule, nonpad_kv_seqlen, length, keys), keys, wide)
    biased = step(capped + bias)
    weights = masked_softmax(biased.astype(softmax_dtype(softmax_precision, q.dtype)), bias).astype(q.dtype)
    y = grouped_matmul(weights.astype(wide), present_value.astype(wide)).astype(q.dtype)
    if q.ndim == 3:
        y = y.swapaxes(1, 2).reshape(*q.shape[:2], -1)
    shown = {RAW: raw, CAPPED: capped, BIASED: biased, PROBABILITIES: weights}
    return (y, present_key, present_value, shown[qk_matmul_output_mode].astype(q.dtype))[:outputs]


_LONGEST = 1 << 48
"""No sequence is longer, so that positions cannot overflow."""


@FAMILY.infer("Attention")
def _attention(facts: Facts) -> Results:
    facts.require_one_of("qk_matmul_output_mode", (RAW, CAPPED, BIASED, PROBABILITIES))
    facts.require_one_of("softmax_precision", (0, *_PRECISIONS))
    facts.require(facts.has(4) == facts.has(5) and not (facts.has(4) and facts.has(6)), "contradictory cache inputs",
                  expected="past_key and past_value together, or nonpad_kv_seqlen, or none")  # fmt: skip
    key_heads = facts.attr("kv_num_heads")
    q = heads_of(facts, 0, facts.attr("q_num_heads"), "q_num_heads", "Q")
    k, v = (heads_of(facts, index, key_heads, "kv_num_heads", what) for index, what in ((1, "K"), (2, "V")))
    past, past_v = ((facts.dims(i, _BY_HEAD) if facts.has(i) else None) for i in (4, 5))
    batch, heads, keys = require_heads(facts, q, [s for s in (k, past) if s], [s for s in (v, past_v) if s])
    total = keys
    if past is not None and past_v is not None:
        before = facts.require_equal(past[2], past_v[2], "past_key and past_value differ in length")
        total = None if before is None or keys is None else before + keys
    depth, width = k[3] if past is None or k[3] is not None else past[3], v[3]
    if past_v is not None and width is None:
        width = past_v[3]
    facts.require_vector(6, batch, "nonpad_kv_seqlen")
    require_mask(facts, 3, (batch, q[1], q[2]), total)
    y: Sizes = (batch, q[1], q[2], width)
    if facts.rank(0) == _BY_HEAD - 1:
        y = (batch, q[2], None if q[1] is None or width is None else q[1] * width)
    return [
        facts.tensor(facts.dtype(0), y if facts.rank(0) is not None else None),
        facts.tensor(facts.first_dtype(1, 4, 0), (batch, heads, total, depth)),
        facts.tensor(facts.first_dtype(2, 5), (batch, heads, total, width)),
        facts.tensor(facts.dtype(0), (batch, q[1], q[2], total)),
    ]


def require_heads(
    facts: Facts, q: Sizes, keys: Sequence[Sizes], values: Sequence[Sizes]
) -> tuple[Size | None, Size | None, Size | None]:
    """Demand that queries, keys and values (B, heads, L, D) fit each other.

    Returns:
        Batch, heads of keys, and the length of the first keys.
    """
    batch, heads, depth, width, length = q[0], None, q[3], None, keys[0][2]
    for parts in (keys, values):
        for part in parts:
            batch = facts.require_equal(batch, part[0], "the batches of Q, K and V differ")
            heads = facts.require_equal(heads, part[1], "the heads of K and V differ")
    for part in keys:
        depth = facts.require_equal(depth, part[3], "the heads of Q and K differ in size")
    for part in values:
        width = facts.require_equal(width, part[3], "the heads of V differ in size")
    length = facts.require_equal(length, values[0][2], "K and V differ in length")
    facts.require_at_least(heads, 1, "there are no heads of keys")
    facts.require_divisible(q[1], heads, "the heads of queries are no multiple of those of keys")
    return batch, heads, length


def require_mask(facts: Facts, index: int, scores: Sizes, keys: Size | None) -> None:
    """Demand that a mask broadcasts to scores (B, heads, L, keys); it may have fewer keys than there are."""
    facts.require_rank_from(index, 1, "the mask")
    shape = facts.shape(index)
    if not shape:
        return
    facts.require(len(shape) <= _BY_HEAD, "the mask has too many dimensions", expected=f"up to {_BY_HEAD}",
                  found=facts.shown(index))  # fmt: skip
    for own, wanted, what in zip(reversed(shape[:-1]), reversed(scores), ("rows", "heads", "batch"), strict=False):
        facts.require_one_or(own, wanted, f"the {what} of the mask do not fit the queries")
    if keys is not None and shape[-1] is not None:
        facts.require_at_least(keys - shape[-1], 0, "the mask has more keys than there are")


def _extended(past: Array | None, new: Array) -> Array:
    return new if past is None else np.concatenate([past, new], axis=2)


def _first_position(past_key: Array | None, lengths: Array | None, queries: int) -> int | Array:
    if past_key is not None:
        return int(past_key.shape[2])
    return 0 if lengths is None else np.asarray(lengths.reshape(-1, 1, 1, 1) - queries)


def _hidden(rule: MaskRule, lengths: Array | None, queries: int, keys: int) -> list[Array]:
    seen = rule.visible(queries, keys)
    hidden = [] if seen is None else [~seen]
    if lengths is not None:
        hidden.append(np.arange(keys) >= lengths.reshape(-1, 1, 1, 1))
    return hidden


def softmax_dtype(precision: int | None, default: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a ``softmax_precision``, which is a number of ``TensorProto.DataType``.

    Raises:
        ModelError: If it is not one that ONNX allows.
    """
    if not precision:
        return default
    if precision not in _PRECISIONS:
        raise ModelError("unknown softmax_precision", expected=f"one of {sorted(_PRECISIONS)}", found=str(precision))
    return _PRECISIONS[precision]


@FAMILY.op("RotaryEmbedding", since=23)
@widened
def rotary_embedding(
    x: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Rotate pairs of features by angles that depend on the position.

    A pair is (i, i + half) of the rotated features, or (2i, 2i + 1) if ``interleaved``.

    Raises:
        ExecutionError: If a position lies outside the caches.
    """
    heads = split_heads(x, num_heads)
    size = rotary_embedding_dim or heads.shape[3]
    if position_ids is not None:
        index = fix_indices(position_ids, len(cos_cache), "RotaryEmbedding")
        cos_cache, sin_cache = cos_cache[index], sin_cache[index]
    first, second = (
        (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(size // 2), slice(size // 2, size))
    )
    cos, sin = cos_cache[:, None], sin_cache[:, None]
    y: Array = heads.copy()
    y[..., first] = cos * heads[..., first] - sin * heads[..., second]
    y[..., second] = sin * heads[..., first] + cos * heads[..., second]
    return y if x.ndim == 4 else y.swapaxes(1, 2).reshape(x.shape)


@FAMILY.infer("RotaryEmbedding")
def _rotary_embedding(facts: Facts) -> Results:
    batch, _, length, depth = heads_of(facts, 0, facts.attr("num_heads") or None, "num_heads", "X")
    rotated: Size | None = int(facts.attr("rotary_embedding_dim", 0)) or depth
    if rotated is not None:
        facts.require_divisible(rotated, 2, "the number of rotated features is odd")
        facts.require_at_least(rotated, 0, "rotary_embedding_dim is out of range")
        if depth is not None:
            facts.require_at_least(depth - rotated, 0, "more features are rotated than there are")
    half = None if rotated is None else rotated // 2
    for index, what in ((1, "the cache of cosines"), (2, "the cache of sines")):
        if facts.has(3):
            facts.require_equal(facts.dims(index, 2)[1], half, f"{what} does not fit the rotated features")
        else:
            for own, wanted in zip(facts.dims(index, 3), (batch, length, half), strict=True):
                facts.require_equal(own, wanted, f"{what} does not fit the input")
    if facts.has(3):
        require_positions(facts, 3, batch, length)
        facts.require_equal(facts.dim(1, 0), facts.dim(2, 0), "the caches differ in length")
    return [facts.tensor(facts.dtype(0), facts.shape(0))]


def require_positions(facts: Facts, index: int, batch: Size | None, length: Size | None) -> None:
    """Demand that an operand has a position for each of ``length`` tokens of every sequence."""
    for own, wanted in zip(facts.dims(index, 2), (batch, length), strict=True):
        facts.require_equal(own, wanted, "the positions do not fit the input")


def _precision(number: int | None, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of scores and probabilities: at least float32 unless the node says otherwise."""
    return softmax_dtype(number, compute_dtype(dtype))


def _body_types(node: Node) -> tuple[list[Type], list[Type]]:
    """Return what each graph takes and returns: the scores, or probabilities, (B, Hq, L, S)."""
    q, k = (v.type if v is not None else UNKNOWN for v in node.inputs[:2])
    if not isinstance(q, TensorType) or q.dtype == UNKNOWN_DTYPE:
        return [UNKNOWN], [UNKNOWN]
    shape = None
    if isinstance(k, TensorType) and q.shape is not None and k.shape is not None and len(q.shape) == len(k.shape) == 4:
        shape = (*q.shape[:3], k.shape[2])
    number = node.attrs.get("softmax_precision")
    scores = TensorType(dtype_name(_precision(number, numpy_dtype(q.dtype))), shape)
    return [scores], [scores]


def _macs(node: Node) -> Size:
    """Return the MACs of both products, without those of the graphs."""
    q, k, v = (node_shape(node.inputs[i]) for i in range(3))
    return q[0] * q[1] * q[2] * k[2] * (q[3] + v[3]) if len(q) == len(k) == len(v) == 4 else 0


def _modified(graph: Callable[..., tuple[Any, ...]] | None, x: Array, captured: tuple[Any, ...], name: str) -> Array:
    """Send an array through a graph, which must keep its shape and dtype."""
    if graph is None:
        return x
    (y,) = graph(x, *captured)
    if y.shape != x.shape or y.dtype != x.dtype:
        raise ExecutionError(
            f"FlexAttention: {name} changes shape or dtype",
            expected=f"{x.dtype}{list(x.shape)}",
            found=f"{y.dtype}{list(y.shape)}",
        )
    return np.asarray(y)


@FAMILY.op("FlexAttention", domain="ai.onnx.preview", traits={"bodies"}, macs=_macs, body_rule=_body_types)
@quiet
def flex_attention(
    q: Array,
    k: Array,
    v: Array,
    *captured: Any,
    scale: float | None = None,
    softmax_precision: int | None = None,
    score_mod: Callable[..., tuple[Any, ...]] | None = None,
    prob_mod: Callable[..., tuple[Any, ...]] | None = None,
    captures: int = 0,
) -> Array:
    """Return the attention of rank-4 operands with graphs behind the scores and behind the softmax.

    Args:
        q: Queries (B, Hq, L, D).
        k: Keys (B, Hk, S, D).
        v: Values (B, Hk, S, E).
        *captured: Outer values that the graphs read.
        scale: Factor of the scores; 1 / sqrt(D) by default.
        softmax_precision: Element type of scores and probabilities.
        score_mod: Takes the scores (B, Hq, L, S) and returns others.
        prob_mod: The same for the probabilities.
        captures: How many values are captured.

    Returns:
        (B, Hq, L, E) in the dtype of ``v``.

    Raises:
        ExecutionError: If a graph changes shape or dtype.
    """
    precision = _precision(softmax_precision, q.dtype)
    scores = _modified(score_mod, scaled_scores(q, k, scale).astype(precision), captured, "score_mod")
    weights = _modified(prob_mod, softmax_along(scores, -1), captured, "prob_mod")
    wide = compute_dtype(precision)
    return grouped_matmul(weights.astype(wide), v.astype(precision).astype(wide)).astype(precision).astype(v.dtype)


@FAMILY.infer("FlexAttention", domain="ai.onnx.preview")
def _flex_attention(facts: Facts) -> Results:
    q, k, v = (facts.dims(index, _BY_HEAD) for index in range(3))
    batch, _, _ = require_heads(facts, q, [k], [v])
    return [facts.tensor(facts.dtype(0), (batch, q[1], q[2], v[3]))]
