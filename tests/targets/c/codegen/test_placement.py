"""Where values lie: what is joined is computed in its place, and slices are read where they are."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from tests.cases.values import floats
from tests.targets.c.harness import Case, assert_close, compile_for, make_model, nodes_of

X = floats(2, 32, 9, 8)
WEIGHTS = {
    "w": floats(32, 32, 1, 1, seed=1),
    "w3": floats(32, 32, 3, 3, seed=2),
    "wide": floats(32, 64, 3, 3, seed=3),
    "dw": floats(32, 1, 3, 3, seed=4),
    "few": floats(8, 8, 3, 3, seed=5),
}


def kernels(module) -> collections.Counter[str]:
    """The kernel calls of a module that is one region, but for those that change the memory order at its borders."""
    (step,) = module._parts.plan.steps
    return collections.Counter(call.kernel for call in step.run.program.instructions)


SAME = "Conv<pads = [1, 1, 1, 1]>"
FIRST, OTHER, POOL = "a = Conv(x, w)", f"b = {SAME}(x, w3)", "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"
JOINED, SPLIT = "j = Concat<axis = 1>(a, b)", "p, q = Split<axis = 1, num_outputs = 2>(d)"
LAST = f"y = {SAME}(j, wide)"

# nodes, outputs, and how many copies are left: one where a row-major image enters and one where it leaves
GRAPHS = {
    "two convolutions are joined": (f"{FIRST} {OTHER} {JOINED} {LAST}", ["y"], 2),
    "a residual": (f"{FIRST} c = {SAME}(x, w3) b = Add(c, a) {JOINED} {LAST}", ["y"], 2),
    "a depthwise one and a pool": (
        f"a = Conv<group = 32, pads = [1, 1, 1, 1]>(x, dw) b = {POOL}(x) {JOINED} {LAST}", ["y"], 2,
    ),
    "one that grows": (
        f'c = Conv<strides = [1, 2]>(x, w) a = Resize<mode = "nearest">(c, , scales) b = {SAME}(a, w3) {JOINED} {LAST}',
        ["y"], 2,
    ),
    "read elsewhere too": (f"{FIRST} b = {SAME}(a, w3) {JOINED} {LAST}", ["y"], 2),
    "one value twice": (f"{FIRST} j = Concat<axis = 1>(a, a) {LAST}", ["y"], 3),
    "joined to what enters": (f"{FIRST} j = Concat<axis = 1>(x, a) {LAST}", ["y"], 3),
    "also an output": (f"{FIRST} {OTHER} {JOINED} {LAST}", ["y", "a"], 3),
    "nested": (f"{FIRST} {OTHER} {JOINED} k = Concat<axis = 1>(j, a) y = Conv(k, w96)", ["y"], 4),
    "slices are convolved and pooled": (
        f"d = Conv(x, double) {SPLIT} a = {SAME}(p, w3) b = {POOL}(q) {JOINED} {LAST}", ["y"], 2,
    ),
    "slices of few channels are moved first": (
        f"d = Conv(x, narrow) {SPLIT} a = {SAME}(p, few) y = Add(a, q)", ["y"], 3,
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
    text, outputs, copies = GRAPHS[name]
    nodes = nodes_of(text)
    used = {n for node_ in nodes for n in node_.input}
    constants = {n: w for n, w in WEIGHTS.items() if n in used}
    model = make_model(nodes, {"x": X}, constants, outputs)
    module = compile_for(model, strict=True)
    found, wanted = module.run({"x": X}), compile_for(model, "host").run({"x": X})
    for output in outputs:
        assert_close(found[output], wanted[output], Case("Conv", [], of_largest=1e-5), name)
    assert kernels(module)["copy"] == copies, kernels(module)


@pytest.mark.parametrize(
    ("text", "feeds", "constants"),
    [
        ("a = Gemm(x, w) b = Sigmoid(x) j = Concat<axis = 0>(a, b) y = Softmax(j)", {"x": floats(3, 8)},
            {"w": floats(8, 8)}),
        ("a = MatMul(x, r) b = MatMul(x, s) j = Concat<axis = -1>(a, b) y = Softmax(j)",
            {"x": floats(2, 5, 8), "r": floats(2, 8, 6), "s": floats(2, 8, 7)}, {}),
    ],
    ids=["parts of the slowest dimension", "products that write their columns of the whole"],
)  # fmt: skip
def test_what_needs_no_copy(text, feeds, constants):
    model = make_model(nodes_of(text), feeds, constants, ["y"])
    module = compile_for(model, strict=True)
    np.testing.assert_allclose(module.run(feeds)["y"], compile_for(model, "host").run(feeds)["y"], rtol=1e-4)
    assert not kernels(module)["copy"], kernels(module)
