"""Shapes and sizes, and what changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import ALONE, floats, ints


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
        yield Case("Squeeze", [floats(1, *shape), ints(0)])
        yield Case("Squeeze", [floats(1, *shape), np.array([0])])
        yield Case("Unsqueeze", [floats(*shape), ints(-1, 0)])
        yield Case("Unsqueeze", [floats(*shape), np.array([0])])
        yield Case("Dropout", [floats(*shape)], outputs=2)
        yield Case("Reshape", [floats(*shape), ints(-1)], onnxruntime=0 not in shape)
        yield Case("Reshape", [floats(*shape), np.array([-1])], onnxruntime=0 not in shape)
    for start, end in ((0, 2), (-2, 9), (1, -1), (2, 1)):
        yield Case("Shape", [floats(2, 3, 4)], {"start": start, "end": end})
    yield Case("Squeeze", [floats(1, 3, 1)])
    yield Case("Squeeze", [floats(1, 3, 1)], {"axes": [-1]}, 7, reference=False)
    yield Case("Dropout", [floats(3), Const(np.array(0.5, "f")), Const(np.array(False))])
    yield Case("Dropout", [floats(3)], {"ratio": 0.25}, 10)
    for axis in (0, 1, -1, 3):
        yield Case("Flatten", [floats(2, 3, 4)], {"axis": axis}, 13)
    for sizes in ((4, -1), (0, 0, 4), (0, -1), (24,), (2, 1, 12)):
        yield Case("Reshape", [floats(2, 3, 4), ints(*sizes)])
        yield Case("Reshape", [floats(2, 3, 4), np.array(sizes)])
    # What does not fit is said in the same words, known or only found in the run.
    for given in (lambda *v: ints(*v), lambda *v: np.array(v)):
        yield Case("Reshape", [floats(4), given(-5)], refused="Reshape")
        yield Case("Reshape", [floats(4), given(-1, -1)], refused="Reshape")
        yield Case("Reshape", [floats(4), given(3)], refused="Reshape")
        yield Case("Squeeze", [floats(2, 3), given(0)], refused="Squeeze")
        yield Case("Squeeze", [floats(2, 3), given(5)], refused="Squeeze")
        yield Case("Unsqueeze", [floats(2, 3), given(0, 0)], refused="Unsqueeze")
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
