"""The mutator: every mutant is another program, and the ones that are not meant to be made are not made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import mutation

SOURCE = '''"""A text."""
LIMIT = 3


def f(x: int = 4) -> bool:
    """Another."""
    assert x != 5
    if not x:
        raise ValueError(x)
    return x < 7 and x in {1}
'''


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "f.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    return {m.change: m.source for m in mutation.mutants("f.py")}


def test_what_is_changed(changes: dict[str, str]):
    assert set(changes) == {
        "4  ->  5", "if not x:  ->  if not not x:", "not x  ->  not not x", "without raise ValueError(x)",
        "x < 7 and x in {1}  ->  x < 7 or x in {1}", "x < 7  ->  x <= 7", "7  ->  8", "x in {1}  ->  x not in {1}",
        "1  ->  2",
    }  # fmt: skip


def test_every_mutant_is_another_program_that_compiles(changes: dict[str, str]):
    original = ast.unparse(ast.parse(SOURCE))
    for source in changes.values():
        compile(source, "f.py", "exec")
        assert source != original
        assert "LIMIT = 3" in source
        assert "assert x != 5" in source


def test_the_files_and_their_tests_are_there():
    for path, tests in mutation.TESTS.items():
        assert (mutation.ROOT / path).is_file()
        assert all((mutation.ROOT / test).exists() for test in tests)
