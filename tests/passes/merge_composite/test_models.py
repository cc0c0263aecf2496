"""Composite merging on a real quantised model, whose residual block shares one DequantizeLinear."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

from tests.passes.merge_composite.test_properties import composites, inline_all, meaning
from tinycomp.frontend.onnx_import import import_model
from tinycomp.ir.verify import verify
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.rewrite import P


def dequantised(v):
    return P.DequantizeLinear(v, ...)


def qconv(x, w, b=None):
    acc = P.Conv(dequantised(x), dequantised(w), P.optional(P.DequantizeLinear, b, ...))
    return P.QuantizeLinear(P.optional(P.Relu, acc), ...)


def qgemm(x, w, b=None):
    acc = P.Gemm(dequantised(x), dequantised(w), P.optional(P.DequantizeLinear, b, ...))
    return P.QuantizeLinear(P.optional(P.Relu, acc), ...)


def qadd(x, y):
    return P.QuantizeLinear(P.optional(P.Relu, dequantised(x) + dequantised(y)), ...)


def test_every_quantised_layer_of_the_digits_classifier_is_merged() -> None:
    graph = import_model(str(files("tinycomp.data") / "digits_int8.onnx"))
    layers = Counter(n.op for n in graph.nodes)
    before = graph.clone()
    MergeComposite(composites([qconv, qgemm, qadd])).run(graph)
    verify(graph)
    made = Counter(n.op for n in graph.nodes)
    assert made["npu.qconv"] == layers["Conv"]
    assert made["npu.qgemm"] == layers["Gemm"]
    assert made["npu.qadd"] == layers["Add"]
    assert not {"Conv", "Gemm", "Add", "Relu"} & made.keys()
    assert meaning(inline_all(graph)) == meaning(before)
