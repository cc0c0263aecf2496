"""Building one-instruction programs by hand and running them on every instruction set and thread count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from tests.runtime_c.emulated import runner
from tinycomp.export_c.sized import numbers_of
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.library import ffi, lib
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

OWN_BLOCKS = {"block_rows": 0, "panel_order": 0}
NO_ACTIVATION = {"activation": 0, "activation_a": 0.0, "activation_b": 0.0}


class Weight:
    """Marks an operand as a constant of the program rather than an input."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array)


def single(
    kernel: str,
    operands: Sequence[np.ndarray | Weight | None],
    params: Mapping[str, int | float],
    output: tuple[str, tuple[int, ...]],
) -> tuple[Program, list[np.ndarray]]:
    """Return a program of one call whose first operand is its only output, and the arrays to feed it."""
    places, specs, constants, feeds = [Operand("output", 0)], [], [], []
    for array in operands:
        if array is None:
            places.append(ABSENT)
        elif isinstance(array, Weight):
            places.append(Operand("constant", len(constants)))
            constants.append(array.array)
        else:
            places.append(Operand("input", len(specs)))
            specs.append(BufferSpec(f"x{len(specs)}", array.dtype.name, array.shape))
            feeds.append(np.ascontiguousarray(array))
    call = Instruction(kernel, tuple(places), params, source=("node",))
    out = BufferSpec("y", *output)
    return Program("test", tuple(specs), (out,), tuple(constants), 0, (call,)), feeds


def check_work(program: Program) -> None:
    """Check that no call says that it moves more than there is in its operands."""
    native = NativeProgram(program)
    there = sum(array.nbytes for array in program.constants)
    there += sum(int(np.prod(s.shape)) * _itemsize(s.dtype) for s in (*program.inputs, *program.outputs))
    for index, call in enumerate(program.instructions):
        work = native.work(index)
        assert 0 <= work.bytes <= there, (call, work)
        assert min(work.flops, work.integer_operations, work.done) >= 0, (call, work)
        check_numbers(native, index)


def check_numbers(native: NativeProgram, index: int) -> None:
    """Check that a kernel says which numbers are in its state, each once: projects may turn their bytes round."""
    plan = ffi.new("tc_step_plan *")
    if not lib.tc_program_plan(native.handle, index, plan) or plan.state == ffi.NULL or not plan.state_bytes:
        return
    stated, seen = [*numbers_of(native.handle, index)], np.zeros(plan.state_bytes, np.uint8)
    assert stated, "a state without numbers"
    for offset, count, size, times, step in stated:
        for begin in range(offset, offset + times * step, step) if times > 1 else [offset] * times:
            part = seen[begin : begin + count * size]
            assert part.size == count * size, (stated, plan.state_bytes)
            part += 1
    assert seen.max() <= 1, stated


def _itemsize(dtype: str) -> int:
    return int(np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize)


def run_single(
    kernel: str,
    operands: Sequence[np.ndarray | Weight | None],
    params: Mapping[str, int | float],
    output: tuple[str, tuple[int, ...]],
    isa: str,
    pool: Pool | None = None,
) -> np.ndarray:
    """Run one call with one thread, and with two if a pool is given, and return the result of both."""
    program, feeds = single(kernel, operands, params, output)
    results = []
    for threads in (None, pool) if pool is not None else (None,):
        result = np.full(output[1], 77, output[0])  # so that what is not written shows
        runner(program, threads, isa).run(feeds, [result])
        results.append(result)
    check_work(program)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].view(np.uint8), other.view(np.uint8), "threads change the bits")
    return results[0]
