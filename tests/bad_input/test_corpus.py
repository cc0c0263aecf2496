"""Runs the corpus. A crash ends the process and a hang the case, so that what passes has had neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input import file_cases, graph_cases, run_cases, shape_cases
from tests.bad_input.case import TARGETS, Case, run_case

CORPUS = [*file_cases.CASES, *graph_cases.CASES, *shape_cases.CASES, *run_cases.CASES]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.id)
def test_bad_input(case: Case, target: str, tmp_path: Path) -> None:
    run_case(case, tmp_path, target)
