"""If and Loop inside regions of the C target: what runs there, against the host, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tinycomp
from tests.host_only import DOMAIN, NAME, QUALIFIED
from tinycomp.errors import ExecutionError, MemoryLimitError
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.regions import NativeRegion
from tinycomp.target import Policy


def model(text: str, **constants: Any) -> onnx.ModelProto:
    """Return the graph of a text as a model, with further constants."""
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items())
    return proto


def body(state: str, results: str, nodes: str, constants: str = "") -> str:
    """Return the body of a loop that goes on."""
    state, results = (f", {each}" if each else "" for each in (state, results))
    return f"body = b (int64 i, bool c{state}) => (bool c2{results}) <{constants}> {{ c2 = Identity(c) {nodes} }}"


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def compiled(proto: onnx.ModelProto, regions: int = 1, **options: Any) -> Module:
    """Compile for the C target; everything must run there, in so many regions."""
    module = tinycomp.compile(proto, "c", strict=True, **options)
    assert len(module.report().regions) == regions
    return module


def check(proto: onnx.ModelProto, *feeds: Mapping[str, Any], regions: int = 1) -> Module:
    """Compare the C target with the host, in one run after the other, and return the module."""
    host = tinycomp.compile(proto, "host")
    module = compiled(proto, regions)
    for feed in feeds:
        arrays = {name: np.asarray(value) for name, value in feed.items()}
        expected = host.run(arrays)
        found = module.run(arrays)
        for name, value in expected.items():
            assert found[name].shape == value.shape, name
            assert found[name].dtype == value.dtype, name
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
    return module


def program_of(module: Module) -> Program:
    (step,) = [step for step in module._parts.plan.steps if isinstance(step.run, NativeRegion)]
    return step.run.program


def counting() -> onnx.ModelProto:
    """A state that a captured value is added to, with a row of scan output per trip."""
    adding = body("float[n, 4] s", "float[n, 4] s2, float[n, 4] row", "s2 = Add(s, x) row = Mul(s2, k)")
    return model(f"""(float[n, 4] s0, float[n, 4] x, int64 m) => (float[n, 4] last, float[t, n, 4] rows)
        <float[4] k = {{1, 2, 3, 4}}> {{ s1 = Relu(s0) last, rows = Loop(m, , s1) <{adding}> }}""")


def counting_feeds(rows: int, trips: int) -> dict[str, Any]:
    return {"s0": floats(rows, 4), "x": floats(rows, 4, seed=1), "m": np.int64(trips)}


def growing() -> onnx.ModelProto:
    """A state that grows by a row per trip until its sum is large enough."""
    return model("""(float[n, 4] s0, float[1, 4] x, float limit) => (float[r, 4] y) {
        last = Loop(, , s0) <body = b (int64 i, bool c, float[p, 4] s) => (bool c2, float[q, 4] s2)
            { s2 = Concat<axis = 0>(s, x) total = ReduceSum<keepdims = 0>(s2) c2 = Less(total, limit) }>
        y = Relu(last) }""")


def growing_feeds(rows: int, limit: float) -> dict[str, Any]:
    return {"s0": np.abs(floats(rows, 4)), "x": np.full((1, 4), 0.5, np.float32), "limit": np.float32(limit)}


def test_a_loop_counts_its_trips():
    sizes = ((3, 5), (3, 0), (7, 2), (1, 40), (0, 3), (3, 1))
    check(counting(), *[counting_feeds(*each) for each in sizes])


def test_a_condition_ends_a_loop():
    check(growing(), *[growing_feeds(*each) for each in ((3, 50), (0, 10), (2, 0), (2, 1000))], regions=2)


def test_a_loop_may_not_start():
    proto = model(f"""(float[3] s0, int64 m, bool go) => (float[3] last)
        {{ last = Loop(m, go, s0) <{body("float[3] s", "float[3] s2", "s2 = Add(s, s)")}> }}""")
    check(proto, *[{"s0": floats(3), "m": m, "go": go} for m, go in ((4, True), (4, False), (0, True), (-1, True))])


def test_a_number_of_trips_that_is_known_gives_rows_of_known_size():
    squares = body("float[n] s", "float[n] s2, float[n] row", "s2 = Mul(s, s) row = Identity(s)")
    proto = model(f"""(float[n] s0) => (float[3, n] y) <int64 m = {{3}}>
        {{ last, rows = Loop(m, , s0) <{squares}> y = Exp(rows) }}""")
    module = check(proto, {"s0": floats(5)}, {"s0": floats(2)}, {"s0": floats(0)})
    assert not program_of(module).grown


def test_values_that_start_alike_share_a_size_where_they_grow_alike():
    joined = body(
        "float[p] a, float[p] b, float[q] d", "float[r] a2, float[r] b2, float[s] d2, float row",
        "a2 = Concat<axis = 0>(a, x) b2 = Concat<axis = 0>(b, x) d2 = Concat<axis = 0>(d, x, x) "
        "both = Add(a2, b2) row = ReduceSum<keepdims = 0>(both)",
    )  # fmt: skip
    proto = model(f"""(float[n] x, int64 m) => (float[t] a9, float[u] b9, float[v] d9, float[w] rows)
        {{ a9, b9, d9, rows = Loop(m, , x, x, x) <{joined}> }}""")
    module = check(proto, *[{"x": floats(n), "m": np.int64(m)} for n, m in ((2, 3), (1, 9), (3, 0), (0, 2))])
    (body_program,) = list(program_of(module).walk())[1:]
    assert len({str(spec.shape) for spec in body_program.inputs[2:4]}) == 1
    assert body_program.inputs[4].shape != body_program.inputs[3].shape


def test_loops_nest():
    inner = body("float[n] u", "float[n] u2", "u2 = Add(u, x)")
    outer = body("float[n] s", "float[n] s2", f"t = Loop(i, , s) <{inner}> s2 = Tanh(t)")
    proto = model(f"(float[n] x, int64 m) => (float[n] y) {{ y = Loop(m, , x) <{outer}> }}")
    check(proto, *[{"x": floats(n), "m": np.int64(m)} for n, m in ((4, 3), (1, 6), (5, 0))])


def choosing(rows: int | str = "n") -> onnx.ModelProto:
    """Add or multiply, by the sign of a sum; both weights are captured."""
    return model(
        f"""(float[{rows}, 4] x) => (float[{rows}, 4] z) <float[4] k = {{1, 2, 3, 4}}, float zero = {{0}}> {{
            sum = ReduceSum<keepdims = 0>(x) c = Greater(sum, zero)
            y = If(c) <then_branch = t () => (float[{rows}, 4] a) {{ a = Add(x, k) }},
                       else_branch = e () => (float[{rows}, 4] b) {{ b = MatMul(x, w) }}>
            z = Relu(y) }}""",
        w=floats(4, 4, seed=2),
    )


@pytest.mark.parametrize("rows", ["n", 5])
def test_if_runs_one_of_two_bodies(rows: int | str):
    sizes = (1, 5) if rows == "n" else (5,)
    check(choosing(rows), *[{"x": floats(n, 4) + shift} for n in sizes for shift in (2, -2)])


def test_captured_weights_are_constants_of_the_body():
    program = program_of(compiled(choosing()))
    _, _, otherwise = program.walk()
    (product,) = [call for call in otherwise.instructions if call.kernel.startswith("gemm")]
    assert product.operands[2].space == "constant"
    assert not otherwise.constants
    assert len(program.constants) > 0


@pytest.mark.parametrize("make", [growing, counting, choosing])
def test_saved_programs_hold_their_bodies(make: Any, tmp_path: Any):
    module = tinycomp.compile(make(), "c")
    feeds = {growing: growing_feeds(2, 30), counting: counting_feeds(2, 3), choosing: {"x": floats(3, 4)}}[make]
    expected = module.run(feeds)
    module.save(tmp_path / "model.tinycomp")
    found = tinycomp.load(tmp_path / "model.tinycomp").run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_the_text_shows_bodies():
    text = program_of(compiled(choosing())).to_text()
    assert "if(" in text
    assert text.count("program ") == 3


def test_rows_must_not_change_their_shape():
    joined = body("float[p] s", "float[q] s2, float[p] row", "s2 = Concat<axis = 0>(s, x) row = Identity(s)")
    proto = model(f"(float[n] x, int64 m) => (float[u] l, float[t, v] rows) {{ l, rows = Loop(m, , x) <{joined}> }}")
    module = check(proto, {"x": floats(2), "m": np.int64(1)})
    with pytest.raises(ExecutionError, match="scan output 0 changes its shape between trips"):
        module.run({"x": floats(2), "m": np.int64(2)})


def test_an_error_names_the_node_in_the_body():
    adding = body("float s", "float s2", "row = Gather<axis = 0>(x, i) s2 = Add(s, row)")
    proto = model(f"(float[n] x, float s0, int64 m) => (float last) {{ last = Loop(m, , s0) <{adding}> }}")
    feeds = {"x": floats(3), "s0": np.float32(0)}
    module = check(proto, {**feeds, "m": np.int64(3)})
    with pytest.raises(ExecutionError, match="node row"):
        module.run({**feeds, "m": np.int64(4)})
    check(proto, {**feeds, "m": np.int64(2)})


def test_many_threads_run_one_module():
    module = compiled(counting(), threads=2)
    feeds = counting_feeds(300, 20)
    alone = compiled(counting(), threads=1).run(feeds)
    for name, value in module.run(feeds).items():
        np.testing.assert_array_equal(value, alone[name])


def test_outputs_of_unknown_size_are_written_where_the_caller_wants_them():
    module = compiled(counting())
    program = program_of(module)
    native = NativeProgram(program)
    feeds = counting_feeds(3, 5)
    expected = module.run(feeds)
    inputs = [np.asarray(feeds[spec.name]) for spec in program.inputs]
    outputs = [np.empty_like(expected[spec.name]) for spec in program.outputs]
    native.run(inputs, outputs)
    for spec, found in zip(program.outputs, outputs, strict=True):
        np.testing.assert_array_equal(found, expected[spec.name])
    small = [np.empty((2, *x.shape[1:]), x.dtype) if i in program.grown else x for i, x in enumerate(outputs)]
    with pytest.raises(tinycomp.errors.FeedError, match="the result does not fit the array"):
        native.run(inputs, small)


ZERO = "int64[1] zero = {0}"


def bags(dtype: str) -> onnx.ModelProto:
    """Sums of bags of rows, as exporters write them: every trip takes a slice between two offsets."""
    summing = body("", "float[4] row", """
        start = Gather<axis = 0>(starts, i) end = Gather<axis = 0>(ends, i)
        first = Unsqueeze(start, zero) last = Unsqueeze(end, zero)
        some = Slice(places, first, last, zero_axis) rows = Gather<axis = 0>(table, some)
        row = ReduceSum<keepdims = 0>(rows, zero)""", f"{ZERO}, {dtype}[1] zero_axis = {{0}}")  # fmt: skip
    return model(
        f"""({dtype}[bags] starts, {dtype}[bags] ends, int64[places] places, int64 n) => (float[bags, 4] sums)
            {{ sums = Loop(n, true) <{summing}> }}""",
        table=floats(10, 4), true=True,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_elements_that_a_body_computes_are_sizes_there(dtype: str, tmp_path: Path):
    places = np.random.default_rng(1).integers(0, 10, 30)
    edges = [[0, 4, 9], [4, 9, 30]], [[0, 0, 5, 5], [4, 0, 3, 99]], [[-4, -99, 29], [30, -28, -1]], [[], []]
    feeds = [
        {"starts": np.array(starts, dtype), "ends": np.array(ends, dtype), "places": places, "n": len(starts)}
        for starts, ends in edges
    ]
    module = check(bags(dtype), *feeds)
    module.save(tmp_path / "bags.tcm")
    loaded = tinycomp.load(tmp_path / "bags.tcm")
    arrays = {name: np.asarray(value) for name, value in feeds[1].items()}
    np.testing.assert_array_equal(loaded.run(arrays)["sums"], module.run(arrays)["sums"])


def test_the_number_of_a_trip_bounds_a_slice():
    """The trip reads what comes before its own row, and the next trip finds other sizes."""
    reading = body("float[3] s", "float[3] s2, float[3] new", """
        end = Unsqueeze(i, zero) before = Slice(x, zero, end, zero)
        most = ReduceMax<keepdims = 0>(before, zero) sum = ReduceSum<keepdims = 0>(before, zero)
        new = Add(most, sum) s2 = Add(s, sum)""", ZERO)  # fmt: skip
    proto = model(f"""(float[t, 3] x, float[3] s0, int64 n) => (float[3] last, float[n, 3] rows)
        {{ last, rows = Loop(n, , s0) <{reading}> }}""")
    check(proto, *[{"x": floats(t, 3), "s0": floats(3, seed=1), "n": n} for t, n in ((5, 5), (5, 8), (2, 0), (7, 3))])


def test_rows_are_counted_in_a_body():
    counted = body("float s", "float s2, float sum", """
        more = Greater(x, s) at = NonZero(more) places = Squeeze(at, zero) chosen = Gather(x, places)
        sum = ReduceSum<keepdims = 0>(chosen, zero) s2 = Sub(s, fall)""", f"{ZERO}, float fall = {{0.5}}")  # fmt: skip
    proto = model(f"""(float[t] x, float s0, int64 n) => (float last, float[n] sums)
        {{ last, sums = Loop(n, , s0) <{counted}> }}""")
    check(proto, *[{"x": floats(t), "s0": np.float32(1), "n": 5} for t in (40, 3, 0, 300)])


def test_a_body_in_a_body_has_the_sizes_that_the_outer_one_finds():
    rest = f"{ZERO}, int64[1] one = {{1}}, int64[1] most = {{99}}, float floor = {{-9}}"
    choice = body("", "float[3] row", f"""
        end = Gather(ends, i) last = Unsqueeze(end, zero) part = Slice(x, zero, last, zero) few = Less(end, four)
        row = If(few) <
            then_branch = t () => (float[3] a) <{ZERO}> {{ a = ReduceSum<keepdims = 0>(part, zero) }},
            else_branch = e () => (float[3] b) <{rest}> {{ rest = Slice(part, one, most, zero)
                b0 = ReduceMax<keepdims = 0>(rest, zero) b = Max(b0, floor) }}>""",
        f"{ZERO}, int64 four = {{4}}")  # fmt: skip
    proto = model(f"""(float[t, 3] x, int64[k] ends, int64 n) => (float[n, 3] rows)
        {{ rows = Loop(n, true) <{choice}> }}""", true=True)  # fmt: skip
    check(proto, {"x": floats(9, 3), "ends": [2, 5, 9, 0, -1, 4], "n": 6}, {"x": floats(5, 3), "ends": [5], "n": 1})


def test_sizes_that_do_not_agree_in_a_trip_name_the_node():
    products = body("", "float row", """end = Add(i, one) part = Slice(x, zero, end, zero)
        both = Mul(part, k) row = ReduceSum<keepdims = 0>(both, zero)""", f"{ZERO}, int64[1] one = {{1}}")  # fmt: skip
    loop = f"rows = Loop(n, true) <{products}>"
    module = compiled(model(f"(float[t] x, int64 n) => (float[n] rows) {{ {loop} }}", k=floats(3), true=True))
    assert module.run({"x": floats(5), "n": np.int64(1)})["rows"].shape == (1,)
    with pytest.raises(ExecutionError, match=r"node both \(Mul\): .* and 3 are different, and neither is 1"):
        module.run({"x": floats(5), "n": np.int64(2)})


TOO_LARGE = [
    ("Slice(s, zero, end, zero)", "how large its result .* depends on data"),
    ("Expand(k, end)", "there is no limit to"),
]


@pytest.mark.parametrize(("last", "reason"), TOO_LARGE, ids=["a result", "no limit"])
def test_what_has_no_limit_keeps_the_loop_on_the_host(last: str, reason: str):
    open_body = body("float[rows] s", "float[after] s2", f"at = Gather(ends, i) end = Unsqueeze(at, zero) s2 = {last}",
                     f"{ZERO}, float[1] k = {{1.5}}")  # fmt: skip
    proto = model(f"""(float[t] s0, int64[k] ends, int64 n) => (float[left] last)
        {{ last = Loop(n, , s0) <{open_body}> }}""")
    module = tinycomp.compile(proto, "c")
    reasons = [r.reason for host in module.report().hosts for r in host.reasons]
    assert any(re.search(f"body: .*{reason}", each) for each in reasons), reasons
    feeds = {"s0": floats(6), "ends": np.array([4, 2]), "n": np.int64(2)}
    np.testing.assert_array_equal(module.run(feeds)["last"], tinycomp.compile(proto, "host").run(feeds)["last"])


def test_loops_that_need_more_memory_than_before_ask_for_it():
    """A call goes straight to the runtime, unless its loops need more memory than they have."""
    module = compiled(counting(), memory_limit=1 << 26)
    for rows in (2, 300, 3):
        feeds = counting_feeds(rows, 5)
        np.testing.assert_allclose(module.run(feeds)["rows"].shape[0], 5)
    with pytest.raises(MemoryLimitError):
        module.run(counting_feeds(1_000, 5000))


REFUSED = [(DOMAIN, NAME, f"no rule for {QUALIFIED}")]


@pytest.mark.parametrize(("domain", "op", "reason"), REFUSED)
def test_a_node_that_the_target_does_not_take_keeps_the_loop_on_the_host(domain: str, op: str, reason: str):
    nodes = f"places = {domain}.{op}(s) n = Cast<to = 1>(places) f = ReduceSum<keepdims = 0>(n) s2 = Add(s, f)"
    adding = body("float[3] s", "float[3] s2", nodes)
    proto = model(f"(float[3] s0, int64 m) => (float[3] last) {{ last = Loop(m, , s0) <{adding}> }}")
    module = tinycomp.compile(proto, "c")
    reasons = [r.reason for host in module.report().hosts for r in host.reasons]
    assert any(reason in each and each.startswith("body: ") for each in reasons), reasons
    feeds = {"s0": floats(3), "m": np.int64(2)}
    np.testing.assert_allclose(module.run(feeds)["last"], tinycomp.compile(proto, "host").run(feeds)["last"], rtol=1e-5)


def test_branches_of_different_sizes_stay_on_the_host():
    proto = model("""(float[n] x, bool c) => (float[k] y) {
        y = If(c) <then_branch = t () => (float[n] a) { a = Relu(x) },
                   else_branch = e () => (float[m] b) { b = Concat<axis = 0>(x, x) }> }""")
    reasons = [r.reason for host in tinycomp.compile(proto, "c").report().hosts for r in host.reasons]
    assert any("how large a result is depends on data" in each for each in reasons), reasons


def test_a_policy_that_keeps_a_node_on_the_host_keeps_its_loop_there():
    module = tinycomp.compile(counting(), "c", policy=Policy(exclude=("Mul",)))
    assert module.report().where("last") == "host"


def test_the_report_counts_what_is_in_a_loop():
    report = compiled(counting()).report()
    assert report.where("s2") == "c_0"
    assert report.regions[0].nodes == 4


def test_what_a_body_needs_of_the_sizes_that_it_carries_is_checked_in_every_trip() -> None:
    joined = body("float[e, p, 4] s", "float[e2, p2, 4] s2", "s2 = Concat<axis = 1>(s, x)")
    proto = model(f"""(int64 t, float[n, m, 4] c0, float[1, 1, 4] x) => (float[a, b, 4] y)
        {{ c = Loop(t, , c0) <{joined}> y = Relu(c) }}""")
    module = check(proto, {"t": np.int64(3), "c0": floats(1, 2, 4), "x": floats(1, 1, 4)}, regions=2)
    with pytest.raises(ExecutionError, match=r"node s2 \(Concat\): the operands differ outside axis 1"):
        module(np.int64(3), floats(2, 2, 4), floats(1, 1, 4))
    assert module(np.int64(0), floats(2, 2, 4), floats(1, 1, 4)).shape == (2, 2, 4)


def test_rows_of_unknown_size_that_nobody_reads_are_not_kept() -> None:
    twice = body("float[n] s", "float[k] s2, float[1] row", "s2 = Concat<axis = 0>(s, s) row = ReduceMax(s)")
    for results, more in (("float[k] last", ""), ("float[3] y", "y = Relu(x)")):
        proto = model(f"(int64 t, float[3] x) => ({results}) {{ {more} last, rows = Loop(t, , x) <{twice}> }}")
        check(proto, {"t": np.int64(2), "x": floats(3)})


def test_what_a_branch_has_by_definition_is_in_the_region() -> None:
    proto = model("""(bool c, float[2, 3] x) => (float[a] y) <int64[1] axes = {1}> {
        y = If (c) <then_branch = t () => (float[a] p) { p = Einsum<equation = "ij->i">(x) },
                    else_branch = e () => (float[a] q) { q = ReduceMax<keepdims = 0>(x, axes) }> }""")
    check(proto, *[{"c": np.array(truth), "x": floats(2, 3)} for truth in (True, False)])
