"""The target tosa: what its programs are, and their results in TOSA's reference model against tinycomp's own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.quantization.networks import Network
from tests.targets.quantized_models import FIXED_POINT_LAYERS, random_model
from tests.targets.tosa_tools import needs_tosa
from tinycomp.data import digits, digits_model
from tinycomp.errors import TargetError
from tinycomp.ir import Graph, TensorType
from tinycomp.quantization import violations
from tinycomp.target_api import partitioned
from tinycomp.targets.tosa import TARGET, emit
from tinycomp.targets.tosa.tools import PYTHON, Worker, interpreter, worker_of

BOTH = ["tosa", "c:requantize=fixed_point"]
OURS = "c:requantize=fixed_point"
MODELS = ("ad_autoencoder", "ic_resnet8", "kws_dscnn", "vww_mobilenet")


@pytest.fixture(scope="module")
def tools() -> Worker:
    """Keep one process with the tools for all tests of the module."""
    return worker_of(interpreter())


# Programs -------------------------------------------------------------------------------------------------------------


def program_of_digits() -> str:
    graph = partitioned(digits_model(quantized=True), [TARGET], shapes={"image": (1, 1, 8, 8)})
    (region,) = (node for node in graph.nodes if node.is_region)
    return str(emit(region))


def test_images_stay_channels_last():
    program = program_of_digits()
    assert program.count("CONV2D(") == 8  # six, the mean, and the product at the end
    assert program.count("DEPTHWISE_CONV2D(") == 2
    assert "TRANSPOSE(" not in program


def test_convolutions_round_twice_and_additions_once():
    lines = program_of_digits().splitlines()
    assert sum("DOUBLE_ROUND" in line for line in lines) == 8
    (add,) = (index for index, line in enumerate(lines) if " = ADD(" in line)
    assert all("SINGLE_ROUND" in lines[index] for index in (add - 2, add - 1, add + 1))


def test_refusals_name_what_is_expected():
    graph = Graph("g", opsets={"": 17})
    x = graph.add_input("x", TensorType("int8", (1, 8, 5, 5)))
    y = graph.add("MaxPool", [x], {"kernel_shape": [2, 2], "dilations": [2, 2]}, sources=["pool"]).output
    graph.set_outputs([graph.add("Abs", [y], sources=["abs"]).output], ["y"])
    rows = {row.op: [str(reason) for reason in row.reasons] for row in tinycomp.compile(graph, "tosa").report().hosts}
    assert "tosa.MaxPool: MAX_POOL2D has no dilations" in rows["MaxPool"]
    assert "tosa.Abs: it does not compute Abs of int8" in rows["Abs"]


def test_missing_tools_are_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without any packages
    bare.chmod(0o755)
    for python in ("/nowhere/python", str(bare)):
        monkeypatch.setenv(PYTHON, python)
        with pytest.raises(TargetError, match="tosa-tools does not run") as error:
            tinycomp.compile(digits_model(quantized=True), "tosa", shapes={"image": (1, 1, 8, 8)})
        assert "pip install tosa-tools" in str(error.value)
        assert PYTHON in str(error.value)


# Results --------------------------------------------------------------------------------------------------------------


@needs_tosa
def test_the_digits_are_one_region_with_our_bits(tools: Worker):
    images, labels = digits()
    model = digits_model(quantized=True)
    module = tinycomp.compile(model, BOTH, verify=True)
    found = module(images)
    np.testing.assert_array_equal(found, tinycomp.compile(model, OURS)(images))
    assert (found.argmax(axis=1) == labels).mean() > 0.97
    (region,) = (row for row in module.report().regions if row.target == "tosa")
    assert region.macs == module.report().totals["macs"]["offloaded"]


@needs_tosa
@pytest.mark.parametrize("name", MODELS)
def test_mlperf_tiny_is_one_region_with_our_bits(name: str, models: Path, tools: Worker):
    path = models / f"{name}_int8.onnx"
    if not path.exists():
        pytest.skip(f"{models} has no {path.name}")
    module = tinycomp.compile(path, BOTH)
    (region,) = (row for row in module.report().regions if row.target == "tosa")
    assert region.macs == module.report().totals["macs"]["offloaded"]
    inputs = np.load(path.with_suffix(".npz"))["input"]
    np.testing.assert_array_equal(module(inputs), tinycomp.compile(path, OURS)(inputs))


@needs_tosa
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_have_our_bits(seed: int, tools: Worker):
    model, feeds = random_model(seed, layers=FIXED_POINT_LAYERS)
    found, ours = (tinycomp.compile(model, targets).run(feeds) for targets in (BOTH, OURS))
    for name, result in ours.items():
        np.testing.assert_array_equal(found[name], result, err_msg=name)


@needs_tosa
def test_a_saved_module_runs_without_the_code_generator(tools: Worker, monkeypatch: pytest.MonkeyPatch):
    module = tinycomp.compile(digits_model(quantized=True), BOTH, shapes={"image": (2, 1, 8, 8)})
    monkeypatch.setattr(TARGET, "_codegen", None)
    again = tinycomp.load(module.to_bytes())
    images = digits()[0][:2]
    np.testing.assert_array_equal(again(images), module(images))


def place_of_the_greatest(shape: tuple[int, ...], dtype: str, **attrs: int) -> Graph:
    """A convolution of one pixel, and the place of its greatest result along an axis."""
    graph, rng = Graph("g", opsets={"": 17}), np.random.default_rng(0)
    point, scale, wide = graph.add_const(np.array(3, dtype)), graph.add_const(np.float32(0.5)), np.float32(20)
    x = graph.add("DequantizeLinear", [graph.add_input("x", TensorType(dtype, shape)), scale, point]).output
    weight = graph.add_const(rng.integers(-99, 99, (8, shape[1], 1, 1)).astype(np.int8))
    w = graph.add("DequantizeLinear", [weight, scale, graph.add_const(np.int8(0))]).output
    y = graph.add("QuantizeLinear", [graph.add("Conv", [x, w]).output, graph.add_const(wide), point]).output
    real = graph.add("DequantizeLinear", [y, graph.add_const(wide), point]).output
    graph.set_outputs([graph.add("ArgMax", [real], attrs, sources=["place"]).output], ["y"])
    return graph


@needs_tosa
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("attrs", [{"axis": 1}, {"axis": -1, "keepdims": 0}, {}])
def test_the_place_of_the_greatest_is_that_of_the_host(dtype: str, attrs: dict[str, int], tools: Worker):
    graph = place_of_the_greatest((2, 3, 4, 5), dtype, **attrs)
    x = np.random.default_rng(1).integers(0, 99, (2, 3, 4, 5)).astype(dtype)
    module = tinycomp.compile(graph, "tosa")
    assert [row.composites for row in module.report().regions] == [{"tosa.qconv": 1, "tosa.qargmax": 1}]
    np.testing.assert_array_equal(module(x), tinycomp.compile(graph, "c")(x), strict=True)


@needs_tosa
def test_a_transformer_keeps_its_norms_in_float_and_has_our_bits(tools: Worker):
    net = Network(1, 6, 16)
    scale, shift = net.const(16), net.const(16, spread=0.1)
    x = net.op("LayerNormalization", net.x, scale, shift, name="norm")
    q, k, v = (net.op("MatMul", x, net.const(16, 16, spread=0.25), name=name) for name in "qkv")
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]), name="scores")
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1, name="softmax"), v, name="mixed")
    y = net.op("Add", net.op("MatMul", mixed, net.const(16, 16, spread=0.25), name="out"), net.x, name="add")
    model = net.done(net.op("Add", net.op("MatMul", y, net.const(16, 4), name="head"), net.const(4), name="bias"))
    data = [np.random.default_rng(seed).standard_normal((1, 6, 16)).astype(np.float32) for seed in range(3)]
    made = tinycomp.quantize(model, data, target="tosa")
    assert violations(made, "tosa") == []
    module = tinycomp.compile(made, ["tosa", "c:requantize=fixed_point"])
    report = module.report()
    assert report.violations() == []
    regions = [row for row in report.regions if row.target == "tosa"]
    assert sum(row.macs for row in regions) == report.totals["macs"]["offloaded"]
    assert "tosa: no rule for LayerNormalization" in map(str, report.reasons["norm"])
    assert len(regions) == 1
    assert regions[0].composites["tosa.qsoftmax"] == 1
    np.testing.assert_array_equal(module(data[0]), tinycomp.compile(made, "c:requantize=fixed_point")(data[0]))


# Floats ---------------------------------------------------------------------------------------------------------------

IMAGE = (2, 4, 7, 9)
FLOAT = [
    *((op, [IMAGE], {}) for op in ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Relu", "Sigmoid", "Sin", "Tanh")),
    *((op, [IMAGE, (4, 1, 1)], {}) for op in ("Add", "Div", "Max", "Min", "Mul", "Sub")),
    ("Add", [(3, 5), IMAGE[:2] + (3, 5)], {}),
    *((op, [IMAGE], {"axes": [1, -1], "keepdims": 0}) for op in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd")),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("Concat", [IMAGE, (2, 3, 7, 9)], {"axis": 1}),
    ("Conv", [IMAGE, np.ones((6, 4, 3, 2), np.float32), np.arange(6, dtype=np.float32)], {"strides": [2, 3]}),
    ("Conv", [IMAGE, np.ones((8, 1, 3, 3), np.float32)], {"group": 4, "pads": [1, 1, 1, 1]}),
    ("Conv", [IMAGE, np.ones((6, 2, 2, 2), np.float32)], {"group": 2, "dilations": [2, 1]}),
    ("Conv", [(2, 4, 11), np.ones((6, 4, 3), np.float32)], {"strides": [2], "auto_pad": "SAME_UPPER"}),
    ("ConvTranspose", [IMAGE, np.arange(4 * 3 * 9, dtype=np.float32).reshape(4, 3, 3, 3)],
     {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 0]}),
    ("Gemm", [(5, 8), np.ones((8, 3), np.float32), np.arange(3, dtype=np.float32)], {}),
    ("GlobalAveragePool", [IMAGE], {}),
    ("MatMul", [(2, 3, 4, 5), (2, 3, 5, 6)], {}),
    ("MatMul", [(2, 3, 4, 5), np.ones((5, 6), np.float32)], {}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("Pad", [IMAGE, np.array([0, 1, 2, 0, 0, 0, 1, 3])], {}),
    ("Reshape", [IMAGE, np.array([2, -1])], {}),
    ("Resize", [IMAGE, None, np.array([1, 1, 2, 3], np.float32)],
     {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("Slice", [IMAGE, np.array([1, -4]), np.array([3, 9]), np.array([1, 3])], {}),
    ("Softmax", [IMAGE], {"axis": 1}),
    ("Transpose", [IMAGE], {"perm": [2, 0, 3, 1]}),
]  # fmt: skip
"""Operators with the shapes of operands, or the arrays of constant ones, and attributes."""


@needs_tosa
@pytest.mark.parametrize(("op", "operands", "attrs"), FLOAT, ids=lambda part: part if isinstance(part, str) else "")
def test_floats_are_close_to_the_host(op: str, operands: list, attrs: dict, tools: Worker):
    rng = np.random.default_rng(0)
    graph, feeds = Graph("g", opsets={"": 17}), []
    values = []
    for index, operand in enumerate(operands):
        if isinstance(operand, np.ndarray):
            values.append(graph.add_const(operand, f"c{index}"))
        elif operand is None:
            values.append(None)
        else:
            values.append(graph.add_input(f"x{index}", TensorType("float32", operand)))
            feeds.append(rng.standard_normal(operand).astype(np.float32))
    graph.set_outputs([graph.add(op, values, attrs).output], ["y"])
    module = tinycomp.compile(graph, "tosa:real=true")
    assert [row.target for row in module.report().regions] == ["tosa"], module.report()
    np.testing.assert_allclose(module(*feeds), tinycomp.compile(graph, "host")(*feeds), rtol=1e-5, atol=1e-5)
