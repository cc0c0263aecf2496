from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import allowed, check, dtype_of, run_ours, sample, versions
from tinycomp.errors import ExecutionError

PADS = [[0, 0, 0, 0], [1, 2, 0, 1], [0, 2, 2, 0], [-1, 0, 0, -2], [2, -1, -1, 1]]


def i64(values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_modes(pads, mode):
    x = sample("float32", (3, 4))
    mixed = mode != "constant" and min(pads) < 0
    for version in versions("Pad", 2):
        if mode == "wrap" and version < 19:
            continue
        operands, attrs = ([x], {"pads": pads}) if version == 2 else ([x, i64(pads)], {})
        # numpy.pad, which onnx.reference calls, takes no negative pads; onnxruntime refuses what is left over.
        if mixed and (max(pads) > 0 or version < 11):
            want = run_ours("Pad", operands, {**attrs, "mode": mode}, version)[0]
            assert want.shape == tuple(d + b + e for d, b, e in zip(x.shape, pads[:2], pads[2:], strict=True))
        else:
            check("Pad", operands, {**attrs, "mode": mode}, version)


def test_constant_values():
    x = sample("float32", (3, 4))
    check("Pad", [x], {"pads": [1, 1, 1, 1], "value": 2.5}, 2)
    check("Pad", [x, i64([1, 1, 1, 1]), np.array(2.5, "f")], {}, 13)
    check("Pad", [x, i64([1, 2]), None, i64([-1])], {}, 18)
    check("Pad", [x, i64([1, 0, 2, 1]), np.array(7, "f"), i64([1, 0])], {}, 19)


def test_every_dtype():
    for dtype in allowed("Pad", 25):
        x, value = sample(dtype, (2, 3), 0, 0, 1), np.array("z" if dtype == "string" else 1, dtype_of(dtype))
        got = run_ours("Pad", [x, i64([1, 0, 0, 2]), value])[0]
        want = np.full((3, 5), value, x.dtype)
        want[1:, :3] = x
        np.testing.assert_array_equal(got, want)
    assert run_ours("Pad", [np.array(["a"], object), i64([1, 0])])[0].tolist() == ["", "a"]


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
def test_reflection_and_wrap_wider_than_the_input(width):
    x = sample("float32", (3,))
    for mode in ("reflect", "wrap", "edge"):
        got = run_ours("Pad", [x, i64([width, width])], {"mode": mode})[0]
        np.testing.assert_array_equal(got, np.pad(x, width, mode=mode))
    assert run_ours("Pad", [x[:1], i64([2, 1])], {"mode": "reflect"})[0].tolist() == [x[0]] * 4


def test_rejects():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ExecutionError, match=r"Pad: bad pads; expected 4 values; found \[1, 1\]"):
        run_ours("Pad", [x, i64([1, 1])])
    with pytest.raises(ExecutionError, match="negative pads remove more than there is"):
        run_ours("Pad", [x, i64([-3, 0, 0, 0])])
    with pytest.raises(ExecutionError, match="Pad: unknown mode; expected constant or one of"):
        run_ours("Pad", [x, i64([1, 0, 0, 0])], {"mode": "mirror"})
    with pytest.raises(ExecutionError, match="Pad: nothing to pad from"):
        run_ours("Pad", [np.zeros((0, 3), "f"), i64([1, 0, 0, 0])], {"mode": "edge"})
