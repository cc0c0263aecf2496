"""The activation functions of RNN, GRU and LSTM, by name and with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def make_activations(
    op: str, names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None, clip: float | None
) -> list[Activation]:
    """Return functions that clip and activate; alphas and betas go, in order, to the functions that take one.

    Raises:
        ModelError: If a name is unknown.
    """
    alpha_left, beta_left = iter(alphas or ()), iter(betas or ())
    made = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise ModelError(
                f"{op}: unknown activation",
                expected=f"one of {sorted(_ACTIVATIONS)}",
                found=repr(name),
                hint=did_you_mean(name.lower(), _ACTIVATIONS),
            )
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        a = None if alpha is None else next(alpha_left, alpha)
        b = None if beta is None else next(beta_left, beta)
        made.append(_activation(function, a, b, clip))
    return made


def _activation(
    function: Callable[[Array, Any, Any], Array], alpha: float | None, beta: float | None, clip: float | None
) -> Activation:
    def apply(x: Array) -> Array:
        clipped = x if not clip else np.clip(x, -clip, clip)
        return function(clipped, alpha, beta).astype(x.dtype, copy=False)

    return apply
