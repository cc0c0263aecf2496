"""Runs the corpus. A crash ends the process and a hang the case, so that what passes has had neither."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.bad_input import environment_cases, file_cases, graph_cases, run_cases, shape_cases
from tests.bad_input.case import TARGETS, Case, run_case

CORPUS = [
    *file_cases.CASES, *graph_cases.CASES, *shape_cases.CASES, *run_cases.CASES, *environment_cases.CASES
]  # fmt: skip
COMPILING = [c for c in CORPUS if c.does is None]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", COMPILING, ids=lambda c: c.id[:60])
def test_models_and_feeds(case: Case, target: str, tmp_path: Path) -> None:
    run_case(case, tmp_path, target)


@pytest.mark.parametrize("case", [c for c in CORPUS if c.does is not None], ids=lambda c: c.id)
def test_other_situations(case: Case, tmp_path: Path) -> None:
    run_case(case, tmp_path, "c")


def test_the_corpus_is_complete() -> None:
    """Every class has cases, no two cases share a name, and nearly all errors are told apart by their text."""
    assert {c.number for c in CORPUS} == set(range(1, 71))
    assert [name for name, count in Counter(c.id for c in CORPUS).items() if count > 1] == []
    assert len(CORPUS) >= 300
