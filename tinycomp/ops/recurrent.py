"""RNN, GRU and LSTM: one matrix product for the inputs of all time steps, then one small one per step.

Inside, everything is (time, batch, …) and runs forward; a reversed direction reverses each sequence within its own
length. Source: ONNX operator documentation of RNN, GRU and LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, did_you_mean
from tinycomp.ir.graph import Node
from tinycomp.memory.budget import check_time, current
from tinycomp.ops.numeric import Array, compute_dtype, node_shape, quiet
from tinycomp.ops.quantize import dynamic_quantize_linear
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.records import dataclass
from tinycomp.symbolic import Size, product

FAMILY = OpFamily("recurrent")
QUANTIZED = "tinycomp.quantized"
"""The domain of tinycomp's own LSTM, of quantised weights."""
Activation = Callable[[Array], Array]


def _sigmoid(x: Array) -> Array:
    # The tanh form neither overflows nor needs a case distinction.
    return np.asarray(0.5 * np.tanh(0.5 * x) + x.dtype.type(0.5))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


# Name -> (function of x, alpha, beta; default alpha; default beta). None: the function has no such parameter.
_ACTIVATIONS: dict[str, tuple[Callable[[Array, Any, Any], Array], float | None, float | None]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: _sigmoid(x), None, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, a, b: _softplus(x), None, None),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, 0), 1.0, None),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)), 1.0, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
}


@dataclass(frozen=True)
class Resolved:
    """An activation with its parameters.

    Attributes:
        name: In lower case.
        alpha: Its alpha, or None if it has none.
        beta: Its beta, or None if it has none.
    """

    name: str
    alpha: float | None
    beta: float | None


def resolve_activations(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Resolved]:
    """Return the functions with their parameters; alphas and betas go, in order, to the functions that take one."""
    alpha_left, beta_left = iter(alphas or ()), iter(betas or ())
    resolved = []
    for name in names:
        _, alpha, beta = _ACTIVATIONS[name.lower()]
        a = None if alpha is None else next(alpha_left, alpha)
        b = None if beta is None else next(beta_left, beta)
        resolved.append(Resolved(name.lower(), a, b))
    return resolved


def make_activations(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None, clip: float | None
) -> list[Activation]:
    """Return functions that clip and activate, with their parameters as :func:`resolve_activations` finds them."""
    return [_activation(r, clip) for r in resolve_activations(names, alphas, betas)]


def _activation(resolved: Resolved, clip: float | None) -> Activation:
    function = _ACTIVATIONS[resolved.name][0]

    def apply(x: Array) -> Array:
        clipped = x if not clip else np.clip(x, -clip, clip)
        return function(clipped, resolved.alpha, resolved.beta).astype(x.dtype, copy=False)

    return apply


Step = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]


@dataclass(frozen=True)
class Problem:
    """The checked operands of one recurrent node, time first, in the computing dtype.

    Attributes:
        x: (time, batch, input).
        w: (directions, gates * hidden, input).
        r: (directions, gates * hidden, hidden).
        b: (directions, 2 * gates * hidden): input biases, then recurrent ones.
        lengths: (batch,) valid steps of each sequence.
        states: Initial states, each (directions, batch, hidden).
        reverse: Per direction, whether it runs backwards.
        hidden: Hidden size.
    """

    x: Array
    w: Array
    r: Array
    b: Array
    lengths: Array
    states: tuple[Array, ...]
    reverse: tuple[bool, ...]
    hidden: int


_REVERSE = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _prepare(
    op: str,
    gates: int,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    states: Sequence[Array | None],
    direction: str,
    layout: int,
) -> Problem:
    reverse = _REVERSE[direction]
    time_first = x.swapaxes(0, 1) if layout else x
    steps, batch = time_first.shape[:2]
    hidden, ways = r.shape[2], len(reverse)
    dtype = compute_dtype(x.dtype)
    bias = np.zeros((ways, 2 * gates * hidden), dtype=dtype) if b is None else b
    initial = [_initial_state(s, ways, batch, hidden, layout) for s in states]
    return Problem(
        x=time_first.astype(dtype, copy=False),
        w=w.astype(dtype, copy=False),
        r=r.astype(dtype, copy=False),
        b=bias.astype(dtype, copy=False),
        lengths=_checked_lengths(op, lengths, steps, batch),
        states=tuple(s.astype(dtype, copy=False) for s in initial),
        reverse=reverse,
        hidden=hidden,
    )


def _initial_state(state: Array | None, ways: int, batch: int, hidden: int, layout: int) -> Array:
    if state is None:
        return np.zeros((ways, batch, hidden), dtype=np.float32)
    return state.swapaxes(0, 1) if layout else state


def _checked_lengths(op: str, lengths: Array | None, steps: int, batch: int) -> Array:
    if lengths is None:
        return np.full(batch, steps)
    if (lengths < 0).any() or (lengths > steps).any():
        raise ExecutionError(
            f"{op}: bad sequence_lens",
            expected=f"lengths in [0, {steps}]",
            found=str(lengths.reshape(-1)[:8].tolist()),
        )
    return lengths.astype(np.int64)


def _reversed(x: Array, lengths: Array) -> Array:
    """Reverse each sequence of (time, batch, …) within its own length."""
    steps = np.arange(len(x))[:, None]
    source = np.where(steps < lengths, lengths - 1 - steps, steps)
    return np.take_along_axis(x, source[:, :, None], axis=0)


def _run_direction(problem: Problem, way: int, inputs: Array, step: Step) -> tuple[Array, tuple[Array, ...]]:
    """Run ``step`` over time; return all hidden states (time, batch, hidden) and the final states.

    ``inputs`` holds the input part of all gates, (time, batch, gates * hidden). A sequence that has ended keeps its
    states, and its outputs are zero.
    """
    state = tuple(s[way] for s in problem.states)
    ragged = bool((problem.lengths < len(inputs)).any())
    history = np.zeros((*inputs.shape[:2], problem.hidden), dtype=inputs.dtype)
    limits = current()
    for t in range(len(inputs) if history.size else 0):
        check_time(limits)
        fresh = step(inputs[t], state)
        if ragged:
            alive = (t < problem.lengths)[:, None]
            history[t] = np.where(alive, fresh[0], 0)
            state = tuple(np.where(alive, new, old) for new, old in zip(fresh, state, strict=True))
        else:
            history[t] = fresh[0]
            state = fresh
    return history, state


def _run(problem: Problem, make_step: Callable[[int], tuple[Array, Step]]) -> tuple[Array, list[Array]]:
    """Run all directions; return Y (time, directions, batch, hidden) and the final states stacked by direction."""
    histories, finals = [], []
    for way, backwards in enumerate(problem.reverse):
        bias, step = make_step(way)
        x = _reversed(problem.x, problem.lengths) if backwards else problem.x
        history, final = _run_direction(problem, way, np.matmul(x, problem.w[way].T) + bias, step)
        histories.append(_reversed(history, problem.lengths) if backwards else history)
        finals.append(final)
    return np.stack(histories, axis=1), [np.stack(states) for states in zip(*finals, strict=True)]


def _finish(y: Array, states: list[Array], dtype: np.dtype[Any], layout: int, outputs: int) -> tuple[Array, ...]:
    if layout:
        y, states = y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in states]
    results = (y, *states)[:outputs]
    return tuple(np.ascontiguousarray(a, dtype=dtype) for a in results)


def activation_names(op: str, given: Sequence[str] | None, default: Sequence[str], ways: int) -> list[str]:
    """Return the names of all functions of all directions.

    Args:
        op: RNN, GRU or LSTM.
        given: The node's ``activations``, if there are any.
        default: The names for one direction where there are none.
        ways: Number of directions.
    """
    names = list(given or list(default) * ways)
    if len(names) == len(default) * 2 and ways == 1 and op == "RNN":
        names = names[:1]  # The schema's default lists one name per direction, whatever the direction.
    return names


def _recurrent_macs(node: Node) -> Size:
    """Return the MACs of both products of every step: steps * batch * (|W| + |R|)."""
    x, w, r = (node_shape(node.inputs[i]) for i in range(3))
    return product(x[:2]) * (product(w) + product(r))


_TRAITS = ("output_count",)


@FAMILY.op("RNN", traits=_TRAITS, macs=_recurrent_macs)
@quiet
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 1,
    outputs: int = 2,
) -> tuple[Array, ...]:
    """Run an Elman network: ``h = f(x W' + h R' + b)``.

    ``output_sequence`` is accepted and ignored, since the wanted outputs say the same.

    Raises:
        ExecutionError: If a sequence length is out of range.
    """
    p = _prepare("RNN", 1, x, w, r, b, sequence_lens, [initial_h], direction, layout)
    names = activation_names("RNN", activations, ["Tanh"], len(p.reverse))
    functions = make_activations(names, activation_alpha, activation_beta, clip)

    def make_step(way: int) -> tuple[Array, Step]:
        recurrent, f = p.r[way].T, functions[way]
        return p.b[way].reshape(2, -1).sum(axis=0), lambda gates, state: (f(gates + state[0] @ recurrent),)

    return _finish(*_run(p, make_step), x.dtype, layout, outputs)


@FAMILY.op("GRU", traits=_TRAITS, macs=_recurrent_macs)
@quiet
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 1,
    outputs: int = 2,
) -> tuple[Array, ...]:
    """Run a gated recurrent unit; gates are ordered update, reset, hidden.

    Raises:
        ExecutionError: If a sequence length is out of range.
    """
    p = _prepare("GRU", 3, x, w, r, b, sequence_lens, [initial_h], direction, layout)
    names = activation_names("GRU", activations, ["Sigmoid", "Tanh"], len(p.reverse))
    functions = make_activations(names, activation_alpha, activation_beta, clip)
    hidden = p.hidden

    def make_step(way: int) -> tuple[Array, Step]:
        f, g = functions[2 * way : 2 * way + 2]
        for_gates, for_hidden = p.r[way][: 2 * hidden].T, p.r[way][2 * hidden :].T
        bias, recurrent_bias = p.b[way].reshape(2, -1).copy()
        bias[: 2 * hidden] += recurrent_bias[: 2 * hidden]
        hidden_bias = recurrent_bias[2 * hidden :]

        def step(gates: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            (h,) = state
            update, reset = np.split(f(gates[:, : 2 * hidden] + h @ for_gates), 2, axis=1)
            if linear_before_reset:
                memory = reset * (h @ for_hidden + hidden_bias)
            else:
                memory = (reset * h) @ for_hidden + hidden_bias
            candidate = g(gates[:, 2 * hidden :] + memory)
            return ((1 - update) * candidate + update * h,)

        return bias, step

    return _finish(*_run(p, make_step), x.dtype, layout, outputs)


@FAMILY.op("LSTM", traits=_TRAITS, macs=_recurrent_macs)
@quiet
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    peepholes: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 1,
    outputs: int = 3,
) -> tuple[Array, ...]:
    """Run a long short-term memory; gates are ordered input, output, forget, cell.

    ``clip`` bounds the inputs of the gates' activations, not the cell state that the last activation reads: the
    documentation allows either reading, and this is the one of runtimes.

    Raises:
        ExecutionError: If a sequence length is out of range.
    """
    p = _prepare("LSTM", 4, x, w, r, b, sequence_lens, [initial_h, initial_c], direction, layout)
    names = activation_names("LSTM", activations, ["Sigmoid", "Tanh", "Tanh"], len(p.reverse))
    functions = make_activations(names, activation_alpha, activation_beta, clip)
    unclipped = make_activations(names, activation_alpha, activation_beta, None)
    ways, hidden = len(p.reverse), p.hidden
    peep = np.zeros((ways, 3 * hidden), dtype=p.x.dtype) if peepholes is None else peepholes.astype(p.x.dtype)

    def make_step(way: int) -> tuple[Array, Step]:
        f, g, _ = functions[3 * way : 3 * way + 3]
        output = unclipped[3 * way + 2]
        recurrent = p.r[way].T
        peep_in, peep_out, peep_forget = np.split(peep[way], 3)

        def step(gates: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            h, c = state
            from_input, from_output, from_forget, from_cell = np.split(gates + h @ recurrent, 4, axis=1)
            i = f(from_input + peep_in * c)
            keep = 1 - i if input_forget else f(from_forget + peep_forget * c)
            cell = keep * c + i * g(from_cell)
            return f(from_output + peep_out * cell) * output(cell), cell

        return p.b[way].reshape(2, -1).sum(axis=0), step

    return _finish(*_run(p, make_step), x.dtype, layout, outputs)


@FAMILY.op("LSTM", domain=QUANTIZED, macs=_recurrent_macs)
@quiet
def quantized_lstm(
    x: Array,
    w: Array,
    r: Array,
    w_scale: Array,
    w_point: Array,
    r_scale: Array,
    r_point: Array,
    b: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    *,
    direction: str = "forward",
) -> tuple[Array, ...]:
    """Run an LSTM of 8-bit weights ``[directions, k, 4 * hidden]``, with a scale each, or one per column.

    The whole sequence is quantised once, and the hidden states of all rows before every step.
    """
    data, step, zero = dynamic_quantize_linear(x)
    w, r = (
        (v.astype(np.float64) - point.reshape(len(v), 1, -1)).swapaxes(1, 2)
        for v, point in ((w, w_point), (r, r_point))
    )
    whole = data.astype(np.float64) - zero
    p = _prepare("LSTM", 4, whole, w, r, None, None, [initial_h, initial_c], direction, 0)
    bias = np.float32(0) * p.b[:, : 4 * p.hidden] if b is None else b.reshape(len(r), 2, -1).sum(axis=1)

    def make_step(way: int) -> tuple[Array, Step]:
        worth, recurrent = step * w_scale[way], p.r[way].T

        def run(sums: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            h, c = state
            stored, scale, point = dynamic_quantize_linear(h)
            own = ((stored - point.astype(np.float64)) @ recurrent).astype(np.float32) * (scale * r_scale[way])
            gates = sums.astype(np.float32) * worth + own + bias[way].astype(np.float32)
            i, o, f, g = np.split(gates, 4, axis=1)
            cell = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            return _sigmoid(o) * np.tanh(cell), cell

        return np.zeros(1), run

    return _finish(*_run(replace(p, states=tuple(s.astype(np.float32) for s in p.states)), make_step), x.dtype, 0, 3)


@FAMILY.infer("LSTM", domain=QUANTIZED)
def _quantized(facts: Facts) -> Results:
    ways = len(_REVERSE[facts.require_one_of("direction", tuple(_REVERSE), "forward")])
    steps, batch, width = facts.dims(0, 3)
    hidden = facts.dims(2, 3)[1]
    columns = _times(4, hidden)
    facts.require_shape(1, (ways, width, columns), "the weight W")
    facts.require_shape(2, (ways, hidden, columns), "the recurrence weight R")
    for index in range(3, 7):
        shape = (ways,) if facts.rank(index) == 1 else (ways, columns)
        facts.require_shape(index, shape, "a scale or zero point")
    facts.require_shape(7, (ways, _times(2, columns)), "the bias B")
    state = (ways, batch, hidden)
    facts.require_shape(8, state, "the initial hidden state")
    facts.require_shape(9, state, "the initial cell state")
    dtype = facts.dtype(0)
    return [facts.tensor(dtype, (steps, *state)), facts.tensor(dtype, state), facts.tensor(dtype, state)]


_FUNCTIONS: Mapping[str, int] = {"GRU": 2, "LSTM": 3, "RNN": 1}
_GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}


@FAMILY.infer("GRU", "LSTM", "RNN")
def _recurrent(facts: Facts) -> Results:
    op = facts.node.op
    ways = len(_REVERSE[facts.require_one_of("direction", tuple(_REVERSE), "forward")])
    _require_activations(facts, _FUNCTIONS[op] * ways)
    batch_first = bool(facts.attr("layout", 0))
    first, second, width = facts.dims(0, 3)
    steps, batch = (second, first) if batch_first else (first, second)
    hidden: Size | None = facts.attr("hidden_size") or None
    hidden = facts.dims(2, 3)[2] if hidden is None else hidden
    facts.require_at_least(hidden, 1, "hidden_size is out of range")
    state = (batch, ways, hidden) if batch_first else (ways, batch, hidden)
    rows = _times(_GATES[op], hidden)
    facts.require_shape(1, (ways, rows, width), "the weight W")
    facts.require_shape(2, (ways, rows, hidden), "the recurrence weight R")
    facts.require_shape(3, (ways, _times(2, rows)), "the bias B")
    facts.require_shape(4, (batch,), "sequence_lens")
    facts.require_shape(5, state, "the initial hidden state")
    facts.require_shape(6, state, "the initial cell state")
    facts.require_shape(7, (ways, _times(3, hidden)), "the peepholes")
    dtype = facts.first_dtype(0, 1, 2, 3, 5, 6, 7)
    whole = (batch, steps, ways, hidden) if batch_first else (steps, ways, batch, hidden)
    return [facts.tensor(dtype, whole), facts.tensor(dtype, state), facts.tensor(dtype, state)]


def _times(count: int, size: Size | None) -> Size | None:
    return None if size is None else count * size


def _require_activations(facts: Facts, count: int) -> None:
    names = [str(name) for name in facts.attr("activations") or ()]
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            facts.fail("unknown activation", expected=f"one of {', '.join(_ACTIVATIONS)}", found=repr(name),
                       hint=did_you_mean(name.lower(), _ACTIVATIONS))  # fmt: skip
    fits = len(names) in (0, count) or (facts.node.op, count, len(names)) == ("RNN", 1, 2)
    facts.require(fits, "wrong number of activations", expected=count, found=len(names))
