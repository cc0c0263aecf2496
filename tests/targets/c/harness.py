"""Running one operator on the C target, on the host and in onnxruntime, and comparing the three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort

import tinycomp
from tests.cases.case import Case, Const, Operand, make_model
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.runtime.module import Module
from tinycomp.targets.c import TARGET

__all__ = ["Case", "Const", "Operand", "assert_close", "assert_ran_on_c", "check", "compile_for", "make_model",
           "nodes_of", "run_onnxruntime"]  # fmt: skip

PARTS = {"QLinearConv": "Conv", "QLinearMatMul": "MatMul"}
"""Operators that run as composites, and what is in those."""


def nodes_of(text: str) -> list[onnx.NodeProto]:
    """Return the nodes of a text in ONNX's form, such as ``a = Relu(x) y = Neg(a)``."""
    return list(onnx.parser.parse_graph(f"g () => () {{ {text} }}").node)


def compile_for(model: onnx.ModelProto, target: str = "c", **options: Any) -> Module:
    """Compile with the partitioning passes alone, so that no simplification takes the node under test away."""
    targets = (TARGET,) if target == "c" else ()
    return tinycomp.compile(model, target, passes=partitioning_passes(targets), threads=2, **options)


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """Return onnxruntime's results, or None if it does not run the model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feeds)))
    except Exception:  # it may fail in any way: then it is no witness
        return None


def assert_close(found: np.ndarray, wanted: np.ndarray, case: Case, label: str) -> None:
    assert found.dtype == wanted.dtype, f"{label}: dtype {found.dtype}, not {wanted.dtype}"
    assert found.shape == wanted.shape, f"{label}: shape {found.shape}, not {wanted.shape}"
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, wanted, label)
        return
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    atol = case.atol
    if case.of_largest:
        atol += case.of_largest * np.abs(wanted).max(initial=0.0)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, wanted, case.rtol, atol, err_msg=label)


def check(case: Case) -> Module:
    """Compare C with the host and onnxruntime; the node must really have run on C."""
    model = case.model()
    module = compile_for(model, strict=True)
    assert_ran_on_c(module, case.op)
    found = list(module.run(case.feeds).values())
    host = list(compile_for(model, "host").run(case.feeds).values())
    for f, h in zip(found, host, strict=True):
        assert_close(f, h, case, f"{case} against the host")
    peer = run_onnxruntime(model, case.feeds) if case.onnxruntime else None
    for f, p in zip(found, peer or [], strict=bool(peer)):
        assert_close(f, p, case, f"{case} against onnxruntime")
    return module


def assert_ran_on_c(module: Module, op: str) -> None:
    report = module.report()
    assert report.hosts == ()
    assert len(report.regions) == 1, report.regions
    assert PARTS.get(op, op) in report.regions[0].ops, report.regions[0].ops
    assert op not in PARTS or report.regions[0].composites
