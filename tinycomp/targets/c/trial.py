"""Programs of one call, for measuring the candidates of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.runtime.program import ABSENT, BufferSpec, Instruction, Operand, Program
from tinycomp.targets.c.activations import IDENTITY
from tinycomp.targets.c.candidates import Candidate, Problem

Sizes = Mapping[str, int]
Shape = tuple[int, ...]
# The shapes of the result, of the left operand and of the right one, and the parameters that the sizes do not state.
_Call = tuple[Shape, Shape, Shape, dict[str, int | float]]


def trial_of(problem: Problem, candidate: Candidate) -> Program:
    """Return a program of one call that solves a problem in one way; operands are dense, weights random.

    Convolutions and products with weights take them as a constant, other products have a second input.
    """
    result, left, right, params = _CALLS[problem.family](problem.sizes)
    params = {**problem.sizes, **IDENTITY.params(), **params, **candidate.params}
    for name in ("turned_a", "turned_b"):
        params.pop(name, None)
    inputs, constants = [_spec("a", left)], []
    if problem.family == "matmul":
        inputs.append(_spec("b", right))
        second = Operand("input", 1)
    else:
        constants.append(_random(right))
        second = Operand("constant", 0)
    operands = (Operand("output"), Operand("input"), second, ABSENT, ABSENT)
    call = Instruction(candidate.kernel, operands, params)
    return Program(candidate.name, tuple(inputs), (_spec("y", result),), tuple(constants), 0, (call,))


def _spec(name: str, shape: Shape) -> BufferSpec:
    return BufferSpec(name, "float32", shape)


def _random(shape: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _conv(s: Sizes) -> _Call:
    result = (s["batch"], s["out_height"], s["out_width"], s["out_channels"])
    window = (s["kernel_height"], s["kernel_width"])
    strides = {"x_pixel_stride": s["channels"]}
    strides |= dict.fromkeys(("y_pixel_stride", "residual_pixel_stride"), s["out_channels"])
    weights = (s["out_channels"], s["channels"] // s["groups"], *window)
    return result, (s["batch"], s["height"], s["width"], s["channels"]), weights, {**strides}


def _gemm(s: Sizes) -> _Call:
    m, n, k = s["m"], s["n"], s["k"]
    return (m, n), (m, k), (k, n), {"lda": k, "ldc": n, "ldr": n, "trans_b": 0}


def _matmul(s: Sizes) -> _Call:
    m, n, k, batch = s["m"], s["n"], s["k"], (s["batch0"], s["batch1"])
    params: dict[str, int | float] = {"alpha": 1.0}
    matrices = {"a": (m, k, s["turned_a"]), "b": (k, n, s["turned_b"]), "c": (m, n, 0), "r": (m, n, 0)}
    for letter, (rows, columns, turned) in matrices.items():
        params |= {f"{letter}_batch0": batch[1] * rows * columns, f"{letter}_batch1": rows * columns}
        params[f"{letter}_row"] = 1 if turned else columns
        if letter in "ab":
            params[f"{letter}_column"] = rows if turned else 1
    return (*batch, m, n), (*batch, m, k), (*batch, k, n), params


_CALLS: Mapping[str, Callable[[Sizes], _Call]] = MappingProxyType({"conv2d": _conv, "gemm": _gemm, "matmul": _matmul})
