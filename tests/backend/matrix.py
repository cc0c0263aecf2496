"""ONNX's backend suite with one pass of the default pipeline left out."""

from __future__ import annotations

import unittest
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from tests.backend.known_failures import EITHER, FAILS
from tests.backend.suite import Strict, load_suite

NONE = "none"
"""Stands for the whole pipeline."""


class Reduced(Strict):
    """The backend of this module's suite; :func:`run_without` sets the pass that it leaves out."""


@dataclass(frozen=True)
class Outcome:
    """One run of the suite, or of a share of it.

    Attributes:
        without: The pass left out; empty for none.
        total: How many tests ran.
        failures: Last line of the error by name of the test, for all tests that failed.
    """

    without: str
    total: int
    failures: Mapping[str, str]

    @property
    def unexpected(self) -> dict[str, str]:
        """The failures that the list of known ones does not name."""
        return {name: why for name, why in self.failures.items() if name not in FAILS and name not in EITHER}


def load_reduced() -> dict[str, type[unittest.TestCase]]:
    """Return the test classes that :func:`run_without` runs."""
    return load_suite(__name__, Reduced)


def run_without(classes: Mapping[str, type[unittest.TestCase]], without: str, share: int = 1) -> Outcome:
    """Run the tests in this process with one pass left out.

    Args:
        classes: What :func:`load_reduced` has returned.
        without: Name of the pass; empty for none.
        share: Run one test out of so many; which ones, depends on the names of test and pass.
    """
    Reduced.without = without
    total, failures = 0, {}
    for case in classes.values():
        for name in (n for n in vars(case) if n.startswith("test_") and _chosen(n, without, share)):
            result = unittest.TestResult()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case(name).run(result)
            total += 1
            for _, text in (
                *result.failures,
                *result.errors,
                *((case, f"skipped: {why}") for _, why in result.skipped),
            ):
                failures[name.removesuffix("_cpu")] = text.strip().splitlines()[-1]
    Reduced.without = ""
    return Outcome(without, total, failures)


def run_alone(without: str) -> Outcome:
    """Run all tests in a process of its own, without a pass or, for :data:`NONE`, with all of them."""
    return run_without(load_reduced(), "" if without == NONE else without)


def _chosen(name: str, without: str, share: int) -> bool:
    return zlib.crc32(f"{without}/{name}".encode()) % share == 0
