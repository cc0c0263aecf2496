"""Pad, convolution, bias and requantisation as one operator of an accelerator, in the two ways that models spell it.

Quantisers either surround float operators with QuantizeLinear and DequantizeLinear, or compute on integers and
requantise in float arithmetic: multiply, round, clip, cast. One target takes both, and the Pad in front where there is
one. Its device knows only int8 data, int32 sums and one float multiplier per channel, and agrees with the host in every
element.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

import tinycomp
from tinycomp.target_api import P, Target

npu = Target("npu")


def padded(x):
    """The Pad is optional; zero is what a missing pad value means."""
    return P.optional(P.Pad, x, P.const, P.const(0) | P.absent)


@npu.composite
def qconv(x, w=P.const, b=P.const):
    """QuantizeLinear(Conv(DequantizeLinear …)), with a symmetric input."""
    source = P.DequantizeLinear(padded(x.where(dtype="int8")), P.const, P.const(0) | P.absent)
    weight = P.DequantizeLinear(w, P.const, P.const(0) | P.absent)
    bias = P.DequantizeLinear(b, P.const, P.const(0) | P.absent)
    return P.QuantizeLinear(P.Conv(source, weight, bias), P.const, P.const(0) | P.absent)


@npu.composite
def qconv_arithmetic(x, w=P.const, b=P.const):
    """Cast(Clip(Round(multiplier * Cast(ConvInteger + bias)))), to int8."""
    total = P.Cast(P.ConvInteger(padded(x.where(dtype="int8")), w, P.const(0) | P.absent, P.const(0) | P.absent) + b)
    rounded = P.Round(total * P.const)
    return P.Cast(P.Clip(rounded, P.const(-128), P.const(127)), to=TensorProto.INT8)


def device(x, weight, bias, multiplier, pads):
    """The accelerator's only operator."""
    rank = x.ndim
    x = np.pad(x, list(zip(pads[:rank], pads[rank:], strict=True))).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.int32)) + bias.reshape(-1, 1, 1)
    return np.clip(np.rint(sums * np.reshape(multiplier, (-1, 1, 1))), -128, 127).astype(np.int8)


def job(node):
    """Read the device's parameters off a composite; both spellings give the same five."""
    ops = {n.op: n for n in node.body.nodes}
    pads = ops["Pad"].inputs[1].const if "Pad" in ops else [0] * 8
    if node.op == "npu.qconv_arithmetic":
        weight, bias = ops["ConvInteger"].inputs[1], next(v for v in ops["Add"].inputs if v.is_const)
        factor = next(v for v in ops["Mul"].inputs if v.is_const)
        return lambda x: device(x, weight.const, bias.const, factor.const, pads)
    source, weight, bias = (v.producer for v in ops["Conv"].inputs)
    factor = source.inputs[1].const * weight.inputs[1].const / ops["QuantizeLinear"].inputs[1].const
    return lambda x: device(x, weight.inputs[0].const, bias.inputs[0].const, factor, pads)


@npu.codegen
def build(region):
    """Every region of these models is one composite."""
    (node,) = region.body.nodes
    return job(node)


CONSTANTS = {
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "w": np.random.default_rng(0).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
    "b": np.arange(-400, 400, 100).astype(np.int32),
    "b_column": np.arange(-400, 400, 100).astype(np.int32).reshape(1, 8, 1, 1),
    "zero": np.int8(0),
    "low": np.float32(-128),
    "high": np.float32(127),
    # Powers of two: however a model orders its products and quotients, none is rounded.
    "x_s": np.float32(2**-5),
    "w_s": np.float32(2**-6),
    "b_s": np.float32(2**-11),
    "y_s": np.float32(2**-3),
    "factor": np.float32(2**-8),
}


def quantise_dequantise(data):
    """Return the layer in float32 between quantisations, reading ``data``."""
    return [
        ("DequantizeLinear", [data, "x_s"], "x_real"),
        ("DequantizeLinear", ["w", "w_s"], "w_real"),
        ("DequantizeLinear", ["b", "b_s"], "b_real"),
        ("Conv", ["x_real", "w_real", "b_real"], "real"),
        ("QuantizeLinear", ["real", "y_s", "zero"], "y"),
    ]


def arithmetic(data):
    """Return the layer on integers, requantised in float arithmetic, reading ``data``."""
    return [
        ("ConvInteger", [data, "w"], "sums"),
        ("Add", ["b_column", "sums"], "biased"),
        ("Cast", ["biased"], "real"),
        ("Mul", ["real", "factor"], "scaled"),
        ("Round", ["scaled"], "rounded"),
        ("Clip", ["rounded", "low", "high"], "clipped"),
        ("Cast", ["clipped"], "y"),
    ]


def model(layer, pad):
    """Return a model of one layer, behind a Pad if there is one."""
    steps = [("Pad", ["x", "pads"], "padded"), *layer("padded")] if pad else layer("x")
    attributes = {"real": {"to": TensorProto.FLOAT}, "y": {"to": TensorProto.INT8}}
    nodes = [
        helper.make_node(op, reads, [name], name, **(attributes[name] if op == "Cast" else {}))
        for op, reads, name in steps
    ]
    used = {read for _, reads, _ in steps for read in reads}
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 8, 8, 8] if pad else [1, 8, 6, 6])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items() if name in used],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    checker.check_model(made)
    return made


def main():
    """Run all four models on the device and compare them with the host and with each other."""
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 8, 8)).astype(np.int8)
    for pad in (False, True):
        results = []
        for layer in (quantise_dequantise, arithmetic):
            made = model(layer, pad)
            module = tinycomp.compile(made, target=npu, strict=True)
            (region,) = module.report().regions
            assert len(region.composites) == 1
            assert not region.singles
            results.append(module(x))
            np.testing.assert_array_equal(results[-1], tinycomp.compile(made, target="host")(x))
            name = next(iter(region.composites))
            print(f"{len(made.graph.node)} nodes {'with' if pad else 'without'} a pad became one {name}, exact")
        np.testing.assert_array_equal(*results)


if __name__ == "__main__":
    main()
