"""The examples of the documentation are run as they stand."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import tinycomp.passes.merge_composite
import tinycomp.rewrite
from tests.docs.pages import Page

GUIDE = Page("patterns.md")
MODULES = [f"tinycomp.rewrite.{m.name}" for m in pkgutil.iter_modules(tinycomp.rewrite.__path__)]


def test_the_guide() -> None:
    blocks = GUIDE.code("python")
    assert len(blocks) > 10
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "patterns.md", str(GUIDE.path), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert not result.failed, "".join(report)


def test_the_guide_shows_every_construct() -> None:
    public = [name for name in vars(type(tinycomp.rewrite.P)) if not name.startswith("_")]
    assert [name for name in public if f"P.{name}" not in GUIDE.text] == []


@pytest.mark.parametrize("name", [*MODULES, "tinycomp.passes.merge_composite"])
def test_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
