"""Optionals, and sequences of nothing; the rest of sequences is in ``cases/sequence.py``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours
from tinycomp.errors import ExecutionError

A = np.ones(1, np.float32)


def only(op, inputs, attrs=None):
    """Run a kernel whose result is one sequence."""
    from tinycomp.ops import OPS

    return OPS.find(op).bind(attrs or {})(*inputs)


def test_of_nothing():
    with pytest.raises(ExecutionError, match="SequenceErase: position out of bounds"):
        only("SequenceErase", [[], np.int64(0)])
    with pytest.raises(ExecutionError, match="ConcatFromSequence: the sequence is empty"):
        only("ConcatFromSequence", [[]], {"axis": 0})


def test_optional():
    assert only("Optional", [A]) is A
    assert only("Optional", []) is None
    check("OptionalHasElement", [A], {}, 18)
    assert not run_ours("OptionalHasElement", [])[0]
    assert only("OptionalGetElement", [A]) is A
    with pytest.raises(ExecutionError, match="OptionalGetElement: the optional is empty; expected an element"):
        only("OptionalGetElement", [None])
