"""What golden files cannot show: every pair of dtypes, precision, shared parameters, scale, agreement of numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.passes.evaluation import assert_same_results, evaluate, random_feeds
from tinycomp.ir import Graph, TensorType
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.types import numpy_dtype
from tinycomp.ir.verify import verify
from tinycomp.passes.simplify import RULES, Simplify, all_rules
from tinycomp.passes.simplify.no_ops import is_lossless
from tinycomp.rewrite import RewriteRule, RuleGroup
from tinycomp.rewrite.pattern import Head

DTYPES = ["bool", "float16", "bfloat16", "float32", "float64"] + [
    f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)
]


def extremes(dtype):
    """Numbers at which a conversion would lose something, if it did."""
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if "int" in dtype:
        info = np.iinfo(kind)
        return np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], kind)
    info = ml_dtypes.finfo(kind)
    return np.array([info.min, info.max, info.tiny, 1 + float(info.eps), np.inf, -0.0], kind)


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_a_lossless_cast_gives_every_number_back(source, target):
    numbers = extremes(source)
    with np.errstate(all="ignore"):
        back = numbers.astype(numpy_dtype(target)).astype(numpy_dtype(source))
    survives = np.array_equal(back, numbers)
    wraps = "int" in source and "int" in target
    assert survives if is_lossless(source, target) else not survives or wraps or source == target


def test_every_rule_has_a_docstring_and_a_name_of_its_own():
    names = [rule.name for rule in all_rules()]
    assert len(set(names)) == len(names)
    functions = [rule.replacement if isinstance(rule, RewriteRule) else rule.function for rule in all_rules()]
    assert all(function.__doc__ for function in functions)


def test_groups_name_the_operators_at_which_their_rules_start():
    groups = [entry for entry in RULES if isinstance(entry, RuleGroup)]
    assert groups
    assert all(group.heads == frozenset[Head]().union(*(rule.heads or () for rule in group.rules)) for group in groups)


def test_sources_of_all_merged_nodes_survive():
    graph = parse_graph("""graph @main opset {"" = 17} (%x: float32[1, 1, 4, 4]) -> (%y) {
      %w = const float32[1, 1, 1, 1] 2
      %k = const float32[] 3
      %pads = const int64[8] [0, 0, 1, 1, 0, 0, 1, 1]
      %p = Pad(%x, %pads) from ["pad"]
      %c = Conv(%p, %w) from ["conv"]
      %m = Mul(%c, %k) from ["scale"]
      %y = Add(%m, %k) from ["shift"]
    }""")
    Simplify().run(graph)
    assert [(node.op, node.sources) for node in graph.nodes] == [("Conv", ("pad", "conv", "scale", "shift"))]


def test_a_weight_that_others_share_is_not_changed_for_them():
    graph = parse_graph("""graph @main opset {"" = 17} (%x: float32[1, 1, 2, 2]) -> (%y, %z) {
      %w = const float32[1, 1, 1, 1] 2
      %k = const float32[] 3
      %c = Conv(%x, %w)
      %y = Mul(%c, %k)
      %z = Conv(%x, %w)
    }""")
    before = graph.clone()
    Simplify().run(graph)
    assert [node.op for node in graph.nodes] == ["Conv", "Conv"]
    assert_same_results(before, graph, random_feeds(graph), tolerance=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_types_are_scaled_in_float64(dtype):
    rng = np.random.default_rng(0)
    kind = numpy_dtype(dtype)
    graph = Graph(opsets={"": 22})
    x = graph.add_input("x", TensorType(dtype, (1, 2, 4, 4)))
    weight = graph.add_const(rng.standard_normal((3, 2, 1, 1)).astype(kind), "w")
    params = [graph.add_const((rng.random(3) + 0.5).astype(kind)) for _ in range(4)]
    conv = graph.add("Conv", [x, weight])
    graph.set_outputs([graph.add("BatchNormalization", [conv.output, *params], {"epsilon": 0.125}).output])
    before = graph.clone()
    Simplify().run(graph)
    verify(graph)
    assert [node.op for node in graph.nodes] == ["Conv"]
    assert all(v.type.dtype == dtype for v in graph.nodes[0].inputs)
    assert_same_results(before, graph, random_feeds(graph), tolerance=8 * float(ml_dtypes.finfo(kind).eps))


def test_a_scale_that_overflows_the_weights_stays():
    graph = parse_graph("""graph @main opset {"" = 17} (%x: float16[1, 1, 2, 2]) -> (%y) {
      %w = const float16[1, 1, 1, 1] 60000
      %k = const float16[] 60000
      %c = Conv(%x, %w)
      %y = Mul(%c, %k)
    }""")
    assert not Simplify().run(graph)


def test_pools_of_padded_inputs_agree_at_the_border():
    graph = parse_graph("""graph @main opset {"" = 18} (%x: float32[1, 2, 5, 5]) -> (%a, %m) {
      %axes = const int64[2] [2, 3]
      %pads = const int64[4] [1, 0, 1, 1]
      %low = const float32[] -inf
      %p = Pad(%x, %pads, _, %axes)
      %a = AveragePool(%p) {kernel_shape = [3, 3], strides = [2, 2]}
      %q = Pad(%x, %pads, %low, %axes)
      %m = MaxPool(%q) {kernel_shape = [3, 2], pads = [0, 1, 1, 0], strides = [2, 1]}
    }""")
    before = graph.clone()
    Simplify().run(graph)
    assert {node.op for node in graph.nodes} == {"AveragePool", "MaxPool"}
    assert_same_results(before, graph, random_feeds(graph), tolerance=1e-6)


def test_the_mask_of_dropout_is_all_true():
    graph = parse_graph(
        """graph @main opset {"" = 17} (%x: float32[2, 2]) -> (%y, %mask) { %y, %mask = Dropout(%x) }"""
    )
    Simplify().run(graph)
    assert [node.op for node in graph.nodes] == ["ConstantOfShape"]
    y, mask = evaluate(graph, [np.ones((2, 2), np.float32)])
    np.testing.assert_array_equal(mask, np.ones((2, 2), np.bool_))
    np.testing.assert_array_equal(y, np.ones((2, 2), np.float32))


def test_long_chains_are_simplified_without_recursion():
    graph = Graph(opsets={"": 17})
    value = graph.add_input("x", TensorType("float32", (1, 2, 2, 2)))
    scale = graph.add_const(np.ones((2, 1, 1), np.float32) * 1.001, "scale")
    weight = graph.add_const(np.ones((2, 2, 1, 1), np.float32), "w")
    value = graph.add("Conv", [value, weight]).output
    for _ in range(1000):
        value = graph.add("Identity", [value]).output
        value = graph.add("Mul", [value, scale]).output
        value = graph.add("Transpose", [value], {"perm": [0, 2, 3, 1]}).output
        value = graph.add("Transpose", [value], {"perm": [0, 3, 1, 2]}).output
    graph.set_outputs([value])
    before = graph.clone()
    Simplify().run(graph)
    assert [node.op for node in graph.nodes] == ["Conv"]
    assert_same_results(before, graph, random_feeds(graph), tolerance=1e-3)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("behind", [(3,), (2, 3)])
def test_scattered_slices_keep_their_order_and_negative_indices(reduction, behind):
    ones, tail = ", ".join("1" for _ in behind), ", ".join(map(str, behind))
    graph = parse_graph(f"""graph @main opset {{"" = 18}}
    (%x: float32[N, {tail}], %i: int64[E, {ones}], %u: float32[E, {tail}]) -> (%y, %z) {{
      %shape: int64[{len(behind) + 1}] = const [1, {tail}]
      %ie: int64[E, {tail}] = Expand(%i, %shape)
      %y = ScatterElements(%x, %ie, %u) {{axis = 0, reduction = "{reduction}"}}
      %z = GatherElements(%y, %ie) {{axis = 0}}
    }}""")
    before = graph.clone()
    assert Simplify().run(graph)
    assert {node.op for node in graph.nodes} <= {"ScatterND", "Gather", "Reshape"}
    x, _, u = random_feeds(graph, sizes={"N": 5, "E": 9})
    indices = np.array([0, 4, -1, 2, -5, 2, 2, 0, -3]).reshape(-1, *[1] * len(behind))
    assert_same_results(before, graph, [x, indices, u], tolerance=0)


@pytest.mark.parametrize("behind", [(3,), (2, 3)])
def test_slices_of_a_batch_are_gathered(behind):
    ones, tail = ", ".join("1" for _ in behind), ", ".join(map(str, behind))
    graph = parse_graph(f"""graph @main opset {{"" = 18}}
    (%x: float32[B, N, {tail}], %i: int64[B, K, {ones}]) -> (%y) {{
      %shape: int64[{len(behind) + 2}] = const [1, 1, {tail}]
      %ie: int64[B, K, {tail}] = Expand(%i, %shape)
      %y = GatherElements(%x, %ie) {{axis = 1}}
    }}""")
    before = graph.clone()
    assert Simplify().run(graph)
    assert {node.op for node in graph.nodes} <= {"GatherND", "Reshape"}
    x, _ = random_feeds(graph, sizes={"B": 2, "N": 4, "K": 3})
    indices = np.array([[0, -1, 3], [-4, 2, 2]]).reshape(2, 3, *[1] * len(behind))
    assert_same_results(before, graph, [x, indices], tolerance=0)
