"""Random numbers on the C target: what a seed gives is the same in every run, on any number of threads."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor
from tinycomp.ops.creation import key_of_seed
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import product
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, sized_type

FAMILY = LoweringRules()
_KEY_BYTES = 16
_NUMBERS = ("float32", "float64")
_SEEDS = 1 << 32


def _result(node: Node) -> Verdict:
    dtype = node.output.dtype
    return dtype in _NUMBERS or reject(f"random numbers of {dtype}")


def _key(emit: Emitter, node: Node) -> View:
    """Return where a key lies: that of the seed, or one that every run makes anew."""
    seed = node.attrs.get("seed")
    if seed is not None:
        return emit.constant(key_of_seed(float(seed)))
    key = emit.scratch(_KEY_BYTES)
    emit.call("random_key", [key], {"unused": 0}, node)
    return key


def _emit_numbers(emit: Emitter, node: Node, distribution: int, a: float, b: float) -> None:
    type_, shape = sized_type(node.output)
    params = {"count": product(shape), "type": TYPES[type_.dtype], "distribution": distribution, "a": a, "b": b}
    emit.call("random", [node.output, _key(emit, node)], params, node)


@FAMILY.lower("RandomUniform", "RandomUniformLike", check=all_of(_result, known_rank), layout=LayoutRule.ROW_MAJOR)
def random_uniform(emit: Emitter, node: Node) -> None:
    """Emit uniform numbers."""
    low, high = float(node.attrs.get("low", 0.0)), float(node.attrs.get("high", 1.0))
    _emit_numbers(emit, node, lib.TC_RANDOM_UNIFORM, low, high)


@FAMILY.lower("RandomNormal", "RandomNormalLike", check=all_of(_result, known_rank), layout=LayoutRule.ROW_MAJOR)
def random_normal(emit: Emitter, node: Node) -> None:
    """Emit normal numbers."""
    mean, scale = float(node.attrs.get("mean", 0.0)), float(node.attrs.get("scale", 1.0))
    _emit_numbers(emit, node, lib.TC_RANDOM_NORMAL, mean, scale)


def _drops(node: Node) -> Verdict:
    ratio, training = node.optional_operand(1), node.optional_operand(2)
    if training is None:
        return reject("a Dropout at inference")  # it is none of this rule's, but handed on
    if ratio is not None and not ratio.is_const and ratio.dtype not in _NUMBERS:
        return reject(f'the ratio "{ratio.name}" is {ratio.type}')
    seed = node.attrs.get("seed")
    if seed is not None and not 0 <= int(seed) < _SEEDS:
        return reject(f"a seed of {seed}, which has more than 32 bits")
    return True


@FAMILY.lower(
    "Dropout", check=all_of(dtypes(*_NUMBERS, operands=(0,)), known_rank, _drops), layout=LayoutRule.ROW_MAJOR
)
def dropout(emit: Emitter, node: Node) -> None:
    """Emit a Dropout that a run may train with."""
    x, training = node.operand(0), node.operand(2)
    type_, shape = sized_type(x)
    seed = node.attrs.get("seed")
    ratio = _ratio(emit, node.optional_operand(1))
    params = {
        "count": product(shape),
        "type": TYPES[type_.dtype],
        "ratio_type": TYPES["float32" if ratio is None else ratio[1]],
        "seed": -1 if seed is None else int(seed),
    }
    mask = node.outputs[1] if len(node.outputs) > 1 and node.outputs[1].name else None
    y = node.outputs[0] if node.outputs[0].name else None
    key = _key(emit, node) if seed is None else None
    emit.call("dropout", [y, mask, x, None if ratio is None else ratio[0], training, key], params, node)


def _ratio(emit: Emitter, value: Value | None) -> tuple[View, str] | None:
    """Return where a ratio lies, and its type; constants of other types are widened."""
    if value is None:
        return None
    if value.const is not None and value.dtype not in _NUMBERS:
        return emit.constant(value.const.astype(np.float64)), "float64"
    return emit.view(value), tensor(value.type).dtype
