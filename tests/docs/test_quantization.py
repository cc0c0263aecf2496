"""The examples of the page about quantisation run, one after another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quantization.md"


def test_the_examples_of_the_page(capsys) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert capsys.readouterr().out.startswith("0.99")
    onnx.checker.check_model(names["mixed"], full_check=True)
    kept = {node.name.partition("…")[0] for node in names["mixed"].graph.node if node.op_type in ("Conv", "Gemm")}
    assert set(names["table"].suggest(2)) <= kept
