"""The float16 models that are made for measuring."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks import half


def test_weights_inputs_outputs_and_casts_become_float16() -> None:
    model = half.in_float16(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
            g (float[2] x, int64[2] i) => (float[2] y) <float[2] w = {1.5, -1e38}>
            { f = Cast<to = 1>(i)  a = Add(x, w)  y = Add(a, f) }""")
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.array([1, 0], np.float16), "i": np.array([2, 0])})
    assert (y.dtype, y.tolist()) == (np.float16, [4.5, -half.LARGEST])


def test_lines_have_ratios_to_ours_and_errors() -> None:
    rows = [
        {"error": "", "median": 0.002 * (i + 1), "minimum": 0.001 * (i + 1), "difference": 0.1 * i}
        for i in range(len(half.ENTRIES))
    ]
    lines = half.lines({"model": "m", "engines": rows}).splitlines()
    assert lines[0] == "| m | tinycomp | bf16 | 2.00 | 1.00 | 1.00 1.00 | 0.17 0.17 | 0.0e+00 |"
    assert lines[6] == "| m | onnxruntime | f16 | 14.00 | 7.00 | 7.00 7.00 | 1.17 1.17 | 6.0e-01 |"
    rows[0] = {"error": "no such engine"}
    lines = half.lines({"model": "m", "engines": rows}).splitlines()
    assert lines[0] == "| m | tinycomp | bf16 | no such engine |  |  |  |  |"
    assert lines[1] == "| m | openvino | its own | 4.00 | 2.00 |  | 0.33 0.33 | 1.0e-01 |"
