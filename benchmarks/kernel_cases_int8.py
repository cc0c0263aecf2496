"""The kernel calls on quantised numbers that are measured one by one, as :mod:`benchmarks.kernel_cases`."""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmarks.kernel_cases import STAGES, Array, Case, weights, window

_U8, _I8 = 5, 4
"""Of ``enum tc_type``."""
_RESULT = {"x_zero_point": 128, "weight_type": _I8, "type": _U8, "y_zero_point": 128, "high": 255}
GEMM = ((1024, 1024, 1024), (128, 768, 3072), (1, 1000, 2048), (1, 128, 640))
"""Rows, columns, depth: the last two are the end of a residual network, and a layer of an autoencoder."""
CONVOLUTIONS = (
    *((size, channels, channels, 1, 1) for size, channels in STAGES),
    *((size, channels, channels, 3, 1) for size, channels in STAGES),
    (224, 3, 64, 7, 2), (56, 24, 144, 1, 1), (14, 96, 576, 1, 1), (7, 960, 320, 1, 1),
    (32, 16, 16, 3, 1), (8, 64, 64, 3, 1), (24, 32, 32, 1, 1), (6, 128, 128, 1, 1),
)  # fmt: skip
"""Image, channels, output channels, kernel, stride: of ResNet-50, MobileNet-v2 and networks for microcontrollers."""
DEPTHWISE = ((112, 32, 3, 1), (112, 96, 3, 2), (28, 192, 3, 1), (14, 576, 3, 1), (48, 8, 3, 1), (6, 128, 3, 1))
"""Image, channels, kernel, stride."""
CODES = ((1, 768, 3072, 8, 0), (1, 4096, 4096, 8, 0), (1, 4096, 4096, 4, 32), (128, 768, 3072, 4, 32))
"""Rows, columns, depth, bits of a code, numbers of a block."""


def cases() -> list[Case]:
    """All of them."""
    return [
        *(gemm(*sizes) for sizes in GEMM),
        *(conv(*layer) for layer in CONVOLUTIONS),
        *(winograd(*stage) for stage in STAGES),
        *(depthwise(*layer) for layer in DEPTHWISE),
        *(dequant(*layer) for layer in CODES),
    ]


def _constants(channels: int, *shape: int) -> tuple[Array, Array, Array, None]:
    """Weights, bias and factors; the zero point is a parameter."""
    values = np.random.default_rng(1).integers(-127, 128, shape, np.int8)
    return values, np.zeros(channels, np.int32), np.full(channels, 1e-3, np.float32), None


def gemm(m: int, n: int, k: int) -> Case:
    """A product with a constant matrix."""
    params = {"m": m, "n": n, "k": k, "x_row_stride": k, "y_row_stride": n} | _RESULT
    operands = ((m, k), *_constants(n, k, n))
    return Case("int8 gemm", f"{m}x{n}x{k}", "qgemm", operands, params, (m, n), element="uint8", int8=True)


def conv(size: int, channels: int, out: int, kernel: int, stride: int) -> Case:
    """A convolution."""
    params = window(size, channels, kernel, stride, kernel // 2)
    params |= {"out_channels": out, "groups": 1, "y_pixel_stride": out} | _RESULT
    operands = ((size, size, channels), *_constants(out, out, channels, kernel, kernel))
    name = f"int8 conv {kernel}x{kernel}" + (f" stride {stride}" if stride > 1 else "")
    result = (params["out_height"], params["out_width"], out)
    shape = f"{size}x{size}x{channels}" + (f" to {out}" if out != channels else "")
    return Case(name, shape, "qconv2d", operands, params, result, element="uint8", int8=True)


def winograd(size: int, channels: int) -> Case:
    """A 3x3 convolution that keeps image and channels, by Winograd's algorithm."""
    direct = conv(size, channels, channels, 3, 1)
    return dataclasses.replace(direct, kernel="qconv2d_winograd", params={**direct.params, "algorithm": 3})


def depthwise(size: int, channels: int, kernel: int, stride: int) -> Case:
    """One filter per channel."""
    params = window(size, channels, kernel, stride, kernel // 2) | {"y_pixel_stride": channels} | _RESULT
    operands = ((size, size, channels), *_constants(channels, channels, 1, kernel, kernel))
    result = (params["out_height"], params["out_width"], channels)
    name = f"int8 depthwise {kernel}x{kernel} stride {stride}"
    return Case(name, f"{size}x{size}x{channels}", "qdwconv2d", operands, params, result, element="uint8", int8=True)


def dequant(m: int, n: int, k: int, bits: int, block: int) -> Case:
    """A float matrix times codes."""
    params = {"m": m, "n": n, "k": k, "lda": k, "ldc": n, "bits": bits, "code_type": _I8, "block": block}
    bound = 2 ** (bits - 1)
    codes = np.random.default_rng(1).integers(-bound, bound, (n, k), np.int8)
    scales = np.full((n, k // block if block else 1), 1e-3, np.float32)
    operands = ((m, k), codes, scales, None, weights(n))
    return Case(f"gemm of int{bits} codes", f"{m}x{n}x{k}", "gemm_dequant_f32", operands, params, (m, n), m == 1)
