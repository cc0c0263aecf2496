"""One module, the same bits: on one thread and two, saved and loaded, and for a batch in slices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import tinycomp
from tests.fuzz.load import model as perceptron
from tinycomp.data import digits, digits_model

BATCH = 16
SLICES = ((1,) * BATCH, (3, 5, 8), (2, 14), (BATCH,))


def attention() -> onnx.ModelProto:
    """Two heads that attend to seven tokens, behind a normalisation."""
    text = """
    <ir_version: 9, opset_import: ["": 18]>
    m (float[N,7,32] x) => (float[N,7,32] y) <int64[5] heads = {0, 0, 3, 2, 16}> {
      n = LayerNormalization<axis = -1>(x, scale) p = MatMul(n, w) h = Reshape(p, heads)
      t = Transpose<perm = [2, 0, 3, 1, 4]>(h) q4, k4, v4 = Split<num_outputs = 3>(t)
      axis = Constant<value = int64[1] {0}>() q = Squeeze(q4, axis) k = Squeeze(k4, axis) v = Squeeze(v4, axis)
      u = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, u) e = Softmax(s) a = MatMul(e, v)
      b = Transpose<perm = [0, 2, 1, 3]>(a) flat = Constant<value = int64[3] {0, 0, 32}>() c = Reshape(b, flat)
      y = Add(c, x)
    }
    """
    proto, rng = onnx.parser.parse_model(text), np.random.default_rng(1)
    for name, shape in (("scale", (32,)), ("w", (32, 96))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


MODELS: dict[str, tuple[Callable[[], Path | onnx.ModelProto | tinycomp.Graph], tuple[int, ...]]] = {
    "convolutions": (digits_model, (1, 8, 8)),
    "convolutions of bytes": (lambda: digits_model(quantized=True), (1, 8, 8)),
    "products and a step of the host": (perceptron, (64,)),
    "attention": (attention, (7, 32)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_the_same(name: str, tmp_path: Path) -> None:
    make, shape = MODELS[name]
    images = digits()[0][:BATCH]
    batch = images if shape == images.shape[1:] else np.random.default_rng(0).standard_normal((BATCH, *shape))
    batch, results = batch.astype(np.float32), set()
    for threads in (1, 2):
        module = tinycomp.compile(make(), threads=threads)
        module.save(tmp_path / "module.tcm")
        for each in (module, tinycomp.load(tmp_path / "module.tcm", threads=threads)):
            for sizes in SLICES:
                parts = np.split(batch, np.cumsum(sizes)[:-1])
                results.add(np.concatenate([each(part) for part in parts]).tobytes())
    assert len(results) == 1
