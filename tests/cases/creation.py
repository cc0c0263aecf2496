"""What makes tensors out of sizes and limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import ALONE, floats, ints

LIMITS = [(0, 5, 1), (5, 0, -2), (0, 5, 2), (3, 3, 1), (5, 0, 1), (-3, 4, 3)]


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    for limits in LIMITS:
        for dtype in ("int32", "int64", "float32", "float64"):
            given = [np.array(v, dtype) for v in limits]
            yield Case("Range", given)
            yield Case("Range", [Const(v) for v in given])
    yield Case("Range", [np.array(v, np.float32) for v in (0, 1, 0.1)])
    yield Case("Range", [np.array(v) for v in (2**63 - 3, 2**63 - 1, 1)], **ALONE)
    yield Case("Range", [np.array(v) for v in (0, 5, 0)], refused="the step is 0; expected a step other than 0")
    yield Case("Range", [np.array(v) for v in (-(2**63), 2**63 - 1, 1)], refused="Range")
    for shape in ([2, 3], [0, 2], [], [1]):
        for wanted in (np.array(shape, np.int64), ints(*shape)):
            yield Case("ConstantOfShape", [wanted])
            yield Case("ConstantOfShape", [wanted], {"value": np.array([3], np.int8)})
    yield Case("ConstantOfShape", [np.array([-1])], refused="negative")
    yield Case("ConstantOfShape", [ints(-1)], refused="negative")
    values = {"value_float": 2.5, "value_int": -3, "value_floats": [1.0, 2.5], "value_ints": [1, 2]}
    for attrs in (*({k: v} for k, v in values.items()), {"value": floats(2, 3)}, {"value": np.array(True)}):
        yield Case("Constant", [], attrs)
    for k in (0, 1, -2, 9, -9):
        yield Case("EyeLike", [floats(3, 4)], {"k": k}, 22)
    yield Case("EyeLike", [floats(3)], refused="EyeLike")
    yield Case("CenterCropPad", [floats(4, 5), ints(2, 7)], onnxruntime=False)
    yield Case("CenterCropPad", [floats(4, 5), np.array([2])], {"axes": [-1]}, onnxruntime=False)
    yield Case("CenterCropPad", [floats(4, 5), ints(-2, 3)], refused="CenterCropPad")
    yield Case("CenterCropPad", [floats(4, 5), np.array([-2, 3])], refused="CenterCropPad.*a size is negative")
    yield Case("HannWindow", [np.array(-5)], refused="HannWindow.*size is out of range")
    for align in (0, 1):
        attrs = {"align_corners": align}
        yield Case("AffineGrid", [floats(2, 2, 3), ints(2, 3, 4, 5)], attrs, onnxruntime=False)
        yield Case("AffineGrid", [floats(2, 2, 3), np.array([2, 3, 4, 5])], attrs, onnxruntime=False)
        yield Case("AffineGrid", [floats(2, 3, 4), ints(2, 3, 3, 4, 5)], attrs, onnxruntime=False)
    yield Case("AffineGrid", [floats(2, 2, 3), ints(2, 3, -4, 5)], refused="AffineGrid")
    yield Case("AffineGrid", [floats(2, 2, 3), np.array([2, 3, -4, 5])], refused="AffineGrid.*a size is negative")
    mel = [np.array(v) for v in (4, 16, 8000)] + [np.array(v, np.float32) for v in (0.0, 4000.0)]
    yield Case("MelWeightMatrix", mel)
    yield Case("MelWeightMatrix", [Const(v) for v in mel])
    yield Case(
        "MelWeightMatrix", [mel[0], mel[1], np.array(0), *mel[3:]], refused="MelWeightMatrix.*sample_rate is out"
    )
    yield Case(
        "MelWeightMatrix", [Const(v) for v in (mel[0], mel[1], np.array(0), *mel[3:])], refused="MelWeightMatrix"
    )
