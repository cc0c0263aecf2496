"""Composites that are described once a graph has the operators that they need."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tinycomp.errors import PatternError, TargetError
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.rewrite.matcher import always_holds
from tinycomp.target import Target
from tinycomp.target.target import add_on_demand, composites_for

NEEDS = [[("", "Relu"), ("", "Elu")], [("", "Neg")]]


@dataclass(frozen=True)
class Options:
    """How wide vectors may be."""

    most: int = 4


def described(names: str = "activated", needs: list[list[tuple[str, str]]] = NEEDS) -> tuple[Target, list[Target]]:
    """A target with one composite on demand, and what has been asked to be described."""
    asked: list[Target] = []
    npu = Target("npu", options=Options())

    def add(target: Target) -> None:
        asked.append(target)

        @target.composite(name="activated")
        def activated(x: ValuePattern) -> ValuePattern:
            return P.Neg(P.Relu(x) | P.Elu(x))

        @activated.check
        def narrow(match: Match, options: Options) -> object:
            return match.x.static_shape[0] <= options.most or reject("too wide")

    add_on_demand(npu, names, needs, add)
    return npu, asked


def graph(body: str) -> Graph:
    text = f'graph @main opset {{"" = 17}} (%x: float32[4]) -> (%y) {{\n{body}\n}}'
    return parse_graph(text, infer=infer_node_types)


def merged(target: Target, body: str) -> list[str]:
    made = graph(body)
    MergeComposite(target).run(made)
    return [node.op for node in made.nodes]


def test_they_are_described_once_there_is_a_graph_in_which_they_may_match() -> None:
    npu, asked = described()
    assert merged(npu, "%a = Relu(%x)\n%y = Abs(%a)") == ["Relu", "Abs"]
    assert merged(npu, "%a = Neg(%x)\n%y = Abs(%a)") == ["Neg", "Abs"]
    assert not asked
    for op in ("Relu", "Elu"):
        assert merged(npu, f"%a = {op}(%x)\n%y = Neg(%a)") == ["npu.activated"]
    assert len(asked) == 1


def test_copies_of_the_target_have_them_with_their_own_options() -> None:
    npu, asked = described()
    narrow = npu.with_options(most=2)
    body = "%a = Relu(%x)\n%y = Neg(%a)"
    assert merged(narrow, body) == ["Relu", "Neg"]
    assert merged(npu, body) == ["npu.activated"]
    assert [c.name for c in narrow.composites] == [c.name for c in npu.composites] == ["activated"]
    assert len(asked) == 1


def test_their_names_are_taken_before_they_are_described() -> None:
    npu, asked = described()
    with pytest.raises(TargetError, match='the target has two composites "activated"'):
        npu.composite(name="activated")(lambda x: P.Abs(x))
    assert not asked


def test_operators_that_they_need_tell_whether_the_target_reads_what_is_quantised() -> None:
    npu, asked = described(needs=[[("", "DequantizeLinear")]])
    assert npu.reads_quantized
    assert not asked
    npu, asked = described()
    assert not npu.reads_quantized
    assert asked


def test_they_keep_their_place() -> None:
    npu, _ = described()
    npu.composite(name="last")(lambda x: P.Neg(x))
    assert [c.name for c in npu.composites] == ["activated", "last"]
    assert [c.name for c in composites_for(npu, graph("%y = Neg(%x)"))] == ["last"]


@pytest.mark.parametrize(
    ("names", "needs", "message"),
    [
        ("activated rest", NEEDS, "a group of composites has other names"),
        ("activated", [[("", "Relu")]], "can match without the operators of its group; expected one of Relu in every"),
    ],
)
def test_what_is_said_of_them_must_be_true(names: str, needs: list[list[tuple[str, str]]], message: str) -> None:
    npu, _ = described(names, needs)
    with pytest.raises(PatternError, match=message):
        _ = npu.composites


def test_threads_describe_them_once() -> None:
    npu, asked = described()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: npu._composites[0].composites, range(32)))
    assert len({id(composites[0]) for composites in found}) == len(asked) == 1


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [
        (P.Relu(P.any), True),
        (P.Abs(P.Relu(P.any)), True),
        (P.Relu(P.any) | P.Neg(P.any), False),
        (P.Relu(P.any) | P.Neg(P.Relu(P.any)), True),
        (P.optional(P.Relu, P.Abs(P.any)), False),
        (P.op({"Relu", "Elu"}, P.any), False),
        (P.op(None, P.Relu(P.any)), True),
        (P.repeat("Relu", P.any), True),
        (P.repeat("Relu", P.Abs(P.any), at_least=0), False),
        (P.dominates(P.Relu(P.any), P.elementwise, "Abs"), True),
        (P.TopK(P.any, P.const)[1], False),
    ],
)
def test_which_operators_every_match_holds(pattern: ValuePattern, holds: bool) -> None:
    assert always_holds(pattern, {("", "Relu")}) == holds
