"""Parquet files of others: regular files only, and whatever Arrow makes of damaged ones is one error with the place."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tinycomp.errors import FeedError
from tinycomp.memory import reading as named
from tinycomp.memory.system import open_regular


def found_files(paths: Sequence[Path], output: Path) -> list[Path]:
    """Return the files that are meant, those of folders in the order of their names, results left out.

    Raises:
        FeedError: If there are none, one is given twice, is not there or no regular file, or a folder cannot be read.
    """
    files: list[Path] = []
    for path in paths:
        inside = _files_in(path, os.path.realpath(output)) if stat.S_ISDIR(_status(path).st_mode) else [path]
        if not inside:
            raise FeedError("there are no Parquet files in this folder", where=str(path), expected="*.parquet")
        files += inside
    seen: set[Path] = set()
    for file in files:
        _status(file)
        if file.resolve() in seen:
            raise FeedError("the file is given twice", where=str(file), hint="Its rows would be scored twice.")
        seen.add(file.resolve())
    if not files:
        raise FeedError("there is nothing to score", expected="one Parquet file or more")
    return files


def _status(path: Path) -> os.stat_result:
    with named.reading(FeedError, path, "a Parquet file, or a folder of them"):
        return path.stat()


def _files_in(folder: Path, output: str) -> list[Path]:
    """Return the Parquet files below a folder; folders of that name are looked into like others."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        if os.path.realpath(place) == output:
            folders.clear()
            continue
        found += [Path(place, name) for name in names if name.endswith(".parquet") and not name.startswith((".", "_"))]
    return sorted(found)


def _refuse(error: OSError) -> None:
    raise FeedError(
        "the folder cannot be read", where=str(error.filename), found=error.strerror or str(error),
        hint="Its rows would be missing from the results.",
    ) from error  # fmt: skip


def reading(where: str) -> contextlib.AbstractContextManager[None]:
    """Turn what Arrow raises in this block into a FeedError with the place."""
    hint = "It may be damaged or cut off: write it again."
    return named.reading(FeedError, where, "a Parquet file", problem="the file cannot be read", hint=hint)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[pq.ParquetFile]:
    """Open a regular file that holds Parquet.

    Raises:
        FeedError: If it is no such file.
    """
    with contextlib.ExitStack() as stack:
        with reading(os.fspath(path)):
            file = stack.enter_context(os.fdopen(open_regular(path), "rb"))
            parquet = stack.enter_context(pq.ParquetFile(file))
        yield parquet


def has_its_bytes(file: pq.ParquetFile, size: int) -> bool:
    """Tell whether a file as Arrow writes them holds what its footer says, and nothing else, in ``size`` bytes."""
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    columns = sum(group.column(i).total_compressed_size for group in groups for i in range(group.num_columns))
    return bool(columns + file.metadata.serialized_size + 12 == size)


def batches(
    file: pq.ParquetFile, row_group: int, rows: int, columns: Sequence[str], where: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group, some at a time.

    Raises:
        FeedError: If they cannot be read; the text names ``where``.
    """
    with reading(where):
        found = file.iter_batches(rows, row_groups=[row_group], columns=columns, use_threads=False)
    while True:
        with reading(where):
            batch = next(found, None)
            if batch is not None:
                batch.validate()
        if batch is None:
            return
        yield batch
