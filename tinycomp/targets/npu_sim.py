"""A simulated NPU: a target in one file, explained step by step in ``docs/npu-sim.md``.

The device multiplies on a 16 x 16 array, in float32 or on 8-bit integers, and fuses bias, activation and requantisation
into the product; a vector unit of 16 lanes adds and pools. It fills the array in steps of 16 output channels, sums in
int32, and knows no softmax. :mod:`tinycomp.targets.npu_sim_device` simulates it.

Results of 8-bit layers equal those of the reference to the bit, and comparisons allow no step between them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from tinycomp.ir.types import EIGHT_BITS
from tinycomp.ops.numeric import Array
from tinycomp.ops.pool import max_pool, sum_in_order
from tinycomp.quantized.patterns import (
    bias_per_channel,
    equal_counts,
    scaled_per_channel,
    sums_fit,
)
from tinycomp.quantized.reading import (
    PRODUCTS,
    bias_of,
    channel_axis,
    constant,
    first,
    geometry,
    limits,
)
from tinycomp.target_api import (
    Buffer,
    Convolution,
    ConvTiling,
    Graph,
    Match,
    Memory,
    MemoryLimitError,
    MemoryPlan,
    Node,
    P,
    QuantizedLayer,
    Remark,
    Target,
    Tolerance,
    Value,
    ValuePattern,
    Window,
    is_structural,
    make_window,
    patterns,
    plan_memories,
    reject,
    tensor,
    tile_convolution,
    tile_matmul,
)
from tinycomp.targets import npu_sim_device as device
from tinycomp.targets.npu_sim_device import LANES, Program, Work

Answer = bool | Remark
_SUM_BYTES = 4  # int32 or float32
_ONE = np.ones((), np.float32)

TARGET = Target(
    "npu_sim",
    tolerance=Tolerance(rtol=1e-4, atol=1e-5, steps=0),
    description="a simulated int8 and float32 NPU; the worked example of a target",
    static_shapes=True,
    canonical=True,
)

# Composites: what the device runs as one instruction. Earlier ones win. -----------------------------------------------


qconv = TARGET.composite(patterns.qconv)
qdense = TARGET.composite(patterns.qdense)
qadd = TARGET.composite(patterns.qadd)
qavgpool = TARGET.composite(patterns.qavgpool)


@TARGET.composite
def conv(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match a float32 convolution with bias and activation."""
    return patterns.clamped(P.Conv(x.where(dtype="float32"), w, b | P.absent))


@TARGET.composite
def dense(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match a float32 matrix product with bias and activation."""
    return patterns.clamped(patterns.product(x.where(dtype="float32"), w, b))


# Checks: what a pattern cannot say. Every "no" has a reason, and the report shows it. ---------------------------------


for _composite in (qconv, qdense, conv, dense):
    _composite.check(bias_per_channel)
for _composite in (qconv, qdense):
    _composite.check(scaled_per_channel)
    _composite.check(sums_fit)


@qconv.check
@qdense.check
@conv.check
@dense.check
def _(match: Match) -> Answer:
    node = first(match.matched, *PRODUCTS)
    channels = constant(match.w).shape[channel_axis(node)]
    if channels % LANES:
        return reject(f"output channels must be a multiple of {LANES}, got {channels}")
    return True


@qconv.check
@conv.check
def _(match: Match) -> Answer:
    node, weight = first(match.matched, "Conv"), constant(match.w)
    kernel = weight.shape[2:]
    dilations = node.attrs.get("dilations", [1] * len(kernel))
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    try:  # a single result has the smallest tiles
        _tiling(weight, make_window("Conv", spans, kernel, dilations=dilations), node.attrs.get("group", 1))
    except MemoryLimitError as error:
        return reject(f"{error.message} the scratchpad: {error.found}, {error.expected}")
    return True


@qadd.check
def _(match: Match) -> Answer:
    return _equal_shapes(match.a, match.b)


qavgpool.check(equal_counts)


# Operator rules: nodes that the device takes one by one. --------------------------------------------------------------


@TARGET.op("Relu", "Add")
def _(node: Node) -> Answer:
    dtype = node.output.dtype
    return _equal_shapes(*node.inputs) if dtype == "float32" else reject(f"{node.op} is float32 only, got {dtype}")


@TARGET.op("MaxPool")
def _(node: Node) -> Answer:
    dtype, axes = node.output.dtype, len(node.attrs["kernel_shape"])
    if dtype not in {"float32", *EIGHT_BITS}:
        return reject(f"MaxPool is float32 or 8-bit only, got {dtype}")
    if axes != 2:
        return reject(f"MaxPool has two spatial axes, got {axes}")
    return len(node.used_outputs()) == 1 or reject("MaxPool returns no indices")


def _equal_shapes(*operands: Value | None) -> Answer:
    shapes = [v.shape for v in operands if v is not None]
    same = shapes[0] is not None and all(s == shapes[0] for s in shapes)
    return same or reject(f"operands must have equal shapes, got {' and '.join(map(str, shapes))}")


# Code generation: a region becomes a program, prepared once and run often. --------------------------------------------


@TARGET.codegen
def build(region: Node) -> Program:
    """Turn a region, whose shapes are static by now, into a program."""
    body = region.body
    results = [v for node in body.nodes for v in node.used_outputs()]
    register = {v: number for number, v in enumerate([*body.inputs, *body.constants, *results])}
    steps = []
    for node in body.nodes:
        name = "pass" if is_structural(node) else node.op.removeprefix(f"{TARGET.name}.")
        reads = tuple(register[v] for v in node.inputs if v is not None)
        work = _BUILDERS[name](node)
        steps.append(device.Instruction(name, node.label, work, reads, register[node.output], _bytes(node)))
    constants = tuple(constant(v) for v in body.constants)
    return Program(tuple(steps), constants, tuple(register[v] for v in body.outputs), _memory(body))


def _memory(body: Graph) -> MemoryPlan:
    """Return where the results between instructions lie; the vector unit may write over what it reads."""
    between = {node.output: step for step, node in enumerate(body.nodes)}
    numbers = {value: number for number, value in enumerate(between)}
    last = {v: step for step, node in enumerate(body.nodes) for v in node.inputs if v in between}
    buffers = []
    for value, step in between.items():
        node = body.nodes[step]
        places = ("dram",) if body.is_output(value) else ("scratchpad", "dram")
        over = next((numbers[v] for v in node.inputs if v in numbers), None) if node.op in _IN_PLACE else None
        buffers.append(Buffer(tensor(value.type).nbytes(), step, last.get(value, step), places, over))
    return plan_memories(buffers, [Memory("scratchpad", device.RESIDENT), Memory("dram")])


_IN_PLACE = frozenset({"Relu", "Add", "npu_sim.qadd"})


def _build_qproduct(node: Node) -> Work:
    layer = QuantizedLayer.of(node.body.nodes)
    product, core = layer.product, layer.core
    multiply, spread = _multiplier(core, product.weight.astype(np.float64), layer.geometry)
    finish = _requantize(layer, layer.factors.reshape(spread))
    compute = device.product_int8(multiply, product.zero_point, product.bias.reshape(spread), finish)
    return Work(compute, *_cost(node, core, product.weight), _tiles(node, core, product.weight))


def _build_product(node: Node) -> Work:
    product = first(node.body.nodes, *PRODUCTS)
    weight = np.moveaxis(constant(product.inputs[1]), channel_axis(product), 0)
    multiply, spread = _multiplier(product, weight, geometry(product))
    bias = bias_of(product, node.body.nodes)
    added = np.zeros(1, np.float32) if bias is None else constant(bias)
    compute = device.product_float32(multiply, added.reshape(spread), *limits(node.body.outputs[0]))
    macs, cycles = _cost(node, product, weight)
    return Work(compute, macs, device.FLOAT_CYCLES * cycles, _tiles(node, product, weight))


def _build_qadd(node: Node) -> Work:
    layer = QuantizedLayer.of(node.body.nodes)
    order = [node.body.inputs.index(layer.stored(i)) for i in (0, 1)]
    scales, points = [layer.scale(i) for i in (0, 1)], [layer.zero_point(i) for i in (0, 1)]
    add = device.add_int8(scales, points, np.asarray(layer.result.scale), _requantize(layer))
    return Work(lambda *x: add(*(x[i] for i in order)), 0, device.vector_cycles(_size(node.output)))


def _build_qavgpool(node: Node) -> Work:
    layer, sizes = QuantizedLayer.of(node.body.nodes), _shape(node.inputs[0])[2:]
    pool = layer.core
    window = make_window(pool.op, sizes, pool.attrs.get("kernel_shape", sizes), **layer.geometry)
    count, step = prod(window.kernel), np.asarray(layer.result.scale)
    add_up = functools.partial(sum_in_order, window=window)
    compute = device.mean_int8(add_up, count, layer.scale(), layer.zero_point(), step, _requantize(layer))
    return Work(compute, 0, device.vector_cycles(_size(node.output) * count))


def _build_maxpool(node: Node) -> Work:
    attrs = {k: v for k, v in node.attrs.items() if k != "storage_order"}
    cycles = device.vector_cycles(_size(node.output) * prod(attrs["kernel_shape"]))
    return Work(lambda x: max_pool(x, **attrs), 0, cycles)  # type: ignore[arg-type, return-value]


def _build_vector(compute: Callable[..., Array]) -> Callable[[Node], Work]:
    return lambda node: Work(compute, 0, device.vector_cycles(_size(node.output)))


_BUILDERS: dict[str, Callable[[Node], Work]] = {
    "qconv": _build_qproduct,
    "qdense": _build_qproduct,
    "qadd": _build_qadd,
    "qavgpool": _build_qavgpool,
    "conv": _build_product,
    "dense": _build_product,
    "MaxPool": _build_maxpool,
    "Relu": _build_vector(lambda x: np.maximum(x, np.float32(0))),
    "Add": _build_vector(np.add),
    "pass": lambda node: Work(lambda x: x, 0, 0),
}


def _multiplier(product: Node, weight: Array, geometry: Mapping[str, Any]) -> tuple[device.Compute, tuple[int, ...]]:
    """Return the product with a weight, channels first, and the shape that one number per channel takes beside it."""
    if product.op != "Conv":
        return device.matrix(weight), (-1,)
    return device.convolution(weight, geometry, product.attrs.get("group", 1)), (
        -1,
        *[1] * (weight.ndim - 2),
    )


def _requantize(layer: QuantizedLayer, factor: Array = _ONE) -> device.Requantize:
    """Return the requantisation of sums, times a factor, to the result of a layer."""
    to = layer.result
    return device.Requantize(factor, to.zero_point, to.low, to.high, to.dtype)


def _cost(node: Node, product: Node, weight: Array) -> tuple[int, int]:
    outputs, terms, group = _size(node.output), prod(weight.shape[1:]), product.attrs.get("group", 1)
    return outputs * terms, device.product_cycles(len(weight), terms, outputs, group)


def _tiles(node: Node, product: Node, weight: Array) -> int:
    """Count the pieces in which the device computes a product: each fits into the working half of its scratchpad."""
    shape = _shape(node.inputs[0])
    if product.op == "Conv":
        padding = [n for n in node.body.nodes if n.op == "Pad"]
        sizes = tuple(_shape(padding[0].output)[2:]) if padding else shape[2:]
        window = make_window("Conv", sizes, weight.shape[2:], **geometry(product))
        return shape[0] * _tiling(weight, window, product.attrs.get("group", 1)).count
    rows = _size(node.output) // len(weight)
    return tile_matmul(
        rows, len(weight), weight.shape[1], device.WORKING, left_bytes=weight.itemsize, right_bytes=weight.itemsize,
        result_bytes=_SUM_BYTES, multiple=LANES,
    ).count  # fmt: skip


def _tiling(weight: Array, window: Window[int], group: int) -> ConvTiling:
    """Return how the device cuts a convolution whose weight has its channels first.

    Raises:
        MemoryLimitError: If no piece of it fits.
    """
    whole = Convolution(
        weight.shape[1] * group, len(weight), window.sizes, window.kernel, window.strides, window.dilations,
        (*window.before, *window.after), group,
    )  # fmt: skip
    item = weight.itemsize
    return tile_convolution(
        whole, device.WORKING, data_bytes=item, weight_bytes=item, result_bytes=_SUM_BYTES, multiple=LANES
    )


def _shape(value: Value | None) -> tuple[int, ...]:
    shape = None if value is None else value.static_shape
    assert shape is not None, value
    return shape


def _size(value: Value) -> int:
    return prod(_shape(value))


def _bytes(node: Node) -> int:
    """Count the bytes that an instruction moves: operands, what is bound in it, and its result."""
    bound = [c for body in node.bodies.values() for c in body.constants]
    return sum(tensor(v.type).nbytes() for v in (*node.inputs, *bound, node.output) if v is not None)
