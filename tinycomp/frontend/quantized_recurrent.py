"""Define the LSTM that onnxruntime's dynamic quantisation writes by an operator of tinycomp's own."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.frontend.definition_body import Body, shape_of
from tinycomp.frontend.extension import Extensions, Optional, Results, covered
from tinycomp.ir.graph import Value
from tinycomp.ops.recurrent import QUANTIZED

EXTENSIONS = Extensions("com.microsoft")
defines = EXTENSIONS.defines
_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
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
    """Cover the usual functions, and sequences that are all of one length."""
    ways = _DIRECTIONS.get(direction, 0)
    covered(ways and hidden_size > 0)
    covered(lengths is None and peepholes is None and not clip and not input_forget)
    covered(not activations or tuple(name.lower() for name in activations) == ways * _USUAL)
    covered(x.rank == 3 and shape_of(r) == (ways, hidden_size, 4 * hidden_size))
    operands = [x, w, r, w_scale, w_point, r_scale, r_point, bias, hidden, cell]
    return b.graph.add("LSTM", operands, {"direction": direction}, domain=QUANTIZED, version=1, outputs=3).outputs
