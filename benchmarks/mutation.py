"""Mutation testing: small mistakes are put into the partitioning passes, and the tests have to notice.

Run as ``python -m benchmarks mutation [--sample N] [files]``. A mutant is a file with one change: a comparison turned,
a condition negated, a number off by one, an operator exchanged, a statement left out. It lives in a copy of the
project, so the working tree is not touched. A mutant is killed when a test fails, the import fails, or the time runs
out; survivors are listed. Numbers at module level are not changed: they are budgets, where one more is no mistake.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
import importlib
import io
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("tinycomp", "tests", "benchmarks", "examples", "pyproject.toml")
REGIONS = (  # the quickest first
    "tests/passes/test_published_trouble.py",
    "tests/passes/merge_regions/test_merge_regions.py",
    "tests/passes/partition_graph",
    "tests/passes/test_partition_fuzz.py",
    "tests/passes/search/test_search_quality.py",
    "tests/passes/search/test_regions.py",
)
COMPOSITES = (
    "tests/passes/merge_composite/test_merge_composite.py",
    "tests/passes/merge_composite/test_parameters.py",
    "tests/rewrite/test_structure.py",
)
TESTS = {
    "tinycomp/passes/merge_composite.py": COMPOSITES,
    "tinycomp/passes/merge_regions.py": REGIONS,
    "tinycomp/passes/search/regions.py": REGIONS,
    "tinycomp/passes/partition_graph.py": REGIONS,
}
QUICK = "not 3000 and not needs_no_recursion"
"""The tests that are run, in the sense of pytest's -k."""

_TURNED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitXor: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A file with one change.

    Attributes:
        path: The file, relative to the project.
        line: Where the change is.
        change: What it is, for people.
        source: The whole file.
    """

    path: str
    line: int
    change: str
    source: str


# Making mutants -------------------------------------------------------------------------------------------------------


def mutants(path: str) -> list[Mutant]:
    """Return every mutant of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in _left_alone(tree):
            continue
        for which, _ in enumerate(_changes(node)):
            changed = copy.deepcopy(tree)
            twin = next(n for i, n in enumerate(ast.walk(changed)) if i == number)
            before = ast.unparse(twin)
            place = list(_changes(twin))[which]() or twin
            what = f"{before.splitlines()[0]}  ->  {ast.unparse(twin).splitlines()[0]}"
            if place is not twin:
                what = f"without {ast.unparse(place)}"
            found.append(Mutant(path, getattr(place, "lineno", 0), what, ast.unparse(changed)))
    return found


def _left_alone(tree: ast.Module) -> set[int]:
    """Annotations, assertions, ``strict=`` of zip, and the numbers of module level."""
    roots: list[ast.AST] = [
        n for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            roots.append(node)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            roots += node.decorator_list
        if isinstance(node, ast.keyword) and node.arg == "strict":
            roots.append(node)
        roots += [part for name in ("annotation", "returns") if (part := getattr(node, name, None)) is not None]
    return {id(inner) for root in roots for inner in ast.walk(root)}


def _changes(node: ast.AST) -> Iterator[Callable[[], ast.AST | None]]:
    """Yield a function for every way to change ``node`` in place; it returns the statement that it removes, if any."""
    match node:
        case ast.Compare(ops=[single]) if type(single) in _TURNED:
            yield lambda: setattr(node, "ops", [_TURNED[type(single)]()])
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() if type(node.op) in _TURNED:
            yield lambda: setattr(node, "op", _TURNED[type(node.op)]())
        case ast.Constant(value=bool() as value):
            yield lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() as value):
            yield lambda: setattr(node, "value", value + 1)
        case ast.If() | ast.While() | ast.IfExp():
            yield lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension(ifs=[condition]):
            yield lambda: setattr(node, "ifs", [ast.UnaryOp(ast.Not(), condition)])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), operand))
    if isinstance(body := getattr(node, "body", None), list):
        for index, statement in enumerate(body):
            if _removable(statement):
                yield functools.partial(_remove, body, index)


def _remove(body: list[ast.stmt], index: int) -> ast.stmt:
    removed, body[index] = body[index], ast.Pass()
    return removed


def _removable(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, (ast.Constant, ast.Yield))
    return isinstance(statement, (ast.AugAssign, ast.Continue, ast.Raise))


# Running them ---------------------------------------------------------------------------------------------------------


class Workshop:
    """A copy of the project in which mutants are tried, each in a forked process that has the libraries loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds = 3600.0
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, folder / name)

    def survives(self, mutant: Mutant | None) -> bool:
        """Whether the tests pass with the mutant in place; None stands for the files as they are."""
        tests = TESTS[mutant.path] if mutant else tuple(dict.fromkeys(t for each in TESTS.values() for t in each))
        if mutant is None:
            return self._try(tests)
        path = self.folder / mutant.path
        original = path.read_text(encoding="utf-8")
        path.write_text(mutant.source, encoding="utf-8")
        try:
            return self._try(tests)
        finally:
            path.write_text(original, encoding="utf-8")

    def _try(self, tests: tuple[str, ...]) -> bool:
        child = os.fork()
        if not child:
            limit = int(self.seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            os._exit(self._run(tests))
        return os.waitpid(child, 0)[1] == 0

    def calibrate(self) -> bool:
        """Run the tests without a mutant and allow twice the processor time that they take; whether they pass."""
        passes = self.survives(None)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds = 2 * (used.ru_utime + used.ru_stime) + 5
        return passes

    def _run(self, tests: tuple[str, ...]) -> int:
        import pytest

        os.chdir(self.folder)
        sys.path[:] = [str(self.folder), *(p for p in sys.path if Path(p).resolve() != ROOT)]
        sys.dont_write_bytecode = True
        for name in [n for n in sys.modules if n.partition(".")[0] in ("tinycomp", "tests", "benchmarks")]:
            del sys.modules[name]
        options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--hypothesis-seed=0", "-k", QUICK]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                return int(pytest.main([*options, *tests]))
            except BaseException:
                return 70


def load_libraries() -> None:
    """Import what every test process needs, once; no library of ours among them."""
    for name in ("hypothesis", "networkx", "onnx.reference", "pytest"):
        importlib.import_module(name)


def report(killed: Counter[str], survivors: list[Mutant], seconds: float) -> None:
    """Print the survivors and the score of every file."""
    lost = Counter(m.path for m in survivors)
    for mutant in survivors:
        print(f"survived: {mutant.path}:{mutant.line}: {mutant.change}")
    for path in sorted(killed.keys() | lost.keys()):
        total = killed[path] + lost[path]
        print(f"{path:<40} {killed[path]:>4} of {total:>4} killed  {killed[path] / total:6.1%}")
    total = killed.total() + len(survivors)
    print(f"{'all':<40} {killed.total():>4} of {total:>4} killed  {killed.total() / total:6.1%}, {seconds:.0f} s")


def main() -> int:
    """Try mutants and say which survived."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="file", help=f"of {', '.join(TESTS)} (default: all)")
    parser.add_argument("--sample", type=int, help="try only so many, chosen at random (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample (default: 0)")
    options = parser.parse_args()
    if unknown := sorted(set(options.files) - set(TESTS)):
        parser.error(f"no tests are known for {unknown[0]}")
    found = [m for path in options.files or TESTS for m in mutants(path)]
    chosen = found if options.sample is None else random.Random(options.seed).sample(found, options.sample)
    load_libraries()
    started = time.perf_counter()
    killed: Counter[str] = Counter()
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        if not workshop.calibrate():
            print("the tests fail without any change; nothing can be said about mutants")
            return 1
        print(f"{len(chosen)} of {len(found)} mutants", flush=True)
        for number, mutant in enumerate(chosen, 1):
            if workshop.survives(mutant):
                survivors.append(mutant)
                print(f"[{number}] survived: {mutant.path}:{mutant.line}: {mutant.change}", flush=True)
            else:
                killed[mutant.path] += 1
    report(killed, survivors, time.perf_counter() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
