"""Targets that need to know every size, and values whose sizes only a run shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinycomp
from tinycomp import P
from tinycomp.driver.lowering import Lowering
from tinycomp.errors import FallbackError
from tinycomp.ir.graph import Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.native.executor import Pool
from tinycomp.symbolic import assuming
from tinycomp.target import Policy, TransferCost

X = np.array([[1, 0, 2, -1], [0, 0, 3, 4]], np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: dict[str, tuple[str, str, list[np.ndarray]]] = {
    "Slice": ("%s: int64[1], %e: int64[1]", "Slice(%r, %s, %e)", [ints(0), ints(1)]),
    "TopK": ("%k: int64[1]", "TopK(%r, %k)", [ints(2)]),
    "Expand": ("%k: int64[3]", "Expand(%r, %k)", [ints(2, 1, 1)]),
    "Tile": ("%k: int64[2]", "Tile(%r, %k)", [ints(2, 1)]),
    "Pad": ("%k: int64[4]", "Pad(%r, %k)", [ints(2, 1, 0, 0)]),
    "Reshape": ("%k: int64[2]", "Reshape(%r, %k)", [ints(4, -1)]),
    "Compress": ("%k: bool[4]", "Compress(%r, %k) {axis = 1}", [np.array([1, 0, 1, 0], np.bool_)]),
    "Unique": ("", "Unique(%r)", []),
}


def graph_of(op: str) -> tinycomp.Graph:
    inputs, call, _ = CASES[op]
    second = ", %i: int64[?, ?]" if op == "TopK" else ""
    dims = {"Expand": "?, ?, ?", "Unique": "?"}.get(op, "?, ?")
    text = f"""graph @g opset {{"" = 17}} (%x: float32[N, 4]{", " if inputs else ""}{inputs}) -> (%y) {{
      %r: float32[N, 4] = Relu(%x) from ["relu"]
      %v: float32[{dims}]{second} = {call} from ["{op.lower()}"]
      %y: float32[{dims}] = Neg(%v) from ["neg"]
    }}"""
    return parse_graph(text, infer=infer_node_types)


def target_of(*ops: str, **options: Any) -> tinycomp.Target:
    """Return a target whose regions run on the numpy kernels and remember how they were built."""
    npu = tinycomp.Target("npu", **options)
    npu.accept(*ops)

    @npu.codegen
    def build(region: Node) -> Any:
        sizes = [v.static_shape for node in region.body.nodes for v in node.used_outputs()]
        assert None not in sizes or not npu.static_shapes
        plan = Lowering({}, Pool(1), reference=True).plan(region.body)
        return lambda *operands: plan.run(operands)

    return npu


@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("op", CASES)
def test_a_node_whose_sizes_depend_on_data_stays_out_where_every_size_must_be_known(op: str, specialize: bool) -> None:
    graph, feeds = graph_of(op), [X, *CASES[op][2]]
    wanted = tinycomp.compile(graph, "host")(*feeds)
    module = tinycomp.compile(graph, target_of("Relu", op, "Neg", static_shapes=True), specialize=specialize)
    np.testing.assert_array_equal(module(*feeds), wanted)
    report = module.report()
    assert [dict(row.ops) for row in report.regions] == [{"Relu": 1}, {"Neg": 1}]
    (host,) = report.hosts
    assert str(host.reasons[0]) == (
        'npu.static_shapes: the size of its result "v" depends on data, and npu needs to know every size'
    )
    with pytest.raises(FallbackError, match=rf"{op.lower()} \({op}\): npu.static_shapes: the size of its result"):
        tinycomp.compile(graph, target_of("Relu", op, "Neg", static_shapes=True), strict=True)


@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("op", CASES)
def test_elsewhere_the_region_runs_as_a_whole(op: str, specialize: bool) -> None:
    graph, feeds = graph_of(op), [X, *CASES[op][2]]
    wanted = tinycomp.compile(graph, "host")(*feeds)
    module = tinycomp.compile(graph, target_of("Relu", op, "Neg"), specialize=specialize, strict=True)
    np.testing.assert_array_equal(module(*feeds), wanted)
    assert len(module.report().regions) == 1


LOOP = """graph @g opset {"" = 17} (%x: float32[N, 4], %trips: int64[]) -> (%y) {
  %r: float32[N, 4] = Relu(%x) from ["relu"]
  %go: bool[] = const true
  %l: float32[N, 4], %s: float32[?, N, 4] = Loop(%trips, %go, %r) from ["loop"]
    body = graph @body (%i: int64[], %c: bool[], %a: float32[N, 4]) -> (%c, %b, %b) {
      %b: float32[N, 4] = Neg(%a) from ["inner"]
    }
  %y: float32[?, N, 4] = Neg(%s) from ["neg"]
}"""
SEQUENCE = """graph @g opset {"" = 17} (%x: float32[N, 4], %at: int64[]) -> (%y) {
  %r: float32[N, 4] = Relu(%x) from ["relu"]
  %s: seq<float32[N, 4]> = SequenceConstruct(%r, %x) from ["construct"]
  %v: float32[N, 4] = SequenceAt(%s, %at) from ["at"]
  %y: float32[N, 4] = Neg(%v) from ["neg"]
}"""


@pytest.mark.parametrize(
    ("text", "ops", "number", "reasons"),
    [
        (LOOP, ("Relu", "Loop", "Neg"), 3, {"loop": 'the size of its result "s" depends on data'}),
        (
            SEQUENCE, ("Relu", "SequenceConstruct", "SequenceAt", "Neg"), 1,
            {"construct": 'the size of its result "s" depends on data',
             "at": 'its operand "s" is seq<float32[N, 4]>, which has no size'},
        ),
    ],
)  # fmt: skip
def test_loops_that_collect_and_sequences(
    text: str, ops: tuple[str, ...], number: int, reasons: dict[str, str]
) -> None:
    graph, feeds = parse_graph(text, infer=infer_node_types), [X, np.array(number)]
    wanted = tinycomp.compile(graph, "host")(*feeds)
    module = tinycomp.compile(graph, target_of(*ops), strict=True)
    np.testing.assert_array_equal(module(*feeds), wanted)
    module = tinycomp.compile(graph, target_of(*ops, static_shapes=True))
    np.testing.assert_array_equal(module(*feeds), wanted)
    assert {h.name: str(h.reasons[0]) for h in module.report().hosts if h.name in reasons} == {
        name: f"npu.static_shapes: {reason}, and npu needs to know every size" for name, reason in reasons.items()
    }


def test_what_a_later_target_can_run_goes_there() -> None:
    graph = graph_of("Slice")
    second = tinycomp.Target("second")
    second.accept("Slice")
    second.codegen(lambda region: lambda x, starts, ends: x[int(starts[0]) : int(ends[0])])
    module = tinycomp.compile(graph, [target_of("Relu", "Slice", "Neg", static_shapes=True), second], strict=True)
    assert [(r.target, dict(r.ops)) for r in module.report().regions] == [
        ("npu", {"Relu": 1}), ("second", {"Slice": 1}), ("npu", {"Neg": 1}),
    ]  # fmt: skip
    np.testing.assert_array_equal(module(X, ints(0), ints(1)), -np.maximum(X[:1], 0))


def test_sizes_that_follow_from_sizes_are_no_reason() -> None:
    text = """graph @g opset {"" = 17} (%x: float32[N, 4]) -> (%y) {
      %one: float32[1] = const [1.0]
      %k: int64[2] = Shape(%x) from ["shape"]
      %e: float32[N, 4] = Expand(%one, %k) from ["expand"]
      %y: float32[N, 4] = Add(%x, %e) from ["add"]
    }"""
    graph = parse_graph(text, infer=infer_node_types)
    module = tinycomp.compile(graph, target_of("Shape", "Expand", "Add", static_shapes=True), strict=True)
    for rows in (1, 2):
        np.testing.assert_array_equal(module(X[:rows]), X[:rows] + 1)
    assert len(module.report().regions) == 1


def test_a_shape_from_outside_is_data() -> None:
    text = """graph @g opset {"" = 17} (%x: float32[N, 4], %z: float32[?, 4]) -> (%y) {
      %k: int64[2] = Shape(%x) from ["shape"]
      %e: float32[N, 4] = Reshape(%z, %k) from ["reshape"]
      %y: float32[N, 4] = Add(%x, %e) from ["add"]
    }"""
    graph = parse_graph(text, infer=infer_node_types)
    module = tinycomp.compile(graph, target_of("Reshape", "Add", static_shapes=True))
    for rows in (1, 2):
        np.testing.assert_array_equal(module(X[:rows], X[:rows]), X[:rows] * 2)


def test_composites_are_asked_again_when_sizes_are_known() -> None:
    built: list[list[str]] = []
    npu = tinycomp.Target("npu", static_shapes=True)

    @npu.composite
    def product_relu(x, w=P.const):
        return P.Relu(P.MatMul(x, w))

    @product_relu.check
    def _(match: Any) -> Any:
        rows = match.x.type.shape[0]
        return isinstance(rows, int) and (rows % 2 == 0 or tinycomp.reject(f"an even number of rows, got {rows}"))

    npu.accept("MatMul", "Relu", "Neg")

    @npu.codegen
    def build(region: Node) -> Any:
        built.append([node.op for node in region.body.nodes])
        assert {node.target for node in region.body.nodes} == {"npu"}
        plan = Lowering({}, Pool(1), reference=True).plan(region.body)
        return lambda *operands: plan.run(operands)

    text = """graph @g opset {"" = 17} (%x: float32[N, 2]) -> (%y, %r) {
      %w: float32[2, 2] = const [1.0, 2.0, 3.0, -4.0]
      %p: float32[N, 2] = MatMul(%x, %w) from ["product"]
      %r: float32[N, 2] = Relu(%p) from ["relu"]
      %y: float32[N, 2] = Neg(%r) from ["neg"]
    }"""
    graph, x = parse_graph(text, infer=infer_node_types), np.ones((4, 2), np.float32)
    module = tinycomp.compile(graph, npu, strict=True)
    for rows in (2, 3, 4):
        for result, wanted in zip(module(x[:rows]), tinycomp.compile(graph, "host")(x[:rows]), strict=True):
            np.testing.assert_array_equal(result, wanted)
    assert built == [["npu.product_relu", "Neg"], ["MatMul", "Relu", "Neg"], ["npu.product_relu", "Neg"]]


def test_policies_weigh_sizes_by_their_bounds() -> None:
    text = """graph @g opset {"" = 17} (%x: float32[N, 4]) -> (%y) {
      %w: float32[4, 4] = const [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
      %y: float32[N, 4] = MatMul(%x, %w) from ["product"]
    }"""
    graph = parse_graph(text, infer=infer_node_types)
    for policy, reason in (
        (Policy(min_macs=1000), "policy.min_macs: the region has 16 MACs, fewer than 1000"),
        (Policy(transfer=TransferCost(1e12, 1e-7)), "policy.transfer: moving 32 bytes costs"),
    ):
        (host,) = tinycomp.compile(graph, "c", policy=policy).report().hosts
        assert str(host.reasons[0]).startswith(reason)
        with assuming({"N": (1, 64)}):
            assert tinycomp.compile(graph, "c", policy=policy).report().hosts == ()


@pytest.mark.parametrize("target", ["c", "npu"])
@pytest.mark.parametrize("policy", [Policy(min_macs=16), Policy(min_macs=17), Policy(min_nodes=2)])
def test_a_saved_module_with_a_policy_runs(policy: Policy, target: str, tmp_path: Any) -> None:
    text = """graph @g opset {"" = 17} (%x: float32[N, 4]) -> (%y) {
      %w: float32[4, 4] = const [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
      %p: float32[N, 4] = MatMul(%x, %w) from ["product"]
      %y: float32[N, 4] = Relu(%p) from ["relu"]
    }"""
    graph = parse_graph(text, infer=infer_node_types)
    npu = target_of("MatMul", "Relu", static_shapes=True)
    module = tinycomp.compile(graph, "c" if target == "c" else npu, policy=policy)
    module.save(tmp_path / "m.tcm")
    loaded = tinycomp.load(tmp_path / "m.tcm", targets=[npu])
    for rows in (1, 2):
        np.testing.assert_array_equal(loaded(X[:rows]), module(X[:rows]))
    assert loaded.report().to_dict() == module.report().to_dict()
