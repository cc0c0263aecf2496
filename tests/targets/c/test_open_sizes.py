"""What an open size must not change: that nodes run on the target, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import tinycomp

ROWS = {
    "LayerNormalization of an open axis": (
        "float[n, l, k] x", "<float[3] w = {1, 2, 3}, float[3] b = {1, -1, 0}> { y = LayerNormalization(x, w, b) }",
        [(2, 5, 3), (1, 7, 3)],
    ),
    "LpPool": (
        "float[n, c, h, w] x",
        "{ y = LpPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], p = 3>(x) }",
        [(1, 2, 8, 9), (2, 1, 5, 4)],
    ),
    "LpPool, padded automatically": (
        "float[n, c, h, w] x",
        '{ y = LpPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_LOWER">(x) }',
        [(1, 2, 8, 9), (2, 1, 5, 4)],
    ),
    "ConvTranspose to a multiple of its size": (
        "float[n, c, h, w] x",
        "<float[2, 1, 3, 3] k = {1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 0, 1, 2, 3, 4, 5, 6, 7}>"
        '{ y = ConvTranspose<strides = [2, 2], auto_pad = "SAME_UPPER">(x, k) }',
        [(1, 2, 4, 5), (2, 2, 1, 3)],
    ),
    "QuantizeLinear along an open axis": (
        "float[n, c, h] x",
        "<float[3] s = {0.1, 0.2, 0.3}, int8[3] z = {1, 2, 3}>"
        "{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
        [(2, 3, 4), (1, 3, 7)],
    ),
}  # fmt: skip


def compiled(signature: str, text: str, target: str) -> tinycomp.Module:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> g ({signature}) => (float y) {text}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return tinycomp.compile(model, target)


@pytest.mark.parametrize("row", ROWS)
def test_nodes_with_open_sizes_run_on_the_target(row: str) -> None:
    signature, text, shapes = ROWS[row]
    module, host = (compiled(signature, text, target) for target in ("c", "host"))
    assert not module.report().hosts
    for shape in shapes:
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(module(x), host(x), rtol=1e-4, atol=1e-5)


def test_what_is_normalised_is_compared_in_the_run() -> None:
    signature, text, _ = ROWS["LayerNormalization of an open axis"]
    with pytest.raises(
        tinycomp.TinycompError, match=r"found shape \(2, 5, 4\)\. .*y \(LayerNormalization\): the scale"
    ):
        compiled(signature, text, "c")(np.zeros((2, 5, 4), np.float32))


@pytest.mark.parametrize("asked", [None, (2, 1, 9, 8)])
def test_an_open_image_is_unpooled_on_the_target(asked: tuple[int, ...] | None) -> None:
    signature = "float[n, c, h, w] x, int64[n, c, h, w] i" + (", int64[4] o" if asked else "")
    text = f"{{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i{', o' if asked else ''}) }}"
    x = np.random.default_rng(0).normal(size=(2, 1, 8, 6)).astype(np.float32)
    pool = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (float[n, c, h, w] x) => (float y, int64 i)'
        "{ y, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }"
    )
    for output in pool.graph.output:
        output.type.tensor_type.ClearField("shape")
    pooled, places = tinycomp.compile(pool, "c")(x)
    module, host = (compiled(signature, text, target) for target in ("c", "host"))
    assert not module.report().hosts
    given = (pooled, places, *([np.array(asked)] if asked else []))
    np.testing.assert_array_equal(module(*given), host(*given))
