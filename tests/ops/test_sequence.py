from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError

A, B, C = (np.full(i, i, np.float32) for i in (1, 2, 3))


def i64(value):
    return np.array(value, np.int64)


def sizes(sequence):
    return [x.size for x in sequence]


def only(op, inputs, attrs=None):
    """Run a kernel whose result is one sequence."""
    from tinycomp.ops import OPS

    return OPS.find(op).bind(attrs or {})(*inputs)


def test_construct_and_length():
    assert sizes(only("SequenceConstruct", [A, B])) == [1, 2]
    assert only("SequenceEmpty", [], {"dtype": 1}) == []
    assert only("SequenceLength", [[A, B, C]]) == 3


@pytest.mark.parametrize(("position", "size"), [(0, 1), (2, 3), (-1, 3), (-3, 1)])
def test_at(position, size):
    assert only("SequenceAt", [[A, B, C], i64(position)]).size == size


@pytest.mark.parametrize(("position", "want"), [(None, [1, 2, 3]), (0, [3, 1, 2]), (-1, [1, 3, 2]), (2, [1, 2, 3])])
def test_insert(position, want):
    given = [A, B]
    assert sizes(only("SequenceInsert", [given, C, None if position is None else i64(position)])) == want
    assert sizes(given) == [1, 2]


@pytest.mark.parametrize(("position", "want"), [(None, [1, 2]), (0, [2, 3]), (-2, [1, 3])])
def test_erase(position, want):
    assert sizes(only("SequenceErase", [[A, B, C], None if position is None else i64(position)])) == want


def test_positions_out_of_bounds():
    with pytest.raises(ExecutionError, match=r"SequenceAt: position out of bounds; .* in \[-3, 2\]; found 3"):
        only("SequenceAt", [[A, B, C], i64(3)])
    with pytest.raises(ExecutionError, match=r"SequenceInsert: position out of bounds; .* in \[-1, 1\]; found -2"):
        only("SequenceInsert", [[A], B, i64(-2)])
    with pytest.raises(ExecutionError, match="SequenceErase: position out of bounds"):
        only("SequenceErase", [[], i64(0)])


def test_split_and_join():
    x = sample("float32", (5, 4))
    assert [y.shape for y in only("SplitToSequence", [x, i64(2)])] == [(2, 4), (2, 4), (1, 4)]
    assert [y.shape for y in only("SplitToSequence", [x, i64([1, 3])], {"axis": 1})] == [(5, 1), (5, 3)]
    assert [y.shape for y in only("SplitToSequence", [x], {"axis": -1, "keepdims": 0})] == [(5,)] * 4
    pieces = only("SplitToSequence", [x], {"axis": 1})
    np.testing.assert_array_equal(only("ConcatFromSequence", [pieces], {"axis": 1}), x)
    rows = only("SplitToSequence", [x], {"keepdims": 0})
    np.testing.assert_array_equal(only("ConcatFromSequence", [rows], {"axis": 0, "new_axis": 1}), x)
    np.testing.assert_array_equal(only("ConcatFromSequence", [rows], {"axis": -1, "new_axis": 1}), x.T)
    for sizes_ in (i64([2, 2]), i64(0), i64([-1, 6])):
        with pytest.raises(ExecutionError, match=r"SplitToSequence: the sizes do not split axis 0; .* sum to 5"):
            only("SplitToSequence", [x, sizes_])
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
