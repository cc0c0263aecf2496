"""Calls that compute no more rows than an earlier call has counted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.runtime_c.element import BINARY, encode, step
from tests.runtime_c.emulated import runner
from tests.runtime_c.test_copy import copy_params
from tinycomp.errors import TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Limit, Operand, Program

ROWS = 400
COUNT = Operand("output", 1)
BLOCK = 2048
"""Elements that an element-wise call may compute more, at the most."""


def counted(count: int) -> Instruction:
    """A call that writes a number into output 1."""
    one = {f"size{i}": 1 for i in range(8)} | {f"stride{i}": 1 for i in range(8)}
    return Instruction("fill", (COUNT,), {"element_size": 8, "pattern": count, **one})


def limited(count: int, call: Instruction, inputs, shape, dtype="float32", constants=()) -> Program:
    """A program that counts rows, and then makes a call whose result is output 0."""
    outputs = (BufferSpec("y", dtype, shape), BufferSpec("count", "int64", ()))
    specs = tuple(BufferSpec(f"x{i}", x.dtype.name, x.shape) for i, x in enumerate(inputs))
    second = dataclasses.replace(call, limit=Limit(COUNT, ROWS))
    return Program("test", specs, outputs, constants, 0, (counted(count), second))


def rows_of(program: Program, inputs, isa, pool) -> np.ndarray:
    """Run with one thread and with several; what is not written is 77."""
    results = []
    for threads in (None, pool):
        spec = program.outputs[0]
        outputs = [np.full(spec.shape, 77, spec.dtype), np.array(0)]
        runner(program, threads, isa).run(inputs, outputs)
        results.append(outputs[0])
    np.testing.assert_array_equal(*results)
    return results[0]


COUNTS = [0, 1, 7, 133, ROWS - 1, ROWS]


@pytest.mark.parametrize("count", [*COUNTS, -3, ROWS + 5])
def test_indices_behind_the_rows_are_not_read(count, isa, pool, rng):
    data = rng.random((50, 3)).astype(np.float32)
    there = min(max(count, 0), ROWS)
    indices = rng.integers(0, 50, ROWS)
    indices[there:] = 1 << 40
    params = {"element_size": 4, "index_size": 8, "outer": 1, "axis": 50, "inner": 3, "count": ROWS}
    call = Instruction("gather", (Operand("output", 0), Operand("input", 0), Operand("input", 1)), params)
    program = limited(count, call, (data, indices), (ROWS, 3))
    y = rows_of(program, [data, indices], isa, pool)
    np.testing.assert_array_equal(y[:there], data[indices[:there]])
    assert (y[there:] == 77).all()


@pytest.mark.parametrize("count", COUNTS)
def test_tuples_behind_the_rows_are_not_read(count, isa, pool, rng):
    data = rng.random((4, 5, 2)).astype(np.float32)
    tuples = rng.integers(0, 4, (ROWS, 2)).astype(np.int32)
    tuples[count:] = 99
    sizes = {f"size{i}": 1 for i in range(6)} | {"size6": 4, "size7": 5}
    params = {"element_size": 4, "index_size": 4, "batch": 1, "count": ROWS, "depth": 2, "inner": 2, **sizes}
    call = Instruction("gather_nd", (Operand("output", 0), Operand("input", 0), Operand("input", 1)), params)
    y = rows_of(limited(count, call, (data, tuples), (ROWS, 2)), [data, tuples], isa, pool)
    np.testing.assert_array_equal(y[:count], data[tuple(tuples[:count].T)])
    assert (y[count:] == 77).all()


@pytest.mark.parametrize("inner", [1, 5, 3000])
@pytest.mark.parametrize("count", COUNTS)
def test_element_wise(count, inner, isa, pool, rng):
    x = rng.random((ROWS, inner)).astype(np.float32)
    program = encode([x, x], [], [step(BINARY, 0, "float32", 0, 1)])
    places = [Operand("output", 0), *[ABSENT] * 3, Operand("constant", 0), *[Operand("input", 0)] * 2, *[ABSENT] * 9]
    call = Instruction("elementwise", tuple(places), {"words": len(program)})
    y = rows_of(limited(count, call, (x,), x.shape, constants=(program,)), [x], isa, pool)
    np.testing.assert_array_equal(y[:count], (x + x)[:count])
    assert (y.reshape(-1)[count * inner + BLOCK :] == 77).all()


@pytest.mark.parametrize("make", [lambda x: x[:, 1:3], lambda x: x[:, ::2], lambda x: x], ids=["part", "step", "all"])
@pytest.mark.parametrize("count", COUNTS)
def test_copy(make, count, isa, pool, rng):
    x = rng.random((ROWS, 6)).astype(np.float32)
    view = make(x)
    target = np.zeros(view.shape, np.float32)
    offset = view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
    call = Instruction("copy", (Operand("output", 0), Operand("input", 0, offset)), copy_params(view, target))
    y = rows_of(limited(count, call, (x,), view.shape), [x], isa, pool)
    np.testing.assert_array_equal(y[:count], view[:count])


def test_a_call_that_does_not_go_by_rows_computes_them_all(isa, pool, rng):
    x = rng.random((ROWS, 6)).astype(np.float32)
    params = {"outer": 1, "axis": ROWS, "inner": 6, "logarithm": 0}
    call = Instruction("softmax_f32", (Operand("output", 0), Operand("input", 0)), params)
    y = rows_of(limited(3, call, (x,), x.shape), [x], isa, pool)
    assert (y != 77).all()


def test_nothing_is_known_of_the_work():
    x = np.zeros((ROWS, 6), np.float32)
    call = Instruction("copy", (Operand("output", 0), Operand("input", 0)), copy_params(x, x))
    program = limited(3, call, (x,), x.shape)
    assert NativeProgram(program).work(1).bytes == 0
    whole = dataclasses.replace(program, instructions=(program.instructions[0], call))
    assert NativeProgram(whole).work(1).bytes == 2 * x.nbytes


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(Operand("input", 0), ROWS), r"instruction 1 \(copy\): the number of rows is in no arena and no output"),
        (Limit(ABSENT, ROWS), "the number of rows is in no arena and no output"),
        (Limit(Operand("output", 5), ROWS), "the number of rows is in no arena and no output"),
        (Limit(COUNT, -1), "not a number of rows"),
        (Limit(COUNT, 1 << 60), "rows, or no instruction"),
        (Limit(Operand("output", 1, 4), ROWS), "offset 4 is not a multiple of 8"),
        (Limit(Operand("output", 1, 8), ROWS), "reaches past the end"),
        (Limit(Operand("arena"), ROWS), "ends at byte 8 of a buffer of 0"),
        (Limit(Operand("nowhere"), ROWS), 'no operand space "nowhere"'),
    ],
)
def test_bad_limits(limit, text):
    x = np.zeros((ROWS, 6), np.float32)
    call = Instruction("copy", (Operand("output", 0), Operand("input", 0)), copy_params(x, x))
    program = limited(3, call, (x,), x.shape)
    calls = (program.instructions[0], dataclasses.replace(call, limit=limit))
    with pytest.raises(TargetError, match=text):
        NativeProgram(dataclasses.replace(program, instructions=calls))
