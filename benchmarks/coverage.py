"""How much of every architecture of the corpus the c target runs, and how right it is.

Run as ``python -m benchmarks coverage``; ``--write`` puts the tables into ``docs/coverage.md``. Every model is compiled
with the defaults, once for batch 1 and, exported with a symbolic batch, once more for the batches 2 and 3. With
``--json`` the models that are not named keep the figures of the file, so that some can be measured again on their own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tinycomp
from benchmarks import corpus, page
from benchmarks.peers import REFERENCE, load_onnxruntime, relative_error
from benchmarks.regions import percent
from tinycomp.runtime.report import Report
from tinycomp.runtime.rows import HostRow

PAGE = page.Page("coverage", "coverage.md")
LIMIT = 1e-4
"""Largest difference from onnxruntime that counts as a match, as a share of the largest output."""
BATCHES = (2, 3)
"""What models with a symbolic batch are run with."""


@dataclass(frozen=True)
class Row:
    """One model at one batch.

    Attributes:
        model: Its name.
        exporter: PyTorch's exporter that made it.
        batch: The batch; above 1 it is symbolic in the model.
        error: Largest difference from onnxruntime over the largest output, over all outputs; None if it failed.
        regions: Regions on c.
        macs: Share of multiply-accumulate operations on c.
        seconds: Share of the time on c.
        hosts: Why operators stayed on the host: operator, reason, how often.
        failure: The error, if the model was refused or failed.
    """

    model: str
    exporter: str
    batch: int
    error: float | None = None
    regions: int = 0
    macs: float = 0.0
    seconds: float = 0.0
    hosts: tuple[tuple[str, str, int], ...] = ()
    failure: str = ""

    @property
    def matches(self) -> bool:
        """Whether the model ran and was right."""
        return self.error is not None and self.error <= LIMIT


def measure(name: str, runs: int = 3) -> Iterator[Row]:
    """Measure a model at batch 1, and its export with a symbolic batch at each of :data:`BATCHES`."""
    yield from _measure(name, (1,), runs)
    yield from _measure(name, BATCHES, runs)


def _measure(name: str, batches: Sequence[int], runs: int) -> Iterator[Row]:
    exporter = corpus.architecture(name).exporter
    file = corpus.path(name, dynamic_batch=batches != (1,))
    try:
        module = tinycomp.compile(file)
    except tinycomp.TinycompError as error:
        yield from (Row(name, exporter, batch, failure=str(error)) for batch in batches)
        return
    reference = load_onnxruntime(file, module.threads, {})
    for batch in batches:
        feeds = corpus.feeds(name, batch=batch)
        empty = Row(name, exporter, batch)
        try:
            found = list(module.run(feeds).values())
            module.profile(feeds, runs)
        except tinycomp.TinycompError as error:
            yield dataclasses.replace(empty, failure=str(error))
            continue
        errors = [relative_error(f, w) for f, w in zip(found, reference(feeds), strict=True)]
        yield _filled(empty, max(errors), module.report())


def _filled(row: Row, error: float, report: Report) -> Row:
    totals = report.totals
    return dataclasses.replace(
        row,
        error=error,
        regions=len(report.regions),
        macs=totals["macs"]["share"],
        seconds=totals["seconds"]["share"],
        hosts=_reasons(report.hosts),
    )


def _reasons(hosts: Iterable[HostRow]) -> tuple[tuple[str, str, int], ...]:
    """Count host nodes by operator and first reason, the most frequent first."""
    counts = Counter((h.op, str(h.reasons[0]) if h.reasons else "no reason recorded") for h in hosts)
    return tuple((op, reason, count) for (op, reason), count in counts.most_common())


def table(rows: Iterable[Row]) -> str:
    """Return one line per model as Markdown, the worst of its batches in every column."""
    models: dict[str, list[Row]] = {}
    for row in rows:
        models.setdefault(row.model, []).append(row)
    names = ["model", "exporter", f"difference from {REFERENCE}", "regions", "on the host"]
    return page.table(names, map(_worst, models.values()), left=(0, 1, 4))


def _worst(rows: Sequence[Row]) -> list[str]:
    model, exporter = rows[0].model, rows[0].exporter
    for row in rows:
        if row.error is None:
            return [model, exporter, "failed", "", f"batch {row.batch}: {row.failure.partition(chr(10))[0]}"]
    hosts: dict[str, int] = {}
    for row in rows:
        for op, count in _host_counts(row).items():
            hosts[op] = max(hosts.get(op, 0), count)
    left = "nothing"
    if hosts:
        counts = ", ".join(f"{count} {op}" for op, count in sorted(hosts.items(), key=lambda item: -item[1]))
        macs, seconds = min(row.macs for row in rows), min(row.seconds for row in rows)
        left = f"{counts}; on c: {percent(macs)} of the MACs, {percent(seconds)} of the time"
    error = max(row.error or 0.0 for row in rows)
    return [model, exporter, f"{error:.1e}", str(max(row.regions for row in rows)), left]


def _host_counts(row: Row) -> Counter[str]:
    hosts: Counter[str] = Counter()
    for op, _, count in row.hosts:
        hosts[op] += count
    return hosts


def _cells(row: Row) -> list[str]:
    start = [row.model, row.exporter, f"{row.batch}"]
    if row.error is None:
        return [*start, "failed", "", "", "", row.failure.partition("\n")[0]]
    left = ", ".join(f"{count} {op}" for op, count in _host_counts(row).most_common()) or "nothing"
    return [*start, f"{row.error:.1e}", f"{row.regions}", percent(row.macs), percent(row.seconds), left]


def reasons_table(rows: Sequence[Row]) -> str:
    """Why operators stayed on the host, over all rows, as Markdown."""
    models: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        for op, reason, count in row.hosts:
            found = models.setdefault((op, reason), {})
            found[row.model] = max(found.get(row.model, 0), count)
    cells = (
        (op, reason, ", ".join(f"{model} {count}" for model, count in counts.items()))
        for (op, reason), counts in sorted(models.items())
    )
    return page.table(["operator", "why it stays on the host", "nodes per model"], cells, left=3)


def summary(rows: Sequence[Row]) -> str:
    """One sentence about all rows."""
    models = list(dict.fromkeys(row.model for row in rows))
    right = [m for m in models if all(row.matches for row in rows if row.model == m)]
    single = [m for m in models if all(row.regions == 1 and not row.hosts for row in rows if row.model == m)]
    return (
        f"{len(right)} of {len(models)} architectures agree with {REFERENCE} within {LIMIT:g} of the largest output at "
        f"every batch; {len(single)} are one region with nothing on the host."
    )


def _stored(file: Path | None) -> dict[str, list[Row]]:
    """The rows in a file that :func:`_store` wrote, by model."""
    found: dict[str, list[Row]] = {}
    entries = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else []
    for entry in entries:
        hosts = tuple((op, reason, count) for op, reason, count in entry.pop("hosts"))
        found.setdefault(entry["model"], []).append(Row(**entry, hosts=hosts))
    return found


def _store(file: Path, measured: Mapping[str, Sequence[Row]]) -> None:
    entries = [dataclasses.asdict(row) for rows in measured.values() for row in rows]
    file.write_text(json.dumps(entries, indent=2), encoding="utf-8")


def main() -> int:
    """Print the tables, and write them if asked to; the exit status is 1 if a model is wrong or refused."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks coverage", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help="models of the corpus (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each profile (default: 3)")
    parser.add_argument("--json", type=Path, metavar="file", help="write the figures to a file")
    PAGE.add_option(parser)
    options = parser.parse_args()
    measured: dict[str, list[Row]] = _stored(options.json)
    for name in options.names or corpus.names():
        measured[name] = []
        for row in measure(name, options.runs):
            measured[name].append(row)
            print(page.line(_cells(row)), file=sys.stderr, flush=True)
        if options.json is not None:
            _store(options.json, measured)
    rows = [row for name in corpus.names() for row in measured.get(name, [])]
    missing = [name for name in corpus.names() if not measured.get(name)]
    unknown = [f"Not measured: {', '.join(missing)}."] if missing else []
    reasons = [reasons_table(rows)] if any(row.hosts for row in rows) else []
    PAGE.publish("\n\n".join((summary(rows), *unknown, table(rows), *reasons)), options)
    return 0 if all(row.matches for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
