"""Watching values go by in constant memory: their range, and how often which of them occurs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

BINS = 4096
"""The most bins that a histogram has; a range takes at least half of them, minus one."""
_LEAST_EXPONENT = -140


class Extremes:
    """The smallest and largest number seen; 0 counts as seen, because every range must represent it."""

    def __init__(self) -> None:
        self.low = 0.0
        self.high = 0.0
        self.count = 0

    def add(self, array: np.ndarray) -> None:
        """Look at the numbers of a float32 array."""
        if array.size:
            # Unlike Python's own, these hand NaN on.
            self.low = float(np.minimum(self.low, array.min()))
            self.high = float(np.maximum(self.high, array.max()))
            self.count += array.size

    @property
    def finite(self) -> bool:
        """Whether no number was infinite or NaN."""
        return math.isfinite(self.low) and math.isfinite(self.high)


class Histogram(Extremes):
    """How often numbers occur, in bins that grow with the range.

    A bin is as wide as a power of two, and begins at a multiple of it. Where the range outgrows :data:`BINS`,
    neighbours are joined, which loses no count: the result does not depend on the order in which the numbers come, nor
    on how they are divided into arrays. Zeros are counted apart; they are what rounding never changes.

    >>> histogram = Histogram()
    >>> histogram.add(np.float32([0, 1, 2, 3]))
    >>> histogram.add(np.float32([1000]))
    >>> histogram.counts.sum(), histogram.zeros, histogram.high
    (np.int64(4), 1, 1000.0)
    """

    def __init__(self) -> None:
        super().__init__()
        self.zeros = 0
        self._exponent = _LEAST_EXPONENT
        self._first = 0
        self._counts: NDArray[np.int64] = np.zeros(1, np.int64)

    def add(self, array: np.ndarray) -> None:
        """Count the numbers of a float32 array."""
        super().add(array)
        if not array.size or not self.finite:
            return
        self._grow()
        flat = array.reshape(-1)
        nonzero = flat[flat != 0]
        self.zeros += flat.size - nonzero.size
        places = np.floor(np.ldexp(nonzero.astype(np.float64), -self._exponent)).astype(np.int64) - self._first
        self._counts += np.bincount(places, minlength=self._counts.size)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often numbers other than 0 occur, by bin."""
        return self._counts

    @property
    def width(self) -> float:
        """How wide a bin is."""
        return math.ldexp(1.0, self._exponent)

    @property
    def edges(self) -> NDArray[np.float64]:
        """Where the bins begin, and where the last one ends."""
        return np.ldexp(np.arange(self._first, self._first + self._counts.size + 1).astype(np.float64), self._exponent)

    @property
    def centres(self) -> NDArray[np.float64]:
        """The middle of every bin."""
        edges = self.edges
        return (edges[1:] + edges[:-1]) / 2

    def _grow(self, doublings: int = 0) -> None:
        """Make bins for the whole range, wider ones if there would be too many or if it is asked for."""
        exponent = max(self._exponent, self._needed()) + doublings
        first, last = (math.floor(math.ldexp(end, -exponent)) for end in (self.low, self.high))
        counts = np.zeros(last - first + 1, np.int64)
        held = np.flatnonzero(self._counts)
        np.add.at(counts, ((held + self._first) >> (exponent - self._exponent)) - first, self._counts[held])
        self._exponent, self._first, self._counts = exponent, first, counts

    def coarse(self, doublings: int) -> Histogram:
        """Return the histogram with bins that have been doubled in width so many times."""
        copy = Histogram()
        copy.low, copy.high, copy.count, copy.zeros = self.low, self.high, self.count, self.zeros
        copy._exponent, copy._first, copy._counts = self._exponent, self._first, self._counts
        copy._grow(doublings)
        return copy

    def _needed(self) -> int:
        """Return the least exponent with which the range has no more than :data:`BINS` bins."""
        exponent = _LEAST_EXPONENT
        if self.high > self.low:
            exponent = max(exponent, math.frexp((self.high - self.low) / BINS)[1] - 1)
        while math.floor(math.ldexp(self.high, -exponent)) - math.floor(math.ldexp(self.low, -exponent)) >= BINS:
            exponent += 1
        return exponent
