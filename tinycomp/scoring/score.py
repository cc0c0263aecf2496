"""Score the rows of Parquet files."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tinycomp.arguments import checked
from tinycomp.driver.compile import compile as compile_model
from tinycomp.driver.load import load
from tinycomp.driver.models import Model, load_graph
from tinycomp.driver.tune import Bar
from tinycomp.errors import ExecutionError, FeedError, OptionError, WriteError, did_you_mean
from tinycomp.memory.reading import reading
from tinycomp.records import dataclass
from tinycomp.runtime.files import remove_partial
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.processor import default_threads
from tinycomp.runtime.spec import TensorSpec
from tinycomp.scoring import manifest
from tinycomp.scoring.columns import check_column, check_input, type_of
from tinycomp.scoring.parquet import found_files
from tinycomp.scoring.piece import REJECTS, Done, Piece, Settings
from tinycomp.scoring.processes import score_in_processes
from tinycomp.scoring.worker import counts

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Scored:
    """Tell what :func:`score` has done.

    Attributes:
        output: The folder of the results.
        rows: Rows of results in it.
        failed: Rows that failed; they are in :attr:`rejects`, with reasons.
        parts: Files of results, one for each row group.
        resumed: How many of them were there before.
        seconds: How long it took.
    """

    output: Path
    rows: int
    failed: int
    parts: int
    resumed: int
    seconds: float

    @property
    def rejects(self) -> Path:
        """The folder of failed rows."""
        return self.output / REJECTS

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {**vars(self), "output": str(self.output)}


@checked("model", least={"batch": 1, "workers": 1, "threads": 1})
def score(
    model: Module | Model,
    files: AnyPath | Sequence[AnyPath],
    output: AnyPath,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    batch: int | None = None,
    workers: int | None = None,
    threads: int = 1,
    ray: str | None = None,
    progress: bool | None = None,
) -> Scored:
    """Run a model on every row of Parquet files, and write the results as Parquet files.

    Every row group gives one file of results, in which rows stand in their order. It takes its place as a whole, so
    that a run that was killed is simply started again: what is there is not computed again. Rows on which the model
    fails are left out, and written with file, row group, row and reason into the folder ``_rejects``.

    The first dimension of inputs and outputs is that of the rows, which must be independent: they run in batches.

    Args:
        model: A module, the path of a saved one, or a model as for :func:`tinycomp.compile`.
        files: Parquet files, and folders of them.
        output: The folder to write to; a new one, or that of the same run before.
        columns: Columns by the inputs that they are for; by default those of the same names.
        keep: Columns that the results have beside the outputs; by default all that are not inputs.
        batch: Rows of a run, where the model leaves their number open; by default 16 to 1024, in 256 KB.
        workers: Processes, or actors of Ray; by default as many as the processors and ``threads`` allow.
        threads: Threads of a run.
        ray: Address of a Ray cluster to run on, ``"auto"`` for the one that runs here or ``"local"`` for a new one on
            this machine; needs Ray. All its machines must see the files under the same paths.
        progress: Whether to show a bar on stderr; by default if that is a terminal.

    Raises:
        FeedError: If a file cannot be read, or its columns do not fit the model.
        OptionError: If the folder holds other results, or another run is writing into it.
        UnsupportedError: If inputs or outputs have no dimension for rows, or no column can hold them.
        ExecutionError: If processes end again and again over the same row group.
        WriteError: If there is no space or permission.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq, tinycomp
        >>> from pathlib import Path
        >>> from tinycomp.data import digits, digits_model
        >>> images, labels = digits()
        >>> folder = Path(tempfile.mkdtemp())
        >>> table = pa.table({"image": list(images[:90].reshape(90, 64)), "label": labels[:90]})
        >>> pq.write_table(table, folder / "digits.parquet", row_group_size=30)
        >>> scored = tinycomp.score(digits_model(), folder / "digits.parquet", folder / "out", workers=1)
        >>> scored.rows, scored.failed, scored.parts
        (90, 0, 3)
        >>> pq.read_table(folder / "out").column_names
        ['label', 'probabilities']
    """
    started = time.perf_counter()
    module = model if isinstance(model, Module) else _module(model, threads)
    given = [files] if isinstance(files, (str, os.PathLike)) else [*files]
    if not all(map(str, (output, *given))):
        raise OptionError("a path is empty", where="score", expected="files and a folder", hint='This folder is ".".')
    folder = Path(output)
    with reading(WriteError, folder, "a name in UTF-8, as Parquet has it", problem="the folder cannot be made"):
        str(folder).encode()
        folder.is_dir()
    described = [manifest.read_file(path) for path in found_files([Path(file) for file in given], folder)]
    chosen, kept = chosen_columns(module, described, columns, keep)
    options = {"columns": chosen, "keep": [*kept]}
    settings = Settings(
        os.path.realpath(manifest.model_in(folder)), os.path.realpath(folder), chosen, tuple(kept), batch,
        threads, run=f"{secrets.token_hex(4)}-",
    )  # fmt: skip
    with manifest.locked(folder) as lock, _without_partial_files(folder, settings.run, are_all_ours=bool(lock)):
        pieces = manifest.prepare(folder, module.to_bytes(), options, [file for file, _ in described])
        known = {piece.name: found for piece in pieces if (found := counts(piece, settings.output)) is not None}
        waiting = [piece for piece in pieces if piece.name not in known]
        waiting.sort(key=lambda piece: -piece.rows)  # small ones come last, so that the workers end at about one time
        resumed = len(known)
        count = workers or max(1, default_threads() // threads)
        with (
            contextlib.closing(_done(settings, waiting, count, ray, lock)) as done,
            Bar(progress).over("scoring", done, len(waiting)) as finished,
        ):
            for each in finished:
                known[each.name] = (each.rows, each.failed)
    _check(pieces, known)
    rows, failed = (sum(found[i] for found in known.values()) for i in range(2))
    return Scored(folder, rows, failed, len(pieces), resumed, time.perf_counter() - started)


@contextlib.contextmanager
def _without_partial_files(folder: Path, run: str, *, are_all_ours: bool) -> Iterator[None]:
    """Remove what killed workers were writing: of this run in the end, of runs before it where none can be alive."""
    places = (folder, folder / REJECTS)
    if are_all_ours:
        for place in places:
            remove_partial(place)
    try:
        yield
    finally:
        for place in places:
            remove_partial(place, run)


def _module(model: Model, threads: int) -> Module:
    if isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(".tcm"):
        return load(model, threads=threads)
    return compile_model(load_graph(model), threads=threads)


def _done(
    settings: Settings, pieces: Sequence[Piece], count: int, ray: str | None, lock: Sequence[int]
) -> Generator[Done, None, None]:
    if not pieces:
        return
    if ray is None:
        yield from score_in_processes(settings, pieces, count, lock)
        return
    from tinycomp.scoring.on_ray import score_on_ray

    yield from score_on_ray(settings, pieces, count, ray)


def chosen_columns(
    module: Module, files: Sequence[tuple[manifest.InputFile, pa.Schema]],
    columns: Mapping[str, str] | None, keep: Sequence[str] | None,
) -> tuple[dict[str, str], list[str]]:  # fmt: skip
    """Return the column of each input, and the columns to keep, once all files are known to have them."""
    first, schema = files[0]
    chosen = _columns(module, columns or {}, schema, first.path)
    kept = [name for name in schema.names if name not in chosen.values()] if keep is None else [*keep]
    specs = {spec.name: spec for spec in module.inputs}
    for name in chosen:
        check_input(specs[name])
    rows = {(specs[name].shape or (None,))[0] for name in chosen}
    if len(rows) != 1:
        raise OptionError(
            "the inputs have different numbers of rows", where="the model", found=", ".join(map(str, module.inputs)),
            hint="Give their first dimensions one name.",
        )  # fmt: skip
    (size,) = rows
    for spec in module.outputs:
        type_of(spec, size)
    for place, name in enumerate(kept if keep is not None else ()):
        if name in kept[:place]:
            raise OptionError("a column is kept twice", where=f'keep, "{name}"')
    for name in kept:
        if name in {spec.name for spec in module.outputs}:
            raise OptionError(
                "a column that is kept has the name of an output", where=f'column "{name}"',
                hint="Choose the columns to keep with keep=, or rename the column.",
            )  # fmt: skip
    for file, found in files:
        _check_schema(file.path, found, schema, {column: specs[name] for name, column in chosen.items()}, kept)
    return chosen, kept


def _columns(module: Module, given: Mapping[str, str], schema: pa.Schema, where: str) -> dict[str, str]:
    names = [spec.name for spec in module.inputs]
    for name in given:
        if name not in names:
            raise OptionError(
                "not an input of the model", where=f'columns, "{name}"', expected=f"some of {', '.join(names)}",
                hint=did_you_mean(name, names),
            )  # fmt: skip
    chosen = {name: given.get(name, name) for name in names}
    for name, column in [*chosen.items()]:
        if column in schema.names:
            continue
        if name in module.defaults and name not in given:
            del chosen[name]
            continue
        near = did_you_mean(column, schema.names)
        raise FeedError(
            f'there is no column "{column}" for the input "{name}"', where=where,
            expected=f"one of {', '.join(schema.names)}" if schema.names else "a file with columns",
            hint=f'{near} Say which one it is: columns={{"{name}": …}}, --columns {name}=COLUMN.'.strip(),
        )  # fmt: skip
    if not chosen:
        raise OptionError("the model has no input that a column could be for", where="the model")
    return chosen


def _check_schema(
    where: str, found: pa.Schema, first: pa.Schema, inputs: Mapping[str, TensorSpec], kept: Sequence[str]
) -> None:
    for name in (*inputs, *kept):
        several = found.names.count(name)
        if several != 1:
            raise FeedError(
                f'there {f"are {several} columns" if several else "is no column"} "{name}"', where=where,
                expected=f"one of {', '.join(found.names)}", hint="" if several else did_you_mean(name, found.names),
            )  # fmt: skip
    for column, spec in inputs.items():
        check_column(spec, found.field(column), where)
    for name in kept:
        if found.field(name).type != first.field(name).type:
            raise FeedError(
                "the column has another type than in the first file", where=f'{where}, column "{name}"',
                expected=str(first.field(name).type), found=str(found.field(name).type), hint="Choose with keep=.",
            )  # fmt: skip


def _check(pieces: Sequence[Piece], known: Mapping[str, tuple[int, int]]) -> None:
    """Count once more: every row has a result or a reason."""
    for piece in pieces:
        if sum(known[piece.name]) != piece.rows:
            raise ExecutionError(
                "rows are missing from the results", where=str(piece), expected=f"{piece.rows} rows",
                found=f"{known[piece.name][0]} and {known[piece.name][1]} that failed",
                hint="Remove the file of results, and score again.",
            )  # fmt: skip
