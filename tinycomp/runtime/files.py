"""Writing files that are there as a whole or not at all: a full disk or an interrupt leaves the old ones as they were.

Every file is written under another name in the same folder, flushed to the disk, and then renamed, which POSIX makes
atomic.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from tinycomp.errors import OptionError, WriteError

PARTIAL = ".tmp"
"""The ending of files that are being written."""
_BEGINNING = ".tinycomp-"
_FULL = "Free some space, or write elsewhere."
_FORBIDDEN = "Check the permissions, or write elsewhere."
_OF_DISKS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EFBIG: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOENT: "Make the folder first.",
    errno.ENOTDIR: "A part of the path is a file; name a folder there.",
    errno.EEXIST: "A file has that name; choose another.",
    errno.EISDIR: "Name a file inside it.",
    errno.ELOOP: "A link leads to itself; name another place.",
    errno.ENXIO: "Nobody reads from this pipe.",
}


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file; an older one is replaced whole, or stays. See :func:`write_files`."""
    write_files({path: data}, mode)


def write_files(contents: Mapping[Path, bytes], mode: int = 0o666) -> None:
    """Write files that belong together: none takes its place before all of them are on the disk.

    A symbolic link goes on pointing at the file that is replaced. What is not a file, such as ``/dev/stdout``, cannot
    be replaced and is written to.

    Args:
        contents: Bytes by path.
        mode: Permissions of files that are new, from which the umask is taken; older files keep theirs.

    Raises:
        WriteError: If that fails.
    """
    staged: dict[Path, Path] = {}
    path = Path()
    try:
        for path, data in contents.items():
            if path.exists() and not path.is_file():  # asked of the path: what /dev/stdout leads to may have no name
                _write_through(path, data)
            else:
                target = Path(os.path.realpath(path))
                staged[path] = _partial(target)
                _stage(staged[path], data, target, mode)
        for path, partial in staged.items():
            partial.replace(os.path.realpath(path))
    except OSError as error:
        raise failure("the file cannot be written", path, error) from error
    finally:
        for partial in staged.values():
            with contextlib.suppress(OSError):  # what is in the way was in the way of writing, too
                partial.unlink()


@contextlib.contextmanager
def staged(path: Path, owner: str = "") -> Iterator[Path]:
    """Yield a path in the same folder to write to, and move what is there to its place when the block ends well.

    If the place is taken meanwhile, by another process that does the same, the last one counts. ``owner`` becomes a
    part of the path's name, for :func:`remove_partial`.

    Raises:
        WriteError: If the file cannot be written or moved.
    """
    partial = _partial(path, owner)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if isinstance(error, WriteError) or (error.errno not in _OF_DISKS and error.filename != str(partial)):
            raise  # of another file
        raise failure("the file cannot be written", path, error) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def remove_partial(folder: Path, owner: str = "") -> None:
    """Remove files that were being written into a folder when their processes were killed.

    Args:
        folder: The folder.
        owner: Whose files; by default those of all, among whom nobody may be writing now.
    """
    for path in folder.glob(f"{_BEGINNING}{owner}*{PARTIAL}"):
        path.unlink(missing_ok=True)


def folder_named(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a path that somebody gave.

    Raises:
        OptionError: If the path is empty, which would be the current folder: nobody asks for that in such a way.
    """
    if not os.fspath(path):
        raise OptionError("an empty path is no folder", expected="a path", hint='The current folder is ".".')
    return Path(path)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless they are there.

    Raises:
        WriteError: If that fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failure("the folder cannot be made", folder, error) from error


def _partial(target: Path, owner: str = "") -> Path:
    """Return a new name for a file on its way to its place."""
    return target.with_name(f"{_BEGINNING}{owner}{secrets.token_hex(8)}{PARTIAL}")


def _write_through(target: Path, data: bytes) -> None:
    """Write to what cannot be replaced; a pipe that nobody reads is an error, and not waited for."""
    descriptor = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _stage(partial: Path, data: bytes, target: Path, mode: int) -> None:
    """Put the bytes on the disk, with the permissions of the file that they will replace."""
    with open(partial, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
        file.write(data)
        file.flush()
        if target.exists():
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
        os.fsync(file.fileno())


def failure(what: str, path: Path, error: OSError) -> WriteError:
    """Return the error of a file or folder that cannot be written to, with what to do about it."""
    hint = _HINTS.get(error.errno or 0, "")
    failure = WriteError(f"{what}: {error.strerror or error}", where=str(path), hint=hint)
    failure.errno = error.errno
    return failure
