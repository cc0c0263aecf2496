"""If and Loop inside regions of the C target: what runs there, against the host, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinycomp
from tests.host_only import DOMAIN, NAME, QUALIFIED
from tinycomp.errors import ExecutionError, MemoryLimitError
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.regions import NativeRegion
from tinycomp.target import Policy

F, L, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Port = tuple[str, int, Sequence[int | str]]


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """Return a node; names are separated by blanks, ``-`` stands for an absent operand."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=f"node {outputs.split()[0]}", **attrs)


def graph(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Port], outputs: Sequence[Port], **constants: Any) -> Any:
    ports = [[helper.make_tensor_value_info(*port) for port in side] for side in (inputs, outputs)]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_graph(nodes, "graph", *ports, initializers)


def model(*args: Any, **constants: Any) -> onnx.ModelProto:
    return helper.make_model(graph(*args, **constants), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


HEAD: list[Port] = [("i", L, []), ("c", B, [])]
GOES_ON = node("Identity", "c", "c2")


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
    body = graph(
        [node("Add", "s x", "s2"), GOES_ON, node("Mul", "s2 k", "row")],
        [*HEAD, ("s", F, ["n", 4])],
        [("c2", B, []), ("s2", F, ["n", 4]), ("row", F, ["n", 4])],
    )
    return model(
        [node("Relu", "s0", "s1"), node("Loop", "m - s1", "last rows", body=body)],
        [("s0", F, ["n", 4]), ("x", F, ["n", 4]), ("m", L, [])],
        [("last", F, ["n", 4]), ("rows", F, ["t", "n", 4])],
        k=np.float32([1, 2, 3, 4]),
    )


def counting_feeds(rows: int, trips: int) -> dict[str, Any]:
    return {"s0": floats(rows, 4), "x": floats(rows, 4, seed=1), "m": np.int64(trips)}


def growing() -> onnx.ModelProto:
    """A state that grows by a row per trip until its sum is large enough."""
    body = graph(
        [
            node("Concat", "s x", "s2", axis=0),
            node("ReduceSum", "s2", "total", keepdims=0),
            node("Less", "total limit", "c2"),
        ],
        [*HEAD, ("s", F, ["p", 4])],
        [("c2", B, []), ("s2", F, ["q", 4])],
    )
    return model(
        [node("Loop", "- - s0", "last", body=body), node("Relu", "last", "y")],
        [("s0", F, ["n", 4]), ("x", F, [1, 4]), ("limit", F, [])],
        [("y", F, ["r", 4])],
    )


def growing_feeds(rows: int, limit: float) -> dict[str, Any]:
    return {"s0": np.abs(floats(rows, 4)), "x": np.full((1, 4), 0.5, np.float32), "limit": np.float32(limit)}


def test_a_loop_counts_its_trips():
    sizes = ((3, 5), (3, 0), (7, 2), (1, 40), (0, 3), (3, 1))
    check(counting(), *[counting_feeds(*each) for each in sizes])


def test_a_condition_ends_a_loop():
    check(growing(), *[growing_feeds(*each) for each in ((3, 50), (0, 10), (2, 0), (2, 1000))], regions=2)


def test_a_loop_may_not_start():
    body = graph([node("Add", "s s", "s2"), GOES_ON], [*HEAD, ("s", F, [3])], [("c2", B, []), ("s2", F, [3])])
    proto = model(
        [node("Loop", "m go s0", "last", body=body)], [("s0", F, [3]), ("m", L, []), ("go", B, [])], [("last", F, [3])]
    )
    check(proto, *[{"s0": floats(3), "m": m, "go": go} for m, go in ((4, True), (4, False), (0, True), (-1, True))])


def test_a_number_of_trips_that_is_known_gives_rows_of_known_size():
    body = graph(
        [node("Mul", "s s", "s2"), GOES_ON, node("Identity", "s", "row")],
        [*HEAD, ("s", F, ["n"])],
        [("c2", B, []), ("s2", F, ["n"]), ("row", F, ["n"])],
    )
    proto = model(
        [node("Loop", "m - s0", "last rows", body=body), node("Exp", "rows", "y")],
        [("s0", F, ["n"])],
        [("y", F, [3, "n"])],
        m=np.int64(3),
    )
    module = check(proto, {"s0": floats(5)}, {"s0": floats(2)}, {"s0": floats(0)})
    assert not program_of(module).grown


def test_values_that_start_alike_share_a_size_where_they_grow_alike():
    body = graph(
        [
            node("Concat", "a x", "a2", axis=0),
            node("Concat", "b x", "b2", axis=0),
            node("Concat", "d x x", "d2", axis=0),
            node("Add", "a2 b2", "both"),
            node("ReduceSum", "both", "row", keepdims=0),
            GOES_ON,
        ],
        [*HEAD, ("a", F, ["p"]), ("b", F, ["p"]), ("d", F, ["q"])],
        [("c2", B, []), ("a2", F, ["r"]), ("b2", F, ["r"]), ("d2", F, ["s"]), ("row", F, [])],
    )
    proto = model(
        [node("Loop", "m - x x x", "a9 b9 d9 rows", body=body)],
        [("x", F, ["n"]), ("m", L, [])],
        [("a9", F, ["t"]), ("b9", F, ["u"]), ("d9", F, ["v"]), ("rows", F, ["w"])],
    )
    module = check(proto, *[{"x": floats(n), "m": np.int64(m)} for n, m in ((2, 3), (1, 9), (3, 0), (0, 2))])
    (body_program,) = list(program_of(module).walk())[1:]
    assert len({str(spec.shape) for spec in body_program.inputs[2:4]}) == 1
    assert body_program.inputs[4].shape != body_program.inputs[3].shape


def test_loops_nest():
    inner = graph(
        [node("Add", "u x", "u2"), node("Identity", "c", "d2")],
        [("j", L, []), ("c", B, []), ("u", F, ["n"])],
        [("d2", B, []), ("u2", F, ["n"])],
    )
    outer = graph(
        [node("Loop", "i - s", "t", body=inner), node("Tanh", "t", "s2"), node("Identity", "e", "e2")],
        [("i", L, []), ("e", B, []), ("s", F, ["n"])],
        [("e2", B, []), ("s2", F, ["n"])],
    )
    proto = model([node("Loop", "m - x", "y", body=outer)], [("x", F, ["n"]), ("m", L, [])], [("y", F, ["n"])])
    check(proto, *[{"x": floats(n), "m": np.int64(m)} for n, m in ((4, 3), (1, 6), (5, 0))])


def choosing(rows: int | str = "n") -> onnx.ModelProto:
    """Add or multiply, by the sign of a sum; both weights are captured."""
    then = graph([node("Add", "x k", "a")], [], [("a", F, [rows, 4])])
    otherwise = graph([node("MatMul", "x w", "b")], [], [("b", F, [rows, 4])])
    return model(
        [
            node("ReduceSum", "x", "sum", keepdims=0),
            node("Greater", "sum zero", "c"),
            node("If", "c", "y", then_branch=then, else_branch=otherwise),
            node("Relu", "y", "z"),
        ],
        [("x", F, [rows, 4])],
        [("z", F, [rows, 4])],
        k=np.float32([1, 2, 3, 4]),
        zero=np.float32(0),
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
    body = graph(
        [node("Concat", "s x", "s2", axis=0), GOES_ON, node("Identity", "s", "row")],
        [*HEAD, ("s", F, ["p"])],
        [("c2", B, []), ("s2", F, ["q"]), ("row", F, ["p"])],
    )
    proto = model(
        [node("Loop", "m - x", "last rows", body=body)], [("x", F, ["n"]), ("m", L, [])],
        [("last", F, ["u"]), ("rows", F, ["t", "v"])],
    )  # fmt: skip
    module = check(proto, {"x": floats(2), "m": np.int64(1)})
    with pytest.raises(ExecutionError, match="scan output 0 changes its shape between trips"):
        module.run({"x": floats(2), "m": np.int64(2)})


def test_an_error_names_the_node_in_the_body():
    body = graph(
        [node("Gather", "x i", "row", axis=0), node("Add", "s row", "s2"), GOES_ON],
        [*HEAD, ("s", F, [])],
        [("c2", B, []), ("s2", F, [])],
    )
    proto = model(
        [node("Loop", "m - s0", "last", body=body)], [("x", F, ["n"]), ("s0", F, []), ("m", L, [])], [("last", F, [])]
    )
    feeds = {"x": floats(3), "s0": np.float32(0)}
    module = check(proto, {**feeds, "m": np.int64(3)})
    with pytest.raises(ExecutionError, match="node node row"):
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


def bags(dtype: int = L) -> onnx.ModelProto:
    """Sums of bags of rows, as exporters write them: every trip takes a slice between two offsets."""
    body = graph(
        [node("Gather", "starts i", "start", axis=0), node("Gather", "ends i", "end", axis=0),
         node("Unsqueeze", "start zero", "first"), node("Unsqueeze", "end zero", "last"),
         node("Slice", "places first last zero_axis", "some"), node("Gather", "table some", "rows", axis=0),
         node("ReduceSum", "rows zero", "row", keepdims=0), GOES_ON],
        HEAD, [("c2", B, []), ("row", F, [4])], table=floats(10, 4), zero=np.array([0]),
        zero_axis=np.array([0], helper.tensor_dtype_to_np_dtype(dtype)),
    )  # fmt: skip
    return model(
        [node("Loop", "n true", "sums", body=body)],
        [("starts", dtype, ["bags"]), ("ends", dtype, ["bags"]), ("places", L, ["places"]), ("n", L, [])],
        [("sums", F, ["bags", 4])], true=np.array(True),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [L, TensorProto.INT32], ids=["int64", "int32"])
def test_elements_that_a_body_computes_are_sizes_there(dtype: int, tmp_path: Path):
    offsets = helper.tensor_dtype_to_np_dtype(dtype)
    places = np.random.default_rng(1).integers(0, 10, 30)
    edges = [[0, 4, 9], [4, 9, 30]], [[0, 0, 5, 5], [4, 0, 3, 99]], [[-4, -99, 29], [30, -28, -1]], [[], []]
    feeds = [
        {"starts": np.array(starts, offsets), "ends": np.array(ends, offsets), "places": places, "n": len(starts)}
        for starts, ends in edges
    ]
    module = check(bags(dtype), *feeds)
    module.save(tmp_path / "bags.tcm")
    loaded = tinycomp.load(tmp_path / "bags.tcm")
    arrays = {name: np.asarray(value) for name, value in feeds[1].items()}
    np.testing.assert_array_equal(loaded.run(arrays)["sums"], module.run(arrays)["sums"])


def test_the_number_of_a_trip_bounds_a_slice():
    """The trip reads what comes before its own row, and the next trip finds other sizes."""
    body = graph(
        [node("Unsqueeze", "i zero", "end"), node("Slice", "x zero end zero", "before"),
         node("ReduceMax", "before zero", "most", keepdims=0), node("ReduceSum", "before zero", "sum", keepdims=0),
         node("Add", "most sum", "new"), node("Add", "s sum", "s2"), GOES_ON],
        [*HEAD, ("s", F, [3])], [("c2", B, []), ("s2", F, [3]), ("new", F, [3])], zero=np.array([0]),
    )  # fmt: skip
    proto = model(
        [node("Loop", "n - s0", "last rows", body=body)], [("x", F, ["t", 3]), ("s0", F, [3]), ("n", L, [])],
        [("last", F, [3]), ("rows", F, ["n", 3])],
    )  # fmt: skip
    check(proto, *[{"x": floats(t, 3), "s0": floats(3, seed=1), "n": n} for t, n in ((5, 5), (5, 8), (2, 0), (7, 3))])


def test_rows_are_counted_in_a_body():
    body = graph(
        [node("Greater", "x s", "more"), node("NonZero", "more", "at"), node("Squeeze", "at zero", "places"),
         node("Gather", "x places", "chosen"), node("ReduceSum", "chosen zero", "sum", keepdims=0),
         node("Sub", "s fall", "s2"), GOES_ON],
        [*HEAD, ("s", F, [])], [("c2", B, []), ("s2", F, []), ("sum", F, [])], zero=np.array([0]),
        fall=np.float32(0.5),
    )  # fmt: skip
    proto = model(
        [node("Loop", "n - s0", "last sums", body=body)], [("x", F, ["t"]), ("s0", F, []), ("n", L, [])],
        [("last", F, []), ("sums", F, ["n"])],
    )  # fmt: skip
    check(proto, *[{"x": floats(t), "s0": np.float32(1), "n": 5} for t in (40, 3, 0, 300)])


def test_a_body_in_a_body_has_the_sizes_that_the_outer_one_finds():
    then = graph([node("ReduceSum", "part zero", "a", keepdims=0)], [], [("a", F, [3])], zero=np.array([0]))
    otherwise = graph(
        [node("Slice", "part one most zero", "rest"), node("ReduceMax", "rest zero", "b0", keepdims=0),
         node("Max", "b0 floor", "b")],
        [], [("b", F, [3])], zero=np.array([0]), one=np.array([1]), most=np.array([99]),
        floor=np.float32(-9),
    )  # fmt: skip
    body = graph(
        [node("Gather", "ends i", "end"), node("Unsqueeze", "end zero", "last"),
         node("Slice", "x zero last zero", "part"), node("Less", "end four", "few"),
         node("If", "few", "row", then_branch=then, else_branch=otherwise), GOES_ON],
        HEAD, [("c2", B, []), ("row", F, [3])], zero=np.array([0]), four=np.int64(4),
    )  # fmt: skip
    proto = model(
        [node("Loop", "n -", "rows", body=body)], [("x", F, ["t", 3]), ("ends", L, ["k"]), ("n", L, [])],
        [("rows", F, ["n", 3])],
    )  # fmt: skip
    check(proto, {"x": floats(9, 3), "ends": [2, 5, 9, 0, -1, 4], "n": 6}, {"x": floats(5, 3), "ends": [5], "n": 1})


def test_sizes_that_do_not_agree_in_a_trip_name_the_node():
    body = graph(
        [node("Add", "i one", "end"), node("Slice", "x zero end zero", "part"), node("Mul", "part k", "both"),
         node("ReduceSum", "both zero", "row", keepdims=0), GOES_ON],
        HEAD, [("c2", B, []), ("row", F, [])], zero=np.array([0]), one=np.array([1]), k=floats(3),
    )  # fmt: skip
    proto = model([node("Loop", "n -", "rows", body=body)], [("x", F, ["t"]), ("n", L, [])], [("rows", F, ["n"])])
    module = compiled(proto)
    assert module.run({"x": floats(5), "n": np.int64(1)})["rows"].shape == (1,)
    with pytest.raises(ExecutionError, match=r"node node both \(Mul\): .* and 3 are different, and neither is 1"):
        module.run({"x": floats(5), "n": np.int64(2)})


TOO_LARGE = [
    (node("Slice", "s zero end zero", "s2"), "how large its result .* depends on data"),
    (node("Expand", "k end", "s2"), "there is no limit to"),
]


@pytest.mark.parametrize(("last", "reason"), TOO_LARGE, ids=["a result", "no limit"])
def test_what_has_no_limit_keeps_the_loop_on_the_host(last: onnx.NodeProto, reason: str):
    body = graph(
        [node("Gather", "ends i", "at"), node("Unsqueeze", "at zero", "end"), last, GOES_ON],
        [*HEAD, ("s", F, ["rows"])], [("c2", B, []), ("s2", F, ["after"])], zero=np.array([0]), k=floats(1),
    )  # fmt: skip
    proto = model(
        [node("Loop", "n - s0", "last", body=body)], [("s0", F, ["t"]), ("ends", L, ["k"]), ("n", L, [])],
        [("last", F, ["left"])],
    )  # fmt: skip
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
    body = graph(
        [node(op, "s", "places", domain=domain), node("Cast", "places", "n", to=F),
         node("ReduceSum", "n", "f", keepdims=0), node("Add", "s f", "s2"), GOES_ON],
        [*HEAD, ("s", F, [3])],
        [("c2", B, []), ("s2", F, [3])],
    )  # fmt: skip
    proto = model([node("Loop", "m - s0", "last", body=body)], [("s0", F, [3]), ("m", L, [])], [("last", F, [3])])
    module = tinycomp.compile(proto, "c")
    reasons = [r.reason for host in module.report().hosts for r in host.reasons]
    assert any(reason in each and each.startswith("body: ") for each in reasons), reasons
    feeds = {"s0": floats(3), "m": np.int64(2)}
    np.testing.assert_allclose(module.run(feeds)["last"], tinycomp.compile(proto, "host").run(feeds)["last"], rtol=1e-5)


def test_branches_of_different_sizes_stay_on_the_host():
    then = graph([node("Relu", "x", "a")], [], [("a", F, ["n"])])
    otherwise = graph([node("Concat", "x x", "b", axis=0)], [], [("b", F, ["m"])])
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=otherwise)], [("x", F, ["n"]), ("c", B, [])],
        [("y", F, ["k"])],
    )  # fmt: skip
    reasons = [r.reason for host in tinycomp.compile(proto, "c").report().hosts for r in host.reasons]
    assert any("how large a result is depends on data" in each for each in reasons), reasons


def test_a_policy_that_keeps_a_node_on_the_host_keeps_its_loop_there():
    module = tinycomp.compile(counting(), "c", policy=Policy(exclude=("Mul",)))
    assert module.report().where("node last") == "host"


def test_the_report_counts_what_is_in_a_loop():
    report = compiled(counting()).report()
    assert report.where("node s2") == "c_0"
    assert report.regions[0].nodes == 4


def test_what_a_body_needs_of_the_sizes_that_it_carries_is_checked_in_every_trip() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
    g (int64 t, float[n, m, 4] c0, float[1, 1, 4] x) => (float[a, b, 4] y) {
      c = Loop(t, , c0) <body = b (int64 i, bool q, float[e, p, 4] s) => (bool q2, float[e2, p2, 4] s2) {
        q2 = Identity(q)
        s2 = Concat<axis = 1>(s, x)
      }>
      y = Relu(c)
    }""")
    module = check(proto, {"t": np.int64(3), "c0": floats(1, 2, 4), "x": floats(1, 1, 4)}, regions=2)
    with pytest.raises(ExecutionError, match=r"node s2 \(Concat\): the operands differ outside axis 1"):
        module(np.int64(3), floats(2, 2, 4), floats(1, 1, 4))
    assert module(np.int64(0), floats(2, 2, 4), floats(1, 1, 4)).shape == (2, 2, 4)


def test_rows_of_unknown_size_that_nobody_reads_are_not_kept() -> None:
    nodes = [GOES_ON, node("Concat", "s s", "s2", axis=0), node("ReduceMax", "s", "row")]
    body = graph(nodes, [*HEAD, ("s", F, ["n"])], [("c2", B, []), ("s2", F, ["k"]), ("row", F, [1])])
    loop = node("Loop", "t - x", "last rows", body=body)
    inputs: list[Port] = [("t", L, []), ("x", F, [3])]
    check(model([loop], inputs, [("last", F, ["k"])]), {"t": np.int64(2), "x": floats(3)})
    check(model([node("Relu", "x", "y"), loop], inputs, [("y", F, [3])]), {"t": np.int64(2), "x": floats(3)})


def test_what_a_branch_has_by_definition_is_in_the_region() -> None:
    check(
        onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
        g (bool c, float[2, 3] x) => (float[a] y) <int64[1] axes = {1}> {
          y = If (c) <
            then_branch = t () => (float[a] p) { p = Einsum<equation = "ij->i">(x) },
            else_branch = e () => (float[a] q) { q = ReduceMax<keepdims = 0>(x, axes) }
          >
        }"""),
        {"c": np.array(True), "x": floats(2, 3)},
        {"c": np.array(False), "x": floats(2, 3)},
    )
