"""Numbers that ask for much work where there are hardly any data: results come at once."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp.errors import ExecutionError, MemoryLimitError, TypeInferenceError

FAR = 2**28
CASES = {
    "LRN": (f"float[1, 3, 5, 5] x) => (float[1, 3, 5, 5] y) {{ y = LRN<size = {2**31 - 1}>(x)", (1, 3, 5, 5)),
    "RNN": (
        f"float[{FAR}, 0, 1] x, float[1, 1, 1] w, float[1, 1, 1] r) => (float[s, 1, 0, 1] y) "
        "{ y = RNN<hidden_size = 1>(x, w, r)",
        (FAR, 1, 0, 1),
    ),
    "MaxRoiPool": (
        "float[1, 0, 4, 4] x, float[1, 5] r) => (float[1, 0, h, w] y) "
        f"{{ y = MaxRoiPool<pooled_shape = [{2**14}, {2**14}]>(x, r)",
        (1, 0, 2**14, 2**14),
    ),
    "Pad": (
        f"float[1, 5, 5] x) => (float[1, h, w] y) <int64[6] p = {{0, {FAR}, 0, 0, 0, -5}}> "
        '{ y = Pad<mode = "reflect">(x, p)',
        (1, FAR + 5, 0),
    ),
    "Resize": (
        "float[1, 3, 5, 5] x) => (float[1, 3, h, w] y) <float[4] s = {1.0, 1.0, 0.000000001, 1.0}> "
        '{ y = Resize<mode = "cubic", antialias = 1>(x, , s)',
        (1, 3, 0, 5),
    ),
}


@pytest.mark.parametrize(("text", "shape"), CASES.values(), ids=CASES)
def test_work_is_bounded_by_the_data(text: str, shape: tuple[int, ...]) -> None:
    module = tinycomp.compile(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> m ({text} }}'), "host")
    feeds = {spec.name: np.zeros([int(d) for d in spec.shape], np.float32) for spec in module.inputs}
    (result,) = module.run(feeds).values()
    assert result.shape == shape


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> m ({text} }}')


@pytest.mark.parametrize(
    "text",
    [
        f"float[{2**31}, 3] x, int64 i) => (float[3] y) {{ s = SplitToSequence<keepdims = 0>(x) y = SequenceAt(s, i)",
        f"float[1, 1, {2**40 + 1}, 3] x, float[1, 1, 2, 2] w, float[1, 8, {2**40}, 2] o) => (float[a, b, c, d] y) "
        "{ y = DeformConv(x, w, o)",
        f"float[1, {2**40}] x) => (bool[a, b] m) {{ y, m = Dropout(x)",
        f"uint8[1, 1, {2**24}, {2**24}] x, uint8 z) => (int32[a, b, c, d] y) <uint8[1, 1, 1, 1] w = {{3}}> "
        "{ y = ConvInteger(x, w, z)",
        f"float[{2**20}, {2**20}] x) => (float[a, b] y) {{ y = Trilu(x)",
        f"float[2, {2**62}] x) => (int64 y) {{ y = Size(x)",
    ],
    ids=["SplitToSequence", "DeformConv", "Dropout", "ConvInteger", "Trilu", "Size"],
)
@pytest.mark.parametrize("target", ["c", "host"])
def test_compiling_makes_no_tables_of_declared_sizes(text: str, target: str) -> None:
    tracemalloc.start()
    try:
        with contextlib.suppress(MemoryLimitError):  # what a run would need may be known to be too much
            tinycomp.compile(model(text), target)
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("node", ["Reshape(x, s)", "Expand(x, s)", "ConstantOfShape(s)"])
def test_a_result_has_no_more_dimensions_than_tensors_may(node: str) -> None:
    with pytest.raises(TypeInferenceError, match="too many dimensions"):
        tinycomp.compile(model(f"float[1] x, int64[{2**28}] s) => (float[] y) {{ y = {node}"))


def test_a_recurrent_layer_of_many_steps_ends_in_time() -> None:
    steps = 2**22
    text = f"float[{steps}, 1, 1] x, float[1, 1, 1] w, float[1, 1, 1] r) => (float[s, 1, 1, 1] y) "
    module = tinycomp.compile(model(text + "{ y = RNN<hidden_size = 1>(x, w, r)"), "host")
    small = np.zeros((1, 1, 1), np.float32)
    with pytest.raises(ExecutionError, match="the time is up"):
        module.run({"x": np.zeros((steps, 1, 1), np.float32), "w": small, "r": small}, timeout=0.2)
