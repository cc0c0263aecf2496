from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.targets.quantized_layers import quantized_product
from tinycomp.driver.pipeline import Pipeline, partitioning_passes
from tinycomp.frontend.definition import definition, is_defined_by_others
from tinycomp.frontend.quantized_layer import is_quantized_product, layer_definition
from tinycomp.ir import TensorType
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.verify import verify
from tinycomp.ops import bind
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.expand_functions import ExpandFunctions
from tinycomp.quantized import patterns
from tinycomp.rewrite import P, reject
from tinycomp.target import Policy, Target

SWISH = 'graph @main opset {"" = 24} (%x: float32[2, 3]) -> (%y) { %y = Swish(%x) from ["gate"] }'


def parse(text: str) -> tinycomp.Graph:
    return parse_graph(text, infer=infer_node_types)


def target(*ops: str, name: str = "npu", policy: Policy | None = None) -> Target:
    made = Target(name, policy=policy)
    if ops:
        made.accept(*ops)
    return made


def test_the_first_target_that_takes_every_part_gets_them() -> None:
    graph = parse(SWISH)
    some, every = target("Mul", name="some"), target("Mul", "Sigmoid", name="every")
    assert ExpandFunctions((some, every)).run(graph)
    assert {(n.op, n.target, n.sources) for n in graph.nodes} == {
        ("Sigmoid", "every", ("gate",)),
        ("Mul", "every", ("gate",)),
    }
    (remark,) = graph.remarks
    assert (remark.target, remark.sources) == ("some", ("gate",))
    assert (remark.rule, remark.reason) == ("definition of Swish", "Sigmoid: no rule for Sigmoid")


def test_a_node_that_a_target_takes_stays_whole_whatever_others_take() -> None:
    graph = parse(SWISH)
    assert not ExpandFunctions((target("Mul", "Sigmoid", name="parts"), target("Swish", name="whole"))).run(graph)
    assert [n.op for n in graph.nodes] == ["Swish"]
    assert not graph.remarks


def test_the_reason_of_a_rule_is_the_reason_of_the_remark() -> None:
    npu = target("Mul")
    npu.op("Sigmoid")(lambda node: reject("the unit for Sigmoid is asleep"))
    graph = parse(SWISH)
    assert not ExpandFunctions((npu,)).run(graph)
    assert [r.reason for r in graph.remarks] == ["Sigmoid: the unit for Sigmoid is asleep"]


def test_patterns_of_the_target_find_their_match_in_a_definition() -> None:
    npu = target()

    @npu.composite
    def gate(x):
        return x * P.Sigmoid(x)

    graph = parse(SWISH)
    assert ExpandFunctions((npu,)).run(graph)
    (node,) = graph.nodes
    assert (node.op, node.target, node.sources) == ("npu.gate", "npu", ("gate",))
    assert {inner.sources for inner in node.body.nodes} == {("gate",)}


@pytest.mark.parametrize("where", ["target", "pass"])
@pytest.mark.parametrize("glob", ["Swish", "ga*"])
def test_what_a_policy_excludes_stays_whole(where: str, glob: str) -> None:
    policy = Policy(exclude=(glob,))
    npu = target("Mul", "Sigmoid", policy=policy if where == "target" else None)
    graph = parse(SWISH)
    assert not ExpandFunctions((npu,), policy if where == "pass" else Policy()).run(graph)


def test_a_definition_in_a_definition_is_expanded_only_as_far_as_needed() -> None:
    text = 'graph @main opset {"" = 28} (%x: float32[2, 4]) -> (%y) { %y = SwiGLU(%x, %x) }'
    for ops, found in ((("Swish", "Mul"), {"Swish", "Mul"}), (("Sigmoid", "Mul"), {"Sigmoid", "Mul"})):
        graph = parse(text)
        assert ExpandFunctions((target(*ops),)).run(graph)
        verify(graph)
        assert {n.op for n in graph.nodes} == found


def test_a_definition_that_folds_to_nothing_leaves_constants() -> None:
    graph = parse(
        'graph @main opset {"" = 17} (%x: float32[2]) -> (%y) {'
        "%one: int64[] = const 4 %w = HannWindow(%one) %y = Neg(%w) }"
    )
    assert ExpandFunctions((target("Neg"),)).run(graph)
    assert [n.op for n in graph.nodes] == ["Neg"]
    assert graph.nodes[0].inputs[0].is_const


def quantized_target(*ops: str, policy: Policy | None = None) -> Target:
    npu = target(*ops, policy=policy)
    npu.composite(patterns.qconv)
    npu.composite(patterns.qdense)
    return npu


PRODUCTS = pytest.mark.parametrize("op", ["QLinearConv", "QLinearMatMul"])


@PRODUCTS
def test_a_quantised_product_becomes_one_composite(op: str) -> None:
    graph = quantized_product(op).graph
    assert ExpandFunctions((target("Conv", "MatMul"), quantized_target())).run(graph)
    verify(graph)
    (node,) = graph.nodes
    assert (node.is_composite, node.target, node.sources) == (True, "npu", (op,))
    assert [v.name for v in graph.outputs] == [node.output.name]
    (remark,) = graph.remarks
    assert (remark.rule, remark.reason) == (f"definition of {op}", "no composite takes it")


@PRODUCTS
def test_a_target_that_takes_a_quantised_product_keeps_it(op: str) -> None:
    graph = quantized_product(op).graph
    assert not ExpandFunctions((quantized_target(op),)).run(graph)
    assert [n.op for n in graph.nodes] == [op]


@PRODUCTS
def test_the_parts_of_a_quantised_product_are_not_taken_one_by_one(op: str) -> None:
    """They add floats, where the node adds integers."""
    graph = quantized_product(op).graph
    assert not ExpandFunctions((target("DequantizeLinear", "Conv", "MatMul", "QuantizeLinear"),)).run(graph)
    assert [n.op for n in graph.nodes] == [op]


@PRODUCTS
@pytest.mark.parametrize("policy", [Policy(min_nodes=10), Policy(exclude=("QuantizeLinear",))], ids=["least", "glob"])
def test_a_quantised_product_that_a_policy_hands_back_is_a_layer_of_the_host(op: str, policy: Policy) -> None:
    layer = quantized_product(op)
    graph, (x,) = layer.graph, layer.data()
    before = tinycomp.compile(graph, "host")(x)
    Pipeline(partitioning_passes([quantized_target(policy=policy)]), check=True).run(graph)
    assert {(node.target, node.sources) for node in graph.nodes} == {(None, (op,))}
    assert [node.op for node in graph.nodes][-2:] == [op.removeprefix("QLinear"), "QuantizeLinear"]
    np.testing.assert_array_equal(tinycomp.compile(graph, "host")(x), before)


@PRODUCTS
def test_scales_of_several_shapes_make_one_layer(op: str) -> None:
    """One scale and a zero point per channel, or the other way round; both as vectors, as some exporters write them."""
    for shapes in (((), (16,)), ((16,), ()), ((1,), (1,))):
        layer = quantized_product(op)
        node = layer.graph.nodes[0]
        for index, shape, dtype in zip((4, 5), shapes, (np.float32, np.int8), strict=True):
            layer.graph.set_input(node, index, layer.graph.add_const(np.full(shape, 0.5 if index == 4 else 3, dtype)))
        module = tinycomp.compile(layer.graph, "c", strict=True)
        (x,) = layer.data()
        np.testing.assert_array_equal(module(x), tinycomp.compile(layer.graph, "host")(x))


def test_what_is_no_layer_has_no_layer() -> None:
    layer = quantized_product("QLinearMatMul")
    node = layer.graph.nodes[0]
    layer.graph.set_input(node, 1, layer.graph.add_input("scale", TensorType("float32", ())))
    assert layer_definition(node) is None
    assert not is_quantized_product(parse(SWISH).nodes[0])


def attention(dims: list) -> onnx.ModelProto:
    q, k, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name in "qky")
    node = helper.make_node("Attention", ["q", "k", "k"], ["y"], is_causal=1, softmax_precision=11, name="attention")
    return helper.make_model(helper.make_graph([node], "g", [q, k], [y]), opset_imports=[helper.make_opsetid("", 24)])


def test_a_definition_goes_to_the_target_for_all_sizes() -> None:
    module = tinycomp.compile(attention(["n", 2, "rows", 8]))
    assert not module.report().hosts
    for n, rows in ((1, 5), (3, 2)):
        q, k = (np.random.default_rng(seed).standard_normal((n, 2, rows, 8)).astype(np.float32) for seed in (0, 1))
        expected = tinycomp.compile(attention([n, 2, rows, 8]), target="host")(q, k)
        np.testing.assert_allclose(module(q, k), expected, rtol=1e-4, atol=1e-5)


def test_only_operators_with_a_function_have_a_definition() -> None:
    graph = parse('graph @main opset {"" = 17} (%x: float32[2]) -> (%y) { %a = Relu(%x) %y = Neg(%a) }')
    assert [is_defined_by_others(n) for n in graph.nodes] == [True, False]
    assert definition(graph.nodes[1]) is None
    assert str(definition(graph.nodes[0])).count("Max@13") == 1


def test_a_definition_computes_what_the_kernel_does() -> None:
    graph = parse(
        'graph @main opset {"" = 17} (%x: float16[4, 6], %t: int64[4], %w: float16[6]) -> (%y) {'
        '%y = NegativeLogLikelihoodLoss(%x, %t, %w) {reduction = "mean", ignore_index = 2} }'
    )
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 6)).astype(np.float16), rng.random(6).astype(np.float16)
    t = np.array([0, 2, 5, 1])
    (expected,) = bind(graph.nodes[0])[0](x, t, w)
    body = definition(graph.nodes[0])
    assert body is not None
    found = tinycomp.compile(body, target="host")(x, t, w)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=4e-3)
