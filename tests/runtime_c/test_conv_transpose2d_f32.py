from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, Weight, run_single

# x (NHWC), out channels, kernel, strides, dilations, pads (top, left), crop at bottom and right, groups
CASES = {
    "2x2 stride 2": ((1, 7, 9, 32), 16, (2, 2), (2, 2), (1, 1), (0, 0), 0, 1),
    "3x3 stride 2, pads": ((2, 5, 6, 19), 37, (3, 3), (2, 2), (1, 1), (1, 1), 0, 1),
    "4x4 stride 2, pads": ((1, 6, 6, 20), 70, (4, 4), (2, 2), (1, 1), (1, 1), 1, 1),
    "stride 1": ((1, 6, 5, 8), 9, (3, 3), (1, 1), (1, 1), (1, 1), 1, 1),
    "dilated": ((1, 6, 5, 8), 9, (3, 2), (2, 3), (3, 2), (2, 1), 1, 1),
    "dilation shares a factor with the stride": ((1, 6, 5, 8), 9, (3, 3), (4, 2), (2, 4), (0, 0), 0, 1),
    "gaps": ((1, 3, 4, 5), 6, (1, 2), (3, 4), (1, 1), (0, 0), 0, 1),
    "groups": ((1, 5, 5, 12), 8, (3, 3), (2, 2), (1, 1), (1, 0), 0, 4),
    "depthwise": ((1, 5, 5, 6), 6, (4, 4), (2, 2), (1, 1), (1, 1), 1, 6),
    "wide": ((1, 2, 130, 4), 3, (2, 3), (1, 2), (1, 1), (0, 1), 0, 1),
    "deep": ((1, 3, 3, 700), 5, (2, 2), (1, 1), (1, 1), (0, 0), 0, 1),
    "larger output": ((1, 3, 3, 4), 5, (2, 2), (2, 2), (1, 1), (0, 0), -1, 1),
}


def conv_transpose(x, w, strides, dilations, groups):
    """Scatter every input pixel, in double precision and without pads."""
    n, height, width, channels = x.shape
    per_group = w.shape[1]
    out_h = (height - 1) * strides[0] + (w.shape[2] - 1) * dilations[0] + 1
    out_w = (width - 1) * strides[1] + (w.shape[3] - 1) * dilations[1] + 1
    y = np.zeros((n, out_h, out_w, groups, per_group))
    xg = x.reshape(n, height, width, groups, channels // groups).astype(np.float64)
    wg = w.reshape(groups, channels // groups, *w.shape[1:]).astype(np.float64)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows = slice(i * dilations[0], i * dilations[0] + (height - 1) * strides[0] + 1, strides[0])
            columns = slice(j * dilations[1], j * dilations[1] + (width - 1) * strides[1] + 1, strides[1])
            y[:, rows, columns] += np.einsum("nhwgc,gcm->nhwgm", xg, wg[..., i, j])
    return y.reshape(n, out_h, out_w, groups * per_group)


@pytest.mark.parametrize("case", CASES)
def test_conv_transpose_equals_numpy(case, isa, pool, rng):
    shape, out_channels, kernel, strides, dilations, pads, crop, groups = CASES[case]
    x = rng.standard_normal(shape, np.float32)
    w = rng.standard_normal((shape[3], out_channels // groups, *kernel), np.float32)
    bias = rng.standard_normal(out_channels, np.float32)
    full = conv_transpose(x, w, strides, dilations, groups)
    full = np.pad(full, ((0, 0), (0, max(-crop, 0)), (0, max(-crop, 0)), (0, 0)))
    expected = full[:, pads[0] : full.shape[1] - max(crop, 0), pads[1] : full.shape[2] - max(crop, 0)] + bias
    names = ("batch", "height", "width", "channels", "out_height", "out_width", "out_channels")
    params = dict(zip(names, (*shape, *expected.shape[1:]), strict=True))
    params |= {"kernel_height": kernel[0], "kernel_width": kernel[1], "groups": groups}
    params |= {"stride_height": strides[0], "stride_width": strides[1]}
    params |= {"dilation_height": dilations[0], "dilation_width": dilations[1]}
    params |= {"pad_top": pads[0], "pad_left": pads[1]}
    params |= {"x_pixel_stride": shape[3], "y_pixel_stride": out_channels, **NO_ACTIVATION, "activation": 1}
    operands = [x, Weight(w), Weight(bias)]
    y = run_single("conv_transpose2d_f32", operands, params, ("float32", expected.shape), isa, pool)
    np.testing.assert_allclose(y, np.maximum(expected, 0), rtol=1e-5, atol=5e-5)
