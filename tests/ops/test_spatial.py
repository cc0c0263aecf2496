"""Window geometry against brute force, and its error messages."""

from __future__ import annotations

import numpy as np
import pytest

from tinycomp.errors import ModelError
from tinycomp.ops.spatial import make_window, pad_for, sliding_view


def windows_by_brute_force(size, kernel, stride, dilation, before, after, ceil_mode):
    """Count windows by sliding one until it no longer fits (or, with ceil_mode, no longer starts inside)."""
    extent, count = (kernel - 1) * dilation + 1, 0
    while True:
        start = count * stride
        fits = start + extent <= size + before + after
        # With ceil_mode one window may overhang: it must start before the one that would fit entirely past the end.
        overhangs = ceil_mode and start < size + before and start - stride + extent < size + before + after
        if not (fits or overhangs):
            return count
        count += 1


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_output_sizes(kernel, stride, dilation, ceil_mode):
    for size in range(1, 12):
        for before in range(kernel):
            for after in range(kernel):
                want = windows_by_brute_force(size, kernel, stride, dilation, before, after, ceil_mode)
                arguments = {"strides": [stride], "dilations": [dilation], "pads": [before, after]}
                if want == 0:
                    with pytest.raises(ModelError, match="output would be empty"):
                        make_window("Op", [size], [kernel], **arguments, ceil_mode=ceil_mode)
                else:
                    assert make_window("Op", [size], [kernel], **arguments, ceil_mode=ceil_mode).output == (want,)


@pytest.mark.parametrize(
    ("auto_pad", "before", "after"), [("SAME_UPPER", (0, 1), (1, 2)), ("SAME_LOWER", (1, 2), (0, 1))]
)
def test_same_pads(auto_pad, before, after):
    window = make_window("Op", [6, 8], [3, 4], strides=[2, 1], auto_pad=auto_pad)
    assert (window.before, window.after, window.output) == (before, after, (3, 8))


def test_valid_ignores_pads():
    window = make_window("Op", [6], [3], pads=[5, 5], auto_pad="VALID")
    assert (window.before, window.after, window.output) == ((0,), (0,), (4,))


def test_views_agree_with_taps():
    x = np.arange(2 * 3 * 7 * 6.0).reshape(2, 3, 7, 6)
    window = make_window("Op", [7, 6], [3, 2], strides=[2, 3], dilations=[2, 1], pads=[1, 0, 2, 1], ceil_mode=True)
    padded = pad_for(x, window, -1)
    view = sliding_view(padded, window)
    for tap in window.taps():
        np.testing.assert_array_equal(view[(slice(None), slice(None), *tap)], padded[window.tap_index(tap)])
    np.testing.assert_array_equal(padded[window.interior], x)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"strides": [0, 1]}, r"Op: attribute strides is out of range; expected entries >= 1; found \[0, 1\]"),
        ({"strides": [1]}, r"Op: attribute strides has the wrong length; expected 2 entries; found \[1\]"),
        ({"dilations": [1, -1]}, r"Op: attribute dilations is out of range; expected entries >= 1; found \[1, -1\]"),
        ({"pads": [0, 0, 0]}, r"Op: attribute pads has the wrong length; expected 4 entries; found \[0, 0, 0\]"),
        ({"pads": [0, 0, 0, -1]}, "Op: attribute pads is out of range; expected entries >= 0"),
        ({"auto_pad": "SAME"}, "Op: unknown auto_pad; expected one of .*; found 'SAME'"),
        (
            {"dilations": [4, 1]},
            r"Op: the output would be empty; expected every spatial output size > 0; found \[-3, 3\]",
        ),
    ],
)
def test_errors(arguments, text):
    with pytest.raises(ModelError, match=text):
        make_window("Op", [5, 5], [3, 3], **arguments)


def test_kernel_must_be_positive():
    with pytest.raises(ModelError, match="attribute kernel_shape is out of range; expected entries >= 1; found"):
        make_window("Op", [5], [0])
