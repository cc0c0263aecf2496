from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinycomp.ir import Graph, TensorType
from tinycomp.ir.equality import arrays_equal, attrs_equal, difference, equal
from tinycomp.ir.text.parser import parse_graph

TEXT = """
graph @main opset {"" = 17} metadata {"k" = "v"} (%x: float32[2, 4]) -> ("out" = %c, %a) {
  %w: float32[4] = const [1.0, 2.0, nan, 4.0]
  %a: float32[2, 4] = Relu(%x) from ["r"]
  %b: float32[2, 4], _ = Dropout(%x)
  %c: float32[2, 4] = my::Op(%a, %b, %w, _) {k = 1, t = dense int8[1] [3]} target "npu"
    body = graph @inner (%a: float32[2, 4], %b: float32[2, 4], %w: float32[4], %n: ?[...]) -> (%s) {
      %s: float32[2, 4] = Sub(%a, %b)
    }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("@main", "@other", "graph main: the names differ: main and other"),
        ('= 17', "= 16", "the opsets differ"),
        ('"k" = "v"', '"k" = "w"', "the metadata differ"),
        ("%x: float32[2, 4]", "%x: float32[N, 4]", "the inputs differ"),
        ('"out" = %c, %a', '"out" = %c, "a" = %c', "the outputs differ"),
        ('"out"', '"result"', "the output names differ"),
        ("%w: float32[4] = const [1.0, 2.0, nan, 4.0]", "%w: float32[4] = const [1.0, 2.0, 3.0, 4.0]",
         'node c (my::Op): the elements of constant "w" differ'),
        ("Relu(%x)", "Abs(%x)", "node r (Relu): the operators differ: Relu and Abs"),
        ("Relu(%x)", "Relu@6(%x)", "the versions differ: 14 and 6"),
        ("my::Op(%a, %b, %w, _)", "my::Op(%b, %a, %w, _)", "the operands differ"),
        ("my::Op(%a, %b, %w, _)", "my::Op(%a, %b | %w, _)", "the numbers of captures differ: 0 and 2"),
        ("%b: float32[2, 4], _", "%b: float32[N, 4], _", "the results differ"),
        ("k = 1", "k = 1.0", 'attribute "k" differs: 1 and 1.0'),
        ("k = 1", "j = 1", 'attribute "j" is in the second graph only'),
        ("[3]", "[4]", 'attribute "t" differs: dense int8[1] [3] and dense int8[1] [4]'),
        ('"npu"', '"dsp"', "the targets differ: npu and dsp"),
        ('"npu"', '"npu" region 2', "the regions differ: None and 2"),
        ("body =", "other =", "the bodies differ"),
        ("Sub(%a, %b)", "Add(%a, %b)", "graph main, node c, body graph inner: node s (Sub): the operators differ"),
    ],
)  # fmt: skip
def test_each_difference_is_said(old: str, new: str, said: str) -> None:
    assert TEXT.count(old) >= 1
    a, b = parse_graph(TEXT), parse_graph(TEXT.replace(old, new, 1))
    assert not equal(a, b)
    assert said in str(difference(a, b))


def test_a_graph_equals_its_own_reading() -> None:
    assert difference(parse_graph(TEXT), parse_graph(TEXT), sources=True) is None


def test_order_unused_constants_and_sources_do_not_count() -> None:
    lines = TEXT.splitlines()
    lines[4], lines[3] = lines[3], lines[4]
    swapped = "\n".join(lines)
    assert equal(parse_graph(TEXT), parse_graph(swapped), sources=True)
    more = parse_graph(TEXT)
    more.add_const(np.ones(3), "unused")
    assert equal(parse_graph(TEXT), more)
    renamed = parse_graph(TEXT.replace('"r"', '"s"'))
    assert equal(parse_graph(TEXT), renamed)
    assert difference(parse_graph(TEXT), renamed, sources=True) == (
        "graph main: the sources of node r differ: ('r',) and ('s',)"
    )


def test_a_missing_node_is_named() -> None:
    a, b = parse_graph(TEXT), parse_graph(TEXT)
    b.add("Neg", [b.values["x"]], outputs=["extra"])
    assert difference(a, b) == "graph main: only the second graph has node extra (Neg)"
    assert difference(b, a) == "graph main: only the first graph has node extra (Neg)"


def test_a_constant_is_not_an_input() -> None:
    a, b = Graph(opsets={}), Graph(opsets={})
    for graph, value in ((a, a.add_const(np.ones(2), "c")), (b, b.add("C", [], domain="v", outputs=["c"]).output)):
        graph.set_outputs([value])
    assert difference(a, b) == 'graph main: value "c" is a constant in one graph only'
    assert a.values["c"].type == TensorType("float64", (2,))


NAN = float("nan")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (lambda: np.array([1.0, NAN]), lambda: np.array([1.0, -NAN]), True),
        (lambda: np.array([0.0]), lambda: np.array([-0.0]), False),
        (lambda: np.array([1], np.int32), lambda: np.array([1], np.int64), False),
        (lambda: np.ones((2, 1)), lambda: np.ones((1, 2)), False),
        (lambda: np.array([1], "<i4"), lambda: np.array([1], ">i4"), True),
        (lambda: np.arange(6).reshape(2, 3).T, lambda: np.arange(6).reshape(2, 3).T.copy(), True),
        (lambda: np.array(["a"], object), lambda: np.array(["a"]), True),
        (lambda: np.array(["a"], object), lambda: np.array(["b"], object), False),
        (lambda: np.array([1.0, NAN]), lambda: np.array([NAN, 1.0]), False),
    ],
)
def test_arrays(a: Callable[[], np.ndarray], b: Callable[[], np.ndarray], same: bool) -> None:
    assert arrays_equal(a(), b()) is same


def test_attribute_kinds() -> None:
    assert attrs_equal([1, 2], (1, 2))
    assert attrs_equal(NAN, NAN)
    assert not attrs_equal(0.0, -0.0)
    assert not attrs_equal(1, True)
    assert not attrs_equal("a", b"a")
    assert not attrs_equal([1], [1, 2])
