"""Leave out every check of what a file says in turn, and see a test fail: ``python -m tests.fuzz.unchecked``.

A check is a condition whose branch refuses, and every alternative of one with ``or``. The functions that hold it get
the code of a source without it, in a forked child that runs the tests.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

MODULES = (
    "tinycomp.runtime.validate", "tinycomp.runtime.native.program", "tinycomp.runtime.native.decoder",
    "tinycomp.runtime.native.module_records", "tinycomp.runtime.artifact", "tinycomp.runtime.archive",
)  # fmt: skip
"""Where the checks are."""
TESTS = ("tests/runtime/test_validate.py",)
"""What has to fail."""
OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider")
ENOUGH = 0.98
"""The share of checks without which a test fails."""
ROOT = Path(__file__).resolve().parents[2]


class _Nowhere(ast.NodeTransformer):
    """Replace a condition, found by its place, with one that is never true."""

    def __init__(self, place: tuple[int, int, int | None, int | None]) -> None:
        self.place = place

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and _place(node) == self.place:
            return ast.copy_location(ast.Constant(False), node)
        return super().generic_visit(node)


def _place(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _refuses(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        return True
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_refuse"


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the conditions of all checks, and their alternatives."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _refuses(node.body[-1]) and not node.orelse:
            yield node.test
            if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or):
                yield from node.test.values


def _codes(code: CodeType, prefix: str = "") -> dict[str, CodeType]:
    """Return the code of all functions of a module, by their names."""
    found = {}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            found[prefix + part.co_name] = part
            found |= _codes(part, f"{prefix}{part.co_name}.")
    return found


def _functions(module: ModuleType) -> dict[str, FunctionType]:
    """Return the functions of a module and of its classes, by their names."""
    found: dict[str, FunctionType] = {}

    def take(name: str, value: Any) -> None:
        value = getattr(value, "__func__", value)  # of a class method
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            found[name] = inspect.unwrap(value)

    for name, value in vars(module).items():
        take(name, value)
        if isinstance(value, type) and value.__module__ == module.__name__:
            for inner, each in vars(value).items():
                take(f"{name}.{inner}", each)
    return found


def leave_out(module: ModuleType, condition: ast.expr) -> None:
    """Give the functions of a module the code that they would have without a check."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    tree = ast.fix_missing_locations(_Nowhere(_place(condition)).visit(ast.parse(source)))
    codes = _codes(compile(tree, str(module.__file__), "exec"))
    for name, function in _functions(module).items():
        if name in codes and len(codes[name].co_freevars) == len(function.__code__.co_freevars):
            function.__code__ = codes[name]


def _is_noticed(module: ModuleType, condition: ast.expr) -> bool:
    child = os.fork()
    if not child:
        leave_out(module, condition)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os._exit(int(pytest.main([*OPTIONS, *TESTS]) == pytest.ExitCode.TESTS_FAILED))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def main() -> int:
    """Leave out all checks in turn; 1 if too many are missed by nobody."""
    os.chdir(ROOT)
    assert pytest.main([*OPTIONS, *TESTS]) == pytest.ExitCode.OK
    started, count, noticed = time.monotonic(), 0, 0
    for name in MODULES:
        module = importlib.import_module(name)
        for condition in conditions(ast.parse(inspect.getsource(module))):
            seen = _is_noticed(module, condition)
            count, noticed = count + 1, noticed + seen
            if not seen:
                print(f"{name}:{condition.lineno}: nobody misses {ast.unparse(condition)}", flush=True)
    print(f"{noticed} of {count} checks are missed by a test ({time.monotonic() - started:.0f} s)")
    return int(noticed < ENOUGH * count)


if __name__ == "__main__":
    sys.exit(main())
