"""What loops, scans and branches hand on, leave out and return unchanged, on targets and exported."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.parser import parse_model

import tinycomp
from tests.frontend.samples import run
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.passes.simplify import Simplify

NO_OPTIONS: dict[str, Any] = {}
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
RETURNED = {
    "what is around": """g (float[3, n] x, int64 t) => (float[3, n] z, float[r, 3, n] a) {
        w = Neg(x)
        z, a = Loop(t, , x) <body = b (int64 i, bool q, float[3, n] s) => (bool q2, float[3, n] s2, float[3, n] o) {
            q2 = Identity(q)  s2 = Tanh(s)  o = Identity(w)
        }>
    }""",
    "a constant": """g (float[3, 2] x, int64 t) => (float[3, 2] z, float[r, 2] a) <float[2] w = {1, 2}> {
        z, a = Loop(t, , x) <body = b (int64 i, bool q, float[3, 2] s) => (bool q2, float[3, 2] s2, float[2] o) {
            q2 = Identity(q)  s2 = Tanh(s)  o = Identity(w)
        }>
    }""",
    "what it gets": """g (float[3, 2] x, int64 t) => (float[3, 2] z, float[r, 3, 2] a, int64[r] k) {
        z, a, k = Loop(t, , x) <
            body = b (int64 i, bool q, float[3, 2] s) => (bool q2, float[3, 2] s2, float[3, 2] o, int64 j) {
                q2 = Identity(q)  s2 = Tanh(s)  o = Identity(s)  j = Identity(i)
            }
        >
    }""",
    "one value for two": """g (float[3, 2] x, int64 t)
        => (float[3, 2] z, float[3, 2] v, float[r, 3, 2] a, float[r, 3, 2] d) {
        z, v, a, d = Loop(t, , x, x) <
            body = b (int64 i, bool q, float[3, 2] s, float[3, 2] u)
                => (bool q2, float[3, 2] s2, float[3, 2] u2, float[3, 2] o, float[3, 2] o2) {
                q2 = Identity(q)  k = Tanh(s)  s2 = Identity(k)  u2 = Identity(k)  o = Identity(k)  o2 = Identity(u)
            }
        >
    }""",
    "slices": """g (float[2] x, float[k, 2] y) => (float[2] z, float[k, 2] a, float[k, 2] d) {
        w = Neg(x)
        z, a, d = Scan <num_scan_inputs = 1,
            body = b (float[2] s, float[2] r) => (float[2] s2, float[2] o, float[2] o2) {
                s2 = Tanh(s)  o = Identity(w)  o2 = Identity(r)
            }
        >(x, y)
    }""",
    "states, carried unchanged": """g (float[2, 2] x, float[2, 2] w, int64 t)
        => (float[2, 2] y, float[2, 2] v, float[k, 2, 2] a) {
        y, v, a = Loop(t, , x, w) <
            body = b (int64 i, bool q, float[2, 2] s, float[2, 2] u)
                => (bool q2, float[2, 2] s2, float[2, 2] u2, float[2, 2] o) {
                q2 = Identity(q)  two = Constant<value_int = 2>()
                s2, u2 = Loop(two, , s, u) <
                    body = c (int64 i2, bool p, float[2, 2] e, float[2, 2] f)
                        => (bool p2, float[2, 2] e2, float[2, 2] f2) {
                        p2 = Identity(p)  f2 = Identity(f)  m = MatMul(e, f)  e2 = Tanh(m)
                    }
                >
                o = Sub(s, u)
            }
        >
    }""",
    "nothing of one result": """g (float[3, n] x, int64 t) => (float[3, n] z, float[j, 3, n] c) {
        z, unread, c, also_unread = Loop(t, , x, x) <
            body = b (int64 i, bool q, float[3, n] s, float[u, n] v)
                => (bool q2, float[3, n] s2, float[u2, n] v2, float[3, n] o, float[3, n] o2) {
                q2 = Identity(q)  s2 = Tanh(s)  v2 = Concat<axis = 0>(v, s)  o = Exp(s)  o2 = Neg(s)
            }
        >
    }""",
}


class Writer:
    """Writes the text of random nodes, whose values all have the shape [n, m]."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def nodes(self, values: list[str], depth: int) -> list[str]:
        """Return the lines of some nodes that read ``values`` and add to them."""
        lines: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            kinds = [self.plain, self.plain, self.squeeze, *([self.choice, self.loop] if depth else [])]
            lines += self.rng.choice(kinds)(values, depth - 1)
        return lines

    def plain(self, values: list[str], depth: int) -> list[str]:
        made, operands = self.name("v"), [self.rng.choice(values) for _ in range(2)]
        op = self.rng.choice(["Neg", "Tanh", "Identity", "Add", "Sub", "Max"])
        values.append(made)
        return [f"{made} = {op}({', '.join(operands if op in ('Add', 'Sub', 'Max') else operands[:1])})"]

    def squeeze(self, values: list[str], depth: int) -> list[str]:
        """Write what PyTorch does, with something behind it that works on both ranks, and for no more than one."""
        x, r, made = self.rng.choice(values), self.name("r"), self.name("v")
        a, b, c, d, e, f, g = (self.name("u") for _ in range(7))
        back = self.rng.choice([f"{g} = Unsqueeze({f}, last)", f"{g} = Identity({f})"])
        values.append(made)
        return [
            f"{a} = Shape({x})", f"{b} = Gather({a}, one)", f"{c} = Equal({b}, one)",
            f"{r} = If({c}) <then_branch = {self.name('t')} () => (float[] {d}) {{ {d} = Squeeze({x}, last) }}, "
            f"else_branch = {self.name('e')} () => (float[] {e}) {{ {e} = Identity({x}) }}>",
            f"{f} = ReduceMax<keepdims = 0>({r})", back, f"{made} = Sub({x}, {g})",
        ]  # fmt: skip

    def choice(self, values: list[str], depth: int) -> list[str]:
        branches, made = [], self.name("v")
        for key in ("then_branch", "else_branch"):
            own = list(values)
            lines = self.nodes(own, depth)
            result = self.name("o")
            lines.append(f"{result} = Identity({self.rng.choice(own[-3:])})")
            branches.append(f"{key} = {self.name('b')} () => (float[n, m] {result}) {{ {' '.join(lines)} }}")
        values.append(made)
        return [f"{made} = If(flag) <{', '.join(branches)}>"]

    def loop(self, values: list[str], depth: int) -> list[str]:
        starts = [self.rng.choice(values) for _ in range(self.rng.randint(1, 3))]
        states = [self.name("s") for _ in starts]
        own = [*values, *states]
        lines = self.nodes(own, depth)
        more, trip, go = self.name("k"), self.name("i"), self.name("q")
        results = [self.name("o") for _ in starts]
        lines += [f"{more} = Identity({go})"]
        lines += [
            f"{made} = Identity({self.rng.choice([state, *own])})" for made, state in zip(results, states, strict=True)
        ]
        rows = [self.name("o")] if self.rng.random() < 0.5 else []
        lines += [f"{made} = Identity({self.rng.choice(own)})" for made in rows]
        formals = ", ".join(f"float[n, m] {name}" for name in states)
        outputs = ", ".join(f"float[n, m] {name}" for name in (*results, *rows))
        made, kept = [self.name("v") for _ in results], [self.name("w") for _ in rows]
        values += made
        loop = (
            f"{', '.join([*made, *kept])} = Loop(trips, , {', '.join(starts)}) <body = {self.name('b')} "
            f"(int64 {trip}, bool {go}, {formals}) => (bool {more}, {outputs}) {{ {' '.join(lines)} }}>"
        )
        if not rows:
            return [loop]
        total, other = self.name("v"), self.rng.choice(values)
        values.append(total)
        return [loop, f"{total}r = ReduceSum<keepdims = 0>({kept[0]}, first)", f"{total} = Add({total}r, {other})"]


@pytest.mark.parametrize("seed", range(12))
def test_random_bodies(seed: int) -> None:
    writer = Writer(seed)
    values = ["x", "y"]
    lines = writer.nodes(values, 2) + writer.loop(values, 1)
    text = (
        f"g (float[n, m] x, float[n, m] y, int64 trips, bool flag) => (float[n, m] z, float[n, m] {values[-2]})"
        f" <int64 one = {{1}}, int64[1] last = {{-1}}, int64[1] first = {{0}}>"
        f" {{ {' '.join(lines)} z = Identity({values[-1]}) }}"
    )
    model = parse_model(HEADER + text)
    modules = [tinycomp.compile(model, target) for target in ("c", ())]
    for n, m, trips, flag in ((2, 1, 0, True), (2, 3, 2, False), (1, 1, 1, True), (3, 2, 3, True)):
        feeds = {"x": floats(n, m), "y": -floats(n, m), "trips": np.array(trips), "flag": np.array(flag)}
        found = [module.run(feeds) for module in modules]
        # onnxruntime gives rows of no trips the size 0 wherever a body has symbols.
        expected = dict(zip(("z", values[-2]), run(model, feeds), strict=True)) if trips else found[1]
        for each in found:
            for name, value in expected.items():
                np.testing.assert_allclose(each[name], value, rtol=1e-4, atol=1e-5)


def floats(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def feeds_of(model: onnx.ModelProto, trips: int) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for each in model.graph.input:
        dims = [dim.dim_value or 2 for dim in each.type.tensor_type.shape.dim]
        feeds[each.name] = np.array(trips) if not dims else floats(*dims)
    return feeds


@pytest.mark.parametrize("case", RETURNED)
@pytest.mark.parametrize("target", ["c", ()])
def test_bodies_return_what_they_read(case: str, target: str | tuple[()]) -> None:
    model = parse_model(HEADER + RETURNED[case])
    names = [output.name for output in model.graph.output]
    for options in NO_OPTIONS, {"optimize": False}:
        module = tinycomp.compile(model, target, strict="c" in target and "Scan" not in RETURNED[case], **options)
        for trips in (3, 1, 0):
            feeds = feeds_of(model, trips)
            if trips or "y" not in feeds:
                for name, value in zip(names, run(model, feeds), strict=True):
                    found = module.run(feeds)[name]
                    assert found.shape == value.shape or not trips
                    np.testing.assert_allclose(found, value.reshape(found.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", RETURNED)
def test_a_simplified_body_that_is_exported_does_not_hand_on_its_inputs(case: str) -> None:
    model = parse_model(HEADER + RETURNED[case])
    graph = tinycomp.from_onnx(model)
    Simplify().run(graph)
    FoldConstants().run(graph)
    feeds = feeds_of(model, 3)
    for expected, found in zip(run(model, feeds), run(tinycomp.to_onnx(graph), feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_is_carried_unchanged_is_a_capture() -> None:
    module = tinycomp.compile(parse_model(HEADER + RETURNED["states, carried unchanged"]), ())
    loops = [node for _, node in module.graph.walk() if node.op == "Loop"]
    assert [len(node.inputs) - node.captures for node in loops] == [3, 3]
    assert [node.captures for node in loops] == [1, 1]


@pytest.mark.parametrize("target", ["c", ()])
def test_a_model_may_skip_the_first_result(target: str | tuple[()]) -> None:
    text = """g (float[3, n] x, int64 t) => (int64[3, 2] z, int64[r, 3, 2] a) <int64[1] k = {2}> {
        , z = TopK<axis = 1>(x, k)
        , a = Loop(t, , x) <body = b (int64 i, bool q, float[3, n] s) => (bool q2, float[3, n] s2, int64[3, 2] o) {
            q2 = Identity(q)  s2 = Neg(s)  , o = TopK<axis = 1>(s, k)
        }>
    }"""
    model = parse_model(HEADER + text)
    x = floats(3, 4)
    up, down = np.argsort(-x)[:, :2], np.argsort(x)[:, :2]
    for each in (model, tinycomp.to_onnx(tinycomp.from_onnx(model))):
        found = tinycomp.compile(each, target, strict=bool(target)).run({"x": x, "t": np.array(2)})
        np.testing.assert_array_equal(found["z"], up)
        np.testing.assert_array_equal(found["a"], [up, down])
    exported = run(tinycomp.to_onnx(tinycomp.from_onnx(model)), {"x": x, "t": np.array(2)})
    np.testing.assert_array_equal(exported[1], [up, down])
