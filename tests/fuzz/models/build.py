"""Building a valid model node by node, with what is known of the values on the way.

Every value has a bound of its magnitude and, as long as all arithmetic on the way to it is exact, a step that it is a
multiple of. Operators that jump (comparisons, roundings, ArgMax, conversions to integers) are given exact values only:
behind a jump, two right answers that differ in their last bit would be worlds apart. Exact values may well be ties.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

MOST_ELEMENTS = 30_000
TAME = 64.0
"""A value of larger magnitude is scaled down before anything else is computed from it."""
DIGITS = {"float32": 22, "float64": 50, "float16": 9, "bfloat16": 6}
"""Bits of a fraction, less two: what sums of multiples of one step may need."""
FLOATS = tuple(DIGITS)
CODES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
NAMES = {code: name for name, code in CODES.items()}
_NUMPY = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


class UnsuitableError(Exception):
    """An operator cannot be added with these operands; nothing has been added."""


def numpy_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of a name."""
    return _NUMPY.get(name) or np.dtype(name)


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the model under construction.

    Attributes:
        name: Its name.
        dtype: Its dtype, as numpy calls it.
        shape: Its sizes in the run that is intended; a symbolic one counts as what it will be.
        bound: Its largest magnitude.
        step: What it is a multiple of; 0 if roundings have happened.
        fixed: Whether it is an initializer.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bound: float
    step: float = 0.0
    fixed: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether it holds floats."""
        return self.dtype in DIGITS

    @property
    def exact(self) -> bool:
        """Whether no rounding has happened on the way to it."""
        return not self.is_float or self.step > 0


@dataclass
class Builder:
    """A graph under construction: the model, or a body in it.

    Attributes:
        rng: Chooses.
        arrays: Fills arrays.
        opset: Version of ONNX's operators.
        outer: The graph around a body; its values can be captured.
    """

    rng: random.Random
    arrays: np.random.Generator
    opset: int
    outer: Builder | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    names: list[int] = field(default_factory=lambda: [0])

    # Values ----------------------------------------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """Return a name that no graph of the model has."""
        self.names[0] += 1
        return f"{stem}{self.names[0]}"

    def input(self, dtype: str, shape: Sequence[int]) -> Value:
        """Add a graph input, with a feed."""
        array, bound, step = self.sample(dtype, shape)
        value = Value(self.fresh("x"), dtype, tuple(shape), bound, step)
        self.inputs.append(value)
        self.values.append(value)
        self.feeds[value.name] = array
        return value

    def sample(self, dtype: str, shape: Sequence[int]) -> tuple[np.ndarray, float, float]:
        """Return random numbers with their bound and step: quarters, or any floats."""
        kind = numpy_dtype(dtype)
        if dtype == "bool":
            return self.arrays.integers(0, 2, shape).astype(bool), 1.0, 1.0
        if dtype not in DIGITS:
            low = 0 if dtype.startswith("u") else -8
            return self.arrays.integers(low, 9, shape).astype(kind), 8.0, 1.0
        if self.rng.random() < 0.6:
            return (self.arrays.integers(-12, 13, shape) / 4).astype(kind), 3.0, 0.25
        return np.clip(self.arrays.standard_normal(shape), -3, 3).astype(kind), 3.0, 0.0

    def constant(self, array: Any, bound: float | None = None, step: float = 0.0) -> Value:
        """Add an initializer, or now and then a Constant node; a list of integers becomes int64."""
        array = np.asarray(array, np.int64 if isinstance(array, (list, tuple, int)) else None)
        name = self.fresh("c")
        tensor = numpy_helper.from_array(array, name)
        if self.rng.random() < 0.1 or (self.outer is not None and self.rng.random() < 0.5):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        largest = float(np.abs(array.astype(np.float64)).max(initial=0.0)) if bound is None else bound
        exact = step if array.dtype.name in DIGITS else 1.0
        return Value(name, array.dtype.name, array.shape, largest, exact, fixed=True)

    def weights(self, dtype: str, shape: Sequence[int], scale: float = 1.0) -> Value:
        """Add random constants; ``scale``, a power of two, makes them smaller or larger."""
        array, bound, step = self.sample(dtype, shape)
        return self.constant((array * numpy_dtype(dtype).type(scale)).astype(array.dtype), bound * scale, step * scale)

    def visible(self) -> list[Value]:
        """Return the values that a new node may read, the latest last."""
        return ([] if self.outer is None else self.outer.visible()) + self.values

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value:
        """Return a value that fits, a late one rather than an early one, scaled down if it has grown large.

        Raises:
            UnsuitableError: If there is none.
        """
        fitting = [v for v in self.visible() if fits(v)]
        if not fitting:
            raise UnsuitableError
        near = fitting[-3:] if self.rng.random() < 0.7 else fitting
        return self.tamed(self.rng.choice(near))

    def pick_float(self, fits: Callable[[Value], bool] = lambda v: True, dtypes: Iterable[str] = FLOATS) -> Value:
        """Return a value of floats that fits."""
        return self.pick(lambda v: v.dtype in dtypes and fits(v))

    def tamed(self, value: Value) -> Value:
        """Return ``value`` times a power of two that makes its magnitude small."""
        if not value.is_float or value.bound <= TAME:
            return value
        scale = 2.0 ** -math.ceil(math.log2(value.bound / 4))
        factor = self.constant(np.array(scale, numpy_dtype(value.dtype)), scale, scale)
        return self.add("Mul", [value, factor], bound=value.bound * scale, step=value.step * scale)

    # Nodes -----------------------------------------------------------------------------------------------------------

    def add(self, op: str, operands: Sequence[Value | None], **options: Any) -> Value:
        """Add a node with one result: see :meth:`add_all`."""
        return self.add_all(op, operands, **options)[0]

    def add_all(
        self, op: str, operands: Sequence[Value | None], *, bound: float, step: float = 0.0, outputs: int = 1,
        **attrs: Any,
    ) -> list[Value]:  # fmt: skip
        """Add a node whose results have a bound and a step.

        Raises:
            UnsuitableError: If onnx finds the node wrong, cannot say the shapes, or the results are large.
        """
        while operands and operands[-1] is None:
            operands = operands[:-1]
        names = [self.fresh("v") for _ in range(outputs)]
        node = helper.make_node(op, ["" if v is None else v.name for v in operands], names, self.fresh(op), **attrs)
        found = [self._value(t, n, bound, step) for n, t in zip(names, self._infer(node, operands), strict=True)]
        self.nodes.append(node)
        self.values += found
        return found

    def _infer(self, node: onnx.NodeProto, operands: Sequence[Value | None]) -> list[onnx.TypeProto]:
        given = [v for v in operands if v is not None]
        types = {v.name: helper.make_tensor_type_proto(CODES[v.dtype], v.shape) for v in given}
        data = {t.name: t for t in self._tensors() if t.name in types and t.data_type == CODES["int64"]}
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, "")
            found = shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10
            )
            return [found[name] for name in node.output]
        except (onnx.defs.SchemaError, shape_inference.InferenceError, KeyError) as error:
            raise UnsuitableError(str(error)) from error

    def _tensors(self) -> Iterable[onnx.TensorProto]:
        yield from self.initializers
        yield from (n.attribute[0].t for n in self.nodes if n.op_type == "Constant")

    def _value(self, found: onnx.TypeProto, name: str, bound: float, step: float) -> Value:
        tensor = found.tensor_type
        if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
            raise UnsuitableError(f"no shape for {name}")
        shape = tuple(d.dim_value for d in tensor.shape.dim)
        if math.prod(shape) > MOST_ELEMENTS or not all(d > 0 for d in shape) or not math.isfinite(bound):
            raise UnsuitableError(f"shape {shape}")
        dtype = NAMES.get(tensor.elem_type)
        if dtype is None:
            raise UnsuitableError(f"type {tensor.elem_type}")
        return Value(name, dtype, shape, bound, _checked_step(dtype, bound, step))

    def attempt(self, family: Callable[[Builder], object]) -> bool:
        """Let a family add nodes; if it finds nothing suitable, all is as before."""
        counts = len(self.nodes), len(self.inputs), len(self.initializers), len(self.values)
        feeds = dict(self.feeds)
        try:
            family(self)
        except UnsuitableError:
            for items, count in zip((self.nodes, self.inputs, self.initializers, self.values), counts, strict=True):
                del items[count:]
            self.feeds = feeds
            return False
        return True

    def body(self) -> Builder:
        """Return a builder for a body that captures values of this graph."""
        return Builder(self.rng, self.arrays, self.opset, self, feeds=self.feeds, names=self.names)

    def graph(self, name: str, outputs: Sequence[Value], inputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
        """Return the graph."""
        results = [helper.make_tensor_value_info(v.name, CODES[v.dtype], None) for v in outputs]
        return helper.make_graph(self.nodes, name, list(inputs), results, self.initializers)


def _checked_step(dtype: str, bound: float, step: float) -> float:
    """Return ``step`` if multiples of it up to ``bound`` can be held without rounding, else 0."""
    if dtype not in DIGITS:
        return 1.0
    return step if step and bound / step <= 2.0 ** DIGITS[dtype] else 0.0


def renamed(value: Value, name: str) -> Value:
    """Return ``value`` under another name."""
    return dataclasses.replace(value, name=name)
