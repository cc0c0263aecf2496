"""Files that a user names: regular files only, read without waiting, and one form of error for whatever is wrong."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tinycomp.errors import TinycompError, did_you_mean
from tinycomp.memory.system import is_path, open_regular

MOST = (1 << 31) - 1
"""The bytes that a file may have which is read into memory, unless the caller says otherwise."""
_SHOWN = 300


def read_regular(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """Return the contents of a regular file: as many bytes as it has when it is opened, even if it grows meanwhile.

    Raises:
        OSError: If it cannot be read, is no regular file, or has more than ``most`` bytes.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"too large: {size} bytes, at most {most}", os.fspath(path))
        return file.read(size)


@contextlib.contextmanager
def reading(
    kind: Callable[..., TinycompError], where: str | os.PathLike[str] = "", expected: str = "", *,
    problem: str = "the file is damaged", hint: str = "",
) -> Iterator[None]:  # fmt: skip
    """Turn whatever is raised while something of a user is read into one error that names it.

    Args:
        kind: The class of the error.
        where: The file, or what else is read.
        expected: What it should have been.
        problem: What is said of contents that cannot be read.
        hint: What to do then; of a file that cannot be opened, it is to check the path.

    Raises:
        TinycompError: Of that class; errors of this package pass as they are.
    """
    try:
        yield
    except TinycompError:
        raise
    except Exception as error:  # the packages that parse say nowhere what they raise
        if isinstance(error, OSError) and error.errno is not None:  # parsers raise OSError, too
            problem, found = f"cannot be read: {error.strerror}", ""
            if isinstance(error, (FileNotFoundError, NotADirectoryError)):
                problem = "there is no such file"
            hint = _nearby(Path(where)) if "no such" in problem else ""
            hint = hint or ("Name a file inside it." if problem.endswith("a folder") else "Check the path.")
        elif not is_path(where):
            problem, found, hint = "not the path of a file", f"{type(error).__name__}: {error}", "Check the path."
        elif isinstance(error, RecursionError):
            found = "objects in objects, too deep"
        else:
            found = f"{type(error).__name__}: {error}".partition("\n")[0][:_SHOWN]
        raise kind(problem, where=os.fspath(where), expected=expected, found=found, hint=hint) from error


def _nearby(path: Path) -> str:
    """Return which file of the folder may be meant by a name that none has."""
    names = list[str]()
    with contextlib.suppress(OSError, ValueError):
        names = [each.name for each in path.parent.iterdir() if each.suffix == path.suffix and each.name != path.name]
    return did_you_mean(path.name, names)


def read_json(path: str | os.PathLike[str], kind: Callable[..., TinycompError], expected: str) -> Any:
    """Return what a file of JSON holds.

    Raises:
        TinycompError: If it cannot be read, of the class ``kind``.
    """
    with reading(kind, path, expected):
        return json.loads(read_regular(path))
