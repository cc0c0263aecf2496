"""ONNX's backend suite as pytest collects it: the tests for the CPU, without the downloads."""

from __future__ import annotations

import unittest
import warnings
from typing import Any, ClassVar

import onnx
import pytest

from tests.backend.known_failures import EITHER, FAILS
from tinycomp.backend import TinycompBackend, TinycompRep
from tinycomp.driver.pipeline import optimisation_passes, partitioning_passes
from tinycomp.passes.base import Pass
from tinycomp.target import find

KINDS = ("NodeModel", "SimpleModel", "PyTorchConvertedModel", "PyTorchOperatorModel")
"""All but ``RealModel``: those are whole networks, which other tests run."""
_DEVICE = "_cpu"


class Strict(TinycompBackend):
    """Takes every model, so that one which does not compile counts as a failure and not as skipped.

    Attributes:
        without: A pass to leave out of the default pipeline, by its command-line name.
    """

    without: ClassVar[str] = ""

    @classmethod
    def is_compatible(cls, *args: object, **kwargs: object) -> bool:
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TinycompRep:
        if cls.without:
            kwargs["passes"] = [p for p in default_passes() if p.name != cls.without]
        return super().prepare(model, device, **kwargs)


def default_passes() -> list[Pass]:
    """Return the pipeline that the suite's models go through."""
    return [*optimisation_passes([find("c")]), *partitioning_passes([find("c")])]


def pass_names() -> list[str]:
    """Return the names of the passes in that pipeline, each once, in order of first use."""
    return list(dict.fromkeys(p.name for p in default_passes()))


def load_suite(module: str, backend: type[Strict] = Strict) -> dict[str, type[unittest.TestCase]]:
    """Return the test classes of the suite by name; ``module`` is where they will stand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, from making the expected values
        from onnx.backend.test import BackendTest

        classes = BackendTest(backend, module).test_cases
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
        elif short in EITHER:
            setattr(case, name, pytest.mark.xfail(reason=EITHER[short], strict=False)(getattr(case, name)))
