"""Pages of the documentation run: their Python in order, and text below a block is what it prints."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path

import onnx
import pytest

from tests.docs.pages import ROOT, Page
from tests.targets.tosa_tools import needs_vela
from tinycomp.cli import main
from tinycomp.memory.constants import VARIABLE
from tinycomp.runtime.csource import compiler, source

PAGES = {
    "advice.md": 2,
    "bring-your-own-backend.md": 8,
    "code-generation.md": 5,
    "devices.md": 4,
    "dynamic-shapes.md": 3,
    "partitioning.md": 2,
    "target-api.md": 7,
}
"""Pages that show what their code prints, and how often."""
BACKEND, GENERATION = Page("bring-your-own-backend.md"), Page("code-generation.md")
QUOTED = re.compile(r"# (tinycomp/[\w/]+\.py)\n")
QUOTES = [(quote[1], code[quote.end() :]) for code in BACKEND.code("python") if (quote := QUOTED.match(code))]


@pytest.mark.parametrize("name", PAGES)
def test_the_code_prints_what_the_page_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    page = Page(name)
    assert len(page.blocks("text")) >= PAGES[name]
    page.run(monkeypatch, skip=QUOTED.match)


@pytest.mark.parametrize(("file", "lines"), QUOTES)
def test_quoted_lines_stand_in_their_file(file: str, lines: str) -> None:
    assert lines in (ROOT / file).read_text(encoding="utf-8")


def test_the_page_about_backends_quotes_a_target() -> None:
    assert len(QUOTES) >= 7


def test_the_page_about_code_shows_the_signature_that_is_compiled() -> None:
    (shown,) = GENERATION.code("c")
    documented = re.search(r"int f\((.*)\);", shown)
    assert documented is not None
    assert documented[1] == compiler._SIGNATURE
    assert shown.strip() in (source.__doc__ or "")


@pytest.mark.parametrize(
    "word",
    [VARIABLE, *compiler.COMPILERS, *compiler.BASE_FLAGS[:3], *(n for n in dir(source) if n.startswith("c_"))],
)
def test_the_page_about_code_speaks_of(word: str) -> None:
    assert word in GENERATION.text


def test_the_page_about_quantisation(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("quantization.md")
    names = page.run(monkeypatch, compare=False)
    assert page.printed[0].startswith("0.99")
    onnx.checker.check_model(names["mixed"], full_check=True)
    kept = {node.name.partition("…")[0] for node in names["mixed"].graph.node if node.op_type in ("Conv", "Gemm")}
    assert set(names["table"].suggest(2)) <= kept


@needs_vela
def test_the_page_about_ethos_u(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page("targets/ethos-u.md")
    names = page.run(monkeypatch)
    assert "The compiler of ethos_u estimates for ethos_u_0: cycles" in page.printed[0]
    assert (tmp_path / "digits.bin").read_bytes().startswith(b"COP1")
    documented = re.findall(r"`(\w+)`", page.text.partition("| array |")[2].partition("\n\n")[0])
    assert set(documented) >= set(names["blob"].arrays)


def test_the_page_about_scoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="scoring needs pyarrow")
    monkeypatch.chdir(tmp_path)
    page = Page("score.md")
    page.run(monkeypatch, compare=False)
    assert page.printed[0] == page.code("text")[0]


def test_the_page_about_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("starlette", reason='serving needs the extra "serve"')
    Page("serve.md").run(monkeypatch)


def test_the_page_about_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    Page("half-precision.md").run(monkeypatch)


def test_the_page_about_language_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its two commands run on a model that has learnt less than there, then its Python."""
    page, steps = Page("language-models.md"), 10
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "LICENSE", tmp_path)
    example, generate = (line.removeprefix(".venv/bin/") for line in page.code("sh")[0].splitlines())
    assert example.startswith("python examples/")
    spec = importlib.util.spec_from_file_location("language_model", ROOT / example.removeprefix("python "))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "STEPS", steps)
    monkeypatch.setattr(sys, "argv", [example])
    module.main()
    assert capsys.readouterr().out.count("perplexity") == 4
    assert main(shlex.split(generate)[1:]) == 0
    assert len(capsys.readouterr().out) > 20
    names = page.run(monkeypatch)
    assert [len(text) for text in page.printed] == [20, 0, 0]
    assert names["after"] == pytest.approx(names["before"], rel=0.2)
