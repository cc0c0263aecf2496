"""Every node model of ONNX's own tests through every optimisation pass, with its inputs as inputs and as constants."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.passes.evaluation import evaluate
from tests.passes.test_optimisation import PASSES
from tinycomp.errors import TinycompError
from tinycomp.frontend import import_model
from tinycomp.ir.verify import verify
from tinycomp.passes.fold_constants import is_random

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    return [case for case in found if case.model is not None and case.data_sets and _has_plain_inputs(case)]


def _has_plain_inputs(case):
    arrays = case.data_sets[0][0]
    return all(isinstance(array, np.ndarray) and array.dtype != object for array in arrays)


def _graph(case, constant):
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if constant:
        pairs = zip(model.graph.input, case.data_sets[0][0], strict=False)
        model.graph.initializer.extend(numpy_helper.from_array(array, declared.name) for declared, array in pairs)
        del model.graph.input[:]
    return import_model(model)


def _same(before, after):
    if not isinstance(before, np.ndarray):
        return type(before) is type(after)
    if before.dtype != after.dtype or before.shape != after.shape:
        return False
    if before.dtype == object:
        return bool((before == after).all())
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    return np.allclose(before.astype(wide), after.astype(wide), rtol=1e-4, atol=1e-5, equal_nan=True)


def _check(case, constant):
    """Return what went wrong, or an empty text; None where the model cannot be run in the first place."""
    feeds = [] if constant else case.data_sets[0][0]
    try:
        graph = _graph(case, constant)
        before = graph.clone()
        wanted = evaluate(before, feeds)
    except (TinycompError, TypeError, ValueError):
        return None
    for step in PASSES:
        step.run(graph)
        verify(graph)
    if any(is_random(node) for node in before.nodes):
        return ""
    return "" if all(map(_same, wanted, evaluate(graph, feeds))) else f"{case.name}: another result"


@pytest.mark.long
@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
def test_node_models_keep_their_results(cases, constant):
    outcomes = [_check(case, constant) for case in cases]
    assert sum(outcome is not None for outcome in outcomes) > 1400
    assert [outcome for outcome in outcomes if outcome] == []


@pytest.mark.long
def test_nearly_every_node_model_folds_away(cases):
    """What stays draws random numbers, gives no tensor, is quantised, loops, or is more than the kernels do."""
    left = 0
    for case in cases:
        try:
            graph = _graph(case, constant=True)
        except TinycompError:
            continue
        for step in PASSES:
            step.run(graph)
        left += len(graph) > 0
    assert left < len(cases) // 20
