"""Arrays in files that are mapped for reading: memory that the system can take back at any time.

A page of such an array costs nothing until it is read, and once read it can be given up without being written anywhere.
Weights lie there while nobody needs them: in the model's own file, or, where they were computed, in a file without a
name (``memory/constants.py``). The C runtime gives their pages back as soon as it has packed them.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.errors import MemoryLimitError, ModelError
from tinycomp.memory.system import GUARD

Array = np.ndarray[Any, np.dtype[Any]]


class Mapping(mmap.mmap):
    """Map a file for reading only. Nothing writes to it, so giving its pages back loses nothing.

    Attributes:
        path: The file, if others may write to it; None for one without a name.
        state: Device, inode, size and time of the last change when it was mapped.
        guard: The number of what keeps the process alive when the file is cut off; -1 without.
    """

    path: Path | None = None
    state: tuple[int, ...] = ()
    guard: int = -1

    def __del__(self) -> None:
        if self.guard >= 0:
            GUARD.drop(self.guard)
        with contextlib.suppress(BufferError):  # views that end with it, such as those of one cycle
            self.close()  # without the interpreter's lock: a large file without a name takes a while to go

    def check(self) -> None:
        """Refuse a file that was written to since it was mapped: reading what was cut off would end the process.

        Raises:
            ModelError: If it was. A file that was removed or replaced as a whole lives on here.
        """
        if self.path is None:
            return
        was_cut = self.guard >= 0 and GUARD.is_hit(self.guard)
        try:
            now = _state(self.path.stat())
        except OSError:
            now = self.state
        if was_cut or (now[:2] == self.state[:2] and now != self.state):
            raise ModelError(
                "the file has changed since the model was compiled, and with it the weights",
                where=str(self.path),
                expected=f"{self.state[2]} bytes, untouched",
                found=f"{now[2]} bytes, cut off or written to meanwhile",
                hint="Compile the model again; to exchange the file of a model in use, rename a new one over it.",
            )

    def give_back(self) -> None:
        """Let the system have all pages that are in memory."""
        if GUARD is not None:
            GUARD.give_back(self)


def map_file(file: IO[bytes] | int, path: Path | None = None) -> NDArray[np.uint8]:
    """Return the contents of an open file, mapped for reading; the file may be closed afterwards.

    A file that others may write to is guarded: what it loses meanwhile reads as zeros, and :meth:`Mapping.check` says
    so. It is copied where it cannot be guarded.

    Args:
        file: An open file or its descriptor.
        path: Where it lies, if others may write to it.

    Raises:
        OSError: If it cannot be mapped.
        MemoryLimitError: If the process may not take the memory.
    """
    descriptor = file if isinstance(file, int) else file.fileno()
    info = os.fstat(descriptor)
    if not info.st_size:
        return np.zeros(0, np.uint8)
    try:
        mapping = Mapping(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryLimitError(
            "the file cannot be mapped: the process may not use that much memory",
            where="" if path is None else str(path),
            expected=f"{info.st_size} bytes of address space",
            hint="Raise the limit of the process (ulimit -v).",
        ) from error
    mapping.path, mapping.state = path, _state(info)
    data = np.frombuffer(mapping, np.uint8)
    if path is not None and GUARD is not None:
        mapping.guard = GUARD.add(data.ctypes.data, data.nbytes)
        if mapping.guard < 0:
            return _copied(descriptor, info.st_size)
    return data


def _copied(descriptor: int, size: int) -> NDArray[np.uint8]:
    """Read a file into memory; one call of the system reads no more than 2 GiB."""
    data, begin = np.empty(size, np.uint8), 0
    while begin < size:
        read = os.preadv(descriptor, [data[begin:].data], begin)
        if not read:
            return data[:begin]  # the file became shorter
        begin += read
    return data


def mapping_of(view: Any) -> Mapping | None:
    """Return the mapping that an array or another view is one of, or None."""
    owner = view
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, Mapping) else None


def mappings_of(arrays: Iterable[Array]) -> list[Mapping]:
    """Return every mapping that one of the arrays is a view of, once."""
    mappings: dict[int, Mapping] = {}
    for base in {id(array.base): array.base for array in arrays}.values():  # the weights of a model share one
        mapping = mapping_of(base)
        if mapping is not None:
            mappings[id(mapping)] = mapping
    return list(mappings.values())


def is_foreign(array: Array) -> bool:
    """Tell whether an array lies in a file that others may write to: nothing that runs may depend on it."""
    mapping = mapping_of(array)
    return mapping is not None and mapping.path is not None


def _state(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns
