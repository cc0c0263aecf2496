"""Imports go one way, everywhere, also inside functions and under ``TYPE_CHECKING``."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinycomp

PACKAGE = Path(tinycomp.__file__).parent
RUNTIME = frozenset({"errors", "limits", "mapped", "runtime"})
OPS = frozenset({"errors", "limits", "ir", "ops"})
PASSES = OPS | {"rewrite", "target", "passes"}
EVERYTHING_BUT_CLI = PASSES | {"runtime", "frontend", "data", "targets", "pipeline", "compiler"} | {
    "lowering", "reporting", "dumping", "checking", "saving", "loading", "footprint", "specialisation", "collection",
    "tuning_log", "residence", "mapped",
}  # fmt: skip

SEES: dict[str, frozenset[str]] = {
    "errors": frozenset({"errors"}),
    "limits": frozenset({"errors", "limits"}),
    "mapped": frozenset({"errors", "mapped"}),
    "ir": frozenset({"errors", "ir"}),
    "ops": OPS,
    "rewrite": OPS | {"rewrite"},
    "target": OPS | {"rewrite", "target"},
    "passes": PASSES | {"frontend"},
    "frontend": OPS | {"frontend", "mapped"},
    "runtime": RUNTIME,
    "data": frozenset({"errors", "data"}),
    "targets": PASSES | {"runtime", "targets"},
    "pipeline": PASSES | {"pipeline"},
    "footprint": OPS | {"footprint"},
    "residence": PASSES | {"runtime", "mapped", "residence"},
    "lowering": PASSES | {"runtime", "footprint", "lowering", "residence"},
    "reporting": PASSES | {"runtime", "reporting"},
    "dumping": PASSES | {"runtime", "dumping"},
    "checking": PASSES | {"runtime", "frontend", "lowering", "checking"},
    "specialisation": PASSES | {"runtime", "lowering", "specialisation"},
    "collection": frozenset({"collection"}),
    "progress": frozenset({"progress"}),
    "tuning_log": RUNTIME | {"tuning_log"},
    "tuning": EVERYTHING_BUT_CLI | {"progress", "tuning"},
    "quantization": EVERYTHING_BUT_CLI | {"progress", "quantization"},
    "saving": EVERYTHING_BUT_CLI,
    "compiler": EVERYTHING_BUT_CLI,
    "loading": EVERYTHING_BUT_CLI,
    "backend": EVERYTHING_BUT_CLI | {"backend"},
    "cli": EVERYTHING_BUT_CLI | {"backend", "tuning", "quantization", "cli", "__init__"},
    "__init__": EVERYTHING_BUT_CLI | {"tuning", "quantization"},
    "__main__": frozenset({"cli"}),
}
"""What each part of the package may import. A new part must be given its place here."""

EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()
"""Allowed breaches as (file, imported module); the aim is that there are none."""

SELDOM = (
    "networkx", "onnx.reference", "jinja2", "safetensors", "rich", "tinycomp.checking", "tinycomp.dumping",
    "tinycomp.saving", "tinycomp.tuning_log", "tinycomp.runtime.profile",
)  # fmt: skip
"""What compiling with the default options must do without."""

HEAVY = ("onnx", "networkx", "tinycomp.ir", "tinycomp.ops")
"""What a saved module must load without."""


def part_of(module: str) -> str:
    """``tinycomp.ir.graph`` belongs to ``ir``, ``tinycomp`` itself to ``__init__``."""
    return (module.split(".") + ["__init__"])[1]


def imported_modules(path: Path) -> Iterator[str]:
    """Every absolute name that a file imports, wherever in the file the statement stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from_modules(path, node)


def _from_modules(path: Path, node: ast.ImportFrom) -> Iterator[str]:
    """``from tinycomp import ir`` and ``from . import ir`` import a part, not the package itself."""
    base = node.module or ""
    if node.level:
        folder = path.relative_to(PACKAGE.parent).parts[: -node.level]
        base = ".".join([*folder, *([base] if base else [])])
    for alias in node.names:
        inner = base == "tinycomp" and ((PACKAGE / alias.name).is_dir() or (PACKAGE / f"{alias.name}.py").is_file())
        yield f"{base}.{alias.name}" if inner else base


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def own_part(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def test_every_part_has_its_place() -> None:
    parts = {own_part(path) for path in source_files()}
    assert parts <= SEES.keys(), f"give {sorted(parts - SEES.keys())} a place in SEES"


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    allowed = SEES[own_part(path)]
    breaches = {
        module
        for module in imported_modules(path)
        if module.split(".")[0] == "tinycomp" and part_of(module) not in allowed and (name, module) not in EXCEPTIONS
    }
    assert not breaches, f"{name} may see {sorted(allowed)} only"


def test_the_reader_of_imports_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests are worth nothing if an import can hide."""
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path / "tinycomp")
    path = tmp_path / "tinycomp" / "ir" / "x.py"
    path.parent.mkdir(parents=True)
    (tmp_path / "tinycomp" / "cli.py").touch()
    path.write_text(
        "import tinycomp.a.b\nfrom tinycomp import cli, name\nfrom tinycomp.c import d\n"
        "def f():\n    from ..passes import g\n    from . import h\n    from .. import cli\n"
        "if TYPE_CHECKING:\n    import tinycomp.e as e\n"
    )
    assert sorted(set(imported_modules(path))) == [
        "tinycomp", "tinycomp.a.b", "tinycomp.c", "tinycomp.cli", "tinycomp.e", "tinycomp.ir", "tinycomp.passes",
    ]  # fmt: skip


def test_the_runtime_loads_without_the_compiler() -> None:
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((PACKAGE / "runtime").glob("*.py"))
    ]
    assert len(modules) > 1
    script = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert run.stdout.strip() == "[]", f"importing {modules} also imports {run.stdout.strip()}"


def test_compiling_leaves_alone_what_few_need() -> None:
    script = (
        "import sys, tinycomp\nfrom tinycomp.data import digits, digits_model\n"
        "tinycomp.compile(digits_model())(digits()[0][:2])\n"
        f"print([m for m in {SELDOM!r} if m in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert run.stdout.strip() == "[]"
