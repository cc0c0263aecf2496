"""What convolutions compute: slices and products where weights come in at run time, and transposed ones of any rank.

A transposed convolution of stride s is a convolution with s times as many filters, one for each phase of the result,
whose results are then interleaved: it multiplies nothing by the zeros that a stride would put between the elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition, dtype_of, is_float32, numbers_below, shape_of, sizes_of
from tinycomp.ir.graph import TINYCOMP, Node, Value
from tinycomp.ops.conv import transposed_window
from tinycomp.ops.spatial import window_attributes

MOST_TAPS = 256
"""Definitions of windows with more positions than this would be too long: each position is a node or two."""
_END = np.iinfo(np.int64).max


def _comes_at_run_time(value: Value | None) -> bool:
    """Tell whether a value is neither a constant nor dequantised from constants."""
    if value is None or value.is_const:
        return False
    producer = value.producer
    return (
        producer is None
        or producer.op != "DequantizeLinear"
        or any(v is not None and not v.is_const for v in producer.inputs)
    )


def _has_run_time_weights(node: Node) -> bool:
    return _comes_at_run_time(node.operand(1))


def _ints(node: Node, name: str, count: int, default: int) -> list[int]:
    given = node.attrs.get(name)
    return [int(n) for n in given] if given else [default] * count


def _padded(body: Body, node: Node, x: Value, kernel: Sequence[int]) -> Value:
    """Return the data of a convolution with the zeros that its padding puts around them."""
    rank, automatic = len(kernel), node.attrs.get("auto_pad", "NOTSET")
    if automatic == "VALID":
        return x
    if automatic == "NOTSET":
        pads = _ints(node, "pads", 2 * rank, 0)
        return body("Pad", x, body.ints(0, 0, *pads[:rank], 0, 0, *pads[rank:])) if any(pads) else x
    strides, dilations = body.ints(*_ints(node, "strides", rank, 1)), _ints(node, "dilations", rank, 1)
    extents = body.ints(*((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)))
    sizes = body("Shape", x, start=2)
    last = body("Mul", body("Div", body("Sub", sizes, body.ints(1)), strides), strides)
    missing = body("Max", body("Sub", body("Add", last, extents), sizes), body.ints(0))
    lesser = body("Div", missing, body.ints(2))
    ends = [lesser, body("Sub", missing, lesser)][:: 1 if automatic == "SAME_UPPER" else -1]
    zeros = body.ints(0, 0)
    return body("Pad", x, body("Concat", zeros, ends[0], zeros, ends[1], axis=0))


def unfolded(body: Body, x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Value:
    """Return what each tap of a window reads of padded data (N, C, d1…dr), as (N, C, taps, D1…Dr)."""
    rank = len(kernel)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes, steps = body.ints(*range(2, 2 + rank)), body.ints(*strides)
    taps = []
    for tap in np.ndindex(*kernel):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        behind = [e - 1 - s for e, s in zip(extents, starts, strict=True)]
        ends = [-b if b else _END for b in behind]
        part = body("Slice", x, body.ints(*starts), body.ints(*ends), axes, steps)
        taps.append(body("Unsqueeze", part, body.ints(2)))
    return taps[0] if len(taps) == 1 else body("Concat", *taps, axis=2)


def _conv(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define a convolution as one product of matrices per group of each image."""
    x, w, bias = operands[:3]
    filters = shape_of(w)
    if x is None or w is None or not filters or x.rank != len(filters) or len(filters) < 3:
        return None
    kernel, rank = filters[2:], len(filters) - 2
    if math.prod(kernel) > MOST_TAPS:
        return None
    group, x = int(node.attrs.get("group", 1)), _padded(body, node, x, kernel)
    taps = unfolded(body, x, kernel, _ints(node, "strides", rank, 1), _ints(node, "dilations", rank, 1))
    depth = filters[1] * math.prod(kernel)
    columns = body.reshape(taps, [0, group, depth, -1])
    rows = body.reshape(w, [1, group, filters[0] // group, depth])
    (batch,) = sizes_of(x, [0])
    spatial = sizes_of(taps, range(3, 3 + rank))
    y = body.resized(body("MatMul", rows, columns), [batch, filters[0], *spatial])
    return y if bias is None else body("Add", y, body.reshape(bias, [-1, *[1] * rank]))


def _deform_conv(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define it as a product with what is sampled where each tap of each window has moved."""
    x, w, offset, bias, mask = operands[:5]
    shape, filters, moved = shape_of(x), shape_of(w), shape_of(offset)
    if x is None or w is None or offset is None or not shape or not filters or not moved or len(shape) != 4:
        return None
    batch, channels, *sizes = shape
    kernel, (group, parts) = filters[2:], (int(node.attrs.get(n, 1)) for n in ("group", "offset_group"))
    taps, out = math.prod(kernel), moved[2:]
    if channels % parts or min(sizes) < 1 or taps > MOST_TAPS:
        return None
    pads = _ints(node, "pads", 4, 0)
    strides, dilations = _ints(node, "strides", 2, 1), _ints(node, "dilations", 2, 1)
    steps = body.reshape(offset, [batch * parts, taps, 2, *out])
    places = []
    for axis in (1, 0):  # the innermost one first
        tap = np.indices(kernel)[axis].reshape(-1, 1, 1) * dilations[axis] - pads[axis]
        first = numbers_below(out[axis]).reshape(-1, 1 if axis == 0 else out[axis]) * strides[axis]
        regular = body("Add", *(body.const(places.astype(np.float32)) for places in (tap, first)))
        place = body("Gather", steps, body.const(np.int64(axis)), axis=2)
        place = body("Add", place, regular)
        places.append(body("Unsqueeze", place, body.ints(4)))
    cells = body.reshape(body("Concat", *places, axis=4), [batch * parts, taps * out[0], out[1], 2])
    images = body.reshape(x, [batch * parts, channels // parts, *sizes])
    sampled = body.extra(TINYCOMP, "SampleCells", images, cells)
    columns = body.reshape(sampled, [batch, parts, channels // parts, taps, *out])
    if mask is not None:
        columns = body("Mul", columns, body.reshape(mask, [batch, parts, 1, taps, *out]))
    depth = filters[1] * taps
    columns = body.reshape(columns, [batch, group, depth, math.prod(out)])
    rows = body.reshape(w, [1, group, filters[0] // group, depth])
    y = body.reshape(body("MatMul", rows, columns), [batch, filters[0], *out])
    return y if bias is None else body("Add", y, body.reshape(bias, [-1, 1, 1]))


def _conv_transpose(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define a transposed convolution as a convolution whose filters are the phases of the result, interleaved."""
    x, w, bias = operands[:3]
    filters = shape_of(w)
    if x is None or w is None or not filters or x.rank != len(filters) or len(filters) < 3:
        return None
    rank, group = len(filters) - 2, int(node.attrs.get("group", 1))
    strides, dilations = _ints(node, "strides", rank, 1), _ints(node, "dilations", rank, 1)
    ends = _transposed_ends(node, x, filters[2:])
    if ends is None or not all(filters):
        return None
    extents = [(k - 1) * d + 1 for k, d in zip(filters[2:], dilations, strict=True)]
    counts = [-(-extent // s) for extent, s in zip(extents, strides, strict=True)]
    weights = _phases(body, w, filters, group, (strides, dilations, counts))
    first = [min(front // s, q - 1) for (front, _), s, q in zip(ends, strides, counts, strict=True)]
    before = [q - 1 - j for q, j in zip(counts, first, strict=True)]
    after = [max(-(-rear // s) - 1, 0) for (_, rear), s in zip(ends, strides, strict=True)]
    channels, phases = filters[1] * group, math.prod(strides)
    if bias is not None and phases > 1:
        bias = body("Tile", body.reshape(bias, [-1, 1]), body.ints(1, phases))
        bias = body.reshape(bias, [-1])
    y = body("Conv", x, weights, bias, group=group, pads=[*before, *after], kernel_shape=counts)
    if phases > 1:
        y = _interleaved(body, y, channels, strides)
    offsets = [front - j * s for (front, _), j, s in zip(ends, first, strides, strict=True)]
    excess = [(a + 1) * s - rear for (_, rear), a, s in zip(ends, after, strides, strict=True)]
    cut = [i for i in range(rank) if offsets[i] or excess[i]]
    if not cut:
        return y
    stops = body.ints(*(-excess[i] or _END for i in cut))
    return body("Slice", y, body.ints(*(offsets[i] for i in cut)), stops, body.ints(*(2 + i for i in cut)))


def _transposed_ends(node: Node, x: Value, kernel: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return, by axis, what is cut off in front, and where the result ends beyond the first tap of the last element."""
    rank, sizes = len(kernel), [size for size in (x.sizes or ())[2:] if size is not None]
    strides, dilations = _ints(node, "strides", rank, 1), _ints(node, "dilations", rank, 1)
    adjust = _ints(node, "output_padding", rank, 0)
    if node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not node.attrs.get("output_shape"):
        pads = _ints(node, "pads", 2 * rank, 0) if node.attrs.get("auto_pad", "NOTSET") == "NOTSET" else [0] * 2 * rank
        return [(pads[i], (kernel[i] - 1) * dilations[i] + 1 + adjust[i] - pads[rank + i]) for i in range(rank)]
    if len(sizes) < rank:
        return None
    given = window_attributes(node.attrs)
    window = transposed_window(node.op, sizes, kernel, adjust, node.attrs.get("output_shape"), **given)
    places = zip(window.before, window.sizes, sizes, strides, strict=True)
    ends = [(front, front + size - (n - 1) * s) for front, size, n, s in places]
    found = [(front, rear) for front, rear in ends if isinstance(front, int) and isinstance(rear, int)]
    return found if len(found) == rank else None  # sizes cancel out with SAME


def _phases(
    body: Body, w: Value, filters: Sequence[int], group: int, taps: tuple[list[int], list[int], list[int]]
) -> Value:
    """Return weights (C, M / group, kernel…) as those of a convolution (M * phases, C / group, counts…)."""
    strides, dilations, counts = taps
    rank, own = len(strides), filters[0] // group
    kernel = list(filters[2:])
    if set(dilations) != {1}:  # zeros between the taps
        apart = body.reshape(w, [*filters[:2], *(n for k in kernel for n in (k, 1))])
        behind = [n for d in dilations for n in (0, d - 1)]
        spread = body("Pad", apart, body.ints(0, 0, *[0] * 2 * rank, 0, 0, *behind))
        kernel = [k * d for k, d in zip(kernel, dilations, strict=True)]
        w = body.reshape(spread, [*filters[:2], *kernel])
    wide = [s * q for s, q in zip(strides, counts, strict=True)]
    missing = [n - k for n, k in zip(wide, kernel, strict=True)]  # negative where zeros behind the last tap go
    if any(missing):
        w = body("Pad", w, body.ints(*[0] * (2 + rank), 0, 0, *missing))
    w = body.reshape(w, [group, own, filters[1], *(n for pair in zip(counts, strides, strict=True) for n in pair)])
    at_counts, at_strides = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    w = body("Transpose", w, perm=[0, 2, *at_strides, 1, *at_counts])
    w = body.reshape(w, [group * filters[1] * math.prod(strides), own, *counts])
    if max(counts) == 1:
        return w
    backwards = (body.ints(*[n] * rank) for n in (-1, -_END))
    return body("Slice", w, *backwards, body.ints(*range(2, 2 + rank)), body.ints(*[-1] * rank))


def _interleaved(body: Body, y: Value, channels: int, strides: Sequence[int]) -> Value:
    """Return phases (N, C * s1…sr, d1…dr) as (N, C, d1 * s1…dr * sr)."""
    rank = len(strides)
    (batch,) = sizes_of(y, [0])
    sizes = sizes_of(y, range(2, 2 + rank))
    apart = body.resized(y, [batch, channels, *strides, *sizes])
    order = [axis for i in range(rank) for axis in (2 + rank + i, 2 + i)]
    turned = body("Transpose", apart, perm=[0, 1, *order])
    return body.merged(turned, [1, 1, *[2] * rank])


def _needs_parts(node: Node) -> bool:
    """Tell whether a Gemm multiplies numbers of 32 or 64 bits other than float32, or its C comes in at run time."""
    if is_float32(node):
        return _comes_at_run_time(node.optional_operand(2))
    scales = [float(node.attrs.get(factor, 1.0)) for factor in ("alpha", "beta")]
    dtype = dtype_of(node.operand(0))
    return dtype == "float64" or (dtype in _INTEGERS and all(scale.is_integer() for scale in scales))


_INTEGERS = ("int32", "uint32", "int64", "uint64")
"""Those that are multiplied as they are."""


def _gemm(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define alpha A B + beta C, where there is a C."""
    a, b, c = (*operands, None)[:3]
    if a is None or b is None:
        return None
    a, b = (
        body("Transpose", v, perm=[1, 0]) if node.attrs.get(name, 0) else v
        for v, name in ((a, "transA"), (b, "transB"))
    )
    terms = []
    for term, factor in ((body("MatMul", a, b), "alpha"), (c, "beta")):
        scale = float(node.attrs.get(factor, 1.0))
        if term is not None and (scale or factor == "alpha"):
            terms.append(term if scale == 1.0 else body("Mul", term, body.like(term, scale)))
    return body("Add", *terms) if len(terms) > 1 else terms[0]


DEFINITIONS = MappingProxyType({
    "Conv": Definition(_conv, _has_run_time_weights),
    "ConvTranspose": Definition(_conv_transpose),
    "DeformConv": Definition(_deform_conv, is_float32),
    "Gemm": Definition(_gemm, _needs_parts),
})  # fmt: skip
