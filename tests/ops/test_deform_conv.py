"""Deformable convolution against onnx.reference and the plain convolution."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ModelError

CASES = {
    "plain": ((2, 4, 6, 7), (4, 4, 3, 2), (4, 6), {}),
    "groups": ((2, 4, 6, 7), (6, 2, 3, 2), (4, 6), {"group": 2}),
    "offset_groups": ((2, 4, 6, 7), (6, 2, 3, 2), (4, 6), {"group": 2, "offset_group": 4}),
    "window": (
        (1, 2, 7, 8), (3, 2, 3, 3), (4, 3), {"strides": [2, 2], "pads": [1, 0, 1, 1], "dilations": [1, 2]},
    ),
}  # fmt: skip


def operands(name, spread):
    x_shape, w_shape, output, attrs = CASES[name]
    taps = w_shape[2] * w_shape[3] * attrs.get("offset_group", 1)
    x, w = sample("float32", x_shape), sample("float32", w_shape, 1)
    offset = sample("float32", (x_shape[0], 2 * taps, *output), 2, -spread, spread)
    return [x, w, offset, sample("float32", w_shape[:1], 3), sample("float32", (x_shape[0], taps, *output), 4, 0, 1)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [3, 4, 5])
def test_deform_conv(name, count):
    check("DeformConv", operands(name, 2.5)[:count], CASES[name][3], 22, against=("reference",), atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_without_offsets_it_is_a_convolution(name):
    x, w, offset, bias, mask = operands(name, 0)
    attrs = dict(CASES[name][3])
    (got,) = run_ours("DeformConv", [x, w, offset, bias, np.ones_like(mask)], attrs)
    attrs.pop("offset_group", None)
    np.testing.assert_allclose(got, run_ours("Conv", [x, w, bias], attrs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype):
    inputs = [x.astype(sample(dtype, ()).dtype) for x in operands("plain", 1)]
    (got,) = run_ours("DeformConv", inputs)
    (want,) = run_ours("DeformConv", [x.astype(np.float32) for x in inputs])
    assert got.dtype == inputs[0].dtype
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=1e-2, atol=1e-2)


def test_errors():
    x, w, offset, bias, mask = operands("plain", 1)
    with pytest.raises(ModelError, match=r"DeformConv: offset has the wrong shape; expected \(2, 12, 4, 6\)"):
        run_ours("DeformConv", [x, w, offset[:, :10]])
    with pytest.raises(ModelError, match="DeformConv: mask has the wrong shape"):
        run_ours("DeformConv", [x, w, offset, bias, mask[:1]])
    with pytest.raises(ModelError, match="offset_group does not divide the channels; expected a positive divisor of 4"):
        run_ours("DeformConv", [x, w, offset], {"offset_group": 3})
