"""The rules of operators say at least what onnx's inference says, and the kernels compute what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import operator_types
from tinycomp.ir.schemas import schema, since_version
from tinycomp.ir.types import UNKNOWN, TensorType, Type
from tinycomp.ops import OPS
from tinycomp.ops.typing import infer_node_types

OPSETS = (7, 9, 13, 17, 21)
RULES = sorted(
    name for (domain, name), operator in OPS.operators.items()
    if operator.infer and not domain and name != "Upsample" and schema(name, "", since_version(name, "", OPSETS[-1]))
)  # fmt: skip
DIMS = st.sampled_from([1, 2, 3, 4, 0, "N", None])
SHAPES = st.none() | st.lists(DIMS, max_size=4)
TYPES = st.builds(TensorType, st.sampled_from(["float32", "float64", "float16", "int64", "?"]),
                  SHAPES.map(lambda s: None if s is None else tuple(s)))  # fmt: skip
PAIRS = st.lists(st.integers(1, 2), min_size=2, max_size=2)
WINDOW = {
    "strides": PAIRS, "dilations": PAIRS, "pads": st.lists(st.integers(0, 2), min_size=4, max_size=4),
    "auto_pad": st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]),
}  # fmt: skip
POOL = {**WINDOW, "kernel_shape": PAIRS, "ceil_mode": st.integers(0, 1)}
ATTRIBUTES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "AveragePool": POOL,
    "Concat": {"axis": st.integers(-4, 4)},
    **{op: {"axis": st.integers(-4, 4)} for op in ("DequantizeLinear", "QuantizeLinear")},
    "Einsum": {"equation": st.sampled_from(["ij,jk", "...ij,jk->...ik", "i,i", "...ij->...", "abc->cb"])},
    "Conv": {**WINDOW, "group": st.integers(1, 2)},
    "ConvInteger": {**WINDOW, "group": st.integers(1, 2)},
    "ConvTranspose": {**WINDOW, "group": st.integers(1, 2), "output_padding": st.sampled_from([[0, 0], [1, 0]])},
    "DepthToSpace": {"blocksize": st.integers(1, 2)},
    "SpaceToDepth": {"blocksize": st.integers(1, 2)},
    "Split": {"axis": st.integers(-4, 4)},
    "Pad": {"pads": st.lists(st.integers(-1, 2), min_size=4, max_size=4)},
    "Flatten": {"axis": st.integers(-3, 4)},
    "Gemm": {"transA": st.integers(0, 1), "transB": st.integers(0, 1)},
    "LayerNormalization": {"axis": st.integers(-3, 3)},
    "LogSoftmax": {"axis": st.integers(-3, 3)},
    "LpPool": POOL,
    "MaxPool": POOL,
    "Reshape": {"allowzero": st.integers(0, 1)},
    "Gather": {"axis": st.integers(-4, 4)},
    "Squeeze": {"axes": st.lists(st.integers(-4, 4), max_size=2)},
    "Unsqueeze": {"axes": st.lists(st.integers(-4, 4), max_size=2)},
    "Shape": {"start": st.integers(-5, 5), "end": st.integers(-5, 5)},
    **{op: {"axis": st.integers(-4, 4), "keepdims": st.integers(0, 1)} for op in ("ArgMax", "ArgMin")},
    "ReduceMean": {"axes": st.lists(st.integers(-3, 3), max_size=2), "keepdims": st.integers(0, 1)},
    "Softmax": {"axis": st.integers(-3, 3)},
    "Transpose": {"perm": st.permutations(range(4)) | st.permutations(range(3))},
}  # fmt: skip


def _node(op: str, opset: int, attrs: dict[str, Any], operands: Sequence[Value | None]) -> Node:
    node = Node(op, "", since_version(op, "", opset), tuple(operands))
    node.attrs = attrs
    node.outputs = (Value("y", UNKNOWN, node),)
    return node


def _onnx_types(node: Node) -> list[Any] | None:
    try:
        return operator_types(node)
    except TypeInferenceError:
        return None


def _rule_types(node: Node) -> list[Any] | None:
    try:
        return infer_node_types(node)
    except TypeInferenceError:
        return None


def _is_said(wanted: Type, found: Type) -> bool:
    """Tell whether ``found`` says at least what ``wanted`` says in numbers, and nothing else."""
    if not isinstance(wanted, TensorType) or not isinstance(found, TensorType):
        return wanted in (found, UNKNOWN)
    if wanted.dtype not in ("?", found.dtype):
        return False
    if wanted.shape is None or found.shape is None:
        return wanted.shape is None
    pairs = zip(wanted.shape, found.shape, strict=False)
    return len(wanted.shape) == len(found.shape) and all(not isinstance(a, int) or a == b for a, b in pairs)


def _fitting(op: str, draw: st.DrawFn) -> list[Value | None]:
    """Operands that often fit each other, so that not all nodes are refused."""
    first = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=4))
    b, c = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 4]))
    shapes: dict[str, list[list[int]]] = {
        "Conv": [[b, 4, *draw(st.tuples(*[st.integers(1, 6)] * 2))], [c * 2, 4, *draw(PAIRS)], [c * 2]],
        "ConvInteger": [[b, 4, *draw(st.tuples(*[st.integers(1, 6)] * 2))], [c * 2, 4, *draw(PAIRS)]],
        "ConvTranspose": [[b, 4, *draw(st.tuples(*[st.integers(1, 6)] * 2))], [4, c, *draw(PAIRS)]],
        "MatMul": [[*first, c], [c, b]],
        "Gemm": [[b, c], [c, 3], [3]],
        "MatMulInteger": [[*first, c], [c, b]],
        "QLinearMatMul": [[*first, c], [], [], [c, b], [b], [b], [], []],
        "BatchNormalization": [first, *[[first[1]]] * 4],
        "LayerNormalization": [first, [first[-1]], [first[-1]]],
        "Concat": [first, [*first[:-1], b]],
        "Clip": [first, [], []],
        **{name: [[b, c, *draw(st.tuples(*[st.integers(1, 6)] * 2))]] for name in ("AveragePool", "LpPool", "MaxPool")},
        **{name: [[b, 4, c * 2, 6]] for name in ("DepthToSpace", "SpaceToDepth")},
    }
    default = [first, first if draw(st.booleans()) else [1, first[-1]]][
        : schema(op, "", since_version(op, "", 21)).min_input
    ]
    blurred = st.sampled_from([None, "N"]) if draw(st.booleans()) else st.nothing()
    return [
        Value(f"x{i}", TensorType("float32", tuple(draw(st.just(d) | st.just(d) | blurred) for d in s)))
        for i, s in enumerate(shapes.get(op, default))
    ]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    op = draw(st.sampled_from(RULES))
    opset = draw(st.sampled_from(OPSETS))
    chosen = ATTRIBUTES.get(op, {})
    attrs = {
        name: draw(value)
        for name, value in chosen.items()
        if name in ("kernel_shape", "equation") or draw(st.booleans())
    }
    if op in ("Squeeze", "Unsqueeze") and opset < 11 and "axes" in attrs:
        attrs["axes"] = [axis for axis in attrs["axes"] if axis >= 0]  # onnx's inference leaves out the others there
    if attrs.get("auto_pad", "NOTSET") != "NOTSET":
        attrs.pop("pads", None)  # onnx's inference adds them, though there are none then
    if str(attrs.get("auto_pad")).startswith("SAME"):
        attrs.pop("output_padding", None)  # as these: the result is as large as the input and the strides say
    if draw(st.booleans()):
        operands = _fitting(op, draw)
    else:
        types = draw(st.lists(TYPES, max_size=6))
        operands = [Value(f"x{i}", t) if draw(st.integers(0, 9)) else None for i, t in enumerate(types)]
    if op == "Reshape" and operands and draw(st.booleans()):
        wanted = draw(st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 6, 12]), max_size=4))
        array = np.array(wanted, np.int64)
        operands = [operands[0], Value("shape", TensorType("int64", array.shape), const=array)]
    if op == "Slice" and operands and draw(st.integers(0, 3)):
        operands = [operands[0], *draw(slice_operands())]
    return _node(op, opset, attrs, operands)


@st.composite
def slice_operands(draw: st.DrawFn) -> list[Value]:
    """Starts, ends and, sometimes, axes and steps; most of them constant."""
    count, most = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    ranges = [(-6, 6), (-6, 1 << 40), (-4, 3), (-2, 3)]
    lists = [draw(st.lists(st.integers(*r), min_size=count, max_size=count)) for r in ranges[:most]]
    type_ = TensorType("int64", (count,))
    arrays = [np.array(given, np.int64) if draw(st.integers(0, 9)) else None for given in lists]
    return [Value(f"s{i}", type_, const=array) for i, array in enumerate(arrays)]


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(nodes())
def test_rules_say_what_onnx_infers(node: Node) -> None:
    found, wanted = _rule_types(node), _onnx_types(node)
    assume(found is not None and wanted is not None and schema(node.op, "", node.version) is not None)
    shown = (node.op, node.attrs, [v and str(v.type) for v in node.inputs], [str(t) for t in found or ()])
    assert all(map(_is_said, wanted or (), found or ())), shown


def _float(*sizes: int) -> Value:
    return Value("x", TensorType("float32", sizes))


def _integers(*values: int) -> Value:
    return Value("s", TensorType("int64", (len(values),)), const=np.array(values, np.int64))


PLAIN: list[tuple[str, dict[str, Any], list[Value], tuple[int, ...]]] = [
    ("Relu", {}, [_float(2, 3)], (2, 3)),
    ("Add", {}, [_float(2, 1, 3), _float(4, 1)], (2, 4, 3)),
    ("Concat", {"axis": -1}, [_float(2, 1), _float(2, 3)], (2, 4)),
    ("Conv", {"pads": [1, 1, 1, 1], "strides": [2, 2]}, [_float(1, 3, 8, 8), _float(5, 3, 3, 3)], (1, 5, 4, 4)),
    ("Gemm", {"transB": 1}, [_float(2, 3), _float(4, 3), _float(4)], (2, 4)),
    ("Flatten", {}, [_float(2, 3, 4)], (2, 12)),
    ("GlobalAveragePool", {}, [_float(2, 3, 4, 5)], (2, 3, 1, 1)),
    ("LayerNormalization", {}, [_float(2, 3), _float(3), _float(3)], (2, 3)),
    ("MatMul", {}, [_float(5, 2, 3), _float(3, 4)], (5, 2, 4)),
    ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}, [_float(1, 3, 8, 8)], (1, 3, 4, 4)),
    ("Softmax", {"axis": 1}, [_float(2, 3)], (2, 3)),
    ("Reshape", {}, [_float(2, 3, 4), Value("s", TensorType("int64", (2,)), const=np.array([0, -1]))], (2, 12)),
    ("Transpose", {"perm": [1, 2, 0]}, [_float(2, 3, 4)], (3, 4, 2)),
    ("Gather", {"axis": -1}, [_float(2, 3), Value("i", TensorType("int64", (4, 5)))], (2, 4, 5)),
    ("Slice", {}, [_float(5, 9), _integers(1, -3), _integers(9, -8), _integers(0, 1), _integers(2, -1)], (2, 5)),
    ("DequantizeLinear", {}, [Value("q", TensorType("int8", (2, 3))), _float()], (2, 3)),
]


@pytest.mark.parametrize(("op", "attrs", "operands", "sizes"), PLAIN)
def test_a_node_has_the_type_that_its_rule_says(
    op: str, attrs: dict[str, Any], operands: list[Value], sizes: tuple[int, ...]
) -> None:
    node = _node(op, 17, attrs, operands)
    assert infer_node_types(node) == _onnx_types(node) == [TensorType("float32", sizes)]
