"""Tables between the markers of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.page import write


def test_the_table_goes_between_its_own_markers(tmp_path: Path):
    page = tmp_path / "page.md"
    other = "<!-- operators: begin -->\nkept\n<!-- operators: end -->\n"
    page.write_text(f"a\n<!-- regions: begin -->\nold\n<!-- regions: end -->\nb\n{other}", encoding="utf-8")
    write("regions", "new", page)
    write("regions", "new", page)
    expected = f"a\n<!-- regions: begin -->\n\nnew\n\n<!-- regions: end -->\nb\n{other}"
    assert page.read_text(encoding="utf-8") == expected
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md lacks"):
        write("regions", "new", page)
