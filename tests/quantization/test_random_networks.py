"""Random networks with random layers in float: every mixture is valid, runs, and is close to the float model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp
from tests.quantization.networks import CONVERSIONS, Network, Picture, by_onnxruntime, decibels, images
from tinycomp.ir import Value
from tinycomp.quantization import violations

CHANNELS = 4
STEPS = ("conv", "depthwise", "relu", "clip", "sigmoid", "erf", "add", "mul", "concat", "pool", "transpose", "shift")


def step(net: Network, kind: str, pool: list[Value]) -> Value:
    """Add one operator that keeps the shape, reading values made before."""
    x, y = pool[-1], pool[net.rng.integers(len(pool))]
    match kind:
        case "conv":
            return net.conv(x, CHANNELS)
        case "depthwise":
            return net.conv(x, CHANNELS, group=CHANNELS, bias=False)
        case "clip":
            ends = [net.graph.add_const(np.float32(end)) for end in (-0.5, 1.0)]
            return net.op("Clip", x, *ends)
        case "concat":
            return net.conv(net.op("Concat", x, y, axis=1), CHANNELS, kernel=1)
        case "pool":
            return net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        case "transpose":
            return net.op("Transpose", x, perm=[0, 1, 3, 2])
        case "shift":
            return net.op("Add", x, net.const(CHANNELS, 1, 1))
        case "add" | "mul":
            return net.op(kind.capitalize(), x, y)
        case _:
            return net.op(kind.capitalize(), x)


def network(seed: int) -> onnx.ModelProto:
    net = Network(2, CHANNELS, 6, 6, seed=seed)
    pool = [net.x, net.conv(net.x, CHANNELS)]
    for kind in net.rng.choice(STEPS, net.rng.integers(3, 12)):
        pool.append(step(net, str(kind), pool))
    pool.append(net.conv(pool[-1], CHANNELS))
    return net.done(*dict.fromkeys([pool[-1], pool[len(pool) // 2]]))


@pytest.mark.parametrize("seed", range(24))
def test_every_mixture(seed):
    rng = np.random.default_rng(seed)
    model, data = network(seed), images(3, channels=CHANNELS, size=6, seed=seed)
    options = {
        "activations": str(rng.choice(["uint8", "int8"])),
        "symmetric": bool(rng.integers(2)),
        "per_channel": bool(rng.integers(2)),
        "equalize": bool(rng.integers(2)),
        "method": str(rng.choice(["minmax", "mse"])),
        "keep_float": lambda node: rng.random() < 0.3 and node.op != "Conv",
    }
    quantized = tinycomp.quantize(model, data, **options)
    feeds = {"x": data[0]}
    reference = by_onnxruntime(quantized, feeds)
    exact = tinycomp.compile(model, "host").run(feeds)
    for found, expected in zip(reference, exact.values(), strict=True):
        assert decibels(expected, found) > 15
    for found, expected in zip(tinycomp.compile(quantized).run(feeds).values(), reference, strict=True):
        assert decibels(expected, found) > 35
    picture = Picture(quantized)
    for node in picture.nodes:
        if node.op_type == "QuantizeLinear":
            made = picture.maker.get(node.input[0])
            assert made is None or made.op_type not in CONVERSIONS


@pytest.mark.parametrize("seed", range(24, 30))
def test_every_mixture_obeys_a_target(seed):
    model, data = network(seed), images(3, channels=CHANNELS, size=6, seed=seed)
    quantized = tinycomp.quantize(model, data, target="tosa", symmetric=bool(seed % 2), per_channel=bool(seed % 3))
    assert violations(quantized, "tosa") == []
    exact = tinycomp.compile(model, "host").run({"x": data[0]})
    for found, expected in zip(by_onnxruntime(quantized, {"x": data[0]}), exact.values(), strict=True):
        assert decibels(expected, found) > 15
