"""Define the LSTM that onnxruntime's dynamic quantisation writes by operators of ONNX: a Scan of integer products."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.frontend.definition_body import Body, shape_of
from tinycomp.frontend.extension import Extensions, Optional, Results, covered
from tinycomp.ir.graph import Graph, Value
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types

EXTENSIONS = Extensions("com.microsoft")
defines = EXTENSIONS.defines
_DIRECTIONS = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
"""By the attribute, whether each direction reads backwards."""
_USUAL = ("sigmoid", "tanh", "tanh")


@defines("DynamicQuantizeLSTM", since=17)
def _dynamic_quantize_lstm(
    b: Body,
    x: Value,
    w: Value,
    r: Value,
    bias: Optional,
    lengths: Optional,
    hidden: Optional,
    cell: Optional,
    peepholes: Optional,
    w_scale: Value,
    w_point: Value,
    r_scale: Value,
    r_point: Value,
    *,
    hidden_size: int,
    direction: str = "forward",
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float = 0.0,
    input_forget: int = 0,
) -> Results:
    """Quantise the whole sequence once, and the state of all rows at every step.

    Weights are ``[directions, k, 4 * hidden_size]``, with one scale and zero point, or one per column.
    """
    covered(direction in _DIRECTIONS and hidden_size > 0)
    backwards, shape = _DIRECTIONS[direction], shape_of(r)
    covered(lengths is None and peepholes is None and not clip and not input_forget)
    covered(not activations or tuple(name.lower() for name in activations) == len(backwards) * _USUAL)
    covered(x.rank == 3 and shape == (len(backwards), hidden_size, 4 * hidden_size))
    if hidden is None or cell is None:
        batch = b("Shape", x, start=1, end=2)
        zeros = b("Expand", b.float32(0), b("Concat", b.ints(len(backwards)), batch, b.ints(hidden_size), axis=0))
        hidden, cell = (zeros if v is None else v for v in (hidden, cell))
    data = b.several(3, "DynamicQuantizeLinear", x)
    results = []
    for number, back in enumerate(backwards):
        own = [_piece(b, v, number) for v in (w, w_scale, w_point, r, r_scale, r_point, hidden, cell)]
        sums = b("MatMulInteger", data[0], own[0], None, own[2])
        share = b("ReduceSum", b("Sub", b.cast(own[0], "int32"), b.cast(own[2], "int32")), b.ints(0), keepdims=0)
        gates = b("Mul", b.cast(data[2], "int32"), share), b("Mul", data[1], own[1])
        added = [] if bias is None else [_sum_of_halves(b, _piece(b, bias, number), 4 * hidden_size)]
        results.append(_scan(b, own[6:], sums, [*gates, *own[3:6], *added], hidden_size, back))
    states, cells, steps = zip(*results, strict=True)
    return _stacked(b, steps, 1), _stacked(b, states, 0), _stacked(b, cells, 0)


def _piece(b: Body, x: Value, number: int) -> Value:
    """Return what one direction has of ``x``."""
    return b("Gather", x, b.const(number), axis=0)


def _sum_of_halves(b: Body, bias: Value, size: int) -> Value:
    """Return the sum of the biases of both products."""
    return b("Add", *(b("Slice", bias, b.ints(start), b.ints(start + size), b.ints(0)) for start in (0, size)))


def _scan(
    b: Body, states: Sequence[Value], sums: Value, captured: Sequence[Value], size: int, back: int
) -> tuple[Value, ...]:
    """Return the last hidden state, the last cell, and the hidden states of all steps of one direction.

    Args:
        b: Where to add the Scan.
        states: The first hidden state and cell, ``[batch, size]``.
        sums: Of products of the input for the gates i, o, f and c, int32 ``[steps, batch, 4 size]``.
        captured: What the input's zero point adds to the sums, and what they are worth; the recurrent weight, its scale
            and zero point, and maybe the bias.
        size: Of the hidden state.
        back: Whether to read backwards.
    """
    inner = Body(Graph("step", infer=infer_node_types, opsets=dict(b.graph.opsets)))
    batch = sums.shape[1] if sums.shape is not None else None
    hidden, cell = (inner.graph.add_input(name, TensorType("float32", (batch, size))) for name in ("hidden", "cell"))
    own = inner.graph.add_input("sums", TensorType("int32", (batch, 4 * size)))
    share, worth, weight, scale, point, *bias = (
        inner.graph.add_input(f"captured{i}", v.type) for i, v in enumerate(captured)
    )
    stored, step, zero = inner.several(3, "DynamicQuantizeLinear", hidden)
    products = inner.cast(inner("MatMulInteger", stored, weight, zero, point), "float32")
    of_input = inner("Mul", inner.cast(inner("Sub", own, share), "float32"), worth)
    gates = inner("Add", of_input, inner("Mul", products, inner("Mul", step, scale)))
    if bias:
        gates = inner("Add", gates, *bias)
    into, out, forget, fresh = inner.several(4, "Split", gates, inner.ints(*[size] * 4), axis=1)
    kept = inner("Mul", inner("Sigmoid", forget), cell)
    cell = inner("Add", kept, inner("Mul", inner("Sigmoid", into), inner("Tanh", fresh)))
    hidden = inner("Mul", inner("Sigmoid", out), inner("Tanh", cell))
    inner.graph.set_outputs([hidden, cell, inner("Identity", hidden)])
    attrs = {"num_scan_inputs": 1, "scan_input_directions": [back], "scan_output_directions": [back]}
    given = [*states, sums, *captured]
    node = b.graph.add("Scan", given, attrs, bodies={"body": inner.graph}, captures=len(captured), outputs=3)
    return node.outputs


def _stacked(b: Body, parts: Sequence[Value], axis: int) -> Value:
    """Return results with an axis for the direction."""
    return b("Concat", *(b("Unsqueeze", v, b.ints(axis)) for v in parts), axis=axis)
