"""What holds for every optimisation pass: the same results, a well-formed graph, nothing left for a second run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.graphs import decorated_graphs, graphs
from tests.models import all_models
from tests.passes.evaluation import assert_same_results, random_feeds
from tests.passes.simplifiable import simplifiable
from tinycomp.frontend import import_model
from tinycomp.ir.types import compatible
from tinycomp.ir.verify import verify
from tinycomp.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.passes.inline_functions import InlineFunctions
from tinycomp.passes.simplify import Simplify

PASSES = (InlineFunctions(), FoldConstants(), Simplify(), EliminateCommonSubexpressions(), EliminateDeadCode())
MODULES = (
    "fold_constants", "simplify", "simplify.no_ops", "eliminate_common_subexpressions", "eliminate_dead_code",
    "inline_functions",
)  # fmt: skip
SLOW = {f"light_{name}" for name in ("vgg19", "zfnet512", "bvlc_alexnet", "inception_v1", "resnet50", "densenet121")}
"""Models whose operators others have too, and which numpy takes seconds to run."""


def run_to_the_end(graph):
    for step in PASSES:
        step.run(graph)
        verify(graph)
        assert not step.run(graph), f"{step.name} changed its own result"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    failed, tried = doctest.testmod(importlib.import_module(f"tinycomp.passes.{name}"))
    assert tried
    assert not failed


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from(PASSES))
def test_a_pass_keeps_results_of_random_graphs(graph, step):
    before = graph.clone()
    step.run(graph)
    verify(graph)
    assert not step.run(graph)
    assert_same_results(before, graph, random_feeds(graph))


@pytest.mark.long
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(decorated_graphs(), st.sampled_from(PASSES))
def test_a_pass_leaves_odd_graphs_well_formed(graph, step):
    """Vendor operators, conditionals, claimed nodes and strange names; such graphs cannot be run."""
    names, types = graph.output_names, [value.type for value in graph.outputs]
    claimed = sorted(node.label for node in graph.nodes if node.target)
    step.run(graph)
    verify(graph)
    assert not step.run(graph)
    assert graph.output_names == names
    assert all(compatible(value.type, type_) for value, type_ in zip(graph.outputs, types, strict=True))
    if not isinstance(step, EliminateDeadCode | Simplify):
        assert sorted(node.label for node in graph.nodes if node.target) == claimed


@pytest.mark.long
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(simplifiable())
def test_simplify_keeps_results(graph):
    before = graph.clone()
    Simplify().run(graph)
    verify(graph)
    assert not Simplify().run(graph)
    assert_same_results(before, graph, random_feeds(graph, sizes={"N": 2}), tolerance=1e-4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(simplifiable())
def test_all_passes_together_keep_results(graph):
    before = graph.clone()
    run_to_the_end(graph)
    assert_same_results(before, graph, random_feeds(graph, sizes={"N": 2}), tolerance=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("path", [p for p in all_models() if p.stem not in SLOW], ids=lambda p: Path(p).stem)
def test_real_models_keep_their_results(path):
    before = import_model(path)
    graph = before.clone()
    run_to_the_end(graph)
    assert len(graph) <= len(before)
    feeds = random_feeds(graph)
    assert_same_results(before, graph, feeds, tolerance=1e-4)


def test_real_models_lose_what_they_can():
    """Of densenet's 836 weights from ConstantOfShape none is left, nor a Mul or Add, nor a Conv with a BatchNorm."""
    graph = import_model(next(p for p in all_models() if p.stem == "light_densenet121"))
    run_to_the_end(graph)
    ops = {node.op for node in graph.nodes}
    assert ops == {"Conv", "Relu", "MaxPool", "BatchNormalization", "Concat", "AveragePool", "GlobalAveragePool"}
    normalised = {node.inputs[0].producer.op for node in graph.nodes if node.op == "BatchNormalization"}
    assert "Conv" not in normalised


def test_infinity_and_nan_pass_through():
    from tinycomp.ir.text.parser import parse_graph

    graph = parse_graph("""
    graph @main opset {"" = 17} (%x: float32[4]) -> (%y, %z) {
      %zero = const float32[] 0
      %one = const float32[4] [1, 1, 1, 1]
      %six = const float32[] 6
      %a = Add(%x, %zero)
      %m = Mul(%a, %one)
      %r = Relu(%m)
      %y = Clip(%r, _, %six)
      %z = Mul(%x, %zero)
    }""")
    before = graph.clone()
    Simplify().run(graph)
    assert_same_results(before, graph, [np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)])
