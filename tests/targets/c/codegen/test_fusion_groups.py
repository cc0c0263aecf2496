"""Fusion groups: which element-wise operators run as one kernel call, and that they compute what they do alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import tinycomp
from tests.ops.harness import dtype_of
from tests.targets.c.harness import compile_for, make_model
from tinycomp.ir.graph import Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.native.processor import available_isas
from tinycomp.targets.c import TABLE
from tinycomp.targets.c.codegen import fusion_groups, generate
from tinycomp.targets.c.codegen.element_program import Steps
from tinycomp.targets.c.codegen.epilogue import spelled_out

X = "%x: float32[2, 8, 40]"


def _steps(node: Node) -> Steps | None:
    return generate._steps_alone(node, generate.rule_of(node, TABLE))


def grouping(body: str, outputs: str, inputs: str = X) -> list[str]:
    """Return the operators of each fusion group, in the order of the graph."""
    text = f'graph @g opset {{"" = 17}} ({inputs}) -> ({outputs}) {{\n{body}\n}}'
    graph = parse_graph(text, infer=infer_node_types)
    found = fusion_groups.find_fusion_groups(graph, _steps, fusion_groups.order_to_fuse(graph, _steps))
    return [" ".join(n.op for n in group.nodes) for group in dict.fromkeys(found.values())]


T = "float32[2, 8, 40]"


@pytest.mark.parametrize(
    ("body", "outputs", "expected"),
    [
        (f"%a: {T} = Relu@14(%x)\n%b: {T} = Neg@13(%a)\n%y: {T} = Add@14(%a, %b)", "%y", ["Relu Neg Add"]),
        # What is wanted outside becomes another output.
        (f"%a: {T} = Relu@14(%x)\n%y: {T} = Neg@13(%a)", "%a, %y", ["Relu Neg"]),
        # Two fusion groups meet.
        (f"%a: {T} = Relu@14(%x)\n%b: {T} = Neg@13(%x)\n%y: {T} = Add@14(%a, %b)", "%y", ["Relu Neg Add"]),
        # A result that something else has read by then closes the group: contracting both Adds would make a cycle.
        (f"%a: {T} = Relu@14(%x)\n%s: {T} = Softmax@13(%a)\n%y: {T} = Add@14(%a, %s)", "%y", ["Relu", "Add"]),
        # Another shape is another fusion group.
        (
            "%r: float32[2, 8, 1] = ReduceMax@13(%x) {axes = [2]}\n%e: float32[2, 8, 1] = Exp@13(%r)\n"
            f"%m: {T} = Mul@14(%x, %e)\n%y: {T} = Tanh@13(%m)",
            "%y",
            ["Exp", "Mul Tanh"],
        ),
        # What is computed of single numbers runs before others read them.
        (
            "%r: float32[] = ReduceMax@13(%x) {keepdims = 0}\n%e: float32[] = Exp@13(%r)\n"
            "%q: uint8[2, 8, 40] = QuantizeLinear@13(%x, %e)\n%n: float32[] = Neg@13(%e)",
            "%q, %n",
            ["Exp Neg"],
        ),
        # A normalisation by constants is a product and a sum.
        (
            "%g: float32[8] = const [1, 2, 3, 4, 5, 6, 7, 8]\n"
            f"%n: {T} = BatchNormalization@15(%x, %g, %g, %g, %g)\n%y: {T} = Relu@14(%n)",
            "%y",
            ["BatchNormalization Relu"],
        ),
        # Four outputs at most.
        (
            "".join(f"%{n}: {T} = {op}@13(%x0)\n" for n, op in zip("abcd", ("Exp", "Neg", "Abs", "Tanh"), strict=True))
            .replace("%a", f"%x0: {T} = Relu@14(%x)\n%a", 1)
            .rstrip(),
            "%x0, %a, %b, %c, %d",
            ["Relu Exp Neg Abs", "Tanh"],
        ),
    ],
)
def test_grouping(body, outputs, expected):
    assert grouping(body, outputs) == expected


def test_a_fusion_group_ends_where_the_kernel_is_full():
    steps = "\n".join(f"%v{i + 1}: {T} = Neg@13(%v{i})" for i in range(200)).replace("%v0", "%x")
    sizes = [len(ops.split()) for ops in grouping(steps, "%v200")]
    assert sum(sizes) == 200
    assert len(sizes) <= 5


UNARY = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Floor", "Exp")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
SHAPES = ((2, 3, 40), (3, 40), (40,), (3, 1), (2, 1, 1), (1,))


@st.composite
def models(draw):
    """Random graphs of element-wise operators, with a reduction now and then that cuts fusion groups."""
    dtype = draw(st.sampled_from(["float32", "float32", "float16", "float64", "bfloat16", "int32", "uint8"]))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))
    whole = "float" in dtype
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    feeds = {f"x{i}": np.asarray(rng.integers(0, 9, s) / (4 if whole else 1)).astype(dtype_of(dtype))
             for i, s in enumerate([(2, 3, 40), *shapes])}  # fmt: skip
    values, nodes = list(feeds), []
    for i in range(draw(st.integers(1, 14))):
        name = f"v{i}"
        if whole and draw(st.booleans()):
            nodes.append(helper.make_node(draw(st.sampled_from(UNARY)), [draw(st.sampled_from(values))], [name]))
        elif dtype == "float32" and draw(st.integers(0, 5)) == 0:
            nodes.append(helper.make_node("Softmax", [draw(st.sampled_from(values))], [name], axis=-1))
        else:
            op = draw(st.sampled_from(BINARY if dtype != "uint8" else ("Add", "Mul", "Max", "Min", "BitwiseXor")))
            nodes.append(helper.make_node(op, [draw(st.sampled_from(values)) for _ in "ab"], [name]))
        values.append(name)
    made = values[len(feeds) :]
    outputs = draw(st.lists(st.sampled_from(made), unique=True, max_size=3))
    return make_model(nodes, feeds, {}, dict.fromkeys([*outputs, made[-1]])), feeds


def run_c(model, feeds, isa):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINYCOMP_ISA", isa)
        return compile_for(model).run(feeds)


@pytest.mark.parametrize("isa", available_isas())
@given(case=models())
@settings(max_examples=40, deadline=None)
def test_fusion_groups_compute_what_their_operators_do(isa, case):
    model, feeds = case
    with np.errstate(all="ignore"):
        found, host = run_c(model, feeds, isa), compile_for(model, "host").run(feeds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion_groups._Grouping, "_join", lambda self, first, second: False)
        alone = run_c(model, feeds, isa)
    for name, wanted in host.items():
        np.testing.assert_array_equal(found[name].view("u1"), alone[name].view("u1"), "fusing changes the bits")
        if wanted.dtype.kind in "iu":
            np.testing.assert_array_equal(found[name], wanted)
            continue
        error = {"float16": 2e-2, "bfloat16": 1e-1}.get(wanted.dtype.name, 1e-4)
        close = [a.astype(np.float64) for a in (found[name], wanted)]
        np.testing.assert_allclose(*close, rtol=error, atol=error)


SPELLED = {
    "silu": [("Sigmoid", "x", "a"), ("Mul", "x a", "y")],
    "hard swish": [("Add", "x three", "a"), ("Clip", "a zero six", "b"), ("Mul", "x b", "c"), ("Div", "c six", "y")],
    "gelu": [
        *[("Mul", "x root", "a"), ("Erf", "a", "b"), ("Add", "b one", "c")],
        *[("Mul", "x c", "d"), ("Mul", "d half", "y")],
    ],
    "gelu tanh": [
        *[("Mul", "x half", "h"), ("Pow", "x three", "a"), ("Mul", "a cubic", "b"), ("Add", "x b", "c")],
        *[("Mul", "c scale", "d"), ("Tanh", "d", "e"), ("Add", "e one", "f"), ("Mul", "h f", "y")],
    ],
}
NUMBERS = {"one": 1, "half": 0.5, "three": 3, "six": 6, "zero": 0}
NUMBERS |= {"root": 0.5**0.5, "cubic": 0.044715, "scale": (2 / np.pi) ** 0.5}


@pytest.mark.parametrize("name", SPELLED)
@pytest.mark.parametrize("inner_is_wanted", [False, True])
def test_activations_that_are_spelled_out(name, inner_is_wanted):
    x = np.linspace(-6, 6, 301, dtype=np.float32)
    nodes = [helper.make_node(op, ins.split(), [out]) for op, ins, out in SPELLED[name]]
    constants = {n: np.array(v, np.float32) for n, v in NUMBERS.items()}
    outputs = ["y", SPELLED[name][0][2]][: 1 + inner_is_wanted]
    model = make_model(nodes, {"x": x}, constants, outputs)
    module = compile_for(model)
    for found, wanted in zip(
        module.run({"x": x}).values(), compile_for(model, "host").run({"x": x}).values(), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    graph = tinycomp.from_onnx(model)
    (group,) = set(fusion_groups.find_fusion_groups(graph, _steps, fusion_groups.order_to_fuse(graph, _steps)).values())
    spelled = spelled_out(group.nodes, group.outputs(graph.outputs))
    assert len(spelled) == (0 if inner_is_wanted else len(nodes))
