"""Building one-instruction programs by hand and running them on every instruction set and thread count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from tests.runtime_c.emulated import runner
from tinycomp.runtime.native.executor import NativeProgram, Pool
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
