"""Nodes that rules or lowerings of the C target fail at run on the host, with a warning, or are an error."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import onnx.parser
import pytest

import tinycomp
from tinycomp.driver import compiler
from tinycomp.errors import FallbackError, TargetError
from tinycomp.ir.graph import Graph, Node
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.target import OpRule
from tinycomp.target.decline import VARIABLE
from tinycomp.targets.c import TARGET
from tinycomp.targets.c.codegen import generate
from tinycomp.targets.c.quantized.unsigned import MakeUnsigned

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, float[4, 4] w) => (float[n, 4] y) {
  a = Relu(x)
  b = Softmax(a)
  c = MatMul(b, w)
  d = Softmax(c)
  y = Exp(d)
}
"""
IN_A_LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, int64 t) => (float[n, 4] y) {
  a = Exp(x)
  b = Loop(t, , a) <body = b (int64 i, bool q, float[n, 4] s) => (bool q2, float[n, 4] s2) {
    q2 = Identity(q)
    r = Neg(s)
    s2 = Softmax(r)
  }>
  y = LogSoftmax(b)
}
"""
X, W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.eye(4, dtype=np.float32)


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


@pytest.fixture
def forgiving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lowering of every Softmax fail."""
    lower = generate._lower

    def failing(emit, node, rule):
        if node.op == "Softmax":
            raise IndexError("tuple index out of range")
        lower(emit, node, rule)

    monkeypatch.setattr(generate, "_lower", failing)


def on_the_host(module: tinycomp.Module) -> list[str]:
    return [row.op for row in module.report().hosts]


def check(module: tinycomp.Module) -> None:
    """Check that the two nodes run on the host, and that the others stay in regions."""
    assert on_the_host(module) == ["Softmax", "Softmax"]
    assert sum(row.nodes for row in module.report().regions) == 3
    np.testing.assert_allclose(module(X, W), np.exp(softmax(softmax(np.maximum(X, 0)) @ W)), rtol=1e-5)


@pytest.mark.usefixtures("forgiving", "broken")
def test_nodes_whose_lowering_fails_run_on_the_host(caplog, monkeypatch):
    rounds = []
    replace = compiler.declined.replace_declined
    monkeypatch.setattr(compiler.declined, "replace_declined", lambda *given: rounds.append(1) or replace(*given))
    with caplog.at_level(logging.WARNING, "tinycomp.lowering"):
        module = tinycomp.compile(onnx.parser.parse_model(MODEL))
    check(module)
    assert len(rounds) == 1, "all nodes are declined at once"
    reason = "its lowering failed at b (Softmax): IndexError: tuple index out of range"
    assert [record.message for record in caplog.records] == [
        f"c, region c_0: {reason}. The nodes concerned are left to other targets or the host; please report this."
    ]
    assert {str(reason) for row in module.report().hosts for reason in row.reasons} == {f"failure: declined: {reason}"}
    note = f"The code generator of c failed; b, d run elsewhere. Please report this: declined: {reason}."
    assert note in module.report().notes


@pytest.mark.usefixtures("forgiving", "broken")
def test_strict_refuses_nodes_whose_lowering_fails():
    with pytest.raises(
        FallbackError, match=r"2 node\(s\) would run on the host.* its lowering failed at b \(Softmax\)"
    ):
        tinycomp.compile(onnx.parser.parse_model(MODEL), strict=True)


@pytest.mark.usefixtures("broken")
def test_tests_see_failures_as_errors():
    with pytest.raises(TargetError, match="c, region c_0: the code generator failed: IndexError: tuple index out of"):
        tinycomp.compile(onnx.parser.parse_model(MODEL))


@pytest.mark.usefixtures("forgiving", "broken")
def test_what_can_be_lowered_in_a_body_stays_on_the_target():
    module = tinycomp.compile(onnx.parser.parse_model(IN_A_LOOP))
    assert on_the_host(module) == ["Loop", "Softmax"]
    assert [row.ops for row in module.report().regions] == [{"Exp": 1}, {"Neg": 1}, {"LogSoftmax": 1}]
    expected = np.log(softmax(softmax(-softmax(-np.exp(X)))))
    np.testing.assert_allclose(module(X, np.int64(2)), expected, rtol=1e-5)


@pytest.mark.usefixtures("forgiving", "broken")
def test_sizes_of_a_run_that_cannot_be_lowered_run_on_the_host(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "tinycomp.lowering")  # also if others have turned it off
    monkeypatch.setattr("tinycomp.driver.lowering.is_static", lambda node: False)
    module = tinycomp.compile(onnx.parser.parse_model(MODEL), specialize=True)
    np.testing.assert_allclose(module(X, W), np.exp(softmax(softmax(np.maximum(X, 0)) @ W)), rtol=1e-5)
    assert "its lowering failed at b (Softmax)" in caplog.text


def fails_with(holds: Callable[[Graph], bool]) -> Callable[[MakeUnsigned], None]:
    run = MakeUnsigned.run

    def failing(self: MakeUnsigned) -> None:
        assert not holds(self.graph)
        run(self)

    return failing


@pytest.mark.usefixtures("forgiving")
def test_a_pass_over_the_region_names_no_node_and_they_are_found(monkeypatch):
    monkeypatch.setattr(MakeUnsigned, "run", fails_with(lambda g: any(n.op == "Softmax" for n in g.nodes)))
    check(tinycomp.compile(onnx.parser.parse_model(MODEL)))


@pytest.mark.usefixtures("forgiving")
def test_a_region_that_always_fails_runs_on_the_host(monkeypatch):
    monkeypatch.setattr(MakeUnsigned, "run", fails_with(lambda g: True))
    module = tinycomp.compile(onnx.parser.parse_model(MODEL))
    assert on_the_host(module) == ["Relu", "Softmax", "MatMul", "Softmax", "Exp"]


@pytest.mark.usefixtures("forgiving")
def test_a_program_that_the_runtime_refuses_loses_the_nodes_concerned(monkeypatch):
    start = NativeProgram.__init__

    def refusing(self, program, *rest, **named):
        if any(call.kernel == "softmax_f32" for call in program.instructions):
            raise TargetError("not a program", where=program.name)
        start(self, program, *rest, **named)

    monkeypatch.setattr(NativeProgram, "__init__", refusing)
    check(tinycomp.compile(onnx.parser.parse_model(MODEL)))


@pytest.mark.usefixtures("forgiving")
def test_a_rule_that_fails_takes_no_node(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "tinycomp.lowering")  # also if others have turned it off

    def failing(node: Node) -> bool:
        raise KeyError("axis")

    for op in ("Softmax", "Exp"):
        monkeypatch.setitem(TARGET.rules, ("", op), [OpRule(f"c.{op}", failing, falls_back=True)])
    module = tinycomp.compile(onnx.parser.parse_model(MODEL))
    assert on_the_host(module)[-1] == "Exp"
    np.testing.assert_allclose(module(X, W), np.exp(softmax(softmax(np.maximum(X, 0)) @ W)), rtol=1e-5)
    assert "c.Softmax at b: its check failed: KeyError: 'axis'" in caplog.text
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(TargetError, match="the operator rule failed: KeyError: 'axis'"):
        tinycomp.compile(onnx.parser.parse_model(MODEL))


@pytest.mark.usefixtures("forgiving")
def test_a_vendors_generator_that_fails_is_an_error():
    npu = tinycomp.Target("npu")
    npu.accept("Relu")

    @npu.codegen
    def build(region: Node) -> object:
        raise IndexError("mine")

    with pytest.raises(TargetError, match="npu, region npu_0: the code generator failed: IndexError: mine"):
        tinycomp.compile(onnx.parser.parse_model(MODEL), target=npu)
