"""A target for tinycomp: dense layers with bias and Relu, and additions, on a simulated device.

It is found by the entry point in ``pyproject.toml``. Importing it must be cheap and must not touch a device, since
``tinycomp targets`` imports the targets of every installed package.
"""

from __future__ import annotations

from tinycomp.target_api import Match, Node, P, Target, reject, require_api
from toy_npu import device

require_api("1.0")

LANES = 8

TARGET = Target("toy_npu", description="a simulated device for dense layers, from a package of its own")


@TARGET.composite
def dense(x, w=P.const, b=P.const):
    """A matrix product with bias and, maybe, Relu is one job of the device."""
    return P.optional(P.Relu, P.Gemm(x, w, b, alpha=1.0, beta=1.0, transA=0))


@dense.check
def _(match: Match):
    if match.x.type.dtype != "float32":
        return reject(f"dense layers are float32 only, got {match.x.type.dtype}")
    return match.b.const.size % LANES == 0 or reject(f"outputs must be a multiple of {LANES}, got {match.b.const.size}")


@TARGET.op("Add")
def _(node: Node):
    a, b = (v.type for v in node.inputs)
    return (a.dtype == "float32" and a.shape == b.shape) or reject("additions need two float32 operands of one shape")


@TARGET.codegen
def build(region: Node) -> device.Program:
    """Turn a region into a program for the device; any callable would do."""
    body = region.body
    results = [v for node in body.nodes for v in node.outputs]
    register = {v: number for number, v in enumerate([*body.inputs, *body.constants, *results])}
    steps = [device.Step(_job(n), [register[v] for v in n.inputs], register[n.output]) for n in body.nodes]
    return device.Program([v.const for v in body.constants], steps, [register[v] for v in body.outputs])


def _job(node: Node) -> device.Job:
    """Prepare one node; the constants of a composite stand in its body."""
    if not node.is_composite:
        return device.add
    gemm = next(inner for inner in node.body.nodes if inner.op == "Gemm")
    _, weight, bias = (v.const for v in gemm.inputs)
    relu = any(inner.op == "Relu" for inner in node.body.nodes)
    return device.Dense(weight.T if gemm.attrs.get("transB", 0) else weight, bias, relu)
