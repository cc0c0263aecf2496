"""Forked children while other threads of the parent run, pack and compile: none waits for a lock that nobody opens."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import tinycomp
from tinycomp.memory.interpreter import importing
from tinycomp.memory.locks import Lock
from tinycomp.runtime.regions import BoundedCache

pytestmark = pytest.mark.filterwarnings("ignore")
CHILDREN = 20


def ends_well(act: Callable[[], object], seconds: int = 30) -> bool:
    """Tell whether a forked child does something and ends, and is not killed because it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def model(rows: int | str = "rows") -> tinycomp.Graph:
    graph = tinycomp.Graph("forked", opsets={"": 17})
    x = graph.add_input("x", tinycomp.ir.TensorType("float32", (rows, 64)))
    for number in range(4):
        weights = graph.add_const(np.full((64, 64), 0.01, np.float32), f"w{number}")
        x = graph.add("Relu", [graph.add("MatMul", [x, weights]).output]).output
    graph.set_outputs([x], ["y"])
    return graph


@contextmanager
def busy(*acts: Callable[[], object]) -> Iterator[None]:
    """Do things over and over in threads of their own."""
    done = threading.Event()

    def repeat(act: Callable[[], object]) -> None:
        while not done.is_set():
            act()

    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.long
def test_children_run_and_compile_while_the_parent_does():
    module, rng = tinycomp.compile(model(), threads=2), np.random.default_rng(0)
    per_size = tinycomp.compile(model(), threads=2, specialize=True)

    def run(which: tinycomp.Module) -> None:
        rows = int(rng.integers(1, 200))
        assert which(np.ones((rows, 64), np.float32)).shape == (rows, 64)

    def everything() -> None:
        for _ in range(3):
            run(module)
            run(per_size)
        assert tinycomp.compile(model(5), threads=1)(np.ones((5, 64), np.float32)).shape == (5, 64)

    with busy(lambda: run(module), lambda: run(per_size), lambda: tinycomp.compile(model(7), threads=2)):
        assert all(ends_well(everything) for _ in range(CHILDREN))


def test_a_child_makes_what_the_parent_is_making():
    kept, begun, go_on = BoundedCache[str, int](4), threading.Event(), threading.Event()

    def make() -> int:
        begun.set()
        go_on.wait()
        return 1

    thread = threading.Thread(target=kept.get, args=("key", make))
    thread.start()
    begun.wait()
    try:
        assert ends_well(lambda: kept.get("key", lambda: 2), 5)
    finally:
        go_on.set()
        thread.join()
    assert kept.get("key", lambda: 3) == 1


def test_a_lock_may_be_held_across_a_fork():
    lock = Lock()

    def use() -> None:
        with lock:
            pass

    with lock:
        assert ends_well(use, 5)
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_a_pause_of_the_collector_ends_in_a_child():
    began, end = threading.Event(), threading.Event()

    def pause() -> None:
        with importing():
            began.set()
            end.wait()

    thread = threading.Thread(target=pause)
    thread.start()
    began.wait()

    def check() -> None:
        assert gc.isenabled()
        with importing():
            assert not gc.isenabled()
        assert gc.isenabled()

    try:
        assert not gc.isenabled()
        assert ends_well(check, 5)
    finally:
        end.set()
        thread.join()
    assert gc.isenabled()


def test_arrays_of_a_model_may_be_changed_afterwards():
    weights = np.eye(64, dtype=np.float32)
    graph = tinycomp.Graph("constants", opsets={"": 17})
    x = graph.add_input("x", tinycomp.ir.TensorType("float32", (2, 64)))
    product = graph.add("MatMul", [x, graph.add_const(weights, "w")]).output
    graph.set_outputs([graph.add("Add", [product, graph.add_const(weights[:1].copy(), "b")]).output], ["y"])
    module, data = tinycomp.compile(graph), np.ones((2, 64), np.float32)
    before = module(data)
    weights[:] = 7
    np.testing.assert_array_equal(module(data), before)
    host = tinycomp.compile(graph, [])
    expected = host(data)
    weights[:] = 9
    np.testing.assert_array_equal(host(data), expected)
