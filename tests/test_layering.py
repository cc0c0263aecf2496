"""Imports go one way, everywhere, also inside functions and under ``TYPE_CHECKING``."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

import tinycomp

pytestmark = pytest.mark.rows(None)

PACKAGE = Path(tinycomp.__file__).parent
BASE = frozenset(
    {"arguments", "console", "errors", "index", "lazy", "memory", "records", "remark", "symbolic", "version"}
)
OPS = BASE | {"ir", "ops"}
PASSES = OPS | {"rewrite", "analysis", "quantized", "target", "passes", "frontend"}
COMPILING = PASSES | {"runtime", "targets", "checking", "driver"}

SEES: dict[str, frozenset[str]] = {
    "arguments": frozenset({"errors", "memory"}),
    "console": frozenset({"console", "errors"}),
    "errors": frozenset({"errors", "records"}),
    "index": frozenset(),
    "lazy": frozenset(),
    "records": frozenset(),
    "remark": frozenset({"errors", "records", "remark"}),
    "symbolic": frozenset({"errors", "lazy", "records", "symbolic"}),
    "version": frozenset({"version"}),
    "memory": frozenset({"errors", "memory", "records"}),
    "ir": BASE | {"ir"},
    "ops": OPS,
    "rewrite": OPS | {"rewrite"},
    "analysis": OPS | {"rewrite", "analysis"},
    "quantized": OPS | {"rewrite", "quantized"},
    "target": OPS | {"rewrite", "quantized", "target"},
    "passes": PASSES,
    "frontend": OPS | {"frontend"},
    "runtime": BASE | {"runtime"},
    "data": frozenset({"data", "errors", "records"}),
    "targets": PASSES | {"runtime", "targets"},
    "targets.device_sim": frozenset({"target_api"}),
    "targets.npu_sim": OPS | {"quantized", "target_api", "targets"},
    "target_api": COMPILING,
    "driver": PASSES | {"runtime", "driver"},
    "driver.compiler": COMPILING,
    "driver.tune": COMPILING,
    "driver.restore": COMPILING,
    "driver.load": COMPILING,
    "checking": PASSES | {"runtime", "driver.lowering", "checking"},
    "export_c": BASE | {"runtime", "checking", "export_c"},
    "quantization": COMPILING | {"quantization"},
    "generation": frozenset({"arguments", "errors", "generation", "memory", "records", "runtime"}),
    "backend": COMPILING | {"backend"},
    "pytorch": COMPILING | {"pytorch"},
    "scoring": COMPILING | {"scoring"},
    "serving": COMPILING | {"serving", "__init__"},
    "cli": COMPILING
    | {"backend", "data", "quantization", "generation", "export_c", "scoring", "serving", "cli", "__init__"},
    "__init__": COMPILING | {"quantization", "generation", "export_c", "pytorch", "scoring"},
    "__main__": frozenset({"cli"}),
}
"""What each part of the package may import, as parts or modules of one. A new part must be given its place here."""

EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()
"""Allowed breaches as (file, imported module); the aim is that there are none."""

SELDOM = (
    "onnx", "google", "networkx", "jinja2", "safetensors", "rich", "tinycomp.checking", "tinycomp.driver.advice",
    "tinycomp.driver.dump", "tinycomp.driver.near_misses", "tinycomp.driver.save", "tinycomp.driver.restore",
    "tinycomp.targets.c.tuning.log", "tinycomp.runtime.profile", "tinycomp.target_api", "tinycomp.runtime.report",
    "tinycomp.runtime.rows", "tinycomp.runtime.diagram", "tinycomp.runtime.blob", "tinycomp.runtime.csource.source",
    "tinycomp.runtime.device.interface", "tinycomp.driver.report", "tinycomp.target.quantization",
    "tinycomp.passes.legalize", "tinycomp.passes.keep_forms", "tinycomp.passes.place_by_cost",
    "tinycomp.frontend.microsoft", "tinycomp.frontend.norm_definition", "tinycomp.ops.recurrent", "tinycomp.ops.trees",
    "tinycomp.targets.c.ops.attention", "tinycomp.targets.c.ops.recurrent", "tinycomp.targets.c.quantized.products",
    "tinycomp.quantized.patterns", "tinycomp.ir.text.printer", "tinycomp.ir.text.lexer", "tinycomp.ir.verify",
    "tinycomp.ops.text", "tinycomp.runtime.native.texts", "ml_dtypes", "zlib", "pkgutil", "tinycomp.analysis",
    "tinycomp.driver.check_places", "tinycomp.driver.declined", "tinycomp.frontend.inlining", "tinycomp.ir.text",
    "tinycomp.ir.equality", "tinycomp.ops.cast", "tinycomp.ops.contraction",
    "tinycomp.ops.distance", "tinycomp.ops.movement", "tinycomp.ops.quantize", "tinycomp.ops.sampling",
    "tinycomp.passes.round_weights", "tinycomp.passes.simplify.carried", "tinycomp.passes.simplify.classical",
    "tinycomp.passes.simplify.indexing", "tinycomp.passes.simplify.sequences",
    "tinycomp.targets.c.codegen.batches", "tinycomp.targets.c.ops.indexing",
)  # fmt: skip
"""What compiling with the default options must do without."""

HEAVY = ("onnx", "networkx", "tinycomp.ir", "tinycomp.ops")
"""What a saved module must load without."""


def is_seen(module: str, allowed: frozenset[str]) -> bool:
    """Whether an import such as ``tinycomp.ir.graph`` is of one of the parts or modules that are ``allowed``."""
    names = (module.split(".") + ["__init__"])[1:]
    return any(".".join(names[:length]) in allowed for length in range(1, len(names) + 1))


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
        place = PACKAGE.parent.joinpath(*base.split("."), alias.name)
        inner = base.partition(".")[0] == "tinycomp" and (place.is_dir() or place.with_suffix(".py").is_file())
        yield f"{base}.{alias.name}" if inner else base


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def own_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def own_part(path: Path) -> str:
    """The longest name in the table that the file belongs to."""
    parts = own_name(path).split(".")
    return next((n for k in range(len(parts), 0, -1) if (n := ".".join(parts[:k])) in SEES), parts[0])


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
        if module.split(".")[0] == "tinycomp" and not is_seen(module, allowed) and (name, module) not in EXCEPTIONS
    }
    assert not breaches, f"{name} may see {sorted(allowed)} only"


def test_no_modules_import_each_other_in_a_circle() -> None:
    structure = runpy.run_path(str(PACKAGE.parent / ".ci" / "structure"))
    imports = structure["import_graph"](structure["modules"](PACKAGE.parent))
    assert not [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1]


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
        "import sys, numpy, tinycomp\nfrom tinycomp.data import digits_model\n"
        "tinycomp.compile(digits_model())(numpy.zeros((2, 1, 8, 8), 'float32'))\n"
        f"print([m for m in {SELDOM!r} if m in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert run.stdout.strip() == "[]"
