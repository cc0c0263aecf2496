"""The table: every row on the C target, and a share of it and of ONNX's node tests in every way."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.case import Case
from tests.cases.quick import hole, jobs, known, whole
from tests.cases.runner import meet
from tests.cases.subject import count, of_case, operator_of, qualified, rows, subject
from tests.cases.values import floats
from tests.cases.ways import WAYS
from tinycomp.ops.distance import DOMAIN
from tinycomp.targets.c import TABLE

pytestmark = pytest.mark.filterwarnings("ignore")


def check(part: list[tuple[int, str]]) -> None:
    holes = known()
    found = []
    for at, way in part:
        given = subject(at)
        outcome = meet(given, way)
        if outcome is not None and outcome.kind != "right" and hole(given.name, way, outcome) not in holes:
            found.append(f"{hole(given.name, way, outcome)}\n    {outcome.text}")
    assert not found, "\n".join([f"{len(found)} of {len(part)} fail:", *found[:9]])


@pytest.mark.rows(20)
@pytest.mark.parametrize("name", jobs())
def test_rows_are_right_or_refused_with_the_reason_or_known_holes(name: str) -> None:
    check(jobs()[name])


@pytest.mark.long
@pytest.mark.parametrize("op", whole())
def test_every_row_is_right_on_the_c_target_and_on_the_host(op: str) -> None:
    check(whole()[op])


def test_what_a_row_says_is_held_against_it() -> None:
    x = floats(2, 3)
    assert meet(of_case(Case("Relu", [x])), "c") == ("right", "")
    assert meet(of_case(Case("Relu", [x], host="no")), "c") == ("wrong", "on the C target, though: no")
    assert meet(of_case(Case("Relu", [x], refused="no")), "c") == ("wrong", "accepted, though: no")
    assert meet(of_case(Case("Softmax", [x], {"axis": 2}, refused="another reason")), "c").kind == "refused"
    pool = Case("MaxRoiPool", [floats(1, 1, 4, 4), np.zeros((1, 5), np.float32)], {"pooled_shape": [1, 1]})
    assert meet(of_case(pool), "c").kind == "hosted"
    wrong = of_case(Case("Relu", [x]))._replace(wanted=[x[:1]])
    assert meet(wrong, "host") == ("wrong", "float32[2, 3] instead of float32[1, 3]")


@pytest.mark.rows(4)
@pytest.mark.parametrize("way", WAYS)
def test_a_way_applies_to_a_plain_row_and_leaves_its_model_as_it_is(way: str) -> None:
    given = of_case(next(row for row in rows() if row.op == "DeformConv" and not row.constants))
    before = given.model.SerializeToString()
    trials = list(WAYS[way](given))
    assert trials or way in ("run-time", "results")
    assert given.model.SerializeToString() == before


def test_every_operator_has_rows() -> None:
    """But for those that are random, come from rewriting or are defined by others; ONNX's node tests are rows, too."""
    own = {operator_of(at) for at in range(count())}
    random = {f"Random{kind}" for kind in ("Normal", "NormalLike", "Uniform", "UniformLike")}
    others = ("tinycomp.composite", "tinycomp", "tinycomp.quantized", DOMAIN, "com.microsoft")
    assert {qualified(op, domain) for domain, op in TABLE if domain not in others} - own == random
