"""Kernel calls as work on lines: which lines of its operands each line of a result follows from, and calls for a part.

Windows (convolution, pooling) go over images whose lines lie one behind the other. Element-wise work has no lines of
its own; it is cut into as many as the images beside it have. Results are the same to the bit however they are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from tinycomp.ir.types import bits
from tinycomp.records import dataclass
from tinycomp.runtime.native.library import codes, lib
from tinycomp.targets.c.codegen.element_program import MAX_OUTPUTS, TYPES
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Call

Params = Mapping[str, Any]
_POOLS = codes("tc_pool_mode", "TC_POOL_")
_BYTES = MappingProxyType({code: max(1, bits(name) // 8) for name, code in TYPES.items()})
_FLOAT = 4
_RESIDUAL = 4
"""The operand of a convolution that is added to its result."""
_TABLE = MAX_OUTPUTS
"""The operand of an element-wise call that holds its program."""
_HEAD = 4
"""Words before the sizes of an element-wise program."""


@dataclass(slots=True)
class Read:
    """Lines of an operand.

    Attributes:
        operand: Which operand of the call.
        lines: How many it has.
        step: Bytes from one to the next.
        extent: How many a line of the result follows from.
        stride: How many lines further those of the next line of the result begin.
        before: Lines of padding above the first.
    """

    operand: int
    lines: int
    step: int
    extent: int = 1
    stride: int = 1
    before: int = 0

    def of(self, lines: range) -> range:
        """Return the lines that some lines of the result follow from, without padding."""
        begin, end = (line * self.stride - self.before for line in (lines[0], lines[-1]))
        return range(max(begin, 0), min(end + self.extent, self.lines))


@dataclass(frozen=True)
class LineWork:
    """A call that can be made for some lines of its result, operand 0.

    Attributes:
        lines: How many the result has.
        step: Bytes of each, side by side.
        reads: What it reads line by line; all other operands belong to every line.
        part: Returns the parameters, and the operands that change, of a call for some lines.
        in_place: The operands whose memory the result may take, element by element.
    """

    lines: int
    step: int
    reads: tuple[Read, ...]
    part: Callable[[range], tuple[Params, Mapping[int, np.ndarray[Any, Any]]]]
    in_place: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Flat:
    """Element-wise work as rows that can be cut anywhere.

    Attributes:
        rows: How many.
        step: Bytes of a row of the result.
        reads: By operand, the bytes from row to row; those that repeat are left out.
        part: As in :class:`LineWork`, for a number of rows.
        in_place: As in :class:`LineWork`.
    """

    rows: int
    step: int
    reads: Mapping[int, int]
    part: Callable[[int], tuple[Params, Mapping[int, np.ndarray[Any, Any]]]]
    in_place: frozenset[int] = frozenset()


def window_lines(call: Call) -> LineWork | None:
    """Return the work of a call whose kernel moves a window over an image; None if it cannot be cut into lines."""
    sizes = _WINDOWS.get(call.kernel)
    p = cast("Mapping[str, int]", call.params)
    if sizes is None or p["batch"] != 1 or p["out_height"] < 1 or not _is_exact_in_parts(call):
        return None
    if p.get("planar"):
        return None
    if call.kernel == "pool2d_f32" and p["mode"] == _POOLS["AVERAGE_WITH_PADS"]:
        return None
    channels = p.get("out_channels", p["channels"])
    if p["y_pixel_stride"] != channels:
        return None
    y_size, x_size = sizes(p)
    extent = (p["kernel_height"] - 1) * p["dilation_height"] + 1
    read = Read(
        1, p["height"], p["width"] * p["x_pixel_stride"] * x_size, extent, p["stride_height"], p["pad_top"]
    )  # fmt: skip
    last = (p["out_height"] - 1) * read.stride - read.before
    if read.before >= extent or last >= read.lines or 0 in (p["height"], p["width"], p["out_width"]):
        return None  # a line may follow from padding alone

    def part(lines: range) -> tuple[Params, Mapping[int, np.ndarray[Any, Any]]]:
        reads = read.of(lines)
        above = reads.start - (lines.start * read.stride - read.before)
        return {**p, "height": len(reads), "out_height": len(lines), "pad_top": above}, {}

    reads = [read]
    if "residual_pixel_stride" in p and call.operands[_RESIDUAL] is not None:
        reads.append(Read(_RESIDUAL, p["out_height"], p["out_width"] * p["residual_pixel_stride"] * _FLOAT))
    return LineWork(p["out_height"], p["out_width"] * channels * y_size, tuple(reads), part)


def _is_exact_in_parts(call: Call) -> bool:
    """Tell whether no algorithm in question for it depends on the number of lines; Winograd's of floats do."""
    p = cast("Mapping[str, int]", call.params)
    if call.kernel != "conv2d_f32":
        return True
    return prod((p["kernel_height"], p["kernel_width"])) == 1 or max(p["stride_height"], p["stride_width"]) > 1


def _quantized(p: Mapping[str, int]) -> tuple[int, int]:
    return _BYTES[p["type"]], 1


_WINDOWS: Mapping[str, Callable[[Mapping[str, int]], tuple[int, int]]] = MappingProxyType(
    {
        "conv2d_f32": lambda _: (_FLOAT, _FLOAT),
        "dwconv2d_f32": lambda _: (_FLOAT, _FLOAT),
        "pool2d_f32": lambda _: (_FLOAT, _FLOAT),
        "qconv2d": _quantized,
        "qdwconv2d": _quantized,
        "qmaxpool2d": lambda _: (1, 1),
    }
)
"""By kernel: bytes of an element of the result and of the image."""


def cut_lines(call: Call, lines: int) -> LineWork | None:
    """Return element-wise work as a number of lines; None if it cannot be cut that way."""
    make = _FLAT.get(call.kernel)
    flat = None if make is None else make(call)
    if flat is None or flat.rows % lines:
        return None
    rows = flat.rows // lines
    reads = tuple(Read(operand, lines, rows * step) for operand, step in flat.reads.items())

    def part(some: range) -> tuple[Params, Mapping[int, np.ndarray[Any, Any]]]:
        return flat.part(rows * len(some))

    return LineWork(lines, rows * flat.step, reads, part, flat.in_place)


def _lookup(call: Call) -> _Flat | None:
    p = cast("Mapping[str, int]", call.params)
    size = p["element_size"]
    if p["rows"] == 1:
        return _Flat(p["columns"], size, {1: 1}, lambda n: (
            {**p, "columns": n, "x_row_stride": n, "y_row_stride": n}, {}
        ))  # fmt: skip
    if p["y_row_stride"] != p["columns"]:
        return None
    return _Flat(p["rows"], p["columns"] * size, {1: p["x_row_stride"]}, lambda n: ({**p, "rows": n}, {}))


def _scaled(x_size: Callable[[int], int], y_size: Callable[[int], int]) -> Callable[[Call], _Flat | None]:
    def make(call: Call) -> _Flat | None:
        p = cast("Mapping[str, int]", call.params)
        x, y = x_size(p["type"]), y_size(p["type"])
        if p["axis"] == 1:
            rows = p["outer"] * p["inner"]
            return _Flat(rows, y, {1: x}, lambda n: ({**p, "outer": 1, "inner": n}, {}))
        row = p["axis"] * p["inner"]
        return _Flat(p["outer"], row * y, {1: row * x}, lambda n: ({**p, "outer": n}, {}))

    return make


def _binary(call: Call) -> _Flat | None:
    p = cast("Mapping[str, int]", call.params)
    at = _slowest([p[f"size{d}"] for d in range(MAX_RANK)])
    inner = prod(p[f"size{d}"] for d in range(at + 1, MAX_RANK))
    if not _is_dense([p[f"size{d}"] for d in range(MAX_RANK)], [p[f"y_stride{d}"] for d in range(MAX_RANK)]):
        return None
    steps = {1: p[f"a_stride{at}"], 2: p[f"b_stride{at}"]}
    alike = {
        operand: all(p[f"{name}_stride{d}"] == p[f"y_stride{d}"] for d in range(MAX_RANK) if p[f"size{d}"] != 1)
        for operand, name in ((1, "a"), (2, "b"))
    }
    return _Flat(
        p[f"size{at}"], inner, {operand: step for operand, step in steps.items() if step},
        lambda n: ({**p, f"size{at}": n}, {}), frozenset(operand for operand, same in alike.items() if same),
    )  # fmt: skip


def _copy(call: Call) -> _Flat | None:
    p = cast("Mapping[str, int]", call.params)
    sizes = [p[f"size{d}"] for d in range(MAX_RANK)]
    if not _is_dense(sizes, [p[f"to_stride{d}"] for d in range(MAX_RANK)]):
        return None
    at, element = _slowest(sizes), p["element_size"]
    step = p[f"from_stride{at}"] * element
    return _Flat(
        sizes[at], prod(sizes[at + 1 :]) * element, {1: step} if step else {}, lambda n: ({**p, f"size{at}": n}, {})
    )


def _slowest(sizes: list[int]) -> int:
    return next((d for d, size in enumerate(sizes) if size != 1), MAX_RANK - 1)


def _is_dense(sizes: list[int], steps: list[int]) -> bool:
    whole = 1
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if size != 1 and step != whole:
            return False
        whole *= size
    return True


def _elementwise(call: Call) -> _Flat | None:
    """Read the program of an element-wise call, see ``Steps.encode``, for one that gives one result."""
    table = call.operands[_TABLE]
    if table is None or table.buffer.array is None or any(call.operands[1:_TABLE]):
        return None
    words = table.buffer.array
    inputs, immediates, steps, outputs = map(int, words[:_HEAD])
    sizes = words[_HEAD : _HEAD + MAX_RANK].tolist()
    at = _slowest(sizes)
    rows = [
        words[_HEAD + MAX_RANK + i * (MAX_RANK + 1) :][: MAX_RANK + 1].tolist() for i in range(inputs)
    ]  # type, strides
    program = words[_HEAD + MAX_RANK + inputs * (MAX_RANK + 1) + 2 * immediates :][: 8 * steps].reshape(steps, 8)
    result = int(words[-1]) - inputs - immediates
    if outputs != 1 or not 0 <= result < steps:
        return None
    kinds = {lib.TC_ELEMENT_UNARY, lib.TC_ELEMENT_BINARY}
    in_floats = set(program[:, 0].tolist()) <= kinds and set(program[:, 2].tolist()) == {TYPES["float32"]}
    size = _result_bytes(program[result].tolist())
    if size is None:
        return None
    first = _TABLE + 1
    reads = {first + i: row[1 + at] * _BYTES[row[0]] for i, row in enumerate(rows) if row[1 + at]}
    alike = frozenset(
        first + i
        for i, row in enumerate(rows)
        if in_floats and result == steps - 1 and row[0] == TYPES["float32"] and _is_dense(sizes, row[1:])
    )

    def part(n: int) -> tuple[Params, Mapping[int, np.ndarray[Any, Any]]]:
        changed = words.copy()
        changed[_HEAD + at] = n
        return call.params, {_TABLE: changed}

    return _Flat(sizes[at], prod(sizes[at + 1 :]) * size, reads, part, alike)


def _result_bytes(step: list[int]) -> int | None:
    kind, op, type_ = step[:3]
    if kind in (lib.TC_ELEMENT_COMPARE, lib.TC_ELEMENT_LOGICAL):
        return 1
    return _BYTES.get(op if kind == lib.TC_ELEMENT_CAST else type_)


_FLAT: Mapping[str, Callable[[Call], _Flat | None]] = MappingProxyType(
    {
        "qlookup": _lookup,
        "quantize_f32": _scaled(lambda _: _FLOAT, _BYTES.__getitem__),
        "dequantize_f32": _scaled(_BYTES.__getitem__, lambda _: _FLOAT),
        "qbinary": _binary,
        "copy": _copy,
        "elementwise": _elementwise,
    }
)


def whole_pool(call: Call) -> bool:
    """Tell whether a call makes one pixel of a whole image of adjacent pixels, channel by channel."""
    p = call.params
    return (
        call.kernel == "pool2d_f32"
        and p["batch"] == p["out_height"] == p["out_width"] == 1
        and p["x_pixel_stride"] == p["y_pixel_stride"] == p["channels"]
    )


def table_of_floats(call: Call) -> np.ndarray[Any, Any] | None:
    """Return the table of results of dequantize_f32 for each byte, if its operands are constant."""
    if call.kernel != "dequantize_f32":
        return None
    p, sizes = call.params, {TYPES["int8"]: np.int8, TYPES["uint8"]: np.uint8}
    scale, zero = (None if view is None else view.buffer.array for view in call.operands[2:4])
    if p["axis"] != 1 or p["type"] not in sizes or scale is None:
        return None
    if call.operands[3] is not None and zero is None:
        return None
    kind = sizes[cast("int", p["type"])]
    values = np.arange(256, dtype=np.uint8).view(kind).astype(np.int64)
    shifted = values - (0 if zero is None else int(zero.reshape(-1)[0]))
    return shifted.astype(np.float32) * np.float32(scale.reshape(-1)[0])
