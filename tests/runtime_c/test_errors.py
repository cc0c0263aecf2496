"""What is refused, and how: always a typed error that names the instruction, never a crash."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, single
from tinycomp.errors import FeedError, TargetError, UnsupportedError
from tinycomp.memory.budget import limited
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.library import kernel_named, kernel_names
from tinycomp.runtime.native.program import ABSENT, Instruction, Operand, Program

GEMM = {"m": 2, "n": 3, "k": 4, "lda": 4, "ldc": 3, "ldr": 0, "trans_b": 0, **OWN_BLOCKS, **NO_ACTIVATION}


def gemm_program(**changes: float) -> Program:
    a, b = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    return single("gemm_f32", [a, Weight(b), None, None], GEMM | changes, ("float32", (2, 3)))[0]


def with_call(program: Program, **changes: object) -> Program:
    return dataclasses.replace(program, instructions=(dataclasses.replace(program.instructions[0], **changes),))


def with_operand(program: Program, index: int, operand: Operand) -> Program:
    operands = list(program.instructions[0].operands)
    operands[index] = operand
    return with_call(program, operands=tuple(operands))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"m": -1}, "a size is negative: -1"),
        ({"m": 2**62, "n": 2**62, "ldc": 2**62}, "passes 2\\^48"),
        ({"k": 2**63 - 1, "lda": 2**63 - 1}, "passes 2\\^48"),
        ({"m": 3}, "reaches past the end"),
        ({"k": 5, "lda": 5}, "operand 2 ends at byte 60 of a buffer of 48"),
        ({"lda": 3}, "a row stride is shorter than its row"),
        ({"trans_b": 2}, "trans_b must be 0 or 1"),
        ({"activation": 11}, "there is no activation 11"),
        ({"activation": 2, "activation_a": float("nan")}, "an activation parameter is NaN"),
        ({"k": 2**63}, "does not fit"),
        ({"k": 1.5}, "does not fit"),
        ({"kk": 1}, 'kernel "gemm_f32" has no parameter "kk"'),
    ],
)
def test_bad_parameters(changes, text):
    with pytest.raises(TargetError, match=text):
        NativeProgram(gemm_program(**changes))


def test_missing_parameter():
    params = {name: value for name, value in GEMM.items() if name != "lda"}
    with pytest.raises(TargetError, match="lacks the parameters lda"):
        NativeProgram(with_call(gemm_program(), params=params))


@pytest.mark.parametrize(
    ("index", "operand", "text"),
    [
        (0, ABSENT, "operand 0: a required operand is absent"),
        (0, Operand("input", 0), "an input or a constant cannot be written"),
        (1, Operand("input", 1), "index 1 is not among the 1 buffers"),
        (1, Operand("input", -1), "index -1 is not among"),
        (1, Operand("arena", 0), "operand 1 ends at byte 32 of a buffer of 0"),
        (1, Operand("input", 0, 4), "reaches past the end of"),
        (1, Operand("input", 0, -4), "offset -4 is out of range"),
        (1, Operand("heap", 0), 'there is no operand space "heap"'),
        (2, Operand("input", 0), "operand 2: the operand must be a constant"),
        (2, Operand("constant", 0, 2), "operand 2 ends at byte 50 of a buffer of 48"),
        (2, Operand("constant", 0, 1 << 40), "operand 2 ends at byte"),
        (2, Operand("constant", 0, 1 << 64), "offset does not fit"),
        (2, Operand("constant", 1 << 31), "index or offset does not fit"),
        (4, Operand("output", 0, 2), "operand 4: offset 2 is not a multiple of 4"),
    ],
)
def test_bad_operands(index, operand, text):
    with pytest.raises(TargetError, match=text):
        NativeProgram(with_operand(gemm_program(ldr=3), index, operand))


def test_message_names_program_and_instruction():
    with pytest.raises(TargetError, match=r"test: instruction 0 \(gemm_f32\): trans_b"):
        NativeProgram(gemm_program(trans_b=2))


def test_unknown_kernel():
    with pytest.raises(TargetError, match=r'there is no kernel "gem_f32".*Did you mean "gemm_f32"'):
        NativeProgram(with_call(gemm_program(), kernel="gem_f32"))


def test_wrong_number_of_operands():
    with pytest.raises(TargetError, match="2 operands and"):
        NativeProgram(with_call(gemm_program(), operands=(Operand("output"), Operand("input"))))


def test_unknown_isa(monkeypatch):
    with pytest.raises(UnsupportedError, match='instruction set "mmx"'):
        NativeProgram(gemm_program(), isa="mmx")
    monkeypatch.setenv("TINYCOMP_ISA", "altivec")
    with pytest.raises(UnsupportedError, match='instruction set "altivec"'):
        NativeProgram(gemm_program())


def test_environment_chooses_the_isa(monkeypatch):
    monkeypatch.setenv("TINYCOMP_ISA", "scalar")
    assert NativeProgram(gemm_program()).isa == "scalar"


def test_no_memory_is_a_memory_error():
    with limited(memory=1 << 48), pytest.raises(MemoryError, match="no memory for an arena"):
        NativeProgram(dataclasses.replace(gemm_program(), arena_bytes=1 << 47))


def test_pool_size():
    with pytest.raises(TargetError, match="expected a whole number from 1 to 1024; found 0"):
        Pool(0)


def make_feeds() -> tuple[np.ndarray, np.ndarray]:
    return np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ([], None, "wrong number of arrays; expected 1; found 0"),
        ([np.ones((2, 4))], None, r'array 0 \(".+"\) does not fit; expected float32.* found float64'),
        ([np.ones((4, 2), np.float32)], None, r"found float32\[4, 2\]"),
        ([np.ones((4, 2), np.float32).T], None, "not contiguous"),
        ([np.ones((2, 4), ">f4")], None, r'array 0 \(".+"\) does not fit'),
        (None, [np.frombuffer(bytes(24), np.float32).reshape(2, 3)], "not contiguous or not writable"),
        ([np.frombuffer(bytes(33), np.uint8)[1:].view(np.float32).reshape(2, 4)], None, "input 0 is not aligned"),
    ],
)
def test_bad_feeds(inputs, outputs, text):
    native = NativeProgram(gemm_program())
    x, y = make_feeds()
    with pytest.raises(FeedError, match=text):
        native.run([x] if inputs is None else inputs, [y] if outputs is None else outputs)
    native.run([x], [y])  # still usable
    np.testing.assert_array_equal(y, 4)


@pytest.mark.parametrize("kernel", kernel_names())
@pytest.mark.parametrize("value", [0, -1, 1, 7, 2**31, 2**62, 2**63 - 1])
def test_extreme_parameters_never_crash(kernel, value):
    """Every parameter in turn takes an extreme value while the others are small."""
    operands = tuple(Operand("arena") for _ in range(5)) if kernel == "matmul_f32" else None
    operands = operands or (Operand("arena"), Operand("arena"), Operand("constant"), Operand("constant"), ABSENT)
    fields = kernel_named(kernel).fields
    for name, kind in fields.items():
        params = {field: (kind_(1)) for field, kind_ in fields.items()} | {name: kind(value)}
        call = Instruction(kernel, operands, params)
        program = Program("extreme", (), (), (np.ones(64, np.float32),), 4096, (call,))
        with contextlib.suppress(TargetError, MemoryError):
            NativeProgram(program).run([], [])
