"""Operators of com.microsoft by their definitions, beside onnxruntime's kernels for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tinycomp
from tests.ops.harness import tensor_type
from tests.targets.c.test_quantized import kernels
from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.frontend.extension import operators
from tinycomp.ir import Node
from tinycomp.pipeline import Pipeline, optimisation_passes
from tinycomp.rewrite import reject

ort = pytest.importorskip("onnxruntime")
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
    """

    op: str
    data: Mapping[int, np.ndarray]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 0
    rtol: float = 1e-5
    outputs: tuple[str, ...] = ("y",)
    host: bool = False

    def __str__(self) -> str:
        kinds = [f"{x.dtype}{list(x.shape)}" for x in self.data.values()]
        return " ".join([self.op, *kinds, *(f"{k}={v}" for k, v in self.attrs.items())])

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{place}": x for place, x in self.data.items()}

    def model(self) -> onnx.ModelProto:
        count = max([*self.data, *self.constants]) + 1
        names = [f"x{i}" if i in self.data else f"c{i}" if i in self.constants else "" for i in range(count)]
        node = helper.make_node(self.op, names, self.outputs, name="node", domain="com.microsoft", **self.attrs)
        graph = helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info(n, tensor_type(x), x.shape) for n, x in self.feeds.items()],
            [helper.make_empty_tensor_value_info(n) for n in self.outputs if n],
            [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in self.constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


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
    rows, deep = stored("uint8", 6, 20), reals(2, 3, 64)
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
        *(nbits(deep, *form) for form in ((4, False, False), (4, True, True), (8, False, True), (8, True, False))),
        nbits(reals(3, 40), 4, True, False, depth=40),
    ]


def nbits(a: np.ndarray, bits: int, points: bool, bias: bool, depth: int = 64) -> Case:
    """A MatMulNBits of 12 columns in blocks of 16."""
    blocks = -(-depth // 16)
    constants = {
        1: stored("uint8", 12, blocks, 2 * bits),
        2: np.abs(reals(12 * blocks, spread=0.01)) + np.float32(0.01),
    }
    if points:
        constants[3] = stored("uint8", 12 * -(-blocks * bits // 8))
    if bias:
        constants[5] = reals(12)
    attrs = {"K": depth, "N": 12, "bits": bits, "block_size": 16}
    return Case("MatMulNBits", {0: a}, constants, attrs)


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
        Case("FusedConv", {0: x}, {1: w, 2: reals(4)}, {**conv, "activation": "Relu"}),
        Case("FusedConv", {0: x, 3: reals(2, 4, 9, 7)}, {1: w, 2: reals(4)}, {**conv, "activation": "Relu"}),
    ]  # fmt: skip


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
    return [
        Case("Attention", {0: x}, {1: w, 2: b}, heads),
        Case("Attention", {0: x}, {1: w, 2: b}, {**heads, "unidirectional": 1, "scale": 0.3}),
        Case("Attention", {0: x, 3: lengths}, {1: w, 2: b}, heads),
        Case("Attention", {0: x, 3: mask, 5: bias}, {1: w, 2: b}, heads),
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


CASES = [*quantised(), *products(), *conversions(), *fused(), *attention()]


def by_onnxruntime(case: Case) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(case.model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, case.feeds)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_definition_means_what_onnxruntime_computes(case: Case):
    peer = by_onnxruntime(case)
    for target, options in (("host", {"passes": []}), ("host", {}), ("c", {"strict": not case.host})):
        results = tinycomp.compile(case.model(), target, **options).run(case.feeds)
        for (name, found), wanted in zip(results.items(), peer, strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            if found.dtype.kind in "iu":
                apart = np.abs(found.astype(int) - wanted)
                assert apart.max() <= case.steps, target
                assert (apart > 0).mean() <= 0.05, target
                assert len(np.unique(wanted)) > 5 or name != "y"
            else:
                limit = case.rtol * np.abs(wanted).max()
                np.testing.assert_allclose(found, wanted, rtol=0, atol=limit, err_msg=target)


def test_every_definition_has_a_case():
    assert {case.op for case in (*CASES, MEAN)} == set(operators()["com.microsoft"])


def test_a_mean_that_onnxruntime_has_no_kernel_for():
    x, scale, point, to, middle = (np.asarray(v) for v in (MEAN.data[0], *(MEAN.constants[i] for i in range(1, 5))))
    mean = ((x.astype(np.float64) - point) * scale).mean(axis=(2, 3))
    wanted = np.clip(np.rint(mean / to) + middle, 0, 255).astype(np.uint8)
    for target in ("host", "c"):
        np.testing.assert_array_equal(tinycomp.compile(MEAN.model(), target).run(MEAN.feeds)["y"], wanted)


def test_quantised_layers_are_integer_ones_to_a_target():
    """What onnxruntime's optimiser merges becomes the layers that it was made of."""
    for case in products()[:2]:
        module = tinycomp.compile(case.model(), "c", strict=True)
        assert kernels(module) == ["qgemm"]
    for case in (c for c in products() if c.op == "MatMulNBits"):
        assert kernels(tinycomp.compile(case.model(), "c", strict=True)) == ["gemm_dequant_f32"]
    for case in (c for c in attention() if c.op == "MultiHeadAttention"):
        assert "attention_f32" in kernels(tinycomp.compile(case.model(), "c", strict=True))
    (add,) = {tuple(kernels(tinycomp.compile(c.model(), "c"))) for c in quantised() if c.op == "QLinearMul"}
    assert add == ("qbinary",)


def test_a_target_may_take_an_operator_whole():
    target = tinycomp.Target("npu")
    target.op("com.microsoft::QLinearAdd")(lambda node: node.inputs[0].type.rank == 2 or reject("not a matrix"))
    seen = []

    @target.codegen
    def build(region: Node) -> object:
        seen.extend(node.qualified_op for node in region.body.nodes)
        return lambda a, b: np.maximum(a, b)

    for case in (c for c in quantised() if c.op == "QLinearAdd"):
        tinycomp.compile(case.model(), target)
    assert seen == ["com.microsoft::QLinearAdd"]  # of the one whose operands are matrices


def test_forms_that_have_no_definition_stay_unknown():
    case = nbits(reals(2, 64), 4, False, False)
    case.constants[4] = np.arange(64, dtype=np.int32)  # an order of the depth
    with pytest.raises(UnsupportedError, match="MatMulNBits belongs to the unknown domain"):
        tinycomp.compile(case.model(), "c")


def test_attributes_are_checked():
    with pytest.raises(ModelError, match='QLinearLeakyRelu has no attribute "alhpa"'):
        tinycomp.compile(Case("QLinearLeakyRelu", {0: stored("uint8", 4)}, UNARY, {"alhpa": 0.1}).model(), "c")


def test_an_imported_model_is_exported_as_it_was():
    for case in CASES:
        model = case.model()
        again = tinycomp.to_onnx(tinycomp.from_onnx(model))
        assert not again.functions
        ((old,), (new,)) = model.graph.node, again.graph.node
        assert (new.op_type, new.domain, len(new.input)) == (old.op_type, old.domain, len(old.input))
        kept = [{a.name: helper.get_attribute_value(a) for a in n.attribute} for n in (old, new)]
        assert kept[0] == kept[1]


def test_definitions_have_the_opset_of_the_model():
    """So what they became can be exported, too."""
    newer = {"SkipSimplifiedLayerNormalization"}  # needs an operator of opset 23
    for case in (c for c in CASES if c.op not in newer and not c.attrs.get("unidirectional")):
        graph = Pipeline(optimisation_passes())(tinycomp.from_onnx(case.model()))
        again = tinycomp.to_onnx(graph)
        assert not any(node.domain for node in again.graph.node)
        onnx.checker.check_model(again)


def test_a_function_of_the_model_wins():
    model = Case("Gelu", {0: reals(4)}).model()
    own = onnx.parser.parse_function("""
        <domain: "com.microsoft", opset_import: ["" : 17]> Gelu (X) => (Y) { Y = Neg (X) }
    """)
    model.functions.append(own)
    np.testing.assert_array_equal(tinycomp.compile(model, "c")(np.ones(4, np.float32)), -np.ones(4, np.float32))
