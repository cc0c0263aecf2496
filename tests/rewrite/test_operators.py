from __future__ import annotations

import pytest

from tests.rewrite.build import IMAGE, Net, root
from tinycomp.errors import PatternError
from tinycomp.ir import Graph
from tinycomp.rewrite import P, Pattern, Remark, pattern, reject


def why(tried: Pattern, graph: Graph, op: str = "") -> str:
    answer = tried.match(root(graph, op), graph)
    assert isinstance(answer, Remark)
    assert not answer
    return answer.reason


@pattern
def conv_relu(x, w, b=None):
    return P.Relu(P.Conv(x, w, b, group=1).named("conv"))


def test_arguments_are_bindings() -> None:
    net = Net(type_=IMAGE)
    graph = net.done(net.Relu(net.conv(net.x[0])))
    match = conv_relu.match(root(graph), graph)
    assert match
    assert match.x is net.x[0]
    assert match["w"].type.shape == (4, 4, 1, 1)
    assert match.b is None
    assert match.conv.producer.op == "Conv"
    assert [n.op for n in match.nodes] == ["Conv", "Relu"]
    assert match.root.op == "Relu"
    with pytest.raises(PatternError, match='the pattern binds no "weight"'):
        _ = match.weight


def test_a_wrong_operator_is_named_with_its_place() -> None:
    net = Net(type_=IMAGE)
    graph = net.done(net.Relu(net.Clip(net.x[0])))
    assert why(conv_relu, graph) == "expected Conv, found Clip at clip1"
    answer = conv_relu.match(root(graph), graph)
    assert isinstance(answer, Remark)
    assert answer.where == "clip1"
    assert answer.progress == 0.5
    assert answer.sources == ("relu2",)


def test_inputs_and_constants_are_named_in_failures() -> None:
    net = Net()
    assert why(conv_relu, net.done(net.Relu(net.x[0]))) == "expected Conv, found graph input x0"


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (1, "expected alpha=1, found 0.5 at leakyrelu1"),
        ({0.1, 0.2}, "expected alpha=0.1 or 0.2, found 0.5 at leakyrelu1"),
        (lambda a: a < 0.25, "alpha: 0.5 is refused at leakyrelu1"),
        (lambda a: a < 0.25 or reject(f"slope {a} is too steep"), "alpha: slope 0.5 is too steep at leakyrelu1"),
    ],
)
def test_attribute_constraints_say_what_they_found(constraint: object, reason: str) -> None:
    net = Net()
    graph = net.done(net.LeakyRelu(net.x[0], alpha=0.5))

    @pattern
    def leaky(x):
        return P.LeakyRelu(x, alpha=constraint)

    assert why(leaky, graph) == reason


@pytest.mark.parametrize("constraint", [0.5, {0.5, 2.0}, lambda a: a > 0, lambda a: None])
def test_attribute_constraints_accept(constraint: object) -> None:
    net = Net()
    graph = net.done(net.LeakyRelu(net.x[0], alpha=0.5))

    @pattern
    def leaky(x):
        return P.LeakyRelu(x, alpha=constraint)

    assert leaky.match(root(graph), graph)


def test_an_attribute_left_out_has_its_default() -> None:
    net = Net(type_=IMAGE)
    graph = net.done(net.conv(net.x[0]))

    @pattern
    def conv(x, w):
        return P.Conv(x, w, group=1, strides=[1, 1], pads=[0, 0, 0, 0], auto_pad="NOTSET")

    @pattern
    def strided(x, w):
        return P.Conv(x, w, strides=[2, 2])

    assert conv.match(root(graph))
    assert why(strided, graph) == "expected strides=[2, 2], found [1, 1] at conv1"


def test_attribute_bindings_must_agree() -> None:
    @pattern
    def two(x):
        return P.Softmax(P.Softmax(x, axis=P.attr("axis")), axis=P.attr("axis", {-1, 1}))

    net = Net()
    same = net.done(net.Softmax(net.Softmax(net.x[0], axis=1), axis=1))
    match = two.match(root(same))
    assert match.axis == 1
    assert match.attrs == {"axis": 1}
    net = Net()
    different = net.done(net.Softmax(net.Softmax(net.x[0], axis=0), axis=1))
    assert why(two, different) == "expected axis=1 as bound, found axis=0 at softmax1"


def test_operands_without_a_pattern_must_be_absent() -> None:
    @pattern
    def exact(x):
        return P.Clip(x)

    @pattern
    def loose(x):
        return P.Clip(x, ...)

    @pattern
    def upper(x, high):
        return P.Clip(x, None, high)

    net = Net()
    graph = net.done(net.Clip(net.x[0], None, 6.0))
    assert why(exact, graph) == "expected 1 operand, found 3 at clip1"
    assert loose.match(root(graph))
    assert upper.match(root(graph)).high.const == 6.0
    net = Net()
    both = net.done(net.Clip(net.x[0], 0.0, 6.0))
    assert why(upper, both) == "expected an absent operand, found constant const"
    assert exact.match(root(net.done(net.Clip(net.x[0], None, None))))


def test_a_plain_argument_must_be_there() -> None:
    net = Net()
    graph = net.done(net.Clip(net.x[0]))

    @pattern
    def bounded(x, low):
        return P.Clip(x, low)

    assert why(bounded, graph) == "expected an operand low, found none"


def test_sets_of_names_any_operator_and_other_domains() -> None:
    @pattern
    def activation(x):
        return P.op({"Relu", "Clip"}, x, ...)

    @pattern
    def anything(x):
        return P.op(None, x)

    @pattern
    def vendor(x):
        return P["com.vendor"].Gelu(x)

    net = Net()
    graph = net.done(net.node("Gelu", net.Relu(net.x[0]), domain="com.vendor").output)
    assert vendor.match(root(graph))
    assert anything.match(root(graph))
    assert activation.match(root(graph, "Relu"))
    assert why(activation, graph) == "expected Clip or Relu, found com.vendor::Gelu at gelu2"


def test_commutative_operands_match_in_any_order() -> None:
    @pattern
    def bias(x, b=P.const):
        return P.Relu(x + b)

    for swap in (False, True):
        net = Net()
        operands = (net.const([1, 2, 3, 4]), net.x[0])
        graph = net.done(net.Relu(net.Add(*(operands[::-1] if swap else operands))))
        assert bias.match(root(graph)).x is net.x[0]
    net = Net()
    graph = net.done(net.Relu(net.Sub(net.const([1, 2, 3, 4]), net.x[0])))

    @pattern
    def minus(x, b=P.const):
        return P.Relu(x - b)

    assert why(minus, graph) == "expected a constant, found graph input x0"


def test_variadic_operators_match_in_any_order() -> None:
    @pattern
    def total(x):
        return P.Sum(P.Relu(x), P.Neg(x), P.Abs(x))

    net = Net()
    x = net.x[0]
    assert total.match(root(net.done(net.Sum(net.Abs(x), net.Relu(x), net.Neg(x)))))


def test_operand_orders_are_tried_together() -> None:
    """The inner sum fits both ways; only one of them makes the outer one fit."""

    @pattern
    def nested(x, y):
        return P.Mul(P.Add(x, y), P.Sub(x, y))

    net = Net(2)
    a, b = net.x
    match = nested.match(root(net.done(net.Mul(net.Sub(b, a), net.Add(a, b)))))
    assert (match.x, match.y) == (b, a)


def test_results_by_number() -> None:
    @pattern
    def second(x):
        return P.Relu(P.Split(x, ...)[1])

    net = Net()
    halves = net.node("Split", net.x[0], outputs=2, axis=1).outputs
    first, other = net.Relu(halves[0]), net.Relu(halves[1])
    net.done(first, other)
    assert second.match(other.producer)
    assert second.match(first.producer).reason.startswith("expected result 1 of Split, found split")
    with pytest.raises(PatternError, match=r"not known.*P\.Split\(x\)\[1\]"):
        _, _ = P.Split(P.any)


def test_the_index_says_where_a_pattern_can_start() -> None:
    net = Net(type_=IMAGE)
    graph = net.done(net.Relu(net.conv(net.x[0])))
    assert conv_relu.heads == {("", "Relu")}
    assert [m.root.op for m in conv_relu.find_all(graph)] == ["Relu"]


def test_wrong_patterns_are_refused_where_they_are_written() -> None:
    with pytest.raises(PatternError, match=r'no construct "cosnt".*Did you mean "const"'):
        P.cosnt  # noqa: B018
    with pytest.raises(PatternError, match=r'"\.\.\." must come last'):
        P.Conv(..., P.any)
    with pytest.raises(PatternError, match="an operand must be a pattern"):
        P.Relu("x")
    with pytest.raises(PatternError, match='the argument "y" is not used'):
        pattern(lambda x, y: P.Relu(x))
    with pytest.raises(PatternError, match="the result is not an operator"):
        pattern(lambda x: x)
    with pytest.raises(PatternError, match="the function does not return a pattern"):
        pattern(lambda x: None)
    with pytest.raises(PatternError, match="cannot be traced"):
        pattern(lambda *xs: P.Sum(*xs))
    with pytest.raises(PatternError, match='"a" is given to two'):
        pattern(lambda x: P.Add(P.Relu(x).named("a"), P.Neg(x).named("a")))
    with pytest.raises(PatternError, match="share no sub-pattern"):
        pattern(lambda x, y: (P.Relu(x), P.Neg(y)))
