"""Tables for windows of any width."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len

from tinycomp.console import SafeConsole
from tinycomp.runtime.tables import drawn, table

ROWS = [
    ("stem/convolution/weights", "npu_sim.qconv: output channels must be a multiple of 16, got 10", "480", "1.5 ms")
]


def made(width: int, rows: list[tuple[str, ...]] = ROWS) -> str:
    return drawn(table("On the host", ("node", "why"), ("MACs", "time"), rows, {"why": 2}), width)


def test_a_table_stays_one_where_there_is_room() -> None:
    text = made(80)
    assert "┃" in text
    assert "1.5 ms" in text


@pytest.mark.parametrize("width", [10, 20, 30, 40])
def test_a_narrow_table_becomes_a_list_of_its_rows(width: int) -> None:
    text = made(width)
    assert "┃" not in text
    assert max(map(cell_len, text.splitlines())) <= width
    joined = "".join(text.split())
    for cell in (*ROWS[0][:2], "MACs480,time1.5ms"):
        assert "".join(cell.split()) in joined


def test_figures_that_nobody_has_have_no_column() -> None:
    assert "time" not in made(80, [("x", "y", "480", "")])
    assert "time" in made(80, [])


def test_a_list_shows_commands_for_the_terminal_too() -> None:
    console = SafeConsole(width=12, file=io.StringIO(), force_terminal=True)
    console.print(table("t", ("node", "why"), (), [("\x1b[31mred", "a long reason that does not fit")]))
    assert "\x1b[31mred" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert "\\x1b[31mre" in console.file.getvalue().replace("\n", "")  # type: ignore[attr-defined]
