"""Room between pixels: where depthwise convolutions gain by it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.cases.values import floats
from tests.targets.c.harness import Case, assert_close, compile_for, make_model
from tinycomp.targets.c.codegen.images import Band

CLOSE = Case("Conv", [], of_largest=1e-5)
SAME = {"pads": [1, 1, 1, 1]}


def node(op, inputs, output, **attrs):
    return helper.make_node(op, inputs, [output], name=output, **attrs)


def compiled(channels, width, nodes, outputs=("y",)):
    x = floats(1, 4, width, width)
    weights = {"w": floats(channels, 4, 1, 1, seed=1), "dw": floats(channels, 1, 3, 3, seed=2)}
    model = make_model(nodes, {"x": x}, weights, list(outputs))
    return x, model, compile_for(model, strict=True)


def strides(module):
    """The pixel strides that the calls write with, by kernel."""
    (step,) = module._parts.plan.steps
    calls = step.run.program.instructions
    return {c.kernel: c.params["y_pixel_stride"] for c in calls if "y_pixel_stride" in c.params}


POINTWISE = node("Conv", ["x", "w"], "a")


def depthwise(channels, source="a", output="y"):
    return node("Conv", [source, "dw"], output, group=channels, **SAME)


@pytest.mark.parametrize(("channels", "width", "extra"), [(512, 14, 16), (128, 28, 16), (384, 14, 0), (24, 30, 0)])
def test_only_crowded_images_get_room(channels, width, extra):
    x, model, module = compiled(channels, width, [POINTWISE, depthwise(channels)])
    assert strides(module) == {"conv2d_f32": channels + extra, "dwconv2d_f32": channels}
    host = compile_for(model, "host")
    assert_close(module(x), host(x), CLOSE, "spacing")


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([POINTWISE, depthwise(512), node("Relu", ["a"], "z")], ["y", "z"]),
        ([POINTWISE, depthwise(512)], ["y", "a"]),
        ([POINTWISE, node("MaxPool", ["a"], "y", kernel_shape=[3, 3])], ["y"]),
    ],
    ids=["another reader", "an output", "a pool"],
)
def test_images_that_others_read_lie_as_usual(nodes, outputs):
    x, model, module = compiled(512, 14, nodes, outputs)
    assert strides(module)["conv2d_f32"] == 512
    found, wanted = module.run({"x": x}), compile_for(model, "host").run({"x": x})
    for output in outputs:
        assert_close(found[output], wanted[output], CLOSE, output)


@pytest.mark.parametrize("other", ["a", "c"], ids=["a residual", "two readers"])
def test_whoever_reads_pixels_by_their_stride_may_share_the_room(other):
    nodes = [POINTWISE, depthwise(512, output="b"), depthwise(512, output="c"), node("Add", ["b", other], "y")]
    nodes = [n for n in nodes if n.output[0] != "c" or other == "c"]
    x, model, module = compiled(512, 14, nodes)
    assert strides(module)["conv2d_f32"] == 528
    assert_close(module(x), compile_for(model, "host")(x), CLOSE, "spacing")


def test_crowding_is_a_matter_of_the_widest_set():
    assert Band(4, 56).is_crowded(64)
    assert not Band(4, 56).is_crowded(80)
    assert not Band(3, 2).is_crowded(1024)
    assert np.all([Band(9, 1).is_crowded(1024), not Band(8, 1).is_crowded(1024)])
