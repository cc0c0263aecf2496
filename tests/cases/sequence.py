"""Sequences and optionals of tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import floats, ints

A, B, C = (np.full(i, i, np.float32) for i in (1, 2, 3))


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    x = floats(5, 4)
    yield Case("SequenceConstruct", [A, B], host="Sequence")
    yield Case("SequenceConstruct", [Const(A), B, C], host="Sequence")
    yield Case("SequenceEmpty", [], {"dtype": 1}, host="Sequence")
    yield Case("SequenceLength", [[A, B, C]], host="Sequence")
    for position in (0, 2, -1, -3):
        yield Case("SequenceAt", [[A, B, C], np.array(position)], host="Sequence")
        yield Case("SequenceAt", [[A, B, C], Const(np.array(position))], host="Sequence")
    beyond = "position out of bounds; expected a position in "
    yield Case("SequenceAt", [[A, B, C], np.array(3)], refused=rf"{beyond}\[-3, 2\]; found 3")
    yield Case("SequenceInsert", [[A], B, np.array(-2)], refused=rf"{beyond}\[-1, 1\]; found -2")
    yield Case("SequenceErase", [[A], np.array(1)], refused=rf"{beyond}\[-1, 0\]; found 1")
    for place in (None, np.array(0), np.array(-1), Const(np.array(2))):
        yield Case("SequenceInsert", [[A, B], C, *([] if place is None else [place])], host="Sequence")
    for place in (None, np.array(0), np.array(-2)):
        yield Case("SequenceErase", [[A, B, C], *([] if place is None else [place])], host="Sequence")
    for sizes, attrs in (
        (np.array(2), {}), (ints(1, 3), {"axis": 1}), (None, {"axis": -1, "keepdims": 0}), (None, {"axis": 1}),
        (None, {"keepdims": 0}),
    ):  # fmt: skip
        yield Case("SplitToSequence", [x, *([] if sizes is None else [sizes])], attrs, host="Sequence")
    for wrong in (np.array([2, 2]), np.array(0), np.array([-1, 6])):
        yield Case("SplitToSequence", [x, wrong], refused="the sizes do not split axis 0")
    yield Case("ConcatFromSequence", [[x, x[:2]]], {"axis": 0}, host="no rule for")
    for axis in (0, -1):
        yield Case("ConcatFromSequence", [[A, A]], {"axis": axis, "new_axis": 1}, host="no rule for")
    yield Case(
        "ConcatFromSequence",
        [[x, x[:, :2]]],
        {"axis": 0},
        refused=r"the elements differ outside axis 0; expected \[5, 4\]; found \[5, 2\]",
    )
    yield Case("OptionalGetElement", [x], opset=18)
    yield Case("OptionalHasElement", [x], opset=18)
    yield Case("OptionalHasElement", [], opset=18)
