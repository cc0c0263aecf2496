"""Jobs in worker processes with a time limit for each, so that a crash or a hang ends a worker and not the whole."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class _Worker(Generic[Job, Result]):
    def __init__(self, run: Callable[[Job], Result]) -> None:
        context = multiprocessing.get_context("fork")  # what was loaded or made is there, and need not be sent
        self.pipe, other = context.Pipe()
        self.process: ForkProcess = context.Process(target=_serve, args=(run, other), daemon=True)
        self.process.start()
        other.close()
        self.job: Job | None = None
        self.deadline = 0.0

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(run: Callable[[Job], Result], pipe: Connection) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    while True:
        try:
            pipe.send(run(pipe.recv()))
        except EOFError:
            return


def run_all(
    run: Callable[[Job], Result], jobs: Iterable[Job], processes: int, seconds: float, ended: Callable[[str], Result]
) -> Iterator[tuple[Job, Result]]:
    """Run jobs in forked processes and yield each with its result, in the order in which they end.

    Args:
        run: Does a job; it catches its own exceptions.
        jobs: What to do. Neither jobs nor results may be None.
        processes: How many at a time.
        seconds: What a job may take.
        ended: Makes the result of a job whose process crashed or was ended, of a text that says which.
    """
    waiting = iter(jobs)
    workers: list[_Worker[Job, Result]] = []
    try:
        for job in waiting:
            worker = _Worker[Job, Result](run)
            _give(worker, job, seconds)
            workers.append(worker)
            if len(workers) == processes:
                break
        while workers:
            left = min(w.deadline for w in workers) - time.monotonic()
            ready = multiprocessing.connection.wait([w.pipe for w in workers], max(left, 0.0))
            for at, worker in enumerate([*workers]):
                late = time.monotonic() > worker.deadline
                if worker.pipe not in ready and not late:
                    continue
                assert worker.job is not None
                done = worker.job
                try:
                    result = worker.pipe.recv() if worker.pipe in ready else ended(f"hang: more than {seconds:.0f} s")
                    crashed = worker.pipe not in ready
                except EOFError:
                    worker.process.join()
                    result, crashed = ended(f"crash: the process ended with {worker.process.exitcode}"), True
                following = next(waiting, None)
                if crashed or following is None:
                    worker.close()
                    workers[at] = worker = _Worker[Job, Result](run) if following is not None else worker
                worker.job = following
                if following is not None:
                    _give(worker, following, seconds)
                yield done, result
            workers = [w for w in workers if w.job is not None]
    finally:
        for worker in workers:
            worker.close()


def _give(worker: _Worker[Job, Result], job: Job, seconds: float) -> None:
    worker.job, worker.deadline = job, time.monotonic() + seconds
    worker.pipe.send(job)
