"""Random graphs through all four passes: no cycle, the fewest regions, the results of the host."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.partition_fuzz import MismatchError, check, least_regions
from tests.partition_tools import graph_of, target_of
from tinycomp.passes import merge_regions
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.merge_regions import dependencies_and_links, problem_of
from tinycomp.passes.search.regions import HOST, linked_components

COUNT = 400


@pytest.mark.long
def test_random_graphs_are_partitioned_into_the_fewest_regions_and_compute_the_same():
    facts = sum(map(check, range(COUNT)), Counter())
    assert facts["graphs"] == COUNT
    assert facts["conditionals"] > COUNT / 4
    assert facts["regions"] > COUNT


def test_the_oracle_counts_what_a_person_would():
    diamond = graph_of("%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%a)\n%c = Add(%h, %b)", "c")
    AnnotateTarget([target_of("npu", "Relu", "Add")]).run(diamond)
    assert least_regions(diamond.nodes) == 2
    apart = graph_of("%a = Relu(%x)\n%b = Relu(%x)", "a b")
    AnnotateTarget([target_of("npu", "Relu")]).run(apart)
    assert least_regions(apart.nodes) == 2


def seed_that_fails() -> str:
    with pytest.raises(MismatchError) as caught:
        sum(map(check, range(COUNT)), Counter())
    return str(caught.value)


def test_a_region_too_many_is_noticed(monkeypatch):
    monkeypatch.setattr(
        merge_regions, "find_regions", lambda graph, *_: [[n] for n in graph.nodes if n.target is not None]
    )
    assert "are enough" in seed_that_fails()


def test_regions_that_wait_for_each_other_are_noticed(monkeypatch):
    """One region per target and connected component, whatever lies between."""

    def coarsest(graph, *_):
        problem = problem_of(graph.nodes, *dependencies_and_links(graph))
        labels = linked_components(problem)
        groups = [[n for n, label in zip(graph.nodes, labels, strict=True) if label == g] for g in sorted(set(labels))]
        return [g for g in groups if problem.colors[graph.nodes.index(g[0])] != HOST]

    monkeypatch.setattr(merge_regions, "find_regions", coarsest)
    assert "regions" in seed_that_fails()
