"""Operators that move elements, and Pad."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import allowed, dtype_of, run_ours, sample
from tinycomp.errors import ExecutionError

LOW, HIGH = -(2**63), 2**63 - 1


def i64(*values):
    return np.array(values, np.int64)


def test_transpose():
    for dtype in allowed("Transpose", 25):
        x = sample(dtype, (2, 3), 0, 0, 1)
        np.testing.assert_array_equal(run_ours("Transpose", [x])[0], x.T)
    for perm in ([0, 0, 1], [0, 1], [0, 1, 3]):
        with pytest.raises(ExecutionError, match="perm is not a permutation; expected each of 0 to 2 once"):
            run_ours("Transpose", [np.zeros((2, 3, 4))], {"perm": perm})


def test_concat_rejects():
    with pytest.raises(ExecutionError, match="the operands differ outside axis 0; expected 3; found 4"):
        run_ours("Concat", [np.zeros((2, 3)), np.zeros((2, 4))], {"axis": 0})


def test_split_rejects():
    x = sample("float32", (7, 4))
    with pytest.raises(ExecutionError, match="expected 2 sizes of 0 or more that sum to 7"):
        run_ours("Split", [x, i64(2, 4)], outputs=2)
    with pytest.raises(ExecutionError, match="the sizes do not split axis 0"):
        run_ours("Split", [x, i64(-1, 8)], outputs=2)
    with pytest.raises(ExecutionError, match="2 equal pieces of axis 0; expected a divisor of 7; found 2"):
        run_ours("Split", [x], version=13, outputs=2)


BOUNDS = [0, 1, 2, 4, 5, 9, -1, -4, -5, -6, LOW, HIGH]


@pytest.mark.parametrize("step", [1, 2, 7, -1, -2, -7, HIGH, LOW + 1])
def test_slice_of_one_axis(step):
    x = np.arange(5, dtype=np.float32)
    for start in BOUNDS:
        for end in BOUNDS:
            operands = [x, i64(start), i64(end), i64(0), i64(step)]
            got = run_ours("Slice", operands, version=13)[0]
            np.testing.assert_array_equal(got, _slow_slice(x, start, end, step), err_msg=f"{start}:{end}:{step}")


def _slow_slice(x, start, end, step):
    """Slice by the words of the operator: count from the end, clamp, then walk."""
    size = len(x)
    start, end = (v + size if v < 0 else v for v in (start, end))
    low, high = (0, size) if step > 0 else (-1, size - 1)
    position, end = min(max(start, low), high), min(max(end, low), high)
    found = []
    while position < end if step > 0 else position > end:
        found.append(x[position])
        position += step
    return np.array(found, x.dtype)


def test_slice_rejects():
    x = np.zeros((4, 5), np.float32)
    with pytest.raises(ExecutionError, match=r"a step is 0; expected steps other than 0; found \[0\]"):
        run_ours("Slice", [x, i64(0), i64(3), i64(0), i64(0)])
    with pytest.raises(ExecutionError, match="differ in length"):
        run_ours("Slice", [x, i64(0, 1), i64(3)])
    with pytest.raises(ExecutionError, match="an entry of axes is out of range"):
        run_ours("Slice", [x, i64(0), i64(3), i64(2)])


def test_tile_and_expand_reject():
    x = sample("float32", (2, 1, 3))
    with pytest.raises(ExecutionError, match="repeats has the wrong size; expected 3; found 2"):
        run_ours("Tile", [x, i64(2, 2)])
    with pytest.raises(ExecutionError, match=r"the shapes do not broadcast; .*; found \[2, 1, 3\] and \[5\]"):
        run_ours("Expand", [x, i64(5)])


def test_depth_and_space():
    x = sample("float32", (2, 8, 3, 2))
    y = sample("float32", (2, 3, 4, 6))
    for mode in ("DCR", "CRD"):
        deep = run_ours("SpaceToDepth", [y], {"blocksize": 2, "mode": mode}, 28)[0]
        back = run_ours("DepthToSpace", [deep], {"blocksize": 2, "mode": mode}, 28)[0]
        np.testing.assert_array_equal(back, y)
    with pytest.raises(ExecutionError, match="operand 0 has the wrong rank; expected 4 dimensions"):
        run_ours("DepthToSpace", [y[0]], {"blocksize": 2})
    for op, block, need in (
        ("DepthToSpace", 2, "axis 1; expected a divisor of 3"),
        ("SpaceToDepth", 5, "axis 2; expected a divisor of 4"),
    ):
        with pytest.raises(ExecutionError, match=f"the blocks do not fit {need}"):
            run_ours(op, [y], {"blocksize": block})
    for op in ("DepthToSpace", "SpaceToDepth"):
        for block in (0, -2):
            with pytest.raises(ExecutionError, match="blocksize is out of range; expected 1 or more"):
                run_ours(op, [x], {"blocksize": block})


@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_of_far_diagonals(upper):
    x = sample("float32", (2, 4, 5))
    for k, kept in ((LOW, upper), (HIGH, not upper)):
        np.testing.assert_array_equal(run_ours("Trilu", [x, np.array(k)], {"upper": upper})[0], x if kept else 0 * x)


def test_reverse_sequence_rejects():
    with pytest.raises(ExecutionError, match=r"bad sequence_lens; expected 3 lengths in \[0, 4\]"):
        run_ours("ReverseSequence", [np.zeros((4, 3)), i64(5, 1, 1)])


def test_every_dtype():
    for dtype in allowed("Pad", 25):
        x, value = sample(dtype, (2, 3), 0, 0, 1), np.array("z" if dtype == "string" else 1, dtype_of(dtype))
        got = run_ours("Pad", [x, i64(1, 0, 0, 2), value])[0]
        want = np.full((3, 5), value, x.dtype)
        want[1:, :3] = x
        np.testing.assert_array_equal(got, want)
    assert run_ours("Pad", [np.array(["a"], object), i64(1, 0)])[0].tolist() == ["", "a"]


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
def test_reflection_and_wrap_wider_than_the_input(width):
    x = sample("float32", (3,))
    for mode in ("reflect", "wrap", "edge"):
        got = run_ours("Pad", [x, i64(width, width)], {"mode": mode})[0]
        np.testing.assert_array_equal(got, np.pad(x, width, mode=mode))
    assert run_ours("Pad", [x[:1], i64(2, 1)], {"mode": "reflect"})[0].tolist() == [x[0]] * 4


def test_rejects():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ExecutionError, match=r"pads has the wrong length; expected 4 values; found \[1, 1\]"):
        run_ours("Pad", [x, i64(1, 1)])
    with pytest.raises(ExecutionError, match="negative pads remove more than axis 0 has"):
        run_ours("Pad", [x, i64(-3, 0, 0, 0)])
    with pytest.raises(ExecutionError, match="unknown mode; expected one of constant, reflect"):
        run_ours("Pad", [x, i64(1, 0, 0, 0)], {"mode": "mirror"})
    with pytest.raises(ExecutionError, match="axis 0 is empty: nothing to pad from"):
        run_ours("Pad", [np.zeros((0, 3), "f"), i64(1, 0, 0, 0)], {"mode": "edge"})
