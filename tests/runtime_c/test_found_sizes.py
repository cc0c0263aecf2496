"""Sizes that instructions find out: what must come before, what follows, and what a run may find."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.runtime_c.sized import Builder
from tinycomp.errors import ExecutionError, FeedError, TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import Condition, Found, Instruction, Left, Operand, Program, TableWord
from tinycomp.symbolic import symbol

N = symbol("n")
REST = symbol("found0")


def halved() -> Program:
    """Find out that half of the rows remain, and give their products."""
    b = Builder(np.random.default_rng(0))
    b.give(b.gemm(b.first(b.matrix(N, 4), N // 2), 5))
    return b.program()


def counting() -> Program:
    """Find out the size that an input holds: the first of its elements, of which there may be 9 at most."""
    b = Builder(np.random.default_rng(0))
    told, x = b.input(1, dtype="int64"), b.matrix(N, 4)
    place = b.piece(8)
    one = {f"{name}{i}": 1 for name in ("size", "to_stride", "from_stride") for i in range(8)}
    b.most["found0"] = 9
    b.call("copy", [place, told], {"element_size": 8, **one}, Found("found0", 0, 9))
    b.give(b.range(REST))
    b.give(x)
    return b.program()


def changed(program: Program, index: int, **fields: object) -> Program:
    """Change the instruction at ``index``."""
    calls = list(program.instructions)
    calls[index] = dataclasses.replace(calls[index], **fields)
    return dataclasses.replace(program, instructions=tuple(calls))


def test_results_have_the_size_found(pool):
    native = NativeProgram(counting(), pool)
    x = np.ones((2, 4), np.float32)
    for size in (3, 3, 0, 9, 1):
        y, _ = native.call([np.array([size]), x])
        np.testing.assert_array_equal(y, np.arange(size, dtype=np.float32)[:, None] / 4 - 3)


@pytest.mark.parametrize("size", [-1, 10, 1 << 62, -(1 << 62)])
def test_a_size_that_cannot_be(size):
    native = NativeProgram(counting())
    x = np.ones((2, 4), np.float32)
    with pytest.raises(ExecutionError, match=f"found a size of {size}, not one from 0 to 9"):
        native.call([np.array([size]), x])
    assert len(native.call([np.array([4]), x])[0]) == 4


def test_a_condition_of_what_is_found():
    program = dataclasses.replace(counting(), conditions=(Condition(REST - N, "rows differ", "join"),))
    native = NativeProgram(program)
    x = np.ones((4, 4), np.float32)
    for size in (4, 3, 3, 4):
        if size == 4:
            assert len(native.call([np.array([size]), x])[0]) == 4
        else:
            with pytest.raises(ExecutionError, match="node join: rows differ"):
                native.call([np.array([size]), x])


def test_arrays_for_results_must_have_the_size_found():
    native = NativeProgram(halved())
    x, y = np.ones((6, 4), np.float32), np.zeros((3, 5), np.float32)
    native.run([x], [y])
    np.testing.assert_array_equal(y, native.call([x])[0])
    with pytest.raises(FeedError, match="the result does not fit the array"):
        native.run([x], [np.zeros((2, 5), np.float32)])


def test_sizes_without_any_that_an_input_shows():
    b = Builder(np.random.default_rng(0))
    b.give(b.gemm(b.first(b.matrix(6, 4), 5), 3))
    native = NativeProgram(b.program())
    assert native.program.symbols == ()
    assert native.call([np.ones((6, 4), np.float32)])[0].shape == (5, 3)


def earlier(program: Program) -> Program:
    """Let the first call depend on what the second one finds out."""
    first, second, *rest = program.instructions
    return dataclasses.replace(program, instructions=(*rest[:1], first, second, *rest[1:]))


def without_a_finder(program: Program) -> Program:
    """Leave the symbol without a call that finds it."""
    return changed(program, 0, found=None)


def in_an_output(program: Program) -> Program:
    call = program.instructions[0]
    return changed(program, 0, operands=(Operand("output", 0), *call.operands[1:]))


def growing_memory(program: Program) -> Program:
    pieces = list(program.arena)
    pieces[1] = dataclasses.replace(pieces[1], nbytes=REST * 4)
    return dataclasses.replace(program, arena=tuple(pieces))


def found_bound(program: Program) -> Program:
    return changed(program, 0, found=Found("found0", 0, REST + 1))


def too_small(program: Program) -> Program:
    call = program.instructions[0]
    return changed(program, 0, params={**call.params, "element_size": 4})


def read_operand(program: Program) -> Program:
    return changed(program, 0, found=Found("found0", 1, 9))


def nowhere(program: Program) -> Program:
    return dataclasses.replace(program, left=(Left(0, Operand("arena", 99)),))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (earlier, "depends on a size that is found out later"),
        (without_a_finder, "'found0', which is not a dimension of an input"),
        (in_an_output, "finds out no symbol"),
        (growing_memory, "sizes of memory follow from what is found out"),
        (found_bound, "sizes of memory follow from what is found out"),
        (read_operand, "finds out no symbol"),
        (nowhere, "cannot lie there"),
    ],
)
def test_programs_that_do_not_hold_together(damage, text):
    with pytest.raises(TargetError, match=text):
        NativeProgram(damage(counting()))


def test_an_operand_that_holds_no_size():
    native = NativeProgram(too_small(counting()))
    with pytest.raises(FeedError, match="operand 0 is too small for a size"):
        native.call([np.array([4]), np.ones((2, 4), np.float32)])


def test_a_result_larger_than_its_place():
    """The place has room for the most; a result that claims more is not handed out."""
    program = counting()
    outputs = (dataclasses.replace(program.outputs[0], shape=(REST * 3, 1)), *program.outputs[1:])
    native = NativeProgram(dataclasses.replace(program, outputs=outputs))
    with pytest.raises(ExecutionError, match="output 0 has 108 bytes, more than there is room for"):
        native.call([np.array([9]), np.ones((2, 4), np.float32)])


def test_tables_may_not_follow_before():
    program = counting()
    word = TableWord(0, 0, REST)
    calls = [call for call in program.instructions if call.kernel == "range"]
    table = np.zeros(4, np.int64)
    range_ = dataclasses.replace(
        calls[0], operands=(calls[0].operands[0], Operand("constant", 0), calls[0].operands[2])
    )
    assert isinstance(range_, Instruction)
    program = dataclasses.replace(
        program, constants=(table, *program.constants[1:]), tables=(word,), instructions=(range_, *program.instructions)
    )
    with pytest.raises(TargetError, match="found out later"):
        NativeProgram(program)
