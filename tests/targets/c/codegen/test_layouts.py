"""Chains of operators that meet in different memory orders: every relayout must be where it is needed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tinycomp
from tests.cases.values import floats
from tests.targets.c.harness import make_model, nodes_of
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.target import find

X = floats(1, 3, 6, 6)
W = {"w": floats(4, 3, 3, 3), "w2": floats(4, 4, 1, 1)}


FIRST, LAST = "c = Conv(x, w)", "y = Conv(u, w2)"
CHAINS = {
    "constants joined to channels": (
        f"{FIRST} d = Concat<axis = 1>(c, k) s = Softmax<axis = 1>(d) y = Conv(s, w3)",
        {"k": floats(1, 2, 4, 4), "w3": floats(2, 6, 1, 1)},
    ),
    "squeeze and excite": (
        f"{FIRST} m = ReduceMean(c, axes) g = Conv(m, w2) sg = Sigmoid(g) u = Mul(c, sg) {LAST}",
        {"axes": np.array([2, 3])},
    ),
    "a factor of lower rank": (f"{FIRST} u = Mul(c, k) {LAST}", {"k": floats(4, 1, 4)}),
    "an addend of higher rank": (f"{FIRST} y = Add(c, k)", {"k": floats(2, 1, 4, 1, 4)}),
    "a choice": (f"{FIRST} g = Greater(c, zero) u = Where(g, c, k) {LAST}", {"zero": floats(), "k": floats(4, 4)}),
    "halves": (
        f"{FIRST} a, b = Split<axis = 1, num_outputs = 2>(c) h = Mul(a, b) y = Conv(h, w3)",
        {"w3": floats(4, 2, 1, 1)},
    ),
    "shuffled channels": (
        f"{FIRST} r = Reshape(c, apart) t = Transpose<perm = [0, 2, 1, 3, 4]>(r) u = Reshape(t, together) {LAST}",
        {"apart": np.array([1, 2, 2, 4, 4]), "together": np.array([1, 4, 4, 4])},
    ),
    "a transposition that costs nothing": (
        f"{FIRST} t = Transpose<perm = [0, 2, 3, 1]>(c) y = Reshape(t, rows)", {"rows": np.array([-1, 4])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_chains(name, fed):
    """``fed``: the float operand called k comes from outside instead of being a constant."""
    text, constants = CHAINS[name]
    nodes = nodes_of(text)
    feeds = {"x": X} | ({"k": constants["k"]} if fed and "k" in constants else {})
    kept = {k: v for k, v in {**W, **constants}.items() if k not in feeds}
    outputs = [n for n in ("y", "c", "a", "t") if any(n in o.output for o in nodes)]
    model = make_model(nodes, feeds, kept, outputs)
    module, host = tinycomp.compile(model, strict=True), tinycomp.compile(model, "host", passes="")
    for found, wanted in zip(module.run(feeds).values(), host.run(feeds).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_a_constant_image_is_reordered(op):
    """Where nothing has been folded before, operands that are data may be constant."""
    made = "Conv(k, w)" if op == "Conv" else "MaxPool<kernel_shape = [2, 2]>(k)"
    constants = {"k": X} | ({"w": W["w"]} if op == "Conv" else {})
    model = make_model(
        nodes_of(f"c = {made} r = Relu(c) y = Add(r, x)"), {"x": np.array(1, np.float32)}, constants, ["y"], 17
    )
    passes = partitioning_passes([find("c")])
    found, wanted = (tinycomp.compile(model, passes=p)(np.float32(1)) for p in (passes, []))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_reductions_behind_a_convolution(rank, keepdims):
    """Over every set of axes; those that are too scattered in one of the memory orders are left to the host."""
    x, w = floats(2, 3, *(5, 4, 3)[: rank - 2]), floats(4, 3, *[1] * (rank - 2))
    for axes in (a for size in range(1, rank + 1) for a in itertools.combinations(range(rank), size)):
        nodes = nodes_of(f"{FIRST} y = ReduceMax<keepdims = {keepdims}>(c, axes)")
        model = make_model(nodes, {"x": x}, {"w": w, "axes": np.array(axes)}, ["y"])
        module, host = tinycomp.compile(model), tinycomp.compile(model, "host", passes="")
        np.testing.assert_allclose(module(x), host(x), rtol=1e-4, atol=1e-5, err_msg=str(axes))
        if rank < 5:
            assert not module.report().hosts, axes


def test_a_mean_of_the_image_needs_no_other_memory_order():
    text, constants = CHAINS["squeeze and excite"]
    module = tinycomp.compile(make_model(nodes_of(text), {"x": X}, {**W, **constants}, ["y"]), strict=True)
    kernels = [row.kernel for row in module.profile([X], runs=1).rows]
    assert kernels.count("copy") <= 2, kernels  # of the input and the result
