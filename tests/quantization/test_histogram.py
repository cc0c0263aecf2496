"""Observers: whatever the order and the division into arrays, they have seen the same, and they lose nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinycomp.quantization.calibration import BINS, Extremes, Histogram

FLOATS = st.floats(-(2.0**30), 2.0**30, width=32)
ARRAYS = hnp.arrays(np.float32, st.integers(0, 40), elements=FLOATS)
WIDE = st.integers(-30, 30).flatmap(
    lambda power: hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-1, 1, width=32)).map(
        lambda a: np.ldexp(a, power).astype(np.float32)
    )
)


def seen(arrays: list[np.ndarray]) -> Histogram:
    histogram = Histogram()
    for array in arrays:
        histogram.add(array)
    return histogram


@given(st.lists(ARRAYS, max_size=6))
def test_extremes(arrays):
    extremes = Extremes()
    for array in arrays:
        extremes.add(array)
    everything = np.concatenate([np.zeros(1, np.float32), *arrays])
    assert (extremes.low, extremes.high) == (everything.min(), everything.max())
    assert extremes.count == everything.size - 1


@given(st.lists(WIDE, min_size=1, max_size=6), st.randoms())
def test_order_and_division_do_not_matter(arrays, random):
    whole = seen([np.concatenate(arrays)])
    random.shuffle(arrays)
    parts = seen([piece for array in arrays for piece in np.array_split(array, 3)])
    np.testing.assert_array_equal(parts.counts, whole.counts)
    np.testing.assert_array_equal(parts.edges, whole.edges)
    assert parts.zeros == whole.zeros


@given(st.lists(WIDE, min_size=1, max_size=6))
def test_nothing_is_lost_and_bins_hold_what_they_should(arrays):
    histogram = seen(arrays)
    everything = np.concatenate(arrays).astype(np.float64)
    nonzero = everything[everything != 0]
    assert histogram.counts.sum() + histogram.zeros == everything.size
    expected, _ = np.histogram(nonzero, np.append(histogram.edges[:-1], np.inf))
    np.testing.assert_array_equal(histogram.counts, expected)
    assert histogram.counts.size <= BINS


@settings(max_examples=30)
@given(WIDE.filter(lambda a: np.ptp(a) > 0 and np.abs(a).max() > 1e-20))
def test_memory_is_bounded_and_used(array):
    histogram = seen([array])
    assert BINS // 2 - 1 <= histogram.counts.size <= BINS
    for power in range(60):
        histogram.add(np.ldexp(np.float32([1, -1]), power).astype(np.float32))
    assert histogram.counts.size <= BINS
    assert histogram.counts.sum() + histogram.zeros == array.size + 120


@given(WIDE, st.integers(0, 6))
def test_coarse_bins_hold_the_same(array, doublings):
    fine = seen([array])
    coarse = fine.coarse(doublings)
    assert coarse.width == fine.width * 2**doublings
    assert (coarse.counts.sum(), coarse.zeros) == (fine.counts.sum(), fine.zeros)
    assert coarse.edges[0] <= fine.edges[0]
    assert fine.edges[-1] <= coarse.edges[-1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_noticed(bad):
    for observer in (Extremes(), Histogram()):
        observer.add(np.float32([1, bad]))
        assert not observer.finite


def test_zeros_alone():
    histogram = seen([np.zeros(5, np.float32)])
    assert (histogram.zeros, histogram.counts.sum(), histogram.low, histogram.high) == (5, 0, 0, 0)
