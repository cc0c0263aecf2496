"""Map tensor data in files beside the model into memory, and only from inside the model's folder.

A model is a stranger's file, so a location must not lead anywhere else: no absolute path, no ``..``, no symbolic link
on the way, no hard link (which could alias any file of the same disk), no device or pipe. Offsets and lengths are
checked against the file and against dtype and shape before a single byte is read.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from tinycomp.errors import ModelError, TinycompWarning
from tinycomp.frontend.loading import check_text
from tinycomp.ir.messages import TensorProto
from tinycomp.memory.mapped import map_file
from tinycomp.memory.system import opened_beneath

_KEYS = frozenset({"location", "offset", "length", "checksum"})
_LONGEST = 100
"""Digits of a number that is read."""


class ExternalData:
    """The external files of one model, each mapped once.

    Args:
        folder: The folder that locations are relative to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, NDArray[np.uint8]] = {}

    @property
    def files(self) -> Mapping[str, NDArray[np.uint8]]:
        """Return the contents of the files that have been read, by location, mapped."""
        return self._files

    def read(self, tensor: TensorProto, wanted: int, where: str) -> NDArray[np.uint8]:
        """Return the bytes of an external tensor as a view of the mapped file.

        Args:
            tensor: A tensor whose ``data_location`` is EXTERNAL.
            wanted: Number of bytes that dtype and dims ask for.
            where: Name of the tensor for messages.

        Raises:
            ModelError: If the location is unsafe or missing, or the range does not fit file and tensor.
        """
        entries = _entries(tensor, where)
        location = entries.get("location", "")
        offset = _number(entries, "offset", 0, where)
        length = _number(entries, "length", wanted, where)
        if length != wanted:
            raise ModelError(
                "the length of the external data does not fit dtype and shape",
                where=where,
                expected=f"{wanted} bytes",
                found=f"{length} bytes",
            )
        data = self._map(location, where)
        if offset + length > data.size:
            raise ModelError(
                f'the range lies outside the external file "{location}"',
                where=where,
                expected=f"an end of at most {data.size} bytes",
                found=f"offset {offset} + length {length}",
                hint="The file may be truncated; fetch or export it again.",
            )
        return data[offset : offset + length]

    def _map(self, location: str, where: str) -> NDArray[np.uint8]:
        if location not in self._files:
            _check_location(location, where)
            self._files[location] = _map_file(self._folder, location, where)
        return self._files[location]


def _entries(tensor: TensorProto, where: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        check_text(entry.key, where)
        check_text(entry.value, where)
        if entry.key in _KEYS:
            entries[entry.key] = entry.value
        else:
            warnings.warn(f"{where}: unknown external_data key {entry.key!r} is ignored", TinycompWarning, stacklevel=2)
    return entries


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST):
        raise ModelError(
            f"the {key} of the external data is not valid",
            where=where,
            expected="a number of bytes, at least 0",
            found=repr(text[:40]),
        )
    return int(text)


def _check_location(location: str, where: str) -> None:
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    if not isinstance(location, str) or not location or "\0" in location:
        problem = "is empty or malformed"
    elif posix.is_absolute() or windows.is_absolute() or windows.drive or windows.root:
        problem = "is an absolute path"
    elif ".." in posix.parts or ".." in windows.parts:
        problem = 'leads out of the folder with ".."'
    else:
        return
    raise ModelError(
        f"the location of the external data {problem}",
        where=where,
        expected="a path relative to the model, inside its folder",
        found=repr(location[:200]),
    )


def _map_file(folder: Path, location: str, where: str) -> NDArray[np.uint8]:
    """Map a file that lies in the folder or below it."""
    parts = PurePosixPath(location).parts
    if not parts:
        raise _irregular("is not a regular file", location, where)
    try:
        with opened_beneath(folder, parts) as descriptor:
            _check_links(os.fstat(descriptor), location, where)
            return map_file(descriptor, (folder / location).absolute())
    except (OSError, ValueError) as error:
        raise _unreadable(error, location, where) from error


def _unreadable(error: OSError | ValueError, location: str, where: str) -> ModelError:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ELOOP, errno.ENOTDIR):
        return ModelError(
            "the location of the external data passes through a symbolic link",
            where=where,
            expected="regular files in the folder of the model",
            found=repr(location[:200]),
            hint="Put a copy of the file beside the model.",
        )
    if number in (errno.EINVAL, errno.ENXIO):
        return _irregular("is not a regular file", location, where)
    return ModelError(
        f"the external data cannot be opened: {getattr(error, 'strerror', None) or error}",
        where=where,
        found=repr(location[:200]),
        hint="Keep the model and its data files in one folder.",
    )


def _check_links(info: os.stat_result, location: str, where: str) -> None:
    if info.st_nlink > 1:
        raise _irregular("is a hard link", location, where)


def _irregular(problem: str, location: str, where: str) -> ModelError:
    return ModelError(
        f"the external file {problem}",
        where=where,
        expected="a regular file that only the folder of the model holds",
        found=repr(location[:200]),
        hint="Put a copy of the file beside the model.",
    )
