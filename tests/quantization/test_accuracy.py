"""Layers of quantised models beside their float models, and the one that a wrong scale makes depart."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tinycomp
from tinycomp.data import digits, digits_model
from tinycomp.errors import QuantizationError
from tinycomp.quantization import compare_layers
from tinycomp.target import Target

MODELS = Path(os.environ.get("TINYCOMP_MODELS", "/nowhere"))
IMAGES = digits()[0][:20]


def with_scale(model: onnx.ModelProto, name: str, factor: float) -> onnx.ModelProto:
    """Return the model with one scale changed wherever it stands."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (stored,) = [held for held in copy.graph.initializer if held.name == name]
    stored.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(stored) * np.float32(factor), name))
    return copy


def shipped() -> onnx.ModelProto:
    return onnx.load(digits_model(quantized=True))


def test_every_layer_is_found_by_its_name_and_close_to_what_rounding_leaves() -> None:
    accuracy = compare_layers(digits_model(), shipped(), [IMAGES[:10], IMAGES[10:]])
    assert [row.name for row in accuracy.layers][:5] == [
        "image", "stem/relu:0", "widen/relu:0", "residual/1/relu:0", "residual/2/norm:0",
    ]  # fmt: skip
    assert accuracy.unmatched == ()
    assert accuracy.first is None
    assert all(30 < row.here < 60 and abs(row.alone - row.best) < 6 for row in accuracy.layers)
    for row in accuracy.layers:
        assert math.isclose(sum(row.histogram), 1)
        assert row.target is None
    assert accuracy.layers[0].histogram[6] == 1  # an input is off by half a step at the most
    assert "No layer loses more than 12 dB" in str(accuracy)


@pytest.mark.parametrize(
    ("factor", "clipped"), [pytest.param(0.1, True, id="too-fine"), pytest.param(12.0, False, id="too-coarse")]
)
def test_the_first_layer_to_depart_is_the_one_with_the_wrong_scale(factor: float, clipped: bool) -> None:
    broken = with_scale(shipped(), "residual/1/relu:0/scale", factor)
    accuracy = compare_layers(digits_model(), broken, [IMAGES])
    assert [row.name for row in accuracy.layers if accuracy.departs(row)] == ["residual/1/relu:0"]
    (row,) = [row for row in accuracy.layers if accuracy.departs(row)]
    assert accuracy.first is row
    assert (row.clipped > 0.01) == clipped
    after = accuracy.layers[accuracy.layers.index(row) + 1 :]
    assert after[0].alone > after[0].here + 6  # what follows has the noise, and did not make it
    assert 'The first layer to depart from the float model is "residual/1/relu:0" (Relu)' in str(accuracy)
    assert accuracy.to_dict()["first"] == "residual/1/relu:0"
    json.dumps(accuracy.to_dict(), allow_nan=False)


def test_a_wrong_scale_of_a_weight_is_named_by_what_it_makes() -> None:
    accuracy = compare_layers(digits_model(), with_scale(shipped(), "dense/weight/scale", 1.4), [IMAGES])
    assert accuracy.first is not None
    assert accuracy.first.name == "dense:0"


def test_names_of_the_quantisers_own_models_are_known() -> None:
    model = tinycomp.quantize(digits_model(), [IMAGES])
    accuracy = compare_layers(digits_model(), model, [IMAGES], target="c")
    assert accuracy.unmatched == ()
    names = [row.name for row in accuracy.layers]
    assert names[1] == "stem/relu:0"  # which saturation has replaced
    assert all(row.where == "c_0" and row.apart is not None and row.apart <= 1 for row in accuracy.layers)
    assert accuracy.first is None
    assert accuracy.first_on_target is None
    assert [row.target for row in accuracy.layers][-1] == pytest.approx(accuracy.layers[-1].here, abs=0.5)


def test_a_target_that_computes_something_else_is_named() -> None:
    wrong = Target("wrong")

    @wrong.op("MaxPool")
    def _(node: Any) -> bool:
        return True

    @wrong.codegen
    def build(region: Any) -> Any:
        return lambda *operands: [np.zeros([int(d) for d in v.shape], v.dtype) for v in region.body.outputs]

    accuracy = compare_layers(digits_model(), shipped(), [IMAGES[:4]], target=[wrong], shapes={"image": (4, 1, 8, 8)})
    assert accuracy.first is None
    assert accuracy.first_on_target is not None
    assert accuracy.first_on_target.name == "pool:0"
    assert accuracy.first_on_target.where == "wrong_0"
    assert 'departs from the quantised model\'s is "pool:0" (MaxPool, wrong_0)' in accuracy.verdict()


def test_models_that_have_nothing_in_common_are_refused() -> None:
    other = onnx.load(digits_model())
    for node in other.graph.node:
        node.output[:] = [name if name == "probabilities" else f"other/{name}" for name in node.output]
        node.input[:] = [
            f"other/{name}" if any(f"other/{name}" in n.output for n in other.graph.node) else name
            for name in node.input
        ]
    with pytest.raises(
        QuantizationError, match="no value has the name of one that the quantised model rounds"
    ) as found:
        compare_layers(other, other, [IMAGES])
    assert found.value.hint is not None
    assert "Give the float model" in found.value.hint


@pytest.mark.skipif(not MODELS.is_dir(), reason="TINYCOMP_MODELS does not name a folder of models")
@pytest.mark.parametrize(
    ("name", "layers", "unmatched"), [("ic_resnet8", 15, 1), ("kws_dscnn", 13, 0), ("ad_autoencoder", 11, 0)]
)
def test_published_models_of_another_quantiser(name: str, layers: int, unmatched: int) -> None:
    inputs = np.load(MODELS / f"{name}_int8.npz")["input"][:2]
    accuracy = compare_layers(MODELS / f"{name}_fp32.onnx", MODELS / f"{name}_int8.onnx", [inputs], target="c")
    assert (len(accuracy.layers), len(accuracy.unmatched)) == (layers, unmatched)
    assert accuracy.layers[0].op == "input"
    assert accuracy.layers[0].here == math.inf
    assert all(row.apart is None or row.apart <= 3 for row in accuracy.layers)
    assert accuracy.first_on_target is None
