"""A share of ONNX's backend suite with each pass left out; ``python -m tests.backend`` runs all of it."""

from __future__ import annotations

import functools
import unittest

import pytest

from tests.backend.matrix import load_reduced, run_without
from tests.backend.suite import default_passes, pass_names

SHARE = 40


@functools.cache
def _suite() -> dict[str, type[unittest.TestCase]]:
    return load_reduced()


@pytest.mark.rows(3)
@pytest.mark.parametrize("name", pass_names())
def test_the_suite_passes_without(name: str) -> None:
    outcome = run_without(_suite(), name, SHARE)
    assert outcome.total >= 20
    assert not outcome.unexpected


def test_every_pass_of_the_pipeline_is_left_out_once() -> None:
    assert set(pass_names()) == {p.name for p in default_passes()}
    assert len(pass_names()) == 10
