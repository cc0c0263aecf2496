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
        self._making: dict[K, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value for ``key``, made on first use.

        Two threads never make the same value; while one is made, other keys are served.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = make()
            finally:
                with self._lock:
                    self._making.pop(key, None)
            with self._lock:
                self._values[key] = value
                if len(self._values) > self._limit:
                    self._values.popitem(last=False)
            return value

    def items(self) -> list[tuple[K, V]]:
        """Return what is cached, used longest ago first."""
        with self._lock:
            return list(self._values.items())

    def __len__(self) -> int:
        return len(self._values)
