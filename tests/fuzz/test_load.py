"""A short form of what ``python -m tests.fuzz.load`` does for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import load

pytestmark = pytest.mark.filterwarnings("ignore")


def test_eight_threads_with_changing_sizes():
    assert load.threads_and_sizes(1.0) > 100


def test_many_modules_alive():
    assert load.modules_alive(20) == 20


def test_modules_compiled_and_dropped():
    cycles, growth = load.compile_and_drop(0, cycles=120)
    assert cycles == 120
    assert growth < 5


@pytest.mark.long
def test_writers_that_are_killed(tmp_path: Path):
    assert load.killed_writers(0, tmp_path) >= 2
