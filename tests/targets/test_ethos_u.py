"""The target ethos_u: what Vela makes of regions, what the device cannot do, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import tinycomp
from tests.quantization.networks import Network
from tests.targets.test_tosa import place_of_the_greatest
from tests.targets.tosa_tools import needs_vela
from tinycomp.data import digits, digits_model
from tinycomp.driver.pipeline import optimisation_passes
from tinycomp.errors import OptionError, TargetError
from tinycomp.ir import Graph, TensorType
from tinycomp.passes.legalize import Legalize
from tinycomp.target import find
from tinycomp.target_api import Decline, partitioned
from tinycomp.targets.ethos_u import TARGET, vela
from tinycomp.targets.tosa.tools import PYTHON, interpreter

ONE = {"image": (1, 1, 8, 8)}
DEVICES = ("ethos-u55-128", "ethos-u85-256")
MODELS = ("ad_autoencoder", "ic_resnet8", "kws_dscnn", "vww_mobilenet")


# What the device cannot do --------------------------------------------------------------------------------------------


def refusals(accelerator: str, op: str, x: tuple[int, ...], *constants: np.ndarray | None, **attrs: object) -> set[str]:
    """Return the refusals that name the device, of an operator of int8, between conversions if it computes."""
    graph = Graph("g", opsets={"": 17})
    point, scale = graph.add_const(np.int8(0), "z"), graph.add_const(np.float32(0.05), "s")
    value, computes = graph.add_input("x", TensorType("int8", x)), op != "Resize" or attrs.get("mode") == "linear"
    if computes:
        value = graph.add("DequantizeLinear", [value, scale, point]).output
    operands = []
    for index, array in enumerate(constants):
        operand = None if array is None else graph.add_const(array, f"c{index}")
        if operand is not None and operand.dtype == "int8":
            operand = graph.add("DequantizeLinear", [operand, scale, point]).output
        operands.append(operand)
    value = graph.add(op, [value, *operands], attrs, sources=["it"]).output
    if computes:
        value = graph.add("QuantizeLinear", [value, scale, point]).output
    graph.set_outputs([value], ["y"])
    made = partitioned(graph, [TARGET.with_options(accelerator=accelerator)])
    return {remark.reason for remark in made.remarks if remark.reason.startswith(accelerator)}


DEPTHWISE = np.ones((8, 1, 3, 3), np.int8)
NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
THIRDS = np.array([1, 1, 3, 3], np.float32)


@pytest.mark.parametrize(
    ("arguments", "attrs", "refusal"),
    [
        (("Conv", (1, 8, 16, 16), DEPTHWISE), {"group": 8, "strides": [5, 5]},
         "moves the windows of single channels by at most 3, got strides [5, 5]"),
        (("AveragePool", (1, 8, 16, 16)), {"kernel_shape": [4, 4], "strides": [5, 5]},
         "moves the windows of single channels by at most 3, got strides [5, 5]"),
        (("Resize", (1, 8, 4, 4), None, THIRDS), NEAREST,
         "repeats pixels 2, 4 or 8 times along both axes, got [3, 3]"),
        (("Resize", (1, 8, 4, 4), None, THIRDS), {"mode": "linear"}, "repeats pixels, and interpolates none"),
    ],
    ids=["depthwise", "mean", "resize", "interpolation"],
)  # fmt: skip
def test_what_ethos_u55_lacks_has_a_reason(arguments: tuple, attrs: dict, refusal: str):
    assert refusals("ethos-u55-128", *arguments, **attrs) == {f"ethos-u55-128 {refusal}"}
    assert refusals("ethos-u85-256", *arguments, **attrs) == set()


def test_depth_is_limited_everywhere():
    for device in DEVICES:
        said = refusals(device, "MatMul", (1, 70_000), np.ones((70_000, 2), np.int8))
        assert said == {f"{device} has at most 65535 channels, got 70000"}


def test_few_numbers_are_compared_on_small_devices():
    for size, device, target in (
        (127, "ethos-u55-32", "ethos_u"),
        (128, "ethos-u55-32", None),
        (128, DEVICES[1], "ethos_u"),
    ):
        graph = place_of_the_greatest((1, 3, 1, size), "int8", axis=3)
        made = partitioned(graph, [TARGET.with_options(accelerator=device)])
        inside = [node.op for region in made.nodes if region.is_region for node in region.body.nodes]
        assert ("ethos_u.qargmax" in inside) == (target is not None)
        said = [r.reason for r in made.remarks if r.reason.startswith(device)]
        assert said == ([] if target else [f"{device} finds the greatest of at most 127 numbers, got 128"])


def test_devices_are_checked_when_the_target_is_chosen():
    with pytest.raises(OptionError, match="ethos-u55-128"):
        find("ethos_u:accelerator=ethos-u7")


def test_a_missing_compiler_is_an_error_that_says_what_to_install():
    with pytest.raises(TargetError, match="ethos-u-vela does not run") as error:
        vela.compile_file(np.zeros(8, np.uint8), [], "/nowhere/python")
    assert PYTHON in str(error.value)


def attention() -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Attention of one head, and data for it."""
    net = Network(1, 6, 16)
    q, k, v = (net.op("MatMul", net.x, net.const(16, 16, spread=0.25), name=name) for name in "qkv")
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]), name="scores")
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1, name="softmax"), v, name="mixed")
    model = net.done(net.op("MatMul", mixed, net.const(16, 4), name="head"))
    return model, [np.random.default_rng(seed).standard_normal((1, 6, 16)).astype(np.float32) for seed in range(3)]


def enlarged() -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """An image that is interpolated between two convolutions, and the mean of its lines."""
    net = Network(1, 3, 8, 6)
    sizes = net.graph.add_const(np.array([1, 8, 16, 11], np.int64))
    x = net.op("Resize", net.conv(net.x, 8), None, None, sizes, mode="linear", name="resize")
    y = net.op("ReduceMean", net.conv(x, 4), axes=[2], keepdims=0, name="mean")
    model = net.done(net.op("MatMul", y, net.const(11, 5), name="head"))
    return model, [np.random.default_rng(seed).standard_normal((1, 3, 8, 6)).astype(np.float32) for seed in range(3)]


# Vela -----------------------------------------------------------------------------------------------------------------


@needs_vela
def test_what_vela_cannot_read_is_declined():
    with pytest.raises(Decline, match="Vela does not compile it, code 1: "):
        vela.compile_file(np.zeros(64, np.uint8), ["--accelerator-config", "ethos-u55-128"], interpreter())


@needs_vela
@pytest.mark.parametrize("device", DEVICES)
def test_the_digits_become_a_command_stream(device: str):
    module = tinycomp.compile(digits_model(quantized=True), [f"ethos_u:accelerator={device}", "c"], shapes=ONE)
    (row,) = (row for row in module.report().regions if row.target == "ethos_u")
    assert row.macs == module.report().totals["macs"]["offloaded"]
    assert row.figures["cycles"] > 1000
    assert row.figures["SRAM KiB"] > 0
    assert row.figures["flash KiB"] + row.figures["DRAM KiB"] > 20
    assert sum(figures["MACs"] for figures in row.layer_figures.values()) == pytest.approx(row.macs, rel=0.01)
    layers = set(row.layer_figures)
    assert {"pool", "stem/conv/dequantize_input…stem/relu/quantize"} <= layers
    text = str(module.report())
    assert "The compiler of ethos_u estimates for ethos_u_0: cycles" in text
    assert "stem/conv" in text


@needs_vela
def test_a_saved_module_holds_the_stream(monkeypatch: pytest.MonkeyPatch):
    module = tinycomp.compile(digits_model(quantized=True), ["ethos_u", "c"], shapes=ONE)
    monkeypatch.setattr(TARGET, "_codegen", None)
    again = tinycomp.load(module.to_bytes())
    image = digits()[0][:1]
    np.testing.assert_array_equal(again(image), module(image))
    assert again.report().regions == module.report().regions
    assert any(row.figures for row in again.report().regions)


@needs_vela
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_mlperf_tiny_compiles_as_one_region(name: str, device: str, models: Path):
    path = models / f"{name}_int8.onnx"
    if not path.exists():
        pytest.skip(f"{models} has no {path.name}")
    data = np.load(path.with_suffix(".npz"))["input"][:1]
    (name,) = (value.name for value in tinycomp.from_onnx(path).inputs)
    chosen = [f"ethos_u:accelerator={device}", "c:requantize=fixed_point"]
    module = tinycomp.compile(path, chosen, shapes={name: data.shape})
    (row,) = (row for row in module.report().regions if row.target == "ethos_u")
    assert row.macs == module.report().totals["macs"]["offloaded"]
    assert row.figures["cycles"] > 0
    np.testing.assert_array_equal(module(data), tinycomp.compile(path, chosen[1:])(data))


@needs_vela
@pytest.mark.parametrize(
    ("build", "device", "layer"),
    [(attention, DEVICES[0], "softmax"), (attention, DEVICES[1], "softmax"), (enlarged, DEVICES[1], "resize")],
)
def test_softmax_and_interpolation_are_part_of_one_region(build: Callable, device: str, layer: str):
    model, data = build()
    chosen = [f"ethos_u:accelerator={device}", "c:requantize=fixed_point"]
    made = tinycomp.quantize(model, data, target=chosen[0])
    module = tinycomp.compile(made, chosen)
    (row,) = (row for row in module.report().regions if row.target == "ethos_u")
    assert row.macs == module.report().totals["macs"]["offloaded"]
    assert any(layer in name for name in row.layer_figures), row.layer_figures
    assert module.report().violations() == []
    legalised = tinycomp.Pipeline([*optimisation_passes(), Legalize("tosa")])(tinycomp.from_onnx(made))
    np.testing.assert_array_equal(module(data[0]), tinycomp.compile(legalised, chosen[1])(data[0]))
