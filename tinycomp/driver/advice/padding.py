"""Padding of channels: a model that computes the same with more channels, of which the further ones do not matter.

What is added to a product's results is zero: its weights get zeros, its bias as well. What reads them hands them on
(activations, pools, sums of two such values) or multiplies them by zeros (the next product). Anything else reads a
Slice of what there was before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import UNKNOWN_DTYPE, TensorType, numpy_dtype
from tinycomp.ops.typing import record_of
from tinycomp.records import dataclass, field
from tinycomp.rewrite.traits import attribute, has_trait, is_structural


class _ImpossibleError(Exception):
    """One value would need more channels at two axes."""


def _is_finite_at_zero(node: Node) -> bool:
    """Tell whether an element-wise node makes finite numbers of zeros: times a zero weight these are nothing."""
    record = record_of(node)
    dtypes = {v.dtype for v in (*node.inputs, *node.outputs) if v is not None}
    if record is None or "elementwise" not in record.traits or dtypes & {UNKNOWN_DTYPE, "string", "bool"}:
        return False
    zeros = [None if v is None else np.zeros((), numpy_dtype(v.dtype)) for v in node.inputs]
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.asarray(record.bind(node.attrs)(*zeros)).astype(np.float64)).all())


def channels(node: Node, side: str) -> int | None:
    """Return how many channels a product gives (``"output"``) or takes (``"input"``); None if that is not known."""
    value = node.output if side == "output" else node.inputs[0]
    axis = _axis(node, side, value)
    shape = value.shape if value is not None and isinstance(value.type, TensorType) else None
    dim = shape[axis] if shape is not None and axis is not None and axis < len(shape) else None
    return dim if isinstance(dim, int) else None


def pad_channels(graph: Graph, node: Node, side: str, size: int) -> bool:
    """Give a product more channels, in place, and everything that these go through.

    ``node`` is a Conv, Gemm or MatMul, ``side`` is ``"output"`` or ``"input"``.

    Returns:
        Whether that was possible; if not, nothing has changed.
    """
    value = node.output if side == "output" else node.operand(0)
    before, axis = channels(node, side), _axis(node, side, value)
    if before is None or axis is None or before >= size:
        return False
    padding = _Padding(graph, before, size)
    try:
        padding.plan(value, axis)
    except _ImpossibleError:
        return False
    if padding.reached(node):
        padding.commit()
        return True
    return False


def _axis(node: Node, side: str, value: Value | None) -> int | None:
    if node.op == "MatMul":
        return None if value is None or value.rank is None else value.rank - 1
    if node.op == "Gemm" and side == "input" and attribute(node, "transA"):
        return None
    return 1


@dataclass(frozen=True)
class _Through:
    """How a node hands channels on: which operands have them at which axis, and what constants get."""

    data: Mapping[int, int]
    constants: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    group: bool = False


class _Padding:
    """One padding: what gets more channels, planned before anything changes."""

    def __init__(self, graph: Graph, before: int, size: int) -> None:
        self.graph = graph
        self.before = before
        self.size = size
        self.padded: dict[Value, int] = {}
        self.entries: set[Value] = set()
        self.constants: dict[tuple[Node, int], dict[int, float]] = {}
        self.groups: set[Node] = set()
        self.through: set[tuple[Node, int]] = set()

    # Planning ------------------------------------------------------------------------------------------------------

    def plan(self, value: Value, axis: int) -> None:
        waiting = [(value, axis)]
        while waiting:
            value, axis = waiting.pop()
            if value in self.padded:
                if self.padded[value] != axis:
                    raise _ImpossibleError
                continue
            self.padded[value] = axis
            waiting += self._above(value, axis)
            for user in value.users:
                for index, operand in enumerate(user.inputs):
                    if operand is value:
                        waiting += self._below(user, index, axis)

    def _above(self, value: Value, axis: int) -> list[tuple[Value, int]]:
        node = value.producer
        if node is None:
            self.entries.add(value)
            return []
        if self._weights(node, _made(node, axis)):
            return []
        through = self._handed_on(node, axis)
        if through is None:
            self.entries.add(value)
            return []
        return self._follow(node, through)

    def _below(self, user: Node, index: int, axis: int) -> list[tuple[Value, int]]:
        if index == 0 and self._weights(user, _read(user, axis)):
            return []
        result = self._result_axis(user, index, axis)
        through = None if result is None else self._handed_on(user, result)
        if result is None or through is None or through.data.get(index) != axis:
            return []
        return [(user.output, result)]

    def _weights(self, node: Node, wanted: Mapping[int, int] | None) -> bool:
        """Plan zeros for weights; tell whether the node is a product with constant weights."""
        if wanted is None:
            return False
        operands = [(index, axis, node.optional_operand(index)) for index, axis in wanted.items()]
        if not all(v is None or self._can_be_padded(v, axis, index) for index, axis, v in operands):
            return False
        for index, axis, value in operands:
            shape = () if value is None else value.static_shape or ()
            if shape and shape[axis] == self.before:
                self._pad_constant(node, index, axis % len(shape), 0)
        return True

    def _can_be_padded(self, value: Value, axis: int, index: int) -> bool:
        shape = value.static_shape
        if shape is None or not (value.const is not None or _is_dequantized(value)):
            return False
        return not shape or shape[axis] == self.before or (shape[axis] == 1 and index > 1)

    def _pad_constant(self, node: Node, index: int, axis: int, fill: float) -> None:
        self.constants.setdefault((node, index), {})[axis] = fill

    def _follow(self, node: Node, through: _Through) -> list[tuple[Value, int]]:
        for index, (axis, fill) in through.constants.items():
            self._pad_constant(node, index, axis, fill)
        if through.group:
            self.groups.add(node)
        self.through |= {(node, index) for index in through.data}
        return [(node.operand(index), axis) for index, axis in through.data.items()]

    def _handed_on(self, node: Node, axis: int) -> _Through | None:
        """Return how the channels of a node's result are those of its operands; None if they are not."""
        if node.domain or len(node.used_outputs()) != 1 or node.bodies:
            return None
        if _is_finite_at_zero(node) or node.op == "Div":
            return self._elementwise(node, axis)
        if is_structural(node) or (has_trait(node, "pool") and axis == 1):
            return _Through({0: axis})
        if node.op == "BatchNormalization" and axis == 1:
            return _Through({0: 1}, {1: (0, 0), 2: (0, 0), 3: (0, 0), 4: (0, 1)})
        if node.op == "Conv" and axis == 1 and self._is_depthwise(node):
            bias = {2: (0, 0.0)} if node.optional_operand(2) is not None else {}
            known = all(v is None or v.const is not None or _is_dequantized(v) for v in node.inputs[1:])
            return _Through({0: 1}, {1: (0, 0), **bias}, group=True) if known else None
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            return self._quantizing(node, axis)
        if has_trait(node, "view") and self._keeps_channels(node, axis):
            return _Through({0: axis})
        if node.op == "Transpose":
            order = attribute(node, "perm") or list(range(node.output.rank or 0))[::-1]
            return _Through({0: order[axis]})
        return None

    def _result_axis(self, node: Node, index: int, axis: int) -> int | None:
        operand = node.operand(index)
        if node.op == "Transpose":
            order = attribute(node, "perm") or list(range(operand.rank or 0))[::-1]
            return list(order).index(axis)
        if not node.outputs or node.output.rank is None or operand.rank is None:
            return None
        if _is_finite_at_zero(node) or node.op == "Div":
            return axis + node.output.rank - operand.rank
        return axis

    def _elementwise(self, node: Node, axis: int) -> _Through | None:
        rank = node.output.rank
        if rank is None:
            return None
        data, constants = {}, {}
        for index, operand in enumerate(node.inputs):
            if operand is None or (node.op == "Clip" and index):
                continue
            if operand.shape is None:
                return None
            own = axis - rank + len(operand.shape)
            dim = operand.shape[own] if own >= 0 else 1
            if dim == 1:
                continue
            if dim != self.before or (node.op == "Div" and index and operand.const is None):
                return None
            if operand.const is not None or (_is_dequantized(operand) and node.op != "Div"):
                constants[index] = own, 1.0 if node.op == "Div" else 0.0
            else:
                data[index] = own
        return _Through(data, constants)

    def _quantizing(self, node: Node, axis: int) -> _Through | None:
        if node.operand(0).const is not None or any(v is not None and v.const is None for v in node.inputs[1:]):
            return None
        constants = {}
        for index, fill in ((1, 1.0), (2, 0.0)):
            operand = node.optional_operand(index)
            if operand is not None and operand.rank == 1 and operand.shape == (self.before,):
                if attribute(node, "axis") != axis:
                    return None
                constants[index] = 0, fill
            elif operand is not None and operand.rank:
                return None
        return _Through({0: axis}, constants)

    def _is_depthwise(self, node: Node) -> bool:
        weight = node.operand(1).static_shape
        return attribute(node, "group") == self.before and weight is not None and weight[:2] == (self.before, 1)

    def _keeps_channels(self, node: Node, axis: int) -> bool:
        """Tell whether a change of shape only takes away or adds ones behind the channels, or changes nothing else."""
        before, after = node.operand(0).shape, node.output.shape
        if before is None or after is None or len(before) <= axis or len(after) <= axis:
            return False
        same = before[: axis + 1] == after[: axis + 1] and before[axis] == self.before
        ones = all(dim == 1 for dim in (*before[axis + 1 :], *after[axis + 1 :]))
        return same and ones and (node.op != "Reshape" or node.const(1) is not None)

    def reached(self, node: Node) -> bool:
        """Tell whether the product itself gets more channels, not only what is around it."""
        return any(own is node for own, _ in self.constants) or node in self.groups

    # Changing ------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Change the graph as planned."""
        readers = {value: set(self._readers(value)) for value in self.padded}
        for (node, index), axes in self.constants.items():
            self.graph.set_input(node, index, self._larger(node.operand(index), axes))
        for node in self.groups:
            node.attrs["group"] = self.size
        for value, axis in self.padded.items():
            if value in self.entries:
                larger = self._pad(value, axis)
                for node, index in readers[value]:
                    self.graph.set_input(node, index, larger)
            else:
                value.type = _with_size(value, axis, self.size)
                self._slice(value, axis, readers[value])
                if value.producer is not None and value.producer.op == "Reshape":
                    self._reshape(value.producer, axis)

    def _readers(self, value: Value) -> Iterator[tuple[Node, int]]:
        """Yield the users that know of the further channels."""
        for user in value.users:
            for index, operand in enumerate(user.inputs):
                read = _read(user, self.padded[value]) if index == 0 and operand is value else None
                weights = read is not None and read[1] in self.constants.get((user, 1), ())
                if operand is value and (weights or (user, index) in self.through):
                    yield user, index

    def _larger(self, value: Value, axes: Mapping[int, float]) -> Value:
        """Return a constant with more channels, or what dequantises one."""
        if value.const is not None:
            array = value.const
            for axis, fill in axes.items():
                array = _padded(array, axis, self.size, fill)
            return self.graph.add_const(array, value.name)
        node = value.producer
        assert node is not None, value
        weight, scale, point = (node.const(index) for index in range(3))
        assert weight is not None, value
        assert scale is not None, value
        along = int(attribute(node, "axis") or 0) % max(weight.ndim, 1)
        for axis in axes:
            weight = _padded_with_zeros(weight, axis, self.size, point, along)
            if axis == along:
                scale = _padded(scale, 0, self.size, 1) if scale.ndim else scale
                point = _padded(point, 0, self.size, 0) if point is not None and point.ndim else point
        operands = [self.graph.add_const(array) for array in (weight, scale, point) if array is not None]
        return self.graph.add(
            node.op, operands, node.attrs, version=node.version, outputs=[self.graph.fresh(value.name)], at=node
        ).output

    def _pad(self, value: Value, axis: int) -> Value:
        """Add a Pad behind a value."""
        rank = value.rank or 0
        pads = [0] * (2 * rank)
        pads[rank + axis] = self.size - self.before
        name = f"{value.name}/pad"
        if self.graph.opsets.get("", 13) >= 11:
            amounts = self.graph.add_const(np.array(pads, np.int64))
            return self.graph.add("Pad", [value, amounts], sources=[name]).output
        return self.graph.add("Pad", [value], {"pads": pads}, sources=[name]).output

    def _slice(self, value: Value, axis: int, inside: set[tuple[Node, int]]) -> None:
        """Let users that do not know of further channels read a Slice."""
        outside = [
            (user, index) for user in list(value.users) for index, operand in enumerate(user.inputs)
            if operand is value and (user, index) not in inside
        ]  # fmt: skip
        is_output = self.graph.is_output(value)
        if not outside and not is_output:
            return
        name = f"{value.name}/slice"
        if self.graph.opsets.get("", 13) >= 10:
            ends = [self.graph.add_const(np.array([n], np.int64)) for n in (0, self.before, axis)]
            narrow = self.graph.add("Slice", [value, *ends], sources=[name]).output
        else:
            attrs = {"starts": [0], "ends": [self.before], "axes": [axis]}
            narrow = self.graph.add("Slice", [value], attrs, sources=[name]).output
        for user, index in outside:
            self.graph.set_input(user, index, narrow)
        if is_output:
            outputs = [narrow if v is value else v for v in self.graph.outputs]
            self.graph.set_outputs(outputs, self.graph.output_names)

    def _reshape(self, node: Node, axis: int) -> None:
        shape = node.const(1)
        assert shape is not None, node
        if shape[axis] == self.before:
            wider = shape.copy()
            wider[axis] = self.size
            self.graph.set_input(node, 1, self.graph.add_const(wider))


def _made(node: Node, axis: int) -> Mapping[int, int] | None:
    """Return the axes of the constants of a product that make its result's channels; None if it is no product."""
    if node.domain:
        return None
    if node.op == "Conv" and axis == 1 and attribute(node, "group") == 1:
        return {1: 0, 2: 0}
    if node.op == "Gemm" and axis == 1:
        return {1: 0 if attribute(node, "transB") else 1, 2: -1}
    if node.op == "MatMul" and node.operand(1).rank == 2 and axis == (node.output.rank or 0) - 1:
        return {1: 1}
    return None


def _read(node: Node, axis: int) -> Mapping[int, int] | None:
    """Return the axes of the constants of a product that its first operand's channels are multiplied by."""
    if node.domain:
        return None
    if node.op == "Conv" and axis == 1 and attribute(node, "group") == 1:
        return {1: 1}
    if node.op == "Gemm" and axis == 1 and not attribute(node, "transA"):
        return {1: 1 if attribute(node, "transB") else 0}
    if node.op == "MatMul" and node.operand(1).rank == 2 and axis == (node.operand(0).rank or 0) - 1:
        return {1: 0}
    return None


def _is_dequantized(value: Value) -> bool:
    node = value.producer
    return node is not None and node.op == "DequantizeLinear" and all(v is None or v.is_const for v in node.inputs)


def _with_size(value: Value, axis: int, size: int) -> TensorType:
    assert isinstance(value.type, TensorType)
    shape = value.type.shape
    assert shape is not None
    return TensorType(value.type.dtype, (*shape[:axis], size, *shape[axis + 1 :]))


def _padded(array: np.ndarray, axis: int, size: int, fill: float) -> np.ndarray:
    amounts = [(0, 0)] * array.ndim
    amounts[axis] = (0, size - array.shape[axis])
    return np.pad(array, amounts, constant_values=np.asarray(fill, array.dtype))


def _padded_with_zeros(array: np.ndarray, axis: int, size: int, point: np.ndarray | None, along: int) -> np.ndarray:
    """Return a quantised array with further elements that stand for zero."""
    more = list(array.shape)
    more[axis] = size - array.shape[axis]
    zeros: np.ndarray = np.zeros(more, array.dtype)
    if point is not None and not point.ndim:
        zeros += point
    elif point is not None and axis != along:
        zeros += point.reshape([-1 if i == along else 1 for i in range(array.ndim)])
    return np.concatenate([array, zeros], axis)
