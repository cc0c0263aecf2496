"""Where constants lie while a module lives, so that each is in memory once: packed, or as the kernels read it.

What is only packed lies in a mapped file (:mod:`tinycomp.memory.mapped`), out of memory until a new size or saving
asks for it again: in the model's file if it came from there, else in a file without a name. What a run reads never
lies in a file that others may write to, because a run cannot survive that such a file is cut off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from tinycomp.errors import TinycompWarning
from tinycomp.memory.mapped import is_foreign, map_file, mapping_of, mappings_of
from tinycomp.runtime.csource.cache import VARIABLE, default_folder
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.native.program import Array, Program

LARGE = 1 << 16
"""Bytes from which on an array is worth a place in a file: smaller ones would not fill the pages that they take."""
_ALIGNMENT = 64
_Key = tuple[int, str, tuple[int, ...], tuple[int, ...]]


class Constants:
    """The module's own copies of constants that lie in files of others and are read while it runs.

    Plans for different sizes share them, as they share packed weights (which are found by where the constants lie).
    """

    def __init__(self) -> None:
        self._copies: dict[_Key, tuple[Array, Array]] = {}
        self._lock = threading.Lock()

    def own(self, array: Array) -> Array:
        """Return an aligned copy of an array that lies in a file of others, always the same; others aligned."""
        if not is_foreign(array):
            return np.require(array, requirements=["A"])
        key = (array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides)
        with self._lock:
            if key not in self._copies:  # the original is kept, so that nothing else can come to lie there
                self._copies[key] = array, spilled([array])[0] if is_large(array) else array.copy()
                for mapping in mappings_of([array]):
                    mapping.give_back()
            return self._copies[key][1]

    def settle(self, program: Program) -> Program:
        """Return a program whose constants lie where they should: see the module's docstring."""
        read = read_while_running(program)
        constants = [self.own(array) if index in read else array for index, array in enumerate(program.constants)]
        packed = [index for index, array in enumerate(constants) if index not in read and is_evictable(array)]
        for index, array in zip(packed, spilled([constants[index] for index in packed]), strict=True):
            constants[index] = array
        return dataclasses.replace(program, constants=tuple(constants))


def read_while_running(program: Program) -> frozenset[int]:
    """Return the constants of a program that kernels read in every run: those that are not packed once and for all."""
    return frozenset(
        operand.index
        for call in program.instructions
        for letter, operand in zip(kernel_named(call.kernel, program.name).signature, call.operands, strict=False)
        if operand.space == "constant" and letter not in "pP"
    )


def is_large(array: Array) -> bool:
    """Whether an array is worth a place in a file, and can have one."""
    if array.nbytes < LARGE or array.dtype.hasobject:
        return False
    return 0 not in array.strides or not any(
        step == 0 and size > 1 for step, size in zip(array.strides, array.shape, strict=True)
    )


def is_evictable(array: Array) -> bool:
    """Whether an array takes memory that a file could take over."""
    return is_large(array) and mapping_of(array) is None


def spilled(arrays: Sequence[Array]) -> list[Array]:
    """Return read-only copies of arrays in a mapped file that has no name and goes with the last of them.

    Where no such file can be made, the arrays themselves are returned, and a warning says why.
    """
    if not arrays:
        return []
    try:
        with _nameless_file() as file:
            starts = [_append(file, array) for array in arrays]
            data = map_file(file)
    except OSError as error:
        size = sum(array.nbytes for array in arrays)
        warnings.warn(
            f"{size} bytes of weights stay in memory, for there is no room on disk ({error}); {VARIABLE} names another"
            " folder for them",
            TinycompWarning,
            stacklevel=2,
        )
        return [np.require(array, requirements=["C", "A"]) for array in arrays]
    views = (data[start : start + array.nbytes] for start, array in zip(starts, arrays, strict=True))
    return [view.view(array.dtype).reshape(array.shape) for view, array in zip(views, arrays, strict=True)]


def _append(file: IO[bytes], array: Array) -> int:
    """Write the elements of an array behind what is there, and return where they start."""
    start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    file.seek(start)
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    file.flush()
    return start


def _nameless_file() -> IO[bytes]:
    """Open a file in the first folder that takes one: tinycomp's own, which is rarely in memory, else the system's."""
    refusal = OSError("there is no folder for it")
    for folder in _folders():
        try:
            return tempfile.TemporaryFile(dir=folder)
        except OSError as error:
            refusal = error
    raise refusal


def _folders() -> Iterator[str]:
    own = default_folder().parent
    with contextlib.suppress(OSError):
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
    yield str(own)
    yield tempfile.gettempdir()
