"""One class says no everywhere: in predicates, on graphs and in reports."""

from __future__ import annotations

import doctest

from tinycomp import remark
from tinycomp.remark import Remark, reject
from tinycomp.rewrite import reject as exported


def test_a_remark_is_false_and_reads_as_its_reason() -> None:
    assert not reject("too wide")
    assert str(reject("too wide")) == "too wide"
    assert str(Remark("merge-composite", ("a",), "npu", "npu.conv", "too wide")) == "npu.conv: too wide"
    assert str(Remark(target="npu", reason="too wide")) == "npu: too wide"
    assert exported is reject


def test_a_report_keeps_what_does_not_stand_above_the_remark() -> None:
    full = Remark("merge-composite", ("a", "b"), "npu", "npu.conv", "too wide", 0.5, "b")
    kept = {"stage": "merge-composite", "target": "npu", "rule": "npu.conv", "text": "too wide", "progress": 0.5}
    assert full.to_dict() == kept
    assert Remark.from_dict(kept) == Remark("merge-composite", (), "npu", "npu.conv", "too wide", 0.5)


def test_what_would_mend_it_is_said_wherever_the_reason_is() -> None:
    remark = Remark("check-quantization", (), "npu", "npu.Conv", "it is uint8", 1.0, remedy="quantise it to int8")
    assert str(remark) == "npu.Conv: it is uint8; quantise it to int8"
    assert remark.to_dict()["text"] == "it is uint8; quantise it to int8"
    assert Remark.from_dict(remark.to_dict()) == remark


def test_examples() -> None:
    failed, tried = doctest.testmod(remark)
    assert tried
    assert not failed
