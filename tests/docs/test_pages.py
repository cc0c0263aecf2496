"""Pages of the documentation run: their Python in order, and text below a block is what it prints."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import onnx
import pytest

import tinycomp
import tinycomp.target_api
from tests.docs.pages import ROOT, Page
from tests.targets.tosa_tools import needs_vela
from tinycomp.memory.constants import VARIABLE
from tinycomp.runtime.csource import compiler, source

EXAMPLE = "python examples/language_model.py"
PAGES = {
    "advice.md": 2,
    "bring-your-own-backend.md": 5,
    "code-generation.md": 6,
    "devices.md": 4,
    "dynamic-shapes.md": 3,
    "npu-sim.md": 2,
    "placement.md": 2,
    "target-api.md": 7,
}
"""Pages that show what their code prints, and how often."""
QUOTING, GENERATION = Page("npu-sim.md"), Page("code-generation.md")
QUOTED = re.compile(r"# (tinycomp/[\w/]+\.py)\n")
QUOTES = [(quote[1], code[quote.end() :]) for code in QUOTING.code("python") if (quote := QUOTED.match(code))]


@pytest.mark.parametrize("name", PAGES)
def test_the_code_prints_what_the_page_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    page = Page(name)
    assert len(page.blocks("text")) >= PAGES[name]
    page.run(monkeypatch, skip=QUOTED.match)


@pytest.mark.parametrize(("file", "lines"), QUOTES)
def test_quoted_lines_stand_in_their_file(file: str, lines: str) -> None:
    assert lines in (ROOT / file).read_text(encoding="utf-8")


def test_the_page_about_npu_sim_quotes_it() -> None:
    assert len(QUOTES) >= 7


def test_the_page_about_code_shows_the_signature_that_is_compiled() -> None:
    (shown,) = GENERATION.code("c")
    documented = re.search(r"int f\((.*)\);", shown)
    assert documented is not None
    assert documented[1] == compiler._SIGNATURE
    assert shown.strip() in (source.__doc__ or "")


@pytest.mark.parametrize(
    "word", [VARIABLE, *compiler.COMPILERS, *compiler.BASE_FLAGS[:3], *(n for n in dir(source) if n.startswith("c_"))]
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's language model, which has learnt less than the pages say."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(ROOT / "LICENSE", folder)
    spec = importlib.util.spec_from_file_location("language_model", ROOT / EXAMPLE.removeprefix("python "))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as output:
        patch.chdir(folder)
        patch.setattr(module, "STEPS", 10)
        patch.setattr(sys, "argv", [EXAMPLE])
        module.main()
    assert output.getvalue().count("perplexity") == 4
    return folder


@pytest.mark.long
def test_the_page_about_language_models(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    names = Page("language-models.md").run(monkeypatch)
    assert names["after"] == pytest.approx(names["before"], rel=0.2)


@pytest.mark.long
def test_the_tutorial_about_a_language_model(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("tutorials/language-model.md")
    names = page.follow(monkeypatch, trained, done=[EXAMPLE])
    assert [len(text) for text in page.printed] == [20, 5, 0]
    assert names["after"] == pytest.approx(names["before"], rel=0.2)


@pytest.mark.parametrize("name", ["deploy", "quantise"])
def test_a_tutorial(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Page(f"tutorials/{name}.md").follow(monkeypatch, tmp_path)


def test_the_tutorial_about_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="the tutorial borrows its kernels")
    Page("tutorials/backend.md").follow(monkeypatch, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(None in (shutil.which("cc"), shutil.which("make")), reason="cc or make is not installed")
def test_the_tutorial_about_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFLAGS", "-O0")
    Page("tutorials/export-c.md").follow(monkeypatch, tmp_path)


def test_the_start_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Page("index.md").follow(monkeypatch, tmp_path)


def test_the_navigation_names_every_page() -> None:
    index = Page("index.md")
    listed = re.findall(
        r"^(?:.*<)?([\w./-]+)>?$", "".join(re.findall(r"^```\{toctree\}\n(.*?)^```$", index.text, re.M | re.S)), re.M
    )
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index"} == {name for name in listed if not name.startswith("../")}
    assert all((ROOT / "docs" / f"{name}.md").exists() for name in listed)


@pytest.mark.parametrize(
    ("page", "module"), [("reference/tinycomp.md", tinycomp), ("reference/target-api.md", tinycomp.target_api)]
)
def test_the_reference_has_every_public_name(page: str, module: ModuleType) -> None:
    text = Page(page).text
    listed = set(re.findall(rf"^\.\. \w+:: {re.escape(module.__name__)}\.(\w+)$", text, re.MULTILINE))
    elsewhere = set(re.findall(r"`(\w+)`", text))
    assert set(module.__all__) - elsewhere <= listed
    assert all(hasattr(module, name) for name in listed - {"from_torch"})


def test_the_page_about_architecture_names_what_there_is() -> None:
    rows = re.findall(r"^\| \d+ \|.*\| (.*) \|$", Page("architecture.md").text, re.MULTILINE)
    assert len(rows) == 12
    for row in rows:
        files = [(ROOT / "docs" / link).read_text(encoding="utf-8") for link in re.findall(r"\]\(([^)]+)\)", row)]
        for name in re.findall(r"`([\w.]+)`", row):
            assert any(re.search(rf"\b{name.rpartition('.')[2]}\b", text) for text in files), f"{name} in {row}"
