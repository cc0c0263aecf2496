"""ONNX's own backend tests, run through ``tinycomp.backend`` as any backend would."""

from __future__ import annotations

import onnx
import pytest

from tests.backend.known_failures import EITHER, FAILS
from tests.backend.suite import load_suite, names

pytestmark = pytest.mark.rows(500)

AT_LEAST = 2_010 if tuple(map(int, onnx.__version__.split(".")[:2])) >= (1, 23) else 1_700

_CLASSES = load_suite(__name__)
globals().update(_CLASSES)


def test_enough_of_the_suite_passes() -> None:
    """Every test that is not listed must pass, so the lists say how many do."""
    every = names(_CLASSES)
    assert len(every) - len(set(every) & (FAILS.keys() | EITHER.keys())) >= AT_LEAST


def test_the_lists_name_tests_that_exist() -> None:
    """Older onnx packages have fewer tests, but some of the list must always be there."""
    assert "test_gradient_of_add" in names(_CLASSES)
    assert not FAILS.keys() & EITHER.keys()
