"""The frame: help, usage errors, exit codes, ``--json`` and ``--traceback``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tinycomp
from tinycomp.cli import exits
from tinycomp.cli.commands import SUMMARIES
from tinycomp.cli.entry import main
from tinycomp.errors import ExecutionError, FallbackError, FeedError, ModelError, TargetError, VerifyError


def test_help_names_every_command_and_exit_code(call) -> None:
    result = call("--help")
    assert result.code == exits.OK
    assert all(f"\n    {name} " in result.out for name in SUMMARIES)
    assert "exit codes:" in result.out


def test_no_command_shows_the_help_and_is_a_usage_error(call) -> None:
    result = call()
    assert result.code == exits.USAGE
    assert "usage: tinycomp" in result.out


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_command_has_help_with_an_example_and_json(call, name: str) -> None:
    result = call(name, "--help")
    assert result.code == exits.OK
    assert f"examples:\n  tinycomp {name}" in result.out
    assert "--json" in result.out
    assert "--traceback" in result.out


def test_version(call) -> None:
    result = call("--version")
    assert result.code == exits.OK
    assert result.out.startswith("tinycomp ")


def test_a_misspelt_command(call) -> None:
    result = call("comple")
    assert result.code == exits.USAGE
    assert "invalid choice: 'comple'" in result.error
    assert 'hint: Did you mean "compile"?' in result.error


def test_an_unknown_option(call) -> None:
    result = call("run", "digits", "--wrong")
    assert result.code == exits.USAGE
    assert "error: unrecognized arguments: --wrong" in result.error


def test_an_error_is_one_block_without_traceback(call) -> None:
    result = call("run", "nope.onnx")
    assert result.code == exits.USAGE
    assert result.out == ""
    assert result.err == (
        "error: there is no such file\n"
        "  where: nope.onnx\n"
        "  expected: a model file\n"
        "  hint: Check the path. The models that come with tinycomp are: digits, digits-int8.\n"
    )


def test_a_traceback_on_request(call) -> None:
    result = call("run", "nope.onnx", "--traceback")
    assert result.code == exits.USAGE
    assert "Traceback (most recent call last):" in result.err
    assert "error: there is no such file" in result.err


def test_an_error_as_json(call) -> None:
    result = call("run", "nope.onnx", "--json")
    assert result.code == exits.USAGE
    assert result.json["exit_code"] == exits.USAGE
    assert result.json["error"]["type"] == "UsageError"
    assert result.json["error"]["where"] == "nope.onnx"
    assert result.json["error"]["hint"].startswith("Check the path.")


def test_an_internal_error_says_so(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinycomp.cli.entry.build_parser", lambda arguments: 1 // 0)
    result = call("doctor")
    assert result.code == exits.INTERNAL
    assert "error: ZeroDivisionError" in result.error
    assert "hint: This is a fault in tinycomp." in result.error


def test_a_broken_installation_points_to_the_doctor(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("no native module")

    monkeypatch.setattr("tinycomp.cli.commands.load", broken)
    result = call("run", "digits")
    assert result.code == exits.INTERNAL
    assert "see: tinycomp doctor" in result.error


def test_an_interrupt_has_the_shells_exit_code(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tinycomp.cli.entry.build_parser", interrupted)
    result = call("doctor")
    assert result.code == exits.INTERRUPTED
    assert result.err == "error: interrupted\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (VerifyError("x"), 1),
        (FallbackError("x"), 1),
        (ModelError("x"), 2),
        (FeedError("x"), 2),
        (TargetError("x"), 2),
        (ExecutionError("x"), 2),
        (OSError("x"), 2),
        (MemoryError(), 2),
        (KeyError("x"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exits.exit_code(error) == code


def test_as_a_process() -> None:
    """Once for real: the exit code and the two streams of a process."""
    command = [sys.executable, "-m", "tinycomp", "run", "digits", "--random", "0", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(tinycomp.__file__).parents[1], check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["outputs"]["probabilities"]["shape"] == [1, 10]


@pytest.mark.long
@pytest.mark.parametrize("rest", ["opt digits | true", "opt --list | true", "report digits --json | true"])
def test_a_reader_that_leaves_is_no_error(rest: str) -> None:
    """``tinycomp … | head -1`` ends quietly, text, tables and JSON alike."""
    command = f"{sys.executable} -m tinycomp {rest}"
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False,
        cwd=Path(tinycomp.__file__).parents[1],
    )  # fmt: skip
    assert run.returncode == 0
    assert "Error" not in run.stderr, "at most the line that says what takes long"
    assert "Traceback" not in run.stderr


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("rest", ["opt digits", "opt --list", "opt --list --json", "run nope.onnx --json", "--help"])
def test_a_disk_that_is_full_behind_stdout(rest: str) -> None:
    """One message and the exit code of a wrong command line, not those of an interpreter that fails at its exit."""
    run = subprocess.run(
        f"{sys.executable} -m tinycomp {rest} > /dev/full", shell=True, stderr=subprocess.PIPE, text=True, check=False,
        cwd=Path(tinycomp.__file__).parents[1],
    )  # fmt: skip
    assert run.returncode == exits.USAGE
    assert run.stderr.startswith("error: there is no such file" if "nope" in rest else "error: No space left on device")
    assert "Exception" not in run.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_behind_both_streams() -> None:
    run = subprocess.run(
        f"{sys.executable} -m tinycomp run nope.onnx --json > /dev/full 2>&1", shell=True, check=False,
        cwd=Path(tinycomp.__file__).parents[1],
    )  # fmt: skip
    assert run.returncode == exits.USAGE


def test_main_takes_the_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["tinycomp", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("tinycomp ")
