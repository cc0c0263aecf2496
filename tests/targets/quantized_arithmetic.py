"""The arithmetic of ``docs/quantised-layers.md`` in numpy, the oracle of tests: composites by its rules, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

import tinycomp
from tinycomp.driver.pipeline import Pipeline, optimisation_passes, partitioning_passes
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops import bind
from tinycomp.ops.conv import convolve
from tinycomp.ops.spatial import make_window
from tinycomp.quantized.reading import limits
from tinycomp.target import Target

F32 = np.float32
Requantize = Callable[[np.ndarray, np.ndarray, Node], np.ndarray]
"""Takes int64 sums, what a step of them is worth in float64 (it broadcasts), and the QuantizeLinear."""


def evaluate(
    model: object, target: Target, feeds: Mapping[str, np.ndarray], requantize: Requantize | None = None
) -> list[np.ndarray]:
    """Return the results of a model partitioned for ``target``, every composite computed by the documented rules."""
    graph = tinycomp.from_onnx(model) if not isinstance(model, Graph) else model
    graph = Pipeline([*optimisation_passes(), *partitioning_passes([target])])(graph)
    return run(graph, [feeds[v.name] for v in graph.inputs], requantize or by_float)


def run(graph: Graph, operands: list[np.ndarray], requantize: Requantize) -> list[np.ndarray]:
    arrays: dict[Value | None, np.ndarray | None] = {None: None, **dict(zip(graph.inputs, operands, strict=True))}

    def of(value: Value | None) -> np.ndarray | None:
        return value.const if value is not None and value.const is not None else arrays[value]

    for node in graph.nodes:
        given = [of(v) for v in node.inputs]
        if node.is_region:
            results = run(node.body, given, requantize)
        elif node.is_composite:
            results = [composite(node, given, requantize)]
        elif node.op in ("AveragePool", "GlobalAveragePool"):
            results = [mean(node, *given)]
        else:
            with np.errstate(all="ignore"):
                results = bind(node)[0](*given)
        arrays |= dict(zip(node.outputs, results, strict=True))
    return [of(v) for v in graph.outputs]


def mean(node: Node, x: np.ndarray) -> np.ndarray:
    """The mean of every window: its elements are summed in float32, row by row."""
    keys = ("strides", "dilations", "pads", "auto_pad")
    geometry = {k: node.attrs[k] for k in keys if k in node.attrs}
    sizes = tuple(node.attrs.get("kernel_shape", x.shape[2:]))
    window = make_window(node.op, x.shape[2:], sizes, ceil_mode=bool(node.attrs.get("ceil_mode", 0)), **geometry)
    total = np.zeros((*x.shape[:2], *window.output), F32)
    count = np.zeros(window.output, F32)
    for tap in np.ndindex(*window.kernel):
        steps = zip(window.output, window.strides, tap, window.dilations, window.before, strict=True)
        at = np.meshgrid(*[np.arange(n) * s + t * d - b for n, s, t, d, b in steps], indexing="ij")
        inside, padded = np.ones(window.output, bool), np.ones(window.output, bool)
        for place, size, before, after in zip(at, x.shape[2:], window.before, window.after, strict=True):
            inside &= (place >= 0) & (place < size)
            padded &= (place >= -before) & (place < size + after)
        cells = x[(..., *[np.clip(i, 0, n - 1) for i, n in zip(at, x.shape[2:], strict=True)])]
        total = F32(total + np.where(inside, cells, F32(0)))
        count += padded if node.attrs.get("count_include_pad", 0) else inside
    return F32(total / np.maximum(count, F32(1)))


def composite(node: Node, operands: list[np.ndarray], requantize: Requantize) -> np.ndarray:
    kind = node.op.partition(".")[2]
    body = node.body
    given = dict(zip(body.inputs, operands, strict=True))
    if kind.removesuffix("_real") in ("qconv", "qdense", "qmatmul"):
        return product(body, given, requantize)
    if kind in INTEGER:
        return INTEGER[kind](body, operands[0], requantize)
    return run(body, operands, requantize)[0]  # the definition, step by step in float32


def integer_mean(body: Graph, x: np.ndarray, requantize: Requantize) -> np.ndarray:
    """A mean that is summed in integers: those of a convolution of every channel with weights of 64."""
    pool = next(n for n in body.nodes if n.op in ("AveragePool", "GlobalAveragePool"))
    source, last = dequantizer(pool.inputs[0]), body.outputs[0].producer
    keys = ("strides", "pads", "auto_pad")
    geometry = {k: pool.attrs[k] for k in keys if k in pool.attrs}
    window = make_window(pool.op, x.shape[2:], tuple(pool.attrs.get("kernel_shape", x.shape[2:])), **geometry)
    data = x.astype(np.float64) - point(source).item()
    sums = convolve(data, np.full((x.shape[1], 1, *window.kernel), 64.0), window, x.shape[1])
    step = np.float64(source.inputs[1].const.item()) / (64 * math.prod(window.kernel))
    return requantize(np.rint(sums).astype(np.int64), np.full((1,) * x.ndim, step), last)


def integer_softmax(body: Graph, x: np.ndarray, requantize: Requantize) -> np.ndarray:
    """Shares of an axis, line by line in Python's integers, which never overflow unseen."""
    core, last = next(n for n in body.nodes if n.op == "Softmax"), body.outputs[0].producer
    axis = core.attrs.get("axis", -1)
    lines = np.moveaxis(x, axis, -1).astype(np.int64)
    length = lines.shape[-1]
    unit = min(127 * 32767, (2**31 - 1) // length)
    powers = np.rint(np.exp(-np.float64(dequantizer(core.inputs[0]).inputs[1].const.item()) * np.arange(256)) * unit)
    more = max(22 - unit.bit_length(), 0)
    shares = np.zeros(lines.shape, np.int64)
    for at in np.ndindex(lines.shape[:-1]):
        own = [int(powers[d]) for d in lines[at].max() - lines[at]]
        left = 31 - sum(own).bit_length()
        assert left >= 0
        scaled = sum(own) << left
        place = min((scaled - 2**30 + 2**21) >> 22, 255)
        guess = min(round(256 * 256 / (256 + place)), 255) << 14
        rest = 2**30 - ((scaled * guess + 2**22) >> 23)
        inverse = ((rest * guess + 2 ** (28 + more)) >> (29 + more)) << left
        assert inverse < 2**31
        shares[at] = [(p * inverse + 2**21) >> 22 for p in own]
    step = np.full((1,) * x.ndim, 2.0 ** (more - 30))
    return requantize(np.moveaxis(shares, -1, axis), step, last)


def integer_resize(body: Graph, x: np.ndarray, requantize: Requantize) -> np.ndarray:
    """Weights of neighbouring pixels as fractions, by ONNX's formulas."""
    core, last = next(n for n in body.nodes if n.op == "Resize"), body.outputs[0].producer
    source, mode = dequantizer(core.inputs[0]), core.attrs.get("coordinate_transformation_mode", "half_pixel")
    sums, parts = x.astype(np.int64) - point(source).item(), 1
    for axis in (2, 3):
        size, output = x.shape[axis], core.output.static_shape[axis]
        scale, places = Fraction(output, size), []
        for j in range(output):
            if size == 1:
                places.append(Fraction(j, output))
            elif mode == "align_corners":
                places.append(Fraction(j * (size - 1), max(output - 1, 1)))
            elif mode == "asymmetric":
                places.append(j / scale)
            elif mode == "pytorch_half_pixel" and output == 1:
                places.append(Fraction(0))
            else:
                places.append((j + Fraction(1, 2)) / scale - Fraction(1, 2))
        common = output if size == 1 else math.lcm(*(p.denominator for p in places))
        pixels = [math.floor(p) for p in places]
        weight = np.array([int((p - i) * common) for p, i in zip(places, pixels, strict=True)])
        spread = [-1 if d == axis else 1 for d in range(4)]
        a, b = (sums.take(np.clip(np.array(pixels) + i, 0, size - 1), axis) for i in (0, 1))
        sums, parts = a * (common - weight).reshape(spread) + b * weight.reshape(spread), parts * common
    return requantize(sums, np.full((1, 1, 1, 1), source.inputs[1].const.item() / parts), last)


INTEGER = {"qavgpool": integer_mean, "qsoftmax": integer_softmax, "qresize": integer_resize}


def product(body: Graph, given: Mapping[Value, np.ndarray], requantize: Requantize) -> np.ndarray:
    anchor = next(n for n in body.nodes if n.op in ("Conv", "Gemm", "MatMul"))
    data, weights = dequantizer(anchor.inputs[0]), dequantizer(anchor.inputs[1])
    x, w = ((given[v] if v.const is None else v.const).astype(np.int64) for v in (data.inputs[0], weights.inputs[0]))
    x = x - point(data).item()
    exact = np.float64(data.inputs[1].const.item()) * weights.inputs[1].const.reshape(-1).astype(np.float64)
    scale = F32(exact)
    axis = weights.attrs.get("axis", 1) if point(weights).size > 1 else 0
    w = w - point(weights).reshape([-1 if d == axis else 1 for d in range(w.ndim)])
    for pad in (n for n in body.nodes if n.op == "Pad"):
        widths = pad.inputs[1].const.reshape(2, -1).T
        x = np.pad(x, widths)
    spread = (-1,)
    if anchor.op == "Conv":
        keys = ("strides", "dilations", "pads", "auto_pad")
        geometry = {k: anchor.attrs[k] for k in keys if k in anchor.attrs}
        window = make_window("Conv", x.shape[2:], w.shape[2:], **geometry)
        sums = convolve(x.astype(np.float64), w.astype(np.float64), window, anchor.attrs.get("group", 1))
        sums = np.rint(sums).astype(np.int64)
        spread = (-1, *[1] * (x.ndim - 2))
    else:
        sums = x @ (w.T if anchor.attrs.get("transB") else w)
    sums = sums + bias(anchor, body, exact).reshape(spread)
    assert np.abs(sums).max(initial=0) < 2**31
    last = body.outputs[0].producer
    if last.op != "QuantizeLinear":
        return F32(sums) * scale.reshape(spread)
    return requantize(sums, exact.reshape(spread), last)


def by_float(sums: np.ndarray, scale: np.ndarray, last: Node) -> np.ndarray:
    return saturated(np.rint(F32(sums) * F32(F32(scale) / step_of(last))), last)


def by_fixed_point(sums: np.ndarray, scale: np.ndarray, last: Node) -> np.ndarray:
    """TFLite's MultiplyByQuantizedMultiplier with two roundings, number by number."""
    sums, ratio = np.broadcast_arrays(sums, scale / np.float64(step_of(last)))
    pairs = zip(sums.reshape(-1).tolist(), ratio.reshape(-1).tolist(), strict=True)
    return saturated(np.array([multiplied(s, r) for s, r in pairs], np.float64).reshape(sums.shape), last)


def multiplied(value: int, ratio: float) -> int:
    fraction, shift = math.frexp(ratio)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, shift = multiplier // 2, shift + 1
    value <<= max(shift, 0)
    product = value * multiplier
    nudged = product + (1 << 30 if product >= 0 else 1 - (1 << 30))
    high = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)  # C's division
    right = max(-shift, 0)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def step_of(last: Node) -> np.float32:
    return F32(last.inputs[1].const.item())


def saturated(steps: np.ndarray, last: Node) -> np.ndarray:
    dtype = last.output.type.dtype
    zero, info = point(last).item(), np.iinfo(dtype)
    ends = [np.clip(np.rint(F32(v) / step_of(last)) + zero, info.min, info.max) for v in limits(last.inputs[0])]
    return np.clip(steps + zero, *ends).astype(dtype)


def bias(anchor: Node, body: Graph, exact: np.ndarray) -> np.ndarray:
    """Return the bias in steps of the sums, which are worth the product of both scales without rounding."""
    value = anchor.inputs[2] if len(anchor.inputs) > 2 else None
    if anchor.op == "MatMul":
        add = next((n for n in body.nodes if n.op == "Add"), None)
        value = None if add is None else next(v for v in add.inputs if v.producer is not anchor)
    if value is None:
        return np.zeros(1, np.int64)
    if value.const is not None:
        return np.rint(value.const.reshape(-1).astype(np.float64) / exact).astype(np.int64)
    node = dequantizer(value)
    stored = node.inputs[0].const.reshape(-1).astype(np.int64) - point(node)
    if (node.inputs[1].const.reshape(-1) == F32(exact)).all():
        return stored
    real = stored * node.inputs[1].const.reshape(-1).astype(np.float64)
    return np.rint(real / exact).astype(np.int64)


def dequantizer(value: Value) -> Node:
    while value.producer.op != "DequantizeLinear":
        value = value.producer.inputs[0]
    return value.producer


def point(node: Node) -> np.ndarray:
    given = len(node.inputs) > 2 and node.inputs[2] is not None
    return node.inputs[2].const.astype(np.int64) if given else np.zeros((), np.int64)
