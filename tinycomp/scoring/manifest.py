"""The manifest: which results lie in a folder, so that a run that was killed goes on where it was.

It names the model, the options that results depend on, and every input file with its row groups. A row group is done
when its file of results is there, which takes its place as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tinycomp.errors import OptionError
from tinycomp.memory import reading as named
from tinycomp.memory.reading import read_regular
from tinycomp.memory.system import lock_file, unlock_file
from tinycomp.records import dataclass
from tinycomp.runtime.files import failure, make_folder, write_file
from tinycomp.scoring.parquet import opened, reading
from tinycomp.scoring.piece import Piece, state_of

FOLDER = "_tinycomp"
"""The folder of the manifest and the model inside that of the results."""
PATIENCE = 1.0
"""Seconds until a folder that another run uses is an error: its processes may be ending."""
_NAME, _MODEL, _LOCK, _VERSION = "manifest.json", "model.tcm", "lock", 1
_ELSEWHERE = "Name another folder, or remove this one."


@dataclass(frozen=True)
class InputFile:
    """A file of rows.

    Attributes:
        path: Where it is.
        size: Its bytes.
        modified: When it was written to last, in nanoseconds.
        row_groups: How many rows each of its row groups has.
    """

    path: str
    size: int
    modified: int
    row_groups: tuple[int, ...]

    def pieces(self, number: int) -> list[Piece]:
        """Return its row groups; ``number`` is that of the file."""
        state = (self.size, self.modified)
        return [Piece(number, self.path, group, rows, state) for group, rows in enumerate(self.row_groups)]


def read_file(path: Path) -> tuple[InputFile, pa.Schema]:
    """Return a file of rows and its columns.

    Raises:
        FeedError: If it is not a Parquet file.
    """
    with opened(path) as file, reading(str(path)):
        size, modified = state_of(path)
        groups = tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
        schema = file.schema_arrow
        [str(field) for field in schema]  # a name that is no text is an error here
    return InputFile(str(path.resolve()), size, modified, groups), schema


@contextlib.contextmanager
def locked(output: Path) -> Iterator[tuple[int, ...]]:
    """Keep other runs out of a folder of results, which is made unless it is there.

    Yields:
        Descriptors: while one of them is open, be it in another process, the folder is kept. None where the file
        system has no locks.

    Raises:
        OptionError: If another run uses it, or it holds Parquet files of others.
        WriteError: If there is no permission.
    """
    _refuse_others(output)
    make_folder(output / FOLDER)
    place = output / FOLDER / _LOCK
    until = time.monotonic() + PATIENCE
    while True:
        try:
            descriptor = lock_file(place)
            break
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise OptionError(
                    "another run writes into the folder", where=str(output), found=_holder(place),
                    hint="Wait until it has ended, or name another folder.",
                ) from error  # fmt: skip
            time.sleep(0.05)
        except OSError as error:
            raise failure("the folder cannot be locked", place, error) from error
    if descriptor is None:
        yield ()
        return
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
        yield (descriptor,)
    finally:
        unlock_file(descriptor)


def _holder(place: Path) -> str:
    try:
        return read_regular(place)[:200].decode(errors="replace")
    except OSError:
        return ""


def _refuse_others(output: Path) -> None:
    if not os.path.lexists(output / FOLDER / _NAME) and output.is_dir() and any(output.glob("*.parquet")):
        raise OptionError(
            "the folder holds other Parquet files", where=str(output), expected="an empty or a new folder",
            hint=_ELSEWHERE,
        )  # fmt: skip


def prepare(output: Path, model: bytes, options: Mapping[str, Any], files: Sequence[InputFile]) -> list[Piece]:
    """Write the manifest and the model into the folder of the results, or go on with what is there.

    Files that an older manifest does not have come behind those that it has.

    Args:
        output: The folder.
        model: The bytes of the saved module.
        options: What else the results depend on.
        files: What is scored.

    Returns:
        All row groups of all files, with the numbers that they have in the manifest.

    Raises:
        OptionError: If the folder holds results of another model, of other options, or of files that have changed.
        WriteError: If there is no space or permission.
    """
    place = output / FOLDER / _NAME
    about = {"version": _VERSION, "model": hashlib.sha256(model).hexdigest(), **options}
    before = _read(place) if os.path.lexists(place) else None
    if before is None:
        _refuse_others(output)
        known: dict[str, InputFile] = {}
    else:
        known = {
            f["path"]: InputFile(f["path"], f["size"], f["modified"], tuple(f["row_groups"])) for f in before["files"]
        }
        _compare(output, {key: before.get(key) for key in about}, about, known, files)
    known |= {file.path: file for file in files}
    if not _holds(output / FOLDER / _MODEL, model):
        write_file(output / FOLDER / _MODEL, model)
    if before is None or len(known) > len(before["files"]):
        text = json.dumps({**about, "files": [vars(file) for file in known.values()]}, indent=1)
        write_file(place, text.encode())
    return [piece for number, file in enumerate(known.values()) for piece in file.pieces(number)]


def model_in(output: Path) -> Path:
    """Return the path of the model that the results are of."""
    return output / FOLDER / _MODEL


def _holds(place: Path, data: bytes) -> bool:
    """Tell whether a file is there and whole."""
    try:
        return read_regular(place) == data
    except OSError:
        return False


def _read(place: Path) -> dict[str, Any]:
    with named.reading(OptionError, place, "the manifest of earlier results", hint=_ELSEWHERE):
        found = json.loads(read_regular(place))
        if not isinstance(found, dict) or not isinstance(found.get("files"), list):
            raise TypeError("no list of files")
        columns, kept = found.get("columns"), found.get("keep")
        if not isinstance(columns, dict) or not _are_texts(columns.values()):
            raise TypeError("columns are no names")
        if not isinstance(kept, list) or not _are_texts([*kept, found.get("model")]):
            raise TypeError("keep or model are no names")
        for number, file in enumerate(found["files"]):
            if not _is_file(file):
                raise TypeError(f"files[{number}] is none")
    return cast("dict[str, Any]", found)


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_file(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        return False
    groups = entry.get("row_groups")
    numbers = [entry.get("size"), entry.get("modified"), *(groups if isinstance(groups, list) else [None])]
    return all(type(number) is int and -(1 << 63) <= number < 1 << 63 for number in numbers)


def _compare(
    output: Path, before: Mapping[str, Any], about: Mapping[str, Any],
    known: Mapping[str, InputFile], files: Sequence[InputFile],
) -> None:  # fmt: skip
    for key, value in about.items():
        if before[key] != value:
            short = {"model": "another model, or the same one compiled otherwise"}
            raise OptionError(
                "the folder holds results of another run", where=f"{output}, {key}",
                expected=short.get(key, str(value)) if key != "model" else "the same model",
                found=short.get(key, str(before[key])[:200]), hint=_ELSEWHERE,
            )  # fmt: skip
    for file in files:
        if known.get(file.path, file) != file:
            raise OptionError("the file has changed since its first rows were scored", where=file.path, hint=_ELSEWHERE)
    missing = known.keys() - {file.path for file in files}
    if missing:
        raise OptionError(
            "the folder holds results of files that are not among those given", where=str(output),
            found=min(missing), hint=f"Give them, too. {_ELSEWHERE}",
        )  # fmt: skip
