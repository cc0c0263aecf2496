"""Operators of domains that nothing is known about, which a target may take."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp import P, Target
from tinycomp.errors import UnsupportedError
from tinycomp.ir.equality import equal
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions

X = np.array([[-1, 2, -3]], np.float32)


def model(domain: str = "com.vendor", declared: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "{domain}" : 3]>
        main (float[1, 3] x) => ({declared} y) {{
            n = Neg(x)
            m = {domain}.Magic <power = 2> (n)
            y = Relu(m)
        }}""")


def vendor() -> Target:
    """A target that cubes, or squares, on numpy."""
    target = Target("vendor")
    target.accept("com.vendor::Magic")

    @target.codegen
    def build(region):
        (node,) = (n for n in region.body.nodes if n.op == "Magic")
        return lambda x: x ** node.attrs["power"] * np.sign(x)

    return target


@pytest.mark.parametrize("declared", ["", "float[1, 3]"])
def test_a_target_may_take_it(declared: str) -> None:
    module = tinycomp.compile(model(declared=declared), vendor())
    np.testing.assert_array_equal(module(X), np.maximum(np.sign(-X) * X * X, 0))
    assert [h.op for h in module.report().hosts] == ["Neg", "Relu"]


def test_a_pattern_may_name_it() -> None:
    target = Target("vendor")

    @target.composite
    def magic_relu(x):
        return P.Relu(P["com.vendor"].Magic(x))

    @target.codegen
    def build(region):
        return lambda x: np.maximum(x, 0) + 1

    module = tinycomp.compile(model(), target)
    np.testing.assert_array_equal(module(X), np.maximum(-X, 0) + 1)


def test_it_survives_text_and_export() -> None:
    graph = tinycomp.from_onnx(model())
    assert equal(parse_graph(str(graph), infer=infer_node_types), graph)
    again = tinycomp.compile(tinycomp.to_onnx(graph), vendor())
    np.testing.assert_array_equal(again(X), tinycomp.compile(model(), vendor())(X))


def test_two_of_them_are_not_taken_for_one() -> None:
    graph = parse_graph("""
        graph @main opset {"" = 17, "com.vendor" = 1} (%x: float32[2]) -> (%y) {
          %a: float32[2] = com.vendor::Magic(%x)
          %b: float32[2] = com.vendor::Magic(%x)
          %y: float32[2] = Add(%a, %b)
        }""")
    assert not EliminateCommonSubexpressions().run(graph)


@pytest.mark.parametrize("target", [[], "c"])
def test_without_a_taker_it_is_refused(target: object) -> None:
    with pytest.raises(UnsupportedError) as caught:
        tinycomp.compile(model(), target)
    assert caught.value.where == "m"
    assert 'operator Magic belongs to the unknown domain "com.vendor"' in str(caught.value)
    assert "compile for a target with a rule for it" in str(caught.value)


def test_a_domain_near_a_known_one_is_taken_for_a_slip() -> None:
    with pytest.raises(UnsupportedError, match=r'Did you mean "ai\.onnx\.ml"'):
        tinycomp.compile(model("ai.onnx.m"))
