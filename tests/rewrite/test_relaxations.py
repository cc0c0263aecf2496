"""A relaxation says which single demand of a pattern a node does not fulfil, and takes what is there instead."""

from __future__ import annotations

from typing import Any

import pytest

from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.rewrite import P, pattern, reject
from tinycomp.rewrite.matcher import Match, Pattern
from tinycomp.rewrite.relaxations import relaxations

TEXT = """
graph @main opset {"" = 17} (%x: float32[1, 4, 8, 8], %v: float32[4, 4, 1, 1]) -> (%y, %z) {
  %w: float32[4, 2, 1, 1] = const [1, 2, 3, 4, 5, 6, 7, 8]
  %b: float32[4] = const [1, 2, 3, 4]
  %c: float32[1, 4, 8, 8] = Conv(%x, %w, %b) {group = 2}
  %y: float32[1, 4, 8, 8] = Relu(%c)
  %d: float32[1, 4, 8, 8] = Conv(%y, %v)
  %z: float32[1, 4, 8, 8] = Tanh(%d)
}"""


def graph() -> Graph:
    return parse_graph(TEXT, infer=infer_node_types)


def found(traced: Pattern, op: str, **options: Any) -> list[str]:
    """Return the texts of the relaxations at a node, where they match and the pattern does not."""
    model = graph()
    node = next(n for n in model.nodes if n.op == op)
    assert not isinstance(traced.match(node, model), Match)
    texts = []
    for text, relaxed, match in relaxations(traced, node, model, **options):
        again = relaxed.match(node, model)
        assert isinstance(again, Match)
        assert again.matched == match.matched
        texts.append(text)
    return texts


def test_an_attribute() -> None:
    traced = pattern(lambda x, w, b: P.Relu(P.Conv(x, w, b, group=1)))
    assert found(traced, "Relu") == ["Conv with group=2"]


def test_the_relaxed_pattern_takes_what_is_there_not_anything() -> None:
    traced = pattern(lambda x, w, b: P.Conv(x, w, b, group=1))
    model = graph()
    ((_, relaxed, _),) = relaxations(traced, model.nodes[0], model)
    model.nodes[0].attrs["group"] = 4
    assert not isinstance(relaxed.match(model.nodes[0], model), Match)


def test_an_absent_operand() -> None:
    traced = pattern(lambda x, w: P.Relu(P.Conv(x, w, None)))
    assert found(traced, "Relu") == ['"b" in the place of an operand that it leaves out']


def test_a_constant() -> None:
    traced = pattern(lambda x: P.Tanh(P.Conv(x, P.const)))
    assert found(traced, "Tanh") == ['"v" in the place of a constant']


@pytest.mark.parametrize(
    ("constraint", "name"), [({"dtype": "float16"}, "dtype"), ({"rank": 3}, "rank"), ({"uses": 2}, "uses")]
)
def test_a_constraint(constraint: dict[str, Any], name: str) -> None:
    traced = pattern(lambda x, w, b: P.Relu(P.Conv(x, w, b).where(**constraint)))
    assert found(traced, "Relu") == [f'"c" (float32[1, 4, 8, 8]) whatever its {name}']


def test_another_operator_only_if_asked_for() -> None:
    traced = pattern(lambda x, w: P.Sigmoid(P.Conv(x, w)) | P.Tanh(P.ConvTranspose(x, w)))
    assert found(traced, "Tanh") == []
    texts = ["Tanh in the place of Sigmoid", "Conv in the place of ConvTranspose"]
    assert found(traced, "Tanh", operators=True) == texts


def test_two_demands_at_once_are_too_many() -> None:
    assert found(pattern(lambda x, w, b: P.Relu(P.Conv(x, w, b, group=1, dilations=[2, 2]))), "Relu") == []


def test_the_same_value_stays_the_same_value() -> None:
    assert found(pattern(lambda x, w: P.Relu(P.Conv(x, w, w, group=1))), "Relu") == []


def test_predicates_still_hold() -> None:
    traced = pattern(lambda x, w, b: P.Relu(P.Conv(x, w, b, group=1)))
    assert found(traced, "Relu", checks=[lambda match: match["w"].shape == (4, 2, 1, 1)]) == ["Conv with group=2"]
    assert found(traced, "Relu", checks=[lambda match: reject("no")]) == []
    assert found(traced, "Relu", checks=[lambda match: 1 / 0]) == []


def test_repetitions_have_none() -> None:
    traced = pattern(lambda x: P.Relu(P.repeat(lambda below: P.Neg(below), x, at_least=1)))
    assert found(traced, "Relu") == []
