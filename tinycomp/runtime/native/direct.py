"""The short way to run a native program: one call of an extension, which looks at the arrays itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.memory.budget import Limits, check_time
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.library import address, ffi, lib
from tinycomp.runtime.native.program import Array
from tinycomp.runtime.spec import array_dtype

_direct: Any = importlib.import_module("tinycomp.runtime._direct")

_FUNCTIONS = (
    "tc_run_in_room", "tc_context_fit", "tc_context_result", "tc_context_grown", "tc_context_written_bytes",
)  # fmt: skip
"""What the short way calls in the C runtime."""

Direct = Callable[..., "list[Array] | None"]
"""Takes a sequence of arrays, perhaps one of arrays for the results or None, and perhaps a context that the caller has
taken. Returns the results, or None for arguments that need a conversion or a message, and where a run fails."""
MakeObjects = Callable[[Any], Any]
"""Makes a result that is Python objects of another one; None where it cannot."""


def make_direct(
    native: NativeProgram, reads: Sequence[int], writes: Sequence[int],
    objects: Sequence[tuple[MakeObjects, int, int]] = (), count: int | None = None, *, is_limited: bool = False,
) -> Direct | None:  # fmt: skip
    """Return a direct call of a program, or None if there is none.

    A run that needs more memory than is granted without asking ends, and the caller takes the longer way, which asks
    for it; so does a run whose control flow needs more than an earlier one.

    Args:
        native: The program.
        reads: For every input the place of its array among those that are given.
        writes: For every output its place among the results.
        objects: The results that are made of other results, in order: how, of which place, and for which.
        count: How many of the first places a call returns; by default all.
        is_limited: Whether there is a budget for the memory of all calls; there is for those that give a context.
    """
    program = native.program
    extends = {target: source for source, target in program.in_place}
    inputs = [
        (place, -1, _format(array_dtype(spec.dtype)))
        for place, spec in zip(reads, program.inputs, strict=True)
    ]  # fmt: skip
    outputs = [
        (place, extends.get(number, -1), _format(array_dtype(spec.dtype)), array_dtype(spec.dtype))
        for number, (place, spec) in enumerate(zip(writes, program.outputs, strict=True))
    ]
    if any(fields[2] is None for fields in (*inputs, *outputs)):
        return None
    call: Direct = _direct.make(
        tuple([address(ffi.addressof(lib, name)) for name in _FUNCTIONS]), address(native.handle),
        address(native.pool_handle), native, native.contexts, native.new_context, np.ndarray, np.empty, tuple(inputs),
        tuple(outputs), tuple(objects), len(outputs) + len(objects) if count is None else count,
        0 if is_limited else native.without_asking,
    )  # fmt: skip
    return call


def call_within(limits: Limits, native: NativeProgram, call: Direct, *given: Any) -> list[Array] | None:
    """Return what a direct call of a program returns, in a run that the limits in force can end.

    Raises:
        ExecutionError: If the time is up before it.
    """
    check_time(limits)
    context = native.taken()
    try:
        return context.within(limits, call, (*given, *[None] * (2 - len(given)), context))
    finally:
        native.contexts.append(context)


def _format(dtype: np.dtype[Any] | None) -> str | None:
    """Return how the buffer protocol calls the elements; None where they have no part in it."""
    if dtype is None:
        return None
    try:
        return np.empty(0, dtype).data.format
    except (ValueError, BufferError, TypeError):  # a dtype that numpy did not define itself
        return None
