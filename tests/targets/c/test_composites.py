"""What runs fused behind a convolution or product: every activation spelling, bias, residual, operand order, limit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.cases.values import floats
from tests.targets.c.harness import Case, assert_close, compile_for, make_model, run_onnxruntime


@dataclass
class Builder:
    """Collects the nodes and constants of a model."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        return name

    def const(self, value: object) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(value, np.float32)
        return name


Spell = Callable[[Builder, str], str]


def hard_swish(order: int) -> Spell:
    def spell(b: Builder, x: str) -> str:
        clipped = b("Clip", b("Add", *swap(order, x, b.const(3.0))), b.const(0.0), b.const(6.0))
        if order < 2:
            return b("Div", b("Mul", *swap(order, x, clipped)), b.const(6.0))
        if order < 4:
            return b("Mul", *swap(order, x, b("Div", clipped, b.const(6.0))))
        return b("Mul", *swap(order, b("Mul", x, clipped), b.const(1 / 6)))

    return spell


def gelu(order: int) -> Spell:
    def spell(b: Builder, x: str) -> str:
        if order % 2:
            scaled = b("Div", x, b.const(math.sqrt(2.0)))
        else:
            scaled = b("Mul", *swap(order // 2, x, b.const(math.sqrt(0.5))))
        bell = b("Add", *swap(order, b("Erf", scaled), b.const(1.0)))
        if order < 2:
            return b("Mul", *swap(order, b("Mul", *swap(order, x, bell)), b.const(0.5)))
        if order < 4:
            return b("Mul", *swap(order, b("Mul", *swap(order, x, b.const(0.5))), bell))
        return b("Mul", *swap(order, x, b("Mul", *swap(order, bell, b.const(0.5)))))

    return spell


def swap(order: int, first: str, second: str) -> tuple[str, str]:
    return (second, first) if order % 2 else (first, second)


ACTIVATIONS: Mapping[str, Spell] = {
    "none": lambda b, x: x,
    "relu": lambda b, x: b("Relu", x),
    "relu6": lambda b, x: b("Clip", x, b.const(0.0), b.const(6.0)),
    "clip low": lambda b, x: b("Clip", x, b.const(-0.5)),
    "clip high": lambda b, x: b("Clip", x, "", b.const([0.5])),
    "leaky": lambda b, x: b("LeakyRelu", x, alpha=0.2),
    "leaky default": lambda b, x: b("LeakyRelu", x),
    "sigmoid": lambda b, x: b("Sigmoid", x),
    "tanh": lambda b, x: b("Tanh", x),
    "silu": lambda b, x: b("Mul", x, b("Sigmoid", x)),
    "silu swapped": lambda b, x: b("Mul", b("Sigmoid", x), x),
    "hardsigmoid": lambda b, x: b("HardSigmoid", x, alpha=0.3, beta=0.4),
    "hardsigmoid default": lambda b, x: b("HardSigmoid", x),
    "hardswish": lambda b, x: b("HardSwish", x),
    "x hardsigmoid": lambda b, x: b("Mul", x, b("HardSigmoid", x, alpha=1 / 6, beta=0.5)),
    "hardsigmoid x": lambda b, x: b("Mul", b("HardSigmoid", x, alpha=1 / 6, beta=0.5), x),
    **{f"hardswish {i}": hard_swish(i) for i in range(6)},
    "gelu": lambda b, x: b("Gelu", x),
    "gelu exact": lambda b, x: b("Gelu", x, approximate="none"),
    "gelu tanh": lambda b, x: b("Gelu", x, approximate="tanh"),
    **{f"gelu {i}": gelu(i) for i in range(6)},
}
NEARLY = {
    "x twice": lambda b, x: b("Mul", x, b("HardSigmoid", x, alpha=0.2, beta=0.5)),
    "clip of others": lambda b, x: b("Mul", x, b("Clip", b("Add", x, b.const(2.0)), b.const(0.0), b.const(6.0))),
    "other bell": lambda b, x: b("Mul", b("Mul", x, b("Add", b("Erf", x), b.const(1.0))), b.const(0.5)),
}
"""What looks like an activation and is none: it must not be taken for one."""

FEEDS = {"conv": floats(2, 3, 6, 7), "depthwise": floats(2, 5, 6, 7), "gemm": floats(4, 6), "matmul": floats(2, 4, 6)}
RESULTS = {"conv": (2, 5, 6, 7), "depthwise": (2, 5, 6, 7), "gemm": (4, 5), "matmul": (2, 4, 5)}
COMPOSITES = {"conv": "c.conv", "depthwise": "c.conv", "gemm": "c.gemm", "matmul": "c.matmul"}


def anchor(b: Builder, kind: str, bias: bool) -> str:
    """Add the node that does the work; with a bias as its third operand, or as an Add behind a MatMul."""
    vector = [b.const(floats(5, seed=5))] if bias else []
    if kind == "conv":
        return b("Conv", "x", b.const(floats(5, 3, 3, 3, seed=4)), *vector, pads=[1, 1, 1, 1])
    if kind == "depthwise":
        return b("Conv", "x", b.const(floats(5, 1, 3, 3, seed=4)), *vector, pads=[1, 1, 1, 1], group=5)
    if kind == "gemm":
        return b("Gemm", "x", b.const(floats(6, 5, seed=4)), *vector)
    product = b("MatMul", "x", b.const(floats(6, 5, seed=4)))
    return b("Add", product, *vector) if vector else product


def check(b: Builder, result: str, feeds: Mapping[str, np.ndarray], composites: Mapping[str, int] | None) -> None:
    """Compare C with the host and onnxruntime, and the composites found with those expected."""
    model = make_model(b.nodes, feeds, b.constants, [result], opset=21)
    module = compile_for(model, strict=True)
    (region,) = module.report().regions
    if composites is not None:
        assert region.composites == composites
    tolerance = Case("", (), of_largest=1e-5, rtol=0, atol=0)
    (found,) = module.run(feeds).values()
    (host,) = compile_for(model, "host").run(feeds).values()
    assert_close(found, host, tolerance, "against the host")
    for peer in run_onnxruntime(model, feeds) or ():
        assert_close(found, peer, tolerance, "against onnxruntime")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", COMPOSITES)
def test_every_activation_is_fused_behind_everything(kind, activation):
    for bias, residual in itertools.product((False, True), (None, "left", "right")):
        b = Builder()
        value = anchor(b, kind, bias)
        feeds = {"x": FEEDS[kind]}
        if residual:
            feeds["r"] = floats(*RESULTS[kind], seed=9)
            value = b("Add", *((value, "r") if residual == "left" else ("r", value)))
        value = ACTIVATIONS[activation](b, value)
        fused = len([n for n in b.nodes if n.op_type not in ("Conv", "Gemm", "MatMul")]) > 0
        check(b, value, feeds, {COMPOSITES[kind]: 1} if fused else {})


@pytest.mark.parametrize("nearly", NEARLY)
@pytest.mark.parametrize("kind", COMPOSITES)
def test_what_only_looks_like_an_activation(kind, nearly):
    b = Builder()
    check(b, NEARLY[nearly](b, anchor(b, kind, True)), {"x": FEEDS[kind]}, None)


SHAPES = [
    (),
    (1,),
    (5, 1, 1),
    (1, 5, 1, 1),
    (1, 1, 1),
    (5, 6, 7),
    (1, 5, 6, 7),
    (7,),
    (6, 1),
    (2, 1, 1, 1),
    (2, 5, 6, 7),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("constant", [True, False])
def test_anything_may_be_added_to_a_convolution(shape, constant):
    b = Builder()
    addend = floats(*shape, seed=7)
    name = b.const(addend) if constant else "r"
    feeds = {"x": FEEDS["conv"]} if constant else {"x": FEEDS["conv"], "r": addend}
    vector = constant and math.prod(shape) in (1, 5)
    fused = vector or shape == RESULTS["conv"]
    check(b, b("Relu", b("Add", anchor(b, "conv", True), name)), feeds, {"c.conv": 1} if fused else {})


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (4, 1), (4, 5), (2, 4, 5), (2, 1, 5), (3, 2, 4, 5)], ids=str)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("kind", ["gemm", "matmul"])
def test_anything_may_be_added_to_a_product(shape, constant, kind):
    b = Builder()
    name = b.const(floats(*shape, seed=7)) if constant else "r"
    feeds = {"x": FEEDS[kind]} if constant else {"x": FEEDS[kind], "r": floats(*shape, seed=7)}
    check(b, b("Add", anchor(b, kind, False), name), feeds, None)


def test_a_constant_with_more_channels_than_a_single_channel_result():
    b = Builder()
    check(b, b("Add", b("Conv", "x", b.const(floats(1, 3, 3, 3))), b.const(floats(8, 1, 1))), {"x": FEEDS["conv"]}, {})
    b = Builder()
    check(b, b("Add", b("Gemm", "x", b.const(floats(6, 1))), b.const(floats(5))), {"x": FEEDS["gemm"]}, {})


@pytest.mark.parametrize(("left", "right"), [((6, 5), (5,)), ((5,), (5,)), ((2, 6, 5), (5,)), ((5,), (5, 6))])
@pytest.mark.parametrize("addend", [(6,), (), (1,)])
def test_products_with_vectors(left, right, addend):
    b = Builder()
    product = b("MatMul", "x", b.const(floats(*right)))
    check(b, b("Relu", b("Add", product, b.const(floats(*addend, seed=2)))), {"x": floats(*left)}, None)


def test_a_result_added_to_itself():
    for kind in COMPOSITES:
        b = Builder()
        product = anchor(b, kind, False)
        check(b, b("Relu", b("Add", product, product)), {"x": FEEDS[kind]}, None)


def test_two_residuals_are_one_too_many():
    b = Builder()
    first = b("Add", anchor(b, "matmul", False), "r")
    feeds = {"x": FEEDS["matmul"], "r": floats(2, 4, 5), "s": floats(2, 4, 5, seed=1)}
    check(b, b("Add", first, "s"), feeds, {"c.matmul": 1})
    for full in (b.const(floats(4, 5)), "c"):
        b2 = Builder(constants=dict(b.constants))
        product = b2("Gemm", "x", b2.const(floats(6, 5)), full)
        feeds = {"x": FEEDS["gemm"], "r": floats(4, 5), **({"c": floats(4, 5, seed=2)} if full == "c" else {})}
        check(b2, b2("Add", product, "r"), feeds, {})


def test_both_sides_of_an_add_are_convolutions():
    b = Builder()
    left, right = anchor(b, "conv", True), anchor(b, "conv", False)
    check(b, b("Relu", b("Add", left, right)), {"x": FEEDS["conv"]}, {"c.conv": 1})


def test_a_value_that_is_needed_elsewhere_is_not_swallowed():
    b = Builder()
    product = anchor(b, "conv", True)
    relu = b("Relu", product)
    check(b, b("Concat", product, relu, axis=1), {"x": FEEDS["conv"]}, {})


def test_gemm_scales_are_kept_apart_from_the_residual():
    for alpha, beta in itertools.product((1.0, 0.5), (1.0, 2.0)):
        for weights in ("constant", "fed"):
            b = Builder()
            feeds = {"x": FEEDS["gemm"], "r": floats(4, 5)} | ({"w": floats(6, 5)} if weights == "fed" else {})
            factor = "w" if weights == "fed" else b.const(floats(6, 5))
            product = b("Gemm", "x", factor, b.const(floats(5, seed=3)), alpha=alpha, beta=beta)
            check(b, b("Relu", b("Add", "r", product)), feeds, {"c.gemm": 1})


def test_one_constant_is_an_addend_and_a_bound():
    for kind in COMPOSITES:
        b = Builder()
        three = b.const(np.float32(3))
        added = b("Add", anchor(b, kind, False), three)
        check(b, b("Clip", added, three, b.const(np.float32(6))), {"x": FEEDS[kind]}, {COMPOSITES[kind]: 1})
