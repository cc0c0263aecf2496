"""Pipelines: order, timings, observers, checks, and the text form of passes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tinycomp.driver.pipeline import Pipeline, parse_passes, pass_types
from tinycomp.errors import TinycompError
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.passes.base import Pass
from tinycomp.target import find

TEXT = 'graph @main opset {"" = 17} (%x: float32[2]) -> (%y) { %y = Relu(%x) %z = Abs(%x) }'


@dataclass(frozen=True)
class Break(Pass):
    """Gives a value a type that its operator does not."""

    name = "break"

    def run(self, graph: Graph) -> bool:
        graph.outputs[0].type = type(graph.outputs[0].type)("int8", (9,))
        return True


def test_passes_run_in_order_and_are_timed():
    seen = []
    pipeline = Pipeline(
        parse_passes("eliminate-dead-code, fold-constants"),
        observers=[lambda n, name, g: seen.append((n, name, len(g)))],
    )
    graph = parse_graph(TEXT)
    result = pipeline(graph)
    assert seen == [(0, "input", 2), (1, "eliminate-dead-code", 1), (2, "fold-constants", 1)]
    assert [(t.name, t.changed, t.nodes) for t in pipeline.timings] == [
        ("eliminate-dead-code", True, 1),
        ("fold-constants", False, 1),
    ]
    assert all(t.seconds >= 0 for t in pipeline.timings)
    assert (len(graph), len(result)) == (2, 1)


def test_a_pass_that_breaks_the_graph_is_named():
    with pytest.raises(TinycompError) as error:
        Pipeline([Break()], check=True)(parse_graph(TEXT))
    assert "The graph was well-formed before the pass break." in error.value.__notes__
    Pipeline([Break()])(parse_graph(TEXT))


def test_a_pipeline_can_be_used_again():
    pipeline = Pipeline(parse_passes("eliminate-dead-code"))
    assert str(pipeline(parse_graph(TEXT))) == str(pipeline(parse_graph(TEXT)))
    assert len(pipeline.timings) == 1


def test_every_pass_has_a_name_of_its_own_that_parses():
    options = {"merge-composite": "{target=c}", "annotate-target": "{targets=c}", "expand-functions": "{targets=c}"}
    options |= {"offer-to-target": "{target=c}", "keep-forms": "{targets=c}", "place-by-cost": "{targets=c}"}
    options |= {"round-weights": "{precision=f16}", "check-quantization": "{targets=c}", "legalize": "{target=c}"}
    for name, kind in pass_types().items():
        assert name == kind.name
        (made,) = parse_passes(name + options.get(name, ""))
        assert type(made) is kind


def test_options():
    (merge,) = parse_passes("merge-composite{target=c}")
    assert merge.target is find("c")
    (annotate,) = parse_passes("annotate-target{targets=c+npu_sim}")
    assert annotate.targets == (find("c"), find("npu_sim"))
    (fold,) = parse_passes(" fold-constants{keep-quantized=false max_bytes=12} ")
    assert (fold.keep_quantized, fold.max_bytes) == (False, 12)
    assert parse_passes("") == []
