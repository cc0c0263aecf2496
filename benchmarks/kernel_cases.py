"""The kernel calls that are measured one by one: the layers that well-known models spend their time in."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

Array = NDArray[Any]
_FLOAT = "float32"
_SIGMOID, _GELU_ERF = 4, 9
"""Of ``enum tc_activation``."""
_FEW_QUERIES = 16
"""Up to how many queries share one pass over the keys."""


@dataclass(frozen=True)
class Case:
    """One kernel call.

    Attributes:
        family: What it is called in tables.
        shape: Its sizes as a text.
        kernel: The kernel.
        operands: The shape of each operand after the result, the arrays themselves of constants, None where absent.
        params: The parameters that are not 0.
        result: The shape of the result.
        moves_data: Whether memory decides about its speed, rather than arithmetic.
        convolution: Size of the image and number of channels, for a 3x3 convolution of stride 1.
        element: The type of the operands that are fed.
        int8: Whether its arithmetic is that of 8-bit numbers.
    """

    family: str
    shape: str
    kernel: str
    operands: tuple[tuple[int, ...] | Array | None, ...]
    params: Mapping[str, int | float]
    result: tuple[int, ...]
    moves_data: bool = False
    convolution: tuple[int, int] | None = None
    element: str = _FLOAT
    int8: bool = False

    def program(self) -> tuple[Program, list[Array]]:
        """A program of this one call, and random arrays to feed it."""
        rng = np.random.default_rng(0)
        places, specs, constants, feeds = [Operand("output", 0)], [], [], []
        for operand in self.operands:
            if operand is None:
                places.append(ABSENT)
            elif isinstance(operand, np.ndarray):
                places.append(Operand("constant", len(constants)))
                constants.append(operand)
            else:
                places.append(Operand("input", len(specs)))
                specs.append(BufferSpec(f"x{len(specs)}", self.element, operand))
                feeds.append(_random(rng, self.element, operand))
        places += [ABSENT] * (15 - len(self.operands) if self.kernel == "elementwise" else 0)
        params = {name: kind(0) for name, kind in kernel_named(self.kernel).fields.items()} | dict(self.params)
        call = Instruction(self.kernel, tuple(places), params, (self.family,))
        outputs = (BufferSpec("y", self.element, self.result),)
        return Program(self.family, tuple(specs), outputs, tuple(constants), 0, (call,)), feeds


def _random(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> Array:
    if element == _FLOAT:
        return rng.standard_normal(shape, np.float32)
    return rng.integers(0, 256, shape, element)


def cases() -> list[Case]:
    """All of them, those that belong together side by side."""
    return [
        *(gemm(*sizes) for sizes in GEMM),
        *(conv(size, channels, 1) for size, channels in STAGES),
        *(conv(size, channels, 3) for size, channels in STAGES),
        *(conv(size, channels, 3, winograd=tile) for size, channels in STAGES for tile in (2, 4)),
        stem(),
        *(depthwise(*layer) for layer in DEPTHWISE),
        attention(12, 128, 64),
        attention(6, 1500, 64),
        cached_attention(32, 4, 1, 512, 128),
        cached_attention(32, 4, 128, 2048, 128),
        elementwise("gelu", _GELU_ERF, (128, 3072)),
        elementwise("sigmoid", _SIGMOID, (112, 112, 32)),
        softmax(1536, 128),
        softmax(1, 1000),
        layer_norm(128, 768),
        layer_norm(3136, 96),
        pool("max pool 3x3 stride 2", 112, 64, 3, 2, 1),
        pool("global average pool", 7, 2048, 7, 1, 0),
        transpose("transpose NCHW to NHWC", (64, 3136), (1, 0)),
        transpose("transpose of a matrix", (768, 768), (1, 0)),
        transpose("split of heads", (128, 12, 64), (1, 0, 2)),
    ]


GEMM = ((256, 256, 256), (1024, 1024, 1024), (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (1500, 1536, 384),
        (1, 1000, 2048))  # fmt: skip
"""Rows, columns, depth."""
STAGES = ((56, 64), (28, 128), (14, 256), (7, 512))
"""Images and channels of a residual network's stages."""
DEPTHWISE = ((112, 32, 3, 1), (28, 192, 3, 1), (14, 576, 3, 1), (112, 96, 3, 2), (28, 192, 3, 2), (14, 576, 3, 2),
             (28, 240, 5, 1), (14, 672, 5, 2))  # fmt: skip
"""Image, channels, kernel, stride."""


def weights(*shape: int) -> Array:
    """Random constants of about the size that keeps a signal's magnitude."""
    fan_in = int(np.prod(shape[1:]))
    return (np.random.default_rng(1).standard_normal(shape) / np.sqrt(max(fan_in, 1))).astype(np.float32)


def gemm(m: int, n: int, k: int) -> Case:
    """A product with a constant matrix."""
    params = {"m": m, "n": n, "k": k, "lda": k, "ldc": n, "ldr": n}
    operands = ((m, k), weights(k, n), weights(n), None)
    return Case("gemm", f"{m}x{n}x{k}", "gemm_f32", operands, params, (m, n), moves_data=m == 1)


def window(size: int, channels: int, kernel: int, stride: int, pad: int) -> dict[str, int]:
    """The geometry of a square window over a square image."""
    out = (size + 2 * pad - kernel) // stride + 1
    square = {
        "height": size, "width": size, "out_height": out, "out_width": out, "kernel_height": kernel,
        "kernel_width": kernel, "stride_height": stride, "stride_width": stride, "dilation_height": 1,
        "dilation_width": 1, "pad_top": pad, "pad_left": pad,
    }  # fmt: skip
    return square | {"batch": 1, "channels": channels, "x_pixel_stride": channels}


def _convolution(name: str, size: int, channels: int, out: int, kernel: int, stride: int) -> Case:
    params = window(size, channels, kernel, stride, kernel // 2)
    params |= {"out_channels": out, "groups": 1, "y_pixel_stride": out, "residual_pixel_stride": out}
    result = (params["out_height"], params["out_width"], out)
    operands = ((size, size, channels), weights(out, channels, kernel, kernel), weights(out), None)
    return Case(name, f"{size}x{size}x{channels}", "conv2d_f32", operands, params, result)


def conv(size: int, channels: int, kernel: int, winograd: int = 0) -> Case:
    """A convolution that keeps image and channels: direct, or by Winograd with tiles of so many pixels."""
    direct = _convolution(f"conv {kernel}x{kernel}", size, channels, channels, kernel, 1)
    if not winograd:
        return direct
    params = {**direct.params, "algorithm": {2: 3, 4: 4}[winograd]}
    same = (direct.operands, params, direct.result)
    return Case(direct.family, direct.shape, "conv2d_winograd_f32", *same, convolution=(size, channels))


def stem() -> Case:
    """The first layer of a residual network."""
    return _convolution("conv 7x7 stride 2", 224, 3, 64, 7, 2)


def depthwise(size: int, channels: int, kernel: int, stride: int) -> Case:
    """One filter per channel."""
    params = window(size, channels, kernel, stride, kernel // 2)
    params |= {"y_pixel_stride": channels, "residual_pixel_stride": channels, "planar": 0}
    result = (params["out_height"], params["out_width"], channels)
    operands = ((size, size, channels), weights(channels, 1, kernel, kernel), weights(channels), None)
    name = f"depthwise {kernel}x{kernel} stride {stride}"
    return Case(name, f"{size}x{size}x{channels}", "dwconv2d_f32", operands, params, result)


def attention(heads: int, rows: int, depth: int) -> Case:
    """Self-attention without a mask; heads lie side by side in each row, as projections leave them."""
    params: dict[str, int | float] = {"batch": 1, "heads": heads, "group": 1, "rows": rows, "keys": rows}
    params |= {"depth": depth, "value_depth": depth, "k_column": 1, "scale": depth**-0.5}
    for operand in "yqkv":
        params |= {f"{operand}_head": depth, f"{operand}_row": heads * depth, f"{operand}_batch": rows * heads * depth}
    shape = (rows, heads * depth)
    return Case("attention", f"{heads} heads, {rows}x{depth}", "attention_f32", (shape,) * 3 + (None,), params, shape)


def cached_attention(heads: int, group: int, rows: int, keys: int, depth: int) -> Case:
    """Causal attention of the last tokens of a text over a cache."""
    shared = heads // group
    params: dict[str, int | float] = {"batch": 1, "heads": heads, "group": group, "rows": rows, "keys": keys}
    params |= {"depth": depth, "value_depth": depth, "scale": depth**-0.5, "softcap": 0.0}
    for operand in "yq":
        params |= {f"{operand}_head": depth, f"{operand}_row": heads * depth, f"{operand}_batch": rows * heads * depth}
    for operand in "kv":
        params |= {f"{operand}_row": depth, f"{operand}_head": keys * depth, f"{operand}_batch": shared * keys * depth}
    params |= {"mask_bytes": 4, "length_bytes": 4, "past": keys - rows, "causal": 1, "left": -1, "right": -1}
    queries, cache = (rows, heads * depth), (shared, keys, depth)
    operands = (None, queries, cache, cache, *[None] * 4)
    shape = f"{heads} heads, {shared} of keys, {rows} of {keys}x{depth}"
    few = group * rows <= _FEW_QUERIES
    return Case("attention with a cache", shape, "cached_attention_f32", operands, params, queries, moves_data=few)


def elementwise(name: str, function: int, shape: Sequence[int]) -> Case:
    """A program of one function."""
    count = int(np.prod(shape))
    zero = struct.unpack("<q", struct.pack("<d", 0.0))[0]
    head, source, step = [1, 0, 1, 1, *[1] * 7, count], [0, *[0] * 7, 1], [0, function, 0, 0, 0, 0, zero, zero]
    words = np.array([*head, *source, *step, 1], np.int64)
    operands = (None, None, None, words, tuple(shape))
    params = {"words": len(words)}
    return Case(name, "x".join(map(str, shape)), "elementwise", operands, params, tuple(shape), moves_data=True)


def softmax(rows: int, columns: int) -> Case:
    """Along the last axis."""
    shape, params = (rows, columns), {"outer": rows, "axis": columns, "inner": 1}
    return Case("softmax", f"{rows}x{columns}", "softmax_f32", (shape,), params, shape, moves_data=True)


def layer_norm(rows: int, columns: int) -> Case:
    """With scale and bias."""
    shape, params = (rows, columns), {"rows": rows, "columns": columns, "epsilon": 1e-5}
    operands = (None, shape, None, weights(columns), weights(columns))
    return Case("layer norm", f"{rows}x{columns}", "layer_norm_f32", operands, params, shape, moves_data=True)


def pool(name: str, size: int, channels: int, kernel: int, stride: int, pad: int) -> Case:
    """A maximum, or for the whole image a mean."""
    params = window(size, channels, kernel, stride, pad)
    params |= {"y_pixel_stride": channels, "pad_bottom": pad, "pad_right": pad, "mode": int(kernel == size)}
    result = (params["out_height"], params["out_width"], channels)
    shape = (size, size, channels)
    return Case(name, f"{size}x{size}x{channels}", "pool2d_f32", (shape,), params, result, moves_data=True)


def transpose(name: str, shape: Sequence[int], order: Sequence[int]) -> Case:
    """A copy that exchanges dimensions."""
    result = tuple(shape[i] for i in order)
    lead = 8 - len(shape)
    params: dict[str, int] = {"element_size": 4} | {f"size{i}": 1 for i in range(8)}
    steps = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    for i, axis in enumerate(order):
        params[f"size{lead + i}"] = shape[axis]
        params[f"from_stride{lead + i}"] = steps[axis]
        params[f"to_stride{lead + i}"] = int(np.prod(result[i + 1 :]))
    text = "x".join(map(str, shape))
    return Case(name, text, "copy", (tuple(shape),), params, result, moves_data=True)
