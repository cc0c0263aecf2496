"""What a row of the table is: one node with its operands, and how exactly its results must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.ops.harness import tensor_type

OPSET = 21
IR_VERSION = 10


class Const:
    """Marks an operand as an initializer of the model."""

    def __init__(self, value: Any, dtype: str = "float32") -> None:
        self.array = value if isinstance(value, np.ndarray) else np.array(value, dtype)


Operand = np.ndarray | Const | Sequence[np.ndarray] | Mapping[Any, Any] | None


@dataclass(frozen=True)
class Case:
    """One node with its operands, and how exactly it must agree.

    Attributes:
        op: The operator.
        operands: Arrays, lists for sequences, maps, or None where one is absent. A :class:`Const` is an initializer.
        attrs: Its attributes.
        opset: The version of its domain.
        outputs: How many results are asked for.
        rtol: What results may differ by, relatively.
        atol: What they may differ by, absolutely.
        of_largest: Allows differences of that share of the largest result, as sums of many products need it.
        onnxruntime: Whether onnxruntime is a witness; onnx's reference is one in any case.
        reference: Whether onnx's reference is a witness.
        domain: The domain of the operator.
        left_out: Results that have no name.
        host: A part of the reason why the C target leaves the node to the host; empty if it does not.
        refused: A pattern that the error matches; empty if the node is right. The C target, which knows sizes by their
            names alone, may say in other words what does not fit.
    """

    op: str
    operands: Sequence[Operand]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = OPSET
    outputs: int = 1
    rtol: float = 1e-5
    atol: float = 1e-6
    of_largest: float = 0.0
    onnxruntime: bool = True
    reference: bool = True
    domain: str = ""
    left_out: Sequence[int] = ()
    host: str = ""
    refused: str = ""

    def __str__(self) -> str:
        """Name the case for pytest."""
        parts = [self.op, str(self.opset)] if self.opset != OPSET else [self.op]
        for operand in self.operands:
            array = operand.array if isinstance(operand, Const) else operand
            if isinstance(array, np.ndarray):
                text = f"{array.dtype.name}{'x'.join(map(str, array.shape))}".replace("float32", "f").replace(
                    "int64", "i"
                )
                if array.dtype.kind in "iufb" and (array.size == 1 or (array.dtype == np.int64 and array.size <= 5)):
                    text += f"({','.join(map(str, array.ravel()))})"
            else:
                text = "absent" if array is None else type(array).__name__
            parts.append(f"{text}=" if isinstance(operand, Const) else text)
        parts += [f"{k}={v.name if isinstance(v, onnx.GraphProto) else v}" for k, v in self.attrs.items()]
        return " ".join(parts).replace("[", "(").replace("]", ")").replace("\n", " ")

    @property
    def feeds(self) -> dict[str, Any]:
        """What a run is given."""
        return {f"x{i}": x for i, x in enumerate(self.operands) if x is not None and not isinstance(x, Const)}

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """The initializers."""
        return {f"x{i}": x.array for i, x in enumerate(self.operands) if isinstance(x, Const)}

    def model(self) -> onnx.ModelProto:
        """Return the node as a model."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.operands)]
        results = ["" if i in self.left_out else f"y{i}" for i in range(self.outputs)]
        attrs = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in self.attrs.items()}
        node = helper.make_node(self.op, names, results, name="node", domain=self.domain, **attrs)
        opset = {self.domain: self.opset} if self.domain else {}
        return make_model(
            [node], self.feeds, self.constants, results, OPSET if self.domain else self.opset, domains=opset
        )


def make_model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Any],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    opset: int = OPSET,
    symbolic: Mapping[str, Sequence[Any]] | None = None,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Return a model whose inputs have the types of ``feeds`` (or the shapes in ``symbolic``)."""
    infos = [helper.make_value_info(n, _type(x, (symbolic or {}).get(n))) for n, x in feeds.items()]
    graph = helper.make_graph(
        list(nodes),
        "g",
        infos,
        [helper.make_empty_tensor_value_info(n) for n in outputs if n],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _type(x: Any, shape: Sequence[Any] | None) -> onnx.TypeProto:
    """Return the type of a feed."""
    if isinstance(x, np.ndarray):
        return helper.make_tensor_type_proto(tensor_type(x), x.shape if shape is None else shape)
    if isinstance(x, Mapping):
        keys, values = map(np.array, (list(x), [*x.values()]))
        code = onnx.TensorProto.STRING if keys.dtype.kind == "U" else onnx.TensorProto.INT64
        return helper.make_map_type_proto(code, helper.make_tensor_type_proto(_code(values), None))
    if x and isinstance(x[0], Mapping):
        return helper.make_sequence_type_proto(_type(x[0], None))
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(tensor_type(x[0]), None))


def _code(values: np.ndarray) -> int:
    if values.dtype.kind == "U":
        return int(onnx.TensorProto.STRING)
    return int(onnx.TensorProto.INT64 if values.dtype.kind == "i" else onnx.TensorProto.FLOAT)
