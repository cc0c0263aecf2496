"""RNN, GRU and LSTM."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.cases.case import Case, Const, Operand
from tests.cases.values import floats

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
DIRECTIONS = ("forward", "reverse", "bidirectional")
ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "Relu": (None, None),
    "Tanh": (None, None),
    "Sigmoid": (None, None),
    "Softsign": (None, None),
    "Softplus": (None, None),
    "LeakyRelu": (0.125, None),
    "ThresholdedRelu": (0.25, None),
    "Elu": (0.75, None),
    "Affine": (0.5, 0.25),
    "ScaledTanh": (1.25, 0.75),
    "HardSigmoid": (0.25, 0.375),
}
"""Functions with an alpha and a beta that are not the default ones."""
SIZES = [(1, 1, 1, 1), (6, 1, 4, 16), (3, 13, 5, 33)]
"""Steps, batch, input size, hidden size."""


def recurrent_case(
    op: str,
    size: Sequence[int],
    lengths: Sequence[int] | None = None,
    bias: bool = True,
    states: bool = True,
    peepholes: bool = False,
    outputs: int = 0,
    seed: int = 0,
    **attrs: Any,
) -> Case:
    """Return a node of the given steps, batch, input size and hidden size; weights shrink with what they sum over."""
    steps, batch, width, hidden = size
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    batch_first = attrs.get("layout", 0)
    state = (batch, ways, hidden) if batch_first else (ways, batch, hidden)
    rows = GATES[op] * hidden

    def draw(*shape: int, n: int, high: float = 1.0) -> np.ndarray:
        return floats(*shape, seed=10 * seed + n, low=-high, high=high)

    operands: list[Operand] = [
        draw(*((batch, steps) if batch_first else (steps, batch)), width, n=0),
        Const(draw(ways, rows, width, n=1, high=width**-0.5)),
        Const(draw(ways, rows, hidden, n=2, high=hidden**-0.5)),
        Const(draw(ways, 2 * rows, n=3)) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        draw(*state, n=4) if states else None,
    ]
    if op == "LSTM":
        operands += [draw(*state, n=5) if states else None, Const(draw(ways, 3 * hidden, n=6)) if peepholes else None]
    while operands[-1] is None:
        operands.pop()
    return Case(
        op,
        operands,
        {"hidden_size": hidden, **attrs},
        outputs=outputs or (3 if op == "LSTM" else 2),
        rtol=1e-4,
        atol=1e-5,
        onnxruntime=not batch_first,  # onnxruntime has no layout 1
        reference=False,  # it knows neither directions, activations nor input_forget
    )


def _variants(op: str) -> list[dict[str, Any]]:
    """What sets one cell apart from the others of its operator."""
    if op == "GRU":
        return [{"linear_before_reset": 0}, {"linear_before_reset": 1}]
    return [{}, {"peepholes": True}, {"input_forget": 1, "states": False}] if op == "LSTM" else [{}]


def recurrents() -> Iterator[Case]:
    for op, size, direction in itertools.product(GATES, SIZES, DIRECTIONS):
        lengths = [size[0] - i % size[0] for i in range(size[1])]
        for variant in _variants(op):
            yield recurrent_case(op, size, direction=direction, **variant)
            yield recurrent_case(op, size, direction=direction, lengths=lengths, **{"states": False, **variant})
            yield recurrent_case(op, size, direction=direction, layout=1, bias=False, **variant)
            yield recurrent_case(op, size, direction=direction, clip=0.25, lengths=lengths, **variant)
    yield from _with_activations()
    for op in GATES:
        yield recurrent_case(op, (4, 2, 3, 8), outputs=1)
    yield recurrent_case("LSTM", (4, 2, 3, 8), outputs=2)


def _with_activations() -> Iterator[Case]:
    """Every function in every place, with its own parameters, and other functions in the second direction."""
    for (name, (alpha, beta)), op in itertools.product(ACTIVATIONS.items(), GATES):
        count = FUNCTIONS[op]
        attrs: dict[str, Any] = {"activations": [name] * count}
        if alpha is not None:
            attrs["activation_alpha"] = [alpha * 0.5**i for i in range(count)]
        if beta is not None:
            attrs["activation_beta"] = [beta * 0.5**i for i in range(count)]
        yield recurrent_case(op, (4, 3, 5, 9), **attrs)
    other = {"RNN": ["Tanh", "Relu"], "GRU": ["Sigmoid", "Tanh", "HardSigmoid", "Softsign"],
             "LSTM": ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Softsign"]}  # fmt: skip
    for op, names in other.items():
        for variant in _variants(op):
            yield recurrent_case(op, (4, 3, 5, 9), direction="bidirectional", activations=names, **variant)
            yield recurrent_case(op, (4, 3, 5, 9), direction="bidirectional", activations=names, layout=1, **variant)


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "GRU",
        [floats(2, 1, 3).astype("f8"), *(Const(floats(1, 6, n).astype("f8")) for n in (3, 2))],
        {"hidden_size": 2},
        host="is float64[2, 1, 3], not float32",
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from recurrents()
    yield from declined()
