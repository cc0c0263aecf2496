"""No parameter, however damaged, crashes a kernel: it runs, or it is refused by a typed error."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.library import kernel_named, kernel_names
from tinycomp.runtime.native.program import Instruction, Operand, Program

VALUES = [0, -1, 2, 3, 7, 64, 2**31, -(2**31), 2**47, 2**62, 2**63 - 1, -(2**63)]


def operands_of(kernel: str) -> tuple[Operand, ...]:
    """Return operands in small buffers: constants where the kernel wants them, otherwise pieces of the arena."""
    signature = kernel_named(kernel).signature
    return tuple(
        Operand("constant") if letter in "wWpP" else Operand("arena", 0, 1024 * i) for i, letter in enumerate(signature)
    )


@pytest.mark.parametrize("kernel", kernel_names())
@pytest.mark.parametrize("start", [1, 2])
def test_extreme_parameters(kernel, start, native_isa):
    fields = kernel_named(kernel).fields
    for name, kind in fields.items():
        for value in VALUES:
            params = {field: type_(start) for field, type_ in fields.items()} | {name: kind(value)}
            call = Instruction(kernel, operands_of(kernel), params)
            program = Program("extreme", (), (), (np.ones(64, np.int64),), 8192, (call,))
            with contextlib.suppress(TargetError, ExecutionError, MemoryError):
                NativeProgram(program, None, native_isa).run([], [])


@pytest.mark.parametrize("kernel", kernel_names())
def test_sizes_of_nothing(kernel, native_isa):
    """Each of some parameters is 0, others are small, as where a dimension turns out to be empty."""
    fields, rng = kernel_named(kernel).fields, np.random.default_rng(5)
    for _ in range(60):
        some = rng.choice([0, 1, 2, 9, 100], len(fields), p=[0.3, 0.4, 0.1, 0.1, 0.1])
        params = {name: kind(value) for (name, kind), value in zip(fields.items(), some, strict=True)}
        program = Program(
            "empty", (), (), (np.ones(64, np.int64),), 8192, (Instruction(kernel, operands_of(kernel), params),)
        )
        with contextlib.suppress(TargetError, ExecutionError, MemoryError):
            NativeProgram(program, None, native_isa).run([], [])
