from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ops.harness import allowed, check, run_ours, sample, versions
from tinycomp.errors import ExecutionError
from tinycomp.ops import OPS


@pytest.mark.parametrize(
    ("shape", "wanted", "attrs"),
    [
        ((2, 3, 4), [4, 6], {}), ((2, 3, 4), [0, -1], {}), ((2, 3, 4), [-1], {}), ((2, 3, 4), [0, 0, 2, 2], {}),
        ((), [1, 1], {}), ((1,), [], {}), ((0, 3), [3, 0], {"allowzero": 1}), ((0, 3), [0, 1, 3], {}),
        ((2, 0), [0, 0], {"allowzero": 0}),
    ],
)  # fmt: skip
def test_reshape(shape, wanted, attrs):
    check("Reshape", [sample("float32", shape), np.array(wanted, np.int64)], attrs, 14)
    if not attrs:
        for version in versions("Reshape", 5):
            check("Reshape", [sample("float32", shape), np.array(wanted, np.int64)], {}, version)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ([-1, -1], "not a shape; expected sizes of 0 or more and at most one -1; found [-1, -1]"),
        ([-2, 3], "not a shape; expected sizes of 0 or more and at most one -1; found [-2, 3]"),
        ([5], "the sizes do not fit; expected 6 elements as in [2, 3]; found shape [5]"),
        ([4, -1], "the sizes do not fit; expected 6 elements as in [2, 3]; found shape [4, -1]"),
        ([0, 0, 0], "a 0 copies a dimension that is not there; expected zeros among the first 2; found [0, 0, 0]"),
    ],
)  # fmt: skip
def test_reshape_rejects(wanted, text):
    with pytest.raises(ExecutionError, match=re.escape(text)):
        run_ours("Reshape", [np.zeros((2, 3), "f"), np.array(wanted)])


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_flatten(axis):
    check("Flatten", [sample("float32", (2, 3, 4))], {"axis": axis}, 13)
    for dtype in allowed("Flatten", 25):
        run_ours("Flatten", [sample(dtype, (2, 3, 4), 0, 0, 1)], {"axis": axis})


def test_flatten_of_a_scalar():
    check("Flatten", [np.array(3.0, "f")], {"axis": 0}, 13)


def test_squeeze_and_unsqueeze():
    x = sample("float32", (1, 3, 1, 4))
    for axes in ([0], [-2], [0, 2], [2, 0]):
        check("Squeeze", [x], {"axes": axes}, 11)
        check("Squeeze", [x, np.array(axes)], {}, 13)
    check("Squeeze", [x], {}, 11)
    check("Squeeze", [x], {}, 13)
    for axes in ([0], [-1], [0, 3], [3, 0], [1, 2]):
        check("Unsqueeze", [x[0, :, 0]], {"axes": axes}, 11)
        check("Unsqueeze", [x[0, :, 0], np.array(axes)], {}, 13)
    with pytest.raises(ExecutionError, match=r"axis 1 of \[1, 3, 1, 4\] cannot be dropped; expected 1; found 3"):
        run_ours("Squeeze", [x, np.array([1])])
    with pytest.raises(ExecutionError, match="axes names an axis twice"):
        run_ours("Unsqueeze", [x, np.array([1, 1])])


@pytest.mark.parametrize(
    "attrs", [{}, {"start": 1}, {"end": -1}, {"start": -2, "end": 10}, {"start": 2, "end": 1}, {"start": -9}]
)
def test_shape_of(attrs):
    check("Shape", [sample("float32", (2, 3, 4))], attrs, 15)


def test_shape_and_size():
    for shape in [(), (0,), (2, 3)]:
        check("Shape", [sample("float32", shape)], {}, 13)
        check("Size", [sample("float32", shape)], {}, 13)
        check("Identity", [sample("string", shape)], {}, 14)


@pytest.mark.parametrize("version", [7, 10, 12, 13, 22])
def test_dropout_at_inference(version):
    x = sample("float32", (3, 4))
    check("Dropout", [x], {}, version, outputs=1)
    # Before version 12 ONNX does not say what the mask of an inference is; onnxruntime's is all False there.
    if version >= 12:
        check("Dropout", [x], {}, version, outputs=2)
    mask = run_ours("Dropout", [x], {}, version, outputs=2)[1]
    assert mask.dtype == (np.float32 if version == 7 else np.bool_)
    assert mask.all()


def test_dropout_in_training():
    x = np.ones(4000, np.float32)
    y, mask = run_ours("Dropout", [x, np.array(0.25, "f"), np.array(True)], {"seed": 3}, outputs=2)
    assert mask.dtype == np.bool_
    assert abs(mask.mean() - 0.75) < 0.03
    np.testing.assert_allclose(y, np.where(mask, 4 / 3, 0), rtol=1e-6)
    assert not run_ours("Dropout", [x, np.array(1.0, "f"), np.array(True)], {})[0].any()


def test_traits():
    assert "structural" in OPS.find("Identity").traits
    assert "structural" in OPS.find("Dropout").traits
    assert "movement" in OPS.find("Reshape").traits
