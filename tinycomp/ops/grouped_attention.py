"""GroupQueryAttention of ``com.microsoft``: attention with a cache that a sequence's own length says how to read.

Sequence b of the batch has ``seqlens_k[b] + 1`` tokens with the new ones. Those begin at position 0 where
``total_sequence_length``, the length of the longest sequence, is the number of new tokens, else at ``seqlens_k[b] + 1``
less that number. A present is the past with the new rows written there, so that both may be one buffer: rows that
nothing wrote stay as they are, or are 0 behind the end of the past.
"""

from __future__ import annotations

import numpy as np

from tinycomp import symbolic
from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import Dim
from tinycomp.ops.attention import (
    MaskRule,
    grouped_matmul,
    require_mask,
    require_positions,
    rotary_embedding,
    scaled_scores,
    split_heads,
)
from tinycomp.ops.numeric import Array, compute_dtype, node_shape, quiet, rounder
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.symbolic import Size

FAMILY = OpFamily("grouped_attention")

DOMAIN = "com.microsoft"
OP = "GroupQueryAttention"
_KEY, _VALUE, _PAST_KEY, _SEQLENS, _LONGEST = 1, 2, 3, 5, 6
_COSINES, _POSITIONS, _BIAS, _SINK, _OTHERS = 7, 9, 10, 11, 12
_RESULTS = 3
_SWITCHES = ("qk_output", "sliding_window_cache", "kv_cache_bit_width")
"""Attributes that have to be 0."""
_NOTHING = np.zeros(0, np.int32)
_OTHER_INPUTS = ("k_scale", "v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens")
"""Inputs from 12 on."""


def head_size(node: Node) -> Dim:
    """Return the size of one head: the last dimension of the query over its heads, and over all of them if packed."""
    queries, keys = (int(node.attrs.get(name, 0)) for name in ("num_heads", "kv_num_heads"))
    shape = node.operand(0).sizes if node.operand(0).rank else None
    packed = node.optional_operand(_KEY) is None
    return symbolic.dimension(shape[-1] // (queries + 2 * keys if packed else queries)) if shape else None


def _longest(value: Value | None) -> Size | None:
    """Return the length of the longest sequence, if it is constant or follows from sizes."""
    return value.contents[0] if value is not None and value.contents else None


def present_length(node: Node) -> Dim:
    """Return how long the presents are, as their types or those of the operands say; None if nothing does."""
    for value in node.outputs[1:3]:
        if value.name and value.shape and len(value.shape) == 4:
            return value.shape[2]
    return _inferred_length(node)


def _inferred_length(node: Node) -> Dim:
    """Return the length of the past's buffer or of the longest sequence, whichever is greater.

    Where the longest sequence is no number, a present that was declared as long as the past remains so.
    """
    query, past = node.operand(0).shape, node.optional_operand(_PAST_KEY)
    if past is None:
        return query[1] if query and len(query) == 3 else None
    known, shape = _longest(node.optional_operand(_LONGEST)), past.shape
    if not shape or len(shape) != 4 or shape[2] is None:
        return None
    declared = [v.shape[2] for v in node.outputs[1:3] if v.shape and len(v.shape) == 4]
    if not isinstance(known, int) and shape[2] in declared:
        return shape[2]
    if known is None:
        return None
    return symbolic.dimension(symbolic.maximum(known, symbolic.size(shape[2])))


@FAMILY.infer(OP, domain=DOMAIN)
def _types(facts: Facts) -> Results:
    node = facts.node
    queries, keys = (int(facts.attr(name, 0)) for name in ("num_heads", "kv_num_heads"))
    facts.require(queries >= 1 and keys >= 1 and queries % keys == 0, "the heads do not fit each other",
                  expected="num_heads, a multiple of kv_num_heads, both above 0",
                  found=f"{queries} and {keys}")  # fmt: skip
    facts.require(len(node.outputs) <= _RESULTS, "the products of queries and keys are not supported as a result",
                  expected="one or three results", found=len(node.outputs))  # fmt: skip
    batch, rows, width = facts.dims(0, 3)
    packed = not facts.has(_KEY)
    facts.require(packed != facts.has(_VALUE), "the key or the value is missing", expected="both, or a packed query")
    parts = queries + 2 * keys if packed else queries
    facts.require_divisible(width, parts, "the heads do not divide the size of the query")
    size = None if width is None else width // parts
    wrong = uncovered(node)  # targets of others may cover it
    if not wrong:
        _require_operands(facts, batch, rows, size)
    elif facts.in_run:
        facts.fail(wrong, expected="float keys and values, and their lengths")
    present = facts.tensor(facts.dtype(0), (batch, keys, _length(facts), size))
    return [facts.tensor(facts.dtype(0), (batch, rows, None if size is None else size * queries)), present, present]


def _require_operands(facts: Facts, batch: Size | None, rows: Size | None, size: Size | None) -> None:
    """Demand that operands fit a query of so many rows, whose heads are of one ``size``."""
    queries, keys = (int(facts.attr(name)) for name in ("num_heads", "kv_num_heads"))
    for index, what in ((_KEY, "the key"), (_VALUE, "the value")) if facts.has(_KEY) else ():
        for own, wanted in zip(facts.dims(index, 3), (batch, rows, None if size is None else size * keys), strict=True):
            facts.require_equal(own, wanted, f"{what} does not fit the query")
    pasts = (_PAST_KEY, _PAST_KEY + 1)
    facts.require(facts.has(pasts[0]) == facts.has(pasts[1]), "half of the past is missing", expected="keys and values")
    for index in pasts if facts.has(_PAST_KEY) else ():
        for own, wanted in zip(facts.dims(index, 4), (batch, keys, facts.dim(_PAST_KEY, 2), size), strict=True):
            facts.require_equal(own, wanted, "the past does not fit the new rows")
    facts.require(facts.has(_SEQLENS) and facts.has(_LONGEST), "the lengths are missing",
                  expected="seqlens_k and total_sequence_length")  # fmt: skip
    lengths = [dim for dim in facts.shape(_SEQLENS) or (None,) if dim is not None]
    if len(lengths) == facts.rank(_SEQLENS):
        facts.require_equal(symbolic.product(lengths), batch, "seqlens_k does not fit the batch")
    facts.require_scalar(_LONGEST, "total_sequence_length")
    _require_angles(facts, batch, rows, size)
    require_mask(facts, _BIAS, (batch, queries, rows), None)
    facts.require_vector(_SINK, queries, "head_sink")


def _require_angles(facts: Facts, batch: Size | None, rows: Size | None, size: Size | None) -> None:
    if not facts.attr("do_rotary", 0):
        return
    facts.require(facts.has(_COSINES) and facts.has(_COSINES + 1), "the caches of angles are missing",
                  expected="cos_cache and sin_cache")  # fmt: skip
    cosines = facts.dims(_COSINES, 2)
    for own, wanted in zip(facts.dims(_COSINES + 1, 2), cosines, strict=True):
        facts.require_equal(own, wanted, "the caches of angles differ in shape")
    if size is not None and cosines[1] is not None:
        facts.require_at_least(size - 2 * cosines[1], 0, "more features are rotated than there are")
    if facts.has(_POSITIONS):
        require_positions(facts, _POSITIONS, batch, rows)


def _length(facts: Facts) -> Size | None:
    """Return how long presents are; in a run that is for the kernel to find."""
    length = None if facts.in_run else _inferred_length(facts.node)
    return None if length is None else symbolic.size(length)


def _macs(node: Node) -> Size:
    shape = node_shape(node.operand(0))
    past = node.optional_operand(_PAST_KEY)
    size, known = head_size(node), node_shape(past) if past is not None else ()
    if len(shape) != 3 or not isinstance(size, int):
        return 0
    keys = known[2] if len(known) == 4 else shape[1]
    return 2 * shape[0] * shape[1] * keys * size * int(node.attrs.get("num_heads", 1))


@FAMILY.op(OP, domain=DOMAIN, traits={"output_count"}, macs=_macs)
@quiet
def group_query_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    seqlens_k: Array = _NOTHING,
    total_sequence_length: Array = _NOTHING,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    *others: Array | None,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float = 0.0,
    k_quant_type: str | bytes = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float = 0.0,
    qk_norm_epsilon: float = 0.0,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str | bytes = "NONE",
    outputs: int = 1,
) -> tuple[Array, ...]:
    """Return attention over the cache and the new tokens, and the cache with those.

    Returns:
        The result (B, S, H * D); the present keys and values (B, Hk, T, D), T being the longer of the past's buffer and
        ``total_sequence_length``.

    Raises:
        ExecutionError: If a sequence is longer than its buffer, or shorter than its new tokens.
    """
    q, k, v = _split(query, key, value, num_heads, kv_num_heads)
    rows = q.shape[2]
    totals = seqlens_k.reshape(-1).astype(np.int64) + 1
    longest = int(total_sequence_length.reshape(-1)[0])
    first = np.zeros_like(totals) if rows == longest else totals - rows
    capacity = max(longest, 0 if past_key is None else past_key.shape[2])
    _check_lengths(first, totals, rows, capacity)
    if do_rotary and cos_cache is not None and sin_cache is not None:
        positions = first[:, None] + np.arange(rows) if position_ids is None else position_ids
        angles = (cos_cache, sin_cache, positions)
        turned = {"interleaved": rotary_interleaved, "rotary_embedding_dim": 2 * cos_cache.shape[1]}
        q, k = (rotary_embedding(x, *angles, **turned) for x in (q, k))
    keys, values = (
        _present(past, new, first, capacity) for past, new in ((past_key, k), (past_value, v))
    )  # fmt: skip
    wide, step = compute_dtype(query.dtype), rounder(query.dtype)
    scores = scaled_scores(q, keys, scale or None)
    if softcap > 0:
        scores = step(softcap * step(np.tanh(step(scores / softcap))))
    left = local_window_size - 1 if local_window_size > 0 else -1
    seen = MaskRule(bool(causal), left, -1, first.reshape(-1, 1, 1, 1)).visible(rows, capacity)
    hidden = np.arange(capacity) >= totals.reshape(-1, 1, 1, 1)
    if seen is not None:
        hidden = hidden | ~seen
    if attention_bias is not None:
        width = min(capacity, attention_bias.shape[-1])
        scores[..., :width] = step(scores[..., :width] + attention_bias[..., :width])
        hidden = hidden | (np.arange(capacity) >= width)
    sink = head_sink if head_sink is not None else np.zeros(num_heads) if smooth_softmax else None
    weights = _softmax(np.where(hidden, np.array(-np.inf, wide), scores), sink)
    y = grouped_matmul(weights.astype(wide), values.astype(wide)).astype(query.dtype)
    return (y.swapaxes(1, 2).reshape(*query.shape[:2], -1), keys, values)[:outputs]


def uncovered(node: Node) -> str:
    """Return what of a node is not covered, for a message: a cache of integers, normalised heads, padded chunks."""
    given = [name for name, value in zip(_OTHER_INPUTS, node.inputs[_OTHERS:], strict=False) if value is not None]
    wrong = [*given, *(name for name in _SWITCHES if node.attrs.get(name))]
    return f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not covered" if wrong else ""


def _split(
    query: Array, key: Array | None, value: Array | None, heads: int, key_heads: int
) -> tuple[Array, Array, Array]:
    """Return queries, keys and values as (batch, heads, tokens, size), which may come packed in the query."""
    if key is None or value is None:
        size = query.shape[-1] // (heads + 2 * key_heads)
        places = np.cumsum([heads * size, key_heads * size])
        query, key, value = np.split(query, [int(place) for place in places], axis=-1)
    return (
        split_heads(query, heads),
        split_heads(key, key_heads),
        split_heads(value, key_heads),
    )


def _check_lengths(first: Array, totals: Array, rows: int, capacity: int) -> None:
    if (first < 0).any() or (totals < 0).any():
        raise ExecutionError(
            f"{OP}: a sequence is shorter than its new rows: its length counts them, too",
            expected=f"seqlens_k of at least {rows - 1}", found=str((totals - 1).tolist()),
            hint="seqlens_k is the number of tokens so far, those of this run among them, less one.",
        )  # fmt: skip
    if (np.maximum(first + rows, totals) > capacity).any():
        raise ExecutionError(
            f"{OP}: the cache is full: a sequence is longer than its buffer", expected=f"up to {capacity} tokens",
            found=str(int(np.maximum(first + rows, totals).max())), hint="Give a past with more room.",
        )  # fmt: skip


def _present(past: Array | None, new: Array, first: Array, capacity: int) -> Array:
    present = np.zeros((*new.shape[:2], capacity, new.shape[3]), new.dtype)
    if past is not None:
        present[:, :, : past.shape[2]] = past
    for batch, start in enumerate(first):
        present[batch, :, start : start + new.shape[2]] = new[batch]
    return present


def _softmax(scores: Array, sink: Array | None) -> Array:
    """Return the softmax over the last axis with e^sink of each head in its sum; zeros where nothing is seen."""
    most = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    wall = None if sink is None else sink.astype(scores.dtype).reshape(1, -1, 1, 1)
    if wall is not None:
        most = np.maximum(most, wall)
    most = np.where(np.isneginf(most), 0, most)
    exponentials = np.exp(scores - most)
    total = exponentials.sum(axis=-1, keepdims=True)
    if wall is not None:
        total = total + np.exp(wall - most)
    result: Array = exponentials / np.where(total == 0, 1, total)
    return result


FAMILY.trait("checked", OP, domain=DOMAIN)
