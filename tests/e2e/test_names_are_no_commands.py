"""Names in a model may hold anything: no terminal obeys them, wherever they are shown."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinycomp
from tinycomp.cli.entry import main
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


@pytest.mark.parametrize("arguments", [["report"], ["report", "--json"], ["run"], ["verify"], ["bench"]])
def test_the_command_line(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    main([arguments[0], str(path), *arguments[1:]])
    out, err = capsys.readouterr()
    assert out + err
    assert is_safe(out), out
    assert is_safe(err), err
    if "--json" in arguments:
        assert json.loads(out)


def test_what_can_be_seen_stays():
    text = "über 日本語 a\\b"
    assert visible(text) is text
    assert visible("a\nb\tc", lines=True) == "a\nb\tc"
    assert visible("a\nb") == r"a\nb"
    assert visible("\ud800") == r"\ud800"
