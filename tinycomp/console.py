"""The console that everything is printed to, and tables for windows of any width.

Names of models are shown as what they are, never obeyed as commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tinycomp.errors import visible


class SafeConsole(Console):
    """A console that escapes control characters in the text that it prints; its own codes for colours stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, their texts made visible."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text, lines=True)
            yield segment if text == segment.text else Segment(text, segment.style, segment.control)


class FoldingTable(Table):
    """A table that becomes a list of its rows where its columns would be too narrow to be read.

    Columns whose cells may be broken ask for as much as their longest cell, up to some letters, and for their longest
    word, up to some more; the others for all.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or its rows below one another."""
        least = [*map(_least, self.columns)]
        if sum(least) + 3 * len(self.columns) + 1 <= options.max_width:
            for column, width in zip(self.columns, least, strict=True):
                column.min_width = width
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title), style="table.title")
        for place in range(self.row_count):
            yield from _record([(column, _plain(list(column.cells)[place])) for column in self.columns])


_LEAST = 14
"""Letters that a cell of words asks for, if it has as many."""
_WORD = 20
"""Letters of a word that is not broken; longer ones are, since they are paths and names."""


def _least(column: Column) -> int:
    """Return how wide a column must be."""
    cells = [_plain(cell) for cell in (column.header, *column.cells)]
    widest = max((cell_len(line) for cell in cells for line in cell.splitlines()), default=0)
    if column.no_wrap:
        return widest
    wanted = _LEAST + 4 if column.ratio else _LEAST
    words = [cell_len(word) for cell in cells for word in cell.split()]
    return max(min(widest, wanted), max((word for word in words if word <= _WORD), default=0))


def _record(cells: Sequence[tuple[Column, str]]) -> Iterable[RenderableType]:
    """Yield a row as lines: the first cell, then those of words with their heads, then figures in one line."""
    (_, first), *others = cells
    yield Text(first, style="bold", overflow="fold")
    figures = [(_plain(column.header), cell) for column, cell in others if column.justify == "right" and cell]
    for column, cell in others:
        if column.justify != "right" and cell:
            head = _plain(column.header)
            yield _indented(Text.assemble((f"{head}: " if head else "", "dim"), cell))
    if figures:
        yield _indented(Text(", ".join(f"{head} {cell}".strip() for head, cell in figures)))


def _indented(text: Text) -> RenderableType:
    text.overflow = "fold"
    return Padding(text, (0, 0, 0, 2), expand=False)


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
