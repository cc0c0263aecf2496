"""Attention on the C target: two products with a softmax between them as one kernel call.

Where heads of queries share keys and values, exporters repeat these; a kernel reads them once for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ir.layout import strides
from tinycomp.ir.types import tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass
from tinycomp.remark import Remark
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.symbolic import Size
from tinycomp.target import Target
from tinycomp.targets.c.codegen.batches import Walk, in_two
from tinycomp.targets.c.codegen.element_program import broadcast_strides
from tinycomp.targets.c.codegen.emitter import Emitter, Strided
from tinycomp.targets.c.codegen.placement import destination, element_size
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.c.ops import cached_attention
from tinycomp.targets.common.checks import sized_type, surely_equal
from tinycomp.targets.common.composites import opened

FAMILY = LoweringRules()
NAME = "c.attention"
GROUPED = "c.grouped_attention"
_LEAST_RANK, _BY_HEAD = 2, 4


def add_attention(target: Target) -> None:
    """Add the composites to ``target``: that with more around the products comes first."""

    @target.composite(name="grouped_attention")
    def grouped(q: ValuePattern, k: ValuePattern, v: ValuePattern, m: ValuePattern) -> ValuePattern:
        scores = _scaled(P.MatMul(_scaled(q), _scaled(P.Transpose(_repeated(k)))))
        shares = P.Softmax(P.Add(scores, m) | scores)
        return P.MatMul(P.Where(P.IsNaN(shares), _ZERO, shares) | shares, _repeated(v))

    grouped.check(_is_grouped)

    @target.composite(name="attention")
    def attention(q: ValuePattern, k: ValuePattern, v: ValuePattern, m: ValuePattern) -> ValuePattern:
        scores = _scaled(P.MatMul(_scaled(q), _scaled(k)))
        return P.MatMul(P.Softmax(P.Add(scores, m) | scores), v)

    attention.check(_fits)


def _scaled(x: ValuePattern) -> ValuePattern:
    """Match ``x``, or ``x`` scaled by a constant: exporters scale the scores, or queries and keys by the root."""
    factor, divisor = (P.const.where(value=lambda c: c.size == 1) for _ in range(2))
    return (x * factor) | (x / divisor) | x


_ZERO = P.const.where(value=lambda c: c.size == 1 and not c.any())


def _repeated(x: ValuePattern) -> ValuePattern:
    """Match ``x``, or ``x`` with every head as often as heads of queries share it."""
    apart = P.Reshape(x, P.const)
    return P.Reshape(P.Expand(apart, P.const) | P.Tile(apart, P.const), P.const) | x


def _is_grouped(match: Match) -> bool | Remark:
    """Tell whether heads of one size share keys, or a query that sees no key gives zeros as PyTorch has it."""
    shapes = [match[name].shape for name in "qkv"]
    q, k, v = (s if s is not None and len(s) == _BY_HEAD and None not in s else None for s in shapes)
    if q is None or k is None or v is None:
        return reject(f"shapes {', '.join(map(str, shapes))}, not all of rank 4 and known")
    wrong = next((match[name] for name in "qkv" if match[name].dtype != "float32"), None)
    if wrong is not None:
        return reject(f'"{wrong.name}" is {wrong.type}, not float32')
    softmax, transpose = (next(n for n in match.matched if n.op == op) for op in ("Softmax", "Transpose"))
    if softmax.attrs.get("axis", -1 if softmax.version >= 13 else 1) not in (-1, 3):
        return reject("the softmax is not over the keys")
    if transpose.attrs.get("perm") != [0, 1, 3, 2]:
        return reject("the keys are not transposed by themselves")
    if k[:3] != v[:3] or k[0] != q[0] or k[3] != q[3] or not all(isinstance(s[1], int) for s in (q, k)):
        return reject(f"queries {q}, keys {k} and values {v} do not belong together")
    guarded = any(n.op == "Where" for n in match.matched)
    repeats = [n for n in match.matched if n.op in ("Expand", "Tile")]
    if not repeats and not guarded:
        return reject("heads are not repeated, and queries without keys are not treated separately")
    times = q[1] // k[1] if k[1] else 0
    if times * k[1] != q[1] or len(repeats) != (2 if times > 1 else 0):
        return reject(f"{q[1]} heads of queries and {k[1]} of keys, repeated {len(repeats)} times")
    for repeat in repeats:
        joined = next(n for n in match.matched if n.op == "Reshape" and n.operand(0) is repeat.output)
        apart, wide, whole = repeat.operand(0).shape, repeat.output.shape, joined.output.shape
        if apart is None or apart[:2] + apart[3:] != (*k[:3], apart[-1]) or apart[2] != 1:
            return reject(f"heads are not repeated one by one, from {apart}")
        if wide != (*k[:2], times, *apart[3:]) or whole != (q[0], q[1], *apart[3:]):
            return reject(f"heads are not repeated one by one, to {wide} and {whole}")
    mask = match.bindings.get("m")
    if mask is not None and (not mask.shape or mask.shape[-1] != k[2]):
        return reject(f"the mask {mask.type} is not one of {k[2]} keys")
    return _mask_fits(match)


def _fits(match: Match) -> bool | Remark:
    softmax = next(n for n in match.matched if n.op == "Softmax")
    scores = tensor(softmax.output.type)
    types = [tensor(match[name].type) for name in "qkv"]
    wrong = next((t for t in types if t.dtype != "float32"), None)
    if wrong is not None:
        return reject(f"{wrong} is not float32")
    if scores.rank is None or scores.rank < _LEAST_RANK or {t.rank for t in types} != {scores.rank}:
        return reject(f"ranks {', '.join(str(t.rank) for t in types)}, not all the same from 2 on")
    if softmax.attrs.get("axis", -1 if softmax.version >= 13 else 1) not in (-1, scores.rank - 1):
        return reject("the softmax is not over the keys")
    heads = [t.shape[:-2] for t in types if t.shape is not None]
    if not surely_equal(heads[0], heads[1]) or not surely_equal(heads[0], heads[2]):
        return reject(f"batches {heads[0]}, {heads[1]} and {heads[2]} differ")
    return _mask_fits(match)


def _mask_fits(match: Match) -> bool | Remark:
    mask = match.bindings.get("m")
    if mask is None:
        return True
    if mask.dtype != "float32":
        return reject(f"the mask is {mask.type}")
    product = next(n.output for n in match.matched if n.op == "MatMul" and n is not match.root)
    scores = next(n.output for n in match.matched if n.op == "Softmax")
    same = surely_equal(product.shape, scores.shape)
    return same or reject(f"the mask {mask.type} broadcasts the scores {product.type}")


@dataclass(frozen=True)
class _Attention:
    """``softmax(scale * q k + mask) v``, with the values of the region.

    Attributes:
        q: Queries.
        k: Keys, one in every column, or in every row where they are ``in_rows``.
        v: Values.
        mask: What is added to the scores.
        scale: What they are multiplied by before.
        in_rows: How keys lie; then there may be fewer heads of keys and values than of queries.
        guarded: Whether a query that sees no key gives zeros; otherwise it gives NaN.
    """

    q: Value
    k: Value
    v: Value
    mask: Value | None
    scale: float
    in_rows: bool
    guarded: bool


def _take_apart(node: Node) -> _Attention:
    body, outer = opened(node)

    def in_region(value: Value | None) -> Value:
        found = outer.get(value, value)
        assert found is not None, node
        return found

    def unscaled(value: Value) -> tuple[Value, np.float32]:
        """Return what a value of the body is a multiple of, and the factor."""
        factor = np.float32(1)
        while (step := value.producer) is not None and step.op in ("Mul", "Div"):
            value = next(v for v in step.inputs if v is not None and v.const is None)
            constant = next(v.const for v in step.inputs if v is not None and v.const is not None).reshape(-1)[0]
            factor = factor * constant if step.op == "Mul" else factor / constant
        return value, factor

    def single(value: Value) -> Value:
        """Return the heads that a value of the body repeats."""
        while (step := value.producer) is not None:
            value = step.operand(0)
        return value

    root = body.outputs[0].producer
    assert root is not None
    softmax = root.operand(0).producer
    guarded = softmax is not None and softmax.op == "Where"
    if softmax is not None and guarded:
        softmax = softmax.operand(2).producer
    assert softmax is not None
    add, mask, scores = softmax.operand(0).producer, None, softmax.operand(0)
    if add is not None and add.op == "Add":
        scores = next(v for v in add.inputs if v is not None and v.producer is not None)
        mask = in_region(next(v for v in add.inputs if v is not scores))
    product, scale = unscaled(scores)
    assert product.producer is not None
    (q, q_scale), (k, k_scale) = (unscaled(v) for v in product.producer.inputs if v is not None)
    return _Attention(
        in_region(q), in_region(single(k)), in_region(single(root.operand(1))), mask, float(scale * q_scale * k_scale),
        in_rows=k.producer is not None, guarded=guarded,
    )  # fmt: skip


@FAMILY.lower(GROUPED, check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE)
def grouped_attention(emit: Emitter, node: Node) -> None:
    """Emit calls that read keys and values once for all heads of queries that share them."""
    parts = _take_apart(node)
    if parts.guarded or parts.mask is None:
        cached_attention.attend(emit, node, parts.q, parts.k, parts.v, parts.mask, parts.scale)
    else:
        _emit_attention(emit, node, parts)


@FAMILY.lower(NAME, check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE)
def attention(emit: Emitter, node: Node) -> None:
    """Emit one call that reads the heads where they lie and writes them where they are wanted."""
    _emit_attention(emit, node, _take_apart(node))


def _emit_attention(emit: Emitter, node: Node, parts: _Attention) -> None:
    (_, q), (_, k), (_, v) = (sized_type(x) for x in (parts.q, parts.k, parts.v))
    keys = k[-2] if parts.in_rows else k[-1]
    walks = [
        _walk(emit.strided(parts.q), q, element_size(parts.q)),
        _walk(emit.strided(parts.k, adjacent=False), k, element_size(parts.k), turned=parts.in_rows),
        _walk(emit.strided(parts.v), v, element_size(parts.v)),
    ]
    if len(q) <= _BY_HEAD:
        y = destination(emit, node.output)
    else:
        y = Strided(emit.view(node.output), strides(sized_type(node.output)[0]))
    walks.insert(0, _walk(y, q, 0))
    if parts.mask is not None:
        scores = (*q[:-1], keys)
        where = Strided(emit.view(parts.mask), tuple(broadcast_strides(parts.mask, scores)))
        walks.append(_walk(where, scores, element_size(parts.mask)))
    sizes, walks = in_two(emit, node, q[:-2], walks)
    names = ("y", "row"), ("q", "row"), ("k", "column", "row"), ("v", "row"), ("mask", "row", "column")
    params: dict[str, float | Size] = {f"mask_{name}": 0 for name in ("batch", "head", "row", "column")}
    for (letter, *last), walk in zip(names, walks, strict=False):
        steps = (*walk.steps, *walk.strides)
        params |= {f"{letter}_{name}": step for name, step in zip(("batch", "head", *last), steps, strict=False)}
    params |= {
        "batch": sizes[0],
        "heads": sizes[1],
        "group": q[1] // k[1] if parts.in_rows else 1,
        "rows": q[-2],
        "keys": keys,
        "depth": q[-1],
        "value_depth": v[-1],
        "causal": 0,
        "past": 0,
        "scale": parts.scale,
    }
    operands = [walk.place for walk in walks]
    emit.call("attention_f32", [*operands, *[None] * (len(names) - len(operands))], params, node)


def _walk(where: Strided, shape: Sequence[Size], width: int, *, turned: bool = False) -> Walk:
    """Return how matrices of a shape are walked, rows and columns exchanged where they are ``turned``."""
    order = -1 if turned else 1
    return Walk(where.view, where.strides[:-2], shape[-2:][::order], where.strides[-2:][::order], width)
