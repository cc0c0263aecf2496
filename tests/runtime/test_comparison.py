"""Two reports side by side."""

from __future__ import annotations

import tinycomp
from tinycomp.data import digits, digits_model
from tinycomp.runtime.comparison import Moved, compare


def test_what_moved_comes_first_and_totals_stand_beside_each_other() -> None:
    a = tinycomp.compile(digits_model(), ["npu_sim", "c"])
    b = tinycomp.compile(digits_model(), ["c"], place={"softmax": "host"}, passes=None)
    b.profile(digits()[0][:2], runs=1)
    found = compare(a.report(), b.report())
    assert Moved("pool", "npu_sim", "c") in found.moved
    assert Moved("softmax", "c", "host") in found.moved
    text = str(found)
    for words in (
        "18 of 18",
        "17 of 18",
        "npu_sim, c",
        "time of a run",
        "Nodes that run elsewhere",
        "pool",
        "and 1 more",
    ):
        assert words in text
    data = found.to_dict()
    assert data["a"]["totals"]["nodes"]["host"] == 0
    assert {"node": "softmax", "a": "c", "b": "host"} in data["moved"]


def test_equal_reports_say_so() -> None:
    report = tinycomp.compile(digits_model()).report()
    found = compare(report, report)
    assert found.moved == ()
    assert "Every node runs in the same place." in str(found)


def test_what_optimisation_removed_is_absent() -> None:
    plain = tinycomp.compile(digits_model(), optimize=False).report()
    optimised = tinycomp.compile(digits_model()).report()
    assert all("absent" not in (each.a, each.b) for each in compare(optimised, optimised).moved)
    moved = compare(plain, optimised).moved
    places = ["absent" in (each.a, each.b) for each in moved]
    assert places == sorted(places)
