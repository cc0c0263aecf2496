"""RNN, GRU and LSTM: one matrix product for the inputs of all time steps, then one small one per step.

Inside, everything is (time, batch, …) and runs forward; a reversed direction reverses each sequence within its own
length. Source: ONNX operator documentation of RNN, GRU and LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, ModelError, did_you_mean
from tinycomp.ir.graph import Node
from tinycomp.memory.budget import check_time, current
from tinycomp.ops.facts import Facts
from tinycomp.ops.numeric import Array, compute_dtype, node_shape, quiet
from tinycomp.ops.record import OpFamily
from tinycomp.symbolic import Size, product

FAMILY = OpFamily("recurrent")
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

ACTIVATION_NAMES = tuple(_ACTIVATIONS)
"""The names in lower case; ONNX compares them without regard to case."""


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
    op: str, names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Resolved]:
    """Return the functions with their parameters; alphas and betas go, in order, to the functions that take one.

    Raises:
        ModelError: If a name is unknown.
    """
    alpha_left, beta_left = iter(alphas or ()), iter(betas or ())
    resolved = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise ModelError(
                f"{op}: unknown activation",
                expected=f"one of {sorted(_ACTIVATIONS)}",
                found=repr(name),
                hint=did_you_mean(name.lower(), _ACTIVATIONS),
            )
        _, alpha, beta = _ACTIVATIONS[name.lower()]
        a = None if alpha is None else next(alpha_left, alpha)
        b = None if beta is None else next(beta_left, beta)
        resolved.append(Resolved(name.lower(), a, b))
    return resolved


def make_activations(
    op: str, names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None, clip: float | None
) -> list[Activation]:
    """Return functions that clip and activate, with their parameters as :func:`resolve_activations` finds them.

    Raises:
        ModelError: If a name is unknown.
    """
    return [_activation(r, clip) for r in resolve_activations(op, names, alphas, betas)]


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
    hidden_size: int | None,
    layout: int,
) -> Problem:
    if direction not in _REVERSE:
        raise ModelError(f"{op}: unknown direction", expected=f"one of {list(_REVERSE)}", found=repr(direction))
    reverse = _REVERSE[direction]
    for name, operand in (("X", x), ("W", w), ("R", r)):
        if operand.ndim != 3:
            raise ModelError(
                f"{op}: {name} has the wrong rank", expected="rank 3", found=f"shape {list(operand.shape)}"
            )
    time_first = x.swapaxes(0, 1) if layout else x
    steps, batch, width = time_first.shape
    hidden, ways = r.shape[2], len(reverse)
    if hidden_size is not None and hidden_size != hidden:
        raise ModelError(f"{op}: hidden_size differs from R", expected=str(hidden), found=str(hidden_size))
    dtype = compute_dtype(x.dtype)
    bias = np.zeros((ways, 2 * gates * hidden), dtype=dtype) if b is None else b
    initial = [_initial_state(s, ways, batch, hidden, layout) for s in states]
    shapes = {
        "W": (w, (ways, gates * hidden, width)),
        "R": (r, (ways, gates * hidden, hidden)),
        "B": (bias, (ways, 2 * gates * hidden)),
        **{f"initial state {i}": (s, (ways, batch, hidden)) for i, s in enumerate(initial)},
    }
    for name, (operand, shape) in shapes.items():
        if operand.shape != shape:
            raise ModelError(f"{op}: {name} has the wrong shape", expected=str(shape), found=str(operand.shape))
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
    if lengths.shape != (batch,) or (lengths < 0).any() or (lengths > steps).any():
        raise ExecutionError(
            f"{op}: bad sequence_lens",
            expected=f"{batch} lengths in [0, {steps}]",
            found=f"{lengths.reshape(-1)[:8].tolist()} of shape {list(lengths.shape)}",
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

    Raises:
        ModelError: If the number of names does not fit.
    """
    names = list(given or list(default) * ways)
    if len(names) == len(default) * 2 and ways == 1 and op == "RNN":
        names = names[:1]  # The schema's default lists one name per direction, whatever the direction.
    if len(names) != len(default) * ways:
        raise ModelError(f"{op}: wrong number of activations", expected=str(len(default) * ways), found=str(len(names)))
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
        ModelError: If shapes, direction or activations do not fit.
        ExecutionError: If a sequence length is out of range.
    """
    p = _prepare("RNN", 1, x, w, r, b, sequence_lens, [initial_h], direction, hidden_size, layout)
    names = activation_names("RNN", activations, ["Tanh"], len(p.reverse))
    functions = make_activations("RNN", names, activation_alpha, activation_beta, clip)

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
        ModelError: If shapes, direction or activations do not fit.
        ExecutionError: If a sequence length is out of range.
    """
    p = _prepare("GRU", 3, x, w, r, b, sequence_lens, [initial_h], direction, hidden_size, layout)
    names = activation_names("GRU", activations, ["Sigmoid", "Tanh"], len(p.reverse))
    functions = make_activations("GRU", names, activation_alpha, activation_beta, clip)
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
        ModelError: If shapes, direction or activations do not fit.
        ExecutionError: If a sequence length is out of range.
    """
    p = _prepare("LSTM", 4, x, w, r, b, sequence_lens, [initial_h, initial_c], direction, hidden_size, layout)
    names = activation_names("LSTM", activations, ["Sigmoid", "Tanh", "Tanh"], len(p.reverse))
    functions = make_activations("LSTM", names, activation_alpha, activation_beta, clip)
    unclipped = make_activations("LSTM", names, activation_alpha, activation_beta, None)
    ways, hidden = len(p.reverse), p.hidden
    peep = np.zeros((ways, 3 * hidden), dtype=p.x.dtype) if peepholes is None else peepholes.astype(p.x.dtype)
    if peep.shape != (ways, 3 * hidden):
        raise ModelError("LSTM: P has the wrong shape", expected=str((ways, 3 * hidden)), found=str(peep.shape))

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


_GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
_DIRECTIONS: Mapping[str, int] = {"forward": 1, "reverse": 1, "bidirectional": 2}


@FAMILY.check("GRU", "LSTM", "RNN")
def _check_recurrent(facts: Facts) -> None:
    direction = facts.attr("direction", "forward")
    if direction not in _DIRECTIONS:
        facts.fail("unknown direction", expected=f"one of {', '.join(_DIRECTIONS)}", found=repr(direction),
                   hint=did_you_mean(str(direction), _DIRECTIONS))  # fmt: skip
    for name in facts.attr("activations") or ():
        if str(name).lower() not in ACTIVATION_NAMES:
            facts.fail("unknown activation", expected=f"one of {', '.join(ACTIVATION_NAMES)}", found=repr(name),
                       hint=did_you_mean(str(name).lower(), ACTIVATION_NAMES))  # fmt: skip
    _check_shapes(facts, _DIRECTIONS[direction], _GATES[facts.node.op])


def _check_shapes(facts: Facts, directions: int, gates: int) -> None:
    hidden = facts.attr("hidden_size") or facts.dim(2, 2)
    if hidden is not None and hidden < 1:
        facts.fail("hidden_size is out of range", expected="1 or more", found=hidden)
    for (index, what), sizes in _wanted_shapes(facts, directions, gates, hidden).items():
        rank = facts.rank(index)
        if rank is not None and rank != len(sizes):
            facts.fail(f"{what} has the wrong rank", expected=str(len(sizes)), found=rank)
        for axis, size in enumerate(sizes):
            facts.require_size(index, axis, size, what)


def _wanted_shapes(
    facts: Facts, directions: int, gates: int, hidden: int | None
) -> dict[tuple[int, str], tuple[int | None, ...]]:
    """Return the shape of every operand but X, by its place and what it is; None for sizes that are not known."""
    rows = None if hidden is None else gates * hidden
    batch = facts.dim(0, 0 if facts.attr("layout", 0) else 1)
    state = (batch, directions, hidden) if facts.attr("layout", 0) else (directions, batch, hidden)
    return {
        (1, "the weight W"): (directions, rows, facts.dim(0, 2)),
        (2, "the recurrence weight R"): (directions, rows, hidden),
        (3, "the bias B"): (directions, None if rows is None else 2 * rows),
        (4, "the sequence lengths"): (batch,),
        (5, "the initial hidden state"): state,
        (6, "the initial cell state"): state,
        (7, "the peepholes"): (directions, None if hidden is None else 3 * hidden),
    }
