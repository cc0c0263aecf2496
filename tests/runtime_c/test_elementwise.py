"""Programs of several steps, blocks that hold several rows, and programs that are damaged."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from tests.runtime_c.element import BINARY, CAST, COMPARE, LOGICAL, TYPES, UNARY, WHERE, encode, run_steps, step
from tests.runtime_c.emulated import runner
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

ADD, SUB, MUL = 0, 1, 2
F32 = "float32"
SHAPES = [
    ((40, 3000), (3000,), (40, 1)),  # long rows in pieces
    ((3000, 24), (24,), (3000, 1)),  # several rows in a block
    ((50, 7, 4), (7, 1), (50, 1, 4)),
    ((5, 2, 3, 2, 3, 2), (1, 2, 1, 2, 1, 2), (5, 1, 3, 1, 3, 1)),
    ((1,), (1,), (1,)),
    ((3, 0, 4), (4,), (1,)),
    ((9, 600), (1,), (9, 600)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_broadcasting_inside_a_program(shapes, dtype, isa, pool, rng):
    x, y, z = (rng.integers(-5, 5, shape).astype(dtype) for shape in shapes)
    steps = [step(BINARY, MUL, dtype, 0, 1), step(BINARY, SUB, dtype, 3, 2), step(BINARY, ADD, dtype, 3, 4)]
    found = run_steps([x, y, z], steps, dtype, isa, pool)
    np.testing.assert_array_equal(found, x * y + (x * y - z))


def test_transposed_operands(isa, pool, rng):
    x = rng.standard_normal((6, 5, 40), np.float32)
    y = rng.standard_normal((40, 5, 6), np.float32).T[::-1]
    found = run_steps([x, y], [step(BINARY, ADD, F32, 0, 1), step(BINARY, MUL, F32, 1, 2)], F32, isa, pool)
    np.testing.assert_array_equal(found, y * (x + y))


def test_every_kind_of_step_and_immediates(isa, pool, rng):
    x = rng.standard_normal((33, 65), np.float32)
    immediates = [(F32, 0.5), ("bool", 1), ("int32", -7)]
    steps = [
        step(COMPARE, 2, F32, 0, 1),  # 4: x < 0.5
        step(LOGICAL, 2, "bool", 4, 2),  # 5: not that
        step(CAST, TYPES.index(np.dtype("int32")), F32, 0),  # 6
        step(BINARY, ADD, "int32", 6, 3),  # 7
        step(UNARY, 33, "int32", 7),  # 8
        step(WHERE, 0, "int32", 5, 8, 3),  # 9
        step(CAST, TYPES.index(np.dtype("float16")), "int32", 9),
    ]
    found = run_steps([x], steps, "float16", isa, pool, immediates)
    np.testing.assert_array_equal(found, np.where(x < 0.5, -7, 7 - x.astype(np.int32)).astype(np.float16))


def test_many_steps_share_few_buffers(isa, pool, rng):
    x = rng.standard_normal(5000, np.float32)
    steps = [step(BINARY, ADD, F32, 0, max(0, i - 1)) for i in range(1, 97)]
    np.testing.assert_allclose(run_steps([x], steps, F32, isa, pool), x * 97, rtol=1e-5)


def outputs_program(outputs: list[int]) -> Program:
    """Return a program of two steps, double and square, that gives the results asked for."""
    x = np.zeros((7, 300), np.float32)
    words = encode([x], [], [step(BINARY, ADD, F32, 0, 0), step(BINARY, MUL, F32, 1, 1)])
    words = np.array([*words[:3], len(outputs), *words[4:-1], *outputs], np.int64)
    specs = tuple(BufferSpec(f"y{i}", F32, x.shape) for i in range(len(outputs)))
    places = [Operand("output", i) for i in range(len(outputs))]
    operands = (*places, *[ABSENT] * (4 - len(places)), Operand("constant"), Operand("input"), *[ABSENT] * 10)
    call = Instruction("elementwise", operands, {"words": words.size})
    return Program("outputs", (BufferSpec("x", F32, x.shape),), specs, (words,), 0, (call,))


def test_several_outputs(isa, pool, rng):
    x = rng.standard_normal((7, 300), np.float32)
    found = [np.zeros_like(x), np.zeros_like(x)]
    runner(outputs_program([2, 1]), pool, isa).run([x], found)
    np.testing.assert_array_equal(found[0], 4 * x * x)
    np.testing.assert_array_equal(found[1], 2 * x)


@pytest.mark.parametrize("offset", [0, 1, 3, 15])
@pytest.mark.parametrize("count", [1, 63, 2049, 9000])
def test_results_at_any_address(offset, count, isa, pool, rng):
    """A row is cut so that results lie at whole cache lines; nothing beside them is written."""
    x = rng.standard_normal(count, np.float32)
    program = encode([x], [], [step(COMPARE, 2, F32, 0, 0), step(BINARY, ADD, F32, 0, 0)])
    words = np.array([*program[:3], 2, *program[4:-1], 2, 1], np.int64)
    specs = (BufferSpec("y", F32, x.shape), BufferSpec("less", "bool", x.shape))
    operands = (*(Operand("output", i) for i in range(2)), ABSENT, ABSENT, Operand("constant"), Operand("input"))
    call = Instruction("elementwise", (*operands, *[ABSENT] * 10), {"words": words.size})
    native = runner(Program("aligned", (BufferSpec("x", F32, x.shape),), specs, (words,), 0, (call,)), pool, isa)
    wide, less = np.full(count + 32, 77, np.float32), np.full(count + 32, 77, np.uint8)
    native.run([x], [wide[offset : offset + count], less[offset : offset + count].view(bool)])
    np.testing.assert_array_equal(wide[offset : offset + count], 2 * x)
    np.testing.assert_array_equal(less[offset : offset + count], 0)
    for array in (wide, less):
        np.testing.assert_array_equal(np.delete(array, slice(offset, offset + count)), 77)


@pytest.mark.parametrize(("outputs", "message"), [([1, 1], "two outputs of the same step"), ([0], "which is no step")])
def test_outputs_that_cannot_be(outputs, message, native_isa):
    with pytest.raises(TargetError, match=message):
        NativeProgram(outputs_program(outputs), None, native_isa)


def test_a_program_of_another_length(native_isa):
    program = outputs_program([2])
    (call,) = program.instructions
    for words, message in ((4, "a program of 4 words"), (1000, "a program of 1000 words"), (30, "words, not ")):
        damaged = Instruction(call.kernel, call.operands, {"words": words})
        with pytest.raises(TargetError, match=message):
            NativeProgram(replace(program, instructions=(damaged,)), None, native_isa)


def test_no_damaged_word_crashes(native_isa):
    """Every word of a program is replaced by many others: it runs inside its buffers, or is refused."""
    x = np.zeros((7, 300), np.float32)
    program = encode(
        [x, np.broadcast_to(x[:1], x.shape)],
        [(F32, 2.0), ("bool", 1)],
        [
            step(BINARY, MUL, F32, 0, 1),
            step(COMPARE, 2, F32, 4, 2),
            step(WHERE, 0, F32, 5, 4, 2),
            step(UNARY, 45, F32, 6, a=1),
        ],
    )
    for index in range(program.size):
        for value in (0, -1, 1, 2, 3, 5, 12, 13, 64, 255, 2**31, 2**47, 2**62, -(2**63), 2**63 - 1):
            damaged = program.copy()
            damaged[index] = value
            places = [Operand("arena", 0, 0), ABSENT, ABSENT, ABSENT, Operand("constant")]
            places += [Operand("arena", 0, 16384), Operand("arena", 0, 32768), *[ABSENT] * 9]
            call = Instruction("elementwise", tuple(places), {"words": damaged.size})
            with contextlib.suppress(TargetError, ExecutionError, MemoryError):
                NativeProgram(Program("damaged", (), (), (damaged,), 65536, (call,)), None, native_isa).run([], [])
