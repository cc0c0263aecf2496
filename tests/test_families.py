"""The lists by which a file is found that registers something are exactly what the files register."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import tinycomp
from tinycomp.frontend import definition, extension
from tinycomp.ops.families import FAMILIES
from tinycomp.targets.c import families as c_families


class Table(NamedTuple):
    """One list: where it stands, what it says, and what tells a file that belongs to it."""

    listed_in: str
    package: str
    listed: Mapping[str, str]
    mark: str
    registered: Callable[[ModuleType], Iterable[tuple[str, str] | str]]


TABLES = [
    Table("ops/families.py", "ops", FAMILIES, "FAMILY = OpFamily(", lambda m: m.FAMILY.operators),
    Table(
        "targets/c/families.py", "targets.c", c_families.FAMILIES, "FAMILY = LoweringRules(",
        lambda m: m.FAMILY.by_op,
    ),
    Table("frontend/definition.py", "frontend", definition.FILES, "DEFINITIONS = ", lambda m: m.DEFINITIONS),
    Table(
        "frontend/extension.py", "frontend", extension.FILES, "EXTENSIONS = Extensions(",
        lambda m: m.EXTENSIONS.definitions,
    ),
]  # fmt: skip
FILES = [pytest.param(table, file, id=f"{table.package}.{file}") for table in TABLES for file in table.listed]


def qualified(key: tuple[str, str] | str) -> str:
    return key if isinstance(key, str) else "::".join(filter(None, key))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.listed_in)
def test_every_file_is_listed(table: Table) -> None:
    folder = Path(tinycomp.__file__).parent.joinpath(*table.package.split("."))
    marked = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if f"\n{table.mark}" in path.read_text(encoding="utf-8")
    }
    assert marked == set(table.listed), f"write it in tinycomp/{table.listed_in}"


@pytest.mark.parametrize(("table", "file"), FILES)
def test_every_name_is_listed(table: Table, file: str) -> None:
    module = importlib.import_module(f"tinycomp.{table.package}.{file}")
    registered = sorted(map(qualified, table.registered(module)))
    assert sorted(table.listed[file].split()) == registered, f"write them in tinycomp/{table.listed_in}"
