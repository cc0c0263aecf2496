"""Small models in ONNX's textual form, and a runner to compare them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import parser

onnxruntime.set_default_logger_severity(4)

RELU = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[N, 4] x) => (float[N, 4] y) {
    y = Relu(x)
}
"""

BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
main (bool c, float[N, 4] x) => (float[N, 4] y) <float w = {2}> {
    k = Relu(x)
    y = If (c) <
        then_branch = yes () => (float[N, 4] r) { r = Mul(k, w) },
        else_branch = no () => (float[N, 4] r) { s = Add(x, k)  r = Sub(s, w) }
    >
}
"""

NESTED = """
<ir_version: 8, opset_import: ["" : 17]>
main (bool c, bool d, float[4] x) => (float[4] y) {
    y = If (c) <
        then_branch = a () => (float[4] r) {
            r = If (d) <
                then_branch = b () => (float[4] q) { q = Neg(x) },
                else_branch = e () => (float[4] q) { q = Exp(x) }
            >
        },
        else_branch = f () => (float[4] r) { r = Identity(x) }
    >
}
"""

LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
main (int64 n, float[4] x, float[4] step) => (float[4] last, float[T, 4] every) {
    cond = Constant <value: tensor = bool {1}> ()
    last, every = Loop (n, cond, x) <
        body = trip (int64 i, bool go, float[4] v) => (bool go_on, float[4] next, float[4] seen) {
            go_on = Identity(go)
            next = Add(v, step)
            seen = Mul(next, v)
        }
    >
}
"""

GROWING = """
<ir_version: 8, opset_import: ["" : 17]>
main (int64 n, float[1, 3] x) => (float[R, 3] last) {
    cond = Constant <value: tensor = bool {1}> ()
    last = Loop (n, cond, x) <
        body = trip (int64 i, bool go, float[R, 3] v) => (bool go_on, float[R, 3] next) {
            go_on = Identity(go)
            next = Concat <axis = 0> (v, x)
        }
    >
}
"""

SCAN = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[2] start, float[5, 2] rows, float[2] w) => (float[2] total, float[5, 2] sums) {
    total, sums = Scan <num_scan_inputs = 1,
        body = step (float[2] a, float[2] row) => (float[2] b, float[2] out) {
            scaled = Mul(row, w)
            b = Add(a, scaled)
            out = Identity(b)
        }
    > (start, rows)
}
"""

FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 17, "local" : 1]>
main (float[N, 4] x, float[4] b) => (float[N, 4] y, float[N, 4] z) {
    y = local.scaled <factor = 3.0> (x, b)
    z = local.scaled (x)
}
<domain: "local", opset_import: ["" : 17, "local" : 1]>
scaled <factor: float = 0.5> (v, bias) => (r) {
    leaky = LeakyRelu <alpha: float = @factor> (v)
    r = local.twice (leaky)
}
<domain: "local", opset_import: ["" : 17]>
twice (v) => (r) { r = Add(v, v) }
"""


def parse(text: str) -> onnx.ModelProto:
    """Parse a model and let onnx's own checker confirm that it is valid."""
    model = parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a model with onnxruntime, without its graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def assert_same(found: Any, wanted: Any, context: str = "") -> None:
    """Compare tensors bit by bit, and sequences and optionals part by part."""
    if isinstance(wanted, (list, tuple)):
        assert isinstance(found, (list, tuple)), context
        assert len(found) == len(wanted), context
        for a, b in zip(found, wanted, strict=True):
            assert_same(a, b, context)
    elif wanted is None:
        assert found is None, context
    else:
        a, b = np.asarray(found), np.asarray(wanted)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), context
        assert (a == b).all() if a.dtype == object else a.tobytes() == b.tobytes(), context


def feeds_for(model: onnx.ModelProto, sizes: int = 2) -> dict[str, np.ndarray]:
    """Return random feeds for tensor inputs; symbolic dimensions become ``sizes``."""
    rng = np.random.default_rng(0)
    stored = {t.name for t in model.graph.initializer}
    return {v.name: _feed(rng, v, sizes) for v in model.graph.input if v.name not in stored}


def _feed(rng: np.random.Generator, info: onnx.ValueInfoProto, sizes: int) -> np.ndarray:
    tensor = info.type.tensor_type
    shape: Sequence[int] = [d.dim_value or sizes for d in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
