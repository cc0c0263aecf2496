"""Inputs that are made up for checks have sizes that the model's own conditions allow."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp.checking import fitting_feeds
from tinycomp.errors import TinycompWarning
from tinycomp.frontend import import_model

MODELS: Mapping[str, tuple[str, Mapping[str, tuple[int, ...]]]] = {
    "a kernel larger than a guess": (
        "(float[b,3,h,w] x, float[2,3,5,5] k) => (float[b,2,c,d] y) { y = Conv(x, k) }", {"x": (2, 3, 5, 5)},
    ),
    "several layers": (
        """(float[b,1,h,w] x, float[1,1,3,3] k) => (float[b,1,c,d] y)
        { t = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x)  u = Conv<strides=[2,2]>(t, k)  y = Conv(u, k) }""",
        {"x": (2, 1, 16, 16)},
    ),
    "dimensions without names": (
        "(float[?,3,?,?] x, float[2,3,4,4] k) => (float[?,2,?,?] y) { y = Conv(x, k) }", {"x": (2, 3, 4, 4)},
    ),
    "an equation": ("(float[n,m] x, float[3,k] w) => (float[n,k] y) { y = MatMul(x, w) }", {"x": (2, 3), "w": (3, 2)}),
    "a divisor": (
        "(float[n] x) => (float[4,a] y) <int64[2] s = {4, -1}> { y = Reshape(x, s) }", {"x": (4,)},
    ),
}  # fmt: skip


def read(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'.replace("?", '"?"'))


@pytest.mark.parametrize(("text", "shapes"), MODELS.values(), ids=MODELS)
def test_made_up_sizes_fit(text: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    feeds = fitting_feeds(import_model(read(text)))
    assert {name: feeds[name].shape for name in shapes} == shapes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tinycomp.compile(read(text), "c", verify=True)


@pytest.mark.parametrize(("text", "shapes"), MODELS.values(), ids=MODELS)
def test_costs_count_sizes_that_fit(text: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    report = tinycomp.compile(read(text), "c").report().to_dict()
    assert all(region["macs"] >= 0 for region in report["regions"])


def test_a_sample_is_no_fault_of_the_model() -> None:
    """Indices are made up blindly: the model is compiled, and what was not compared is said."""
    text = "(float[3] x, int64[2] i) => (float[2] y) <int64[1] far = {-9}> { j = Add(i, far)  y = Gather(x, j) }"
    with pytest.warns(TinycompWarning, match="verify=True compares no numbers"):
        module = tinycomp.compile(read(text), "c", verify=True)
    x, i = np.arange(3, dtype=np.float32), np.array([9, 11], np.int64)
    assert module(x, i).tolist() == [0, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tinycomp.compile(read(text), "c", verify={"x": x, "i": i})
