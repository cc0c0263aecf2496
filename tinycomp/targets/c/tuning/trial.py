"""Programs of one call, for measuring the candidates of a problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.epilogue import IDENTITY
from tinycomp.targets.c.tuning.candidates import Candidate, Problem

Sizes = Mapping[str, int]
Shape = tuple[int, ...]
_U8 = TYPES["uint8"]
# The shapes of the result, of the left operand and of the right one, and the parameters that the sizes do not state.
_Call = tuple[Shape, Shape, Shape, dict[str, int | float]]


def trial_of(problem: Problem, candidate: Candidate) -> Program:
    """Return a program of one call that solves a problem in one way; operands are dense, weights random.

    Convolutions and products with weights take them as a constant, other products have a second input. Quantised
    ones have factors, too.
    """
    result, left, right, params = _CALLS[problem.family](problem.sizes)
    params = {**problem.sizes, **params, **candidate.params}
    for name in ("turned_a", "turned_b"):
        params.pop(name, None)
    dtype = "uint8" if problem.family == "qconv2d" else "float32"
    inputs, constants = [BufferSpec("a", dtype, left)], []
    second, last, rest = Operand("constant", 0), ABSENT, [ABSENT] * (problem.family == "qconv2d")
    if problem.family == "matmul":
        inputs.append(BufferSpec("b", dtype, right))
        second = Operand("input", 1)
    elif problem.family == "qconv2d":
        constants += _quantized(right, problem.sizes["weight_type"])
        last = Operand("constant", 1)
    else:
        constants.append(np.random.default_rng(0).standard_normal(right, np.float32))
    operands = (Operand("output"), Operand("input"), second, ABSENT, last, *rest)
    call = Instruction(candidate.kernel, operands, params)
    return Program(candidate.name, tuple(inputs), (BufferSpec("y", dtype, result),), tuple(constants), 0, (call,))


def _quantized(shape: Shape, weight_type: int) -> list[np.ndarray]:
    """Return weights of 7 bits, and the factors of their output channels."""
    weights = np.random.default_rng(0).integers(-64, 65, shape, np.int8 if weight_type == TYPES["int8"] else np.int16)
    return [weights, np.full(shape[0], 1 / 64 / math.prod(shape[1:]), np.float32)]


def _conv(s: Sizes) -> _Call:
    result = (s["batch"], s["out_height"], s["out_width"], s["out_channels"])
    window = (s["kernel_height"], s["kernel_width"])
    strides = {"x_pixel_stride": s["channels"]}
    strides |= dict.fromkeys(("y_pixel_stride", "residual_pixel_stride"), s["out_channels"])
    weights = (s["out_channels"], s["channels"] // s["groups"], *window)
    return result, (s["batch"], s["height"], s["width"], s["channels"]), weights, {**IDENTITY.params(), **strides}


def _qconv(s: Sizes) -> _Call:
    result, left, weights, params = _conv(s)
    strides = {name: params[name] for name in ("x_pixel_stride", "y_pixel_stride")}
    numbers = {"x_zero_point": 128, "type": _U8, "rule": 0, "y_zero_point": 128, "low": 0, "high": 255}
    return result, left, weights, {**strides, **numbers}


def _gemm(s: Sizes) -> _Call:
    m, n, k = s["m"], s["n"], s["k"]
    return (m, n), (m, k), (k, n), {**IDENTITY.params(), "lda": k, "ldc": n, "ldr": n, "trans_b": 0}


def _matmul(s: Sizes) -> _Call:
    m, n, k, batch = s["m"], s["n"], s["k"], (s["batch0"], s["batch1"])
    params: dict[str, int | float] = {**IDENTITY.params(), "alpha": 1.0}
    matrices = {"a": (m, k, s["turned_a"]), "b": (k, n, s["turned_b"]), "c": (m, n, 0), "r": (m, n, 0)}
    for letter, (rows, columns, turned) in matrices.items():
        params |= {f"{letter}_batch0": batch[1] * rows * columns, f"{letter}_batch1": rows * columns}
        params[f"{letter}_row"] = 1 if turned else columns
        if letter in "ab":
            params[f"{letter}_column"] = rows if turned else 1
    return (*batch, m, n), (*batch, m, k), (*batch, k, n), params


_CALLS: Mapping[str, Callable[[Sizes], _Call]] = MappingProxyType(
    {"conv2d": _conv, "qconv2d": _qconv, "gemm": _gemm, "matmul": _matmul}
)
