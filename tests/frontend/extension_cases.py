"""Nodes of com.microsoft, in every form that has a definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.cases.case import make_model
from tinycomp.ir.types import numpy_dtype

RNG = np.random.default_rng(23)


def stored(dtype: str, *shape: int, bits: int = 8) -> np.ndarray:
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if bits == 8 else (-64 if info.min else 0, 63 if info.min else 127)
    return RNG.integers(low, high, shape, endpoint=True).astype(dtype)


def reals(*shape: int, spread: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * spread).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        op: Its operator.
        data: Its operands that come in at run time, by place.
        constants: Its other operands.
        attrs: Its attributes.
        steps: How far 8-bit results may be apart: onnxruntime computes some of them by other formulas.
        rtol: The same for results in float32, in shares of the largest.
        outputs: Which results are wanted.
        host: Whether a part of it stays on the host.
        domain: Where the operator belongs.
    """

    op: str
    data: Mapping[int, np.ndarray]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 0
    rtol: float = 1e-5
    outputs: tuple[str, ...] = ("y",)
    host: bool = False
    domain: str = "com.microsoft"

    def __str__(self) -> str:
        kinds = [f"{x.dtype}{list(x.shape)}" for x in self.data.values()]
        return " ".join([self.op, *kinds, *(f"{k}={v}" for k, v in self.attrs.items())])

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{place}": x for place, x in self.data.items()}

    def model(self) -> onnx.ModelProto:
        count = max([*self.data, *self.constants]) + 1
        names = [f"x{i}" if i in self.data else f"c{i}" if i in self.constants else "" for i in range(count)]
        node = helper.make_node(self.op, names, self.outputs, name="node", domain=self.domain, **self.attrs)
        constants = {f"c{i}": np.asarray(c) for i, c in self.constants.items()}
        return make_model([node], self.feeds, constants, self.outputs, domains={"com.microsoft": 1})


def scaled(*parts: Any) -> dict[int, np.ndarray]:
    """Constants by place: arrays, or (scale, zero point, dtype) at the place of the scale."""
    found = {}
    for place, value in parts:
        if isinstance(value, tuple):
            scale, point, dtype = value
            found |= {place: np.float32(scale), place + 1: np.array(point, dtype)}
        else:
            found[place] = np.asarray(value)
    return found


IMAGE = (2, 8, 9, 7)
LAST = (2, 9, 7, 8)
WINDOWS = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
BINARY = scaled((1, (0.0301327, 7, "uint8")), (4, (0.0517813, 120, "uint8")), (6, (0.1113719, 60, "uint8")))
UNARY = scaled((1, (0.0517813, 120, "uint8")), (3, (0.0409871, 99, "uint8")))
SHARES = scaled((1, (0.0517813, 120, "uint8")), (3, (1 / 256, 0, "uint8")))


FILTERS = scaled(
    (1, (0.0301327, 7, "uint8")), (3, stored("int8", 6, 8, 3, 3, bits=7)), (4, (0.0103271, 0, "int8")),
    (6, (0.0831921, 120, "uint8")), (8, stored("int16", 6).astype(np.int32)),
)  # fmt: skip
CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}


def quantised() -> list[Case]:
    x, rows = stored("uint8", *IMAGE), stored("uint8", 6, 10)
    two = {0: x, 3: stored("uint8", *IMAGE)}
    triples = scaled((0, (0.0612347, 100, "uint8")), (3, (0.0301327, 7, "uint8")), (6, (0.0517813, 120, "uint8")))
    return [
        Case("QLinearAdd", two, BINARY, steps=1),
        Case("QLinearMul", two, BINARY, steps=1),
        Case("QLinearAdd", {0: x, 3: stored("uint8", 8, 1, 1)}, BINARY, steps=1),
        Case("QLinearAdd", {0: stored("int8", 30, 4), 3: stored("int8", 30, 4)},
             scaled((1, (0.0301327, 7, "int8")), (4, (0.0517813, -9, "int8")), (6, (0.0831921, 3, "int8"))), steps=1),
        Case("QLinearSigmoid", {0: x}, SHARES),
        Case("QLinearLeakyRelu", {0: x}, UNARY, {"alpha": 0.2}),
        Case("QLinearLeakyRelu", {0: x}, UNARY),
        Case("QLinearSoftmax", {0: rows}, SHARES, {"axis": -1, "opset": 13}, steps=1),
        Case("QLinearSoftmax", {0: stored("uint8", 3, 4, 5)}, SHARES, {"axis": 1, "opset": 12}, steps=1),
        Case("QLinearWhere", {0: RNG.random(IMAGE) < 0.5, 1: x, 4: stored("uint8", *IMAGE)},
             scaled((2, (0.0301327, 7, "uint8")), (5, (0.0517813, 120, "uint8")), (7, (0.0612347, 60, "uint8")))),
        Case("QLinearConcat", {2: x, 5: stored("uint8", 2, 3, 9, 7)}, triples, {"axis": 1}),
        Case("QLinearAveragePool", {0: x}, UNARY, WINDOWS, steps=1),
        Case("QLinearAveragePool", {0: stored("uint8", *LAST)}, UNARY, {**WINDOWS, "channels_last": 1}, steps=1),
        Case("QLinearGlobalAveragePool", {0: x}, UNARY, {"channels_last": 0}, steps=1),
        Case("QLinearGlobalAveragePool", {0: stored("uint8", *LAST)}, UNARY, {"channels_last": 1}, steps=1),
        *(Case("QLinearConv", {0: stored("uint8", *shape)}, FILTERS, {**CONV, "channels_last": last})
          for shape, last in ((IMAGE, 0), (LAST, 1))),
        Case("NhwcMaxPool", {0: stored("uint8", *LAST)}, {}, WINDOWS),
    ]  # fmt: skip


MEAN = Case("QLinearReduceMean", {0: stored("uint8", *IMAGE)}, UNARY, {"axes": [2, 3], "keepdims": 0})


def products() -> list[Case]:
    rows = stored("uint8", 6, 20)
    weight, turned = stored("int8", 20, 9, bits=7), stored("int8", 9, 20, bits=7)
    data = (1, (0.04, 11, "uint8"))
    per_column = (4, np.linspace(0.01, 0.02, 9, dtype=np.float32)), (5, np.zeros(9, np.int8))
    one = (4, (0.02, 0, "int8"))
    bias = (6, stored("int16", 9).astype(np.int32))
    after = (7, (0.5, 100, "uint8"))
    dynamic = {2: np.float32(0.03), 3: np.float32(0.02), 4: np.uint8(7), 5: np.int8(3)}
    return [
        Case("QGemm", {0: rows}, scaled(data, (3, weight), *per_column, bias, after), steps=1),
        Case("QGemm", {0: rows}, scaled(data, (3, turned), one, bias, after), {"transB": 1, "alpha": 0.5}, steps=1),
        Case("QGemm", {0: rows}, scaled(data, (3, turned), one, bias), {"transB": 1}),
        Case("QGemm", {0: rows}, scaled(data, (3, weight), one)),
        Case("MatMulIntegerToFloat", {0: rows}, {1: weight, **dynamic}),
        Case("MatMulIntegerToFloat", {0: rows, 1: weight}, {**dynamic, 6: reals(9)}),
        Case("DynamicQuantizeMatMul", {0: reals(4, 20)}, {1: weight, 2: np.float32(0.03), 3: np.int8(0), 4: reals(9)}),
        Case("DynamicQuantizeMatMul", {0: reals(4, 20)}, {1: weight, 2: np.float32(0.03)}),
    ]


def recurrent() -> list[Case]:
    """Recurrent layers of quantised weights, in the forms that onnxruntime's quantiser writes."""
    x, size = reals(7, 2, 12), 10
    found = []
    for direction, per_channel, rest in (
        ("forward", False, False),
        ("reverse", True, True),
        ("bidirectional", True, True),
    ):
        count = 1 + (direction == "bidirectional")
        scales = (count, 4 * size) if per_channel else (count,)
        constants = {1: stored("int8", count, 12, 4 * size, bits=7), 2: stored("int8", count, size, 4 * size, bits=7)}
        for place in (8, 10):
            kind = "int8" if per_channel else "uint8"
            points = np.zeros(scales, kind) if per_channel else stored(kind, *scales, bits=7)
            constants |= {place: RNG.uniform(0.001, 0.01, scales).astype(np.float32), place + 1: points}
        if not per_channel:
            constants |= {place: (constants[place] + 64).astype("uint8") for place in (1, 2)}
        if rest:
            constants |= {3: reals(count, 8 * size)}
        states = {5: reals(count, 2, size), 6: reals(count, 2, size)} if rest else {}
        attrs = {"hidden_size": size, "direction": direction}
        found.append(
            Case("DynamicQuantizeLSTM", {0: x, **states}, constants, attrs, rtol=1e-5, outputs=("y", "y_h", "y_c"))
        )
    return found


def blocks() -> list[Case]:
    """Products with weights of few bits, in every form that onnxruntime computes right."""
    deep = reals(2, 3, 64)
    return [
        *(nbits(deep, bits, points, bias) for bits in (2, 4, 8) for points in ("", "uint8") for bias in (False, True)),
        *(nbits(deep, bits, "float32", bias) for bits in (2, 4) for bias in (False, True)),
        *(nbits(reals(3, 40), bits, points) for bits, points in ((2, "uint8"), (4, "uint8"), (8, ""), (4, "float32"))),
        nbits(deep, 4, "uint8", block=32),
        *(nbits(deep, 4, points, order=64) for points in ("", "float32")),
        nbits(reals(3, 40), 4, "", bias=True, order=48),
        *(nbits(deep.astype("f2"), 4, points) for points in ("", "uint8", "float16")),
        nbits(deep.astype("f2"), 4, "float16", bias=True, order=64),
    ]


def nbits(
    a: np.ndarray, bits: int, points: str = "", bias: bool = False, order: int = 0, block: int = 16, columns: int = 12
) -> Case:
    """A MatMulNBits with zero points of a dtype, or none, and an order of as many rows, or none."""
    depth, dtype = a.shape[-1], a.dtype
    count = -(-depth // block)
    scales = (np.abs(reals(columns, count, spread=0.01)) + 0.01).astype(dtype)
    constants = {1: stored("uint8", columns, count, block * bits // 8), 2: scales}
    if points == "uint8":
        constants[3] = stored("uint8", columns, -(-count * bits // 8))
    elif points:
        constants[3] = (RNG.random((columns, count)) * 2**bits).astype(points)
    if order:
        constants[4] = RNG.integers(0, count, order).astype(np.int32)
    if bias:
        constants[5] = reals(columns).astype(dtype)
    attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    half = dtype == np.float16
    return Case("MatMulNBits", {0: a}, constants, attrs, rtol=3e-3 if half else 1e-5, host=half)


def embeddings() -> list[Case]:
    """GatherBlockQuantized on bytes that hold codes of 2, 4 or 8 bits, and on codes of 4 bits as ONNX stores them."""
    indices, scales = RNG.integers(0, 9, (2, 3)), np.linspace(0.01, 0.1, 36, dtype=np.float32).reshape(9, 4)
    cases = []
    for bits in (2, 4, 8):
        for points in ({}, {3: stored("uint8", 9, bits // 2)}):
            given = {0: stored("uint8", 9, 64 * bits // 8), 2: scales, **points}
            attrs = {"bits": bits, "block_size": 16, "quantize_axis": -1}
            cases.append(Case("GatherBlockQuantized", {1: indices}, given, attrs))
    for dtype in ("int4", "uint4"):
        low = -8 if dtype == "int4" else 0

        def narrow(*shape: int, low: int = low, dtype: str = dtype) -> np.ndarray:
            return RNG.integers(low, low + 16, shape).astype(numpy_dtype(dtype))

        for points in ({}, {3: narrow(9, 4)}):
            given = {0: narrow(9, 64), 2: scales, **points}
            cases.append(Case("GatherBlockQuantized", {1: indices[0]}, given, {"block_size": 16}))
    return cases


def conversions() -> list[Case]:
    x, scales = reals(3, 5, spread=4), np.linspace(0.01, 0.1, 5, dtype=np.float32)
    return [
        *(Case("QuantizeLinear", {0: x}, scaled((1, (0.0301327, 7, dtype)))) for dtype in ("int8", "uint16")),
        Case("QuantizeLinear", {0: x}, {1: scales, 2: stored("uint8", 5)}, {"axis": 1}),
        *(Case("DequantizeLinear", {0: stored(d, 3, 5)}, scaled((1, (0.0301327, 7, d)))) for d in ("uint8", "int16")),
    ]


def fused() -> list[Case]:
    a, b, row = reals(2, 3, 4, 6), reals(2, 3, 6, 5), reals(6)
    x, w = reals(2, 3, 9, 7), reals(4, 3, 3, 3)
    turned = {0: np.swapaxes(a, 2, 3).copy(), 1: np.swapaxes(b, 2, 3).copy()}
    every = ("y", "", "", "sum")
    conv = {"kernel_shape": [3, 3], "pads": [1] * 4}
    return [
        Case("Gelu", {0: a}), Case("BiasGelu", {0: a}, {1: row}), Case("FastGelu", {0: a}, {1: row}, rtol=1e-4),
        Case("FastGelu", {0: a}, rtol=1e-4), Case("QuickGelu", {0: a}), Case("QuickGelu", {0: a}, {}, {"alpha": 1.0}),
        Case("SkipLayerNormalization", {0: a[0], 1: a[1]}, {2: row, 3: reals(6), 4: reals(6)}, {"epsilon": 1e-5}),
        Case("SkipLayerNormalization", {0: a[0], 1: a[1]}, {2: row}, outputs=every),
        Case("FusedMatMul", {0: a, 1: b}, {}, {"alpha": 0.125}),
        Case("FusedMatMul", turned, {}, {"transA": 1, "transB": 1}),
        Case("FusedMatMul", {0: reals(4, 6), 1: reals(5, 6)}, {}, {"transB": 1, "alpha": 2.0}),
        *(Case("FusedGemm", {0: reals(4, 6)}, {1: reals(6, 5), 2: reals(5)}, {"activation": name})
          for name in ("Relu", "Sigmoid", "Tanh")),
        Case("FusedGemm", {0: reals(4, 6)}, {1: reals(6, 5)}, {"activation": "LeakyRelu", "activation_alpha": 0.2}),
        *(Case("FusedGemm", {0: reals(4, 6)}, {1: reals(6, 5)}, {"activation": name, "activation_alpha": 0.3, **more})
          for name, more in (("Elu", {}), ("ThresholdedRelu", {}), ("HardSigmoid", {"activation_beta": 0.4}))),
        *(Case("FusedGemm", {0: reals(4, 6)}, {1: reals(6, 5)}, {"activation": name})
          for name in ("Softplus", "Softsign")),
        *(Case("FusedConv", {0: x, **sum_}, {1: w, 2: reals(4)}, {**conv, **by})
          for by in ACTIVATIONS for sum_ in ({}, {3: reals(2, 4, 9, 7)})),
    ]  # fmt: skip


ACTIVATIONS = (
    *({"activation": name} for name in ("Relu", "Sigmoid", "Tanh", "HardSwish")),
    {"activation": "LeakyRelu", "activation_params": [0.2]},
    {"activation": "Clip", "activation_params": [-0.5, 2.0]},
    {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
)


def stacks() -> list[Case]:
    """Products whose operands may have their rows first, or their last axes exchanged."""

    def given(x: np.ndarray, trans: int, rows_first: int) -> np.ndarray:
        turned = np.swapaxes(x, -1, -2) if trans else x
        return (np.moveaxis(turned, -2, 0) if rows_first else turned).copy()

    cases = [Case("FusedMatMul", {0: reals(6), 1: reals(6, 5)}, {}, {"transA": 1})]
    for stack in ((2,), (2, 3), (2, 3, 2)):
        a, b = reals(*stack, 4, 6), reals(*stack, 6, 5)
        for ta, tb, first_a, first_b in ((0, 0, 1, 0), (1, 0, 1, 1), (0, 1, 0, 1), (1, 1, 1, 1)):
            attrs = {"alpha": 0.5, "transA": ta, "transB": tb, "transBatchA": first_a, "transBatchB": first_b}
            operands = {0: given(a, ta, first_a), 1: given(b, tb, first_b)}
            cases.append(Case("FusedMatMul", operands, {}, attrs, host=len(stack) > 2))
    return cases


def attention() -> list[Case]:
    x, w, b = reals(2, 5, 12), reals(12, 36, spread=0.4), reals(36)
    heads = {"num_heads": 3}
    lengths, mask = np.array([5, 2], np.int32), np.array([[1, 1, 0, 1, 1], [1, 0, 0, 1, 0]], np.int32)
    bias = reals(2, 3, 5, 5)
    three = {0: x, 1: reals(2, 7, 12), 2: reals(2, 7, 12)}
    tables = {2: reals(20, 12), 3: reals(9, 12), 5: reals(12), 6: reals(12)}
    ids = RNG.integers(0, 20, (2, 5)).astype(np.int32)
    segments, places = RNG.integers(0, 2, (2, 5)).astype(np.int32), RNG.integers(0, 9, (2, 5)).astype(np.int32)
    both = ("y", "lengths")
    numbers = RNG.integers(-20, 21, (12, 36))
    stored_weights = (
        {1: numbers.astype(np.int8), 4: np.float32(0.015), 7: np.int8(3)},
        {
            1: (numbers + 120).astype(np.uint8),
            4: np.linspace(0.01, 0.02, 36, dtype="f4"),
            7: np.full(36, 121, np.uint8),
        },
    )
    return [
        Case("Attention", {0: x}, {1: w, 2: b}, heads),
        Case("Attention", {0: x}, {1: w, 2: b}, {**heads, "unidirectional": 1, "scale": 0.3}),
        Case("Attention", {0: x, 3: lengths}, {1: w, 2: b}, heads),
        Case("Attention", {0: x, 3: mask, 5: bias}, {1: w, 2: b}, heads),
        Case("Attention", {0: x}, {1: reals(12, 30, spread=0.4), 2: reals(30)},
             {**heads, "qkv_hidden_sizes": [12, 12, 6]}),
        *(Case("QAttention", {0: stored("uint8", 2, 5, 12), **hidden},
               {**weight, 2: b, 3: np.float32(0.02), 6: np.uint8(120)}, {**heads, "unidirectional": causal})
          for weight in stored_weights for hidden in ({}, {5: lengths}, {5: mask}) for causal in (0, 1)),
        Case("MultiHeadAttention", three, {}, heads),
        Case("MultiHeadAttention", three, {3: b}, {**heads, "scale": 0.25}),
        Case("MultiHeadAttention", {**three, 4: np.array([7, 3], np.int32)}, {3: b}, heads),
        Case("EmbedLayerNormalization", {0: ids}, tables, outputs=both),
        Case("EmbedLayerNormalization", {0: ids, 1: segments, 7: mask, 8: places}, {**tables, 4: reals(2, 12)},
             outputs=both),
        Case("SkipSimplifiedLayerNormalization", {0: x, 1: reals(2, 5, 12)}, {2: reals(12)}),
        Case("SkipSimplifiedLayerNormalization", {0: x, 1: reals(2, 5, 12)}, {2: reals(12), 3: reals(12)},
             outputs=("y", "", "", "sum")),
    ]  # fmt: skip


def rows() -> list[Case]:
    x, gain = reals(2, 5, 24), reals(24)
    return [
        Case("SimplifiedLayerNormalization", {0: x}, {1: gain}, domain=""),
        Case(
            "SimplifiedLayerNormalization", {0: x}, {1: gain}, {"axis": -1, "epsilon": 0.1, "stash_type": 1}, domain=""
        ),
    ]


def rotary() -> list[Case]:
    tables = {2: reals(20, 4), 3: reals(20, 4)}
    three, four = reals(2, 5, 24), reals(2, 3, 5, 8)
    first, each = np.array([7]), RNG.integers(0, 20, (2, 5))
    heads, wide = {"num_heads": 3}, {"num_heads": 3, "rotary_embedding_dim": 8}
    return [
        *(Case("RotaryEmbedding", {0: three, 1: at}, tables, {**heads, "interleaved": i})
          for at in (first, each) for i in (0, 1)),
        Case("RotaryEmbedding", {0: three, 1: first}, tables),
        *(Case("RotaryEmbedding", {0: four, 1: at}, tables) for at in (first, each)),
        Case("RotaryEmbedding", {0: reals(2, 5, 36), 1: each}, tables, wide),
        Case("RotaryEmbedding", {0: reals(2, 3, 5, 12), 1: first}, tables, wide),
    ]  # fmt: skip


def distances() -> list[Case]:
    points = {1: reals(21, 4)}
    return [
        Case("CDist", {0: reals(9, 4)}, points, {"metric": "euclidean"}, rtol=1e-4),  # onnxruntime takes squares away
        Case("CDist", {0: reals(9, 4)}, points, {"metric": "sqeuclidean"}, rtol=1e-4),
        Case("CDist", {0: reals(9, 4), 1: reals(3, 4)}, rtol=1e-4, host=True),
    ]


CASES = [
    *quantised(),
    *products(),
    *blocks(),
    *embeddings(),
    *conversions(),
    *fused(),
    *stacks(),
    *attention(),
    *rows(),
    *rotary(),
    *distances(),
    *recurrent(),
]
