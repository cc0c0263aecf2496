"""Pauses of Python's search for cyclic garbage: nested, side by side, and where it was off already."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tinycomp.memory.gc_pause import gc_paused


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """Leave the collector on behind every test."""
    yield
    gc.enable()


def test_the_collector_is_off_inside_and_on_again_behind() -> None:
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_pauses_may_end_in_any_order() -> None:
    first, second = gc_paused(), gc_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_ends_a_pause() -> None:
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()
