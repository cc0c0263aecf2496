"""Settings of the interpreter while a model is compiled: nested, side by side, and where somebody else wants others."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

import tinycomp
from tinycomp.data import digits_model
from tinycomp.ir.graph import Graph
from tinycomp.memory.interpreter import SWITCH_INTERVAL, compiling, importing
from tinycomp.passes.base import Pass


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave the collector on behind every test, and the interval as it was."""
    interval = sys.getswitchinterval()
    yield
    gc.enable()
    sys.setswitchinterval(interval)


def test_the_collector_is_off_inside_and_on_again_behind() -> None:
    with importing():
        assert not gc.isenabled()
        with importing():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_pauses_may_end_in_any_order() -> None:
    first, second = importing(), importing()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_ends_a_pause() -> None:
    with pytest.raises(KeyError), importing():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with importing():
        pass
    assert not gc.isenabled()


def test_other_threads_go_on_soon_while_a_model_is_compiled() -> None:
    before = sys.getswitchinterval()
    first, second = compiling(), compiling()
    first.__enter__()
    second.__enter__()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL, 0.02)
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL, 0.02)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before
    assert gc.isenabled()


@pytest.mark.parametrize("interval", [0.00005, 0.1])
def test_an_interval_that_somebody_else_sets_stays(interval: float) -> None:
    sys.setswitchinterval(0.00001)
    with compiling():
        assert sys.getswitchinterval() == pytest.approx(0.00001, 0.2)
        sys.setswitchinterval(interval)
    assert sys.getswitchinterval() == pytest.approx(interval, 0.05)


def test_a_model_is_compiled_so() -> None:
    seen: list[tuple[float, bool]] = []

    class Look(Pass):
        name = "look"

        def run(self, graph: Graph) -> bool:
            seen.append((sys.getswitchinterval(), gc.isenabled()))
            return False

    tinycomp.compile(digits_model(), passes=[Look()])
    assert seen == [(pytest.approx(SWITCH_INTERVAL, 0.02), False)]
    assert sys.getswitchinterval() > 2 * SWITCH_INTERVAL
    assert gc.isenabled()


def test_garbage_is_not_taken_for_old_where_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a full collection would find it then, and none may come for a long time: memory grew with every compile."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)  # whatever runs the tests may have frozen something
    gc.collect()
    with importing():
        young = [[] for _ in range(1000)]
        old = len(gc.get_objects(generation=2))
    assert len(gc.get_objects(generation=2)) < old + len(young)
