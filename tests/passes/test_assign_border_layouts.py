"""Layouts at the borders of regions: the same results, right types, conversions that cancel, what is left alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp.driver.lowering import Lowering
from tinycomp.errors import TargetError
from tinycomp.ir import TensorType
from tinycomp.ir.blocked import BlockedLayout, conversion_of
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import tensor
from tinycomp.ir.verify import verify
from tinycomp.runtime.native.executor import Pool
from tinycomp.target_api import Decline, P, Target, Tolerance, partitioned

LAYOUTS = ["NCHW8c", "NHWC16", "NHWC", "NCHW16c", "NCHW4c", "CNHW", "NHWC3", "NCHW2w"]


def target_of(name: str, layout: str | None, *ops: str) -> Target:
    """A target that computes with the numpy kernels and has all its data in one layout."""
    target = Target(name, tolerance=Tolerance(rtol=1e-4, atol=1e-4))
    target.accept(*ops)
    if layout is not None:
        target.layouts(lambda node: layout if node.output.rank == len(BlockedLayout.parse(layout).order) else None)

    @target.codegen
    def build(region: Node) -> Callable[..., Sequence[np.ndarray]]:
        plan = Lowering({}, Pool(1), reference=True).plan(region.body)
        return lambda *operands: plan.run(operands)

    return target


def network(rows: int | str = 2) -> Graph:
    """Conv, Relu, Sigmoid, Conv, Relu, MaxPool, with the first Relu as a second result."""
    rng = np.random.default_rng(0)
    graph = Graph("m", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (rows, 12, 6, 8)))

    def conv(data: object, before: int, after: int) -> Node:
        weight = graph.add_const(rng.standard_normal((after, before, 3, 3)).astype(np.float32))
        return graph.add("Conv", [data, weight], {"pads": [1, 1, 1, 1]})

    first = graph.add("Relu", [conv(x, 12, 20).output]).output
    second = graph.add("Relu", [conv(graph.add("Sigmoid", [first]).output, 20, 5).output]).output
    graph.set_outputs([graph.add("MaxPool", [second], {"kernel_shape": [2, 2]}).output, first], ["y", "z"])
    return graph


X = np.random.default_rng(1).standard_normal((2, 12, 6, 8)).astype(np.float32)


def conversions(graph: Graph) -> list[str]:
    """Those outside of regions."""
    return [node.op for node in graph.nodes if conversion_of(node)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_stay_and_types_are_right(layout: str) -> None:
    graph, targets = network(), [target_of("a", layout, "Conv", "Relu"), target_of("b", layout, "Sigmoid")]
    module = tinycomp.compile(graph, targets, verify=True)
    for found, expected in zip(module(X), tinycomp.compile(graph, "host")(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    cut = partitioned(graph, targets)
    verify(cut)
    for node in cut.nodes:
        if node.is_region:
            assert [v.type for v in node.inputs] == [v.type for v in node.body.inputs]
            assert [v.type for v in node.outputs] == [v.type for v in node.body.outputs]
    onnx.checker.check_model(tinycomp.to_onnx(cut), full_check=True)


def test_conversions_between_neighbours_cancel() -> None:
    """Also those between two targets; what is left is at the borders of the model."""
    targets = [target_of("a", "NCHW8c", "Conv", "Relu"), target_of("b", "NCHW8c", "Sigmoid", "MaxPool")]
    cut = partitioned(network(), targets)
    assert conversions(cut) == ["Pack_NCHW8c", "Unpack_NCHW8c", "Unpack_NCHW8c"]
    regions = [node for node in cut.nodes if node.is_region]
    assert [node.target for node in regions] == ["a", "b", "a", "b"]
    for before, after in itertools.pairwise(regions):
        assert after.inputs[0] is before.outputs[0]


def test_where_layouts_differ_there_are_conversions() -> None:
    targets = [target_of("a", "NCHW8c", "Conv", "Relu"), target_of("b", "NHWC", "Sigmoid", "MaxPool")]
    cut = partitioned(network(), targets)
    assert conversions(cut).count("Pack_NHWC") == 2
    assert conversions(cut).count("Unpack_NHWC") == 2


def test_without_layouts_nothing_changes() -> None:
    graph = partitioned(network(), [target_of("a", None, "Conv", "Relu")])
    assert conversions(graph) == []
    assert all(tensor(v.type).rank == 4 for node in graph.nodes for v in node.outputs)


def test_the_host_gets_what_it_can_read() -> None:
    module = tinycomp.compile(network(), [target_of("a", "NCHW8c", "Conv", "Relu"), "c"], verify=True)
    for found, expected in zip(module(X), tinycomp.compile(network(), "host")(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_symbolic_batch_is_fine_but_no_other_size() -> None:
    target = target_of("a", "NCHW8c", "Conv", "Relu", "Sigmoid", "MaxPool")
    module = tinycomp.compile(network("N"), target, verify=True)
    reference = tinycomp.compile(network("N"), "host")
    for rows in (1, 2):
        np.testing.assert_allclose(module(X[:rows])[0], reference(X[:rows])[0], rtol=1e-4, atol=1e-4)
    assert module.report().layouts
    graph = Graph("m", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (1, 8, "H", "W")))
    graph.set_outputs([graph.add("Relu", [x]).output], ["y"])
    assert conversions(partitioned(graph, [target])) == []


def test_the_report_shows_the_conversions_and_strict_is_content() -> None:
    targets = [target_of("a", "NCHW8c", "Conv", "Relu", "Sigmoid", "MaxPool")]
    module = tinycomp.compile(network(), targets, strict=True)
    report = module.report()
    assert report.hosts == ()
    assert [(row.kind, row.layout, row.value) for row in report.layouts] == [
        ("Pack", "NCHW8c", "x"),
        ("Unpack", "NCHW8c", report.layouts[1].value),
        ("Unpack", "NCHW8c", report.layouts[2].value),
    ]
    assert report.layouts[0].bytes == 2 * 2 * 6 * 8 * 8 * 4
    assert report.regions[0].nodes == 6
    assert "Between layouts" in str(report)
    assert type(report).from_dict(report.to_dict()) == report
    module.profile(X)
    loaded = tinycomp.load(module.to_bytes(), targets=targets)
    np.testing.assert_array_equal(loaded(X)[0], module(X)[0])
    assert loaded.report().layouts == report.layouts


def test_bodies_of_control_flow_have_layouts_too() -> None:
    inner = Graph("then", opsets={"": 17})
    data = inner.add_input("d", TensorType("float32", (1, 8, 4, 4)))
    inner.set_outputs([inner.add("Relu", [data]).output])
    other = Graph("else", opsets={"": 17})
    same = other.add_input("d", TensorType("float32", (1, 8, 4, 4)))
    other.set_outputs([other.add("Neg", [same]).output])
    graph = Graph("m", opsets={"": 17})
    test = graph.add_input("t", TensorType("bool", ()))
    x = graph.add_input("x", TensorType("float32", (1, 8, 4, 4)))
    bodies = {"then_branch": inner, "else_branch": other}
    graph.set_outputs([graph.add("If", [test, x], bodies=bodies, captures=1).output], ["y"])
    module = tinycomp.compile(graph, target_of("a", "NCHW8c", "Relu", "Neg"), verify=True)
    array = np.random.default_rng(0).standard_normal((1, 8, 4, 4)).astype(np.float32)
    np.testing.assert_array_equal(module(np.array(True), array), np.maximum(array, 0))
    np.testing.assert_array_equal(module(np.array(False), array), -array)
    assert "Pack_NCHW8c" in str(module.graph)


def test_composites_may_want_layouts() -> None:
    target = Target("a")

    @target.composite
    def conv_relu(x, w=P.const):
        return P.Relu(P.Conv(x, w))

    target.layouts(lambda node: "NHWC16" if node.op == "a.conv_relu" else None)
    cut = partitioned(network(), [target])
    assert conversions(cut) == ["Pack_NHWC16", "Unpack_NHWC16", "Pack_NHWC16", "Unpack_NHWC16"]


@pytest.mark.parametrize("name", ["", "NCHW8x", "NCHX", "NCHW0c", "8c", "NCHW8c4n", "NN", 3])
def test_names_that_are_no_layouts(name: str) -> None:
    with pytest.raises(TargetError, match="not a layout; expected axes in the order of memory and a block"):
        BlockedLayout.parse(name)


def test_an_answer_that_fails_names_the_node() -> None:
    target = target_of("a", None, "Relu")
    target.layouts(lambda node: node.nothing)
    with pytest.raises(TargetError, match=r"a at .*: choosing a layout failed: AttributeError"):
        tinycomp.compile(network(), target)


def test_a_region_that_is_declined_computes_the_same_elsewhere() -> None:
    target = target_of("a", "NCHW8c", "Conv", "Relu")
    build = target._codegen
    assert build is not None

    @target.codegen
    def picky(region: Node) -> object:
        if region.body.nodes[-1].op == "Relu" or len(region.body.inputs[0].users) != 1 or region.op == "a_0":
            raise Decline("not today")
        return build(region)

    module = tinycomp.compile(network(), [target, "c"])
    for found, expected in zip(module(X), tinycomp.compile(network(), "host")(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert [region.target for region in module.report().regions].count("a") == 1
