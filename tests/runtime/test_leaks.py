"""What is made and dropped again and again takes no more memory, threads or open files in the end.

A leak shows in every stretch of rounds, and what a cache or an allocator takes once does not: so the stretch that grew
least is what counts. ``TINYCOMP_LEAK_ROUNDS`` makes the stretches longer.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tinycomp
from tests.bad_input.models import one, relu, text
from tests.runtime.csource.c_sources import X, doubling, function_of, target_of, times
from tests.runtime.device.units import chain, data, unit
from tests.runtime_c.test_execution import feed, perceptron
from tests.runtime_c.test_execution import run as run_program
from tinycomp.errors import FeedError, TinycompError
from tinycomp.runtime.device.interface import FaultPolicy
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.targets.device_sim import Behaviour, SimulatedDevice

ROUNDS = int(os.environ.get("TINYCOMP_LEAK_ROUNDS", "25"))
STRETCHES = 4
SETTLING = 60
"""Objects that the interpreter's own tables may still take in a stretch; ever fewer, as it goes on."""
ROOT = Path(__file__).resolve().parents[2]


class Usage(NamedTuple):
    """What the process holds: Python objects, bytes from malloc, open files, threads."""

    objects: int
    heap: int
    files: int
    threads: int


class _MallInfo(ctypes.Structure):
    """The C library's structure: ``uordblks`` are the bytes in use, ``hblkhd`` those in mappings of their own."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    )


def usage() -> Usage:
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    info = mallinfo()
    files, tasks = (len(os.listdir(f"/proc/self/{folder}")) for folder in ("fd", "task"))  # noqa: PTH208
    return Usage(sys.getallocatedblocks(), info.uordblks + info.hblkhd, files, tasks)


def compiling(model: object) -> Callable[[int], object]:
    def use(round_: int) -> None:
        np.testing.assert_array_equal(tinycomp.compile(model, threads=2)(X - 2), np.maximum(X - 2, 0))

    return use


def specialising() -> Callable[[int], object]:
    module = tinycomp.compile(text("g (float[N,3] x) => (float[N,3] y) { a = Relu(x) y = Add(a, x) }"))
    return lambda round_: module(np.ones((1 + round_ % 40, 3), np.float32))


def loading() -> Callable[[int], object]:
    data = pickle.dumps(tinycomp.compile(relu()))
    return lambda round_: pickle.loads(data)(X)


def failing() -> Callable[[int], object]:
    unknown, module = one("Rleu", "f[2]"), tinycomp.compile(relu())

    def use(round_: int) -> None:
        with pytest.raises(TinycompError):
            tinycomp.compile(unknown)
        with pytest.raises(FeedError):
            module(np.ones(round_ % 7, np.float32))

    return use


def native() -> Callable[[int], object]:
    program = perceptron(depth=2)
    x = feed(program)
    return lambda round_: run_program(NativeProgram(program, Pool(1 + round_ % 4)), x)


def generated() -> Callable[[int], object]:
    model, target = doubling(), times()
    return lambda round_: tinycomp.compile(model, target)(X)


def on_devices() -> Callable[[int], object]:
    """Use devices that fail at times, from modules that stay and from others."""
    logging.disable(logging.WARNING)
    device = SimulatedDevice(behaviour=Behaviour(fault_rate=0.1))
    target, faults = unit("npu", "Neg", "Relu"), FaultPolicy(retries=1, fallback=True)
    kept = tinycomp.compile(chain("Neg", "Relu"), target, devices=device, faults=faults)

    def use(round_: int) -> None:
        for module in (kept, tinycomp.compile(chain("Neg", "Relu"), target, devices=device, faults=faults)):
            np.testing.assert_array_equal(module(data()), np.maximum(-data(), 0))

    return use


SCENARIOS: dict[str, Callable[[], Callable[[int], object]]] = {
    "compile": lambda: compiling(relu()),
    "specialise": specialising,
    "load": loading,
    "fail": failing,
    "native": native,
    "C source": generated,
    "devices": on_devices,
}


def growth(name: str) -> Usage:
    """Run the stretches, and return by how much the one grew that grew least."""
    use = SCENARIOS[name]()
    marks = []
    for stretch in range(STRETCHES + 1):  # the first one warms up
        for i in range(max(ROUNDS, 45 if name == "specialise" and not stretch else 0)):
            use(i)
        marks.append(usage())
    return Usage(*(min(b - a for a, b in pairwise(s)) for s in zip(*marks, strict=True)))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another allocator is preloaded")
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_grows(name):
    """In a process of its own, where no other test leaves anything behind."""
    script = f"from tests.runtime.test_leaks import growth\nprint(*growth({name!r}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    grown = Usage(*map(int, done.stdout.split()))
    # Not one object in every other round, nor the smallest piece of malloc, 32 bytes, in each; no file, no thread.
    assert grown.objects < ROUNDS / 2 + SETTLING, grown
    assert grown.heap < ROUNDS * 32, grown
    assert grown.files <= 0, grown
    assert grown.threads <= 0, grown


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize(("flags", "stays"), [((), False), (("-fopenmp",), True)])
def test_compiled_code_goes_with_its_region_unless_it_may_have_threads(flags, stays):
    """OpenMP's threads outlive the region, and would run into nothing if their library were unloaded."""
    statements = ["float *y = outputs[0]; const float *x = inputs[0];", "#pragma omp parallel for num_threads(2)"]
    source = function_of(*statements, "for (int i = 0; i < 6; ++i) y[i] = 2 * x[i];")
    target = target_of("Mul", lambda node: dataclasses.replace(source, flags=flags))
    module = tinycomp.compile(doubling(), target)
    np.testing.assert_array_equal(module(X), 2 * X)
    before = Path("/proc/self/maps").read_text().count("/tinycomp-")
    del module
    gc.collect()
    after = Path("/proc/self/maps").read_text().count("/tinycomp-")
    assert (after == before) is stays


def test_a_program_that_outlives_the_modules_of_the_interpreter_ends_in_silence(monkeypatch, capsys):
    module = tinycomp.compile(relu())
    monkeypatch.setattr("tinycomp.runtime.native.executor.lib", None)
    del module
    gc.collect()
    assert "ignored" not in capsys.readouterr().err
