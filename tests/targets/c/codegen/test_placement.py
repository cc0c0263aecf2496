"""Where values lie: what is joined is computed in its place, and slices are read where they are."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from onnx import helper

from tests.cases.values import floats
from tests.targets.c.harness import Case, assert_close, compile_for, make_model

X = floats(2, 32, 9, 8)
SAME = {"pads": [1, 1, 1, 1]}
WEIGHTS = {
    "w": floats(32, 32, 1, 1, seed=1),
    "w3": floats(32, 32, 3, 3, seed=2),
    "wide": floats(32, 64, 3, 3, seed=3),
    "dw": floats(32, 1, 3, 3, seed=4),
    "few": floats(8, 8, 3, 3, seed=5),
}


def node(op, inputs, output, **attrs):
    return helper.make_node(op, inputs, output.split(), name=output.split()[0], **attrs)


def joined(*parts, output="j"):
    return node("Concat", parts, output, axis=1)


def kernels(module) -> collections.Counter[str]:
    """The kernel calls of a module that is one region, but for those that change the memory order at its borders."""
    (step,) = module._parts.plan.steps
    return collections.Counter(call.kernel for call in step.run.program.instructions)


FIRST, OTHER = node("Conv", ["x", "w"], "a"), node("Conv", ["x", "w3"], "b", **SAME)
LAST = node("Conv", ["j", "wide"], "y", **SAME)

# nodes, outputs, and how many copies are left: one where a row-major image enters and one where it leaves
GRAPHS = {
    "two convolutions are joined": ([FIRST, OTHER, joined("a", "b"), LAST], ["y"], 2),
    "a residual": (
        [FIRST, node("Conv", ["x", "w3"], "c", **SAME), node("Add", ["c", "a"], "b"), joined("a", "b"), LAST],
        ["y"],
        2,
    ),
    "a depthwise one and a pool": (
        [
            node("Conv", ["x", "dw"], "a", group=32, **SAME),
            node("MaxPool", ["x"], "b", kernel_shape=[3, 3], **SAME),
            joined("a", "b"),
            LAST,
        ],
        ["y"],
        2,
    ),
    "one that grows": (
        [
            node("Conv", ["x", "w"], "c", strides=[1, 2]),
            node("Resize", ["c", "", "scales"], "a", mode="nearest"),
            node("Conv", ["a", "w3"], "b", **SAME),
            joined("a", "b"),
            LAST,
        ],
        ["y"],
        2,
    ),
    "read elsewhere too": ([FIRST, node("Conv", ["a", "w3"], "b", **SAME), joined("a", "b"), LAST], ["y"], 2),
    "one value twice": ([FIRST, joined("a", "a"), LAST], ["y"], 3),
    "joined to what enters": ([FIRST, joined("x", "a"), LAST], ["y"], 3),
    "also an output": ([FIRST, OTHER, joined("a", "b"), LAST], ["y", "a"], 3),
    "nested": ([FIRST, OTHER, joined("a", "b"), joined("j", "a", output="k"), node("Conv", ["k", "w96"], "y")], ["y"],
        4),
    "slices are convolved and pooled": (
        [
            node("Conv", ["x", "double"], "d"),
            node("Split", ["d"], "p q", axis=1, num_outputs=2),
            node("Conv", ["p", "w3"], "a", **SAME),
            node("MaxPool", ["q"], "b", kernel_shape=[3, 3], **SAME),
            joined("a", "b"),
            LAST,
        ],
        ["y"],
        2,
    ),
    "slices of few channels are moved first": (
        [
            node("Conv", ["x", "narrow"], "d"),
            node("Split", ["d"], "p q", axis=1, num_outputs=2),
            node("Conv", ["p", "few"], "a", **SAME),
            node("Add", ["a", "q"], "y"),
        ],
        ["y"],
        3,
    ),
}  # fmt: skip
WEIGHTS |= {
    "scales": np.array([1, 1, 1, 2], np.float32),
    "w96": floats(16, 96, 1, 1, seed=6),
    "double": floats(64, 32, 1, 1),
    "narrow": floats(16, 32, 1, 1),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_copies_that_are_left(name):
    nodes, outputs, copies = GRAPHS[name]
    used = {n for node_ in nodes for n in node_.input}
    constants = {n: w for n, w in WEIGHTS.items() if n in used}
    model = make_model(nodes, {"x": X}, constants, outputs)
    module = compile_for(model, strict=True)
    found, wanted = module.run({"x": X}), compile_for(model, "host").run({"x": X})
    for output in outputs:
        assert_close(found[output], wanted[output], Case("Conv", [], of_largest=1e-5), name)
    assert kernels(module)["copy"] == copies, kernels(module)


def test_parts_of_the_slowest_dimension_need_no_copy():
    nodes = [
        node("Gemm", ["x", "w"], "a"),
        node("Sigmoid", ["x"], "b"),
        node("Concat", ["a", "b"], "j", axis=0),
        node("Softmax", ["j"], "y"),
    ]
    model = make_model(nodes, {"x": floats(3, 8)}, {"w": floats(8, 8)}, ["y"])
    module = compile_for(model, strict=True)
    feeds = {"x": floats(3, 8)}
    np.testing.assert_allclose(module.run(feeds)["y"], compile_for(model, "host").run(feeds)["y"], rtol=1e-5)
    assert not kernels(module)["copy"], kernels(module)


def test_products_write_their_columns_of_the_whole():
    nodes = [
        node("MatMul", ["x", "r"], "a"),
        node("MatMul", ["x", "s"], "b"),
        node("Concat", ["a", "b"], "j", axis=-1),
        node("Softmax", ["j"], "y"),
    ]
    feeds = {"x": floats(2, 5, 8), "r": floats(2, 8, 6), "s": floats(2, 8, 7)}
    model = make_model(nodes, feeds, {}, ["y"])
    module = compile_for(model, strict=True)
    np.testing.assert_allclose(module.run(feeds)["y"], compile_for(model, "host").run(feeds)["y"], rtol=1e-4)
    assert not kernels(module)["copy"], kernels(module)
