"""Modules among threads, processes and many runs: the same bits, bounded memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.models import light_models
from tinycomp.checking import random_feeds
from tinycomp.data import digits, digits_model

IMAGES = digits()[0][:16]


@pytest.fixture(scope="module")
def module():
    return tinycomp.compile(digits_model(), threads=2)


def test_eight_threads_get_the_bits_of_one(module):
    wanted = {n: module(IMAGES[:n]).tobytes() for n in range(1, 9)}
    with ThreadPoolExecutor(8) as threads:
        jobs = [(n, threads.submit(module, IMAGES[:n])) for _ in range(40) for n in wanted]
        for n, job in jobs:
            assert job.result().tobytes() == wanted[n]


def test_threads_that_meet_a_new_size_at_once():
    module = tinycomp.compile(digits_model(), threads=2)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: module(IMAGES[:5]).tobytes(), range(8)))
    assert len(set(results)) == 1


@pytest.mark.parametrize("name", ["light_shufflenet", "light_squeezenet"])
def test_the_number_of_threads_changes_no_bit(name):
    (path,) = [p for p in light_models() if p.stem == name]
    one, two, three = (tinycomp.compile(path, threads=n) for n in (1, 2, 3))
    feeds = random_feeds(one.inputs)
    wanted = [a.tobytes() for a in one.run(feeds).values()]
    assert [a.tobytes() for a in two.run(feeds).values()] == wanted
    assert [a.tobytes() for a in three.run(feeds).values()] == wanted


def resident() -> int:
    """Bytes of memory that this process holds."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read the memory from")
def test_ten_thousand_runs_leak_nothing(module):
    for _ in range(1000):
        module(IMAGES[:1])
    gc.collect()
    before = resident()
    for _ in range(10_000):
        module(IMAGES[:1])
    gc.collect()
    assert resident() - before < max(before // 100, 1 << 20)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read the memory from")
def test_compiling_again_and_again_leaks_nothing():
    for _ in range(10):
        tinycomp.compile(digits_model(), threads=2)
    gc.collect()
    before = resident()
    for _ in range(40):
        tinycomp.compile(digits_model(), threads=2)
    gc.collect()
    assert resident() - before < 8 << 20


def run_and_send(module, connection) -> None:
    connection.send(module(IMAGES))
    connection.close()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes(module, method):
    """Spawn pickles the module; a fork inherits it, with its pool's threads gone."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    wanted = module(IMAGES)
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_and_send, args=(module, sender))
    process.start()
    sender.close()
    assert receiver.poll(60), "the child does not answer"
    np.testing.assert_array_equal(receiver.recv(), wanted)
    process.join(60)
    assert process.exitcode == 0
    np.testing.assert_array_equal(module(IMAGES), wanted)


def test_a_fork_while_other_threads_run(module):
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    wanted = module(IMAGES).tobytes()
    with ThreadPoolExecutor(2) as threads:
        busy = [threads.submit(lambda: [module(IMAGES) for _ in range(200)]) for _ in range(2)]
        child = os.fork()
        if child == 0:
            os._exit(0 if module(IMAGES).tobytes() == wanted else 1)
        _, status = os.waitpid(child, 0)
        for job in busy:
            job.result()
    assert os.waitstatus_to_exitcode(status) == 0


SHUTDOWN = """
import threading, tinycomp
from tinycomp.data import digits, digits_model
module, images = tinycomp.compile(digits_model(), threads=2), digits()[0]
def work():
    while True:
        module(images)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
module(images)
"""


def test_the_interpreter_may_end_while_modules_run():
    import subprocess

    subprocess.run([sys.executable, "-c", SHUTDOWN], check=True, timeout=60)
