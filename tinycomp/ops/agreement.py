"""Where sizes have to agree: what a node demands of dimensions whose numbers only a run shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from tinycomp.ir.graph import Node
from tinycomp.symbolic import Expression, Size, broadcast, if_zero, product

Condition = tuple[Size, str]
"""A number that must be 0 in every run, and what else is wrong."""

_Shapes = Sequence[tuple[Size, ...] | None]
_BROADCASTING = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
_CHANNELS = ("BatchNormalization", "InstanceNormalization")
_NORMS = ("LayerNormalization", "RMSNormalization")


def conditions(node: Node) -> list[Condition]:
    """Return what the sizes of a node's operands must fulfil, as far as it depends on a run.

    Args:
        node: A node of ONNX's own domain; others have no conditions.
    """
    rule = None if node.domain else _RULES.get(node.op)
    if rule is None:
        return []
    shapes = [None if value is None else value.sizes for value in node.inputs]
    return [(value, text) for value, text in rule(node, shapes) if isinstance(value, Expression)]


def _equal(a: Size, b: Size) -> Condition:
    return a - b, f"{a} and {b} are different"


def _fit(a: Size, b: Size) -> Condition:
    """Return the condition that two dimensions broadcast."""
    text = f"{a} and {b} are different, and neither is 1"
    return if_zero(a - 1, 0, if_zero(b - 1, 0, a - b)), text


def _broadcast(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    return _all_fit([shape for shape in shapes if shape is not None])


def _all_fit(shapes: Sequence[tuple[Size, ...]]) -> Iterator[Condition]:
    for axis in range(1, 1 + max(map(len, shapes), default=0)):
        dims = [shape[-axis] for shape in shapes if len(shape) >= axis]
        whole = dims[0]
        for dim in dims[1:]:
            yield _fit(whole, dim)
            whole = broadcast(whole, dim)


def _matmul(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    a, b = shapes[:2]
    if a and b:
        yield _equal(a[-1], b[-2] if len(b) > 1 else b[0])
        yield from _all_fit([a[:-2], b[:-2]])


def _gemm(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    a, b = shapes[:2]
    if a and b:
        yield _equal(a[0 if node.attrs.get("transA") else 1], b[1 if node.attrs.get("transB") else 0])
    if len(shapes) > 2 and shapes[2] is not None and node.output.sizes is not None:
        yield from _all_fit([node.output.sizes, shapes[2]])


def _concat(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    known = [shape for shape in shapes if shape is not None]
    for shape in known[1:]:
        axis = int(node.attrs["axis"]) % len(shape)
        yield from (_equal(a, b) for i, (a, b) in enumerate(zip(known[0], shape, strict=True)) if i != axis)


def _reshape(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    before, after = shapes[0], node.output.sizes
    if before is not None and after is not None:
        text = f"[{', '.join(map(str, before))}] and [{', '.join(map(str, after))}] have different numbers of elements"
        yield product(before) - product(after), text


def _squeeze(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    before, after = shapes[0], node.output.sizes
    if before is not None and after is not None:
        yield product(before) - product(after), f"a dimension of [{', '.join(map(str, before))}] is not 1"


def _split(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    x, parts = shapes[0], [value.sizes for value in node.outputs]
    if x is not None and None not in parts:
        axis = int(node.attrs.get("axis", 0)) % len(x)
        total: Size = 0
        for part in parts:
            total = total + (part[axis] if part is not None else 0)
        yield x[axis] - total, f"the parts have {total} elements together, not {x[axis]}"


def _expand(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    wanted = node.operand(1).contents
    if shapes[0] is not None and wanted is not None:
        known = tuple([element for element in wanted if element is not None])
        if len(known) == len(wanted):
            yield from _all_fit([shapes[0], known])


def _convolution(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    x, w = shapes[:2]
    if x and w:
        yield _equal(x[1], w[1] * int(node.attrs.get("group", 1)))


def _channels(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    x = shapes[0]
    if x is not None and len(x) > 1:
        yield from (_equal(x[1], dim) for dim in chain.from_iterable(shape or () for shape in shapes[1:]))


def _recurrent(node: Node, shapes: _Shapes) -> Iterator[Condition]:
    x, rest = shapes[0], (*shapes[4:7], None, None, None)[:3]
    batch_first = bool(node.attrs.get("layout", 0))
    if x is not None:
        batch = x[0 if batch_first else 1]
        lengths, *states = rest
        if lengths is not None:
            yield _equal(lengths[0], batch)
        for state in states:
            if state is not None:
                yield _equal(state[0 if batch_first else 1], batch)


_RULES: Mapping[str, Callable[[Node, _Shapes], Iterator[Condition]]] = {
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    **dict.fromkeys((*_BROADCASTING, *_NORMS), _broadcast),
    **dict.fromkeys(_CHANNELS, _channels),
    "Concat": _concat,
    "Conv": _convolution,
    "Expand": _expand,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Split": _split,
    "Squeeze": _squeeze,
}
