"""From values of a region to tensors of a TOSA program.

TOSA convolves images with their channels last. A value may therefore be stored with its axes in any order, and a
Transpose of the model costs nothing until somebody wants another order. Numbers of uint8 are stored 128 less, as int8:
TOSA has no others. At the border of the region every value is row-major and has its own dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import UnsupportedError
from tinycomp.ir.graph import Value
from tinycomp.ops.numeric import Array, prod
from tinycomp.ops.spatial import Window
from tinycomp.quantized.interpolation import LinearAxis
from tinycomp.quantized.reading import Requantization
from tinycomp.quantized.rescale import Scale
from tinycomp.targets.tosa.program import Program, Tensor

Order = tuple[int, ...]
"""Which axis of a value each axis of its tensor is."""
OFFSET = 128
"""How much less numbers of uint8 are as int8."""
STORED = {"int8": "int8", "uint8": "int8", "float32": "float32", "bool": "bool", "int32": "int32"}
"""How each dtype of a region is stored."""


def row_major(rank: int) -> Order:
    """Return the order of a tensor that lies as ONNX has it."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """Return the order of images whose channels come last."""
    return (0, *range(2, rank), 1)


def last_axis(rank: int, axis: int) -> Order:
    """Return the order of a tensor whose last axis is this one, as hardware reduces it."""
    return (*(other for other in range(rank) if other != axis % rank), axis % rank)


def shape_of(value: Value) -> tuple[int, ...]:
    """Return the shape, which is known while a region is built."""
    shape = value.static_shape
    if shape is None:
        raise UnsupportedError("a size is unknown", where=f'value "{value.name}"', found=str(value.type))
    return shape


def offset_of(dtype: str) -> int:
    """Return how much less the numbers of a dtype are stored."""
    return OFFSET if dtype == "uint8" else 0


class Emitter:
    """Collect the program of one region.

    Args:
        inputs: The operands of the region, whose shapes are known.

    Attributes:
        program: What has been emitted.
    """

    def __init__(self, inputs: Sequence[Value]) -> None:
        self.program = Program()
        self._stored: dict[Value, dict[Order, Tensor]] = {}
        for value in inputs:
            tensor = self.program.add_input(shape_of(value), STORED[value.dtype])
            if value.dtype == "uint8":
                tensor = self.rescale(tensor, Scale.whole(1), OFFSET, 0, unsigned="input")
            self.write(value, tensor)

    def finish(self, outputs: Sequence[Value]) -> Program:
        """Return the program with these results."""
        for value in outputs:
            tensor = self.read(value)
            if value.dtype == "uint8":
                tensor = self.rescale(tensor, Scale.whole(1), 0, OFFSET, unsigned="output")
            self.program.add_output(tensor)
        return self.program

    # Values ---------------------------------------------------------------------------------------------------------

    def write(self, value: Value, tensor: Tensor, order: Order | None = None) -> None:
        """Say where a value is; row-major if no order is given."""
        self._stored[value] = {order or row_major(len(tensor.shape)): tensor}

    def order(self, value: Value) -> Order:
        """Return an order that a value is stored in."""
        return next(iter(self._stored[value])) if value in self._stored else row_major(len(shape_of(value)))

    def alias(self, value: Value, of: Value) -> None:
        """Let a value be another."""
        self.read(of, self.order(of))
        self._stored[value] = dict(self._stored[of])

    def read(self, value: Value, order: Order | None = None) -> Tensor:
        """Return a tensor with the axes of a value in this order; row-major if none is given."""
        order = order or row_major(len(shape_of(value)))
        found = self._stored.setdefault(value, {})
        if order not in found:
            found[order] = self._constant(value, order) if value.const is not None else self._permuted(value, order)
        return found[order]

    def read_wide(self, value: Value, order: Order) -> Tensor:
        """Return a value with axes of size 1 in front, as many as broadcasting to the order's rank adds."""
        missing = len(order) - len(shape_of(value))
        if not missing:
            return self.read(value, order)
        tensor = self.reshape(self.read(value), (1,) * missing + shape_of(value))
        return self.transpose(tensor, order)

    def array(self, value: Value) -> Array:
        """Return the numbers of a constant as they are stored."""
        assert value.const is not None, value
        if value.dtype == "uint8":
            return (value.const.astype(np.int16) - OFFSET).astype(np.int8)
        return value.const

    def _constant(self, value: Value, order: Order) -> Tensor:
        return self.program.const(np.ascontiguousarray(self.array(value).transpose(order)))

    def _permuted(self, value: Value, order: Order) -> Tensor:
        has, tensor = next(iter(self._stored[value].items()))
        return self.transpose(tensor, tuple(has.index(axis) for axis in order))

    # Operators ------------------------------------------------------------------------------------------------------

    def add(
        self, op: str, inputs: Sequence[Tensor], shape: Sequence[int], dtype: str = "", /, **attributes: Any
    ) -> Tensor:
        """Emit an operator; its result has the dtype of the first operand if none is given."""
        return self.program.add(op, inputs, shape, dtype or inputs[0].dtype, **attributes)

    def point(self, number: float, dtype: str) -> Tensor:
        """Return a constant of one element, as operators take zero points."""
        return self.program.const(np.array([number], dtype))

    def reshape(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Emit a RESHAPE, if the shape is another."""
        if tuple(shape) == tensor.shape:
            return tensor
        return self.add("RESHAPE", [tensor, self.program.sizes(shape)], shape)

    def transpose(self, tensor: Tensor, perms: Sequence[int]) -> Tensor:
        """Emit a TRANSPOSE; where only axes of size 1 move, a RESHAPE will do."""
        shape = [tensor.shape[axis] for axis in perms]
        moving = [axis for axis in perms if tensor.shape[axis] != 1]
        if moving == sorted(moving):
            return self.reshape(tensor, shape)
        return self.add("TRANSPOSE", [tensor], shape, perms=[int(axis) for axis in perms])

    def cut(self, tensor: Tensor, starts: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Emit a SLICE, if anything is cut off."""
        if tuple(sizes) == tensor.shape:
            return tensor
        return self.add("SLICE", [tensor, self.program.sizes(starts), self.program.sizes(sizes)], sizes)

    def clamp(self, tensor: Tensor, low: float, high: float) -> Tensor:
        """Emit a CLAMP, if it has an effect on this dtype."""
        dtype = np.dtype(tensor.dtype)
        info = np.iinfo(dtype) if dtype.kind == "i" else np.finfo(dtype)
        if low <= info.min and high >= info.max:
            return tensor
        low, high = max(low, info.min), min(high, info.max)
        ends = {f"{end}_val": list(np.array(v, dtype).tobytes()) for end, v in (("min", low), ("max", high))}
        return self.add("CLAMP", [tensor], tensor.shape, **ends, nan_mode="PROPAGATE")

    def plus(self, tensor: Tensor, number: int) -> Tensor:
        """Emit the addition of one number, if it has an effect."""
        ones = [1] * len(tensor.shape)
        return (
            self.add("ADD", [tensor, self.program.const(np.full(ones, number, tensor.dtype))], tensor.shape)
            if number
            else tensor
        )

    def multiply(self, a: Tensor, b: Tensor, shift: int = 0) -> Tensor:
        """Emit a MUL, whose products of int32 are shifted to the right."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        return self.add("MUL", [a, b, self.point(shift, "int8")], shape)

    def table(self, tensor: Tensor, entries: Array, dtype: str = "") -> Tensor:
        """Emit a TABLE, whose entries have the dtype of its operand."""
        return self.add("TABLE", [tensor, self.program.const(entries.astype(tensor.dtype))], tensor.shape, dtype)

    def reduce(self, op: str, tensor: Tensor, axes: Sequence[int]) -> Tensor:
        """Emit a reduction of one axis after the other, which keep a size of 1."""
        attributes = {"nan_mode": "PROPAGATE"} if op in ("REDUCE_MAX", "REDUCE_MIN") else {}
        for axis in axes:
            shape = [1 if d == axis else size for d, size in enumerate(tensor.shape)]
            tensor = self.add(op, [tensor], shape, axis=axis, **attributes)
        return tensor

    def rescale(
        self, tensor: Tensor, scale: Scale, before: int = 0, after: int = 0, dtype: str = "int8", unsigned: str = ""
    ) -> Tensor:
        """Emit a RESCALE, of every channel in the last axis by its own multiplier if there are several.

        Args:
            tensor: What is multiplied.
            scale: By what.
            before: Zero point of the operand.
            after: Zero point of the result.
            dtype: Of the result.
            unsigned: Which is of uint8, at the border: ``"input"`` or ``"output"``.
        """
        points = [
            np.array([point & (0xFF if side == unsigned else -1)]).astype(kind)
            for side, point, kind in (("input", before, tensor.dtype), ("output", after, dtype))
        ]
        operands = [tensor, *map(self.program.const, (scale.multipliers, scale.shifts, *points))]
        return self.add(
            "RESCALE", operands, tensor.shape, dtype, scale32=True, per_channel=scale.multipliers.size > 1,
            rounding_mode="DOUBLE_ROUND" if scale.double else "SINGLE_ROUND",
            input_unsigned=unsigned == "input", output_unsigned=unsigned == "output",
        )  # fmt: skip

    def requantize(self, sums: Tensor, scale: Scale, to: Requantization) -> Tensor:
        """Emit what makes 8-bit numbers of int32 sums."""
        less = offset_of(to.dtype)
        return self.clamp(self.rescale(sums, scale, after=to.zero_point - less), to.low - less, to.high - less)

    # Windows --------------------------------------------------------------------------------------------------------

    def image(self, value: Value) -> Tensor:
        """Return images as TOSA wants them, ``[batch, height, width, channels]``; a line has a height of 1."""
        tensor = self.read(value, channels_last(len(shape_of(value))))
        return tensor if len(tensor.shape) == 4 else self.reshape(tensor, (tensor.shape[0], 1, *tensor.shape[1:]))

    def write_image(self, value: Value, tensor: Tensor) -> None:
        """Say that a value is in these images."""
        order = channels_last(len(shape_of(value)))
        self.write(value, self.reshape(tensor, [shape_of(value)[axis] for axis in order]), order)

    def windows(self, x: Tensor, window: Window[int]) -> tuple[Tensor, list[int]]:
        """Return images, and their pads, that a window's steps cover without a rest, as the specification asks for."""
        sizes, pads = list(x.shape), []
        for axis, size in enumerate(window.sizes):
            reach = (window.output[axis] - 1) * window.strides[axis] + window.extents[axis]
            behind = reach - size - window.before[axis]
            sizes[axis + 1] += min(behind, 0)
            pads += [window.before[axis], max(behind, 0)]
        return self.cut(x, (0, 0, 0, 0), sizes), pads

    def convolve(
        self, x: Tensor, weight: Array, bias: Array, window: Window[int], groups: int, point: int = 0,
        finish: Callable[[Tensor, slice], Tensor] = lambda sums, channels: sums,
    ) -> Tensor:  # fmt: skip
        """Emit a convolution and return what becomes of its sums.

        Args:
            x: Images.
            weight: ``[filters, channels / groups, height, width]``; a line has no height.
            bias: One number per filter.
            window: Its geometry, of two axes.
            groups: Into how many the channels fall.
            point: Zero point of the images.
            finish: Emits what becomes of the sums of some channels, those of a group.
        """
        weight = weight if weight.ndim == 4 else weight[:, :, None]
        x, pads = self.windows(x, window)
        batch, channels, filters = x.shape[0], x.shape[3], len(weight)
        acc = "int32" if weight.dtype.kind == "i" else "float32"
        attributes = {
            "pad": pads, "stride": list(window.strides), "dilation": list(window.dilations), "local_bound": False,
            "acc_type": "INT32" if acc == "int32" else "FP32",
        }  # fmt: skip
        points = [self.point(point, x.dtype), self.point(0, weight.dtype.name)]

        def one(op: str, x: Tensor, w: Array, b: Array) -> Tensor:
            shape = (batch, *window.output, len(b))
            return self.add(op, [x, self.program.const(w), self.program.const(b), *points], shape, acc, **attributes)

        if groups == channels > 1:
            split = weight.reshape(channels, filters // channels, *weight.shape[2:])
            sums = one("DEPTHWISE_CONV2D", x, np.ascontiguousarray(split.transpose(2, 3, 0, 1)), bias)
            return finish(sums, slice(None))
        each, made = channels // groups, filters // groups
        rows = np.ascontiguousarray(weight.transpose(0, 2, 3, 1))
        parts = [
            finish(one("CONV2D", self.cut(x, (0, 0, 0, g * each), (*x.shape[:3], each)), rows[of], bias[of]), of)
            for g in range(groups)
            for of in [slice(g * made, (g + 1) * made)]
        ]
        return self.concat(parts, 3)

    def average(self, x: Tensor, window: Window[int], pads: list[int], point: int = 0) -> Tensor:
        """Emit a mean of windows over images, which have been cut to fit."""
        acc = "FP32" if x.dtype == "float32" else "INT32"
        attributes = {"kernel": list(window.kernel), "stride": list(window.strides), "pad": pads, "acc_type": acc}
        points = [self.point(point, x.dtype)] * 2
        return self.add("AVG_POOL2D", [x, *points], (x.shape[0], *window.output, x.shape[3]), **attributes)

    def resize(self, x: Tensor, axes: Sequence[LinearAxis], mode: str) -> Tensor:
        """Emit images of other sizes; those that are interpolated have int32 sums for int8."""
        scale = [number for axis in axes for number in (axis.numerator, axis.denominator)]
        numbers = (scale, [axis.offset for axis in axes], [axis.border for axis in axes])
        shape = (x.shape[0], *(axis.output for axis in axes), x.shape[3])
        dtype = "int32" if mode == "BILINEAR" and x.dtype == "int8" else x.dtype
        return self.add("RESIZE", [x, *map(self.program.sizes, numbers)], shape, dtype, mode=mode)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Emit a CONCAT, if there are several."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.add("CONCAT", parts, shape, axis=axis)

    def matrix(self, value: Value) -> Tensor:
        """Return a value as images of one line, whose pixels are its rows and whose channels its columns."""
        shape = shape_of(value)
        return self.reshape(self.read(value), (1, 1, prod(shape[:-1]), shape[-1]))
