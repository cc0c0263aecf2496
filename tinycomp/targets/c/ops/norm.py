"""Normalisations on the C target."""

from __future__ import annotations

import dataclasses

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ir.types import Dim
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import maximum, product
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import FLOATS, Ref, Steps, StridedInput
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.images import is_planar
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank, taken
from tinycomp.targets.c.ops.conv import image
from tinycomp.targets.common.checks import (
    Verdict,
    all_of,
    constant,
    dtypes,
    float32,
    ranks,
    sized_type,
    surely_equal,
)
from tinycomp.targets.common.composites import opened

FAMILY = LoweringRules()


def add_normalisations(target: Target) -> None:
    """Add normalisations of sums, and those by the root mean square that are spelled out, to ``target``."""

    @target.composite(name="norm_of_sum")
    def norm_of_sum(
        x: ValuePattern, r: ValuePattern, g: ValuePattern, b: ValuePattern
    ) -> tuple[ValuePattern, ValuePattern]:
        total = P.Add(x, r)
        whole = P.RMSNormalization(total, g) | P.LayerNormalization(total, g, b | P.absent)
        return whole | _by_root_mean_square(total, g), total

    @target.composite(name="rms_norm")
    def rms_norm(x: ValuePattern, g: ValuePattern) -> ValuePattern:
        return _by_root_mean_square(x, g)

    norm_of_sum.check(_adds_rows)
    for composite in (norm_of_sum, rms_norm):
        composite.check(_normalises_rows)


def _by_root_mean_square(x: ValuePattern, gain: ValuePattern) -> ValuePattern:
    """Match what exporters write for ``x / sqrt(mean(x * x) + epsilon) * gain``."""
    square = P.Pow(x, P.const(2.0)) | (x * x)
    mean = P.ReduceMean(square, P.const | P.absent, keepdims=1)
    root = P.Sqrt(mean + P.const.where(value=lambda c: c.size == 1))
    inverse = P.Reciprocal(root) | (P.const(1.0) / root)
    return ((x * inverse) | (x / root)) * gain


def _adds_rows(match: Match) -> Verdict:
    x, residual = match["x"], match["r"]
    return surely_equal(x.shape, residual.shape) or reject(f'"{residual.name}" is {residual.type}, not {x.type}')


def _normalises_rows(match: Match) -> Verdict:
    """Tell whether rows along the last axis are normalised, with a factor per column."""
    operands = [v for name in "xrgb" if (v := match.bindings.get(name)) is not None]
    wrong = next((v for v in operands if v.dtype != "float32"), None)
    if wrong is not None:
        return reject(f'"{wrong.name}" is {wrong.type}, not float32')
    x, gain = match["x"], match["g"]
    if not x.rank or x.rank != max(v.rank or 0 for v in operands):
        return reject(f'the rank of "{x.name}" is not that of the result')
    root = next((n for n in match.matched if n.op == "Sqrt"), None)
    if root is None:
        return _trailing_scale(next(n for n in match.matched if n.op in _WHOLE))
    mean = next(n for n in match.matched if n.op == "ReduceMean")
    given = mean.optional_operand(1)
    axes = mean.attrs.get("axes") if given is None else given.const
    if axes is None or [int(axis) % x.rank for axis in axes] != [x.rank - 1]:
        return reject("the mean is not that of rows")
    shape = x.shape or ()
    return surely_equal(gain.shape, shape[-1:]) or reject(f'"{gain.name}" is {gain.type}, not one factor per column')


_WHOLE = ("RMSNormalization", "LayerNormalization")


def _trailing_scale(node: Node) -> Verdict:
    """Scale and bias must have exactly the normalised shape; only the first result is computed."""
    if len(node.used_outputs()) > 1:
        return reject("the mean or the inverse deviation is asked for")
    shape = node.operand(0).shape or ()
    wanted = shape[int(node.attrs.get("axis", -1)) % max(len(shape), 1) :]
    for value in node.inputs[1:]:
        if value is not None and not _is_whole(value, wanted):
            return reject(f'"{value.name}" is {value.type}, not of the normalised shape {wanted}')
    return True


def _is_whole(value: Value, shape: tuple[Dim, ...]) -> bool:
    """Tell whether a value that broadcasts to a shape has that shape in every run: a size that is not 1 is the same."""
    own = value.shape
    if own is None or len(own) != len(shape):
        return False
    return all(a is not None and (a == b or (isinstance(a, int) and a != 1)) for a, b in zip(own, shape, strict=True))


@dataclass(frozen=True)
class _Normalisation:
    """A normalisation of rows ``x``, or ``x + residual``, with the values of the region."""

    x: Value
    residual: Value | None
    scale: Value | None
    bias: Value | None
    axis: int
    rms: bool
    epsilon: float


def _whole(node: Node) -> _Normalisation:
    return _Normalisation(
        node.operand(0), None, node.optional_operand(1), node.optional_operand(2), int(node.attrs.get("axis", -1)),
        node.op == "RMSNormalization", float(node.attrs.get("epsilon", 1e-5)),
    )  # fmt: skip


def _take_apart(node: Node) -> _Normalisation:
    """Read a composite."""
    body, outer = opened(node)
    result = next(p for v in body.outputs if (p := _producer(v)).op != "Add")
    if result.op in _WHOLE:
        found = _whole(result)
    else:
        root = next(n for n in body.nodes if n.op == "Sqrt")
        mean = next(n for n in body.nodes if n.op == "ReduceMean")
        x = _producer(mean.operand(0)).operand(0)
        gain = next(v for v in result.inputs if v in outer)
        epsilon = next(v.const for v in _producer(root.operand(0)).inputs if v is not None and v.const is not None)
        found = _Normalisation(x, None, gain, None, -1, True, float(epsilon.reshape(-1)[0]))
    total = found.x.producer
    rows, residual = (found.x, None) if total is None else (total.operand(0), total.operand(1))
    return dataclasses.replace(
        found, x=outer[rows], residual=outer.get(residual), scale=outer.get(found.scale), bias=outer.get(found.bias)
    )


def _producer(value: Value) -> Node:
    assert value.producer is not None
    return value.producer


def _emit_rows(emit: Emitter, node: Node, found: _Normalisation, result: Value, total: Value | None) -> None:
    _, shape = sized_type(found.x)
    axis = found.axis % len(shape)
    params = {
        "rows": product(shape[:axis]),
        "columns": product(shape[axis:]),
        "rms": int(found.rms),
        "epsilon": found.epsilon,
    }
    operands = [result, total, found.x, found.residual, found.scale, found.bias]
    emit.call("layer_norm_f32", operands, params, node)


@FAMILY.lower(*_WHOLE, check=all_of(float32, known_rank, _trailing_scale), layout=LayoutRule.ROW_MAJOR)
def layer_norm(emit: Emitter, node: Node) -> None:
    """Emit a normalisation of every row."""
    _emit_rows(emit, node, _whole(node), node.output, None)


@FAMILY.lower("c.norm_of_sum", "c.rms_norm", check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE)
def composite_norm(emit: Emitter, node: Node) -> None:
    """Emit a normalisation of every row, or of every sum of two rows, which is kept where it is used."""
    results = {_producer(inner).op == "Add": v for inner, v in zip(node.body.outputs, node.outputs, strict=True)}
    _emit_rows(emit, node, _take_apart(node), results[False], results.get(True))


def _group_check(node: Node) -> Verdict:
    """From opset 21 GroupNormalization has a scale per channel; before, one per group."""
    old = node.op == "GroupNormalization" and node.version < 21
    return not old or reject("scale and bias per group (before opset 21)")


@FAMILY.lower(
    "InstanceNormalization", "GroupNormalization",
    check=all_of(float32, ranks(3, 4, 5), _group_check), layout=LayoutRule.FOLLOW,
)  # fmt: skip
def group_norm(emit: Emitter, node: Node) -> None:
    """Emit a normalisation of every group of channels of every image."""
    source = image(node.operand(0))
    params = {
        "batch": source.batch,
        "pixels": source.height * source.width,
        "channels": source.channels,
        "groups": node.attrs.get("num_groups", maximum(source.channels, 1)),
        "planar": int(is_planar(node.operand(0))),
        "epsilon": float(node.attrs.get("epsilon", 1e-5)),
    }
    operands = [node.output, node.operand(0), node.optional_operand(1), node.optional_operand(2)]
    emit.call("group_norm_f32", operands, params, node)


def _inference(node: Node) -> Verdict:
    if len(node.used_outputs()) > 1 or node.attrs.get("training_mode", 0):
        return reject("training mode")
    return node.attrs.get("spatial", 1) == 1 or reject("statistics per element")


@FAMILY.element(
    "BatchNormalization", check=all_of(dtypes(*FLOATS), ranks(2, 3, 4, 5), constant(1, 2, 3, 4), _inference)
)
def batch_norm(steps: Steps, node: Node) -> Ref:
    """Add a batch normalisation that could not be folded: a product and a sum with one number per channel."""
    x = steps.wide(steps.read(node.operand(0)))
    scale, bias, mean, variance = (
        v.const.astype(np.float64) for v in node.inputs[1:5] if v is not None and v.const is not None
    )
    factors = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
    along = tuple(int(axis == 1) for axis in range(node.output.rank or 0))
    factor, shift = (
        steps.read_strided(StridedInput(numbers.astype(x.dtype), x.dtype, along))
        for numbers in (factors, bias - mean * factors)
    )
    return steps.binary(lib.TC_BINARY_ADD, steps.binary(lib.TC_BINARY_MUL, x, factor), shift)
