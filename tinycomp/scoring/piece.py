"""What is scored at once: a row group of a file; and what every worker is told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tinycomp.records import dataclass

REJECTS = "_rejects"
"""The folder of failed rows inside that of the results. Readers of folders pass over names like this."""


def state_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return what shows that a file has changed: its bytes, and when it was written to, in nanoseconds."""
    status = os.stat(path)  # noqa: PTH116 - a text is one, too
    return status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class Settings:
    """Tell a worker what to do.

    Attributes:
        model: Path of the saved module.
        output: The folder of the results.
        columns: The column of each input.
        keep: Columns that the results have beside the outputs.
        batch: Rows of a run; None for as many as seems good.
        threads: Threads of a run.
        run: A name for this run of :func:`tinycomp.score`, which owns the files that are being written.
    """

    model: str
    output: str
    columns: Mapping[str, str]
    keep: tuple[str, ...]
    batch: int | None
    threads: int
    run: str = ""


@dataclass(frozen=True)
class Piece:
    """One row group.

    Attributes:
        number: The number of the file in the manifest.
        path: The file.
        row_group: Which of its row groups.
        rows: How many rows it has.
        state: Of the file, as :func:`state_of` has it; None if that does not matter.
    """

    number: int
    path: str
    row_group: int
    rows: int
    state: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The name of its file of results, in the order of the inputs."""
        return f"part-{self.number:05}-{self.row_group:05}.parquet"

    def part(self, output: str) -> Path:
        """Return where its results are, once they are complete."""
        return Path(output) / self.name

    def rejects(self, output: str) -> Path:
        """Return where its failed rows are, if there are any."""
        return Path(output) / REJECTS / self.name

    def __str__(self) -> str:
        return f"{self.path}, row group {self.row_group}"


@dataclass(frozen=True)
class Done:
    """Tell what has come of a piece.

    Attributes:
        name: The name of the piece.
        rows: Rows of results.
        failed: Rows that failed.
    """

    name: str
    rows: int
    failed: int
