"""A small cache that many threads share: what was used longest ago goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the ``limit`` values used last.

    Args:
        limit: The most values kept; at least 1.
    """

    def __init__(self, limit: int) -> None:
        assert limit >= 1, limit
        self._limit = limit
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value for ``key``, made on first use; two threads never make the same one."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            value = self._values[key] = make()
            if len(self._values) > self._limit:
                self._values.popitem(last=False)
            return value

    def put(self, key: K, value: V) -> None:
        """Store a value that was made elsewhere."""
        self.get(key, lambda: value)

    def items(self) -> list[tuple[K, V]]:
        """Return what is cached, used longest ago first."""
        with self._lock:
            return list(self._values.items())

    def __len__(self) -> int:
        return len(self._values)
