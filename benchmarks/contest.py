"""Timing several engines against each other: a process for each, and short blocks in turn.

Engines with spinning worker threads slow their neighbours down, so that no two may be at work at once: each engine has
a process of its own that sleeps until it is asked for a block of runs, and a pause follows every block. The blocks of
all engines are interleaved, so that a slow minute of the machine hits everybody alike.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import ENGINES, Feeds, prepare

MAX_RUNS = 20_000
"""Runs of one block, however short they are."""


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: Blocks per engine.
        block: Seconds that one block lasts at least.
        pause: Seconds of silence behind every block.
    """

    rounds: int = 8
    block: float = 0.25
    pause: float = 0.1


@dataclass
class Result:
    """What one engine did.

    Attributes:
        engine: Its name.
        load: Seconds from the file to a function that runs the model: compilation, or the creation of a session.
        first: Seconds of the first run, which may still make things ready.
        samples: Seconds per run, one for every run of every block.
        outputs: The results of the first run.
        error: Why there are no samples.
    """

    engine: str
    load: float = 0.0
    first: float = 0.0
    samples: list[float] = field(default_factory=list)
    outputs: list[NDArray[np.generic]] = field(default_factory=list)
    error: str = ""

    @property
    def median(self) -> float:
        """Median seconds per run."""
        return statistics.median(self.samples)

    @property
    def minimum(self) -> float:
        """Least seconds per run."""
        return min(self.samples)


def contest(model: Path, feeds: Feeds, engines: Sequence[str], *, threads: int, effort: Effort) -> list[Result]:
    """Measure engines on one model; an engine that fails has an ``error`` and does not hold the others up."""
    return compete([(engine, model, feeds) for engine in engines], threads=threads, effort=effort)


def compete(entries: Sequence[tuple[str, Path, Feeds]], *, threads: int, effort: Effort) -> list[Result]:
    """Do as :func:`contest`, where every engine has a model and inputs of its own."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(*entry, threads)) for entry in entries]
        results = [_first_run(entry[0], worker) for entry, worker in zip(entries, workers, strict=True)]
        for _ in range(effort.rounds):
            for worker, result in zip(workers, results, strict=True):
                if not result.error:
                    worker.send(effort.block)
                    _receive(worker, result)
                    time.sleep(effort.pause)
    return results


@contextlib.contextmanager
def _worker(engine: str, model: Path, feeds: Feeds, threads: int) -> Iterator[Connection]:
    """A process that answers the number of seconds that it is sent with the times of its runs."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, engine, model, dict(feeds), threads), daemon=True
    )
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(5)
        process.kill()


def _first_run(engine: str, worker: Connection) -> Result:
    result = Result(engine)
    answer = _receive(worker, result)
    if answer is not None:
        result.load, result.first, result.outputs = answer
    return result


def _receive(worker: Connection, result: Result) -> Any:
    try:
        kind, answer = worker.recv()
    except EOFError:
        kind, answer = "error", "the process ended"
    if kind == "error":
        result.error = answer
        return None
    if kind == "samples":
        result.samples += answer
    return answer


def _serve(parent: Connection, engine: str, model: Path, feeds: Feeds, threads: int) -> None:
    """Load, run once, and then run blocks for as long as the parent asks for them."""
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        prepare(engine)
        start = time.perf_counter()
        run = ENGINES[engine].load(model, threads, feeds)
        loaded = time.perf_counter()
        outputs = run(feeds)
        ended = time.perf_counter()
        parent.send(("first", (loaded - start, ended - loaded, [np.array(output) for output in outputs])))
    except Exception as error:
        parent.send(("error", f"{type(error).__name__}: {error}".partition("\n")[0]))
        return
    with contextlib.suppress(EOFError):
        while True:
            parent.send(("samples", _block(lambda: run(feeds), parent.recv())))


def _block(run: Any, seconds: float) -> list[float]:
    """The time of each run; the first is thrown away, since the caches hold what the engine before has left there."""
    run()
    clock = time.perf_counter
    samples: list[float] = []
    end = clock() + seconds
    while len(samples) < 3 or (clock() < end and len(samples) < MAX_RUNS):
        start = clock()
        run()
        samples.append(clock() - start)
    return samples
