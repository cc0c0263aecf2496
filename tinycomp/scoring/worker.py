"""The worker: a model over one row group after the other, in a process of :mod:`tinycomp.scoring.processes`."""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tinycomp.driver.load import load
from tinycomp.errors import DeviceFault, ExecutionError, FeedError, MemoryLimitError, UnsupportedError
from tinycomp.runtime.files import staged
from tinycomp.runtime.spec import TensorSpec
from tinycomp.scoring.columns import array_of, column_of, lengths, type_of
from tinycomp.scoring.parquet import batches, has_its_bytes, opened, reading
from tinycomp.scoring.piece import Done, Piece, Settings, state_of

COUNTS = b"tinycomp"
"""The key of a part's metadata: how many rows succeeded and failed."""
_BYTES_OF_A_RUN, _LEAST_ROWS, _MOST_ROWS = 1 << 18, 16, 1024
"""What the inputs of a run take where its rows are not given: little, so that what it computes stays in the caches."""
_BYTES_OF_A_READ = 1 << 24
_BUFFERED = 1 << 26
"""Bytes of results that are kept before they are written."""
_REJECTS = pa.schema(
    [("file", pa.string()), ("row_group", pa.int32()), ("row", pa.int64()), ("reason", pa.string())]
)  # fmt: skip


class Worker:
    """Score row groups with a model that is loaded once, its weights mapped from the file that all workers share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.module = load(settings.model, threads=settings.threads)
        self._inputs = [spec for spec in self.module.inputs if spec.name in settings.columns]
        self._size = (self._inputs[0].shape or (None,))[0]
        self._bytes_of_a_row = max(1, sum(map(_bytes_of_a_row, self._inputs)))
        self._types = {spec.name: type_of(spec, self._size) for spec in self.module.outputs}

    def score(self, piece: Piece) -> Done:
        """Write the results of a piece, and its failed rows.

        The file of results takes its place last and as a whole: where it is, the piece is done.
        """
        try:
            return self._score(piece)
        except MemoryError as error:
            raise ExecutionError(
                "the memory does not suffice", where=str(piece), found=str(error),
                hint="Use a smaller batch= or fewer workers=, or a model that takes fewer rows at once.",
            ) from error  # fmt: skip

    def _score(self, piece: Piece) -> Done:
        settings = self._settings
        wanted = [*dict.fromkeys((*settings.columns.values(), *settings.keep))]
        failures: list[tuple[int, str]] = []
        _refuse_change(piece)
        with opened(piece.path) as file, staged(piece.part(settings.output), settings.run) as partial:
            kept = [file.schema_arrow.field(name) for name in settings.keep]
            schema = pa.schema([*kept, *(pa.field(name, kind) for name, kind in self._types.items())])
            first = succeeded = 0
            with pq.ParquetWriter(partial, schema) as writer:
                part = _Part(writer, schema)
                for batch in batches(file, piece.row_group, self._rows_of_a_read(), wanted, str(piece)):
                    rows, results, failed = self._run(batch)
                    failures += [(first + row, reason) for row, reason in failed]
                    columns = [_rows(batch, rows).column(name) for name in settings.keep]
                    part.add(pa.record_batch([*columns, *results], schema=schema))
                    first, succeeded = first + len(batch), succeeded + len(rows)
                part.flush()
                if first != piece.rows:
                    raise FeedError(
                        "the file has changed", where=str(piece), expected=f"{piece.rows} rows", found=str(first)
                    )
                _refuse_change(piece)
                writer.add_key_value_metadata({COUNTS: f"{succeeded},{len(failures)}"})
            self._write_rejects(piece, failures)
        return Done(piece.name, succeeded, len(failures))

    def _write_rejects(self, piece: Piece, failures: list[tuple[int, str]]) -> None:
        path = piece.rejects(self._settings.output)
        path.unlink(missing_ok=True)  # of a worker that was killed
        if failures:
            path.parent.mkdir(exist_ok=True)
            name = os.fsencode(piece.path).decode(errors="backslashreplace")
            rows = [{"file": name, "row_group": piece.row_group, "row": r, "reason": why} for r, why in failures]
            with staged(path, self._settings.run) as partial:
                pq.write_table(pa.Table.from_pylist(rows, _REJECTS), partial)

    def _rows_of_a_run(self) -> int:
        if isinstance(self._size, int):
            return self._size
        if self._settings.batch is not None:
            return min(self._settings.batch, sys.maxsize)
        return min(_MOST_ROWS, max(_LEAST_ROWS, _BYTES_OF_A_RUN // self._bytes_of_a_row))

    def _rows_of_a_read(self) -> int:
        run = self._rows_of_a_run()
        return max(1, min(4 * _MOST_ROWS, _BYTES_OF_A_READ // self._bytes_of_a_row) // run) * run

    def _run(self, batch: pa.RecordBatch) -> tuple[NDArray[Any], list[pa.Array], list[tuple[int, str]]]:
        """Return which rows succeeded, their results, and why the others failed.

        Rows whose lists differ in length run apart. Where a run fails, its halves are tried, in the end single rows.
        """
        most = self._rows_of_a_run()
        parts = [group[i : i + most] for group in self._groups(batch) for i in range(0, len(group), most)]
        waiting = parts[::-1]
        rows, results, failed = list[NDArray[Any]](), list[list[pa.Array]](), list[tuple[int, str]]()
        while waiting:
            chosen = waiting.pop()
            try:
                results.append(self._results(_rows(batch, chosen)))
                rows.append(chosen)
            except DeviceFault:
                raise
            except (FeedError, ExecutionError, MemoryLimitError) as error:
                if len(chosen) == 1:
                    failed.append((int(chosen[0]), str(error)))
                else:
                    middle = len(chosen) // 2
                    waiting += [chosen[middle:], chosen[:middle]]
        order = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        columns = [
            pa.concat_arrays([each[i] for each in results]) if results else pa.array([], kind)
            for i, kind in enumerate(self._types.values())
        ]
        if (order[1:] < order[:-1]).any():
            back = np.argsort(order)
            order, columns = order[back], [column.take(pa.array(back)) for column in columns]
        return order, columns, sorted(failed)

    def _groups(self, batch: pa.RecordBatch) -> Iterator[NDArray[Any]]:
        """Yield the rows that may run together."""
        columns = (batch.column(self._settings.columns[spec.name]) for spec in self._inputs if not _is_fixed(spec))
        known = [found for found in map(lengths, columns) if found is not None]
        rows = np.arange(len(batch))
        if not known:
            yield rows
            return
        _, which = np.unique(np.stack(known), axis=1, return_inverse=True)
        order = np.argsort(which, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(which.reshape(-1)[order])) + 1)

    def _results(self, batch: pa.RecordBatch) -> list[pa.Array]:
        columns, count = self._settings.columns, len(batch)
        feeds = {spec.name: array_of(spec, batch.column(columns[spec.name])) for spec in self._inputs}
        if isinstance(self._size, int) and count < self._size:
            repeats = self._size - count
            feeds = {name: np.concatenate([a, np.repeat(a[-1:], repeats, axis=0)]) for name, a in feeds.items()}
        outputs = self.module.run(feeds)
        return [self._column(spec, outputs[spec.name], count) for spec in self.module.outputs]

    def _column(self, spec: TensorSpec, result: Any, count: int) -> pa.Array:
        ran = self._size if isinstance(self._size, int) else count
        if len(result) != ran:
            raise UnsupportedError(
                "the output does not have one entry per row", where=f'output "{spec.name}"', expected=f"{ran}",
                found=f"{len(result)}", hint="Score a model without this output.",
            )  # fmt: skip
        return column_of(spec, self._types[spec.name], result[:count])


class _Part:
    """Collects results, so that a file has large row groups however small the runs are."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._writer, self._schema = writer, schema
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _BUFFERED:
            self.flush()

    def flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._batches, self._bytes = [], 0


def counts(piece: Piece, output: str) -> tuple[int, int] | None:
    """Return how many rows of a piece succeeded and failed; None if its results are not there or not whole."""
    try:
        with opened(piece.part(output)) as file, reading(str(piece)):
            metadata: Mapping[bytes, bytes] = file.metadata.metadata or {}
            rows, failed = map(int, metadata[COUNTS].split(b","))
            is_whole = file.metadata.num_rows == rows >= 0 <= failed and rows + failed == piece.rows
            is_whole = is_whole and has_its_bytes(file, state_of(piece.part(output))[0])
        if failed and is_whole:
            with opened(piece.rejects(output)) as file:
                is_whole = file.metadata.num_rows == failed
    except FeedError:
        return None
    return (rows, failed) if is_whole else None


def _refuse_change(piece: Piece) -> None:
    """Refuse a file that is not the one that the run began with."""
    try:
        state = state_of(piece.path)
    except OSError as error:
        raise FeedError("the file is gone", where=str(piece), found=error.strerror or str(error)) from error
    if piece.state not in (None, state):
        raise FeedError("the file has changed since the run began", where=str(piece), hint="Score into another folder.")


def _rows(batch: pa.RecordBatch, chosen: NDArray[Any]) -> pa.RecordBatch:
    """Return some rows, given in ascending order; without a copy where they follow one another."""
    if len(chosen) and chosen[-1] - chosen[0] + 1 == len(chosen):
        return batch.slice(int(chosen[0]), len(chosen))
    return batch.take(pa.array(chosen))


def _is_fixed(spec: TensorSpec) -> bool:
    return all(isinstance(dim, int) for dim in (spec.shape or (None,))[1:])


def _bytes_of_a_row(spec: TensorSpec) -> int:
    """Return how many bytes a row of an input takes; sizes that are not known count as 128."""
    sizes = [dim if isinstance(dim, int) else 128 for dim in (spec.shape or ())[1:]]
    dtype = spec.numpy_dtype
    return int(np.prod(sizes, dtype=np.int64)) * (8 if dtype is None else dtype.itemsize)


@functools.lru_cache(maxsize=1)
def _worker(settings: bytes) -> Worker:
    return Worker(pickle.loads(settings))


def score_piece(settings: bytes, piece: Piece) -> Done:
    """Score a piece as pickled settings say, with a worker that stays for the next one."""
    return _worker(settings).score(piece)
