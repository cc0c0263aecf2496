"""Random graphs full of what Simplify rewrites, for differential tests; all of them can be run.

Every value has rank 4 with the shape (2, 4, 3, 3) in float32 between steps; constants hold ordinary numbers, zeros and
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinycomp.ir import Graph, TensorType, Value

Draw = Callable[[st.SearchStrategy[Any]], Any]
SHAPE = (2, 4, 3, 3)
OPSETS = (9, 12, 17)


@st.composite
def simplifiable(draw: Draw, max_steps: int = 10) -> Graph:
    """Graphs that chain steps, often on the newest value, with one to three results."""
    graph = Graph(opsets={"": draw(st.sampled_from(OPSETS))})
    symbolic = draw(st.booleans())
    pool = [graph.add_input("x", TensorType("float32", ("N", *SHAPE[1:]) if symbolic else SHAPE))]
    for _ in range(draw(st.integers(1, max_steps))):
        at = draw(st.sampled_from([-1, -1, -1, draw(st.integers(0, len(pool) - 1))]))
        pool.append(draw(st.sampled_from(STEPS))(draw, graph, pool[at]))
    others = draw(st.lists(st.sampled_from(pool), max_size=2))
    graph.set_outputs([pool[-1], *others], [f"out{i}" for i in range(1 + len(others))])
    return graph


def _array(draw: Draw, shape: tuple[int, ...]) -> np.ndarray:
    kind = draw(st.sampled_from(["normal", "normal", "normal", "zeros", "ones"]))
    if kind != "normal":
        return np.full(shape, kind == "ones", np.float32)
    return np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape).astype(np.float32)


def _const(draw: Draw, graph: Graph, shape: tuple[int, ...]) -> Value:
    return graph.add_const(_array(draw, shape), "k")


def _ints(graph: Graph, numbers: list[int]) -> Value:
    return graph.add_const(np.array(numbers, np.int64), "n")


def _arithmetic(draw: Draw, graph: Graph, x: Value) -> Value:
    shape = draw(st.sampled_from([(), (1,), (4, 1, 1), (1, 4, 1, 1), (3,), (1, 1, 1, 1), SHAPE[1:]]))
    op = draw(st.sampled_from(["Add", "Mul", "Sub", "Div"]))
    array = _array(draw, shape)
    if op == "Div":
        array = np.where(np.abs(array) < 0.1, np.float32(0.5), array)
    operands = [x, graph.add_const(array, "k")]
    return graph.add(op, operands[:: draw(st.sampled_from([1, -1])) if op in ("Add", "Mul") else 1]).output


def _conv(draw: Draw, graph: Graph, x: Value) -> Value:
    group = draw(st.sampled_from([1, 2, 4]))
    operands = [x, _const(draw, graph, (4, 4 // group, 3, 3))]
    if draw(st.booleans()):
        operands.append(_const(draw, graph, (4,)))
    padding = draw(st.sampled_from([{"pads": [1, 1, 1, 1]}, {"auto_pad": "SAME_UPPER"}]))
    return graph.add("Conv", operands, {"group": group, **padding}).output


def _conv_transpose(draw: Draw, graph: Graph, x: Value) -> Value:
    group = draw(st.sampled_from([1, 2]))
    weight = _const(draw, graph, (4, 4 // group, 3, 3))
    return graph.add("ConvTranspose", [x, weight], {"group": group, "pads": [1, 1, 1, 1]}).output


def _batch_norm(draw: Draw, graph: Graph, x: Value) -> Value:
    params = [_const(draw, graph, (4,)) for _ in range(3)]
    variance = graph.add_const(np.abs(_array(draw, (4,))) + np.float32(0.5), "variance")
    return graph.add("BatchNormalization", [x, *params, variance], {"epsilon": 1e-3}).output


def _gemm(draw: Draw, graph: Graph, x: Value) -> Value:
    flat = graph.add("Flatten", [x]).output
    transposed = draw(st.integers(0, 1))
    bias = _const(draw, graph, draw(st.sampled_from([(36,), (1,), (1, 36), ()])))
    factors = {name: draw(st.sampled_from([1.0, 0.5])) for name in ("alpha", "beta")}
    y = graph.add("Gemm", [flat, _const(draw, graph, (36, 36)), bias], {"transB": transposed, **factors}).output
    y = graph.add(draw(st.sampled_from(["Mul", "Add"])), [y, _const(draw, graph, (36,))]).output
    return graph.add("Reshape", [y, _ints(graph, [-1, *SHAPE[1:]])]).output


def _pad(draw: Draw, graph: Graph, x: Value) -> Value:
    fill = draw(st.sampled_from([0.0, -np.inf, 1.0]))
    own = draw(st.integers(0, 1))
    pads = [0, 0, 1, 1 - own, 0, 0, 1, 1]
    if graph.opsets[""] >= 11:
        padded = graph.add("Pad", [x, _ints(graph, pads), graph.add_const(np.array(fill, np.float32), "fill")])
    else:
        padded = graph.add("Pad", [x], {"pads": pads, "value": float(fill)})
    window = {"kernel_shape": [3, 3], "pads": [0, own, 0, 0]}
    if fill == -np.inf or draw(st.booleans()):
        return graph.add("MaxPool", [padded.output], window).output
    counted = {"count_include_pad": draw(st.integers(0, 1))}
    return graph.add("AveragePool", [padded.output], window | counted).output


def _views(draw: Draw, graph: Graph, x: Value) -> Value:
    y = graph.add("Flatten", [x], {"axis": draw(st.integers(1, 3))}).output
    y = graph.add("Reshape", [y, _ints(graph, draw(st.sampled_from([[-1, 12, 3], [-1, 9, 4, 1]])))]).output
    return graph.add("Reshape", [y, _ints(graph, [-1, *SHAPE[1:]])]).output


def _transposes(draw: Draw, graph: Graph, x: Value) -> Value:
    shape = draw(st.sampled_from([(-1, 4, 3, 3), (-1, 1, 4, 9), (-1, 4, 1, 9)]))
    y = graph.add("Reshape", [x, _ints(graph, list(shape))]).output
    order = list(range(4))
    for _ in range(draw(st.integers(1, 3))):
        perm = draw(st.permutations(range(4)))
        order = [order[i] for i in perm]
        y = graph.add("Transpose", [y], {"perm": list(perm)}).output
        if draw(st.booleans()):
            y = graph.add("Relu", [y]).output
    y = graph.add("Transpose", [y], {"perm": [order.index(i) for i in range(4)]}).output
    return graph.add("Reshape", [y, _ints(graph, [-1, *SHAPE[1:]])]).output


def _widen(draw: Draw, graph: Graph, x: Value) -> Value:
    """Mix in a neutral element that makes its operand larger, so that it does have an effect."""
    small = graph.add("GlobalAveragePool", [x]).output
    op, number = draw(st.sampled_from([("Add", 0), ("Mul", 1)]))
    wide = graph.add(op, [small, graph.add_const(np.full((3, 3), number, np.float32), "k")]).output
    return graph.add("Transpose", [wide], {"perm": [0, 1, 3, 2]}).output


def _casts(draw: Draw, graph: Graph, x: Value) -> Value:
    y = graph.add("Cast", [x], {"to": draw(st.sampled_from([1, 6, 10, 11]))}).output
    y = graph.add("Cast", [y], {"to": draw(st.sampled_from([1, 7, 11]))}).output
    return graph.add("Cast", [y], {"to": 1}).output


def _clamp(draw: Draw, graph: Graph, x: Value) -> Value:
    low, high = (draw(st.sampled_from([None, -1.0, 0.0, 0.5, 2.0])) for _ in range(2))
    if draw(st.booleans()):
        return graph.add("Relu", [x]).output
    if graph.opsets[""] < 11:
        return graph.add("Clip", [x], {k: v for k, v in (("min", low), ("max", high)) if v is not None}).output
    bounds = [None if v is None else graph.add_const(np.array(v, np.float32), "bound") for v in (low, high)]
    return graph.add("Clip", [x, *bounds]).output


def _no_op(draw: Draw, graph: Graph, x: Value) -> Value:
    if draw(st.booleans()):
        return graph.add(draw(st.sampled_from(["Identity", "Dropout", "Sum", "Max"])), [x]).output
    return graph.add("Sum", [x, x]).output


STEPS = (
    _arithmetic, _arithmetic, _conv, _conv_transpose, _batch_norm, _batch_norm, _gemm, _pad, _views, _transposes,
    _widen, _casts, _clamp, _clamp, _no_op,
)  # fmt: skip
