"""Making the models of the corpus: single nodes, and short graphs in ONNX's textual form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

NUMBER = {name.lower(): number for name, number in TensorProto.DataType.items()} | {
    "float32": TensorProto.FLOAT, "f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL,
}  # fmt: skip


def one(op: str, *operands: Any, outputs: int = 1, opset: int = 21, domain: str = "", **attrs: Any) -> onnx.ModelProto:
    """Return a model of one node ``n``.

    Args:
        op: Operator.
        *operands: ``"f[2,N]"`` for an input (``f``, ``i``, ``b`` or a dtype; inputs are called ``a``, ``b``, … by their
            position), an array for an initializer, None for an absent operand.
        outputs: Number of results ``y``, ``y1``, ….
        opset: Opset version of the domain.
        domain: Domain of the operator.
        **attrs: Attributes.
    """
    names = [None if o is None else "abcdefgh"[i] for i, o in enumerate(operands)]
    results = ["y", *(f"y{i}" for i in range(1, outputs))]
    node = helper.make_node(op, [n or "" for n in names], results, "n", domain=domain, **attrs)
    pairs = list(zip(names, operands, strict=True))
    return graph(
        [node],
        inputs=[info(n, o) for n, o in pairs if isinstance(o, str)],
        outputs=[helper.make_empty_tensor_value_info(r) for r in results],
        initializers=[numpy_helper.from_array(o, n) for n, o in pairs if isinstance(o, np.ndarray)],
        opset=opset,
        domain=domain,
    )


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 21,
    domain: str = "",
) -> onnx.ModelProto:
    """Return a model; nothing about it is checked."""
    proto = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    imports = {"": opset} | ({domain: opset} if domain else {})
    return helper.make_model(
        proto, opset_imports=[helper.make_opsetid(d, v) for d, v in imports.items()], ir_version=10
    )


def info(name: str, text: str) -> onnx.ValueInfoProto:
    """Return the declaration of a value, ``text`` being for example ``"f[2,N]"``."""
    dtype, _, dims = text.rstrip("]").partition("[")
    shape = [int(d) if d.lstrip("-").isdigit() else d for d in dims.split(",")] if dims else []
    return helper.make_tensor_value_info(name, NUMBER[dtype], shape)


def text(body: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """Parse ``body``, the text of a model without its header; nothing about it is checked."""
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{body}')


def relu() -> onnx.ModelProto:
    """Return a valid model to break: ``y = Relu(x)``, float[2, 3]."""
    return text("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")


def ints(*values: int) -> np.ndarray:
    """Return an int64 vector."""
    return np.array(values, np.int64)


def floats(*shape: int) -> np.ndarray:
    """Return float32 ones of a shape."""
    return np.ones(shape, np.float32)


def scalar(value: float, dtype: type = np.float32) -> np.ndarray:
    """Return an array without dimensions."""
    return np.array(value, dtype)
