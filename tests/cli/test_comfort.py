"""What a shell's user takes for granted: completion, colours that can be turned off, help that fits, time left."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from tinycomp.cli import exits
from tinycomp.cli import session as module
from tinycomp.cli.commands import SUMMARIES
from tinycomp.cli.session import Session


def completions(line: str, folder: Path) -> list[str]:
    """What a shell would offer at the end of a line, for which argcomplete's own protocol asks."""
    answer = folder / "answer"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    script = "import sys; sys.argv = ['tinycomp']; from tinycomp.cli import main; main()"
    command = [sys.executable, "-c", script]
    subprocess.run(command, env=os.environ | asked | {"PYTHONPATH": path}, cwd=folder, capture_output=True, check=False)
    return sorted(answer.read_text("utf-8").split("\v"))


@pytest.mark.long
def test_a_shell_completes_commands_options_models_and_targets(tmp_path: Path) -> None:
    pytest.importorskip("argcomplete", reason="argcomplete is not installed")
    for name in ("net.onnx", "net.tcm", "notes.txt", "other.onnx"):
        (tmp_path / name).touch()
    assert completions("tinycomp re", tmp_path) == ["report"]
    assert completions("tinycomp report n", tmp_path) == ["net.onnx", "net.tcm"]
    assert completions("tinycomp report digits -t n", tmp_path) == ["npu_sim"]
    assert completions("tinycomp report digits --precision ", tmp_path) == ["bf16", "f16", "f32"]


@pytest.mark.parametrize("command", SUMMARIES)
def test_help_fits_into_eighty_columns_and_has_examples(call, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = call(command, "--help")
    assert result.code == exits.OK
    assert max(map(cell_len, result.out.splitlines())) <= 80
    _, _, examples = result.out.partition("examples:\n")
    lines = examples.replace("\\\n", " ").splitlines()
    assert all(shlex.split(line)[0] == "tinycomp" for line in lines)
    groups = re.findall(r"^([a-z0-9 ]+):\n  (.*)$", result.out, re.MULTILINE)
    own = [text for name, text in groups if name not in ("positional arguments", "options", "examples")]
    assert all(text.startswith("for example: -") for text in own)


def test_the_list_of_commands_fits_into_eighty_columns(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(cell_len, call("--help").out.splitlines())) <= 80


def test_colours_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert Session().out.no_color
    assert Session().err.no_color
    monkeypatch.delenv("NO_COLOR")
    assert not Session().out.no_color


@pytest.mark.parametrize("width", ["80", "50"])
@pytest.mark.parametrize(
    "line", ["report digits-int8 -t npu_sim", "bench digits --seconds 0.02 --profile", "targets c", "opt --list"]
)
def test_output_fits_into_narrow_windows(call, monkeypatch: pytest.MonkeyPatch, line: str, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = call(*line.split()).out.splitlines()
    tables = [each for each in lines if each[:1] in tuple("┏┃┡│└")]
    assert max(map(cell_len, tables), default=0) <= int(width)


def test_words_in_tables_are_whole(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "eliminate-common-subexpressions" in call("opt", "--list").out
    assert "GlobalAveragePool" in call("report", "digits").out


def test_messages_in_a_pipe_are_whole_lines(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    page = tmp_path / "a-report-with-a-long-name.html"
    assert f"Wrote {page}.\n" in call("report", "digits", "--html", page).out


def test_a_known_number_of_parts_shows_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.02)
    session, stream = Session(), io.StringIO()
    session.err = Console(file=stream, force_terminal=True, width=80)
    with session.progress("measuring", 4) as advance:
        for _ in range(4):
            time.sleep(0.08)
            advance()
    assert "left" in stream.getvalue()
    assert "measuring" in stream.getvalue()
