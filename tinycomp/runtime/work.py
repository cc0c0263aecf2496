"""What the table of kernels' work is made of: the parameters of a call by name, and counts of operations and bytes.

How much a kernel call has to do: the floating-point operations and the memory traffic that its parameters imply.

Operations are those of the definition, an exponential or a comparison counting as one; an algorithm that gets by with
fewer says so (:attr:`Work.done`). Bytes are those of every element that has to be read or written at least once, so
that a rate above the memory's shows how well the caches work.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinycomp.runtime.native.program import ALGORITHMS, Instruction, Program

DIMS = range(8)
"""Of kernels over several dimensions."""

TYPE_BYTES = (4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8, *[1] * 13)
"""Bytes of an element, by ``enum tc_type``."""


@dataclass(frozen=True, slots=True)
class Count:
    """One kernel: its operations, and the bytes of its operands in the order of the signature."""

    flops: int
    operands: tuple[int, ...]
    done: int | None = None
    algorithm: str = ""


class CallParams:
    """The whole-number parameters of a call as attributes."""

    def __init__(self, params: Mapping[str, int | float]) -> None:
        self._params = params

    def __getattr__(self, name: str) -> int:
        return int(self._params[name])

    def product(self, *names: str) -> int:
        """The product of some parameters."""
        return math.prod(int(self._params[name]) for name in names)

    @property
    def volume(self) -> int:
        """The product of ``size0`` to ``size7``."""
        return self.product(*(f"size{i}" for i in DIMS))

    def distinct(self, strides: Mapping[str, str]) -> int:
        """The product of the sizes whose strides (the values) are not 0: what a repeated operand really holds."""
        names = list(strides.items())
        return distinct([int(self._params[s]) for s, _ in names], [int(self._params[s]) for _, s in names])


def distinct(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The elements that an operand holds whose stride is 0 where it is repeated."""
    return math.prod(size if stride else min(size, 1) for size, stride in zip(sizes, strides, strict=True))


_WINOGRAD_2 = 3
"""Its number in :data:`ALGORITHMS`."""


def _factor_bytes(p: CallParams) -> int:
    """Bytes of what requantises one channel: a float, or a multiplier and a shift."""
    return 8 if p.rule else 4


def _quantized(p: CallParams, macs: int, y: int, x: int, weights: int, channels: int) -> Count:
    """A product of 8-bit numbers, from the elements of its operands."""
    sizes = (y * TYPE_BYTES[p.type], x, weights * TYPE_BYTES[p.weight_type])
    return Count(2 * macs, (*sizes, channels * 4, channels * _factor_bytes(p)))


def _qgemm(p: CallParams) -> Count:
    return _quantized(p, p.m * p.n * p.k, p.m * p.n, p.m * p.k, p.k * p.n, p.n)


def _qconv(p: CallParams) -> Count:
    pixels = p.batch * p.out_height * p.out_width
    weights = p.out_channels * (p.channels // max(p.groups, 1)) * p.kernel_height * p.kernel_width
    read = p.batch * p.height * p.width * p.channels
    count = _quantized(p, pixels * weights, pixels * p.out_channels, read, weights, p.out_channels)
    return dataclasses.replace(count, algorithm=ALGORITHMS.get(p.algorithm, ""))


def _qwinograd(p: CallParams) -> Count:
    """F(2x2, 3x3): 16 products of channels for every tile of 2x2 pixels; its transforms are not counted."""
    tiles = p.batch * math.ceil(p.out_height / 2) * math.ceil(p.out_width / 2)
    return dataclasses.replace(
        _qconv(p), done=32 * tiles * p.channels * p.out_channels, algorithm=ALGORITHMS[_WINOGRAD_2]
    )


def _qdepthwise(p: CallParams) -> Count:
    pixels, weights = p.batch * p.out_height * p.out_width, p.channels * p.kernel_height * p.kernel_width
    read = p.batch * p.height * p.width * p.channels
    return _quantized(p, pixels * weights, pixels * p.channels, read, weights, p.channels)


def _qmatmul(p: CallParams) -> Count:
    batches = {x: p.distinct({"batch0": f"{x}_batch0", "batch1": f"{x}_batch1"}) for x in "xw"}
    batch = p.batch0 * p.batch1
    sizes = (batch * p.m * p.n * TYPE_BYTES[p.type], batches["x"] * p.m * p.k, batches["w"] * p.k * p.n)
    small = (1, p.w_zeros, p.n * 4, p.factors * _factor_bytes(p))
    return Count(2 * batch * p.m * p.n * p.k, (*sizes, *small))


def _gemm_dequant(p: CallParams) -> Count:
    blocks = math.ceil(p.k / p.block) if p.block else min(p.k, 1)
    sizes = (p.m * p.n * 4, p.m * p.k * 4, p.n * p.k * p.bits // 8, p.n * blocks * 4, p.n * blocks, p.n * 4)
    return Count(2 * p.m * p.n * p.k, sizes)


def _qlookup(p: CallParams) -> Count:
    elements = p.rows * p.columns
    return Count(0, (elements * p.element_size, elements, 256 * p.element_size))


def _qbinary(p: CallParams) -> Count:
    """Two operands become numbers, one operation, and the way back: six operations per element."""
    read = tuple(p.distinct({f"size{i}": f"{x}_stride{i}" for i in DIMS}) for x in "ab")
    return Count(6 * p.volume, (p.volume, *read))


def _qmaxpool(p: CallParams) -> Count:
    out = p.batch * p.out_height * p.out_width * p.channels
    return Count(out * p.kernel_height * p.kernel_width, (out, p.batch * p.height * p.width * p.channels))


QUANTIZED: Mapping[str, Callable[[CallParams], Count]] = {
    "qconv2d": _qconv,
    "qconv2d_winograd": _qwinograd,
    "qgemm": _qgemm,
    "qdwconv2d": _qdepthwise,
    "qmatmul": _qmatmul,
    "gemm_dequant_f32": _gemm_dequant,
    "qlookup": _qlookup,
    "qbinary": _qbinary,
    "qmaxpool2d": _qmaxpool,
}


_F32 = 4
_INDEX = 8
_BOOL = 12
_GATES = (1, 4, 3, 3)
"""By ``enum tc_cell``."""
_COMPARE, _LOGICAL, _CAST = 2, 3, 5
"""Of ``enum tc_element``: the steps whose result is of another type than their sources."""
_WINOGRAD_2, _WINOGRAD_4 = 3, 4
"""The tiles of 2x2 and 4x4 in ``enum tc_conv_algorithm``; the latter are the runtime's own choice."""
_OUTPUTS, _PROGRAM, _INPUTS = 4, 4, 11
"""Of ``elementwise``: the operands before its program, the program's place, and the operands behind it."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one kernel call has to do.

    Attributes:
        flops: Floating-point operations of the definition.
        bytes: Bytes that it reads and writes, each once.
        done: Operations of the algorithm in use, where it is another one (Winograd); else as ``flops``.
        algorithm: Its name, where there is a choice.
    """

    flops: int
    bytes: int
    done: int
    algorithm: str = ""


def work_of(program: Program, call: Instruction) -> Work:
    """Return what a call of a program has to do; nothing is known of one whose rows only a run counts.

    Raises:
        KeyError: If the kernel is not in the table :data:`COUNTS`, in which every kernel must be.
    """
    if call.limit is not None:
        return Work(0, 0, 0)
    if call.kernel == "elementwise":
        count = _elementwise(_words(program, call))
    else:
        count = COUNTS[call.kernel](CallParams(call.params))
    moved = sum(size for size, place in zip(count.operands, call.operands, strict=True) if place.space != "none")
    return Work(count.flops, moved, count.flops if count.done is None else count.done, count.algorithm)


def _gemm(p: CallParams) -> Count:
    sizes = (p.m * p.n, p.m * p.k, p.k * p.n, p.n, p.m * p.n)
    return Count(2 * p.m * p.n * p.k, _floats(*sizes))


def _matmul(p: CallParams) -> Count:
    batches = {x: p.distinct({"batch0": f"{x}_batch0", "batch1": f"{x}_batch1"}) for x in "abr"}
    batch = p.batch0 * p.batch1
    residual = batches["r"] * (p.m if p.r_row else 1) * p.n
    sizes = (batch * p.m * p.n, batches["a"] * p.m * p.k, batches["b"] * p.k * p.n, p.n, residual)
    return Count(2 * batch * p.m * p.n * p.k, _floats(*sizes))


def _attention(p: CallParams) -> Count:
    heads, kept = p.batch * p.heads, p.batch * p.heads // max(p.group, 1)
    seen = sum(max(0, min(p.keys, row + p.past + 1)) for row in range(p.rows)) if p.causal else p.rows * p.keys
    mask = p.distinct({"batch": "mask_batch", "heads": "mask_head", "rows": "mask_row", "keys": "mask_column"})
    sizes = (
        heads * p.rows * p.value_depth, heads * p.rows * p.depth,
        kept * p.keys * p.depth, kept * p.keys * p.value_depth, mask,
    )  # fmt: skip
    softmax = 5 * heads * seen
    return Count(2 * heads * seen * (p.depth + p.value_depth) + softmax, _floats(*sizes))


def _conv_sizes(p: CallParams) -> tuple[int, ...]:
    out = p.batch * p.out_height * p.out_width * p.out_channels
    weights = p.out_channels * (p.channels // max(p.groups, 1)) * p.kernel_height * p.kernel_width
    return _floats(out, p.batch * p.height * p.width * p.channels, weights, p.out_channels, out)


def _direct_flops(p: CallParams, sizes: Sequence[int]) -> int:
    return 2 * p.batch * p.out_height * p.out_width * (sizes[2] // _F32)


def _conv(p: CallParams) -> Count:
    sizes = _conv_sizes(p)
    return Count(_direct_flops(p, sizes), sizes, algorithm=ALGORITHMS.get(p.algorithm, ""))


def _winograd(p: CallParams) -> Count:
    """F(m x m, 3x3): (m + 2)^2 products of channels for every tile of m x m pixels; its transforms are not counted."""
    algorithm = p.algorithm or _WINOGRAD_4
    tile = 2 if algorithm == _WINOGRAD_2 else 4
    tiles = p.batch * math.ceil(p.out_height / tile) * math.ceil(p.out_width / tile)
    done = 2 * (tile + 2) ** 2 * tiles * p.channels * p.out_channels
    sizes = _conv_sizes(p)
    return Count(_direct_flops(p, sizes), sizes, done, ALGORITHMS[algorithm])


def _depthwise(p: CallParams) -> Count:
    out, taps = p.batch * p.out_height * p.out_width * p.channels, p.kernel_height * p.kernel_width
    sizes = (out, p.batch * p.height * p.width * p.channels, p.channels * taps, p.channels, out)
    return Count(2 * out * taps, _floats(*sizes))


def _conv_transpose(p: CallParams) -> Count:
    inputs = p.batch * p.height * p.width
    weights = p.channels * (p.out_channels // max(p.groups, 1)) * p.kernel_height * p.kernel_width
    out = p.batch * p.out_height * p.out_width * p.out_channels
    return Count(2 * inputs * weights, _floats(out, inputs * p.channels, weights, p.out_channels))


def _copy(p: CallParams) -> Count:
    read = p.distinct({f"size{i}": f"from_stride{i}" for i in DIMS})
    return Count(0, (p.volume * p.element_size, read * p.element_size))


def _pool(p: CallParams) -> Count:
    out = p.batch * p.out_height * p.out_width * p.channels
    read = p.batch * p.height * p.width * p.channels
    return Count(out * p.kernel_height * p.kernel_width, _floats(out, read))


def _reduce(p: CallParams, element: int) -> Count:
    kept = p.product("outer", "middle", "inner")
    read = kept * p.axis0 * p.axis1
    return Count(read, (kept * element, read * element))


def _along_axis(flops: int, element: Callable[[CallParams], int] = lambda p: _F32) -> Callable[[CallParams], Count]:
    """A kernel that gives as many elements as it takes, at so many operations each."""

    def count(p: CallParams) -> Count:
        elements = p.product("outer", "axis", "inner")
        return Count(flops * elements, (elements * element(p),) * 2)

    return count


def _norm(flops: int, *names: str, vector: str) -> Callable[[CallParams], Count]:
    """A normalisation of so many operations per element, with a scale and a bias as long as ``vector`` says."""

    def count(p: CallParams) -> Count:
        elements, scale = p.product(*names), int(getattr(p, vector))
        return Count(flops * elements, _floats(elements, elements, scale, scale))

    return count


def _lrn(p: CallParams) -> Count:
    elements = p.pixels * p.channels
    return Count(elements * (2 * p.size + 4), _floats(elements, elements))


def _gather(p: CallParams) -> Count:
    slice_, element = p.outer * p.inner, p.element_size
    return Count(0, (slice_ * p.count * element, slice_ * min(p.count, p.axis) * element, p.count * p.index_size))


def _gather_elements(p: CallParams) -> Count:
    there = p.distinct({f"size{i}": f"data_stride{i}" for i in DIMS}) * p.axis
    sizes = (p.volume * p.element_size, min(p.volume, there) * p.element_size, p.volume * p.index_size)
    return Count(0, sizes)


def _gather_nd(p: CallParams) -> Count:
    slice_ = p.inner * p.element_size
    read = p.batch * min(p.count, p.volume)
    return Count(0, (p.batch * p.count * slice_, read * slice_, p.product("batch", "count", "depth", "index_size")))


def _reverse_sequence(p: CallParams) -> Count:
    moved = p.product("batch", "time", "inner", "element_size")
    return Count(0, (moved, moved, p.batch * _INDEX))


def _scatter_elements(p: CallParams) -> Count:
    there = p.distinct({f"size{i}": f"y_stride{i}" for i in DIMS}) * p.axis
    sizes = (min(p.volume, there) * p.element_size, p.volume * p.index_size, p.volume * p.element_size)
    return Count(p.volume if p.reduction else 0, sizes)


def _scatter_nd(p: CallParams) -> Count:
    slice_ = p.inner * p.element_size
    sizes = (min(p.count, p.volume) * slice_, p.count * p.depth * p.index_size, p.count * slice_)
    return Count(p.count * p.inner if p.reduction else 0, sizes)


def _tensor_scatter(p: CallParams) -> Count:
    moved = p.product("batch", "outer", "count", "inner", "element_size")
    return Count(0, (moved, moved, p.batch * _INDEX))


def _arg_reduce(p: CallParams) -> Count:
    elements = p.product("outer", "axis", "inner")
    return Count(elements, (p.outer * p.inner * _INDEX, elements * TYPE_BYTES[p.type]))


def _top_k(p: CallParams) -> Count:
    elements, kept, size = p.product("outer", "axis", "inner"), p.product("outer", "k", "inner"), TYPE_BYTES[p.type]
    return Count(elements, (kept * size, kept * _INDEX, elements * size))


def _one_hot(p: CallParams) -> Count:
    pointers = p.outer * p.inner
    return Count(0, (pointers * p.depth * p.element_size, pointers * p.index_size, 2 * p.element_size))


def _nms(p: CallParams) -> Count:
    segments = p.batch * p.classes
    found = (segments * p.room * _INDEX, segments * _INDEX)
    scores = segments * p.boxes
    return Count(scores, (*found, p.batch * p.boxes * 4 * _F32, scores * _F32, _INDEX, _F32, _F32))


def _coordinates(p: CallParams) -> Count:
    positions = p.segments * p.room * _INDEX
    return Count(0, (positions * p.rank, _INDEX, positions, p.segments * _INDEX))


def _quantize(p: CallParams) -> Count:
    elements, narrow = p.product("outer", "axis", "inner"), TYPE_BYTES[p.type]
    return Count(2 * elements, (elements * narrow, elements * _F32, p.axis * _F32, p.axis * narrow))


def _dequantize(p: CallParams) -> Count:
    elements, narrow = p.product("outer", "axis", "inner"), TYPE_BYTES[p.type]
    return Count(2 * elements, (elements * _F32, elements * narrow, p.axis * _F32, p.axis * narrow))


def _resize(p: CallParams) -> Count:
    out = p.product("batch", "out_height", "out_width", "channels")
    lines, columns = p.out_height * p.line_taps, p.out_width * p.column_taps
    taps = p.line_taps * p.column_taps
    tables = (lines * _INDEX, columns * _INDEX, lines * _F32, columns * _F32)
    read = min(out * taps, p.product("batch", "height", "width", "channels"))
    return Count(2 * out * taps if taps > 1 else 0, (*_floats(out, read), *tables))


def _recurrent(p: CallParams) -> Count:
    gates = p.directions * _GATES[p.cell] * p.hidden
    state = p.directions * p.batch * p.hidden
    vector = p.directions * p.hidden
    sizes = (
        p.steps * state, state, state, p.steps * p.batch * gates, gates * p.hidden, vector, 3 * vector,
        p.batch, state, state,
    )  # fmt: skip
    return Count(2 * p.steps * p.batch * gates * p.hidden, _floats(*sizes))


def _words(program: Program, call: Instruction) -> list[int]:
    """The words of an element-wise program, whose form ``tinycomp_kernels.h`` describes."""
    place = call.operands[_PROGRAM]
    raw = np.ascontiguousarray(program.constants[place.index]).view(np.uint8).reshape(-1)[place.offset :]
    return [int(word) for word in np.frombuffer(raw[: int(call.params["words"]) * 8].tobytes(), np.int64)]


def _elementwise(words: list[int]) -> Count:
    """One operation per step and element; conversions are none."""
    inputs, immediates, steps, outputs = words[:4]
    sizes, rest = words[4:12], iter(words[12:])

    def rows(count: int, width: int) -> list[list[int]]:
        return [[next(rest) for _ in range(width)] for _ in range(count)]

    read = [TYPE_BYTES[kind] * distinct(sizes, strides) for kind, *strides in rows(inputs, 9)]
    rows(immediates, 2)
    program = rows(steps, 8)
    written = [TYPE_BYTES[_result(program[n - inputs - immediates])] * math.prod(sizes) for (n,) in rows(outputs, 1)]
    flops = math.prod(sizes) * sum(kind != _CAST for kind, *_ in program)
    operands = (*_padded(written, _OUTPUTS), 8 * len(words), *_padded(read, _INPUTS))
    return Count(flops, operands)


def _result(step: list[int]) -> int:
    kind, op, type_ = step[:3]
    if kind in (_COMPARE, _LOGICAL):
        return _BOOL
    return op if kind == _CAST else type_


def _padded(sizes: list[int], count: int) -> list[int]:
    return sizes + [0] * (count - len(sizes))


def _floats(*elements: int) -> tuple[int, ...]:
    return tuple(_F32 * count for count in elements)


COUNTS: Mapping[str, Callable[[CallParams], Count]] = {
    "conv2d_f32": _conv,
    "conv2d_winograd_f32": _winograd,
    "dwconv2d_f32": _depthwise,
    "gemm_f32": _gemm,
    "matmul_f32": _matmul,
    "copy": _copy,
    "fill": lambda p: Count(0, (p.volume * p.element_size,)),
    "pool2d_f32": _pool,
    "reduce_f32": lambda p: _reduce(p, _F32),
    "reduce": lambda p: _reduce(p, TYPE_BYTES[p.type]),
    "softmax_f32": _along_axis(5),
    "cumulate": _along_axis(1, lambda p: TYPE_BYTES[p.type]),
    "layer_norm_f32": _norm(7, "rows", "columns", vector="columns"),
    "group_norm_f32": _norm(7, "batch", "pixels", "channels", vector="channels"),
    "lrn_f32": _lrn,
    "channel_affine_f32": _norm(2, "pixels", "channels", vector="channels"),
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "reverse_sequence": _reverse_sequence,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "tensor_scatter": _tensor_scatter,
    "arg_reduce": _arg_reduce,
    "top_k": _top_k,
    "one_hot": _one_hot,
    "nms_f32": _nms,
    "coordinates": _coordinates,
    "quantize_f32": _quantize,
    "dequantize_f32": _dequantize,
    **QUANTIZED,
    "resize2d_f32": _resize,
    "conv_transpose2d_f32": _conv_transpose,
    "attention_f32": _attention,
    "recurrent_f32": _recurrent,
}
"""Every kernel but ``elementwise``, whose work stands in its program."""
