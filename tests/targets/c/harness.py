"""Running one operator on the C target, on the host and in onnxruntime, and comparing the three."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

import tinycomp
from tests.ops.harness import tensor_type
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.runtime.module import Module
from tinycomp.targets.c import TARGET

OPSET = 21
PARTS = {"QLinearConv": "Conv", "QLinearMatMul": "MatMul"}
"""Operators that run as composites, and what is in those."""
POOLABLE = (3, 4)
"""Ranks of float32 tensors that a 1x1 MaxPool takes, which changes nothing but asks for channels last."""


class Const:
    """Marks an operand as an initializer of the model."""

    def __init__(self, value: Any, dtype: str = "float32") -> None:
        self.array = value if isinstance(value, np.ndarray) else np.array(value, dtype)


Operand = np.ndarray | Const | None


@dataclass(frozen=True)
class Case:
    """One node with its operands, and how exactly it must agree.

    ``of_largest`` allows differences of that share of the largest result, as sums of many products need it.
    """

    op: str
    operands: Sequence[Operand]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = OPSET
    outputs: int = 1
    rtol: float = 1e-5
    atol: float = 1e-6
    of_largest: float = 0.0
    onnxruntime: bool = True

    def __str__(self) -> str:
        """Name the case for pytest."""
        parts = [self.op, str(self.opset)] if self.opset != OPSET else [self.op]
        for operand in self.operands:
            array = operand.array if isinstance(operand, Const) else operand
            text = "absent" if array is None else f"{array.dtype.name}{'x'.join(map(str, array.shape))}"
            parts.append(text.replace("float32", "f").replace("int64", "i"))
        parts += [f"{k}={v}" for k, v in self.attrs.items()]
        return " ".join(parts).replace("[", "(").replace("]", ")")

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": x for i, x in enumerate(self.operands) if isinstance(x, np.ndarray)}

    def model(self, channels_last: bool = False) -> onnx.ModelProto:
        """Return the node as a model, between pools that hand over and take channels-last tensors if asked for."""
        constants = {f"x{i}": x.array for i, x in enumerate(self.operands) if isinstance(x, Const)}
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.operands)]
        node = helper.make_node(self.op, names, [f"y{i}" for i in range(self.outputs)], name="node", **self.attrs)
        if not channels_last:
            return make_model([node], self.feeds, constants, node.output, self.opset)
        types = self.result_types()
        before = [pool(n, f"{n}_in") for n, x in self.feeds.items() if is_poolable(x.dtype, x.ndim) and x.size]
        after = [pool(n, f"{n}_out") for n, (d, s) in types.items() if is_poolable(d, len(s)) and 0 not in s]
        renamed = {p.input[0]: p.output[0] for p in before}
        node.input[:] = [renamed.get(n, n) for n in node.input]
        final = {p.input[0]: p.output[0] for p in after}
        return make_model(
            [*before, node, *after], self.feeds, constants, [final.get(n, n) for n in node.output], self.opset
        )

    def result_types(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        results = compile_for(self.model(), "host").run(self.feeds)
        return {name: (array.dtype, array.shape) for name, array in results.items()}

    def can_be_channels_last(self) -> bool:
        return any(is_poolable(x.dtype, x.ndim) and x.size for x in self.feeds.values())


def is_poolable(dtype: Any, rank: int) -> bool:
    return np.dtype(dtype) == np.float32 and rank in POOLABLE


def pool(source: str, result: str) -> onnx.NodeProto:
    """A max pool whose window is one cell; the rank follows from the attribute, so it is set by make_model."""
    return helper.make_node("MaxPool", [source], [result], name=f"pool_{result}")


def make_model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    opset: int = OPSET,
    symbolic: Mapping[str, Sequence[Any]] | None = None,
) -> onnx.ModelProto:
    """Return a model whose inputs have the types of ``feeds`` (or the shapes in ``symbolic``)."""
    shapes = {**{n: x.shape for n, x in feeds.items()}, **(symbolic or {})}
    infos = [helper.make_tensor_value_info(n, tensor_type(x), shapes[n]) for n, x in feeds.items()]
    graph = helper.make_graph(
        list(nodes),
        "g",
        infos,
        [helper.make_empty_tensor_value_info(n) for n in outputs if n],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    if any(n.name.startswith("pool_") for n in nodes):
        _set_pool_ranks(model, feeds)
    return model


def _set_pool_ranks(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> None:
    """Give every 1x1 pool as many ones as its operand has spatial dimensions: one, where two do not type-check."""
    pools = [n for n in model.graph.node if n.name.startswith("pool_")]
    later = [n for n in pools if n.input[0] not in feeds]
    for node in pools:
        if node.input[0] in feeds:
            node.attribute.append(helper.make_attribute("kernel_shape", [1] * (feeds[node.input[0]].ndim - 2)))
    for ranks in itertools.product((2, 1), repeat=len(later)):
        for node, rank in zip(later, ranks, strict=True):
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("kernel_shape", [1] * rank))
        try:
            tinycomp.from_onnx(model)
        except tinycomp.TinycompError:
            continue
        return
    raise AssertionError("no ranks fit")


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


def check(case: Case, channels_last: bool = False) -> Module:
    """Compare C with the host and onnxruntime; the node must really have run on C."""
    model = case.model(channels_last)
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
