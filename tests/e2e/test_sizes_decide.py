"""What sizes decide of bodies: branches that are never taken, and the results of loops without trips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx.numpy_helper import from_array
from onnx.parser import parse_model as parse

import tinycomp
from tests.frontend.samples import run
from tinycomp.errors import ExecutionError, TinycompError
from tinycomp.ir.verify import verify

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
SQUEEZE = (
    HEADER
    + """g (float[a, b, c] x) => (float[] y) <int64 two = {2}, int64 one = {1}, int64[1] axes = {2}> {
    s = Shape(x)  d = Gather(s, two)  q = Equal(d, one)
    r = If(q) <
        then_branch = t () => (float[] tr) { tr = Squeeze(x, axes) },
        else_branch = e () => (float[] er) { er = Identity(x) }
    >
    y = Relu(r)
}"""
)
NESTED_SQUEEZE = SQUEEZE.replace(
    "tr = Squeeze(x, axes)",
    """tr = If(q) <
        then_branch = tt () => (float[] ttr) { ttr = Squeeze(x, axes) },
        else_branch = te () => (float[] ter) { k = Concat<axis = 0>(s, axes)  ter = Squeeze(x, k) }
    >""",
)
IN_A_LOOP = (
    HEADER
    + """g (float[1, 4] x, int64 t) => (float[] y) <int64[1] axes = {0}, int64 zero = {0}, int64 one = {1}> {
    y = Loop(t, , x) <body = b (int64 i, bool q, float[p, 4] s) => (bool more, float[r, 4] out) {
        more = Identity(q)
        h = Shape(s)  rows = Gather(h, zero)  single = Equal(rows, one)
        k = If(single) <
            then_branch = t () => (float[] tr) { z = Squeeze(s, axes)  tr = Unsqueeze(z, axes) },
            else_branch = e () => (float[] er) { er = Neg(s) }
        >
        out = Concat<axis = 0>(k, s)
    }>
}"""
)


Target = str | tuple[()]


def floats(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize("text", [SQUEEZE, NESTED_SQUEEZE])
@pytest.mark.parametrize("target", ["c", ()])
@pytest.mark.parametrize("options", [{}, {"optimize": False}, {"verify": True}], ids=str)
def test_a_branch_that_is_never_taken_is_not_judged(text: str, target: Target, options: Any) -> None:
    model = parse(text)
    for size in (1, 2):
        feeds = {"x": floats(1, 4, size)}
        module = tinycomp.compile(model, target, shapes={"x": (1, 4, size)}, **options)
        np.testing.assert_array_equal(module.run(feeds)["y"], run(model, feeds)[0])
        if "optimize" not in options:
            assert not [node for _, node in module.graph.walk() if node.op == "If"]


def test_a_branch_that_is_never_taken_is_kept_as_it_is() -> None:
    graph = tinycomp.from_onnx(parse(SQUEEZE), shapes={"x": (1, 4, 2)})
    verify(graph)
    (node,) = [node for node in graph.nodes if node.op == "If"]
    assert node.possible_bodies.keys() == {"else_branch"}
    assert str(node.output.type) == "float32[1, 4, 2]"
    x = floats(1, 4, 2)
    np.testing.assert_array_equal(tinycomp.compile(tinycomp.to_onnx(graph))(x), np.maximum(x, 0))


@pytest.mark.parametrize("target", ["c", ()])
def test_a_branch_that_the_first_trip_alone_leaves_out_is_typed(target: Target) -> None:
    model = parse(IN_A_LOOP)
    module = tinycomp.compile(model, target)
    for trips in (0, 1, 3):
        feeds = {"x": floats(1, 4), "t": np.array(trips)}
        np.testing.assert_array_equal(module.run(feeds)["y"], run(model, feeds)[0])


ROWS = (
    HEADER
    + """g (float[n] x, float[3, m] w, int64 t) => (float[n] f, float[k, n] c, float[j, d, e] v) <int64[1] a = {0}> {
    f, ys, v = Loop(t, , x) <
        body = b (int64 i, bool q, float[n] s) => (bool q2, float[n] s2, float[n] s, float[d, e] o) {
        q2 = Identity(q)  s2 = Neg(s)  o = Concat<axis = 1>(w, w)
    }>
    u = Unsqueeze(x, a)  c = Concat<axis = 0>(ys, u)
}"""
)
SCANNED = (
    HEADER
    + """g (float[n] x, float[r, n] rows) => (float[n] f, float[n, r, 2] c) <int64[1] a = {1}> {
    f, ys = Scan <num_scan_inputs = 1, scan_output_axes = [1],
        body = b (float[n] s, float[n] row) => (float[n] s2, float[n, 2] o) {
        s2 = Add(s, row)  u = Unsqueeze(s, a)  o = Concat<axis = 1>(u, u)
    }>(x, rows)
    c = Identity(ys)
}"""
)


@pytest.mark.parametrize("target", ["c", ()])
def test_a_loop_without_trips_gives_rows_of_the_size_that_follows(target: Target, tmp_path: Path) -> None:
    module = tinycomp.compile(parse(ROWS), target)
    module.save(tmp_path / "m.tcm")
    for each in (module, tinycomp.load(tmp_path / "m.tcm")):
        for trips in (0, 2, 0):
            x = floats(2)
            found = each.run({"x": x, "w": floats(3, 5), "t": np.array(trips)})
            assert [found[name].shape for name in "fcv"] == [(2,), (trips + 1, 2), (trips, 3, 10)]
            np.testing.assert_array_equal(found["c"][-1], x)


@pytest.mark.parametrize("target", ["c", ()])
def test_a_scan_of_nothing_gives_rows_of_the_size_that_follows(target: Target) -> None:
    module = tinycomp.compile(parse(SCANNED), target)
    for length in (0, 2):
        found = module.run({"x": floats(3), "rows": floats(length, 3)})
        assert [found[name].shape for name in "fc"] == [(3,), (3, length, 2)]


WANTED = (
    HEADER
    + """g (float[n] x, float[m] y, bool q, int64 t) => (float z, float[n] s) {
    z = If(q) <
        then_branch = yes () => (float tr) { [both] a = Add(x, y)  tr = ReduceSum<keepdims = 0>(a) },
        else_branch = no () => (float er) { er = ReduceMax<keepdims = 0>(x) }
    >
    s = Loop(t, , x) <body = b (int64 i, bool go, float[n] v) => (bool more, float[n] w) {
        more = Identity(go)  h = ReduceMax<keepdims = 0>(y)  k = Add(v, h)  d = Sub(v, y)  w = Max(k, d)
    }>
}"""
)


@pytest.mark.parametrize("target", ["c", ()])
def test_what_a_body_wants_of_sizes_counts_where_it_runs(target: Target) -> None:
    module = tinycomp.compile(parse(WANTED), target)
    if target:
        assert not module.report().hosts
    for other, taken, trips in ((3, True, 2), (2, False, 0), (1, True, 1)):
        feeds = {"x": floats(3), "y": floats(other), "q": np.array(taken), "t": np.array(trips)}
        for name, value in zip("zs", run(parse(WANTED), feeds), strict=True):
            np.testing.assert_allclose(module.run(feeds)[name], value, rtol=1e-6)
    for taken, trips, node in ((True, 0, "both"), (False, 1, "d")):
        feeds = {"x": floats(3), "y": floats(2), "q": np.array(taken), "t": np.array(trips)}
        with pytest.raises(ExecutionError, match=rf"{node} \(.*the operands do not broadcast"):
            module.run(feeds)


VOICE = (
    HEADER
    + """g (float[b, 4, c] x, float[2, b, 3] state) => (float[b, o] y, float[2, b, 3] next)
    <int64 two = {2}, int64 one = {1}, int64[1] first = {0}, int64[1] last = {-1}, int64 three = {3}, int64 zero = {0}>
{
    s = Shape(x)  d = Gather(s, two)  q = Equal(d, one)
    r = If(q) <
        then_branch = t () => (float[] tr) { tr = Squeeze(x, last) },
        else_branch = e () => (float[] er) { er = Identity(x) }
    >
    h = Gather(state, zero)  k = Gather(state, one)  h3 = Unsqueeze(h, first)  k3 = Unsqueeze(k, first)
    p = Transpose<perm = [1, 0]>(r)  m = Transpose<perm = [1, 0]>(p)
    rs = Shape(m)  n = Size(rs)  is3 = Equal(n, three)  flat = Not(is3)
    seq = If(flat) <
        then_branch = t2 () => (float[] tr2) { tr2 = Unsqueeze(m, first) },
        else_branch = e2 () => (float[] er2) { er2 = Identity(m) }
    >
    lstm, hn, cn = LSTM <hidden_size = 3> (seq, W, R, , , h3, k3)
    out = If(flat) <
        then_branch = t3 () => (float[] tr3) { a = Squeeze(hn, first)  tr3 = Relu(a) },
        else_branch = e3 () => (float[] er3) { er3 = Relu(lstm) }
    >
    y = Sigmoid(out)
    next = Concat<axis = 0>(hn, cn)
}"""
)


@pytest.mark.parametrize("target", ["c", ()])
def test_a_squeeze_of_an_open_size_leaves_nothing_on_the_host(target: Target, tmp_path: Path) -> None:
    model = parse(VOICE)
    weights = [("W", (1, 12, 4)), ("R", (1, 12, 3))]
    model.graph.initializer.extend(from_array(floats(*shape), name) for name, shape in weights)
    module = tinycomp.compile(model, target, strict=bool(target))
    if target:
        assert len(module.report().regions) == 1
    module.save(tmp_path / "m.tcm")
    for each in (module, tinycomp.load(tmp_path / "m.tcm")):
        for batch in (1, 3):
            feeds = {"x": floats(batch, 4, 1), "state": floats(2, batch, 3)}
            for name, value in zip(("y", "next"), run(model, feeds), strict=True):
                np.testing.assert_allclose(each.run(feeds)[name], value, rtol=1e-5, atol=1e-6)
        with pytest.raises(TinycompError, match=r"lstm \(LSTM|does not fit"):
            each.run({"x": floats(1, 4, 2), "state": floats(2, 1, 3)})


@pytest.mark.parametrize("target", ["c", ()])
@pytest.mark.parametrize("options", [{}, {"specialize": True}, {"verify": True}], ids=str)
def test_what_follows_branches_of_differing_ranks_runs_in_each(target: Target, options: Any) -> None:
    model = parse(SQUEEZE)
    module = tinycomp.compile(model, target, **options)
    if target:
        assert [row.op for row in module.report().hosts] == ["If"]
    for size in (2, 1, 3):
        feeds = {"x": floats(2, 4, size)}
        np.testing.assert_array_equal(module.run(feeds)["y"], run(model, feeds)[0])


EQUAL = (
    HEADER
    + """g (float[a, 2] x) => (float[a, 2] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] axes = {0}, float[2, 2] w = {1, 2, 3, 4}>
{
    s = Shape(x)  d = Gather(s, zero)  q = Equal(d, one)
    r = If(q) <
        then_branch = t () => (float[a, 2] tr) { k = Squeeze(x, axes)  u = Unsqueeze(k, axes)  tr = Tanh(u) },
        else_branch = e () => (float[a, 2] er) { er = MatMul(x, w) }
    >
    y = Relu(r)
}"""
)


@pytest.mark.parametrize("options", [{}, {"specialize": True}, {"verify": True}], ids=str)
def test_a_size_that_the_condition_asks_for_is_one_size_behind_the_branches(options: Any) -> None:
    model = parse(EQUAL)
    module = tinycomp.compile(model, "c", strict=True, **options)
    assert len(module.report().regions) == 1
    for rows in (1, 3, 1):
        np.testing.assert_allclose(module(x := floats(rows, 2)), run(model, {"x": x})[0], rtol=1e-6)
