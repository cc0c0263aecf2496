"""Tables and figures as people read them, drawn by rich, which is imported only when somebody looks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def table(
    title: str,
    words: Iterable[str],
    figures: Iterable[str],
    rows: Iterable[Sequence[str]],
    ratios: Mapping[str, int] = MappingProxyType({}),
) -> Table:
    """Return a table as rich draws it, or as a list of its rows where there is no room; without figures nobody has.

    Args:
        title: What stands above it.
        words: Names of the columns whose cells are words, which may be broken.
        figures: Names of the columns behind them, whose cells are figures.
        rows: The cells of every row.
        ratios: How the columns that are named here share the room that the others leave.
    """
    from rich.text import Text

    from tinycomp.console import FoldingTable

    cells, names = list(rows), list(words)
    numbered = list(enumerate(figures, len(names)))
    known = [(place, name) for place, name in numbered if not cells or any(row[place] for row in cells)]
    result = FoldingTable(title=title, title_justify="left", expand=True)
    for name in names:
        result.add_column(name, overflow="fold", ratio=ratios.get(name))
    for _, name in known:
        result.add_column(name, justify="right", no_wrap=True)
    for row in cells:
        result.add_row(*map(Text, (*row[: len(names)], *(row[place] for place, _ in known))))
    return result


def drawn(what: RenderableType, width: int) -> str:
    """Return what rich prints, as plain text of at most ``width`` characters a line."""
    from tinycomp.console import SafeConsole

    console = SafeConsole(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get().rstrip()


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
