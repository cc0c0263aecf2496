"""Shapes and sizes, and what changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import ALONE, floats, ints

NO_SHAPES = (
    ((-1, -1), r"not a shape; .* found \[-1, -1\]|more than one size of .* is -1; .*x1\[0\] = -1, x1\[1\] = -1"),
    ((-5,), r"not a shape; .* found \[-5\]|a size of the shape is negative: .*x1\[0\] = -5"),
    ((-2, 3), r"not a shape; .* found \[-2, 3\]|a size of the shape is negative: .*x1\[0\] = -2"),
    ((5,), r"expected 6 elements as in \[2, 3\]; found shape \[5\]|different numbers of elements; found x1\[0\] = 5"),
    ((4, -1), r"expected 6 elements as in \[2, 3\]; found shape|different numbers of elements; found x1\[0\] = 4"),
    ((0, 0, 0), r"a 0 (of .* )?copies a dimension that "),
)
"""What Reshape refuses to make of [2, 3], with the reason."""


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "Reshape",
        [floats(2, 3), np.array([1, 1, 1, 1, 1, 1, 1, 3, 2])],
        host='operand 1 ("x1") is not a constant and is not computed from sizes',
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    for shape in ((), (3,), (2, 0, 3), (2, 3, 4)):
        yield Case("Shape", [floats(*shape)])
        yield Case("Size", [floats(*shape)])
        yield Case("Identity", [np.full(shape, "a", object)])
        yield Case("Squeeze", [floats(1, *shape), ints(0)])
        yield Case("Squeeze", [floats(1, *shape), np.array([0])])
        yield Case("Unsqueeze", [floats(*shape), ints(-1, 0)])
        yield Case("Unsqueeze", [floats(*shape), np.array([0])])
        yield Case("Dropout", [floats(*shape)], outputs=2)
        yield Case("Reshape", [floats(*shape), ints(-1)], onnxruntime=0 not in shape)
        yield Case("Reshape", [floats(*shape), np.array([-1])], onnxruntime=0 not in shape)
    for start, end in ((0, 2), (-2, 9), (1, -1), (2, 1), (-9, 3)):
        yield Case("Shape", [floats(2, 3, 4)], {"start": start, "end": end})
    yield Case("Squeeze", [floats(1, 3, 1)])
    yield Case("Squeeze", [floats(1, 3, 1)], {"axes": [-1]}, 7, reference=False)
    yield Case("Dropout", [floats(3), Const(np.array(0.5, "f")), Const(np.array(False))])
    yield Case("Dropout", [floats(3)], {"ratio": 0.25}, 10)
    for axis in (0, 1, 2, 3, -1, -3):
        yield Case("Flatten", [floats(2, 3, 4)], {"axis": axis}, 13)
    yield Case("Flatten", [floats()], {"axis": 0}, 13)
    for opset in (5, 13, 14, 19, 21, 23, 24, 25):
        for sizes in ((4, -1), (0, 0, 4), (0, -1), (24,), (2, 1, 12), (0, 0, 2, 2)):
            yield Case("Reshape", [floats(2, 3, 4), ints(*sizes)], opset=opset)
            yield Case("Reshape", [floats(2, 3, 4), np.array(sizes)], opset=opset)
        yield Case("Reshape", [floats(0, 3), ints(0, 1, 3)], opset=opset)
    yield Case("Reshape", [floats(1), ints()])
    yield Case("Reshape", [floats(2, 3), np.array([6])])
    yield Case("Reshape", [floats(0, 3), ints(3, 0)], {"allowzero": 1})
    yield Case("Reshape", [floats(2, 0), ints(0, 0)], {"allowzero": 0})
    x = floats(1, 3, 1, 4)
    for axes in ([0], [-2], [0, 2], [2, 0]):
        yield Case("Squeeze", [x], {"axes": axes}, 11)
        yield Case("Squeeze", [x, ints(*axes)])
    yield Case("Squeeze", [x], opset=11)
    for axes in ([0], [-1], [0, 3], [3, 0], [1, 2]):
        yield Case("Unsqueeze", [x[0, :, 0]], {"axes": axes}, 11)
        yield Case("Unsqueeze", [x[0, :, 0], ints(*axes)])
    # Before version 12 ONNX does not say what the mask of an inference is; onnxruntime's is all False there.
    for opset in (7, 10, 12, 13, 22):
        yield Case("Dropout", [x], opset=opset, outputs=1 + (opset >= 12))
    for given in (lambda *v: ints(*v), lambda *v: np.array(v)):
        for sizes, why in NO_SHAPES:
            yield Case("Reshape", [floats(2, 3), given(*sizes)], refused=why)
        yield Case("Squeeze", [x, given(1)], refused=r"axis 1 of \[1, 3, 1, 4\] cannot be dropped")
        yield Case("Squeeze", [floats(2, 3), given(5)], refused=r"axes .*is out of range.* (found|=) 5")
        yield Case("Unsqueeze", [floats(2, 3), given(1, 1)], refused="axes names an axis twice")
        yield Case("Expand", [floats(2, 3), given(2, 4)], refused="Expand")
        yield Case("Tile", [floats(2, 3), given(2)], refused="Tile")
        yield Case("Tile", [floats(2, 3), given(2, 1)])
        yield Case("Expand", [floats(2, 1), given(3, 1, 4)])
        yield Case("Split", [floats(5), given(2, 3)], outputs=2)
        yield Case("Split", [floats(5), given(2, 2)], outputs=2, refused="Split")
        yield Case("Pad", [floats(2, 3), given(0, 1, 1, 0)])
        yield Case("Pad", [floats(2, 3), given(0, 1, 1)], refused="Pad")
        yield Case("Slice", [floats(5, 4), given(1), given(9), given(-1)])
        yield Case("Slice", [floats(5, 4), given(-1), given(-9), given(0), given(-2)])
        yield Case("Slice", [floats(5, 4), given(1), given(3), given(0), given(0)], refused="Slice")
        yield Case("TopK", [floats(3, 5), given(2)], outputs=2)
        yield Case("TopK", [floats(3, 5), given(2)], outputs=2, left_out=[0])
        yield Case("TopK", [floats(3, 5), given(2)], outputs=2, left_out=[1])
        yield Case("TopK", [floats(3, 5), given(6)], outputs=2, refused="TopK")
        yield Case("ReduceSum", [floats(3, 5), given(1)])
        yield Case("ReduceSum", [floats(3, 5), given(2)], refused="ReduceSum")
    for count, size in ((5, 7), (9, 2), (3, 0)):
        yield Case("Split", [floats(size)], {"num_outputs": count}, outputs=min(count, 5) if count == 5 else count,
                   **ALONE)  # fmt: skip
    yield from declined()
