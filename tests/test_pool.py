from __future__ import annotations

import os
import time

from tests.pool import run_all


def job(number: int) -> str:
    if number == 3:
        os._exit(7)
    if number == 5:
        time.sleep(60)
    return str(number * number)


def test_a_crash_and_a_hang_end_a_job_and_not_the_others() -> None:
    results = dict(run_all(job, range(9), 2, 1.0, lambda text: text))
    assert results == {n: str(n * n) for n in (0, 1, 2, 4, 6, 7, 8)} | {
        3: "crash: the process ended with 7", 5: "hang: more than 1 s"
    }  # fmt: skip


def test_there_may_be_fewer_jobs_than_processes() -> None:
    assert dict(run_all(job, [2], 4, 9.0, lambda text: text)) == {2: "4"}
    assert dict(run_all(job, [], 4, 9.0, lambda text: text)) == {}
