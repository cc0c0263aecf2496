from __future__ import annotations

import warnings

import pytest


@pytest.fixture(scope="session")
def node_cases() -> list:
    """Every single-node case of ONNX's backend tests.

    Always all of them: onnx builds the list once, and asking for one operator first would leave it short for good.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return load_model_tests(kind="node")
