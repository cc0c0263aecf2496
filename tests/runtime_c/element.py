"""Element-wise programs written by hand: steps over views of arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from tests.runtime_c.helpers import Weight, run_single
from tests.runtime_c.views import DIMENSIONS, lowest
from tinycomp.runtime.native.executor import Pool

TYPES = [
    np.dtype(name)
    for name in (
        "float32",
        "float64",
        "float16",
        ml_dtypes.bfloat16,
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
        *(getattr(ml_dtypes, name) for name in ("int4", "uint4", "int2", "uint2")),
        *(getattr(ml_dtypes, f"float8_{name}") for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")),
        *(getattr(ml_dtypes, name) for name in ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")),
    )
]
NATIVE, NARROW = TYPES[:13], TYPES[13:]
"""Types that take whole bytes and are known to most, and those of part of a byte and floats of one."""
UNARY, BINARY, COMPARE, LOGICAL, WHERE, CAST = range(6)
Step = Sequence[float]
"""kind, op, type, then up to three sources, then a and b if they are not 0."""


def bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def step(kind: int, op: int, dtype: object, *sources: int, a: float = 0.0, b: float = 0.0) -> list[int]:
    """Return the words of a step."""
    padded = [*sources, *[0] * (3 - len(sources))]
    return [kind, op, TYPES.index(np.dtype(dtype)), *padded, bits(float(a)), bits(float(b))]


def encode(
    views: Sequence[np.ndarray],
    immediates: Sequence[tuple[object, float]],
    steps: Sequence[Sequence[int]],
    shape: Sequence[int] | None = None,
) -> np.ndarray:
    """Return a program over views of one shape, whose output is its last step."""
    sizes = list(views[0].shape if shape is None else shape)
    lead = DIMENSIONS - len(sizes)
    words = [len(views), len(immediates), len(steps), 1, *[1] * lead, *sizes]
    for view in views:
        words += [TYPES.index(view.dtype), *[0] * lead, *(s // view.itemsize for s in view.strides)]
    for dtype, number in immediates:
        words += [TYPES.index(np.dtype(dtype)), bits(number) if "float" in np.dtype(dtype).name else int(number)]
    for words_of_step in steps:
        words += words_of_step
    return np.array([*words, len(views) + len(immediates) + len(steps) - 1], np.int64)


def raw(array: np.ndarray) -> np.ndarray:
    """Return the elements as integers where numpy alone does not know their type."""
    return array.view(_stored(array.dtype))


def _stored(dtype: np.dtype) -> np.dtype:
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def run_steps(
    operands: Sequence[np.ndarray],
    steps: Sequence[Sequence[int]],
    dtype: object,
    isa: str,
    pool: Pool | None,
    immediates: Sequence[tuple[object, float]] = (),
) -> np.ndarray:
    """Run a program over operands that broadcast, and return the result of its last step."""
    views = np.broadcast_arrays(*operands)
    program = encode(views, immediates, steps)
    places = [None, None, None, Weight(program), *(raw(lowest(v)) for v in views), *[None] * (11 - len(views))]
    result = np.dtype(dtype)
    shape = views[0].shape
    y = run_single("elementwise", places, {"words": program.size}, (_stored(result).name, shape), isa, pool)
    return y.view(result)
