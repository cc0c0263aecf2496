"""Sizes that follow from each other many times over, and values that lie in each other."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp.errors import MemoryLimitError


def model(inputs: str, body: list[str], output: str, initializers: str = "") -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["": 20]>'
    return onnx.parser.parse_model(f"{head} m ({inputs}) => ({output}) <{initializers}> {{ {' '.join(body)} }}")


def test_a_size_whose_text_doubles_with_every_step() -> None:
    steps = [
        f"s{i} = Shape(x{i}) h{i} = Div(s{i}, two) k{i} = Add(h{i}, one) x{i + 1} = Slice(x{i}, zero, k{i})"
        for i in range(14)
    ]
    numbers = "int64[1] two = {2}, int64[1] one = {1}, int64[1] zero = {0}"
    module = tinycomp.compile(model("float[a] x0", [*steps, "y = Neg(x14)"], "float[b] y", numbers))
    np.testing.assert_array_equal(module(np.arange(5000, dtype=np.float32)), [0, -1])


def test_a_result_of_concat_in_a_result_of_concat() -> None:
    steps = [f"x{i + 1} = Concat<axis = 0>(x{i}, z)" for i in range(300)]
    module = tinycomp.compile(model("float[a] x0, float[b] z", [*steps, "y = Neg(x300)"], "float[c] y"))
    expected = np.concatenate([[-5], np.full(600, -1)])
    np.testing.assert_array_equal(module(np.full(1, 5, np.float32), np.ones(2, np.float32)), expected)


def test_a_sum_of_many_sizes() -> None:
    inputs = [f"x{i}" for i in range(250)]
    body = [f"y = Concat<axis = 0>({', '.join(inputs)}) z = Neg(y)"]
    module = tinycomp.compile(model(", ".join(f"float[d{i}] {x}" for i, x in enumerate(inputs)), body, "float[n] z"))
    assert module(*[np.ones(i % 3, np.float32) for i in range(250)]).shape == (249,)


def test_sizes_that_double_beyond_all_memory() -> None:
    steps = [f"r{i} = Concat<axis = 0>(x{i}, x{i}) x{i + 1} = Neg(r{i})" for i in range(80)]
    with pytest.raises(MemoryLimitError):
        tinycomp.compile(model("float[a] x0", [*steps, "y = Exp(x80)"], "float[b] y"))
