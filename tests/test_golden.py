"""The collector of golden files, tested by running pytest inside pytest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import golden
from tinycomp.errors import ParseError
from tinycomp.ir import Graph
from tinycomp.passes.base import Pass

CONFTEST = "from tests.golden import add_option as pytest_addoption, pytest_collect_file"
BEFORE = 'graph @main opset {"" = 17} (%x: float32[2]) -> (%y) {\n  %y = Relu(%x)   // any spelling will do\n}\n'
AFTER = 'graph @main opset {"" = 17} (%x: float32[2]) -> (%y) {\n  %y: float32[2] = Neg@13(%x)\n}\n'


@dataclass(frozen=True)
class SwapOp(Pass):
    """Replace every node by one of another operator."""

    op: str = "Neg"

    def run(self, graph: Graph) -> bool:
        for node in graph.nodes:
            new = graph.add(self.op, node.inputs, at=node)
            graph.replace_uses(node.output, new.output)
            graph.erase(node)
            graph.rename(new.output, "y")
        return True


@dataclass(frozen=True)
class Damage(Pass):
    """Leave a graph behind that is not sound."""

    def run(self, graph: Graph) -> bool:
        for value in graph.values.values():
            value.users.clear()
        return True


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    known = {"swap-op": [SwapOp()], "swap-op,damage": [SwapOp(), Damage()]}
    monkeypatch.setattr(golden, "load_passes", known.__getitem__)
    pytester.makeconftest(CONFTEST)

    def run_file(text: str, *options: str) -> tuple[pytest.RunResult, Path]:
        path = pytester.path / "case.tir"
        path.write_text(text)
        return pytester.runpytest_inprocess(*options), path

    return run_file


def test_a_right_file_passes(run) -> None:
    result, _ = run(f"// RUN: swap-op\n{BEFORE}// ----\n{AFTER}")
    result.assert_outcomes(passed=1)


def test_a_wrong_file_fails_with_a_diff(run) -> None:
    result, path = run(f"// RUN: swap-op\n{BEFORE}// ----\n{AFTER.replace('Neg@13', 'Abs@13')}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "swap-op printed another graph:",
            "-  %y: float32?2? = Abs@13(%x)",
            "+  %y: float32?2? = Neg@13(%x)",
            "If it is right, run pytest --update-golden.",
        ]
    )
    assert "Abs@13" in path.read_text()


def test_update_golden_writes_the_expected_part_only(run) -> None:
    head = f"// RUN: swap-op\n// Why this case exists.\n{BEFORE}"
    result, path = run(head, "--update-golden")
    result.assert_outcomes(passed=1)
    assert path.read_text() == f"{head}// ----\n{AFTER}"
    result, _ = run(path.read_text())
    result.assert_outcomes(passed=1)


def test_each_pass_is_verified(run) -> None:
    result, _ = run(f"// RUN: swap-op,damage\n{BEFORE}// ----\n{AFTER}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*VerifyError: graph main: the users of the value "x" are out of date*'])


def test_a_file_without_passes_is_parsed_and_printed() -> None:
    assert golden.run_case(golden.read_case(f"// RUN:\n{AFTER}")) == AFTER.strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BEFORE, 'begins with a line such as "// RUN: fold-constants"'),
        (f"// RUN:\n{BEFORE}// ----\n{AFTER}// ----\n{AFTER}", "has one line // ----, not 2"),
    ],
)
def test_malformed_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(golden.GoldenError, match=message):
        golden.read_case(text)


def test_errors_point_into_the_golden_file_itself() -> None:
    with pytest.raises(ParseError, match=r"^line 3, column 13: there is no value"):
        golden.run_case(golden.read_case(f"// RUN:\n{BEFORE.replace('Relu(%x)', 'Relu(%z)')}"))
