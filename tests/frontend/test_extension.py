"""Operators of com.microsoft by their definitions, beside onnxruntime's kernels for them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.declarations.ways import own_symbols
from tests.frontend.extension_cases import (
    CASES,
    MEAN,
    UNARY,
    Case,
    attention,
    blocks,
    nbits,
    products,
    quantised,
    reals,
    stored,
)
from tests.targets.c.quantized.test_layers import kernels
from tinycomp.driver.pipeline import Pipeline, optimisation_passes
from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.frontend.extension import operators
from tinycomp.ir import Node
from tinycomp.rewrite import reject

ort = pytest.importorskip("onnxruntime")
DYNAMIC = ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QAttention")


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


@pytest.mark.parametrize("case", [c for c in CASES if c.op in DYNAMIC and list(c.data) == [0]], ids=str)
def test_layers_that_are_quantised_at_run_time_are_integer_ones_of_open_sizes(case: Case):
    model = case.model()
    own_symbols(model)
    module = tinycomp.compile(model, "c", strict=True)
    assert "qgemm" in kernels(module)
    for found, wanted in zip(module.run(case.feeds).values(), by_onnxruntime(case), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=case.rtol * np.abs(wanted).max())


def test_every_definition_has_a_case():
    assert {case.op for case in (*CASES, MEAN)} == set(operators()) - set(operators("ai.onnx.ml"))


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
    for case in (c for c in blocks() if 4 not in c.constants and not c.host):
        assert "gemm_dequant_f32" in kernels(tinycomp.compile(case.model(), "c", strict=True))
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


UNDEFINED = [
    (nbits(reals(2, 64), 4, "uint8", order=64), "MatMulNBits <K=64, N=12, bits=4, block_size=16> (float32[2, 64]"),
    (nbits(reals(2, 64), 2, "", order=64), "absent, int32[64])"),
    (Case("FusedConv", {0: reals(1, 1, 3, 3)}, {1: reals(1, 1, 3, 3)}, {"activation": "LeakyRelu"}),
     "FusedConv <activation='LeakyRelu'> (float32[1, 1, 3, 3], float32[1, 1, 3, 3])"),
    (Case("QAttention", {0: stored("uint8", 1, 2, 4), 8: reals(2, 1, 2, 3, 2)},
          {1: stored("int8", 4, 12), 2: reals(12), 3: np.float32(1), 4: np.float32(1)}, {"num_heads": 2}),
     "float32[2, 1, 2, 3, 2])"),
    (Case("FusedGemm", {0: reals(2, 3)}, {1: reals(3, 2)}, {"activation": "Swish"}),
     "FusedGemm <activation='Swish'> (float32[2, 3]"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "found"), UNDEFINED, ids=str)
def test_forms_that_have_no_definition_stay_unknown(case: Case, found: str):
    with pytest.raises(UnsupportedError, match="belongs to the unknown domain") as caught:
        tinycomp.compile(case.model(), "c")
    assert caught.value.where.startswith("node")
    assert found in caught.value.found
    assert "a form with a definition" in caught.value.expected


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
    # The first needs an operator of opset 23; the others are operators of their own.
    others = {"SkipSimplifiedLayerNormalization", "CDist", "DynamicQuantizeLSTM"}
    for case in (c for c in CASES if c.op not in others and not c.attrs.get("unidirectional")):
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
