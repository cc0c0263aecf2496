"""Names that are imported when they are first asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tinycomp.lazy import LazyModule, from_modules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a module of its own."""
    folder = tmp_path / "slow_to_import"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from tinycomp.lazy import from_modules\n__getattr__ = from_modules(__name__, {'answer': '.inner'})\n"
    )
    (folder / "inner.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("slow_to_import", "slow_to_import.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder.name


def test_a_module_is_imported_when_it_is_asked(package: str) -> None:
    module = LazyModule(f"{package}.inner")
    assert package not in sys.modules
    assert module.answer == 42
    assert f"{package}.inner" in sys.modules
    with pytest.raises(AttributeError, match="no attribute 'question'"):
        _ = module.question


def test_names_of_a_package_come_from_its_modules(package: str) -> None:
    found = __import__(package)
    assert f"{package}.inner" not in sys.modules
    assert found.answer == 42
    assert vars(found)["answer"] == 42
    with pytest.raises(AttributeError, match="module 'slow_to_import' has no attribute 'question'"):
        _ = found.question


def test_an_unknown_name_is_not_imported() -> None:
    with pytest.raises(AttributeError, match="module 'a' has no attribute '__path__'"):
        from_modules("a", {"b": ".c"})("__path__")
