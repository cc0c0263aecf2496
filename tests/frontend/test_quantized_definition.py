"""Operators on quantised numbers by definition: parameters that come in at run time, small types, blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests.targets.c.harness import Case, Const, assert_close, compile_for
from tests.targets.c.quantized.test_layers import kernels
from tinycomp.frontend.definition import defines, definition
from tinycomp.frontend.quantized_definition import EXACT_TERMS
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
    """One node with its operands."""

    op: str
    operands: tuple[np.ndarray | Const | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21

    def __str__(self) -> str:
        there = [(x.array if isinstance(x, Const) else x, isinstance(x, Const)) for x in self.operands if x is not None]
        kinds = [f"{'const ' * const}{x.dtype}{list(x.shape)}" for x, const in there]
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


INTEGERS = ("int8", "uint8", "int4", "uint4", "int2", "uint2")
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
SMALL = ("int4", "uint4", "int2", "uint2", *FLOAT8, "float4_e2m1fn")
WIDE = np.concatenate([reals(90) * 50, np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e9, -1e9], np.float32)])


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def code_of(name: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype_of(name)))


def every_code(name: str) -> np.ndarray:
    width = 4 if "4" in name.split("_")[0] else 2 if "int2" in name else 8
    return np.arange(1 << width, dtype=np.uint8).view(dtype_of(name))


def small(name: str, *shape: int) -> np.ndarray:
    """Return numbers that every small type has."""
    return RNG.integers(0, 2, shape).astype(dtype_of(name))


def quantising(name: str) -> list[Operator]:
    """QuantizeLinear to a type: per tensor, without a zero point, per slice, per block, the last of which is short."""
    saturating = [{"saturate": 0}, {"saturate": 1}] if name in FLOAT8 else [{}]
    return [
        *(
            Operator("QuantizeLinear", (WIDE, Const(scales()), Const(small(name))), attrs, opset=25)
            for attrs in saturating
        ),
        Operator("QuantizeLinear", (WIDE, scales()), {"output_dtype": code_of(name)}, opset=25),
        Operator("QuantizeLinear", (reals(3, 5, 2), Const(scales(5)), Const(small(name, 5))), {"axis": 1}, opset=25),
        Operator("QuantizeLinear", (reals(4, 6), Const(scales(4, 2)), small(name, 4, 2)), {"block_size": 3}, opset=25),
        Operator(
            "QuantizeLinear", (reals(4, 7), Const(scales(4, 3)), Const(small(name, 4, 3))), {"block_size": 3}, opset=25
        ),
    ]


def dequantising(name: str) -> list[Operator]:
    x = every_code(name)
    rows = x.reshape(2, -1, 2) if x.size > 4 else x.reshape(2, 1, 2)
    count, blocks = rows.shape[1], -(-rows.shape[1] // 3)
    return [
        Operator("DequantizeLinear", (x, Const(scales()), Const(small(name))), opset=25),
        Operator("DequantizeLinear", (x, scales()), opset=25),
        Operator("DequantizeLinear", (rows, Const(scales(count)), Const(small(name, count))), {"axis": 1}, opset=25),
        Operator(
            "DequantizeLinear",
            (rows, Const(scales(2, blocks, 2)), small(name, 2, blocks, 2)),
            {"block_size": 3},
            opset=25,
        ),
    ]


def half_precision() -> Iterator[Operator]:
    """Scales and data of 16 bits, scales that are powers of two, and what quotients and results are rounded to."""
    powers = np.array([120, 121, 125], np.uint8).view(dtype_of("float8_e8m0fnu"))
    for name in (*INTEGERS, "float8_e4m3fn"):
        for half in ("float16", "bfloat16"):
            kind, point = dtype_of(half), Const(small(name))
            for opset in (25,) if "int2" in name else (21, 25):
                yield Operator("QuantizeLinear", (WIDE.astype(kind), Const(scales().astype(kind)), point), opset=opset)
            attrs = {"precision": code_of(half)}
            yield Operator("QuantizeLinear", (reals(40), Const(scales()), point), attrs, opset=25)
            yield Operator("DequantizeLinear", (every_code(name), Const(scales().astype(kind)), point), opset=25)
            attrs = {"output_dtype": code_of(half)}
            yield Operator("DequantizeLinear", (every_code(name), Const(scales()), point), attrs, opset=25)
        yield Operator("QuantizeLinear", (reals(2, 3), Const(powers), Const(small(name, 3))), opset=25)
    yield Operator(
        "QuantizeLinear", (stored("int32", 50), Const(np.float32(2e7)), Const(np.array(3, np.int8))), opset=25
    )


RARE = [*(case for name in SMALL for case in (*quantising(name), *dequantising(name))), *half_precision()]
PRODUCTS = [
    Operator(
        "QLinearMatMul",
        (
            small(name, 3, 5), Const(np.float32(0.5)), small(name), small(name, 5, 4), Const(np.float32(0.25)),
            small(name), Const(np.float32(0.125)), small(name),
        ),
    )
    for name in FLOAT8
]  # fmt: skip


@pytest.mark.parametrize("operator", [*OPERATORS, *RARE, *PRODUCTS], ids=str)
def test_the_c_target_takes_the_definition_and_gives_the_hosts_bits(operator: Operator):
    case = Case(operator.op, operator.operands, operator.attrs, operator.opset, operator.outputs)
    model = case.model()
    module = compile_for(model, strict=True)
    assert not module.report().hosts
    host = compile_for(model, "host").run(case.feeds)
    found = module.run(case.feeds)
    for name, wanted in host.items():
        assert_close(found[name], wanted, Case(operator.op, (), rtol=0, atol=0), str(operator))


def test_constant_parameters_are_left_to_targets():
    graph = Graph("net", infer=infer_node_types, opsets={"": 25})
    x = graph.add_input("x", TensorType("float32", (2, 3)))
    one, ones = graph.add_const(np.float32(1)), graph.add_const(np.ones((2, 1), np.float32))
    common = graph.add("QuantizeLinear", [x, one, graph.add_const(np.int8(0))])
    assert not defines(common)
    assert not defines(graph.add("DequantizeLinear", [common.output, one]))
    assert defines(graph.add("QuantizeLinear", [x, one, graph.add_const(np.zeros((), ml_dtypes.int4))]))
    assert defines(graph.add("QuantizeLinear", [x, ones], {"block_size": 3}))
    assert defines(graph.add("QuantizeLinear", [x, one], {"precision": TensorProto.FLOAT16}))


def test_what_it_does_not_cover_has_no_definition():
    graph = Graph("net", infer=infer_node_types, opsets={"": 21})
    shapes: list[tuple[Any, ...]] = [("n", "k"), ("k", 3)]
    node = graph.add("MatMulInteger", [graph.add_input(f"x{i}", TensorType("uint8", s)) for i, s in enumerate(shapes)])
    assert defines(node)
    assert definition(node) is None


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_convolution_whose_data_are_quantised_at_run_time(dtype: str):
    """All sizes are symbolic; the padding counts as the zero point, which is known only at run time."""
    graph = Graph("net", infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType(dtype, ("N", 4, "H", "W")))
    point = graph.add_input("point", TensorType(dtype, ()))
    weight, offset = graph.add_const(stored("uint8", 6, 2, 3, 2), "w"), graph.add_const(stored("uint8"), "offset")
    attrs = {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": 2}
    graph.set_outputs([graph.add("ConvInteger", [x, weight, point, offset], attrs).output])
    module = tinycomp.compile(graph, "c", strict=True)
    assert set(kernels(module)) - {"copy", "qlookup"} == {"qconv2d"}
    for batch in (1, 3):
        operands = stored(dtype, batch, 4, 7 - batch, 6 + batch), stored(dtype)
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


def test_a_zero_point_of_unknown_size_beside_one_scale_counts() -> None:
    model = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["" : 21]>
    g (uint4[n] x, float s, uint4[k] z) => (float[n] y) { y = DequantizeLinear(x, s, z) }""")
    x, z = (np.array(values).astype(ml_dtypes.uint4) for values in ([0, 1, 7, 15], [1]))
    for target in ("c", "host"):
        found = tinycomp.compile(model, target)(x, np.float32(2), z)
        np.testing.assert_array_equal(found, np.array([-2, 0, 12, 28], np.float32))
