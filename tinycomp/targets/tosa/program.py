"""TOSA programs: operators on named tensors, as the specification's version 1.0 has them, before they become a file.

A program knows nothing of ONNX. Names of operators and of their attributes are those of the specification and of its
flatbuffer schema; dtypes are numpy's, and ``"shape"`` is a constant list of sizes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.ops.numeric import Array
from tinycomp.records import dataclass, field

VERSION = (1, 0, 0)
"""The version of the specification that programs keep to: the one that Vela reads."""
SHAPE = "shape"


@dataclass(frozen=True)
class Tensor:
    """Name a tensor, or a list of sizes.

    Attributes:
        name: Its name in the program.
        shape: Its sizes; the number of sizes for a list of them.
        dtype: int8, int16, int32, float32, bool, or ``"shape"``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Operator:
    """Hold one operator.

    Attributes:
        op: Such as ``CONV2D``.
        inputs: Names of its operands.
        output: Name of its result.
        attributes: As the schema names them; enumerations by the names of their members.
        source: Where in the model it comes from.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass
class Program:
    """Collect the operators of one region in order.

    Attributes:
        tensors: By name.
        constants: The contents of those that are constant.
        operators: What computes the others.
        inputs: Names of the operands.
        outputs: Names of the results.
        source: Where the operators come from that are added next.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    source: str = ""
    _known: dict[tuple[str, tuple[int, ...], bytes], Tensor] = field(default_factory=dict, repr=False)

    def add_input(self, shape: Sequence[int], dtype: str) -> Tensor:
        """Add an operand."""
        tensor = self._declare("input", shape, dtype)
        self.inputs.append(tensor.name)
        return tensor

    def add_output(self, tensor: Tensor) -> None:
        """Make a tensor a result; what is one already, or is an operand or constant, is copied."""
        if tensor.name in (*self.inputs, *self.outputs, *self.constants):
            tensor = self.add("IDENTITY", [tensor], tensor.shape, tensor.dtype)
        self.outputs.append(tensor.name)

    def const(self, array: Array) -> Tensor:
        """Return a constant tensor with the elements of an array; equal ones are one."""
        return self._constant(array, array.dtype.name)

    def sizes(self, values: Sequence[int]) -> Tensor:
        """Return a constant list of sizes."""
        return self._constant(np.array(values, np.int64).reshape(-1), SHAPE)

    def add(self, op: str, inputs: Sequence[Tensor], shape: Sequence[int], dtype: str, /, **attributes: Any) -> Tensor:
        """Add an operator and return its result, which has this shape and dtype."""
        result = self._declare(op.lower(), shape, dtype)
        self.operators.append(Operator(op, tuple(t.name for t in inputs), result.name, attributes, self.source))
        return result

    def _constant(self, array: Array, dtype: str) -> Tensor:
        key = (dtype, array.shape, array.tobytes())
        if key not in self._known:
            tensor = self._known[key] = self._declare("const", array.shape, dtype)
            self.constants[tensor.name] = array
        return self._known[key]

    def _declare(self, kind: str, shape: Sequence[int], dtype: str) -> Tensor:
        tensor = Tensor(f"{kind}_{len(self.tensors)}", tuple(int(size) for size in shape), dtype)
        self.tensors[tensor.name] = tensor
        return tensor

    def to_arrays(self) -> dict[str, Array]:
        """Return the program as arrays by name: the constants, and under ``""`` everything else as JSON."""
        text = json.dumps({
            "version": VERSION,
            "tensors": [[t.name, list(t.shape), t.dtype] for t in self.tensors.values()],
            "operators": [[o.op, list(o.inputs), [o.output], dict(o.attributes)] for o in self.operators],
            "inputs": self.inputs,
            "outputs": self.outputs,
        })  # fmt: skip
        return {"": np.frombuffer(text.encode(), np.uint8), **self.constants}

    def __str__(self) -> str:
        """Return one line per operator."""
        return "\n".join(
            f"{o.output}: {t.dtype}{list(t.shape)} = {o.op}({', '.join(o.inputs)})"
            + "".join(f" {name}={value}" for name, value in o.attributes.items())
            for o in self.operators
            for t in [self.tensors[o.output]]
        )
