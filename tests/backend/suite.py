"""ONNX's backend suite as pytest collects it: the tests for the CPU, without the downloads."""

from __future__ import annotations

import unittest
import warnings

import pytest

from tests.backend.known_failures import FAILS, RANDOM
from tinycomp.backend import TinycompBackend

KINDS = ("NodeModel", "SimpleModel", "PyTorchConvertedModel", "PyTorchOperatorModel")
"""All but ``RealModel``: those are whole networks, which other tests run."""
_DEVICE = "_cpu"


class _Strict(TinycompBackend):
    """Takes every model, so that one which does not compile counts as a failure and not as skipped."""

    @classmethod
    def is_compatible(cls, *args: object, **kwargs: object) -> bool:
        return True


def load_suite(module: str) -> dict[str, type[unittest.TestCase]]:
    """Return the test classes of the suite by name; ``module`` is where they will stand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, from making the expected values
        from onnx.backend.test import BackendTest

        classes = BackendTest(_Strict, module).test_cases
    chosen = {f"OnnxBackend{kind}Test": classes[f"OnnxBackend{kind}Test"] for kind in KINDS}
    for each in chosen.values():
        _prepare(each)
    return chosen


def names(classes: dict[str, type[unittest.TestCase]]) -> list[str]:
    """Return the names of all tests, without the device."""
    return [n.removesuffix(_DEVICE) for c in classes.values() for n in vars(c) if n.startswith("test_")]


def _prepare(case: type[unittest.TestCase]) -> None:
    """Drop the tests for other devices and mark the known failures."""
    for name in [n for n in vars(case) if n.startswith("test_")]:
        short = name.removesuffix(_DEVICE)
        if short == name:
            delattr(case, name)
        elif short in FAILS:
            setattr(case, name, pytest.mark.xfail(reason=FAILS[short], strict=True)(getattr(case, name)))
        elif short in RANDOM:
            setattr(case, name, pytest.mark.xfail(reason=RANDOM[short], strict=False)(getattr(case, name)))
