"""How a report looks as text and as a page: drawn by rich, which is imported only when somebody looks."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tinycomp.runtime.report import ConversionRow, HostRow, LayerRow, RegionRow, Report

_WIDTH = 110
_REASONS_SHOWN = 2


def report_text(report: Report) -> str:
    """Return a report as plain text."""
    console = Console(width=_WIDTH, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(drawn(report))
    return capture.get().rstrip()


def report_html(report: Report) -> str:
    """Return a report as one self-contained HTML page."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(drawn(report))
    return console.export_html()


def drawn(report: Report) -> RenderableType:
    """Return what rich prints for a report."""
    parts: list[RenderableType] = [_headline(report)]
    if report.regions:
        parts.append(_region_table(report.regions))
    if report.hosts:
        parts.append(_host_table(report.hosts))
    if report.conversions:
        parts.append(_conversion_table(report.conversions))
    if report.layers:
        parts.append(Text(f"Convolutions: {_algorithms(report.layers)}."))
    if "arena" in report.totals:
        parts.append(Text(_arena_line(**report.totals["arena"])))
    parts.extend(Text(note) for note in report.notes)
    return Group(*parts)


def _headline(report: Report) -> Text:
    totals = report.totals
    nodes, macs = totals["nodes"], totals["macs"]
    text = (
        f"{report.model or 'model'}: {len(report.regions)} region(s) on {', '.join(report.targets) or 'no target'}; "
        f"{nodes['offloaded']} of {nodes['offloaded'] + nodes['host']} nodes"
    )
    if macs["offloaded"] + macs["host"]:
        text += f", {macs['share']:.1%} of MACs"
    if "integer_macs" in totals:
        text += f" ({totals['integer_macs']['share']:.1%} in 8-bit integers)"
    if "seconds" in totals:
        text += f", {totals['seconds']['share']:.1%} of the time"
    return Text(text, style="bold")


def _arena_line(bytes: int, bound: int) -> str:  # noqa: A002 - as in the totals
    bounded = f", of which {si(bound, 'B')} are in use at once" if bound else ""
    return f"Intermediate values inside regions take {si(bytes, 'B')}{bounded}."


def _region_table(rows: Sequence[RegionRow]) -> Table:
    table = Table(title="Regions", title_justify="left", expand=True)
    for name in ("region", "target", "composites and operators"):
        table.add_column(name, overflow="fold")
    for name in ("nodes", "MACs", "in", "out", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.symbol, row.target, _counts(row), str(row.nodes), si(row.macs), si(row.bytes_in, "B"),
            si(row.bytes_out, "B"), milliseconds(row.seconds),
        )  # fmt: skip
    return table


def _counts(row: RegionRow) -> str:
    inside = {**row.composites, **row.singles}
    return ", ".join(f"{count} {name}" for name, count in sorted(inside.items(), key=lambda i: (-i[1], i[0])))


def _algorithms(layers: Sequence[LayerRow]) -> str:
    """How often each algorithm is used, the most frequent first."""
    counts = Counter(layer.algorithm for layer in layers)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda i: (-i[1], i[0])))


def _host_table(rows: Sequence[HostRow]) -> Table:
    table = Table(title="On the host", title_justify="left", expand=True)
    # Long names and long reasons share what the other columns leave.
    for name, ratio in (("node", 2), ("operator", None), ("tier", None), ("why", 3)):
        table.add_column(name, overflow="fold", ratio=ratio)
    table.add_column("MACs", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for row in rows:
        shown = [str(r) for r in row.reasons[:_REASONS_SHOWN]]
        more = len(row.reasons) - len(shown)
        text = "\n".join(shown + ([f"… and {more} more"] if more > 0 else []))
        table.add_row(
            Text(row.name), row.op, row.tier, Text(text), si(row.macs), milliseconds(row.seconds)
        )  # fmt: skip
    return table


def _conversion_table(rows: Sequence[ConversionRow]) -> Table:
    table = Table(title="Between quantised and real numbers", title_justify="left", expand=True)
    for name in ("conversion", "in", "from", "to"):
        table.add_column(name, overflow="fold")
    table.add_column("elements", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text(", ".join(row.sources)), row.place, row.source, row.result, si(row.elements))
    return table


def si(value: float, unit: str = "") -> str:
    """Return a number with an SI prefix.

    >>> si(4089184256), si(602112, "B"), si(12)
    ('4.09 G', '602 kB', '12')
    """
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:g} {unit}".rstrip()


def milliseconds(seconds: float | None) -> str:
    """Return seconds as a text in milliseconds; empty for None."""
    return "" if seconds is None else f"{seconds * 1e3:.3f} ms"
