"""Where constants lie while a module lives, so that each is in memory once: packed, or as a run reads it.

What is only packed lies in a mapped file (:mod:`tinycomp.memory.mapped`), out of memory until a new size or saving
asks for it again: in the model's file if it came from there, else in a file without a name. What a run reads never
lies in a file that others may write to, because a run cannot survive that such a file is cut off. Which constants a
run reads is for the caller to tell.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from tinycomp.errors import TinycompWarning
from tinycomp.memory.locks import Lock
from tinycomp.memory.mapped import Array, is_foreign, map_file, mapping_of, mappings_of
from tinycomp.memory.system import user_cache_folder

VARIABLE = "TINYCOMP_CACHE"
"""The environment variable that names another folder for everything that tinycomp keeps."""
LARGE = 1 << 16
"""Bytes from which on an array is worth a place in a file: smaller ones would not fill the pages that they take."""
ALIGNMENT = 64
"""Constants in files begin at a multiple of this many bytes, so that kernels read them where they lie."""
Place = tuple[int, str, tuple[int, ...], tuple[int, ...]]
"""Where an array lies and how it is read there: two with the same are one, as long as both live."""


class Constants:
    """Hold a module's own copies of constants that lie in files of others and are read while it runs.

    Plans for different sizes share them, as they share packed weights (which are found by where the constants lie).
    """

    def __init__(self) -> None:
        self._copies: dict[Place, tuple[Array, Array]] = {}
        self._lock = Lock()

    def own(self, array: Array) -> Array:
        """Return an aligned copy of an array that lies in a file of others, always the same; others aligned."""
        if not is_foreign(array):
            return np.require(array, requirements=["A"])
        key = place_of(array)
        with self._lock:
            if key not in self._copies:  # the original is kept, so that nothing else can come to lie there
                self._copies[key] = array, spilled([array])[0] if is_large(array) else array.copy()
                for mapping in mappings_of([array]):
                    mapping.give_back()
            return self._copies[key][1]

    def settle(self, arrays: Sequence[Array], read: Set[int]) -> tuple[Array, ...]:
        """Return constants where they should lie: see the module's docstring.

        A run reads those whose index is in ``read``; the others are only packed.
        """
        settled = [self.own(array) if index in read else array for index, array in enumerate(arrays)]
        packed = [index for index, array in enumerate(settled) if index not in read and is_evictable(array)]
        for index, array in zip(packed, spilled([settled[index] for index in packed]), strict=True):
            settled[index] = array
        return tuple(settled)


class HasConstant(Protocol):
    """Hold a constant, perhaps, as a value of a graph does."""

    const: Array | None


def evict(values: Sequence[HasConstant]) -> None:
    """Let large constants lie in mapped files, and give the pages back that reading them has brought into memory.

    Args:
        values: What holds them; an array that several hold is written once.
    """
    arrays = {id(v.const): v.const for v in values if v.const is not None and is_evictable(v.const)}
    moved = dict(zip(arrays, spilled([*arrays.values()]), strict=True))
    for value in values:
        value.const = moved.get(id(value.const), value.const)
    for mapping in mappings_of(v.const for v in values if v.const is not None):
        mapping.give_back()


def check_files(values: Iterable[HasConstant]) -> None:
    """See that the files in which constants lie are as they were, before reading them again.

    Raises:
        ModelError: If one was written to.
    """
    for mapping in mappings_of(v.const for v in values if v.const is not None):
        mapping.check()


def place_of(array: Array) -> Place:
    """Return where an array lies."""
    return array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides


def is_large(array: Array) -> bool:
    """Tell whether an array is worth a place in a file, and can have one."""
    if array.nbytes < LARGE or array.dtype.hasobject:
        return False
    return 0 not in array.strides or not any(
        step == 0 and size > 1 for step, size in zip(array.strides, array.shape, strict=True)
    )


def is_evictable(array: Array) -> bool:
    """Tell whether an array takes memory that a file could take over."""
    return is_large(array) and mapping_of(array) is None


def spilled(arrays: Sequence[Array]) -> list[Array]:
    """Return read-only copies of arrays in a mapped file without a name, which vanishes with the last of them.

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
    """Append the elements of an array to the file, and return where they start."""
    start = -(-file.tell() // ALIGNMENT) * ALIGNMENT
    file.seek(start)
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    file.flush()
    return start


def _nameless_file() -> IO[bytes]:
    """Open a file in the first folder that takes one: tinycomp's own, which is rarely in memory, else the system's."""
    import tempfile  # imported here: few modules have constants large enough for a file

    refusal = OSError("there is no folder for it")
    for folder in _folders():
        try:
            return tempfile.TemporaryFile(dir=folder)
        except OSError as error:
            refusal = error
    raise refusal


def _folders() -> Iterator[str]:
    import tempfile

    own = cache_folder()
    with contextlib.suppress(OSError):
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
    yield str(own)
    yield tempfile.gettempdir()


def cache_folder() -> Path:
    """Return the folder for everything that tinycomp keeps: the one that ``TINYCOMP_CACHE`` names, or the user's."""
    root = os.environ.get(VARIABLE)
    return (Path(root) if root else user_cache_folder("tinycomp")).absolute()
