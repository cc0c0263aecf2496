"""Differential testing of kernels: ours against onnx.reference and, where it has the operator, onnxruntime."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import UNKNOWN, compatible, type_of
from tinycomp.ops import OPS
from tinycomp.ops.rule import Facts, value_of

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ATOL = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-9}


def dtype_of(name: str) -> np.dtype:
    """Return the numpy dtype of a tinycomp dtype name."""
    import ml_dtypes

    return np.dtype(object) if name == "string" else np.dtype(getattr(ml_dtypes, name, name))


def tensor_type(array: np.ndarray) -> int:
    """Return the TensorProto enum of an array; object arrays are strings."""
    return onnx.TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """Return reproducible random values of a dtype, between low and high where it can hold them."""
    rng = np.random.default_rng(seed)
    if dtype == "string":
        return np.array([f"s{v}" for v in rng.integers(0, 9, int(np.prod(shape)))], dtype=object).reshape(shape)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    values = rng.uniform(low, high, shape)
    if dtype.startswith("uint"):
        values = np.abs(values)
    if "int" in dtype:
        values = np.rint(values).astype(np.int64)
    return np.asarray(values).astype(dtype_of(dtype))


def single_node_model(op, inputs, attrs=None, version=1, outputs=1, domain="", output_names=None):
    """Return a model of one node whose inputs are the given arrays (None: absent)."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    output_names = output_names or [f"y{i}" for i in range(outputs)]
    protos = {
        k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
        for k, v in (attrs or {}).items()
        if v is not None
    }
    node = helper.make_node(op, names, output_names, domain=domain, **protos)
    infos = [
        helper.make_tensor_value_info(n, tensor_type(x), x.shape)
        for n, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    results = [helper.make_empty_tensor_value_info(n) for n in output_names if n]
    graph = helper.make_graph([node], "g", infos, results)
    opsets = [helper.make_opsetid(domain, version)]
    if domain:
        opsets.append(helper.make_opsetid("", 21))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def since_version(op: str, opset: int, domain: str = "") -> int:
    """Return the version of an operator that is in force at an opset."""
    return onnx.defs.get_schema(op, max_inclusive_version=opset, domain=domain).since_version


def versions(op, first=7):
    """Return every version of an operator in force from opset ``first`` on."""
    history = [s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""]
    return [v for v in sorted(history) if v >= since_version(op, max(first, min(history)))]


ONNX_NAMES = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz", "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn", "float6e2m3": "float6_e2m3fn", "float6e3m2": "float6_e3m2fn",
}  # fmt: skip


def allowed(op, version, parameter="T"):
    """Return the dtype names that a type parameter of an operator allows, without the complex ones."""
    schema = onnx.defs.get_schema(op, version, "")
    for constraint in schema.type_constraints:
        if constraint.type_param_str == parameter:
            texts = [t[7:-1] for t in constraint.allowed_type_strs if t.startswith("tensor(")]
            return [ONNX_NAMES.get(t, t) for t in sorted(texts) if not t.startswith("complex")]
    raise KeyError(f"{op} has no type parameter {parameter}")


def run_ours(op, inputs, attrs=None, version=28, outputs=1, domain=""):
    """Run the numpy kernel and return its outputs as a list."""
    since = since_version(op, version, domain)
    record = OPS.find(op, domain, since)
    assert record is not None, f"{op} has no record"
    assert record.kernel is not None, f"{op} has no kernel"
    node = Node(op, domain, since, tuple([value_of(x) for x in inputs]))
    node.attrs = {k: v for k, v in (attrs or {}).items() if v is not None}
    node.outputs = tuple([Value(f"y{i}", UNKNOWN, node) for i in range(outputs)])
    rule = OPS.of(op, domain).infer
    types = [] if rule is None else rule(Facts(node, in_run=True))
    result = record.bind(node.attrs, outputs)(*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    for type_, array in zip(types, results, strict=False):
        assert not isinstance(array, np.ndarray) or compatible(type_, type_of(array)), (
            f"{op}: {type_} is said of {type_of(array)}"
        )
    return results


def run_reference(op, inputs, attrs=None, version=28, outputs=1, domain=""):
    """Run onnx.reference; raises whatever it raises."""
    model = single_node_model(op, inputs, attrs, version, outputs, domain)
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None})


@functools.cache
def _quiet_session() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return options


def run_onnxruntime(op, inputs, attrs=None, version=28, outputs=1, domain=""):
    """Run onnxruntime; raises whatever it raises (unknown operator, dtype or opset)."""
    model = single_node_model(op, inputs, attrs, version, outputs, domain)
    session = ort.InferenceSession(model.SerializeToString(), _quiet_session(), providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None})


WITNESSES = {"reference": run_reference, "onnxruntime": run_onnxruntime}


def assert_same(got, want, rtol=1e-5, atol=None, label=""):
    """Assert that two results have the same dtype, shape and (nearly) the same values."""
    want = np.asarray(want)
    assert isinstance(got, np.ndarray), f"{label}: got a {type(got).__name__}"
    if want.dtype.kind in "UTSO":
        assert got.dtype == object, f"{label}: dtype {got.dtype}, expected string"
        assert got.shape == want.shape, f"{label}: shape {got.shape}, expected {want.shape}"
        assert [str(v) for v in got.flat] == [str(v) for v in want.flat], label
        return
    assert got.dtype == want.dtype, f"{label}: dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"{label}: shape {got.shape}, expected {want.shape}"
    name = str(want.dtype)
    if name in ATOL:
        atol = ATOL[name] if atol is None else atol
        rtol = {"float16": 4e-3, "bfloat16": 3e-2}.get(name, rtol)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol, err_msg=label)
    elif name.startswith(("float", "complex")) or "int4" in name or "int2" in name:
        np.testing.assert_array_equal(got.astype(np.complex128), want.astype(np.complex128), err_msg=label)
    else:
        np.testing.assert_array_equal(got, want, err_msg=label)


def check(op, inputs, attrs=None, version=28, outputs=1, domain="", against=("reference", "onnxruntime"), **tolerance):
    """Compare our kernel with every witness that can run the node; at least one must.

    Args:
        op: Operator name.
        inputs: Arrays, None for an absent optional input.
        attrs: Attributes as plain Python values; arrays for tensors.
        version: The opset to run at.
        outputs: Number of outputs asked for.
        domain: Operator domain.
        against: Names of witnesses to ask.
        tolerance: ``rtol`` and ``atol`` for float32 and float64.

    Returns:
        Our outputs and the names of the witnesses that agreed.
    """
    before = [None if x is None else x.copy() for x in inputs]
    got = run_ours(op, inputs, attrs, version, outputs, domain)
    for x, y in zip(inputs, before, strict=True):
        assert x is None or x.tobytes() == y.tobytes() or x.dtype == object, f"{op} changed an input"
    agreed = []
    for name in against:
        try:
            want = WITNESSES[name](op, inputs, attrs, version, outputs, domain)
        except Exception as error:  # a witness may fail in any way it likes
            last = f"{name}: {error}"
            continue
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_same(g, w, label=f"{op}-{version} output {i} against {name}", **tolerance)
        agreed.append(name)
    assert agreed, f"no witness can run {op}-{version}: {last[:300]}"
    return got, agreed
