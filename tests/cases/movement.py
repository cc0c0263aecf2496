"""Operators that move elements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import MOVABLE, NARROW, floats, ints, of_dtype


def movement() -> Iterator[Case]:
    for dtype in MOVABLE:
        x = of_dtype(floats(2, 3, 4, 5), dtype)
        yield Case("Transpose", [x], {"perm": [0, 2, 3, 1]})
        yield Case("Concat", [x, x[:, :1]], {"axis": 1})
        yield Case("Reshape", [x, ints(6, -1)])
        yield Case("Slice", [x, ints(1), ints(9), ints(2), ints(2)])
        yield Case("Expand", [x[:, :1], ints(2, 3, 4, 5)])
        yield Case("Split", [x, ints(1, 3)], {"axis": 2}, outputs=2)
        yield Case("Identity", [x])
        yield Case("Pad", [x, ints(0, 1, 0, 2, 0, 0, 1, 0), Const(of_dtype(np.array(1.0), dtype))])
    for dtype in NARROW:
        x = of_dtype(floats(2, 3, 4, 5), dtype)
        yield Case("Transpose", [x], {"perm": [0, 2, 3, 1]}, opset=23)
        yield Case("Reshape", [x, ints(6, -1)], opset=23)
        yield Case("Pad", [x, ints(0, 1, 0, 2, 0, 0, 1, 0), Const(of_dtype(np.array(1.0), dtype))], opset=25)
    yield from _reshapes()
    yield from _transposes()
    yield from _concats_and_splits()
    yield from _slices()
    yield from _pads()
    for shape, wanted in (
        ((3, 1), (3, 4)),
        ((1,), (2, 3)),
        ((2, 3, 4), (1,)),
        ((), (2, 2)),
        ((1, 3, 1), (2, 1, 3, 5)),
        ((1, 3), (0, 3)),
        ((2, 1, 3, 1), (2, 4, 3, 5)),
    ):
        yield Case("Expand", [floats(*shape), ints(*wanted)])


def _reshapes() -> Iterator[Case]:
    for wanted in ((-1,), (0, -1), (0, 0, 20), (5, 4, 3, 2), (1, 120), (2, 1, 3, 1, 4, 5)):
        yield Case("Reshape", [floats(2, 3, 4, 5), ints(*wanted)])
    yield Case("Reshape", [floats(0, 3), ints(3, 0)], {"allowzero": 1}, opset=14)
    yield Case("Reshape", [floats(0, 3), ints(0, 3)])
    yield Case("Reshape", [floats(), ints(1, 1)])
    for axis in (0, 1, 2, 4, -1):
        yield Case("Flatten", [floats(2, 3, 4, 5)], {"axis": axis}, opset=11)
    yield Case("Squeeze", [floats(1, 3, 1, 5), ints(0, -2)])
    yield Case("Squeeze", [floats(1, 3, 1, 5)])
    yield Case("Squeeze", [floats(1, 3, 1, 5)], {"axes": [2]}, opset=11)
    yield Case("Unsqueeze", [floats(3, 5), ints(0, -1)])
    yield Case("Unsqueeze", [floats(3, 5)], {"axes": [1]}, opset=11)
    yield Case("Unsqueeze", [floats(), ints(0)])


def _transposes() -> Iterator[Case]:
    for perm in itertools.permutations(range(4)):
        yield Case("Transpose", [floats(2, 3, 4, 5)], {"perm": list(perm)})
    for perm in itertools.permutations(range(3)):
        yield Case("Transpose", [floats(4, 1, 5)], {"perm": list(perm)})
    yield Case("Transpose", [floats(2, 3, 4, 5)])
    yield Case("Transpose", [floats(1, 7, 1, 5)], {"perm": [0, 2, 3, 1]})
    yield Case("Transpose", [floats(2, 3, 2, 1, 2, 3)], {"perm": [5, 0, 3, 2, 4, 1]})
    yield Case("Transpose", [floats(2, 3, 2, 4, 5)], {"perm": [0, 2, 3, 4, 1]})
    yield Case("Transpose", [floats(2, 0, 3)], {"perm": [2, 0, 1]})
    yield Case("Transpose", [floats()])
    yield Case("Transpose", [floats(6)])
    yield Case("Transpose", [floats(33, 65)])


def _concats_and_splits() -> Iterator[Case]:
    x = floats(2, 3, 4, 5)
    for axis in (0, 1, 2, 3, -1, -3):
        yield Case("Concat", [x, floats(2, 3, 4, 5, seed=1), x], {"axis": axis})
        yield Case("Concat", [x, Const(floats(2, 3, 4, 5, seed=1))], {"axis": axis})
    yield Case("Concat", [floats(2, 0, 3), floats(2, 4, 3), floats(2, 1, 3)], {"axis": 1})
    yield Case("Concat", [floats(3)], {"axis": 0})
    yield Case("Concat", [floats(2, 0), floats(2, 0)], {"axis": 1})
    for axis, sizes in ((0, (1, 1)), (1, (2, 1)), (2, (1, 0, 3)), (-1, (2, 3))):
        yield Case("Split", [x, ints(*sizes)], {"axis": axis}, outputs=len(sizes))
        yield Case("Split", [x], {"axis": axis, "split": list(sizes)}, opset=11, outputs=len(sizes))
    yield Case("Split", [x], {"axis": 2, "num_outputs": 3}, outputs=3)
    yield Case("Split", [floats(6)], {"num_outputs": 2}, outputs=2)
    yield Case("Split", [floats(6, 2)], outputs=2, opset=13)


def _slices() -> Iterator[Case]:
    x = floats(2, 7, 6, 5)
    big = (1 << 63) - 1
    for starts, ends, axes, steps in (
        ((1,), (5,), (1,), (1,)),
        ((-1,), (-big,), (1,), (-1,)),
        ((5,), (0,), (1,), (-2,)),
        ((0, 1), (big, -1), (2, 3), (2, 1)),
        ((-100,), (100,), (-1,), (3,)),
        ((3,), (3,), (2,), (1,)),
        ((4,), (1,), (2,), (1,)),
        ((100,), (0,), (1,), (-3,)),
        ((0, 0, 0, 0), (1, 2, 3, 4), (0, 1, 2, 3), (1, 1, 1, 1)),
        ((5, 4), (-big, -big), (2, 3), (-1, -1)),
    ):
        yield Case("Slice", [x, ints(*starts), ints(*ends), ints(*axes), ints(*steps)])
    for opset in (10, 11, 21):
        yield Case("Slice", [x, ints(0, 2), ints(2, 5)], opset=opset)
    yield Case("Slice", [x, ints(1), ints(-1), None, ints(1)])
    yield Case("Slice", [x], {"starts": [1, 0], "ends": [5, 3], "axes": [1, 2]}, opset=9)
    yield Case("Slice", [x], {"starts": [1], "ends": [2]}, opset=7)
    yield Case("Slice", [x, *(Const([v], "int32") for v in (1, 6, 2, 2))])


def _pads() -> Iterator[Case]:
    x = floats(2, 3, 4, 5)
    for pads in (
        (0, 0, 1, 1, 0, 0, 1, 1),
        (1, 2, 3, 4, 4, 3, 2, 1),
        (0, 0, -1, -2, 0, 0, 0, 1),
        (0,) * 8,
        (0, -1, 0, 3, 0, 2, -1, -2),
    ):
        yield Case("Pad", [x, ints(*pads)])
        yield Case("Pad", [x, ints(*pads), Const(-2.5)])
    yield Case("Pad", [x, ints(1, 2), Const(np.float32(-np.inf)), ints(-1)])
    yield Case("Pad", [x, ints(1, 0, 2, 1), None, ints(2, 1)])
    yield Case("Pad", [x], {"pads": [0, 1, 0, 0, 2, 0, 0, 1], "value": 3.0}, opset=10)
    yield Case("Pad", [x], {"pads": [0, 0, 0, 0, 0, 0, 0, 2]}, opset=7)
    yield Case("Pad", [floats(0, 3), ints(1, 0, 1, 2), Const(4.0)])
    yield Case("Pad", [floats(3), ints(-3, 0)])
    for mode in ("edge", "reflect", "wrap"):
        for pads in ((0, 0, 1, 1, 0, 0, 1, 2), (1, 0, 1, 0, 0, 2, 0, 0), (0, 0, -1, -2, 0, 0, 0, 1)):
            # onnxruntime cuts before it wraps around
            peer = mode != "wrap" or min(pads) >= 0
            yield Case("Pad", [x, ints(*pads)], {"mode": mode}, opset=19, onnxruntime=peer)
        for opset in (10, 11, 18) if mode != "wrap" else ():
            pads = [1, 0, 1, 0, 0, 2, 0, 0]
            operands, attrs = ([x], {"pads": pads}) if opset == 10 else ([x, ints(*pads)], {})
            yield Case("Pad", operands, {**attrs, "mode": mode}, opset=opset)
        yield Case("Pad", [x, ints(3, 5), None, ints(-2)], {"mode": mode}, opset=19, onnxruntime=False)
        yield Case("Pad", [of_dtype(x, "int8"), ints(1, 1), None, ints(1)], {"mode": mode}, opset=19)


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "Pad",
        [floats(1, 1, 1, 1, 3), np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 2])],
        host='operand 1 ("x1") is not a constant and is not computed from sizes',
    )
    yield Case("Concat", [np.array(["a"], object)] * 2, {"axis": 0}, host="its texts are only moved")
    yield Case("Tile", [floats(*(2,) * 5), ints(*(2,) * 5)], host="the copy has 10 dimensions, more than 8")


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from movement()
    yield from declined()
