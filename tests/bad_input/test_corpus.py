"""Runs the corpus. A crash ends the process and a hang the case, so that what passes has had neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input import shape_cases
from tests.bad_input.case import TARGETS, Case, run_case

CORPUS = [*shape_cases.CASES]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.id)
def test_bad_input(case: Case, target: str, tmp_path: Path) -> None:
    run_case(case, tmp_path, target)
