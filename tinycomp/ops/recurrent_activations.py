"""The activation functions of RNN, GRU and LSTM, by name and with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinycomp.errors import ModelError, did_you_mean
from tinycomp.ops.numeric import Array

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
