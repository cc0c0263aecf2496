"""Layers that stay in float: by name, operator, position, predicate."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tests.quantization.networks import Picture, by_onnxruntime, decibels, images, residual
from tinycomp.data import digits, digits_model
from tinycomp.quantization import noise

PRODUCTS = ("first", "depthwise", "point", "last", "dense")


@pytest.mark.parametrize(
    ("keep", "floats"),
    [
        ((), set()),
        ("first", {"first"}),
        ("first_relu", {"first"}),
        ("first_relu:0", {"first"}),
        (["first", "dense"], {"first", "dense"}),
        ("d*", {"depthwise", "dense"}),
        ("Gemm", {"dense"}),
        ("Conv", {"first", "depthwise", "point", "last"}),
        ("last 3 conv", {"depthwise", "point", "last"}),
        ("Last 2 Convs", {"point", "last"}),
        ("first conv", {"first"}),
        (lambda node: node.attrs.get("group", 1) > 1, {"depthwise"}),
        ([lambda node: node.op == "Gemm", "first"], {"first", "dense"}),
        ("Add", set()),
    ],
)
def test_what_is_kept(keep, floats):
    picture = Picture(tinycomp.quantize(residual(), images(), keep_float=keep))
    assert {name for name in PRODUCTS if not picture.is_quantized(name)} == floats


def test_float_layers_read_and_give_float():
    picture = Picture(tinycomp.quantize(residual(), images(), keep_float="last 3 conv"))
    last = picture.node("last")
    assert all(operand in picture.constants for operand in last.input[1:])
    assert picture.maker[last.input[0]].op_type == "MaxPool"
    # From the image to the first layer, from there to float, and at the dense layer: it reads and it gives.
    assert picture.ops["QuantizeLinear"] == 4


def test_mixed_models_run():
    exact = tinycomp.compile(residual(), "host")(images()[0])
    model = tinycomp.quantize(residual(), images(), keep_float="last 3 conv")
    (reference,) = by_onnxruntime(model, {"x": images()[0]})
    assert decibels(exact, reference) > 30
    np.testing.assert_allclose(tinycomp.compile(model)(images()[0]), reference, atol=0.02)


def test_the_table_and_its_suggestion():
    images_, _ = digits()
    data = [images_[:40], images_[40:80]]
    table = noise(digits_model(), data, per_channel=False, reduce_range=True, inputs=1)
    assert [row.op for row in table.layers][:2] == ["Conv", "Conv"]
    assert all((row.weight is not None) == (row.op in ("Conv", "Gemm")) for row in table.layers)
    assert table.output < min(row.alone for row in table.layers)
    assert table.layers[0].weight == pytest.approx(40, abs=6)
    kept = table.suggest(2)
    products = [row for row in table.layers if row.weight is not None]
    assert min(products, key=lambda row: row.alone).name == kept[0]
    assert kept[0] in str(table) or not table.suggest()
    better = noise(digits_model(), data, per_channel=False, reduce_range=True, inputs=1, keep_float=kept)
    assert better.output > table.output
    assert {row.name for row in better.layers}.isdisjoint(kept)
    assert table.to_dict()["output"] == pytest.approx(table.output)


def test_the_table_needs_data_that_can_be_repeated():
    with pytest.raises(tinycomp.TinycompError, match=r"can be gone through once only.*found an iterator"):
        noise(digits_model(), iter([digits()[0][:4]]))
