"""Names in a model may hold anything: no terminal obeys them, wherever they are shown."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinycomp
from tinycomp.cli import commands
from tinycomp.cli.commands import doctor
from tinycomp.cli.entry import main
from tinycomp.cli.exits import INTERNAL
from tinycomp.errors import TinycompError, TinycompWarning, visible

NASTY = "\x1b[31mred\x1b[0m\r\x07\x9b31m\u202e\u2028\u200b"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")


def model(second: str = "Neg", domain: str = "") -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x" + NASTY], ["t" + NASTY], name="n" + NASTY),
        helper.make_node(second, ["t" + NASTY], ["y" + NASTY], name="m" + NASTY, domain=domain),
    ]
    graph = helper.make_graph(
        nodes, "g" + NASTY, [helper.make_tensor_value_info("x" + NASTY, TensorProto.FLOAT, ["d" + NASTY, 3])],
        [helper.make_tensor_value_info("y" + NASTY, TensorProto.FLOAT, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def is_safe(text: str) -> bool:
    return UNSAFE.search(text) is None


def test_texts_of_modules_and_reports(tmp_path: Path):
    for second in ("Neg", "Unique"):
        module = tinycomp.compile(model(second))
        report = module.report()
        for text in (str(module), repr(module), str(report), str(module.inputs[0]), report.to_json()):
            assert is_safe(text), text
            assert "\\x1b[31mred" in text or "\\u001b[31mred" in text
        report.save_html(tmp_path / "report.html")
        assert is_safe((tmp_path / "report.html").read_text())
        assert is_safe(str(module.profile(np.ones((2, 3), np.float32))))


FAULTS: list[Callable[[], object]] = [
    lambda: tinycomp.compile(model())(np.ones((2, 4), np.float32)),
    lambda: tinycomp.compile(model())(np.ones((2, 3), np.int8)),
    lambda: tinycomp.compile(model()).run({"z": 1}),
    lambda: tinycomp.compile(model("Foo" + NASTY)),
    lambda: tinycomp.compile(model("Foo", NASTY)),
    lambda: tinycomp.compile(model(), NASTY),
    lambda: tinycomp.compile(model(), shapes={NASTY: (1,)}),
    lambda: tinycomp.compile(model(), place={NASTY: "c"}),
    lambda: tinycomp.compile(f"/{NASTY}.onnx"),
    lambda: tinycomp.load(f"/{NASTY}.tcm"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_errors(fault: Callable[[], object]):
    with pytest.raises(TinycompError) as error:
        fault()
    assert is_safe(str(error.value)), str(error.value)
    assert "\\x1b[31m" in str(error.value)
    assert is_safe(error.value.message + error.value.where + error.value.found + error.value.expected)


def test_warnings():
    with pytest.warns(TinycompWarning) as caught:
        warnings.warn(f"a name {NASTY}", TinycompWarning, stacklevel=1)
    assert is_safe(str(caught[0].message))


COMMANDS: list[list[str]] = [
    *(["report", "MODEL", *more] for more in ([], ["--json"], ["--traceback"])),
    *(["compile", "MODEL", *more] for more in (
        ["--emit", "tir"], ["--emit", "program"], ["--emit", "program", "--json"], ["--emit", "c-sources"],
        ["--dump", "dump"], ["-o", "module.tcm"], ["--target", NASTY], ["--shape", f"{NASTY}=1"],
    )),
    *(["opt", "MODEL", *more] for more in ([], ["--print-after", "all"], ["--passes", NASTY], ["--timing"])),
    ["run", "MODEL"], ["run", f"{NASTY}.onnx"], ["run", "digits", "--input", NASTY], ["verify", "MODEL"],
    ["bench", "MODEL", "--seconds", "0.1"], ["export-c", "MODEL", "-o", "c"], ["quantize", "MODEL", "-o", "q.onnx"],
    ["tune", "MODEL", "--seconds", "0.1"], ["generate", "MODEL"], ["generate", NASTY],
    ["score", "MODEL", NASTY, "-o", "out"],
    ["score", "MODEL", "x", "-o", "out", "--columns", f"{NASTY}=x"], ["serve", f"{NASTY}=MODEL"],
    ["serve", f"{NASTY}=digits"],
    ["serve", "digits", "--host", NASTY], ["cache", NASTY], ["doctor", NASTY], ["targets", NASTY], ["demo", NASTY],
    [NASTY], ["report", "MODEL", f"--{NASTY}"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_command_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "model.onnx")
    code = main([argument.replace("MODEL", "model.onnx") for argument in arguments])
    out, err = capfd.readouterr()
    assert code != INTERNAL, err
    assert out + err
    assert is_safe(out), out
    assert is_safe(err), err
    if "--json" in arguments:
        assert json.loads(out)


def test_every_command_is_tried():
    assert {arguments[0] for arguments in COMMANDS} - {NASTY} == set(commands.SUMMARIES)


def test_warnings_and_logs_of_others(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def warn(options: object, session: object) -> int:
        warnings.warn(f"a name {NASTY}", UserWarning, stacklevel=1)
        logging.getLogger("another").error("a name %s", NASTY)
        return 0

    monkeypatch.setattr(doctor, "COMMAND", replace(doctor.COMMAND, run=warn))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        root = logging.getLogger()
        monkeypatch.setattr(root, "handlers", [])
        assert main(["doctor"]) == 0
    err = capfd.readouterr().err
    assert err.count("a name \\x1b[31mred") == 2
    assert is_safe(err)


def test_nothing_else_writes_to_a_terminal():
    """``Session`` and the console are the only ones; the command line flushes, and keeps others quiet."""
    package = Path(tinycomp.__file__).parent
    writing = re.compile(r"sys\.(stdout|stderr)\b(?!\.(flush|fileno|isatty))|(?<![.\w])(print|Console)\(")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if writing.search(line.partition("#")[0]) and ">>>" not in line and "..." not in line
    }
    assert found == {"cli/session.py", "cli/entry.py"}


def test_what_can_be_seen_stays():
    text = "über 日本語 a\\b"
    assert visible(text) is text
    assert visible("a\nb\tc", lines=True) == "a\nb\tc"
    assert visible("a\nb") == r"a\nb"
    assert visible("\ud800") == r"\ud800"
