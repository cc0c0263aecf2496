"""Sizes that follow from each other many times over, and values that lie in each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tinycomp.errors import MemoryLimitError


def model(inputs: str, body: list[str], output: str, initializers: str = "") -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["": 20]>'
    return onnx.parser.parse_model(f"{head} m ({inputs}) => ({output}) <{initializers}> {{ {' '.join(body)} }}")


@pytest.mark.long
def test_a_size_whose_text_doubles_with_every_step() -> None:
    steps = [
        f"s{i} = Shape(x{i}) h{i} = Div(s{i}, two) k{i} = Add(h{i}, one) x{i + 1} = Slice(x{i}, zero, k{i})"
        for i in range(14)
    ]
    numbers = "int64[1] two = {2}, int64[1] one = {1}, int64[1] zero = {0}"
    module = tinycomp.compile(model("float[a] x0", [*steps, "y = Neg(x14)"], "float[b] y", numbers))
    np.testing.assert_array_equal(module(np.arange(5000, dtype=np.float32)), [0, -1])


def test_images_that_are_filled_up_to_whole_windows_are_one_region() -> None:
    """As Swin and its like cut any image into windows, and roll what they cut."""
    body = [
        "s = Shape(x)  h = Slice(s, one, two)  g = Mod(h, eight)  f = Sub(eight, g)  more = Mod(f, eight)",
        "pads = Concat<axis = 0>(zero, zero, zero, more)  p = Pad(x, pads)",
        "back = Slice(p, two, far, one)  front = Slice(p, zero, two, one)  rolled = Concat<axis = 1>(back, front)",
        "q = Shape(rolled)  full = Slice(q, one, two)  count = Div(full, eight)  n = Slice(q, zero, one)",
        "shape = Concat<axis = 0>(n, count, eight)  w = Reshape(rolled, shape)  y = Neg(w)",
    ]
    numbers = ", ".join(
        f"int64[1] {name} = {{{number}}}"
        for name, number in {"zero": 0, "one": 1, "two": 2, "eight": 8, "far": 2**63 - 1}.items()
    )
    module = tinycomp.compile(model("float[batch, pixels] x", body, "float[batch, windows, 8] y", numbers))
    assert module.outputs[0].shape == ("batch", "(pixels + 7)//8", 8)
    report = module.report()
    assert (len(report.regions), len(report.hosts)) == (1, 0), str(report)
    for pixels in (1, 7, 8, 9, 20):
        x = np.arange(2 * pixels, dtype=np.float32).reshape(2, pixels)
        filled = np.pad(x, [(0, 0), (0, -pixels % 8)])
        np.testing.assert_array_equal(module(x), -np.roll(filled, -2, 1).reshape(2, -1, 8))


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


def test_sizes_that_are_too_long_for_a_dimension_have_names_in_a_program(tmp_path: Path) -> None:
    """Each dimension of each Reshape may be copied, or follow from all others."""
    shapes = [f"the_shape_of_step_{i}" for i in range(4)]
    steps = [f"r{i} = Reshape(t{i}, {shape}) t{i + 1} = Transpose(r{i})" for i, shape in enumerate(shapes)]
    inputs = ", ".join(["float[n, m] t0", *(f"int64[4] {shape}" for shape in shapes)])
    module = tinycomp.compile(model(inputs, [*steps, "y = Neg(t4)"], "float[a, b, c, d] y"))
    assert not module.report().hosts
    module.save(tmp_path / "m.tcm")
    x, wanted = (
        np.arange(24, dtype=np.float32).reshape(6, 4),
        [(2, 3, -1, 1), (0, 3, -1, 2), (2, 0, 1, -1), (1, 2, 3, 4)],
    )
    y = x
    for shape in wanted:
        copied = [y.shape[i] if size == 0 else size for i, size in enumerate(shape)]
        y = y.reshape(copied).T
    for each in (module, tinycomp.load(tmp_path / "m.tcm")):
        np.testing.assert_array_equal(each(x, *(np.array(shape) for shape in wanted)), -y)


def test_many_loops_within_each_other_are_typed_in_time() -> None:
    """Each level has a state that grows, so that its shape is settled in several rounds, each over all inner levels."""
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("s", "x", "t")]
    nodes = [helper.make_node("Concat", ["s", "s"], ["t"], axis=0)]
    for _ in range(24):
        body = helper.make_graph(nodes, "body", values[:2], [*values[2:], values[1]])
        scan = helper.make_node("Scan", ["s", "x"], ["u", "ys"], num_scan_inputs=1, body=body)
        nodes = [scan, helper.make_node("Concat", ["u", "u"], ["t"], axis=0)]
    inputs = [
        helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [1]),
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1] * 25),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "deep", inputs, values[2:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    graph = tinycomp.from_onnx(model)
    assert graph.outputs[0].rank in (1, None)
