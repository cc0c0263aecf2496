"""The manifest: which results lie in a folder, so that a run that was killed goes on where it was.

It names the model, the options that results depend on, and every input file with its row groups. A row group is done
when its file of results is there, which takes its place as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tinycomp.errors import FeedError, OptionError, did_you_mean
from tinycomp.runtime.files import make_folder, write_file
from tinycomp.scoring.piece import Piece

FOLDER = "_tinycomp"
"""The folder of the manifest and the model inside that of the results."""
_NAME, _MODEL, _VERSION = "manifest.json", "model.tcm", 1
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
        return [Piece(number, self.path, group, rows) for group, rows in enumerate(self.row_groups)]


def found_files(paths: Sequence[Path], output: Path) -> list[Path]:
    """Return the files that are meant, those of folders in the order of their names, results left out.

    Raises:
        FeedError: If there are none, or one is not there or given twice.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [f for f in sorted(path.rglob("*.parquet")) if not _is_hidden(f.relative_to(path))]
            inside = [f for f in inside if output.resolve() not in f.resolve().parents]
            if not inside:
                raise FeedError("there are no Parquet files in this folder", where=str(path), expected="*.parquet")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            nearby = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            raise FeedError(
                "there is no such file", where=str(path), expected="a Parquet file, or a folder of them",
                hint=did_you_mean(path.name, nearby) or "Check the path.",
            )  # fmt: skip
    seen: set[Path] = set()
    for file in files:
        if file.resolve() in seen:
            raise FeedError("the file is given twice", where=str(file), hint="Its rows would be scored twice.")
        seen.add(file.resolve())
    if not files:
        raise FeedError("there is nothing to score", expected="one Parquet file or more")
    return files


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def read_file(path: Path) -> tuple[InputFile, pa.Schema]:
    """Return a file of rows and its columns.

    Raises:
        FeedError: If it is not a Parquet file.
    """
    try:
        status = path.stat()
        with pq.ParquetFile(path) as file:
            groups = tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
            schema = file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise FeedError(
            "the file cannot be read", where=str(path), expected="a Parquet file", found=str(error).partition("\n")[0]
        ) from error
    return InputFile(str(path.resolve()), status.st_size, status.st_mtime_ns, groups), schema


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
    before = _read(place) if place.is_file() else None
    if before is None:
        if output.is_dir() and any(output.glob("*.parquet")):
            raise OptionError(
                "the folder holds other Parquet files", where=str(output), expected="an empty or a new folder",
                hint=_ELSEWHERE,
            )  # fmt: skip
        known: dict[str, InputFile] = {}
    else:
        known = {
            f["path"]: InputFile(f["path"], f["size"], f["modified"], tuple(f["row_groups"])) for f in before["files"]
        }
        _compare(output, {key: before.get(key) for key in about}, about, known, files)
    known |= {file.path: file for file in files}
    make_folder(output / FOLDER)
    if before is None:
        write_file(output / FOLDER / _MODEL, model)
    if before is None or len(known) > len(before["files"]):
        text = json.dumps({**about, "files": [vars(file) for file in known.values()]}, indent=1)
        write_file(place, text.encode())
    return [piece for number, file in enumerate(known.values()) for piece in file.pieces(number)]


def model_in(output: Path) -> Path:
    """Return the path of the model that the results are of."""
    return output / FOLDER / _MODEL


def _read(place: Path) -> dict[str, Any]:
    try:
        found = json.loads(place.read_bytes())
        if not isinstance(found, dict) or not isinstance(found["files"], list):
            raise TypeError("not a manifest")
        for file in found["files"]:
            InputFile(file["path"], file["size"], file["modified"], tuple(file["row_groups"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionError(
            "the manifest of earlier results cannot be read", where=str(place), found=str(error), hint=_ELSEWHERE
        ) from error
    return found


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
                found=short.get(key, str(before[key])), hint=_ELSEWHERE,
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
