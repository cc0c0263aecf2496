"""Attention on the C target: two products with a softmax between them as one kernel call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ir.types import tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.remark import Remark
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.symbolic import Size
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import broadcast_strides
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.placement import destination
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.common.checks import sized_type, surely_equal
from tinycomp.targets.common.composites import opened

FAMILY = LoweringRules()
NAME = "c.attention"
_MAX_RANK = 4


def add_attention(target: Target) -> None:
    """Add the composite to ``target``."""

    @target.composite(name="attention")
    def attention(q: ValuePattern, k: ValuePattern, v: ValuePattern, m: ValuePattern) -> ValuePattern:
        scores = _scaled(P.MatMul(_scaled(q), _scaled(k)))
        return P.MatMul(P.Softmax(P.Add(scores, m) | scores), v)

    attention.check(_fits)


def _scaled(x: ValuePattern) -> ValuePattern:
    """Match ``x``, or ``x`` scaled by a constant: exporters scale the scores, or queries and keys by the root."""
    factor, divisor = (P.const.where(value=lambda c: c.size == 1) for _ in range(2))
    return (x * factor) | (x / divisor) | x


def _fits(match: Match) -> bool | Remark:
    softmax = next(n for n in match.matched if n.op == "Softmax")
    scores = tensor(softmax.output.type)
    types = [tensor(match[name].type) for name in "qkv"]
    wrong = next((t for t in types if t.dtype != "float32"), None)
    if wrong is not None:
        return reject(f"{wrong} is not float32")
    if scores.rank is None or not 2 <= scores.rank <= _MAX_RANK or {t.rank for t in types} != {scores.rank}:
        return reject(f"ranks {', '.join(str(t.rank) for t in types)}, not all 2, all 3 or all 4")
    if softmax.attrs.get("axis", -1 if softmax.version >= 13 else 1) not in (-1, scores.rank - 1):
        return reject("the softmax is not over the keys")
    heads = [t.shape[:-2] for t in types if t.shape is not None]
    if not surely_equal(heads[0], heads[1]) or not surely_equal(heads[0], heads[2]):
        return reject(f"batches {heads[0]}, {heads[1]} and {heads[2]} differ")
    mask = match.bindings.get("m")
    if mask is None:
        return True
    if mask.dtype != "float32":
        return reject(f"the mask is {mask.type}")
    product = next(n.output for n in match.matched if n.op == "MatMul" and n is not match.root)
    same = surely_equal(product.shape, scores.shape)
    return same or reject(f"the mask {mask.type} makes more of the scores {product.type}")


@dataclass(frozen=True)
class _Attention:
    """``softmax(scale * q k + mask) v``, with the values of the region."""

    q: Value
    k: Value
    v: Value
    mask: Value | None
    scale: float


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

    values = body.outputs[0].producer
    assert values is not None
    softmax = values.operand(0).producer
    assert softmax is not None
    add, mask, scores = softmax.operand(0).producer, None, softmax.operand(0)
    if add is not None and add.op == "Add":
        scores = next(v for v in add.inputs if v is not None and v.producer is not None)
        mask = in_region(next(v for v in add.inputs if v is not scores))
    product, scale = unscaled(scores)
    assert product.producer is not None
    (q, q_scale), (k, k_scale) = (unscaled(v) for v in product.producer.inputs if v is not None)
    return _Attention(
        in_region(q), in_region(k), in_region(values.optional_operand(1)), mask, float(scale * q_scale * k_scale)
    )


@FAMILY.lower(NAME, check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE)
def attention(emit: Emitter, node: Node) -> None:
    """Emit one call that reads the heads where they lie and writes them where they are wanted."""
    parts = _take_apart(node)
    q, v = emit.strided(parts.q), emit.strided(parts.v)
    k = emit.strided(parts.k, adjacent=False)
    y = destination(emit, node.output)
    (_, q_shape), (_, k_shape), (_, v_shape) = (sized_type(x) for x in (parts.q, parts.k, parts.v))
    batch, heads = (1, 1, *q_shape[:-2])[-2:]
    scores = (*q_shape[:-1], k_shape[-1])
    mask: list[Size] = [0] * len(scores)
    if parts.mask is not None:
        mask = broadcast_strides(parts.mask, scores)
    params: dict[str, float | Size] = {
        "batch": batch,
        "heads": heads,
        "group": 1,
        "rows": q_shape[-2],
        "keys": k_shape[-1],
        "depth": q_shape[-1],
        "value_depth": v_shape[-1],
        "causal": 0,
        "past": 0,
        "scale": parts.scale,
        **_steps("y", y.strides, "row"),
        **_steps("q", q.strides, "row"),
        **_steps("k", k.strides, "column", "row"),
        **_steps("v", v.strides, "row"),
        **_steps("mask", mask, "row", "column"),
    }
    emit.call("attention_f32", [y.view, q.view, k.view, v.view, parts.mask], params, node)


def _steps(letter: str, steps: Sequence[Size], *last: str) -> dict[str, Size]:
    """Name the strides of up to four dimensions; keys come transposed, and so do their last two."""
    padded = [0] * (_MAX_RANK - len(steps)) + list(steps)
    return {f"{letter}_{name}": step for name, step in zip(("batch", "head", *last), padded, strict=False)}
