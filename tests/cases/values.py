"""Operands that the tables of operators share."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.cases.case import Const

MOVABLE = ("float32", "float16", "int8", "int64", "bool", "float64", "uint16", "bfloat16")
NARROW = (
    "int4", "uint4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
)  # fmt: skip
"""Integers of part of a byte and floats of one or less, which fewer operators take."""
ALONE = {"onnxruntime": False, "reference": False}
"""For rows of which no other implementation is a witness: they compute with fewer digits, or have their own errors."""
LARGEST = np.finfo(np.float32).max
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, LARGEST, -LARGEST, 1e-45, -1e-38, 88.8, -104.0, 0.5, 1.5, -2.5], "f4"
)


def floats(*shape: int, seed: int = 0, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, dtype: str = "int64", seed: int = 0, low: int = -9, high: int = 9) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(low, high, shape)).astype(dtype)


def ints(*values: int) -> Const:
    return Const(np.array(values, np.int64))


def of_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    return values.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
