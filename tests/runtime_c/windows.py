"""Convolution in plain numpy, and the parameters of the window kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.runtime_c.helpers import NO_ACTIVATION


def output_size(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    return (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1


def conv2d(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    groups: int = 1,
) -> np.ndarray:
    """Convolve an NHWC array with OIHW weights in double precision; pads are top, left, bottom, right."""
    top, left, bottom, right = pads
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    out_h = output_size(x.shape[1], w.shape[2], strides[0], dilations[0], (0, 0))
    out_w = output_size(x.shape[2], w.shape[3], strides[1], dilations[1], (0, 0))
    y = np.zeros((x.shape[0], out_h, out_w, groups, w.shape[0] // groups))
    xg = x.reshape(*x.shape[:3], groups, x.shape[3] // groups)
    wg = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).astype(np.float64)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows = slice(i * dilations[0], i * dilations[0] + (out_h - 1) * strides[0] + 1, strides[0])
            columns = slice(j * dilations[1], j * dilations[1] + (out_w - 1) * strides[1] + 1, strides[1])
            y += np.einsum("nhwgc,goc->nhwgo", xg[:, rows, columns], wg[..., i, j])
    return y.reshape(*y.shape[:3], w.shape[0])


def window_params(
    x: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
) -> dict[str, int | float]:
    """Return the parameters that every NHWC window kernel has."""
    n, h, w, c = x.shape
    return {
        "batch": n,
        "height": h,
        "width": w,
        "channels": c,
        "out_height": output_size(h, kernel[0], strides[0], dilations[0], (pads[0], pads[2])),
        "out_width": output_size(w, kernel[1], strides[1], dilations[1], (pads[1], pads[3])),
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": strides[0],
        "stride_width": strides[1],
        "dilation_height": dilations[0],
        "dilation_width": dilations[1],
        "pad_top": pads[0],
        "pad_left": pads[1],
        "x_pixel_stride": c,
        **NO_ACTIVATION,
    }
