"""Describing a target, its rules' answers, finding targets by name, and policies."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from tests.calls import calls_of
from tests.partition_tools import graph_of, target_of
from tinycomp.errors import TargetError
from tinycomp.ir import Graph, TensorType
from tinycomp.rewrite import P, reject
from tinycomp.target import Policy, Target, TransferCost, find, lookup, names
from tinycomp.target.policy import macs, operators, transferred_bytes


def nodes(body: str, outputs: str):
    graph = graph_of(body, outputs)
    return graph, graph.nodes


def test_rules_are_tried_in_order_and_say_why_not():
    npu = Target("npu")

    @npu.op("Relu", "Neg")
    def _(node):
        return node.inputs[0].type.dtype == "int8" or reject(f"{node.op} is int8 only")

    @npu.op("Neg")
    def _(node):
        return None

    _, (relu, neg) = nodes("%a = Relu(%x)\n%b = Neg(%a)", "b")
    assert [rule.refusal(relu) for rule in npu.rules_for(relu)] == ["Relu is int8 only"]
    assert [rule.refusal(neg) for rule in npu.rules_for(neg)] == ["Neg is int8 only", None]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(True, None), (None, None), (np.bool_(True), None), (False, "the rule gives no reason"), (reject("no"), "no")],
)
def test_what_a_predicate_may_answer(answer, reason):
    npu = Target("npu")
    npu.op("Relu")(lambda node: answer)
    _, (relu,) = nodes("%a = Relu(%x)", "a")
    assert npu.rules_for(relu)[0].refusal(relu) == reason


def test_other_answers_and_failures_name_the_rule_and_the_node():
    npu = Target("npu")
    npu.op("Relu")(lambda node: 3)
    npu.op("Neg")(lambda node: node.nothing)
    _, (relu, neg) = nodes("%a = Relu(%x)\n%b = Neg(%a)", "b")
    with pytest.raises(TargetError, match=r"^npu\.Relu at a: .*expected True, None, False or reject.*found 3$"):
        npu.rules_for(relu)[0].refusal(relu)
    with pytest.raises(TargetError, match=r"^npu\.Neg at b: the operator rule failed: AttributeError"):
        npu.rules_for(neg)[0].refusal(neg)


def test_a_star_rule_serves_operators_of_its_domain_without_a_rule():
    npu = target_of("npu", "*")
    npu.op("Neg")(lambda node: False)
    _, (relu, neg, odd) = nodes("%a = Relu(%x)\n%b = Neg(%a)\n%c: float32[2] = vendor::Odd@1(%b)", "c")
    assert [rule.name for rule in npu.rules_for(relu)] == ["npu.*"]
    assert [rule.name for rule in npu.rules_for(neg)] == ["npu.Neg"]
    assert npu.rules_for(odd) == []
    npu.accept("vendor::Odd")
    assert [rule.name for rule in npu.rules_for(odd)] == ["npu.vendor::Odd"]


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("Conv2D", 'target npu: there is no operator "Conv2D". Did you mean "Conv"?'),
        ("relu", 'there is no operator "relu". Did you mean "Relu"?'),
        ("GroupQueryAttention", 'Did you mean "com.microsoft::GroupQueryAttention"?'),
        ("QuackOp", "Operators of other domains are written with these: com.vendor::Op."),
    ],
)
def test_a_rule_for_an_operator_that_does_not_exist_is_refused(op, text):
    for write in (Target("npu").accept, lambda op: Target("npu").op(op)(lambda node: True)):
        with pytest.raises(TargetError) as caught:
            write(op)
        assert text in str(caught.value)
    Target("npu").accept("*", "com.vendor::Anything", "ai.onnx.ml::Scaler")


def test_wrongly_written_targets():
    with pytest.raises(TargetError, match="a target needs a name of its own"):
        Target("host")
    npu = Target("npu")
    with pytest.raises(TargetError, match=r'names no operator.*Write @npu.op\("Add"\), with the brackets'):
        npu.op(lambda node: True)(lambda node: True)


def test_the_code_generator():
    npu = Target("npu")
    _, (relu,) = nodes("%a = Relu(%x)", "a")
    assert not npu.generates
    with pytest.raises(TargetError, match=r"target npu: the target has no code generator. Add one with @npu.codegen"):
        npu.build(relu)

    @npu.codegen
    def build(region):
        return region.inputs[5]

    assert npu.generates
    with pytest.raises(TargetError, match="npu, region Relu: the code generator failed: IndexError"):
        npu.build(relu)
    npu.codegen(lambda region: region.op)
    assert npu.build(relu) == "Relu"


def test_composites_are_traced_named_and_checked():
    npu = Target("npu")

    @npu.composite
    def relu_neg(x):
        return P.Neg(P.Relu(x))

    @npu.composite(name="double")
    def _(x):
        return P.Add(x, x)

    @relu_neg.check
    def _(m):
        return m.x.type.rank == 4 or reject("rank 4 only")

    assert [c.qualified_name for c in npu.composites] == ["npu.relu_neg", "npu.double"]
    _, (_, neg) = nodes("%a = Relu(%x)\n%b = Neg(%a)", "b")
    assert str(relu_neg.match(neg)) == "rank 4 only"
    with pytest.raises(TargetError, match='target npu: the target has two composites "double"'):
        npu.composite(name="double")(lambda x: P.Relu(x))


def test_unknown_names_are_answered_with_the_nearest():
    known = "expected one of c, ethos_u, npu_sim, tosa"
    with pytest.raises(TargetError, match=rf'no target "npusim"; {known}.*Did you mean "npu_sim"\?'):
        find("npusim")


def test_a_target_says_what_it_requires():
    def driver():
        raise TargetError("the driver is missing", where="npu", hint="Install acme-driver.")

    Target("npu").require()
    with pytest.raises(TargetError, match=r"npu: the driver is missing\. Install acme-driver"):
        Target("npu", requires=driver).require()


def test_targets_of_installed_packages(monkeypatch):
    entries = [
        EntryPoint("acme", "tests.target.test_target:ACME", lookup.GROUP),
        EntryPoint("broken", "tests.no_such_module:X", lookup.GROUP),
        EntryPoint("text", "tests.target.test_target:__name__", lookup.GROUP),
        EntryPoint("c", "tests.target.test_target:ACME", lookup.GROUP),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == lookup.GROUP else [])
    assert names() == ["c", "ethos_u", "npu_sim", "tosa", "acme", "broken", "text"]
    assert find("acme") is ACME
    with pytest.raises(TargetError, match=r'the target "broken" does not load: No module'):
        find("broken")
    with pytest.raises(
        TargetError, match=r"is not a target; expected a tinycomp.Target, or a function that returns one; found str"
    ):
        find("text")


def test_an_entry_point_may_name_a_factory(monkeypatch):
    factories = {"made": make_acme, "failing": lambda: {}["driver"], "other": dict, "refusing": refuse}
    for name, factory in factories.items():
        monkeypatch.setitem(globals(), name, factory)
    entries = [EntryPoint(name, f"tests.target.test_target:{name}", lookup.GROUP) for name in factories]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    assert find("made").name == "made"
    assert find("made:rows=3").options.rows == 3
    with pytest.raises(TargetError, match=r'the target "failing" cannot be made: KeyError: \'driver\''):
        find("failing")
    with pytest.raises(TargetError, match=r"^driver: it is too old$"):
        find("refusing")
    with pytest.raises(TargetError, match=r'the entry point "other" is not a target;.*found dict'):
        find("other")


def make_acme():
    return Target("made", options=AcmeOptions)


def refuse():
    raise TargetError("it is too old", where="driver")


@dataclass(frozen=True)
class AcmeOptions:
    """The options of a target.

    Attributes:
        rows: Rows of a tile.
    """

    rows: int = 16


def test_built_in_targets_are_found_without_asking_all_packages(monkeypatch):
    monkeypatch.delattr(metadata, "entry_points")
    assert find("c").name == "c"


ACME = target_of("acme", "Relu")


def test_a_policy_excludes_names_operators_and_what_lies_behind():
    graph, _ = nodes("%a = Relu(%x)\n%b = Neg(%a)\n%c = Abs(%b)\n%d = Abs(%x)\n%e = Exp(%d)", "c e")
    by_name = {n.label: r for n, r in Policy(exclude=("Exp", "a*"), host_after=("b",)).excluded(graph).items()}
    assert by_name == {"a": "excluded by a*", "c": "host_after: depends on b", "e": "excluded by Exp"}
    behind = {n.label: r for n, r in Policy(host_after=("a",)).excluded(graph).items()}
    assert behind == {"b": "host_after: depends on a", "c": "host_after: depends on a"}


def test_what_a_policy_excludes_comes_in_the_order_of_the_graph():
    names = [f"n{i}" for i in range(300)]
    body = "\n".join(f"%{name} = Relu(%{before})" for before, name in itertools.pairwise(["x", *names]))
    graph, ordered = nodes(body, names[-1])
    policy = Policy(exclude=("n1?",), host_after=("n200", "n100"))
    assert list(policy.excluded(graph)) == [*ordered[10:20], *ordered[101:]]


def test_dependents_of_many_nodes_are_found_in_one_walk():
    def calls(size: int) -> int:
        graph = Graph(opsets={"": 17})
        value = graph.add_input("x", TensorType("float32", (2,)))
        for i in range(size):
            value = graph.add("Relu", [value], sources=(f"n{i}",)).output
        graph.set_outputs([value])
        excluded = []
        count = calls_of(lambda: excluded.extend(Policy(host_after=("*",)).excluded(graph)))
        assert len(excluded) == size - 1
        return count

    assert calls(2000) < 10 * calls(250)


def test_a_policy_weighs_size_work_and_transfers():
    graph, (a, b, c) = nodes(
        "%w: float32[4, 3] = const [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]\n"
        "%a = Identity(%x)\n%b = MatMul(%a, %w)\n%c = Relu(%b)", "c",
    )  # fmt: skip
    region = [a, b, c]
    assert operators(a) == []
    assert macs(region) == 2 * 4 * 3
    assert transferred_bytes(graph, region) == 4 * (2 * 4 + 2 * 3)
    assert transferred_bytes(graph, [b]) == 4 * (2 * 4 + 2 * 3)
    assert Policy(min_nodes=2, min_macs=24).refusal(graph, region) is None
    assert Policy(min_nodes=3).refusal(graph, region) == ("min_nodes", "the region has 2 node(s), fewer than 3")
    assert Policy(min_macs=25).refusal(graph, region) == ("min_macs", "the region has 24 MACs, fewer than 25")
    dear = TransferCost(bandwidth=56, launch=0.5, host_speed=1e9)
    assert Policy(transfer=dear).refusal(graph, region) == (
        "transfer", "moving 56 bytes costs 1.5e+06 us more than the target saves"
    )  # fmt: skip
    assert Policy(transfer=TransferCost(bandwidth=56, host_speed=20)).refusal(graph, region) is None
    with pytest.raises(TargetError, match="speeds above zero"):
        TransferCost(bandwidth=0)


def test_a_policy_keeps_the_regions_with_the_most_work():
    _, (a, b, c) = nodes("%a = Relu(%x)\n%b = Neg(%x)\n%c = Neg(%b)", "a c")
    assert Policy(max_regions=1).surplus([[a], [b, c]]) == [0]
    assert Policy(max_regions=2).surplus([[a], [b, c]]) == []
    assert Policy().surplus([[a], [b, c]]) == []
