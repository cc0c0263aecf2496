"""``tinycomp tune``, and the options that use what it has measured."""

from __future__ import annotations

import json

import pytest

from tinycomp.cli import exits

SHAPE = ("--shape", "image=1,1,8,8", "--threads", "1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tinycomp.driver.tune.ROUNDS", 1)
    monkeypatch.setattr("tinycomp.driver.tune.PATIENCE", 0.0)


def found(call, *options: object) -> set[str]:
    """The algorithms of a compiled model."""
    data = call("report", "digits", *SHAPE, *options, "--json").json
    return {layer["algorithm"] for layer in data["layers"]}


def test_what_is_measured_is_kept(call, tmp_path) -> None:
    result = call("tune", "digits", *SHAPE)
    assert result.code == exits.OK
    assert "Use it with: tinycomp compile digits -t c:tuning=tuning.jsonl" in result.out
    lines = (tmp_path / "tuning.jsonl").read_text().splitlines()
    assert result.out.startswith(f"Measured {len(lines)} of {len(lines)} problems in ")
    assert f"Measured 0 of {len(lines)} problems" in call("tune", "digits", *SHAPE).out


def test_as_json(call) -> None:
    data = call("tune", "digits", *SHAPE, "--log", "x.jsonl", "--json").json
    assert (data["log"], data["measured"]) == ("x.jsonl", data["problems"])
    assert data["seconds"] > 0


def test_open_sizes_are_refused(call) -> None:
    result = call("tune", "digits")
    assert result.code == exits.USAGE
    assert "only known sizes can be measured" in result.error


def test_winograd_can_be_asked_for_and_forbidden(call) -> None:
    assert not any("Winograd" in name for name in found(call, "-t", "c:winograd=never"))
    assert any("Winograd" in name for name in found(call, "-t", "c:winograd=always"))
    wrong = call("report", "digits", "-t", "c:winograd=perhaps").error
    assert "where: target c, option winograd expected: never|auto|always found: perhaps" in wrong


def test_a_log_decides_also_for_kernel_calls(call, tmp_path) -> None:
    path = tmp_path / "tuning.jsonl"
    call("tune", "digits", *SHAPE)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    for entry in entries:
        entry["seconds"] = {name: 1.0 if name == "direct" else 2.0 for name in entry["seconds"]}
    path.write_text("\n".join(map(json.dumps, entries)))
    assert found(call, "-t", f"c:tuning={path}") == {"direct"}
    text = call("compile", "digits", *SHAPE, "-t", f"c:tuning={path}", "--emit", "program").out
    assert " algorithm=1 " in text
    assert "winograd" not in text


def test_a_missing_log_is_named(call) -> None:
    result = call("compile", "digits", "-t", "c:tuning=none.jsonl")
    assert result.code == exits.USAGE
    assert "there is no such file where: none.jsonl expected: a log as tinycomp tune MODEL --log FILE" in result.error


def test_why_says_how(call) -> None:
    result = call("report", "digits", *SHAPE, "-t", "c:winograd=never", "--why", "stem/conv")
    assert "computed by conv2d_f32, lines" in result.out
