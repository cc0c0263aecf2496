"""A target of your own, from its description to a report on the shipped digits classifier.

The imagined device sums 16-bit fixed-point products and has a unit for 2 x 2 maxima. It shows a composite, a check with
a reason, a rule, a code generator, a tolerance, a second target for the rest, and what the report says.
Run it with ``python examples/own_target.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tinycomp
from tinycomp.data import digits, digits_model
from tinycomp.target_api import P, Target, Tolerance, reject

FRACTION_BITS = 10

# Sixteen bits are coarse: say so, or verify=True would call every result a mistake.
dsp = Target("dsp", tolerance=Tolerance(rtol=0.02, atol=0.02))


@dsp.composite
def conv_relu(x, w=P.const, b=P.const):
    """A convolution with bias and Relu is one job of the device."""
    return P.Relu(P.Conv(x, w, b, strides=[1, 1], dilations=[1, 1], group=1))


@conv_relu.check
def _(match):
    weight = match.w.const
    largest = np.abs(weight).max()
    limit = 2 ** (15 - FRACTION_BITS)
    return largest < limit or reject(f"weights must be below {limit} in magnitude, got {largest:.3g}")


@dsp.op("MaxPool")
def _(node):
    kernel, strides = node.attrs["kernel_shape"], node.attrs.get("strides")
    return kernel == strides == [2, 2] or reject(f"maxima are of 2 x 2 tiles, got {kernel} with strides {strides}")


@dataclass
class Job:
    """A region on the device: steps over named buffers."""

    inputs: list
    outputs: list
    constants: dict
    steps: list

    def __call__(self, *arrays):
        """Run every step; buffers belong to the call, so that threads do not meet."""
        buffers = {**self.constants, **dict(zip(self.inputs, arrays, strict=True))}
        for compute, reads, writes in self.steps:
            buffers[writes] = compute(*(buffers[name] for name in reads))
        return [buffers[name] for name in self.outputs]


def fixed(x):
    """Round to 16 bits with 10 behind the point."""
    scaled = np.rint(np.asarray(x, np.float64) * 2**FRACTION_BITS)
    return np.clip(scaled, -(2**15), 2**15 - 1)


def convolution(node):
    """Quantise the weight once; the function that is returned runs often."""
    conv = next(n for n in node.body.nodes if n.op == "Conv")
    weight, bias = (fixed(value.const) for value in conv.inputs[1:])
    top, left, bottom, right = conv.attrs.get("pads", [0, 0, 0, 0])

    def compute(x):
        x = np.pad(fixed(x), ((0, 0), (0, 0), (top, bottom), (left, right)))
        windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(2, 3))
        total = np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True)
        total += bias[:, None, None] * 2**FRACTION_BITS
        return (np.maximum(total, 0) / 4**FRACTION_BITS).astype(np.float32)

    return compute


def maximum(node):
    """Maxima of 2 x 2 tiles."""
    return lambda x: np.maximum(
        np.maximum(x[..., 0::2, 0::2], x[..., 0::2, 1::2]), np.maximum(x[..., 1::2, 0::2], x[..., 1::2, 1::2])
    )


@dsp.codegen
def build(region):
    """Make a job of a region."""
    makers = {"dsp.conv_relu": convolution, "MaxPool": maximum}
    body = region.body
    steps = [(makers[n.op](n), [v.name for v in n.inputs], n.output.name) for n in body.nodes]
    constants = {value.name: value.const for value in body.constants}
    return Job([v.name for v in body.inputs], [v.name for v in body.outputs], constants, steps)


def main():
    """Compile the digits classifier for the device, check it, and say what stayed behind and why."""
    images, labels = digits()
    module = tinycomp.compile(digits_model(), target=[dsp, "c"], verify=True)
    right = (module(images).argmax(axis=1) == labels).mean()
    print(f"{right:.1%} of {len(images)} digits are read correctly\n")
    print(module.report())

    print("\nWithout a second target, every node that the device leaves has a reason:")
    for row in tinycomp.compile(digits_model(), target=dsp).report().hosts:
        print(f"  {row.op:18} {row.reasons[0]}")


if __name__ == "__main__":
    main()
