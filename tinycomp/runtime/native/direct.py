"""The short way to run a native program: one call of an extension, which looks at the arrays itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.memory.budget import check_time, current
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.library import address, ffi, lib
from tinycomp.runtime.native.program import Array
from tinycomp.runtime.spec import array_dtype
from tinycomp.symbolic import Size

_direct: Any = importlib.import_module("tinycomp.runtime._direct")

_FUNCTIONS = (
    "tc_run_in_room", "tc_context_resize", "tc_context_value", "tc_context_grown", "tc_context_written_bytes",
)  # fmt: skip
"""What the short way calls in the C runtime."""

Direct = Callable[..., "list[Array] | None"]
"""Takes a sequence of arrays, and perhaps one of arrays for the results or None. Returns the results, or None for
arguments that need a conversion or a message, and where a run fails."""
MakeObjects = Callable[[Any], Any]
"""Makes a result that is Python objects of another one; None where it cannot."""


def make_direct(
    native: NativeProgram, reads: Sequence[int], writes: Sequence[int],
    objects: Sequence[tuple[MakeObjects, int, int]] = (), count: int | None = None, *, ends: bool = False,
    is_limited: bool = False,
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
        ends: Whether it looks at the limits in force; a run that they end is one that fails.
        is_limited: Whether there is a budget for the memory.
    """
    program = native.program
    extends = {target: source for source, target in program.in_place}
    inputs = [
        (place, -1, _format(array_dtype(spec.dtype)), _in_values(native, spec.shape))
        for place, spec in zip(reads, program.inputs, strict=True)
    ]
    outputs = [
        (place, extends.get(number, -1), _format(array_dtype(spec.dtype)),
         None if number in program.grown else _in_values(native, spec.shape), array_dtype(spec.dtype))
        for number, (place, spec) in enumerate(zip(writes, program.outputs, strict=True))
    ]  # fmt: skip
    if any(fields[2] is None for fields in (*inputs, *outputs)):
        return None
    functions = tuple([address(ffi.addressof(lib, name)) for name in _FUNCTIONS])
    returned = len(outputs) + len(objects) if count is None else count

    def made(contexts: list[Any]) -> Direct:
        call: Direct = _direct.make(
            functions, address(native.handle), address(native.pool_handle), native, contexts, native.new_context,
            np.ndarray, np.empty, tuple(inputs), tuple(outputs), native.sources, tuple(objects), returned,
            program.is_symbolic, 0 if is_limited else native.without_asking,
        )  # fmt: skip
        return call

    return _ending(native, made) if ends else made(native.contexts)


def _ending(native: NativeProgram, made: Callable[[list[Any]], Direct]) -> Direct:
    """Return a call that knows in which context it runs, so that the limits in force can end it."""
    idle: list[tuple[list[Any], Direct]] = []

    def call(*given: Any) -> list[Array] | None:
        limits = current()
        check_time(limits)
        context = native.taken()
        try:
            own, run = idle.pop()
        except IndexError:
            own = []
            run = made(own)
        own.append(context)
        try:
            return context.within(limits, run, given)
        finally:
            own.clear()
            idle.append((own, run))
            native.contexts.append(context)

    return call


def _in_values(program: NativeProgram, shape: Sequence[Size]) -> tuple[int, ...]:
    """Return a shape in the form of direct calls: a symbolic dimension is -1 - v for the runtime value number v."""
    return tuple([dim if isinstance(dim, int) else -1 - program.dims[dim] for dim in shape])


def _format(dtype: np.dtype[Any] | None) -> str | None:
    """Return how the buffer protocol calls the elements; None where they have no part in it."""
    if dtype is None:
        return None
    try:
        return np.empty(0, dtype).data.format
    except (ValueError, BufferError, TypeError):  # a dtype that numpy did not define itself
        return None
