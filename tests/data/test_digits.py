from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tinycomp.data import digits, digits_model

BOTH = pytest.mark.parametrize("quantized", [False, True], ids=["fp32", "int8"])


def _accuracy(quantized: bool) -> float:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is the reference for accuracy")
    images, labels = digits()
    options = ort.SessionOptions()
    # As it stands: merged kernels of quantised layers saturate on x86 without VNNI.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(digits_model(quantized), options, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"image": images})
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    return float((probabilities.argmax(axis=1) == labels).mean())


def _consumers(graph: onnx.GraphProto, value: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if value in node.input]


@BOTH
def test_models_pass_the_checker(quantized: bool) -> None:
    model = onnx.load(digits_model(quantized))
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 17
    (image,) = model.graph.input
    dims = image.type.tensor_type.shape.dim
    assert (image.name, dims[0].dim_param, [d.dim_value for d in dims[1:]]) == ("image", "N", [1, 8, 8])
    assert [output.name for output in model.graph.output] == ["probabilities"]
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


def test_the_shipped_files_are_small() -> None:
    folder = digits_model().parent
    assert sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file()) < 200_000


def test_digits_have_the_promised_form() -> None:
    images, labels = digits()
    assert (images.shape, images.dtype) == ((200, 1, 8, 8), np.float32)
    assert (labels.shape, labels.dtype) == ((200,), np.int64)
    assert (images.min(), images.max()) == (0, 1)
    assert set(labels.tolist()) == set(range(10))


def test_accuracy_on_held_out_digits() -> None:
    fp32, int8 = _accuracy(quantized=False), _accuracy(quantized=True)
    assert fp32 >= 0.97
    assert int8 >= fp32 - 0.01


def test_fp32_keeps_its_batch_normalisations() -> None:
    operators = [node.op_type for node in onnx.load(digits_model()).graph.node]
    assert operators.count("BatchNormalization") == operators.count("Conv") == 6


def test_every_int8_layer_is_closed_by_its_own_quantise_and_dequantise() -> None:
    graph = onnx.load(digits_model(quantized=True)).graph
    made_by = {output: node for node in graph.node for output in node.output}
    layers = [node for node in graph.node if node.op_type in {"Conv", "Gemm"}]
    assert len(layers) == 7
    for layer in layers:
        assert [made_by[name].op_type for name in layer.input] == ["DequantizeLinear"] * 3
        assert all(len(_consumers(graph, name)) == 1 for name in layer.input)
        (following,) = _consumers(graph, layer.output[0])
        if following.op_type == "Relu":
            (following,) = _consumers(graph, following.output[0])
        assert following.op_type == "QuantizeLinear"


def test_int8_convolutions_fit_a_matrix_unit_of_sixteen_columns() -> None:
    graph = onnx.load(digits_model(quantized=True)).graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}
    for conv in (node for node in graph.node if node.op_type == "Conv"):
        weight = weights[made_by[conv.input[1]].input[0]]
        assert weight.data_type == onnx.TensorProto.INT8
        assert weight.dims[0] % 16 == 0


def test_held_out_digits_are_not_training_digits() -> None:
    script = pytest.importorskip("benchmarks.train_digits", reason="needs the source tree, scikit-learn and torch")
    training, validation, held_out = script.splits()
    images, labels = digits()
    np.testing.assert_array_equal(images, held_out.scaled)
    np.testing.assert_array_equal(labels, held_out.labels)
    seen = {image.tobytes() for part in (training, validation) for image in part.images}
    assert not seen & {image.tobytes() for image in held_out.images}
    assert len(training.labels) + len(validation.labels) + len(labels) == 1797
