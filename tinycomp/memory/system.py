"""What Python programs must know of the operating system, in one place: forks, memory, files and their owners.

Everything else in the package is written for all systems. What Windows lacks:

- No process forks, so nothing has to be mended in children.
- A file that is mapped cannot be cut off, so maps need no guard.
- Folders have no descriptors and files no owner's number: a path is looked at name by name before it is opened, and
  the user's own folder is protected by its access list.
- A library that is loaded cannot be removed; what stays behind in the temporary folder is left to the system.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HAS_OWNERS = hasattr(os, "geteuid")
"""Whether files have an owner and permissions that ``os.stat`` shows."""
HAS_FOLDER_DESCRIPTORS = os.open in os.supports_dir_fd
"""Whether a file can be opened relative to a folder that is open."""
REMOVES_LOADED_FILES = os.name != "nt"
"""Whether the file of a loaded library can be removed."""
_LOCKED_BYTE = 1 << 30
"""Where Windows locks a file: what lies there cannot be read by others."""
_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device")
)  # fmt: skip
GUARD: Any = importlib.import_module("tinycomp.memory._guard") if os.name != "nt" else None
"""What keeps the process alive when a mapped file is cut off; None where that cannot happen."""


def after_fork_in_child(callback: Callable[[], object]) -> None:
    """Have a function called in every child that is forked from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def user_cache_folder(program: str) -> Path:
    """Return the user's folder for data that a program can make again."""
    if sys.platform != "linux":
        import platformdirs

        return platformdirs.user_cache_path(program)
    # By the XDG base directories, as platformdirs has it; to import that takes as long as to compile a small model.
    return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache").expanduser() / program


def usable_processors() -> int:
    """Return how many processors the affinity of this process allows."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def available_memory() -> int | None:
    """Return the bytes that the system says it can still give out; those installed where it does not say; else None."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, LookupError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _windows_memory() -> int | None:
    import ctypes

    # MEMORYSTATUSEX: its own length and the share in use in 32 bits each, then seven sizes in 64 bits; the second of
    # them is the free memory.
    status = (ctypes.c_uint64 * 8)(64)
    kernel: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - no attribute elsewhere
    return int(status[2]) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def is_path(value: str | os.PathLike[str]) -> bool:
    """Tell whether a system can take a path, whose names need not be UTF-8."""
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def open_regular(
    path: str | os.PathLike[str], folder: int | None = None, *, links: bool = True, flags: int = os.O_RDONLY
) -> int:
    """Open a regular file, and nothing else: a pipe would wait for a writer, a device never end.

    Args:
        path: Its path; one name with ``folder``.
        folder: A descriptor of the folder that it lies in.
        links: Whether the path may end in a symbolic link.
        flags: How to open it: for reading, or as ``os.open`` has it.

    Returns:
        A descriptor.

    Raises:
        OSError: If it cannot be opened, or is no regular file.
    """
    if not (links or HAS_FOLDER_DESCRIPTORS) and os.path.lexists(path):
        _refuse_link(Path(path))
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags | (0 if links else getattr(os, "O_NOFOLLOW", 0)), 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.EINVAL, "not a regular file, but a socket", os.fspath(path)) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = next((word for is_such, word in _KINDS if is_such(mode)), "something else")
        raise OSError(errno.EINVAL, f"not a regular file, but {kind}", os.fspath(path))
    return descriptor


def lock_file(path: Path) -> int | None:
    """Take the lock of a file, which is made unless it is there.

    Returns:
        A descriptor. The lock ends with :func:`unlock_file`, or when the last process that has the descriptor has
        closed it or ended. None where the file system has no locks.

    Raises:
        BlockingIOError: If another process has it, or somebody else in this one.
        OSError: If the file cannot be made, or is no regular file.
    """
    descriptor = open_regular(path, links=False, flags=os.O_RDWR | os.O_CREAT)
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            raise BlockingIOError(errno.EAGAIN, "locked", os.fspath(path)) from error
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            return None
        raise
    return descriptor


def unlock_file(descriptor: int) -> None:
    """Give the lock of a file back, also for children that were forked meanwhile."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextlib.contextmanager
def opened_beneath(folder: Path, names: Sequence[str]) -> Iterator[int]:
    """Open a regular file in a folder or in one inside it, following no symbolic link below ``folder``.

    Every folder is opened from the one before it, so that no link that appears meanwhile is followed. Where folders
    have no descriptors, every name is looked at before the file is opened.

    Yields:
        A descriptor, which is closed afterwards.

    Raises:
        OSError: If it cannot be opened, is no regular file (EINVAL), or the way to it is a link (ELOOP, ENOTDIR).
    """
    opened: list[int] = []
    try:
        if HAS_FOLDER_DESCRIPTORS:
            for name in (os.fspath(folder), *names[:-1]):
                opened.append(open_folder(name, opened[-1] if opened else None))
            opened.append(open_regular(names[-1], opened[-1], links=False))
        else:
            for count in range(1, len(names)):
                _refuse_link(folder.joinpath(*names[:count]))
            opened.append(open_regular(folder.joinpath(*names), links=False))
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)


def open_folder(name: str, inside: int | None = None) -> int:
    """Open a folder: by its path, or by its name inside another one, where it may not be a link.

    Raises:
        OSError: If it cannot be opened, or is no folder.
    """
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | (0 if inside is None else os.O_NOFOLLOW), dir_fd=inside)


def _refuse_link(path: Path) -> None:
    """Refuse a symbolic link, or what else leads to another place on Windows.

    Raises:
        OSError: If it is one.
    """
    status = path.lstat()
    leads_on = getattr(status, "st_file_attributes", 0) & getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)
    if stat.S_ISLNK(status.st_mode) or leads_on:
        raise OSError(errno.ELOOP, "a symbolic link", os.fspath(path))
