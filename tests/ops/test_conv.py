"""Convolutions against onnxruntime and onnx.reference, deformable ones against onnx.reference and the plain one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError
from tinycomp.ops import OPS
from tinycomp.symbolic import symbol


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("version", [1, 11, 22])
def test_conv_dtypes(dtype, version):
    inputs = [sample(dtype, (2, 4, 6, 6)), sample(dtype, (4, 2, 3, 3), 1, -1, 1), sample(dtype, (4,), 2)]
    exact = run_ours("Conv", [x.astype(np.float64) for x in inputs], {"group": 2}, version)[0]
    (got,) = run_ours("Conv", inputs, {"group": 2}, version)
    assert got.dtype == inputs[0].dtype
    tolerance = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 0}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


def test_conv_large_batch_is_unfolded_in_blocks(monkeypatch):
    x, w = sample("float32", (7, 3, 6, 6)), sample("float32", (4, 3, 3, 3), 1)
    (whole,) = run_ours("Conv", [x, w])
    monkeypatch.setattr("tinycomp.ops.conv._UNFOLD_BYTES", 1)
    np.testing.assert_allclose(run_ours("Conv", [x, w])[0], whole, rtol=1e-5, atol=1e-5)


def test_long_integer_sums_are_exact():
    x = np.full((1, 3000, 1), 255, np.uint8)
    w = np.full((1, 3000, 1), 255, np.uint8)
    w[0, 0, 0] = 254
    assert run_ours("ConvInteger", [x, w], {}, 10)[0].item() == 3000 * 255 * 255 - 255


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attrs", "text"),
    [
        ((1, 4, 5, 5), (4, 4, 3, 3), {"group": 3}, "group does not divide the input channels; .* of 4; found 3"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"group": 2}, "group does not divide the output channels; .* of 3; found 2"),
        ((1, 4, 5, 5), (4, 4, 3, 3), {"group": 0}, "group is out of range; expected 1 or more; found 0"),
        ((1, 4, 5, 5), (4, 3, 3, 3), {}, "channels do not fit axis 1 of the weight; expected 3; found 4"),
        ((1, 4, 5, 5), (4, 4, 3), {}, r"the weight has the wrong rank; .* 4 dimensions; found float32\[4, 4, 3\]"),
        ((1, 4), (4, 4), {}, "the input has too few dimensions; expected at least 3"),
        ((1, 4, 5, 5), (4, 4, 3, 3), {"kernel_shape": [5, 5]}, "kernel_shape does not fit the weight; .* 5; found 3"),
        ((1, 4, 5, 5), (4, 4, 3, 3), {"strides": [0, 1]}, r"attribute strides is out of range"),
        ((1, 4, 2, 5), (4, 4, 3, 3), {}, "the output would be empty"),
    ],
)
def test_conv_errors(x_shape, w_shape, attrs, text):
    with pytest.raises(ExecutionError, match=text):
        run_ours("Conv", [sample("float32", x_shape), sample("float32", w_shape)], attrs)


def test_bias_and_group_errors():
    x, w = sample("float32", (1, 4, 5, 5)), sample("float32", (4, 4, 3, 3))
    with pytest.raises(ExecutionError, match="the bias has the wrong size; expected 4; found 3"):
        run_ours("Conv", [x, w, sample("float32", (3,))])
    with pytest.raises(ExecutionError, match="group does not divide the input channels"):
        run_ours("ConvTranspose", [x, w], {"group": 3})
    with pytest.raises(ExecutionError, match="the output would be empty"):
        run_ours("ConvTranspose", [x, w], {"pads": [4, 4, 4, 4]})


def node(op, *shapes, output):
    value = lambda shape: SimpleNamespace(type=SimpleNamespace(shape=shape))  # noqa: E731
    return SimpleNamespace(op=op, inputs=[value(s) for s in shapes], outputs=[value(output)])


@pytest.mark.parametrize(
    ("op", "shapes", "output", "macs"),
    [
        ("Conv", [(1, 8, 10, 10), (16, 8, 3, 3)], (1, 16, 8, 8), 16 * 64 * 8 * 9),
        ("Conv", [("N", 8, 10, 10), (8, 1, 3, 3)], ("N", 8, 8, 8), symbol("N") * 8 * 64 * 9),
        ("QLinearConv", [(1, 4, 5), (), (), (6, 4, 3)], (1, 6, 3), 6 * 3 * 4 * 3),
        ("ConvTranspose", [(1, 4, 5), (4, 6, 3)], (1, 6, 7), 4 * 5 * 6 * 3),
    ],
)
def test_macs(op, shapes, output, macs):
    assert OPS.find(op).macs(node(op, *shapes, output=output)) == macs


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


@pytest.mark.rows(4)
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
    with pytest.raises(ExecutionError, match="offset does not fit the taps; expected 12; found 10"):
        run_ours("DeformConv", [x, w, offset[:, :10]])
    with pytest.raises(ExecutionError, match="mask does not fit the result; expected 2; found 1"):
        run_ours("DeformConv", [x, w, offset, bias, mask[:1]])
    with pytest.raises(ExecutionError, match="offset_group does not divide the channels; expected a divisor of 4"):
        run_ours("DeformConv", [x, w, offset], {"offset_group": 3})
