from __future__ import annotations

import io
import json
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tinycomp.cli import session as module
from tinycomp.cli.session import Session


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.02)


def test_what_is_quick_is_not_announced(capsys) -> None:
    with Session().progress("compiling"):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("impatient")
def test_what_takes_long_is_announced_on_stderr(capsys) -> None:
    with Session().progress("compiling x[y]"):
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "compiling x[y] …\n")


@pytest.mark.usefixtures("impatient")
def test_a_terminal_gets_a_clock(capsys) -> None:
    session = Session()
    stream = io.StringIO()
    session.err = Console(file=stream, force_terminal=True, width=80)
    with session.progress("compiling"):
        time.sleep(0.3)
    assert "compiling" in stream.getvalue()
    assert "0:00:00" in stream.getvalue()
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("impatient")
def test_the_announcement_ends_when_the_work_fails(capsys) -> None:
    with pytest.raises(KeyError), Session().progress("compiling"):
        raise KeyError
    time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_json_is_plain(capsys) -> None:
    session = Session(as_json=True)
    session.show("not shown")
    session.result(
        {"a": np.float32(0.5), "b": Path("x"), "c": [np.int64(1), float("inf")], "d": np.zeros(2), "e": True}
    )
    assert json.loads(capsys.readouterr().out) == {"a": 0.5, "b": "x", "c": [1, None], "d": [0, 0], "e": True}


def test_texts_are_no_markup(capsys) -> None:
    Session().show("[bold]x[/bold] [y]")
    assert capsys.readouterr().out == "[bold]x[/bold] [y]\n"
