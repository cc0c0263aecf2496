"""What is true of the repository as a whole: words, links, the README, the version."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

import pytest

import tinycomp

pytestmark = pytest.mark.rows(None)

tomllib = pytest.importorskip("tomllib", reason="Python has it from 3.11 on")
ROOT = Path(__file__).resolve().parents[1]
INSTALLED = pytest.mark.skipif(
    not list(metadata.distributions(name="tinycomp")), reason="tinycomp is used in place and has no version"
)
# The patterns are written so that they do not match themselves.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.])/(?:work|root|home/\w+|tmp/(?!tinycomp)\w+)/\w",
    "how the work was done": r"(?i)\b(?:this|that|another|my|our) (?:ses{2}ion|hel{1}per|workplace|brief)\b",
    "an issue number": r"(?i)\bissue #?\d+",
    "a note to oneself": r"\b(?:TOD{1}O|FIXM{1}E|XX{1}X|HAC{1}K)\b",
    "a word that the field does not have": r"(?i)\bcounted[ -]r{1}ows?\b|\bfoot{1}print|\bresid{1}ence\b",
}
TEXT = {".py", ".c", ".h", ".def", ".md", ".toml", ".yml", ".yaml", ".tir", ".in", ".cfg", ""}


def tracked() -> list[str]:
    """The files under version control that are there; all text files of a source distribution, which has no history."""
    run = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = run.stdout.split("\n") if run.returncode == 0 else [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*")]
    hidden = re.compile(r"(?:^|/)(?:\.venv|\.git|build|dist|__pycache__|[\w.]*\.egg-info|\.\w+_cache|\.hypothesis)/")
    return sorted(name for name in found if name and (ROOT / name).is_file() and not hidden.search(name))


def text_files() -> list[str]:
    return [name for name in tracked() if Path(name).suffix in TEXT and name != "LICENSE"]


def python_files(folder: str) -> list[str]:
    return [name for name in tracked() if name.startswith(f"{folder}/") and name.endswith(".py")]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def found_in(text: str, pattern: str) -> list[str]:
    return [
        f"line {number}: {line.strip()}" for number, line in enumerate(text.split("\n"), 1) if re.search(pattern, line)
    ]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    hits = {name: found for name in text_files() if (found := found_in(read(name), FORBIDDEN[what]))}
    assert not hits


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a path of one machine", "see /wo" + "rk/models"),
        ("a path of one machine", "PYTHON=/tm" + "p/v/bin/python"),
        ("how the work was done", "done in this ses" + "sion"),
        ("an issue number", "as asked in iss" + "ue 12"),
        ("a note to oneself", "# TO" + "DO: later"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, text: str) -> None:
    assert found_in(text, FORBIDDEN[what])


def test_the_patterns_leave_ordinary_text_alone() -> None:
    ordinary = (
        'session = InferenceSession(model)\nhttps://example.org/work/item\n"/tmp/" prefix; a/tmp/file; shared/models\n'
    )
    assert not any(found_in(ordinary, pattern) for pattern in FORBIDDEN.values())


@pytest.mark.parametrize("name", python_files("tinycomp") + python_files("benchmarks") + python_files("examples"))
def test_modules_say_what_they_are(name: str) -> None:
    tree = ast.parse(read(name))
    assert (ast.get_docstring(tree) or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("name", [n for n in python_files("tinycomp") if not n.startswith("tinycomp/cli/")])
def test_only_the_command_line_prints(name: str) -> None:
    calls = (node for node in ast.walk(ast.parse(read(name))) if isinstance(node, ast.Call))
    assert not [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def links(text: str) -> list[str]:
    """The relative links of a Markdown text, without anchors; code is not looked at."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    targets = re.findall(r"\]\(<?([^)\s>]+)>?\)", prose)
    return [unquote(t.partition("#")[0]) for t in targets if not re.match(r"\w+:|#", t)]


def test_links_are_read() -> None:
    assert links("[a](b.md#c) [d](#e) [f](https://g) `[h](i)` ![j](<k.png>)\n```\n[l](m)\n```") == ["b.md", "k.png"]


@pytest.mark.parametrize("name", [n for n in tracked() if n.endswith(".md")])
def test_links_lead_somewhere(name: str) -> None:
    broken = [link for link in links(read(name)) if not ((ROOT / name).parent / link).exists()]
    assert not broken


@pytest.mark.parametrize(("index", "suffix"), [("docs/index.md", ".md"), ("examples/README.md", (".md", ".py"))])
def test_an_index_names_every_file(index: str, suffix: str | tuple[str, ...]) -> None:
    folder, _, name = index.partition("/")
    files = [Path(n).relative_to(folder).as_posix() for n in tracked() if n.startswith(f"{folder}/")]
    pages = [page for page in files if page.endswith(suffix) and page != name]
    assert not [page for page in pages if f"({page})" not in read(index)]


def test_the_readme_begins_with_set_up_and_tests() -> None:
    run = subprocess.run([ROOT / ".ci" / "readme-commands"], capture_output=True, text=True, check=True)
    set_up, tests = run.stdout.splitlines()
    assert set_up.startswith("python3 -m venv .venv && ")
    assert set_up.endswith("tinycomp demo")
    assert "pytest" in tests


def examples_of(name: str) -> list[str]:
    """The Python blocks of a Markdown file."""
    return re.findall(r"^```python\n(.*?)^```$", read(name), flags=re.DOTALL | re.MULTILINE)


@INSTALLED
@pytest.mark.parametrize(
    ("number", "printed"),
    [(0, "0.99"), (1, "0.99"), (2, "output channels must be a multiple of 32, got 16")],
    ids=["compile", "quantise", "target"],
)
def test_the_examples_of_the_readme_run(number: int, printed: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the last example borrows its kernels")
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{examples_of('README.md')[number]}"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert printed in run.stdout


@INSTALLED
def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert tinycomp.__version__ == project["version"]
    assert f"## {project['version']}" in read("CHANGELOG.md")
