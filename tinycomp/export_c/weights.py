"""Packed weights and constants of an exported project, as its processor has them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from tinycomp.export_c.processors import Processor
from tinycomp.records import dataclass, field

Numbers = tuple[int, int, int, int, int]
"""Numbers in a state: where they begin, how many of how many bytes, how often, and how many bytes apart."""


@dataclass
class Weights:
    """Bytes that never change, equal ones once.

    Attributes:
        processor: What they are for.
        data: All of them.
    """

    processor: Processor
    data: bytearray = field(default_factory=bytearray)
    _known: dict[bytes, int] = field(default_factory=dict)

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        """Add an array, and return where it lies."""
        data = np.ascontiguousarray(array)
        return self._add(self._ordered(data.tobytes(), [(0, data.size, data.itemsize, 1, 0)]))

    def state(self, data: bytes, numbers: Iterable[Numbers]) -> int:
        """Add what a kernel has packed, given the numbers of several bytes in it, and return where it lies."""
        return self._add(self._ordered(data, numbers))

    def _ordered(self, data: bytes, numbers: Iterable[Numbers]) -> bytes:
        """Return bytes as the processor has them: those of each number the other way round if it differs from here."""
        if self.processor.big_endian == (sys.byteorder == "big"):
            return data
        ordered = np.frombuffer(data, np.uint8).copy()
        for offset, count, size, times, step in numbers:
            for begin in range(offset, offset + times * step, step) if times > 1 else [offset] * times:
                part = ordered[begin : begin + count * size].reshape(count, size)
                part[:] = part[:, ::-1].copy()
        return ordered.tobytes()

    def _add(self, data: bytes) -> int:
        alignment = self.processor.alignment
        key = hashlib.sha256(data).digest()
        if key not in self._known:
            self.data += bytes(-len(self.data) % alignment)
            self._known[key] = len(self.data)
            self.data += data
        return self._known[key]
