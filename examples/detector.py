"""A detector on an accelerator: backbone, heads and box decoding in at most three regions, suppression on the host.

The model is in the style of SSD: a small residual backbone, two feature maps with a head for classes and one for boxes
each, decoding against anchors, and NonMaxSuppression. The accelerator has no exponential function, which decoding
needs, and no suppression. What it gets is cut only where these two stand.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

import tinycomp
from tinycomp.ops import bind
from tinycomp.target_api import P, Target

CLASSES, ANCHORS, SIZE = 4, 3, 64
npu = Target("npu")
npu.accept("Add", "Mul", "Sub", "Sigmoid", "Reshape", "Transpose", "Concat", "Slice", "Split", "MaxPool")


@npu.composite
def conv_add_relu(x, y, w=P.const, b=P.const):
    """A convolution, the residual, and Relu."""
    return P.Relu(P.Conv(x, w, b) + y)


@npu.composite
def conv_relu(x, w=P.const, b=P.const):
    """A convolution and Relu."""
    return P.Relu(P.Conv(x, w, b))


@npu.composite
def conv(x, w=P.const, b=P.const):
    """A convolution by itself, as at the end of a head."""
    return P.Conv(x, w, b)


def run_body(body, operands):
    """Run a graph with the numpy kernels, in place of a device."""
    values = {value: value.const for value in body.constants} | dict(zip(body.inputs, operands, strict=True))
    for node in body.nodes:
        reads = [None if value is None else values[value] for value in node.inputs]
        results = run_body(node.body, reads) if node.is_composite else bind(node)[0](*reads)
        values.update(zip(node.outputs, results, strict=True))
    return [values[value] for value in body.outputs]


@npu.codegen
def build(region):
    """Simulate the device."""
    return lambda *operands: run_body(region.body, operands)


class Detector:
    """Builds the model node by node; every method returns the name of its result."""

    def __init__(self):
        self.nodes, self.constants, self.rng = [], [], np.random.default_rng(0)

    def const(self, array):
        """Add an initializer."""
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, op, *reads, results=1, **attributes):
        """Add a node."""
        names = [f"{op.lower()}{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(op, reads, names, f"{op}{len(self.nodes)}", **attributes))
        return names if results > 1 else names[0]

    def conv(self, x, inputs, outputs, stride=1):
        """A 3 x 3 convolution."""
        weight = self.rng.normal(0, (9 * inputs) ** -0.5, (outputs, inputs, 3, 3)).astype(np.float32)
        bias = self.rng.normal(0, 0.1, outputs).astype(np.float32)
        return self.op("Conv", x, self.const(weight), self.const(bias), strides=[stride] * 2, pads=[1] * 4)

    def residual(self, x, channels):
        """Two convolutions around which the input is carried."""
        inner = self.op("Relu", self.conv(x, channels, channels))
        return self.op("Relu", self.op("Add", self.conv(inner, channels, channels), x))

    def head(self, features, channels, width):
        """Return ``width`` numbers for every anchor of a feature map."""
        maps = self.op("Transpose", self.conv(features, channels, ANCHORS * width), perm=[0, 2, 3, 1])
        return self.op("Reshape", maps, self.const(np.array([1, -1, width])))

    def decode(self, offsets, count):
        """Return corners from offsets to anchors: centres move by a share of the size, sizes grow exponentially."""
        anchors = self.rng.random((1, count, 4)).astype(np.float32) * 0.4 + 0.1
        moved, grown = self.op("Split", offsets, self.const(np.array([2, 2])), results=2, axis=2)
        start, extent = self.const(anchors[..., :2]), self.const(anchors[..., 2:])
        growth = self.op("Exp", self.op("Mul", grown, self.const(np.float32(0.2))))
        shift = self.op("Mul", self.op("Mul", moved, self.const(np.float32(0.1))), extent)
        half = self.op("Mul", self.op("Mul", growth, extent), self.const(np.float32(0.5)))
        centre = self.op("Add", shift, start)
        return self.op("Concat", self.op("Sub", centre, half), self.op("Add", centre, half), axis=2)


def model():
    """Return the whole detector."""
    net = Detector()
    x = net.residual(net.op("Relu", net.conv("image", 3, 16, 2)), 16)
    fine = net.residual(net.op("Relu", net.conv(x, 16, 32, 2)), 32)
    coarse = net.residual(net.op("Relu", net.conv(fine, 32, 64, 2)), 64)
    levels = ((fine, 32), (coarse, 64))
    offsets = net.op("Concat", *(net.head(f, c, 4) for f, c in levels), axis=1)
    logits = net.op("Concat", *(net.head(f, c, CLASSES) for f, c in levels), axis=1)
    boxes = net.decode(offsets, ANCHORS * ((SIZE // 4) ** 2 + (SIZE // 8) ** 2))
    scores = net.op("Transpose", net.op("Sigmoid", logits), perm=[0, 2, 1])
    limits = (net.const(np.array([5])), net.const(np.array([0.5], np.float32)), net.const(np.array([0.6], np.float32)))
    kept = net.op("NonMaxSuppression", boxes, scores, *limits)
    graph = helper.make_graph(
        net.nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [
            helper.make_tensor_value_info(boxes, TensorProto.FLOAT, ["N", "boxes", 4]),
            helper.make_tensor_value_info(kept, TensorProto.INT64, ["kept", 3]),
        ],
        net.constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    checker.check_model(made)
    return made


def main():
    """Compile, count regions, and compare with the host."""
    made = model()
    module, host = tinycomp.compile(made, target=npu), tinycomp.compile(made, target="host")
    report = module.report()
    assert len(report.regions) <= 3
    assert {row.op for row in report.hosts} == {"Exp", "NonMaxSuppression"}
    assert report.totals["macs"]["host"] == 0
    image = np.random.default_rng(1).standard_normal((1, 3, SIZE, SIZE), dtype=np.float32)
    (boxes, kept), (expected, wanted) = module(image), host(image)
    np.testing.assert_allclose(boxes, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(kept, wanted)
    print(f"{len(report.regions)} regions, {len(report.hosts)} nodes on the host, {len(kept)} boxes kept")
    for row in report.regions:
        print(f"  {row.symbol}: {row.nodes} nodes, {row.macs} MACs")


if __name__ == "__main__":
    main()
