"""What the command measures with: the ways change declarations alone, and differences of every kind are seen."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.declarations.measure import Case, difference, measure
from tests.declarations.ways import WAYS

X = np.arange(10, dtype=np.float32).reshape(5, 2)


def case(wanted: np.ndarray) -> Case:
    text = "g (float[5,2] x) => (float[5,2] y) { t = Neg(x)  y = Relu(t) }"
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>' + text)
    return Case("test_neg_relu", model, [X], [wanted], 1e-6, 0.0)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_changes_declarations_and_nothing_else(way: str) -> None:
    model = case(X).model
    WAYS[way](model)
    changed = model.SerializeToString()
    assert (changed == case(X).model.SerializeToString()) == (way == "as-they-are")
    for part in (model.graph.input, model.graph.output, model.graph.value_info):
        del part[:]
    bare = case(X).model
    del bare.graph.input[:], bare.graph.output[:]
    assert model.SerializeToString() == bare.SerializeToString()


@pytest.mark.parametrize("target", ["c", "host"])
def test_right_and_wrong_results_and_tests_that_do_not_count(target: str) -> None:
    assert measure(case(np.zeros_like(X)), "no-output-shapes", target) == ("right", "")
    assert measure(case(np.zeros_like(X) + 1), "no-output-shapes", target) is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (X, ""),
        (X[:1], "float32[1, 2] instead of float32[5, 2]"),
        (X[:, :, None], "float32[5, 2, 1] instead of float32[5, 2]"),
        (X.astype(np.float64), "float64[5, 2] instead of float32[5, 2]"),
        (X + (X == 3), "1 of 10 elements differ"),
        (None, "NoneType instead of ndarray"),
    ],
)
def test_differences(found: np.ndarray | None, text: str) -> None:
    assert difference(found, X) == text


def test_differences_of_sequences() -> None:
    assert difference([X, X], [X, X]) == ""
    assert difference([X], [X, X]) == "1 elements instead of 2"
    assert difference([X, X[:4]], [X, X]) == "float32[4, 2] instead of float32[5, 2]"
