"""Scales, biases and slopes: as long as the axis that they belong to."""

from __future__ import annotations

from collections.abc import Callable

from tinycomp.ops.facts import Facts


def _per_channel(facts: Facts) -> None:
    channels = facts.dim(0, 1)
    facts.require_vector(1, channels, "the scale")
    facts.require_vector(2, channels, "the bias")


def _batch_norm(facts: Facts) -> None:
    _per_channel(facts)
    for index, what in ((3, "the mean"), (4, "the variance")):
        facts.require_vector(index, facts.dim(0, 1), what)


def _layer_norm(facts: Facts) -> None:
    shape, axis = facts.shape(0), int(facts.attr("axis", -1))
    if shape is None:
        return
    facts.require_axis(axis, len(shape))
    facts.require_broadcast(1, shape, "the scale")
    facts.require_broadcast(2, shape, "the bias")


def _group_norm(facts: Facts) -> None:
    groups, channels = int(facts.attr("num_groups", 1)), facts.dim(0, 1)
    if groups < 1 or (channels is not None and channels % groups):
        facts.fail("num_groups does not divide the channels", expected=f"a divisor of {channels}", found=groups)


def _prelu(facts: Facts) -> None:
    shape = facts.shape(0)
    if shape is not None and facts.node.version >= 7:
        facts.require_broadcast(1, shape, "the slope")


def _gemm(facts: Facts) -> None:
    rows = facts.dim(0, 1 if facts.attr("transA", 0) else 0)
    columns = facts.dim(1, 0 if facts.attr("transB", 0) else 1)
    if facts.node.version >= 7:
        facts.require_broadcast(2, (rows, columns), "the bias")


def _lrn(facts: Facts) -> None:
    if int(facts.attr("size", 1)) < 1:
        facts.fail("size is out of range", expected="1 or more", found=facts.attr("size"))


def _attention(facts: Facts) -> None:
    for index, name in ((0, "q_num_heads"), (1, "kv_num_heads"), (2, "kv_num_heads")):
        heads, rank, hidden = facts.attr(name), facts.rank(index), facts.dim(index, -1)
        if rank == 3 and heads is None:
            facts.fail(f"{name} is missing", expected="a number of heads, since the operands have three dimensions")
        if rank == 3 and hidden is not None and (heads < 1 or hidden % heads):
            facts.fail(f"{name} does not divide the hidden size", expected=f"a divisor of {hidden}", found=heads)
    facts.require_vector(6, facts.dim(0, 0), "nonpad_kv_seqlen")
    queries, rows = facts.dim(0, -2), facts.dim(3, -2)
    if queries is not None and rows not in (None, 1, queries):
        facts.fail("the mask does not fit the queries", expected=f"1 or {queries} rows", found=rows)


CHECKS: dict[str, Callable[[Facts], None]] = {
    "Attention": _attention,
    "BatchNormalization": _batch_norm,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _per_channel,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "PRelu": _prelu,
    "RMSNormalization": _layer_norm,
}
