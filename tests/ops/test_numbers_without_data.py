"""Numbers that ask for much work where there are hardly any data: results come at once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp

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
