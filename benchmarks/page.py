"""Markdown tables, and putting them between the markers of a page of the documentation."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


@dataclass(frozen=True)
class Page:
    """A part of a page that a command writes.

    Attributes:
        marker: What stands in the comments around it: ``<!-- marker: begin -->`` and ``<!-- marker: end -->``.
        file: The page, in the folder ``docs``.
    """

    marker: str
    file: str

    def add_option(self, parser: argparse.ArgumentParser) -> None:
        """Let the command's user ask for the page to be written."""
        parser.add_argument("--write", action="store_true", help=f"write the result into docs/{self.file}")

    def publish(self, text: str, options: argparse.Namespace) -> None:
        """Print the text, and write it into the page if ``--write`` asks for that."""
        print(text)
        if options.write:
            write(self.marker, text, DOCS / self.file)


def write(marker: str, text: str, page: Path) -> None:
    """Replace what stands between ``<!-- marker: begin -->`` and ``<!-- marker: end -->``.

    Raises:
        ValueError: The page has no such markers.
    """
    first, last = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page.name} lacks {first} and {last}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def heading(names: Sequence[str], left: int | Iterable[int] = 1) -> str:
    """The first two lines of a Markdown table.

    Args:
        names: Of the columns.
        left: The columns that are text, by number, or how many at the beginning; the others hold figures.
    """
    texts = set(range(left)) if isinstance(left, int) else set(left)
    rules = ["---" if i in texts else "--:" for i in range(len(names))]
    return f"{line(names)}\n|{'|'.join(rules)}|"


def line(cells: Iterable[object]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def table(names: Sequence[str], rows: Iterable[Iterable[object]], left: int | Iterable[int] = 1) -> str:
    """A Markdown table; see :func:`heading`."""
    return "\n".join([heading(names, left), *map(line, rows)])
