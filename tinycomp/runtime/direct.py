"""The short ways through a plan that is one native region: from the caller's arrays to C and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.runtime.native import BYTES, NativeProgram, from_buffer, tc_run
from tinycomp.runtime.plan import Plan
from tinycomp.runtime.program import Array
from tinycomp.runtime.regions import NativeRegion

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
    """Return the short way through ``plan``, or None if it is longer than one native region.

    A closure, because the attributes of ``self`` would cost a tenth of the whole call.
    """
    program = direct_program(plan)
    if program is None:
        return None
    expected = [(index, spec.shape, spec.numpy_dtype) for index, spec in enumerate(plan.inputs)]
    fresh: list[Any] = [(index, spec.shape, spec.numpy_dtype) for index, spec in enumerate(plan.outputs)]
    count, handle, pool, contexts = len(expected), program.handle, program.pool_handle, program.contexts
    ndarray, empty, take, give = np.ndarray, np.empty, contexts.pop, contexts.append

    def call(args: Sequence[Any]) -> list[Array] | None:
        if len(args) != count:
            return None
        try:  # list.pop and list.append are atomic, so the free list needs no lock
            context = take()
        except IndexError:
            context = program.new_context()
        inputs, outputs = context.inputs, context.outputs
        results = []
        try:
            for (index, shape, dtype), array in zip(expected, args):  # noqa: B905 (strict= would cost)
                if type(array) is not ndarray or array.shape != shape or array.dtype != dtype:
                    return None
                inputs[index] = from_buffer(BYTES, array)
            for index, shape, dtype in fresh:
                result = empty(shape, dtype)
                outputs[index] = from_buffer(BYTES, result)
                results.append(result)
            return None if tc_run(handle, context.handle, pool, inputs, outputs, context.error) else results
        except (BufferError, ValueError, TypeError):  # not contiguous, or a dtype without a buffer interface
            return None
        finally:
            give(context)

    return call
