"""compile(): its options, its errors, and what verify=True and dump= promise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import helper, parser

import tinycomp
import tinycomp.data
from tests import graphs
from tests.host_only import DOMAIN, NAME, QUALIFIED
from tests.targets.c.harness import make_model
from tinycomp.driver.dump import read_dump
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.errors import FallbackError, PatternError, TargetError, UnsupportedError, VerifyError
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import TensorType
from tinycomp.passes.base import Pass
from tinycomp.runtime.native.processor import available_isas
from tinycomp.target import Policy
from tinycomp.targets.c import TARGET

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32)


def model(*ops: str):
    """A chain of unary operators behind a matrix product."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["v0"], name="product")]
    for i, op in enumerate(ops):
        domain = DOMAIN if op == NAME else ""
        nodes.append(helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], name=op.lower(), domain=domain))
    return make_model(nodes, {"x": X}, {"w": W}, [f"v{len(ops)}"])


@pytest.mark.parametrize("target", ["c", "host"])
def test_an_output_listed_twice_has_two_names(tmp_path, target):
    proto = model("Relu")
    proto.graph.output.append(proto.graph.output[0])
    for form in (proto, tinycomp.from_onnx(proto)):
        module = tinycomp.compile(form, target, verify=True)
        assert [spec.name for spec in module.outputs] == ["v1", "v1_1"]
        results = module.run({"x": X})
        assert list(results) == ["v1", "v1_1"]
        assert results["v1"] is not results["v1_1"]
        np.testing.assert_array_equal(results["v1"], results["v1_1"])
    module.save(tmp_path / "m.tcm")
    assert list(tinycomp.load(tmp_path / "m.tcm").run({"x": X})) == ["v1", "v1_1"]
    exported = tinycomp.to_onnx(tinycomp.from_onnx(proto))
    assert [output.name for output in exported.graph.output] == ["v1", "v1_1"]


def test_every_kind_of_model_gives_the_same_module(tmp_path):
    proto = model("Relu")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    forms = [proto, proto.SerializeToString(), tmp_path / "m.onnx", str(tmp_path / "m.onnx"), tinycomp.from_onnx(proto)]
    results = [tinycomp.compile(form)(X) for form in forms]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_the_graph_that_is_handed_in_is_left_alone():
    graph = tinycomp.from_onnx(model("Relu", "Tanh"))
    before = str(graph)
    tinycomp.compile(graph, verify=True)
    assert str(graph) == before


def test_strict_lists_what_would_fall_back():
    assert tinycomp.compile(model("Relu"), strict=True).report().hosts == ()
    with pytest.raises(FallbackError) as error:
        tinycomp.compile(model("Relu", NAME, "SequenceConstruct"), strict=True)
    text = str(error.value)
    assert text.startswith(
        "g: 1 node(s) would run on the host; expected every node on c; found hostonly (tests::HostOnly): "
    )
    assert "SequenceConstruct" not in text  # it makes what the caller gets
    assert text.endswith("Compile without strict=True, or add a target that takes them.")


def test_strict_lets_the_containers_of_the_caller_be():
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
        g (optional(float[2, 4]) given) => (seq(float) all) { a = OptionalGetElement(given)
        b = Neg(a)  parts = SplitToSequence<axis = 0>(b)  all = SequenceInsert(parts, a) }""")
    module = tinycomp.compile(proto, strict=True)
    assert {row.tier for row in module.report().hosts} == {"border"}
    assert [dict(row.ops) for row in module.report().regions] == [{"Neg": 1, "Split": 1}]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = module(x)
    assert [piece.tolist() for piece in found] == [[(-x[0]).tolist()], [(-x[1]).tolist()], x.tolist()]


def test_a_map_over_the_pieces_of_a_tensor_leaves_nothing_to_the_host():
    t = np.float32([1, 2, 3, 4])
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[3, 4] x, float[4] t) => (float[3, 4] y) <int64[2] sizes = {1, 2}> {
        pieces = SplitToSequence<axis = 0>(x, sizes)
        mapped = SequenceMap(pieces, t) <body = b (float[n, 4] piece, float[4] whole) => (float[n, 4] r)
            { p = Mul(piece, whole)  r = Add(p, t) }>
        y = ConcatFromSequence<axis = 0>(mapped) }""")
    module = tinycomp.compile(proto, strict=True, verify=True)
    np.testing.assert_array_equal(module.run({"x": X, "t": t})["y"], X * t + t)


def test_a_list_between_nodes_that_compute_stays_on_the_host():
    module = tinycomp.compile(
        parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[3, 4] x, int64 i) => (float[3, 4] y) { a = Relu(x)  list = SequenceConstruct(a, x)
        b = SequenceAt(list, i)  y = Neg(b) }""")
    )
    assert [row.tier for row in module.report().hosts] == ["numpy", "numpy"]


def test_unknown_targets():
    with pytest.raises(TargetError, match=r'there is no target "cc"; expected one of c, .*Did you mean "c"\?'):
        tinycomp.compile(model(), "cc")
    with pytest.raises(TargetError, match=r"not a target; expected a name or a tinycomp\.Target; found 7"):
        tinycomp.compile(model(), [7])
    with pytest.raises(TargetError, match=r"two targets share a name; found c, c\. List every target once\."):
        tinycomp.compile(model(), ["c", TARGET])


@pytest.mark.parametrize("target", ["host", [], ["host"]])
def test_the_host_alone(target):
    module = tinycomp.compile(model("Relu"), target)
    assert module.report().regions == ()
    np.testing.assert_allclose(module(X), np.maximum(X @ W, 0), rtol=1e-5, atol=1e-6)


def test_operators_that_no_tier_knows():
    nodes = [helper.make_node("Frobnicate", ["x"], ["y"], name="odd", domain="com.acme")]
    proto = make_model(nodes, {"x": X}, {}, ["y"])
    proto.opset_import.append(helper.make_opsetid("com.acme", 1))
    with pytest.raises(UnsupportedError, match="Frobnicate"):
        tinycomp.compile(proto)


def test_targets_in_order_of_priority():
    """All that the first target takes, composites and operators, comes before what the second takes, and so on."""
    first, second = tinycomp.Target("first"), tinycomp.Target("second")
    first.accept("Relu", "Tanh")
    second.accept("Relu", "Sin", QUALIFIED)
    first.codegen(lambda region: lambda x: np.maximum(np.tanh(x), 0))
    second.codegen(lambda region: lambda x: x / 2)
    module = tinycomp.compile(model("Tanh", "Relu", "Sin", NAME), [first, "c", second])
    assert [(r.target, dict(r.ops)) for r in module.report().regions] == [
        ("c", {"MatMul": 1}),
        ("first", {"Tanh": 1, "Relu": 1}),
        ("c", {"Sin": 1}),
        ("second", {QUALIFIED: 1}),
    ]
    wanted = tinycomp.compile(model("Tanh", "Relu", "Sin", NAME), "host")(X)
    np.testing.assert_allclose(module(X), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (lambda region: 7, "the code generator returned something that cannot run; .* found int"),
        (lambda region: lambda x: (x, x), "the region's code returned a wrong number of results; expected 1; found 2"),
        (lambda region: 1 / 0, "bad, region bad_0: the code generator failed: ZeroDivisionError: division by zero"),
    ],
)
def test_bad_code_generators_are_named(code, text):
    target = tinycomp.Target("bad")
    target.accept("Relu")
    target.codegen(code)
    with pytest.raises(TargetError, match=text):
        tinycomp.compile(model("Relu"), target)(X)


def test_passes_as_text_and_as_a_list():
    wanted = tinycomp.compile(model("Relu"))(X)
    text = "fold-constants,simplify,merge-composite{target=c},annotate-target{targets=c},merge-regions,partition-graph"
    for passes in (text, partitioning_passes((TARGET,))):
        module = tinycomp.compile(model("Relu"), passes=passes)
        assert module.report().regions[0].composites == {"c.matmul": 1}
        np.testing.assert_array_equal(module(X), wanted)
    assert tinycomp.compile(model("Relu"), passes="").report().regions == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("simplfy", 'there is no pass "simplfy". Did you mean "simplify"?'),
        ("merge-composite{taget=c}", 'the pass merge-composite has no option "taget". Did you mean "target"?'),
        ("merge-composite{target=none-such}", 'there is no target "none-such"'),
        ("simplify fold-constants", "cannot read the list of passes; expected name or name{option=value"),
        ("simplify,,simplify", ",simplify: cannot read the list of passes"),
        ("simplify{", "simplify{: cannot read the list of passes"),
    ],
)
def test_pass_texts_that_are_wrong(text, message):
    with pytest.raises((PatternError, TargetError)) as error:
        tinycomp.compile(model(), passes=text)
    assert message in str(error.value)


def test_dumps_replay(tmp_path):
    wanted = tinycomp.compile(model("Relu", "IsNaN"), dump=tmp_path / "new" / "dump")(X)
    files = sorted((tmp_path / "new" / "dump").glob("*.tir"))
    assert files[0].name == "00-input.tir"
    assert [f.name[:2] for f in files] == [f"{i:02}" for i in range(len(files))]
    assert files[-1].name.endswith("partition-graph.tir")
    for file in files:
        graph = read_dump(file)
        passes = None if file is files[0] else ""
        np.testing.assert_array_equal(tinycomp.compile(graph, passes=passes)(X), wanted)


@dataclass(frozen=True)
class Wrong(Pass):
    """Exchanges every Relu for an Abs."""

    name = "wrong"

    def run(self, graph: Graph) -> bool:
        for node in [n for n in graph.nodes if n.op == "Relu"]:
            graph.replace_uses(node.output, graph.add("Abs", node.inputs).output)
        return True


def test_verify_names_the_pass_that_changes_results():
    with pytest.raises(VerifyError) as error:
        tinycomp.compile(model("Relu"), passes=[Wrong()], verify=True)
    assert 'output "v1": the pass wrong changes the results' in str(error.value)
    tinycomp.compile(model("Relu"), passes=[Wrong()])


def test_verify_names_the_region_whose_code_is_wrong():
    target = tinycomp.Target("liar")
    target.accept("Tanh")
    target.codegen(lambda region: np.sin)
    with pytest.raises(VerifyError) as error:
        tinycomp.compile(model("Relu", "Tanh"), [target, "c"], verify=True)
    assert "liar, region liar_0: the region differs from the numpy kernels" in str(error.value)


@pytest.mark.long
def test_verify_accepts_what_is_right():
    tinycomp.compile(model("Relu", "Tanh", "IsNaN"), verify=True)
    tinycomp.compile(tinycomp.data.digits_model(), verify=True)
    tinycomp.compile(tinycomp.data.digits_model(quantized=True), verify=True)


@given(graphs.graphs())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_graphs_give_on_c_what_they_give_on_the_host(graph):
    module, host = tinycomp.compile(graph, threads=1), tinycomp.compile(graph, "host", passes="")
    feeds = {
        s.name: np.random.default_rng(i).standard_normal(s.shape).astype(np.float32) for i, s in enumerate(host.inputs)
    }
    for (name, found), wanted in zip(module.run(feeds).items(), host.run(feeds).values(), strict=True):
        scale = np.abs(wanted).max(initial=1.0)
        np.testing.assert_allclose(found / scale, wanted / scale, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("isa", available_isas())
def test_every_instruction_set_runs_whole_models(isa, monkeypatch):
    monkeypatch.setenv("TINYCOMP_ISA", isa)
    images, labels = tinycomp.data.digits()
    for quantized in (False, True):
        module = tinycomp.compile(tinycomp.data.digits_model(quantized), shapes={"image": (200, 1, 8, 8)})
        (step,) = module._parts.plan.steps
        assert step.run.native.isa == isa
        assert (module(images).argmax(1) == labels).mean() >= 0.98


def test_a_policy_holds_for_built_in_targets_too():
    policy = Policy(min_macs=500, exclude=("Softmax",))
    report = tinycomp.compile(tinycomp.data.digits_model(), policy=policy).report()
    assert {host.op for host in report.hosts} == {"Softmax"}
    assert str(report.hosts[0].reasons[0]) == "policy: excluded by Softmax"
    nothing = tinycomp.compile(tinycomp.data.digits_model(), policy=Policy(min_macs=10**12)).report()
    assert not nothing.regions
    assert "fewer than 1000000000000" in str(nothing.hosts[0].reasons[0])


def test_a_graph_made_by_hand_takes_every_layout():
    graph = Graph("by_hand")
    x = graph.add_input("x", TensorType("float32", (1, 3, 5, 5)))
    weight = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    conv = graph.add("Conv", [x, graph.add_const(weight)], {"pads": [1, 1, 1, 1]})
    graph.set_outputs([graph.add("Relu", [conv.output]).output], ["y"])
    image = np.random.default_rng(2).standard_normal((1, 3, 5, 5)).astype(np.float32)
    found, expected = tinycomp.compile(graph)(image), tinycomp.compile(graph, target=())(image)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert graph.infer is not tinycomp.from_onnx(model()).infer, "the user's graph is left alone"
