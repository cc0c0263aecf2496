"""A loop whose body runs on the accelerator: its region is built once and runs on every trip.

The model repeats Conv-Add-Relu over a state while a condition holds, then applies Conv-Add-Relu with the same weights
and a Reshape. The target owns convolutions with Relu, with and without a bias, and Add and Reshape by themselves. The
loop stays on the host, but its body is annotated and partitioned in its own scope.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

import tinycomp
from tinycomp.target_api import P, Target

LIMIT = 6.0
npu = Target("npu")
npu.accept("Add", "Reshape")
regions_built = []


@npu.composite
def conv_bias_relu(x, w=P.const, b=P.const):
    """The bias is an operand of the convolution, or an Add behind it."""
    return P.Relu(P.Conv(x, w, b, kernel_shape=[1, 1]) | P.Conv(x, w, kernel_shape=[1, 1]) + b)


@npu.composite
def conv_relu(x, w=P.const):
    """A convolution without a bias."""
    return P.Relu(P.Conv(x, w, kernel_shape=[1, 1]))


def convolution(node):
    """A 1 x 1 convolution, a bias if there is one, and Relu."""
    constants = [value.const for value in node.body.constants]
    weight = next(c for c in constants if c.ndim == 4)[:, :, 0, 0]
    bias = sum(c.reshape(-1, 1, 1) for c in constants if c.ndim != 4)
    return lambda x: np.maximum(np.einsum("oc,nchw->nohw", weight, x) + bias, 0)


@npu.codegen
def build(region):
    """A region is a chain here; each step feeds the next one."""
    regions_built.append(region.op)
    body = region.body
    makers = {"Add": lambda _: np.add, "Reshape": lambda node: lambda x, shape: x.reshape(shape)}
    steps = [(makers.get(node.op, convolution)(node), node) for node in body.nodes]

    def run(*operands):
        values = {value.name: value.const for value in body.constants}
        values |= {value.name: array for value, array in zip(body.inputs, operands, strict=True)}
        for compute, node in steps:
            values[node.output.name] = compute(*(values[v.name] for v in node.inputs))
        return [values[v.name] for v in body.outputs]

    return run


def block(x, y, prefix):
    """Return Conv-Add-Relu from ``x`` to ``y``; every block reads the same weights."""
    return [
        helper.make_node("Conv", [x, "weight"], [f"{prefix}_c"], f"{prefix}/conv", kernel_shape=[1, 1]),
        helper.make_node("Add", ["bias", f"{prefix}_c"], [f"{prefix}_a"], f"{prefix}/bias"),
        helper.make_node("Relu", [f"{prefix}_a"], [y], f"{prefix}/relu"),
    ]


def model():
    """Return ``while max(state) < LIMIT: state = block(state)``, then a block and a Reshape."""
    value, image = helper.make_tensor_value_info, (TensorProto.FLOAT, [1, 4, 8, 8])
    largest = helper.make_node("ReduceMax", ["next"], ["largest"], "loop/largest", keepdims=0)
    test = helper.make_node("Less", ["largest", "limit"], ["again"], "loop/test")
    body = helper.make_graph(
        [*block("state", "next", "loop"), largest, test],
        "body",
        [value("trip", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", *image)],
        [value("again", TensorProto.BOOL, []), value("next", *image)],
    )
    loop = helper.make_node("Loop", ["", "", "image"], ["last"], "loop", body=body)
    flat = helper.make_node("Reshape", ["features", "shape"], ["flat"], "reshape")
    weight = (np.eye(4) + 0.05).astype(np.float32).reshape(4, 4, 1, 1)
    bias, shape = np.full((4, 1, 1), 0.25, np.float32), np.array([1, -1])
    constants = {"weight": weight, "bias": bias, "limit": np.float32(LIMIT), "shape": shape}
    graph = helper.make_graph(
        [loop, *block("last", "features", "head"), flat],
        "while_loop",
        [value("image", *image)],
        [value("flat", TensorProto.FLOAT, [1, 256])],
        [numpy_helper.from_array(np.asarray(c), name) for name, c in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    checker.check_model(made)
    return made


def main():
    """Compile once, run loops of different lengths, and compare with the host."""
    module, host = tinycomp.compile(model(), target=npu), tinycomp.compile(model(), target="host")
    inside, behind = module.report().regions
    assert inside.composites == behind.composites == {"npu.conv_bias_relu": 1}
    assert behind.singles == {"Reshape": 1}
    assert {row.op for row in module.report().hosts} == {"Loop", "ReduceMax", "Less"}
    for scale in (1.0, 0.1, 0.0):
        image = scale * np.random.default_rng(0).random((1, 4, 8, 8), dtype=np.float32)
        np.testing.assert_allclose(module(image), host(image), rtol=1e-5)
    assert regions_built == [inside.symbol, behind.symbol]
    print(f"2 regions, one of them in the loop's body; the code generator was called {len(regions_built)} times")
    print(module.report())


if __name__ == "__main__":
    main()
