"""The bounded cache: least recently used first out, one maker per value."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tinycomp.runtime.regions import BoundedCache


def test_what_was_used_longest_ago_goes_first():
    cache = BoundedCache(2)
    for key in "abacad":
        cache.get(key, key.upper)
    assert cache.items() == [("a", "A"), ("d", "D")]
    assert len(cache) == 2


def test_a_value_is_made_once():
    cache, made = BoundedCache(4), []

    def make():
        time.sleep(0.02)
        made.append(threading.get_ident())
        return object()

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: cache.get("k", make), range(16)))
    assert len(made) == 1
    assert len(set(map(id, results))) == 1


def test_a_failure_is_not_kept():
    cache = BoundedCache(1)
    with pytest.raises(ZeroDivisionError):
        cache.get("k", lambda: 1 // 0)
    assert cache.get("k", lambda: 7) == 7


def test_other_keys_are_served_while_one_is_made():
    cache, started, finish = BoundedCache(2), threading.Event(), threading.Event()

    def slow():
        started.set()
        assert finish.wait(10)
        return "slow"

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(cache.get, "a", slow)
        assert started.wait(10)
        assert cache.get("b", lambda: "quick") == "quick"
        finish.set()
        assert waiting.result() == "slow"
