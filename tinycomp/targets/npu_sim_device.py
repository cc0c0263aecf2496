"""The device behind ``npu_sim``: its instructions, its arithmetic, and what they cost. It knows nothing of graphs.

For a real accelerator this file is the vendor's library. An 8-bit product is an exact int32 sum times a float32 factor,
rounded half to even; the vector unit adds and pools in float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinycomp.memory.placement import MemoryPlan
from tinycomp.ops.conv import convolve
from tinycomp.ops.numeric import Array
from tinycomp.ops.spatial import make_window

LANES = 16
"""Side of the array, and width of the vector unit."""
FLOAT_CYCLES = 4
"""Cycles of one float32 step of the array; an 8-bit step takes one."""
SCRATCHPAD = 256 << 10
"""Bytes of the memory beside the array: one half holds results between instructions, the other the tile at work."""
RESIDENT = WORKING = SCRATCHPAD // 2

Compute = Callable[..., Array]


@dataclass(frozen=True)
class Work:
    """What one instruction computes, its multiply-accumulate operations, its cycles, and the tiles that it takes."""

    compute: Compute
    macs: int
    cycles: int
    tiles: int = 1


@dataclass(frozen=True)
class Instruction:
    """An instruction in a program: its name, what it came from, its registers, and the bytes that it moves."""

    name: str
    source: str
    work: Work
    reads: tuple[int, ...]
    writes: int
    bytes: int


@dataclass(frozen=True)
class Program:
    """Instructions in order; each call has registers of its own, so that threads may share a program.

    Attributes:
        instructions: What to run.
        constants: What stands in the registers behind the operands.
        outputs: Registers of the results.
        memory: Where the registers between instructions lie, in the order of the instructions that write them.
    """

    instructions: tuple[Instruction, ...]
    constants: tuple[Array, ...]
    outputs: tuple[int, ...]
    memory: MemoryPlan

    def __call__(self, *operands: Array) -> list[Array]:
        """Run the program and return its results."""
        registers = dict(enumerate([*operands, *self.constants]))
        for step in self.instructions:
            registers[step.writes] = step.work.compute(*(registers[i] for i in step.reads))
        return [registers[i] for i in self.outputs]

    def traced(self, *operands: Array) -> tuple[list[Array], list[tuple[str, str, float, float, int]]]:
        """Run the program; also return name, source, start, end and bytes of every instruction, in seconds."""
        registers = dict(enumerate([*operands, *self.constants]))
        trace = []
        for step in self.instructions:
            started = time.perf_counter()
            registers[step.writes] = step.work.compute(*(registers[i] for i in step.reads))
            trace.append((step.name, step.source, started, time.perf_counter(), step.bytes))
        return [registers[i] for i in self.outputs], trace

    @property
    def cycles(self) -> int:
        """Cycles of one run."""
        return sum(step.work.cycles for step in self.instructions)

    @property
    def macs(self) -> int:
        """Multiply-accumulate operations of one run."""
        return sum(step.work.macs for step in self.instructions)

    def __str__(self) -> str:
        rows = [f"{s.work.cycles:>9} cycles {s.bytes:>9} bytes  {s.name:<9} {s.source}" for s in self.instructions]
        used = self.macs / (LANES**2 * max(self.cycles, 1))
        tiles = sum(step.work.tiles for step in self.instructions)
        places = ", ".join(f"{size} bytes of {name}" for name, size in self.memory.used.items())
        total = f"{self.cycles:>9} cycles, {used:.0%} of what the array could do"
        return "\n".join([*rows, f"{total}; {tiles} tiles, {places} in between"])


@dataclass(frozen=True)
class Requantize:
    """Turns numbers into 8-bit values: ``rint(number * factor) + zero_point`` in float32, half to even, saturated.

    Attributes:
        factor: float32; one, or one per channel.
        zero_point: Of the result.
        low: Least result; a fused activation raises it.
        high: Greatest result.
        dtype: Of the result.
    """

    factor: Array
    zero_point: int
    low: int
    high: int
    dtype: str

    def __call__(self, total: Array) -> Array:
        """Return 8-bit values for sums, whole numbers in the range of int32."""
        return self.rounded(total.astype(np.float32) * self.factor)

    def rounded(self, steps: Array) -> Array:
        """Return 8-bit values for float32 numbers in steps of them."""
        return np.asarray(np.clip(np.rint(steps) + self.zero_point, self.low, self.high).astype(self.dtype))


def product_cycles(channels: int, per_output: int, outputs: int, group: int) -> int:
    """Return the steps of the array: each takes 16 terms of 16 channels of one group.

    A depthwise convolution has one channel per group, and so keeps one column of the array busy.

    Args:
        channels: Output channels.
        per_output: Terms of one sum.
        outputs: Sums in all.
        group: Groups of channels that share no input.
    """
    tiles = -(-per_output // LANES) * -(-channels // group // LANES) * group
    return outputs // channels * tiles


def vector_cycles(elements: int) -> int:
    """Return the cycles of the vector unit for so many results."""
    return -(-elements // LANES)


def matrix(weight: Array) -> Compute:
    """Return the product of rows with a weight ``[channels, terms]``."""
    return lambda x: np.asarray(x @ weight.T)


def convolution(weight: Array, geometry: Mapping[str, Any], group: int) -> Compute:
    """Return the convolution with a weight ``[channels, terms, …]``.

    Args:
        weight: What to multiply with.
        geometry: Strides, dilations and pads as ONNX has them.
        group: Groups of channels.
    """

    def compute(x: Array) -> Array:
        return convolve(x, weight, make_window("Conv", x.shape[2:], weight.shape[2:], **geometry), group)

    return compute


def product_int8(multiply: Compute, zero_point: int, bias: Array, finish: Requantize) -> Compute:
    """Return the 8-bit product; ``multiply`` works on float64, in which integer sums are exact up to 2**53."""
    return lambda x: finish(multiply(x.astype(np.float64) - zero_point).astype(np.int64) + bias)


def product_float32(multiply: Compute, bias: Array, low: float, high: float) -> Compute:
    """Return the float32 product with bias and activation."""
    return lambda x: np.clip(multiply(x) + bias, np.float32(low), np.float32(high))


def add_int8(scales: Sequence[float], zero_points: Sequence[int], scale: Array, finish: Requantize) -> Compute:
    """Return the 8-bit sum, in steps of ``scale``; the vector unit adds the float32 numbers that the operands are."""

    def compute(*operands: Array) -> Array:
        a, b = (_real(*each) for each in zip(operands, scales, zero_points, strict=True))
        return finish.rounded((a + b) / scale)

    return compute


def mean_int8(add_up: Compute, count: int, scale: float, zero_point: int, step: Array, finish: Requantize) -> Compute:
    """Return the 8-bit mean, in steps of ``step``; ``add_up`` sums every window of ``count`` float32 numbers."""
    return lambda x: finish.rounded(add_up(_real(x, scale, zero_point)) / np.float32(count) / step)


def _real(stored: Array, scale: float, zero_point: int) -> Array:
    return np.asarray((stored.astype(np.float32) - np.float32(zero_point)) * np.float32(scale))
