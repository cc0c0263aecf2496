"""Putting a generated table between the markers of a page of the documentation."""

from __future__ import annotations

from pathlib import Path


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
