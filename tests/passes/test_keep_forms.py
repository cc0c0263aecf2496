"""Forms that targets ask for and that simplification would hide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tinycomp
from tests import graphs
from tinycomp import P
from tinycomp.driver.lowering import Lowering
from tinycomp.driver.pipeline import optimisation_passes
from tinycomp.ir.graph import Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.keep_forms import KeepForms, wishes
from tinycomp.rewrite import Match, pattern
from tinycomp.runtime.native.executor import Pool
from tinycomp.target import Policy, Target, find

RNG = np.random.default_rng(0)


def target_of(*ops: str, name: str = "npu", **options: Any) -> Target:
    """Return a target whose regions run on the numpy kernels."""
    target = Target(name, **options)
    if ops:
        target.accept(*ops)

    @target.codegen
    def build(region: Node) -> Any:
        plan = Lowering({}, Pool(1), reference=True).plan(region.body)
        return lambda *operands: plan.run(operands)

    return target


def conv_add_relu(target: Target) -> None:
    @target.composite
    def conv_add_relu(x, w=P.const, b=P.const):
        return P.Relu(P.Add(P.Conv(x, w), b))


def conv_bn_relu(target: Target) -> None:
    @target.composite
    def conv_bn_relu(x, w=P.const, g=P.const, b=P.const, m=P.const, v=P.const):
        return P.Relu(P.BatchNormalization(P.Conv(x, w), g, b, m, v))


def padded_conv(target: Target) -> None:
    @target.composite
    def padded_conv(x, p=P.const, w=P.const):
        return P.Conv(P.Pad(x, p), w, pads=[0, 0, 0, 0])


def gemm_of_flat(target: Target) -> None:
    @target.composite
    def gemm_of_flat(x, w=P.const, b=P.const):
        return P.Gemm(P.Flatten(x), w, b)


def quantised_transpose(target: Target) -> None:
    @target.composite
    def quantised_transpose(x):
        return P.QuantizeLinear(P.Transpose(P.DequantizeLinear(x, P.const, P.const)), P.const, P.const)


CONV = """graph @g opset {"" = 17} (%x: float32[1, 2, 4, 4]) -> (%y) {
  %w: float32[2, 2, 1, 1] = const [1.0, 2.0, 3.0, 4.0]
  %b: float32[2, 1, 1] = const [0.5, -60.0]
  %c: float32[1, 2, 4, 4] = Conv(%x, %w) from ["conv"]
  %d: float32[1, 2, 4, 4] = Dropout(%c) from ["dropout"]
  %a: float32[1, 2, 4, 4] = Add(%b, %d) from ["add"]
  %y: float32[1, 2, 4, 4] = Relu(%a) from ["relu"]
}"""
NORM = """graph @g opset {"" = 17} (%x: float32[1, 2, 4, 4]) -> (%y) {
  %w: float32[2, 2, 1, 1] = const [1.0, 2.0, 3.0, 4.0]
  %g: float32[2] = const [1.0, 2.0]
  %c: float32[1, 2, 4, 4] = Conv(%x, %w) from ["conv"]
  %n: float32[1, 2, 4, 4] = BatchNormalization(%c, %g, %g, %g, %g) from ["norm"]
  %y: float32[1, 2, 4, 4] = Relu(%n) from ["relu"]
}"""
PAD = """graph @g opset {"" = 17} (%x: float32[1, 2, 4, 4]) -> (%y) {
  %w: float32[2, 2, 1, 1] = const [1.0, 2.0, 3.0, 4.0]
  %p: int64[8] = const [0, 0, 1, 1, 0, 0, 1, 1]
  %c: float32[1, 2, 6, 6] = Pad(%x, %p) from ["pad"]
  %y: float32[1, 2, 6, 6] = Conv(%c, %w) {pads = [0, 0, 0, 0]} from ["conv"]
}"""
FLAT = """graph @g opset {"" = 17} (%x: float32[2, 2, 1, 1]) -> (%y) {
  %w: float32[2, 2] = const [1.0, 2.0, 3.0, 4.0]
  %b: float32[2] = const [1.0, 2.0]
  %f: float32[2, 2] = Flatten(%x) from ["flatten"]
  %y: float32[2, 2] = Gemm(%f, %w, %b) from ["gemm"]
}"""
QUANTISED = """graph @g opset {"" = 17} (%x: uint8[2, 3]) -> (%y) {
  %s: float32[] = const 0.5
  %z: uint8[] = const 3
  %d: float32[2, 3] = DequantizeLinear(%x, %s, %z) from ["dequantize"]
  %t: float32[3, 2] = Transpose(%d) from ["transpose"]
  %y: uint8[3, 2] = QuantizeLinear(%t, %s, %z) from ["quantize"]
}"""
COMPOSITES: dict[str, tuple[Callable[[Target], None], str]] = {
    "conv_add_relu": (conv_add_relu, CONV),
    "conv_bn_relu": (conv_bn_relu, NORM),
    "padded_conv": (padded_conv, PAD),
    "gemm_of_flat": (gemm_of_flat, FLAT),
    "quantised_transpose": (quantised_transpose, QUANTISED),
}


def feed(graph: tinycomp.Graph) -> np.ndarray:
    type_ = graph.inputs[0].type
    return (RNG.standard_normal(type_.shape) * 4 + 5).astype(type_.dtype)


def composites_in(module: tinycomp.Module) -> list[tuple[str, str]]:
    return [(row.target, member.name) for row in module.report().regions for member in row.members]


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_matches_what_it_was_written_for(name: str) -> None:
    write, text = COMPOSITES[name]
    target, graph = target_of(), parse_graph(text, infer=infer_node_types)
    write(target)
    module = tinycomp.compile(graph, target, strict=True, verify=True)
    assert composites_in(module) == [("npu", f"npu.{name}")]
    x = feed(graph)
    np.testing.assert_allclose(module(x), tinycomp.compile(graph, "host", optimize=False)(x), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in COMPOSITES if name != "gemm_of_flat"])
def test_what_the_target_takes_simplified_is_simplified(name: str) -> None:
    write, text = COMPOSITES[name]
    graph = parse_graph(text, infer=infer_node_types)
    everything = target_of("Conv", "Relu", "Gemm", "Reshape", "Transpose")
    write(everything)
    module = tinycomp.compile(graph, everything, strict=True, verify=True)
    assert composites_in(module) == []
    canonical = target_of(canonical=True)
    write(canonical)
    assert composites_in(tinycomp.compile(graph, canonical)) == []


SINGLES = {
    "Sum": "%y: float32[2, 1, 3] = Sum(%x, %x)",
    "Flatten": "%y: float32[2, 3] = Flatten(%x)",
    "Squeeze": "%y: float32[2, 3] = Squeeze(%x, %one)",
    "Unsqueeze": "%y: float32[2, 1, 1, 3] = Unsqueeze(%x, %one)",
    "Transpose": "%y: float32[1, 2, 3] = Transpose(%x) {perm = [1, 0, 2]}",
    "CastLike": "%y: int64[2, 1, 3] = CastLike(%x, %one)",
    "GatherElements": """%row: int64[1, 1, 3] = const [1, 1, 1]
      %y: float32[1, 1, 3] = GatherElements(%x, %row)""",
}


def single(op: str) -> tinycomp.Graph:
    text = f"""graph @g opset {{"" = 17}} (%i: float32[2, 1, 3]) -> (%y) {{
      %one: int64[1] = const [1]
      %x: float32[2, 1, 3] = Relu(%i) from ["relu"]
      {SINGLES[op]} from ["{op.lower()}"]
    }}"""
    return parse_graph(text, infer=infer_node_types)


@pytest.mark.parametrize("op", SINGLES)
def test_an_operator_stays_for_the_target_that_takes_it(op: str) -> None:
    graph = single(op)
    module = tinycomp.compile(graph, target_of("Relu", op), strict=True, verify=True)
    assert [dict(row.ops) for row in module.report().regions] == [{"Relu": 1, op: 1}]
    x = feed(graph)
    np.testing.assert_array_equal(module(x), tinycomp.compile(graph, "host", optimize=False)(x))


@pytest.mark.parametrize("op", sorted(SINGLES.keys() - {"GatherElements"}))  # which becomes several
def test_it_becomes_what_the_first_target_takes(op: str) -> None:
    simplified = {"Sum": "Add", "CastLike": "Cast"}.get(op, "Reshape")
    first, second = target_of("Relu", simplified), target_of("Relu", op, name="second")
    module = tinycomp.compile(single(op), [first, second], strict=True)
    assert [(row.target, dict(row.ops)) for row in module.report().regions] == [("npu", {"Relu": 1, simplified: 1})]
    module = tinycomp.compile(single(op), [second, first], strict=True)
    assert [(row.target, dict(row.ops)) for row in module.report().regions] == [("second", {"Relu": 1, op: 1})]
    module = tinycomp.compile(single(op), [target_of("Neg", name="other"), "c"], strict=True)
    assert simplified in module.report().regions[0].ops


def test_rules_that_refuse_the_other_form_keep_this_one() -> None:
    target = target_of("Relu", "Flatten")

    @target.op("Reshape")
    def _(node: Node) -> Any:
        return tinycomp.reject("no Reshape to rank 2") if node.output.type.rank == 2 else True

    module = tinycomp.compile(single("Flatten"), target, strict=True)
    assert [dict(row.ops) for row in module.report().regions] == [{"Relu": 1, "Flatten": 1}]


def test_a_product_of_rows_stays_a_gemm_for_who_takes_gemms() -> None:
    text = """graph @g opset {"" = 17} (%x: float32[2, 3, 2]) -> (%y) {
      %w: float32[2, 2] = const [1.0, 2.0, 3.0, 4.0]
      %b: float32[2] = const [1.0, 2.0]
      %rows: int64[2] = const [-1, 2]
      %back: int64[3] = const [2, 3, 2]
      %r: float32[6, 2] = Reshape(%x, %rows) from ["rows"]
      %p: float32[6, 2] = Gemm(%r, %w, %b) from ["gemm"]
      %y: float32[2, 3, 2] = Reshape(%p, %back) from ["back"]
    }"""
    graph = parse_graph(text, infer=infer_node_types)
    report = tinycomp.compile(graph, target_of("Gemm", "Reshape"), strict=True).report()
    assert [dict(row.ops) for row in report.regions] == [{"Reshape": 2, "Gemm": 1}]
    report = tinycomp.compile(graph, target_of("Gemm", "Reshape", "MatMul", "Add"), strict=True).report()
    assert [dict(row.ops) for row in report.regions] == [{"MatMul": 1, "Add": 1}]


def test_what_a_policy_excludes_is_not_kept() -> None:
    graph = single("Flatten")
    module = tinycomp.compile(graph, target_of("Relu", "Flatten", policy=Policy(exclude=("Flatten",))))
    assert [host.op for host in module.report().hosts] == ["Reshape"]


def test_both_spellings_of_a_sum_of_two_match() -> None:
    target = target_of()

    @target.composite
    def sum_relu(x, y):
        return P.Relu(P.Sum(x, y))

    for op in ("Add", "Sum"):
        text = f"""graph @g opset {{"" = 17}} (%a: float32[2], %b: float32[2]) -> (%y) {{
          %s: float32[2] = {op}(%a, %b) from ["sum"]
          %y: float32[2] = Relu(%s) from ["relu"]
        }}"""
        graph = parse_graph(text, infer=infer_node_types)
        for optimize in (True, False):
            module = tinycomp.compile(graph, target, strict=True, optimize=optimize)
            assert composites_in(module) == [("npu", "npu.sum_relu")]


FLATTENED = ["Flatten(%x)", "Reshape(%x, %shape)"]


@pytest.mark.parametrize("spelled", FLATTENED)
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("rows", [2, '"batch"'])
def test_both_spellings_of_a_flatten_match(spelled: str, optimize: bool, rows: object) -> None:
    target = target_of()
    gemm_of_flat(target)
    batch = str(rows).strip('"')
    text = FLAT.replace("= Flatten(%x)", f"= {spelled}").replace("  %f:", "  %shape: int64[2] = const [-1, 2]\n  %f:")
    graph = parse_graph(text.replace("float32[2, 2, 1, 1]", f"float32[{batch}, 2, 1, 1]").replace(
        "%f: float32[2, 2]", f"%f: float32[{batch}, 2]").replace("%y: float32[2, 2]", f"%y: float32[{batch}, 2]"),
        infer=infer_node_types)  # fmt: skip
    module = tinycomp.compile(graph, target, strict=True, optimize=optimize)
    assert composites_in(module) == [("npu", "npu.gemm_of_flat")]
    assert spelled.split("(")[0] in str(module.graph)
    x = RNG.standard_normal((2, 2, 1, 1)).astype(np.float32)
    np.testing.assert_array_equal(module(x), tinycomp.compile(graph, "host", optimize=False)(x))


VIEWS = [
    ("Flatten", {}, (2, 3, 4), (2, 12), True),
    ("Flatten", {"axis": 1}, (2, 3, 4), (2, 12), True),
    ("Flatten", {"axis": 2}, (2, 3, 4), (2, 12), False),
    ("Flatten", {"axis": -1}, (2, 3, 4), (6, 4), True),
    ("Flatten", {}, (2, 3, 4), (4, 6), False),
    ("Flatten", {}, (2, 3, 4), (24,), False),
    ("Flatten", {"axis": lambda axis: axis == 1}, (2, 3, 4), (2, 12), False),
    ("Squeeze", {}, (2, 1, 3, 1), (2, 3), True),
    ("Squeeze", {}, (2, 1, 3, 1), (2, 1, 3), True),
    ("Squeeze", {}, (2, 1, 3, 1), (2, 1, 3, 1), False),
    ("Squeeze", {}, (2, 1, 3), (3, 2), False),
    ("Squeeze", {}, (2, 3), (2, 3, 1), False),
    ("Unsqueeze", {}, (2, 3), (2, 1, 3), True),
    ("Unsqueeze", {}, (2, 3), (6, 1, 1), False),
]


@pytest.mark.parametrize(("op", "attrs", "before", "after", "same"), VIEWS)
def test_a_reshape_is_a_view_of_the_same_shape(
    op: str, attrs: dict[str, Any], before: tuple[int, ...], after: tuple[int, ...], same: bool
) -> None:
    graph = tinycomp.Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", before))
    reshape = graph.add(
        "Reshape", [x, graph.add_const(np.array(after, np.int64))], types=[TensorType("float32", after)]
    )
    view = pattern(lambda x: P.op(op, x, ..., **attrs), name="view")
    assert isinstance(view.match(reshape, graph), Match) == same


def test_canonical_targets_wish_for_nothing() -> None:
    assert not wishes(find("c"))
    assert not wishes(find("npu_sim"))
    assert KeepForms not in map(type, optimisation_passes([find("c"), target_of("Relu", "Add")]))
    assert wishes(target_of("Sum"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs.graphs(max_nodes=10))
def test_random_graphs_compute_the_same(graph: tinycomp.Graph) -> None:
    target = target_of("Sum", "Flatten", "Relu", "Clip", "MatMul")

    @target.composite
    def twice(x):
        return P.Transpose(P.Transpose(x))

    feeds = [RNG.standard_normal([d if isinstance(d, int) else 2 for d in v.type.shape]).astype(v.type.dtype)
             for v in graph.inputs]  # fmt: skip
    found, wanted = (tinycomp.compile(graph, each, optimize=o)(*feeds) for each, o in ((target, True), ("host", False)))
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
