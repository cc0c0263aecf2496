"""A run shows nothing that it has not written, takes no more work than its data explain, and ends in time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.runtime_c.views import eight, strides
from tests.targets.c.ops.test_control_flow import choosing
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.memory.budget import limited
from tinycomp.runtime.binding import direct_call
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.library import ffi, lib
from tinycomp.runtime.native.program import ArenaBuffer, BufferSpec, Found, Instruction, Operand, Program
from tinycomp.runtime.plan import Plan, Step
from tinycomp.runtime.regions import NativeRegion
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Expression, symbol

ROWS, COLUMNS = 6, 8
WHOLE = np.empty((ROWS, COLUMNS), np.float32)
N = symbol("n")


def copied(source: Operand, target: Operand, to: np.ndarray, of: np.ndarray | None = None) -> Instruction:
    """Return a copy of a view of one array into another that looks like ``to``."""
    of = np.empty(to.shape, np.float32) if of is None else of
    params = {"element_size": 4} | eight("size", to.shape, 1) | strides("to_stride", to) | strides("from_stride", of)
    return Instruction("copy", (target, source), params)


def program(*calls: Instruction, arena: int = 0, shape: tuple[int, ...] = WHOLE.shape) -> Program:
    return Program(
        "p", (BufferSpec("x", "float32", WHOLE.shape),), (BufferSpec("y", "float32", shape),), (), arena, calls
    )


X, Y = Operand("input"), Operand("output")
ARENA = Operand("arena")


def at(column: int) -> Operand:
    return Operand("output", 0, 4 * column)


def written(native: NativeProgram) -> int:
    """Return how many of the first bytes of the output a run writes for certain."""
    return int(lib.tc_context_written_bytes(native.contexts[0].handle, 0))


def direct(native: NativeProgram):
    """Return the short way through a program, as a module takes it."""
    region = NativeRegion.__new__(NativeRegion)
    region.program, region.native = native.program, native
    specs = [
        tuple(TensorSpec(s.name, s.dtype, tuple(d if isinstance(d, int) else str(d) for d in s.shape)) for s in of)
        for of in (native.program.inputs, native.program.outputs)
    ]
    step = Step("p", "p", "c", region, (2,), (3,))
    call = direct_call(Plan(*specs, (step,), (None,) * 4, (2,), (3,)))
    assert call is not None
    return call


PARTS = {
    "some rows": (copied(X, Y, WHOLE[:4]), 4 * COLUMNS * 4, np.s_[4:]),
    "some columns": (copied(X, Y, WHOLE[:, :5]), 0, np.s_[:, 5:]),
    "every other element": (copied(X, Y, WHOLE[:, ::2]), 0, np.s_[:, 1::2]),
}


@pytest.mark.parametrize("case", PARTS)
def test_what_a_call_leaves_out_of_a_result_is_zero(case):
    call, certain, rest = PARTS[case]
    native = NativeProgram(program(call))
    assert written(native) == certain
    x = np.ones(WHOLE.shape, np.float32)
    short = direct(native)
    for _ in range(20):
        dirt = [np.full(WHOLE.shape, np.nan, np.float32) for _ in range(8)]
        del dirt
        for (result,) in (native.call([x]), short([x])):
            assert not result[rest].any()
            assert np.isfinite(result).all()


def test_memory_of_the_caller_is_left_alone():
    call, _, rest = PARTS["some columns"]
    y = np.full(WHOLE.shape, 7, np.float32)
    NativeProgram(program(call)).run([np.ones(WHOLE.shape, np.float32)], [y])
    assert (y[rest] == 7).all()


def test_a_result_of_which_a_run_reaches_a_part_ends_with_zeros():
    native = NativeProgram(program(copied(X, Y, WHOLE), shape=(2 * ROWS, COLUMNS)))
    (result,) = native.call([np.ones(WHOLE.shape, np.float32)])
    assert result[:ROWS].all()
    assert not result[ROWS:].any()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_columns_side_by_side_leave_nothing_out(order):
    parts = [copied(X, at(0), WHOLE[:, :3]), copied(X, at(3), WHOLE[:, 3:4]), copied(X, at(4), WHOLE[:, 4:])]
    assert written(NativeProgram(program(*[parts[i] for i in order]))) == WHOLE.nbytes
    for missing in range(3):
        assert written(NativeProgram(program(*[parts[i] for i in order if i != missing]))) < WHOLE.nbytes


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 2, 1)])
def test_columns_of_rows_that_a_run_shows(order):
    inputs, outputs = BufferSpec("x", "float32", (N, COLUMNS)), BufferSpec("y", "float32", (N, COLUMNS))
    places = [np.s_[:, :3], np.s_[:, 3:4], np.s_[:, 4:]]
    parts = [copied(X, at(columns.start or 0), WHOLE[:, columns], WHOLE) for _, columns in places]
    parts = [dataclasses.replace(part, params={**part.params, "size6": N}) for part in parts]
    for missing in (None, 0, 1, 2):
        calls = tuple([parts[i] for i in order if i != missing])
        native = NativeProgram(Program("p", (inputs,), (outputs,), (), 0, calls, arena=(ArenaBuffer(N, ()),)))
        for rows in (6, 1, 9, 0, 6):
            (result,) = native.call([np.ones((rows, COLUMNS), np.float32)])
            wanted = np.ones((rows, COLUMNS), np.float32)
            if missing is not None:
                wanted[places[missing]] = 0
            np.testing.assert_array_equal(result, wanted)
            assert (written(native) == wanted.nbytes) == (missing is None or not rows)


def test_columns_of_other_rows_do_not_count():
    parts = [copied(X, at(0), WHOLE[:, :3]), copied(X, at(3), WHOLE[:5, 3:])]
    assert written(NativeProgram(program(*parts))) == 0


def test_strides_that_meet_by_number_alone_do_not_count():
    """Eight elements within eight, of which two are written twice."""
    params = {"element_size": 4} | eight("size", (2, 2, 2), 1)
    params |= dict(zip((f"to_stride{i}" for i in range(8)), (9, 9, 9, 9, 9, 5, 1, 1), strict=True))
    params |= dict.fromkeys((f"from_stride{i}" for i in range(8)), 0)
    assert written(NativeProgram(program(Instruction("copy", (Y, X), params), shape=(8,)))) == 0


def test_what_was_not_written_of_the_arena_is_zero_in_every_run():
    calls = (
        copied(X, ARENA, WHOLE[:4]),
        copied(ARENA, Y, WHOLE),
        copied(X, ARENA, WHOLE),  # for the next run, as it were
    )
    native = NativeProgram(program(*calls, arena=WHOLE.nbytes))
    for _ in range(3):
        (result,) = native.call([np.ones(WHOLE.shape, np.float32)])
        assert result[:4].all()
        assert not result[4:].any()


def test_a_part_that_is_written_may_be_read_before_the_rest_is():
    half = WHOLE[:, :4]
    calls = (copied(X, ARENA, half), copied(ARENA, Operand("arena", 0, 16), half, half), copied(ARENA, Y, WHOLE))
    x = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(WHOLE.shape)
    (result,) = NativeProgram(program(*calls, arena=WHOLE.nbytes)).call([x])
    np.testing.assert_array_equal(result, np.tile(x.reshape(-1)[:24].reshape(6, 4), (1, 2)))


def test_sizes_of_a_run_decide_what_it_writes():
    """Six rows are written, whatever the sizes are."""
    inputs, outputs = BufferSpec("x", "float32", (N, 8)), BufferSpec("y", "float32", (N, 8))
    native = NativeProgram(
        Program("p", (inputs,), (outputs,), (), 0, (copied(X, Y, WHOLE),), arena=(ArenaBuffer(N, ()),))
    )
    short = direct(native)
    for rows in (6, 9, 6, 12):
        x = np.ones((rows, 8), np.float32)
        for (result,) in (native.call([x]), short([x]) or native.call([x])):
            assert result[:6].all()
            assert not result[6:].any()
        assert written(native) == WHOLE.nbytes


def test_an_output_that_does_not_exist_has_no_bytes():
    native = NativeProgram(program(copied(X, Y, WHOLE)))
    for index in (-1, 1):
        assert lib.tc_context_written_bytes(native.contexts[0].handle, index) == 0
    inputs, outputs = BufferSpec("x", "float32", (N, 8)), BufferSpec("y", "float32", (N, 8))
    symbolic = NativeProgram(Program("p", (inputs,), (outputs,), (), 0, (copied(X, Y, WHOLE),)))
    assert written(symbolic) == 0  # before there are sizes


def test_what_a_body_leaves_out_is_zero():
    steps = tinycomp.compile(choosing(5), "c")._parts.plan.steps
    whole = next(step.run.program for step in steps if isinstance(step.run, NativeRegion))
    calls = list(whole.instructions)
    (place,) = [i for i, call in enumerate(calls) if call.control is not None]
    control = calls[place].control
    shape = control.bodies[0].outputs[0].shape
    part = copied(X, Y, np.empty(shape, np.float32)[:2])
    bodies = tuple([dataclasses.replace(body, instructions=(part,)) for body in control.bodies])
    calls[place] = dataclasses.replace(calls[place], control=dataclasses.replace(control, bodies=bodies))
    x = np.ones((5, 4), np.float32)
    clean, cut = NativeProgram(whole).call([x])[0], NativeProgram(dataclasses.replace(whole, instructions=tuple(calls)))
    results = [cut.call([x])[0] for _ in range(3)]
    assert results[0].shape == clean.shape
    for result in results:
        np.testing.assert_array_equal(result, results[0])
        assert np.isfinite(result).all()


# Positions and what is behind them ------------------------------------------------------------------------------------

POSITIONS, COUNTS, TUPLES, COUNT, OTHER = (Operand("arena", i) for i in range(5))
ELEMENTS, ROOM = 16, 8


def read(source: Operand, elements: int | Expression) -> Instruction:
    """Copy the first numbers of a piece to the output."""
    ones = {f"{name}{i}": 1 for name in ("size", "to_stride", "from_stride") for i in range(8)}
    return Instruction("copy", (Y, source), {"element_size": 8, **ones, "size7": elements})


def over(counts: Operand) -> list[Instruction]:
    """Write other counts: the first numbers of the input."""
    return [Instruction("copy", (counts, X), read(X, 2).params)]


def finding(behind: Instruction, counts: Operand = COUNTS, found: bool = True, between: Sequence[Instruction] = ()):
    """Find the positions of elements in two segments, then their coordinates, and go on with more calls."""
    elements = symbol("elements")
    params = {"element_size": 8, "is_float": 0, "elements": elements, "room": ROOM}
    sizes = eight("size", (ELEMENTS,), 1) | {"segments": 2, "room": ROOM, "rank": 1}
    calls = (
        Instruction("nonzero", (POSITIONS, COUNTS, X), params),
        *between,
        Instruction(
            "coordinates",
            (TUPLES, COUNT, POSITIONS, counts),
            sizes,
            found=Found("found", 1, ELEMENTS) if found else None,
        ),
        behind,
    )
    room = (8 * ELEMENTS, 16, 8 * ELEMENTS, 8, 16)
    arena = tuple(ArenaBuffer(nbytes, tuple(range(i))) for i, nbytes in enumerate(room))
    inputs, outputs = BufferSpec("x", "int64", (elements,)), BufferSpec("y", "int64", (ELEMENTS,))
    return NativeProgram(Program("p", (inputs,), (outputs,), (), 0, calls, arena=arena))


FOUND = symbol("found")
BEHIND: dict[str, tuple[Instruction, dict[str, Any]]] = {
    "more tuples than were found": (read(TUPLES, ELEMENTS), {}),
    "more tuples the fewer were found": (read(TUPLES, ELEMENTS - FOUND), {}),
    "tuples of a count that nobody has taken": (read(TUPLES, ELEMENTS), {"found": False}),
    "positions": (read(POSITIONS, ELEMENTS), {}),
    "positions counted by others": (read(TUPLES, FOUND), {"counts": OTHER, "between": over(OTHER)}),
    "positions whose counts were written over": (read(TUPLES, FOUND), {"between": over(COUNTS)}),
}


@pytest.mark.parametrize("case", BEHIND)
def test_nothing_of_an_earlier_run_is_behind_what_was_found(case):
    behind, changes = BEHIND[case]
    native = finding(behind, **changes)
    few = np.zeros(ELEMENTS, np.int64)
    few[:2] = 8, 8  # as counts they are all of the segments
    many = np.arange(1, ELEMENTS + 1)
    clean = native.call([few])[0].copy()
    for _ in range(3):
        native.call([many])
        np.testing.assert_array_equal(native.call([few])[0], clean)


def test_what_was_found_is_read_as_it_is():
    native = finding(read(TUPLES, FOUND))
    for count in (16, 3, 3, 0, 9):
        x = np.zeros(ELEMENTS, np.int64)
        x[ELEMENTS - count :] = 1
        result = native.call([x])[0]
        np.testing.assert_array_equal(result[:count], np.flatnonzero(x))
        assert not result[count:].any()


# Work and time ------------------------------------------------------------------------------------------------------


def product(m: int, n: int, k: int, a_row: int, b_row: int) -> dict[str, float]:
    batches = [f"{matrix}_batch{i}" for matrix in "abcr" for i in (0, 1)]
    names = [*batches, "r_row", "activation", "block_rows"]
    floats = {"alpha": 1.0, "activation_a": 0.0, "activation_b": 0.0}
    sizes = {"batch0": 1, "batch1": 1, "m": m, "n": n, "k": k, "a_row": a_row, "b_row": b_row, "c_row": n}
    return dict.fromkeys(names, 0) | sizes | floats | {"a_column": int(a_row > 0), "b_column": 1}


def multiplied(size: int, sums: int, stride: int) -> Program:
    none = Operand("none")
    call = Instruction("matmul_f32", (Y, X, X, none, none), product(size, size, sums, stride, stride))
    spec = BufferSpec("x", "float32", (size, size))
    return Program("p", (spec,), (spec,), (), 0, (call,))


def test_work_that_no_data_explain_is_refused():
    with pytest.raises(TargetError, match=r"matmul_f32\): the call would take 2\.2e\+12 operations for 116 bytes"):
        NativeProgram(multiplied(4, 1 << 36, 0))
    NativeProgram(multiplied(4, 1 << 20, 0))


def test_steps_of_no_bytes_are_refused():
    sizes = {"element_size": 4, "index_size": 8, "outer": 1 << 40, "axis": 1, "inner": 0, "count": 1}
    call = Instruction("gather", (Y, X, Operand("constant")), sizes)
    specs = (BufferSpec("x", "float32", (1,)),), (BufferSpec("y", "float32", (1,)),)
    with pytest.raises(TargetError, match=r"gather\): the call would take 8\.8e\+12 operations for 8 bytes"):
        NativeProgram(Program("p", *specs, (np.zeros(1, np.int64),), 0, (call,)))


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_ends_inside_a_call_when_its_time_is_up(threads):
    size = 3000
    native = NativeProgram(multiplied(size, size, size), Pool(threads))
    x = np.ones((size, size), np.float32)
    native.call([x])
    started = time.monotonic()
    native.call([x])
    whole = time.monotonic() - started
    started = time.monotonic()
    with pytest.raises(ExecutionError, match="region p: the time is up"), limited(timeout=whole / 50):
        native.call([x])
    assert time.monotonic() - started < whole
    with limited(timeout=100 * whole + 60):
        np.testing.assert_array_equal(native.call([x])[0], size)
    np.testing.assert_array_equal(native.call([x])[0], size)  # no deadline is left behind


def test_time_that_is_up_ends_a_run_before_its_first_step():
    native = NativeProgram(program(copied(X, Y, WHOLE)))
    context, x, y = native.contexts[0], np.ones(WHOLE.shape, np.float32), np.zeros(WHOLE.shape, np.float32)
    native._fit(context, [x])
    native._place(context, [y])
    lib.tc_context_end_after(context.handle, 1e-9)
    error = context.error
    assert lib.tc_run(native.handle, context.handle, ffi.NULL, context.inputs, context.outputs, error) == lib.TC_LIMIT
    assert not np.array_equal(x, y)
    lib.tc_context_end_after(context.handle, 0.0)
    assert lib.tc_run(native.handle, context.handle, ffi.NULL, context.inputs, context.outputs, error) == lib.TC_OK
    assert y.all()
