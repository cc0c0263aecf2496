"""Golden tests: every ``.tir`` file under ``tests`` is a test of one pipeline.

A file reads::

    // RUN: fold-constants,merge-composite{target=npu}
    graph @main … { … }
    // ----
    graph @main … { … }

The graph above the bar is parsed, verified, sent through the passes (verified after each), printed, and compared with
the text below the bar. No passes after ``RUN:`` means that the text is only parsed and printed.
``pytest --update-golden`` writes the text below the bar anew.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.ir.verify import verify
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.base import Pass

_RUN = re.compile(r"// RUN:(?P<passes>.*)\n")
_BAR = re.compile(r"^// ----[ \t]*(?:\n|\Z)", re.MULTILINE)


class Case(NamedTuple):
    """The parts of a golden file: everything above the bar (with the RUN line), the passes, the expected text."""

    source: str
    passes: str
    expected: str


class GoldenError(Exception):
    """The golden file is malformed, or the pipeline printed something else; the text is all there is to say."""


def read_case(text: str) -> Case:
    run = _RUN.match(text)
    if run is None:
        raise GoldenError('a golden file begins with a line such as "// RUN: fold-constants"')
    parts = _BAR.split(text)
    if len(parts) > 2:
        raise GoldenError(f"a golden file has one line // ----, not {len(parts) - 1}")
    return Case(parts[0], run["passes"].strip(), parts[1].strip() if len(parts) == 2 else "")


def load_passes(text: str) -> Iterable[Pass]:
    """Look the passes of a RUN line up; imported late so that the collector itself needs no pipeline."""
    from tinycomp.driver.pipeline import parse_passes

    return parse_passes(text)


def run_case(case: Case) -> str:
    """Return what the pipeline makes of the case."""
    graph = parse_graph(case.source, infer=infer_node_types)
    verify(graph)
    for step in load_passes(case.passes) if case.passes else ():
        step.run(graph)
        verify(graph)
    return printed(graph)


def printed(graph: Graph) -> str:
    """Return the text of ``graph`` after making sure that it parses back to the same text."""
    store: dict = {}
    text = print_graph(graph, constants=store)
    again = print_graph(parse_graph(text, constants=store, infer=graph.infer))
    if again != text:
        raise GoldenError(f"the result does not survive a round trip:\n{_diff(text, again, 'printed', 'reprinted')}")
    return text


def _diff(a: str, b: str, from_name: str, to_name: str) -> str:
    return "\n".join(difflib.unified_diff(a.splitlines(), b.splitlines(), from_name, to_name, lineterm=""))


class GoldenFile(pytest.File):
    """A collected ``.tir`` file."""

    def collect(self) -> Iterator[pytest.Item]:
        yield GoldenItem.from_parent(self, name=self.path.stem)


class GoldenItem(pytest.Item):
    """The one test of a golden file."""

    def runtest(self) -> None:
        case = read_case(self.path.read_text(encoding="utf-8"))
        found = run_case(case)
        if found == case.expected:
            return
        if self.config.getoption("--update-golden"):
            self.path.write_text(f"{case.source.rstrip()}\n// ----\n{found}\n", encoding="utf-8")
            return
        diff = _diff(case.expected, found, "expected", "found")
        raise GoldenError(f"{case.passes} printed another graph:\n{diff}\nIf it is right, run pytest --update-golden.")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        if isinstance(excinfo.value, GoldenError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"golden: {self.name}"


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the expected part of .tir files anew")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> GoldenFile | None:
    return GoldenFile.from_parent(parent, path=file_path) if file_path.suffix == ".tir" else None
