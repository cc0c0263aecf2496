from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single, runner, single
from tinycomp.errors import TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import BufferSpec, Operand


@pytest.mark.parametrize("shape", [(5, 1), (3, 17), (37, 24), (64, 768), (7, 5000), (0, 4), (3, 0)], ids=str)
@pytest.mark.parametrize("rms", [0, 1])
@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_layer_norm_equals_numpy(shape, rms, affine, isa, pool, rng):
    x = rng.standard_normal(shape, np.float32) + 3
    scale, bias = (rng.standard_normal(shape[1], np.float32) if given else None for given in affine)
    params = {"rows": shape[0], "columns": shape[1], "rms": rms, "epsilon": 1e-5}
    y = run_single("layer_norm_f32", [None, x, None, scale, bias], params, ("float32", shape), isa, pool)
    wide = x.astype(np.float64)
    wide = wide if rms or not wide.size else wide - wide.mean(axis=1, keepdims=True)
    power = (wide * wide).mean(axis=1, keepdims=True) if wide.size else 0
    expected = wide / np.sqrt(power + 1e-5) * (1 if scale is None else scale) + (0 if bias is None else bias)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 1), (3, 17), (33, 768), (0, 4), (3, 0)], ids=str)
@pytest.mark.parametrize("rms", [0, 1])
@pytest.mark.parametrize("kept", [True, False])
def test_layer_norm_of_a_sum_equals_that_of_the_rows(shape, rms, kept, isa, pool, rng):
    x, residual = (rng.standard_normal(shape, np.float32) for _ in range(2))
    params = {"rows": shape[0], "columns": shape[1], "rms": rms, "epsilon": 1e-5}
    expected = run_single("layer_norm_f32", [None, x + residual, None, None, None], params, ("float32", shape), isa)
    program, feeds = single("layer_norm_f32", [None, x, residual, None, None], params, ("float32", shape))
    total = np.full(shape, 77, np.float32)
    results = [np.full(shape, 77, np.float32), *([total] if kept else [])]
    if kept:
        call = program.instructions[0]
        places = (call.operands[0], Operand("output", 1), *call.operands[2:])
        spec = BufferSpec("total", "float32", shape)
        program = replace(program, outputs=(*program.outputs, spec), instructions=(replace(call, operands=places),))
    runner(program, pool, isa).run(feeds, results)
    np.testing.assert_array_equal(results[0], expected)
    np.testing.assert_array_equal(total, x + residual if kept else np.full(shape, 77, np.float32))


# batch, pixels, channels, groups
@pytest.mark.parametrize(
    "shape", [(2, 49, 64, 32), (1, 300, 37, 37), (2, 50, 6, 1), (1, 1000, 200, 2), (3, 9, 12, 4), (1, 0, 4, 2)], ids=str
)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("planar", [0, 1])
def test_group_norm_equals_numpy(shape, affine, planar, isa, pool, rng):
    batch, pixels, channels, groups = shape
    x = rng.standard_normal(shape[:3], np.float32) + np.arange(channels, dtype=np.float32)
    scale, bias = (rng.standard_normal(channels, np.float32) if affine else None for _ in range(2))
    params = {"batch": batch, "pixels": pixels, "channels": channels, "groups": groups}
    params |= {"planar": planar, "epsilon": 1e-5}
    lying = np.ascontiguousarray(x.swapaxes(1, 2)) if planar else x
    y = run_single("group_norm_f32", [lying, scale, bias], params, ("float32", lying.shape), isa, pool)
    y = y.swapaxes(1, 2) if planar else y
    grouped = x.astype(np.float64).reshape(batch, pixels, groups, channels // groups)
    if not pixels:
        return
    expected = grouped - grouped.mean(axis=(1, 3), keepdims=True)
    expected /= np.sqrt(grouped.var(axis=(1, 3), keepdims=True) + 1e-5)
    expected = expected.reshape(x.shape) * (scale if affine else 1) + (bias if affine else 0)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-5)


def test_groups_must_divide_the_channels():
    params = {"batch": 1, "pixels": 2, "channels": 6, "groups": 4, "planar": 0, "epsilon": 1e-5}
    x = np.zeros((1, 2, 6), np.float32)
    with pytest.raises(TargetError, match="6 channels cannot be divided into 4 groups"):
        NativeProgram(single("group_norm_f32", [x, None, None], params, ("float32", x.shape))[0])


@pytest.mark.parametrize("size", [1, 4, 5, 9])
@pytest.mark.parametrize("channels", [3, 32, 51])
def test_lrn_equals_numpy(size, channels, isa, pool, rng):
    x = rng.standard_normal((100, channels), np.float32) * 3
    params = {"pixels": 100, "channels": channels, "size": size, "alpha": 0.01, "beta": 0.75, "bias": 1.5}
    y = run_single("lrn_f32", [x], params, ("float32", x.shape), isa, pool)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (before, after)))
    total = sum(squares[:, k : k + channels] for k in range(size))
    np.testing.assert_allclose(y, x / (1.5 + 0.01 / size * total) ** 0.75, rtol=1e-6)
