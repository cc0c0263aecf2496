"""The positions of elements that are not zero."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tinycomp.errors import TargetError
from tinycomp.runtime.native.program import BufferSpec, Instruction, Operand, Program

ROOM = 64
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


def found(x: np.ndarray, isa: str, pool, **changes: int) -> list[int]:
    """Return the positions that the kernel finds, segment after segment."""
    segments = -(-x.size // ROOM)
    outputs = (BufferSpec("positions", "int64", (segments * ROOM,)), BufferSpec("counts", "int64", (segments,)))
    params = {"element_size": x.itemsize, "is_float": int(x.dtype in FLOATS), "elements": x.size, "room": ROOM}
    operands = (Operand("output", 0), Operand("output", 1), Operand("input", 0))
    call = Instruction("nonzero", operands, params | changes, ("node",))
    program = Program("test", (BufferSpec("x", x.dtype.name, x.shape),), outputs, (), 0, (call,))
    positions, counts = (np.full(spec.shape, -1, np.int64) for spec in outputs)
    runner(program, pool, isa).run([x], [positions, counts])
    return [int(p) for part, count in zip(positions.reshape(-1, ROOM), counts, strict=True) for p in part[:count]]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", *FLOATS], ids=str
)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_positions(dtype, size: int, isa: str, pool, rng) -> None:
    x = (rng.integers(0, 4, size) * (rng.random(size) < 0.5)).astype(dtype)
    assert found(x, isa, pool) == np.flatnonzero(x != 0).tolist()


def test_all_and_nothing(isa: str, pool) -> None:
    assert found(np.ones(200, np.float32), isa, pool) == list(range(200))
    assert found(np.zeros(200, np.float32), isa, pool) == []


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_signs_of_zero_and_what_is_no_number(dtype, isa: str, pool) -> None:
    least = np.finfo(np.float16).smallest_subnormal
    x = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, least], np.float32).astype(dtype)
    assert found(x, isa, pool) == [2, 3, 4, 5]
    assert found(np.array([-128, 0, 127], np.int8), isa, pool) == [0, 2]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"element_size": 3}, "no elements have 3 bytes"),
        ({"is_float": 2}, "is_float must be 0 or 1"),
        ({"room": 0}, "segments of 0 elements"),
        ({"elements": 65}, "reaches past the end"),
    ],
)
def test_refused(changes: dict[str, int], text: str, isa: str, pool) -> None:
    with pytest.raises(TargetError, match=text):
        found(np.zeros(64, np.float32), isa, pool, **changes)
