"""Conversions between types of elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import helper

from tests.cases.case import Case, Const
from tests.cases.values import ALONE, NARROW, SPECIAL, floats, integers, of_dtype

CASTABLE = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "bool",
)  # fmt: skip


def casts() -> Iterator[Case]:
    for source in CASTABLE:
        for result in CASTABLE:
            if source == result:
                continue
            kind = helper.np_dtype_to_tensor_dtype(of_dtype(np.zeros(1), result).dtype)
            values = of_dtype(floats(2, 3, 4, 5, low=0.0 if "uint" in source else -3.0), source)
            yield Case("Cast", [values], {"to": kind})
    for result in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        for source in ("float32", "float64"):
            beyond = np.concatenate([SPECIAL, np.array([-5.5, 300, -300, 7e4, 5e9, -5e9, 1e19, 2e19])])
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(result))
            yield Case("Cast", [beyond.astype(source)], {"to": kind}, **ALONE)
    yield from _narrow_casts()
    yield Case("Cast", [SPECIAL], {"to": 10})
    yield Case("Cast", [SPECIAL], {"to": 9})
    yield Case("CastLike", [floats(2, 3), Const(np.array([1], np.int64))])


def _narrow_casts() -> Iterator[Case]:
    """The bits of every conversion are the business of tests of the kernel; here it is which of them are asked for."""
    for dtype in NARROW:
        code = helper.np_dtype_to_tensor_dtype(of_dtype(np.zeros(1), dtype).dtype)
        stored = of_dtype(floats(3, 50, low=-9.0), dtype)
        for other in ("float32", "float16", "bfloat16"):
            yield Case("Cast", [of_dtype(floats(3, 50, low=-9.0), other)], {"to": code}, opset=23, onnxruntime=False)
            yield Case("CastLike", [stored, Const(of_dtype(np.zeros(1), other))], opset=23)
    for dtype in NARROW[2:-1]:
        for saturate in (0, 1):
            like = Const(of_dtype(np.zeros(1), dtype))
            yield Case("CastLike", [SPECIAL, like], {"saturate": saturate}, opset=23, onnxruntime=False)
        yield Case("IsNaN", [of_dtype(SPECIAL, dtype)], opset=20)
        yield Case("IsInf", [of_dtype(SPECIAL, dtype)], opset=20)
    scale = Const(of_dtype(np.zeros(1), "float8_e8m0fnu"))
    for mode in ("up", "down", "nearest"):
        yield Case("CastLike", [np.abs(floats(3, 50)), scale], {"round_mode": mode}, opset=24, onnxruntime=False)
    yield Case("Cast", [of_dtype(np.arange(1, 9), "float8_e8m0fnu")], {"to": 1}, opset=24)


def bit_casts() -> Iterator[Case]:
    pairs = (
        ("float32", "int32"), ("int64", "float64"), ("bool", "uint8"), ("int16", "bfloat16"), ("float16", "uint16"),
        ("float8_e4m3fn", "int8"),
    )  # fmt: skip
    for source, result in pairs:
        kind = helper.np_dtype_to_tensor_dtype(of_dtype(np.zeros(1), result).dtype)
        for shape in ((2, 3, 4, 5), ()):
            yield Case("BitCast", [of_dtype(floats(*shape), source)], {"to": kind}, opset=26, onnxruntime=False)


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "BitCast",
        [of_dtype(floats(3), "int4")],
        {"to": 21},
        opset=26,
        onnxruntime=False,
        host="elements of int4 are not whole bytes",
    )
    yield Case(
        "BitCast",
        [integers(3, dtype="uint8")],
        {"to": 9},
        opset=26,
        onnxruntime=False,
        host="bytes of uint8 may be other than the two of bool",
    )
    yield Case("Cast", [floats(3)], {"to": 8}, onnxruntime=False, host="no conversion from float32 to string")


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from casts()
    yield from bit_casts()
    yield from declined()
