"""Random graphs for property tests.

:func:`graphs` gives graphs of ONNX operators that can be run: every value is ``float32[2, 4]`` up to the pieces inside
one step. :func:`decorated_graphs` adds what only text and structure care about: odd names, every kind of attribute,
vendor operators, conditionals with captures, targets, sources, metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinycomp.ir import Graph, MapType, Node, OptionalType, SequenceType, TensorType, Value

Draw = Callable[[st.SearchStrategy[Any]], Any]

SHAPE = (2, 4)
TYPE = TensorType("float32", SHAPE)
OPSETS = {"": 17}
UNARY = ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Identity", "Softsign")
BINARY = ("Add", "Mul", "Sub")


@st.composite
def graphs(draw: Draw, max_nodes: int = 12, max_inputs: int = 3) -> Graph:
    """Runnable graphs of ONNX operators with multi-output, variadic, optional and skipped slots."""
    graph = Graph(opsets=OPSETS)
    pool = [graph.add_input(f"x{i}", TYPE) for i in range(draw(st.integers(1, max_inputs)))]
    for _ in range(draw(st.integers(0, max_nodes))):
        step = draw(st.sampled_from(STEPS))
        pool.append(step(draw, graph, pool))
    chosen = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    graph.set_outputs(chosen, [f"out{i}" for i in range(len(chosen))])
    return graph


def _pick(draw: Draw, pool: list[Value]) -> Value:
    return draw(st.sampled_from(pool))


def _unary(draw: Draw, graph: Graph, pool: list[Value]) -> Value:
    return graph.add(draw(st.sampled_from(UNARY)), [_pick(draw, pool)], sources=_sources(draw)).output


def _binary(draw: Draw, graph: Graph, pool: list[Value]) -> Value:
    operands = [_pick(draw, pool), _pick(draw, pool)]
    return graph.add(draw(st.sampled_from(BINARY)), operands, sources=_sources(draw)).output


def _variadic(draw: Draw, graph: Graph, pool: list[Value]) -> Value:
    operands = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    return graph.add(draw(st.sampled_from(["Sum", "Max"])), operands, sources=_sources(draw)).output


def _matmul(draw: Draw, graph: Graph, pool: list[Value]) -> Value:
    seed = draw(st.integers(0, 3))
    weight = np.random.default_rng(seed).standard_normal((4, 4)).astype(np.float32)
    return graph.add("MatMul", [_pick(draw, pool), graph.add_const(weight, "w")], sources=_sources(draw)).output


def _clip(draw: Draw, graph: Graph, pool: list[Value]) -> Value:
    bound = graph.add_const(np.array(draw(st.sampled_from([0.5, 6.0])), np.float32), "bound")
    return graph.add("Clip", [_pick(draw, pool), None, bound], sources=_sources(draw)).output


def _dropout(draw: Draw, graph: Graph, pool: list[Value]) -> Value:
    outputs = [graph.fresh("dropout"), ""]
    return graph.add("Dropout", [_pick(draw, pool)], outputs=outputs, sources=_sources(draw)).output


def _split(draw: Draw, graph: Graph, pool: list[Value]) -> Value:
    halves = graph.add("Split", [_pick(draw, pool)], {"axis": 1}, outputs=2, sources=_sources(draw)).outputs
    return graph.add("Concat", list(reversed(halves)), {"axis": 1}, sources=_sources(draw)).output


STEPS = (_unary, _unary, _binary, _binary, _variadic, _matmul, _clip, _dropout, _split)


def _sources(draw: Draw) -> list[str]:
    return [f"layer{draw(st.integers(0, 99))}"]


# Decoration ----------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.one_of(st.sampled_from(["a/b:0", "x.1", "1", "_", "a//b", "%", 'q"q', "\\", "tab\t", "naïve"]), TEXTS)
SYMBOLS = st.one_of(st.sampled_from(["N", "inf", "nan", "_", "2 * N", "?", "..."]), TEXTS.filter(bool))
FLOATS = st.one_of(st.floats(), st.floats(width=32))


def tensor_types() -> st.SearchStrategy[TensorType]:
    """Tensor types with every kind of dimension, unknown parts, and layouts."""
    dims = st.one_of(st.integers(0, 1 << 40), SYMBOLS, st.none())
    shapes = st.one_of(st.none(), st.lists(dims, max_size=4).map(tuple))
    dtypes = st.sampled_from(["float32", "int8", "string", "bool", "?", "bfloat16", "float8_e4m3fn", "int4"])
    layouts = st.sampled_from(["", "NHWC", "NCHW16c", "odd layout"])
    return st.builds(TensorType, dtypes, shapes, layouts)


def types() -> st.SearchStrategy[Any]:
    """Every kind of type."""
    keys = st.sampled_from(["int64", "string"])
    return st.recursive(
        tensor_types(),
        lambda inner: st.one_of(inner.map(SequenceType), inner.map(OptionalType), st.builds(MapType, keys, inner)),
        max_leaves=3,
    )


@st.composite
def arrays(draw: Draw, max_side: int = 4) -> np.ndarray:
    """Arrays of every dtype that the IR knows, of rank 0 to 3, with empty ones and every bit pattern of floats."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=max_side))
    kind = draw(st.sampled_from(["numpy", "narrow", "string"]))
    if kind == "string":
        count = int(np.prod(shape))
        texts = draw(st.lists(TEXTS, min_size=count, max_size=count))
        array = np.empty(count, dtype=object)
        array[:] = texts
        return array.reshape(shape)
    if kind == "numpy":
        names = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "uint64", "bool", "complex64"]
        return draw(hnp.arrays(np.dtype(draw(st.sampled_from(names))), shape))
    narrow = draw(st.sampled_from([ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4]))
    values = draw(hnp.arrays(np.float32, shape, elements=st.floats(-8, 7, width=32)))
    return (values.astype(np.int8) if narrow is ml_dtypes.int4 else values).astype(narrow)


def attributes() -> st.SearchStrategy[Any]:
    """Every kind of attribute value."""
    scalars = [st.integers(-(1 << 63), (1 << 63) - 1), FLOATS, TEXTS, st.binary(max_size=6), arrays(), types()]
    return st.one_of(*scalars, st.booleans(), *(st.lists(s, max_size=3) for s in scalars))


@st.composite
def decorated_graphs(draw: Draw, max_nodes: int = 8) -> Graph:
    """Graphs that use everything the textual form must carry."""
    graph = draw(graphs(max_nodes=max_nodes))
    pool = [v for v in graph.values.values() if v.type == TYPE]
    for _ in range(draw(st.integers(0, 3))):
        _add_vendor_node(draw, graph, pool)
    if draw(st.booleans()):
        _add_conditional(draw, graph, _pick(draw, pool))
    graph.set_outputs([*graph.outputs, graph.add_const(draw(arrays()), "table")], [*graph.output_names, "table"])
    for value in list(graph.values.values()):
        name = draw(NAMES)
        if name and name not in graph.values and draw(st.booleans()):
            graph.rename(value, name)
    for node in graph.nodes:
        node.target = draw(st.sampled_from([None, "npu", "odd target"]))
        node.region = draw(st.sampled_from([None, 0, 7]))
        node.sources = tuple(draw(st.lists(TEXTS, max_size=2)))
    graph.metadata = draw(st.dictionaries(TEXTS, TEXTS, max_size=2))
    return graph


def _add_vendor_node(draw: Draw, graph: Graph, pool: list[Value]) -> Node:
    op, domain = draw(NAMES.filter(bool)), draw(NAMES.filter(bool))
    return graph.add(
        op,
        draw(st.lists(st.one_of(st.none(), st.sampled_from(pool)), max_size=3)),
        draw(st.dictionaries(NAMES, attributes(), max_size=3)),
        domain=domain,
        version=draw(st.integers(1, 30)),
        outputs=[graph.fresh("vendor")],
        types=[draw(types())],
    )


def _add_conditional(draw: Draw, graph: Graph, captured: Value) -> Node:
    condition = graph.add_const(np.array(draw(st.booleans())), "condition")
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        branch = Graph(name, opsets=graph.opsets)
        branch.set_outputs([branch.add(op, [branch.add_input("c", captured.type)]).output])
        branches[name] = branch
    return graph.add("If", [condition, captured], bodies=branches, captures=1)
