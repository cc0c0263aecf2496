"""Nodes run where the user places them, or the compilation fails and says why; policies may be of one target only."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tests.partition_tools import conditional, graph_of, target_of
from tinycomp.driver.lowering import Lowering
from tinycomp.errors import OptionError, PlacementError
from tinycomp.ir.graph import Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.rewrite import P, reject
from tinycomp.runtime.native.executor import Pool
from tinycomp.target import Decline, Policy, Target, TransferCost
from tinycomp.target.policy import read_policy

CHAIN = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)\n%d = Tanh(%c)"
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def running(target: Target, most: int = 100) -> Target:
    """Give a target a code generator that uses the numpy kernels, and declines regions of more than ``most`` nodes."""

    @target.codegen
    def _(region: Node):
        if len(region.body.nodes) > most:
            raise Decline(f"at most {most} nodes, got {len(region.body.nodes)}")
        plan = Lowering({}, Pool(1), reference=True).plan(region.body)
        return lambda *operands: plan.run(list(operands))

    return target


def where(*targets: Target, body: str = CHAIN, outputs: str = "d", **options) -> dict[str, str]:
    """Return by node the target that runs it, having compared the results."""
    module = tinycomp.compile(graph_of(body, outputs), targets, **options)
    plain = tinycomp.compile(graph_of(body, outputs), "host")
    np.testing.assert_allclose(module(X), plain(X), rtol=1e-6)
    report = module.report()
    on = {region.symbol: region.target for region in report.regions} | {"host": "host"}
    return {node.outputs[0].name: on[report.where(node.outputs[0].name)] for node in graph_of(body, outputs).nodes}


def two() -> tuple[Target, Target]:
    return running(target_of("p", "Relu", "Neg", "Tanh")), running(target_of("q", "Relu", "Tanh"))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({"a": "q"}, "q p p p"),
        ({"Relu": "q"}, "q p q p"),
        ({"[ab]": "host"}, "host host p p"),
        ({"c": "p", "Relu": "host"}, "host p p p"),
        ({"*": "host"}, "host host host host"),
        ({"b": "p", "*": "q"}, "q p q q"),
        ({lambda node: node.op == "Tanh": "q"}, "p p p q"),
    ],
)
def test_nodes_are_placed_by_names_globs_operators_and_predicates(place, expected):
    assert list(where(*two(), place=place).values()) == expected.split()


def test_a_composite_never_holds_a_node_that_is_placed_elsewhere():
    npu = Target("npu")

    @npu.composite
    def pair(x):
        return P.Relu(P.Neg(x))

    @npu.composite
    def alone(x):
        return P.Neg(x)

    running(npu)
    assert where(npu, place={"c": "host"}) == {"a": "host", "b": "npu", "c": "host", "d": "host"}
    report = tinycomp.compile(graph_of(CHAIN, "d"), npu, place={"b": "host"}).report()
    assert 'npu.pair: it may not have b: placed by "b": host' in map(str, report.reasons["c"])


def failing(*targets: Target, error: type[Exception] = PlacementError, **options) -> str:
    with pytest.raises(error) as caught:
        tinycomp.compile(graph_of(CHAIN, "d"), targets, **options)
    return str(caught.value)


def test_a_placement_that_no_rule_allows_is_an_error_with_the_reason():
    p, q = two()
    assert failing(p, q, place={"b": "q"}) == (
        'main: 1 node(s) cannot run where they were placed; expected "b": q; found b (Neg) on the host: q: no rule for'
        " Neg. Leave the entry out, or place the node where a target takes it."
    )
    q.op("Neg")(lambda node: reject("Neg is for int8 only"))
    assert "found b (Neg) on the host: q.Neg: Neg is for int8 only." in failing(p, q, place={"Neg": "q"})


def test_a_placement_that_a_policy_a_check_or_a_code_generator_refuses_is_an_error():
    p, q = two()
    policy = {"q": Policy(min_nodes=2)}
    assert "policy.min_nodes: the region has 1 node(s), fewer than 2" in failing(p, q, place={"a": "q"}, policy=policy)
    q.region_check(lambda region: reject("closed today"))
    assert "found a (Relu) on the host: q.region_check: closed today" in failing(p, q, place={"a": "q"})
    p, q = two()
    assert "q: declined: at most 0 nodes, got 1" in failing(p, running(q, 0), place={"a": "q"})


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({"e": "q"}, 'place, "e": q: no node of the model is meant; expected names of nodes, operators, globs'),
        ({"relu": "q"}, 'Did you mean "Relu"?'),
        ({"a": "r"}, 'place, "a": r: "r" is not a target of this compilation; expected one of p, q, host'),
        ({7: "q"}, "this names no nodes; expected a name, an operator, a glob, or a predicate; found 7"),
        ([("a", "q")], "not a placement; expected a dict such as"),
        ({lambda node: False: "q"}, "no node of the model is meant"),
    ],
)
def test_placements_that_mean_nothing(place, text):
    assert text in failing(*two(), error=OptionError, place=place)


def test_placing_needs_the_default_passes():
    text = failing(*two(), error=OptionError, place={"a": "q"}, passes="simplify")
    assert "nodes are placed by the default passes only" in text


def test_nodes_in_branches_are_placed_too():
    npu = running(target_of("npu", "If", "Relu"))
    assert [r.ops for r in tinycomp.compile(conditional(), npu).report().regions] == [{"If": 1, "Relu": 2}]
    report = tinycomp.compile(conditional(), npu, place={"u": "host"}).report()
    assert not report.regions
    report = tinycomp.compile(conditional(), npu, place={"y": "host"}).report()
    assert [r.ops for r in report.regions] == [{"Relu": 1}, {"Relu": 1}]


# Policies ------------------------------------------------------------------------------------------------------------


def test_a_policy_for_one_target_replaces_its_own_and_does_not_bind_another():
    p, q = two()
    assert list(where(p, q, policy={"p": Policy(exclude=("Relu",))}).values()) == ["q", "p", "q", "p"]
    assert list(where(p, q, policy={"*": Policy(exclude=("Relu",))}).values()) == ["host", "p", "host", "p"]
    p.policy = Policy(exclude=("Tanh",))
    assert list(where(p, q).values()) == ["p", "p", "p", "q"]
    assert list(where(p, q, policy={"p": Policy()}).values()) == ["p", "p", "p", "p"]
    assert p.policy == Policy(exclude=("Tanh",)), "the target of the caller is as it was"


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (
            {"r": Policy()},
            'there is a policy for "r", which is not a target of this compilation; expected policies for p',
        ),
        ({"p": 7}, "policy, p: not a policy; expected a Policy; found 7"),
        (7, "not a policy; expected a Policy, or a dict of policies by target; found 7"),
    ],
)
def test_policies_that_are_none(policy, text):
    assert text in failing(*two(), error=OptionError, policy=policy)


def test_policies_are_read_from_texts():
    text = "min-nodes=2,max_regions=3,exclude=Softmax+head/*,bandwidth=8e9,launch=5e-6"
    assert read_policy(text, "npu") == Policy(
        min_nodes=2, max_regions=3, exclude=("Softmax", "head/*"), transfer=TransferCost(8e9, 5e-6)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_nodes", "npu: cannot read a policy; expected FIELD=VALUE; found min_nodes"),
        ("min_node=2", 'npu: a policy has no "min_node"; expected one of min_nodes, .* Did you mean "min_nodes"'),
        ("min_nodes=2.5", "npu, min_nodes: not a number; expected a whole number; found 2.5"),
        ("launch=1", "npu: a cost of transfers needs a bandwidth; expected bandwidth=…; found launch=1"),
    ],
)
def test_texts_that_are_no_policy(text, message):
    with pytest.raises(OptionError, match=message):
        read_policy(text, "npu")


# Code generators that decline ----------------------------------------------------------------------------------------


def test_a_declined_region_goes_to_the_next_target_and_joins_its_regions():
    """The host between them keeps the Relu of the first target apart from the rest, until it is declined."""
    body = "%a = Neg(%x)\n%b = Relu(%a)\n%c = Abs(%b)\n%d = Tanh(%c)\n%e = Neg(%d)\n%f = Neg(%e)"
    first = running(target_of("first", "Neg"), 1)
    second = running(target_of("second", "Relu", "Abs", "Tanh", "Neg"))
    module = tinycomp.compile(graph_of(body, "f"), [first, second])
    assert [(r.target, dict(r.ops)) for r in module.report().regions] == [
        ("first", {"Neg": 1}),
        ("second", {"Relu": 1, "Abs": 1, "Tanh": 1, "Neg": 2}),
    ]
    assert [str(r) for r in module.report().reasons["e"]] == ["first: declined: at most 1 nodes, got 2"]
    np.testing.assert_allclose(module(X), tinycomp.compile(graph_of(body, "f"), "host")(X), rtol=1e-6)


def test_a_region_that_every_target_declines_runs_on_the_host():
    p, q = (running(each, 0) for each in two())
    module = tinycomp.compile(graph_of(CHAIN, "d"), [p, q], verify=True)
    report = module.report()
    assert (report.regions, len(report.hosts)) == ((), 4)
    assert [str(r) for r in report.reasons["a"]] == [
        "p: declined: at most 0 nodes, got 4", "q: declined: at most 0 nodes, got 1"
    ]  # fmt: skip
    with pytest.raises(tinycomp.TinycompError, match=r"4 node\(s\) would run on the host"):
        tinycomp.compile(graph_of(CHAIN, "d"), [p, q], strict=True)


def test_what_is_declined_goes_to_c_with_its_composites():
    """What one region holds is given back as the operators that it was, so that c finds its composites."""
    npu = running(target_of("npu", "MatMul", "Add", "Relu"), 0)
    rng = np.random.default_rng(0)
    graph = graph_of("%w = Transpose(%x) {perm = [1, 0]}\n%m = MatMul(%x, %w)\n%r = Relu(%m)", "r")
    module = tinycomp.compile(graph, [npu, "c"])
    assert [r.target for r in module.report().regions] == ["c"]
    x = rng.standard_normal((2, 4), dtype=np.float32)
    np.testing.assert_allclose(module(x), np.maximum(x @ x.T, 0), rtol=1e-5)


def test_regions_of_a_target_that_declines_one_are_generated_once():
    built: list[str] = []
    npu = target_of("npu", "Relu", "Tanh")

    @npu.codegen
    def _(region):
        built.append(region.op)
        if region.body.nodes[0].op == "Tanh":
            raise Decline("no Tanh")
        return lambda x: np.maximum(x, 0)

    body = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Tanh(%b)\n%d = Neg(%c)\n%e = Relu(%d)"
    report = tinycomp.compile(graph_of(body, "e"), npu).report()
    assert [r.symbol for r in report.regions] == ["npu_0", "npu_2"]
    assert (built.count("npu_0"), built.count("npu_2")) == (1, 1)


def test_declining_the_sizes_of_a_run_is_an_error():
    npu = target_of("npu", "Relu", static_shapes=True)
    running(npu, 0)
    text = 'graph @main opset {"" = 17} (%x: float32[N, 4]) -> (%y) { %y = Relu(%x) }'
    module = tinycomp.compile(parse_graph(text, infer=infer_node_types), npu)
    with pytest.raises(tinycomp.TinycompError) as caught:
        module(X)
    assert "the code generator declined the sizes of a run: at most 0 nodes, got 1" in str(caught.value)
    assert "Target.region_check" in str(caught.value)
