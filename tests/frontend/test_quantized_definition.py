"""Operators on quantised numbers whose parameters come in at run time: on the C target by definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.targets.c.harness import Case, assert_close, compile_for
from tinycomp.frontend.quantized_definition import EXACT_TERMS, defines, quantized_definition
from tinycomp.ir import Graph, TensorType
from tinycomp.ops.typing import infer_node_types

RNG = np.random.default_rng(7)


def stored(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def scales(*shape: int) -> np.ndarray:
    return RNG.uniform(0.01, 0.1, shape).astype(np.float32)


def points(dtype: str, columns: int) -> tuple[np.ndarray, np.ndarray]:
    return stored(dtype), stored("uint8", columns)


def reals(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) * 4


@dataclass(frozen=True)
class Operator:
    """One node all of whose operands are inputs."""

    op: str
    operands: tuple[np.ndarray | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def __str__(self) -> str:
        kinds = [f"{x.dtype}{list(x.shape)}" for x in self.operands if x is not None]
        return " ".join([self.op, *kinds, *(f"{k}={v}" for k, v in self.attrs.items())])


def qlinear(op: str, x: np.ndarray, w: np.ndarray, dtype: str, *rest: Any, per: int = 0, **attrs: Any) -> Operator:
    points = stored(str(w.dtype), per) if per else stored(str(w.dtype))
    shape = (per,) if per else ()
    operands = (x, scales(), stored(str(x.dtype)), w, scales(*shape), points, np.float32(9.0), stored(dtype), *rest)
    return Operator(op, tuple(np.asarray(v) for v in operands), attrs)


STORED = ("int8", "uint8", "int16", "uint16")
IMAGE, FILTERS = (2, 4, 7, 6), (6, 2, 3, 2)
BLOCKS = {"axis": 0, "block_size": 2}
BIAS = stored("int32", 6) // 2**18
DEEP = 2 * EXACT_TERMS + 37
OPERATORS = [
    *(Operator("QuantizeLinear", (reals(3, 5), scales(), stored(d))) for d in STORED),
    Operator("QuantizeLinear", (reals(3, 5), scales())),
    Operator("QuantizeLinear", (reals(3, 5, 2), scales(5), stored("int8", 5)), {"axis": -2}),
    Operator("QuantizeLinear", (reals(4, 6), scales(4, 2), stored("uint8", 4, 2)), {"axis": 1, "block_size": 3}),
    *(Operator("DequantizeLinear", (stored(d, 3, 5), scales(), stored(d))) for d in STORED),
    Operator("DequantizeLinear", (stored("int32", 3, 5), scales())),
    Operator("DequantizeLinear", (stored("int8", 3, 5, 2), scales(5), stored("int8", 5))),
    Operator("DequantizeLinear", (stored("int8", 4, 6), scales(2, 6), stored("int8", 2, 6)), BLOCKS),
    Operator("DynamicQuantizeLinear", (reals(3, 40),), outputs=3),
    Operator("MatMulInteger", (stored("uint8", 3, 5), stored("int8", 5, 4))),
    Operator("MatMulInteger", (stored("int8", 2, 3, DEEP), stored("uint8", DEEP, 4), *points("int8", 4))),
    Operator("ConvInteger", (stored("uint8", *IMAGE), stored("int8", 6, 4, 3, 2)), {"pads": [1, 0, 2, 1]}),
    Operator(
        "ConvInteger",
        (stored("uint8", *IMAGE), stored("uint8", *FILTERS), stored("uint8"), stored("uint8")),
        {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 1, 1, 1]},
    ),
    qlinear("QLinearConv", stored("uint8", *IMAGE), stored("int8", *FILTERS), "uint8", BIAS, group=2),
    qlinear("QLinearConv", stored("int8", *IMAGE), stored("int8", 6, 4, 3, 2), "int8", per=6, auto_pad="SAME_UPPER"),
    qlinear("QLinearMatMul", stored("uint8", 3, 5), stored("int8", 5, 4), "uint8"),
    qlinear("QLinearMatMul", stored("int8", 2, 3, 5), stored("int8", 5, 4), "int8", per=4),
]  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_the_c_target_takes_the_definition_and_gives_the_hosts_bits(operator: Operator):
    case = Case(operator.op, operator.operands, operator.attrs, outputs=operator.outputs)
    model = case.model()
    module = compile_for(model, strict=True)
    assert not module.report().hosts
    host = compile_for(model, "host").run(case.feeds)
    found = module.run(case.feeds)
    for name, wanted in host.items():
        assert_close(found[name], wanted, Case(operator.op, (), rtol=0, atol=0), str(operator))


def test_constant_parameters_are_left_to_targets():
    graph = Graph("net", infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2, 3)))
    node = graph.add("QuantizeLinear", [x, graph.add_const(np.float32(1)), graph.add_const(np.int8(0))])
    assert not defines(node)


@pytest.mark.parametrize(
    ("op", "types"),
    [
        ("QuantizeLinear", [("float16", (2,)), ("float16", ())]),
        ("DequantizeLinear", [("int8", (2,)), ("bfloat16", ())]),
        ("MatMulInteger", [("uint8", ("n", "k")), ("uint8", ("k", 3))]),
    ],
)
def test_what_it_does_not_cover_has_no_definition(op: str, types: list[tuple[str, tuple[Any, ...]]]):
    graph = Graph("net", infer=infer_node_types, opsets={"": 21})
    inputs = [graph.add_input(f"x{i}", TensorType(dtype, shape)) for i, (dtype, shape) in enumerate(types)]
    node = graph.add(op, inputs)
    assert defines(node)
    assert quantized_definition(node) is None


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_convolution_whose_data_are_quantised_at_run_time(dtype: str):
    """The batch is symbolic; the padding counts as the zero point, which is known only at run time."""
    graph = Graph("net", infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType(dtype, ("N", 4, 7, 6)))
    point = graph.add_input("point", TensorType(dtype, ()))
    weight, offset = graph.add_const(stored("uint8", 6, 2, 3, 2), "w"), graph.add_const(stored("uint8"), "offset")
    attrs = {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": 2}
    graph.set_outputs([graph.add("ConvInteger", [x, weight, point, offset], attrs).output])
    module = tinycomp.compile(graph, "c", strict=True)
    for batch in (1, 3):
        operands = stored(dtype, batch, 4, 7, 6), stored(dtype)
        np.testing.assert_array_equal(module(*operands), tinycomp.compile(graph, "host")(*operands))


def test_a_whole_model_quantised_at_run_time():
    """The form of onnxruntime's dynamic quantisation: DynamicQuantizeLinear, MatMulInteger, and one multiplication."""
    graph = Graph("net", infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (4, 40)))
    q, scale, point = graph.add("DynamicQuantizeLinear", [x], outputs=3).outputs
    weight = graph.add_const(stored("int8", 40, 6), "w")
    sums = graph.add("MatMulInteger", [q, weight, point]).output
    real = graph.add("Cast", [sums], {"to": 1}).output
    graph.set_outputs([graph.add("Mul", [real, scale]).output])
    data = reals(4, 40)
    found = tinycomp.compile(graph, "c", strict=True)(data)
    np.testing.assert_allclose(found, tinycomp.compile(graph, "host")(data), rtol=1e-6)
