"""The short ways through a plan that is one native region: from the caller's arrays to C and back."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.library import address, ffi, lib
from tinycomp.runtime.native.program import Array, Program
from tinycomp.runtime.plan import Plan
from tinycomp.runtime.regions import NativeRegion, actual_results
from tinycomp.runtime.spec import array_dtype

_direct: Any = importlib.import_module("tinycomp.runtime._direct")

Direct = Callable[[Sequence[Any]], "list[Array] | None"]
"""Returns fresh results, or None for arguments that need a conversion or a message."""


def direct_program(plan: Plan) -> NativeProgram | None:
    """Return the program behind a plan that is one native region of static shapes, operands in the plan's order."""
    if len(plan.steps) != 1:
        return None
    step = plan.steps[0]
    straight = step.reads == plan.input_slots and step.writes == plan.output_slots
    if not isinstance(step.run, NativeRegion) or not straight or not all(s.is_static for s in plan.inputs):
        return None
    return step.run.native


def direct_call(plan: Plan) -> Direct | None:
    """Return the short way through ``plan``, or None if it is longer than one native region."""
    program = direct_program(plan)
    formats = [_format(spec.numpy_dtype) for spec in plan.inputs]
    if program is None:
        return None
    outputs = [(spec.shape, array_dtype(spec.dtype)) for spec in program.program.outputs]
    if None in formats or any(_format(dtype) is None for _, dtype in outputs):
        return None
    call: Direct = _direct.make(
        address(ffi.addressof(lib, "tc_run")),
        address(program.handle),
        address(program.pool_handle),
        program,
        program.contexts,
        program.new_context,
        np.ndarray,
        np.empty,
        tuple(zip(formats, (spec.shape for spec in plan.inputs), strict=True)),
        tuple(outputs),
    )
    return _counting(call, program.program) if program.program.counted else call


def _counting(call: Direct, program: Program) -> Direct:
    """The short way where only a run shows how many rows results have."""

    def counted(arrays: Sequence[Any]) -> list[Array] | None:
        outputs = call(arrays)
        return None if outputs is None else actual_results(program, outputs)

    return counted


def _format(dtype: np.dtype[Any] | None) -> str | None:
    """How the buffer protocol calls the elements; None where they have no part in it."""
    if dtype is None:
        return None
    try:
        return np.empty(0, dtype).data.format
    except (ValueError, BufferError, TypeError):  # a dtype that numpy did not define itself
        return None
