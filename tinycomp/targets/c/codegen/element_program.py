"""Element-wise programs: the steps of one kernel call over blocks of its operands, and their encoding.

The operators of a fusion group add their steps to one :class:`Steps`; :func:`emit_fusion_group` makes the call of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import memory_order, strides
from tinycomp.ir.types import bits, numpy_dtype
from tinycomp.lazy import LazyModule
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.library import codes, lib
from tinycomp.symbolic import Size, if_zero
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter, View, nd_params
from tinycomp.targets.common.checks import sized_type

if TYPE_CHECKING:
    from tinycomp.ops import cast
else:
    cast = LazyModule("tinycomp.ops.cast")

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = ("float32", "float64", *INTEGERS)
"""What kernels for numbers of every type compute with."""
SMALL_FLOATS = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn",
    "float6_e3m2fn", "float4_e2m1fn",
)  # fmt: skip
"""Floats that are stored and converted only, each in a byte of its own."""
_HALF = ("float16", "bfloat16")
FLOATS = ("float32", "float64", *_HALF)
"""Floats that operators compute with, those of 16 bits in float32."""
_KINDS = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint", "BOOL": "bool"}


def _dtype(code: str) -> str:
    """Return a dtype by the name of its code.

    >>> _dtype("U8"), _dtype("F8E4M3FN")
    ('uint8', 'float8_e4m3fn')
    """
    kind, size, form = re.fullmatch(r"(BF|BOOL|[FIU])(\d*)(\w*)", code).groups()  # type: ignore[union-attr]
    return f"{_KINDS[kind]}{size}" + (f"_{form.lower()}" if form else "")


TYPES = {_dtype(name): code for name, code in codes("tc_type", "TC_TYPE_").items()}
"""Codes of the types that the runtime knows."""
MAX_INPUTS, MAX_OUTPUTS = lib.TC_ELEMENT_INPUTS, lib.TC_ELEMENT_OUTPUTS
MAX_IMMEDIATES, MAX_STEPS = lib.TC_ELEMENT_IMMEDIATES, lib.TC_ELEMENT_STEPS
"""What the kernel takes."""
_UNARY, _BINARY, _COMPARE = lib.TC_ELEMENT_UNARY, lib.TC_ELEMENT_BINARY, lib.TC_ELEMENT_COMPARE
_LOGICAL, _WHERE, _CAST = lib.TC_ELEMENT_LOGICAL, lib.TC_ELEMENT_WHERE, lib.TC_ELEMENT_CAST
_BY_SIZE = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_WIDENED = frozenset({*_HALF, *SMALL_FLOATS})
_ROUNDING = {"up": lib.TC_SCALE_UP, "down": lib.TC_SCALE_DOWN, "nearest": lib.TC_SCALE_NEAREST}


class Ref(NamedTuple):
    """A number inside a program.

    Attributes:
        space: ``"input"``, ``"immediate"`` or ``"step"``.
        number: Which of them.
        dtype: Its type.
    """

    space: str
    number: int
    dtype: str


@dataclass(frozen=True, eq=False)
class StridedInput:
    """An input that is not a value of the region.

    Attributes:
        source: Its lowest element, or a constant array of this type.
        dtype: Its type.
        strides: In elements, over the logical dimensions of the result.
    """

    source: View | np.ndarray
    dtype: str
    strides: tuple[Size, ...]


class _Step(NamedTuple):
    kind: int
    op: int
    dtype: str
    sources: tuple[Ref, ...]
    a: float
    b: float


@dataclass
class Steps:
    """Collects the steps of a fusion group.

    Floats of 16 bits and fewer are computed in float32: what an operator reads is made :meth:`wide`, and its result is
    rounded once.

    Attributes:
        inputs: The values that the fusion group reads.
        immediates: Its scalar constants.
    """

    inputs: list[Value | StridedInput] = field(default_factory=list)
    immediates: list[np.ndarray] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    _refs: dict[Value, Ref] = field(default_factory=dict)
    _known: dict[tuple[Any, ...], Ref] = field(default_factory=dict)

    def read(self, value: Value) -> Ref:
        """Return a value of the region: the result of an earlier operator, a scalar constant or an input."""
        if value not in self._refs:
            dtype = value.dtype
            if value.const is not None and value.const.size == 1 and dtype in TYPES:
                self._refs[value] = self.constant(value.const.reshape(()), dtype)
            else:
                self._refs[value] = Ref("input", len(self.inputs), dtype)
                self.inputs.append(value)
        return self._refs[value]

    def read_strided(self, source: StridedInput) -> Ref:
        """Return the elements of another input."""
        self.inputs.append(source)
        return Ref("input", len(self.inputs) - 1, source.dtype)

    def give(self, value: Value, ref: Ref) -> None:
        """State that ``ref``, rounded to the type of ``value``, is the value."""
        self._refs[value] = self.cast(ref, value.dtype)

    def constant(self, number: Any, dtype: str) -> Ref:
        """Return a scalar constant."""
        array = cast.cast_array(np.asarray(number), numpy_dtype(dtype))
        key = ("immediate", dtype, array.tobytes())
        if key not in self._known:
            self._known[key] = Ref("immediate", len(self.immediates), dtype)
            self.immediates.append(array)
        return self._known[key]

    def number(self, ref: Ref) -> float | None:
        """Return the number that a scalar constant is, or None."""
        return float(self.immediates[ref.number]) if ref.space == "immediate" else None

    def wide(self, ref: Ref) -> Ref:
        """Return a number in the type that it is computed in."""
        return self.cast(ref, "float32") if ref.dtype in _WIDENED else ref

    def cast(self, ref: Ref, dtype: str, saturate: bool = True, round_mode: str = "up") -> Ref:
        """Return a number in another type; the options are those of :func:`tinycomp.ops.cast.cast_array`."""
        if ref.dtype == dtype:
            return ref
        if ref.space == "immediate":
            number = cast.cast_array(self.immediates[ref.number], numpy_dtype(dtype), saturate, round_mode)
            return self.constant(number, dtype)
        options = float(not saturate), float(_ROUNDING[round_mode])
        return self._add(_CAST, TYPES[dtype], ref.dtype, (ref,), dtype, *options)

    def unary(self, op: int, x: Ref, a: float = 0.0, b: float = 0.0) -> Ref:
        """Return a function of one number: ``enum tc_unary`` or ``enum tc_activation``."""
        return self._add(_UNARY, op, x.dtype, (x,), x.dtype, a, b)

    def binary(self, op: int, x: Ref, y: Ref) -> Ref:
        """Return the result of arithmetic: ``enum tc_binary``."""
        return self._add(_BINARY, op, x.dtype, (x, y), x.dtype)

    def compare(self, op: int, x: Ref, y: Ref) -> Ref:
        """Return the result of a comparison: ``enum tc_compare``."""
        return self._add(_COMPARE, op, x.dtype, (x, y), "bool")

    def logical(self, op: int, x: Ref, y: Ref) -> Ref:
        """Return the result of logic: ``enum tc_logical``."""
        return self._add(_LOGICAL, op, "bool", (x, y), "bool")

    def where(self, condition: Ref, x: Ref, y: Ref) -> Ref:
        """Return ``x`` or ``y``."""
        return self._add(_WHERE, 0, x.dtype, (condition, x, y), x.dtype)

    def _add(
        self, kind: int, op: int, dtype: str, sources: tuple[Ref, ...], result: str, a: float = 0.0, b: float = 0.0
    ) -> Ref:
        step = _Step(kind, op, dtype, sources, a, b)
        found = self._known.get(step)
        if found is None:
            found = self._known[step] = Ref("step", len(self.steps), result)
            self.steps.append(step)
        return found

    def outputs(self, values: Sequence[Value]) -> list[Ref]:
        """Return the steps that give ``values``: for each its own, though the same number may have several names."""
        found: list[Ref] = []
        for value in values:
            ref = self._refs[value]
            if ref.space != "step" or ref in found:
                self.steps.append(_Step(_CAST, _code(ref.dtype), ref.dtype, (ref,), 0.0, 0.0))
                ref = Ref("step", len(self.steps) - 1, ref.dtype)
            found.append(ref)
        return found

    def encode(self, like: Value, outputs: Sequence[Ref]) -> list[Size]:
        """Return the program, whose iteration space is that of ``like``, as int64 words."""
        starts = {"input": 0, "immediate": len(self.inputs), "step": len(self.inputs) + len(self.immediates)}
        words: list[Size] = [len(self.inputs), len(self.immediates), len(self.steps), len(outputs)]
        words += self._space(like)
        for array in self.immediates:
            words += [TYPES[array.dtype.name], _value_bits(array)]
        for step in self.steps:
            sources = [starts[s.space] + s.number for s in step.sources]
            coefficients = [_bits(step.a), _bits(step.b)]
            words += [step.kind, step.op, _code(step.dtype), *sources, *[0] * (3 - len(sources)), *coefficients]
        words += [starts["step"] + ref.number for ref in outputs]
        return words

    def _space(self, like: Value) -> list[Size]:
        type_, shape = sized_type(like)
        order = memory_order(type_.layout, len(shape))
        walks = {f"x{i}_": [broadcast_strides(v, shape)[d] for d in order] for i, v in enumerate(self.inputs)}
        params = nd_params([shape[d] for d in order], **walks)
        words = [_whole(params[f"size{d}"]) for d in range(MAX_RANK)]
        for i, value in enumerate(self.inputs):
            words += [_code(value.dtype), *(_whole(params[f"x{i}_{d}"]) for d in range(MAX_RANK))]
        return words


def _whole(parameter: float | Size) -> Size:
    assert not isinstance(parameter, float), parameter
    return parameter


def _code(dtype: str) -> int:
    """Return the code of a type; one that is only chosen between or copied is taken for an integer of its size."""
    return TYPES[dtype if dtype in TYPES else _BY_SIZE[bits(dtype) // 8]]


def _bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _value_bits(array: np.ndarray) -> int:
    if "float" in array.dtype.name:
        return _bits(float(array))
    number = int(array)
    return number - (1 << 64) if number >= 1 << 63 else number


def broadcast_strides(value: Value | StridedInput, shape: Sequence[Size]) -> list[Size]:
    """Return the element strides of an operand over the logical dimensions of the result; 0 where it repeats."""
    if isinstance(value, StridedInput):
        return list(value.strides)
    type_, own = sized_type(value)
    return broadcast_steps(own, strides(type_), shape)


def broadcast_steps(own: Sequence[Size], steps: Sequence[Size], shape: Sequence[Size]) -> list[Size]:
    """Return the strides by which a tensor of shape ``own`` is read as one of ``shape``."""
    missing = len(shape) - len(own)
    return [0] * missing + [repeating(n, whole, s) for n, whole, s in zip(own, shape[missing:], steps, strict=True)]


def repeating(size: Size, whole: Size, step: Size) -> Size:
    """Return the stride along a dimension that is broadcast to ``whole``: 0 where a run finds one element."""
    if size == 1:
        return 0
    return step if size == whole or isinstance(size, int) else if_zero(size - 1, 0, step)


Build = Callable[[Steps, Node], Ref]
"""Adds the steps of one operator and returns its result, which is rounded to the node's type afterwards."""


def emit_fusion_group(
    emit: Emitter, nodes: Sequence[Node], outputs: Sequence[Value], build: Callable[[Steps, Node], Ref | None]
) -> None:
    """Emit the one kernel call of a fusion group.

    Args:
        emit: The program.
        nodes: The operators in order, all with results of the same shape and layout.
        outputs: Those of their results that something else reads.
        build: Adds the steps of one of them; None if a later one contains it.
    """
    steps = Steps()
    for node in nodes:
        if (ref := build(steps, node)) is not None:
            steps.give(node.output, ref)
    refs = steps.outputs(outputs)
    steps.inputs = [_unrepeated(emit, value, sized_type(nodes[-1].output)[1]) for value in steps.inputs]
    words = steps.encode(nodes[-1].output, refs)
    operands: list[Value | View | None] = [*outputs, *[None] * (MAX_OUTPUTS - len(outputs)), emit.table(words)]
    operands += [_operand(emit, v) for v in steps.inputs]
    operands += [None] * (MAX_INPUTS - len(steps.inputs))
    emit.call("elementwise", operands, {"words": len(words)}, *nodes)


def _unrepeated(emit: Emitter, value: Value | StridedInput, shape: Sequence[Size]) -> Value | StridedInput:
    """Return a broadcast that nobody has written out as the elements that it repeats, other operands as they are."""
    if isinstance(value, StridedInput) or value.const is not None or not emit.repeats(value):
        return value
    where = emit.where(value)
    return StridedInput(where.view, value.dtype, tuple(broadcast_steps(sized_type(value)[1], where.strides, shape)))


def _operand(emit: Emitter, value: Value | StridedInput) -> Value | View:
    source = value.source if isinstance(value, StridedInput) else value
    return emit.constant(source) if isinstance(source, np.ndarray) else source
