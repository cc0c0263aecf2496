"""The interface for targets: it changes with its version only, and its page shows every name at work.

What it was in every version stands in ``tests/target_api/<version>.json``. A change needs another ``API_VERSION``,
whose file ``pytest --update-golden`` then writes; files of versions that are out stay as they are.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.pages import Page
from tinycomp import target_api
from tinycomp.errors import TargetError
from tinycomp.target_api import API_VERSION

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOTS = ROOT / "tests" / "target_api"

PARTS: dict[str, tuple[str, ...]] = {
    "Graph": (
        *("inputs", "outputs", "output_names", "nodes", "constants", "opsets", "is_output", "walk", "to_networkx"),
        *("add_input", "add_const", "add", "set_outputs"),
    ),
    "Node": (*("op", "domain", "version", "inputs", "outputs", "attrs", "bodies", "target", "sources"),
        *("body", "output", "label", "is_composite", "is_region", "is_call", "operand", "optional_operand", "const")),
    "Value": ("name", "type", "producer", "users", "const", "is_const", "dtype", "shape", "rank", "static_shape"),
    "Program": (),
    "P": (*("absent", "any", "any_of", "attr", "composite", "const", "dominates", "elementwise", "not_const", "op"),
        *("optional", "repeat")),
    "ValuePattern": ("where",),
    "Match": ("matched",),
}  # fmt: skip
"""Of what has more members than targets need, those that belong to the interface; the others may change."""


def bare(function: Any) -> str:
    """The signature without annotations, and without where default values happen to lie in memory."""
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"<[\w.]*?(\w+) object at 0x\w+>", r"<\1>", text)


def shape_of(thing: Any, name: str = "") -> Any:
    """What of a name callers rely on, as values that JSON has a form for."""
    if isinstance(thing, ModuleType):
        own = {n: v for n, v in vars(thing).items() if getattr(v, "__module__", "") == thing.__name__ and n[0] != "_"}
        return {n: shape_of(v) for n, v in sorted(own.items())}
    if name in PARTS:
        return [
            f"{part}{bare(getattr(thing, part)) if callable(getattr(thing, part, None)) else ''}"
            for part in PARTS[name]
        ]
    if typing.get_origin(thing) is not None:
        return str(thing) if typing.get_origin(thing) is typing.Literal else typing.get_origin(thing).__name__
    if inspect.isclass(thing):
        members = {n: v for n, v in vars(thing).items() if n[0] != "_"}
        fields = {f.name for f in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
        shown = {n: bare(getattr(thing, n)) for n, v in members.items() if callable(v) or isinstance(v, classmethod)}
        properties = [n for n, v in members.items() if isinstance(v, property) and n not in fields]
        return {"": bare(thing), **dict(sorted(shown.items())), **dict.fromkeys(sorted(properties), "property")}
    return bare(thing) if callable(thing) else repr(thing)


def interface() -> dict[str, Any]:
    return {name: shape_of(getattr(target_api, name), name) for name in sorted(target_api.__all__)}


def test_it_changes_with_its_version_only(request: pytest.FixtureRequest) -> None:
    path, found = SNAPSHOTS / f"{API_VERSION}.json", interface()
    if request.config.getoption("--update-golden") and not path.exists():
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert path.exists(), f"API_VERSION {API_VERSION} is new: write {path.name} with pytest --update-golden"
    assert found == json.loads(path.read_text(encoding="utf-8")), "raise API_VERSION: see the docstring of the module"


def test_the_version_is_the_newest() -> None:
    versions = [tuple(map(int, path.stem.split("."))) for path in SNAPSHOTS.glob("*.json")]
    assert max(versions) == tuple(map(int, API_VERSION.split(".")))


@pytest.mark.parametrize("name", sorted(PARTS))
def test_the_members_that_are_named_are_there(name: str) -> None:
    thing = getattr(target_api, name)
    thing = thing if inspect.isclass(thing) else type(thing)
    own = {n.attr for n in ast.walk(ast.parse(inspect.getsource(thing))) if isinstance(n, ast.Attribute)}
    slots = {*getattr(thing, "__slots__", ()), *getattr(thing, "__annotations__", ()), *own}
    assert all(hasattr(thing, part) or part in slots for part in PARTS[name])


def test_everything_is_documented() -> None:
    for name in target_api.__all__:
        thing = getattr(target_api, name)
        if inspect.isclass(thing) or inspect.isroutine(thing) or isinstance(thing, ModuleType):
            assert inspect.getdoc(thing), name


@pytest.mark.parametrize("version", ["1.99", "2.0", "0.9"])
def test_another_version_is_refused(version: str) -> None:
    with pytest.raises(TargetError, match=f"another target API; expected {re.escape(version)}, or a later"):
        target_api.require_api(version)


@pytest.mark.parametrize("name", target_api.__all__)
def test_the_page_has_an_example_of(name: str) -> None:
    used = {
        node.id if isinstance(node, ast.Name) else node.name
        for code in Page("target-api.md").code("python")
        for node in ast.walk(ast.parse(code))
        if isinstance(node, (ast.Name, ast.alias))
    }
    assert name in used


VENDORS = ["own_target.py", "c_source_target.py", "blob_target.py", "toy_npu/**/*.py", "dnnl/**/*.py"]


@pytest.mark.parametrize("glob", VENDORS)
def test_targets_among_the_examples_need_nothing_else(glob: str) -> None:
    files = [*(ROOT / "examples").glob(glob)]
    assert files
    allowed = {"tinycomp", "tinycomp.data", "tinycomp.target_api"}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert {name for name in imported if name.split(".")[0] == "tinycomp"} <= allowed, path
