"""Leave out every check of the C runtime in turn, and see a test fail: ``python -m tests.fuzz.unchecked_c [FILE ...]``.

With names of files, such as ``pad.h``, only the checks in them are left out.

A check is what ``TC_REQUIRE`` demands, a condition whose branch returns an error that says what is wrong or fails the
reader of a description, what makes a verdict (``sound = ...``) and the range of a number that is read. Of a condition
that ``&&`` or ``||`` joins, each part is a check, and the whole is none: a test that notices a part notices the whole.
A copy of the checkout gets one build in which the environment variable TC_LEFT_OUT names the check that is not made.
The tests run in a forked child for each.
"""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tinycomp.runtime.native.library import kernel_names

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "tests/runtime_c"
MISUSE, LIBRARY, REFUSALS = (f"{FOLDER}/test_{name}.py" for name in ("misuse", "library", "refusals"))
OTHERS = ("errors", "found_sizes", "trees", "control_flow", "written", "symbolic_programs")
TESTS = [MISUSE, LIBRARY, *(f"{FOLDER}/test_{name}.py" for name in OTHERS), REFUSALS]
"""What has to fail; the cheapest and likeliest come first."""
LOADING = ("module", "session", "archive")
"""The sources of programs without Python."""
HELPERS = ("nd", "prepare", "window")
"""The sources of what kernels call to check."""
OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider")
ENOUGH = 0.98
"""The share of checks without which a test fails."""
SECONDS = 120
VARIABLE = "TC_LEFT_OUT"
NONE = -1
"""The number of no check."""
CHECKS = "TINYCOMP_CHECKS"
"""The variable that names the list of checks to the process that runs the tests."""
DECLARED = "int tc_left_out(int number);\n"
DEFINED = f"""
#include <stdlib.h>
int tc_left_out(int number) {{
  const char *left_out = getenv("{VARIABLE}");
  return left_out && atoi(left_out) == number;
}}
"""
REQUIRE = re.compile(r"\bTC_REQUIRE\(\w+,")
RETURNS_ERROR = re.compile(r"\bif \(")
CLASSES = r"TC_(?:INVALID|FAILED|TOO_LARGE)"
ERROR = re.compile(
    r"\)\s*\{\s*(?:(?:return )?tc_error_set\((?:\w+->)?error, " + CLASSES + r"|return (?:damaged|differs|nowhere)\(|"
    r"fail\(r,|tc_refuse\(prepare,)"
)
OF_OTHERS = ("platform_windows", "sized")
"""Sources that are part of other builds."""
DECLINED = re.compile(r"\)\s*\{\s*return false;")
DECLINING = ("archive.c",)
"""The sources whose functions return false where something is wrong."""
VERDICTS = ("sound", "fit", "fits", "same", "alone")
VERDICT = re.compile(rf"\b(?:{'|'.join(VERDICTS)}) =\s")
RANGE = re.compile(r"(?<!int64_t )\bwithin\(r,")
NO_CHECKS = ("failed(r)", "!failed(r)", "true", *VERDICTS, *(f"!{verdict}" for verdict in VERDICTS))
"""Parts of conditions that say whether there is anything to check at all, or what was found so far."""


def _end(text: str, begin: int) -> int:
    """Return the place of the comma, bracket or semicolon behind an expression."""
    depth = 0
    for at in range(begin, len(text)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}" and depth:
            depth -= 1
        elif not depth and text[at] in "),;":
            return at
    raise ValueError(text[begin : begin + 80])


def _parts(expression: str) -> list[str]:
    """Return an expression as what ``&&`` or ``||`` joins, whichever binds last, with the operators in between."""
    found: dict[str, list[str]] = {}
    for operator in ("||", "&&"):
        depth, parts = 0, [""]
        at = 0
        while at < len(expression):
            if not depth and expression.startswith(operator, at):
                parts += [operator, ""]
                at += 2
                continue
            depth += (expression[at] in "([{") - (expression[at] in ")]}")
            parts[-1] += expression[at]
            at += 1
        found[operator] = parts
        if len(parts) > 1:
            break
    return found[operator]


class Rewriting:
    """Numbers the checks of all sources, and writes these so that each can be left out."""

    def __init__(self) -> None:
        self.checks: list[str] = []

    def _number(self, where: str, text: str) -> int:
        self.checks.append(f"{where}: {' '.join(text.split())}")
        return len(self.checks) - 1

    def _condition(self, where: str, text: str, passes: bool) -> str:
        """Return a condition that holds (``passes``) or does not, where it is left out: each of its parts by itself."""
        parts = _parts(text)
        if len(parts) > 1 and (parts[1] == "&&") != passes:
            return self._switched(where, text, passes)
        for i in range(0, len(parts), 2):  # a conjunct that is always true, or an alternative that never is
            if parts[i].strip() not in NO_CHECKS:
                parts[i] = self._switched(where, parts[i], passes)
        return "".join(parts)

    def _switched(self, where: str, text: str, passes: bool) -> str:
        number = self._number(where, text)
        return f"(({text}) || tc_left_out({number}))" if passes else f"(({text}) && !tc_left_out({number}))"

    def source(self, path: str, text: str) -> str:
        """Return a source whose checks can be left out."""
        refuses = [ERROR, DECLINED] if Path(path).name in DECLINING else [ERROR]
        verdicts = [(VERDICT, True)] if Path(path).parent.name == "src" else []
        for pattern, passes in ((REQUIRE, True), (RETURNS_ERROR, False), *verdicts):
            done, at = "", 0
            for match in pattern.finditer(text):
                if match.start() < at or "#define" in text[text.rfind("\n", 0, match.start()) : match.start()]:
                    continue
                end = _end(text, match.end())
                if not passes and not any(refused.match(text, end) for refused in refuses):
                    continue
                where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
                done += text[at : match.end()] + self._condition(where, text[match.end() : end], passes)
                at = end
            text = done + text[at:]
        return self._ranges(path, text)

    def _ranges(self, path: str, text: str) -> str:
        """Let every range of a number be left out: then any number is read."""
        done, at = "", 0
        for match in RANGE.finditer(text):
            end = _end(text, text.index(",", _end(text, match.end()) - 1) + 1) + 1
            number = self._number(f"{path}:{text.count(chr(10), 0, match.start()) + 1}", text[match.start() : end])
            done += f"{text[at : match.start()]}(tc_left_out({number}) ? number(r) : {text[match.start() : end]})"
            at = end
        return done + text[at:]


def rewrite(folder: Path) -> list[str]:
    """Rewrite the sources of a checkout in place, and return the checks by their numbers."""
    rewriting = Rewriting()
    for path in sorted((folder / "runtime_c").rglob("*.[ch]")):
        if path.stem in OF_OTHERS:
            continue
        text = path.read_text(encoding="utf-8")
        path.write_text(rewriting.source(str(path.relative_to(folder)), text), encoding="utf-8")
    base = folder / "runtime_c" / "src" / "base.h"
    head, guard, rest = base.read_text(encoding="utf-8").partition("#include")
    base.write_text(head + DECLARED + guard + rest, encoding="utf-8")
    with (folder / "runtime_c" / "src" / "base.c").open("a", encoding="utf-8") as file:
        file.write(DEFINED)
    return rewriting.checks


def _tests_for(check: str) -> list[str]:
    """Return what has to fail without a check, what is likely to first: for a kernel the test of what it refuses."""
    path = Path(check.partition(":")[0])
    mirrored = f"{FOLDER}/test_{path.stem}.py"
    own = [mirrored] if (ROOT / mirrored).exists() else []
    if path.stem in LOADING:
        return [*own, LIBRARY]
    if "kernels" not in path.parts and path.stem not in HELPERS:
        return [*own, *TESTS]
    if path.stem in kernel_names():
        own.insert(0, f"{REFUSALS}::test_each_check_answers_as_often_as_before[{path.stem}]")
    return [*own, REFUSALS, *TESTS[:-1]]


class _Watch:
    """A plugin that keeps the name of the test that runs in a file, for whoever looks after a crash."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._file.write_text(nodeid, encoding="utf-8")


class Judge:
    """Finds the test that fails without a check: those that noticed the last ones of its file are run first."""

    RECENT = 6
    """How many these are."""

    def __init__(self, folder: Path) -> None:
        self._last = folder / "last test"
        self._recent: dict[str, list[str]] = collections.defaultdict(list)
        self._sound: dict[str, bool] = {}

    def _run(self, tests: list[str], number: int) -> int:
        """Run tests in a forked child without a check; 0 if they pass, a signal's number below 0 if that ends it."""
        child = os.fork()
        if not child:
            os.environ[VARIABLE] = str(number)
            signal.alarm(SECONDS)  # without a check some calls never end
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            os._exit(pytest.main([*OPTIONS, *tests], plugins=[_Watch(self._last)]))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _is_sound(self, test: str) -> bool:
        """Tell whether a test passes with all checks."""
        if test not in self._sound:
            self._sound[test] = self._run([test], NONE) == pytest.ExitCode.OK
        return self._sound[test]

    def noticed_by(self, number: int, check: str) -> str:
        """Return the test that fails without a check, and how; nothing if all pass."""
        recent, files = self._recent[check.partition(":")[0]], _tests_for(check)
        for tests in [recent, *([file] for file in files)]:
            assert tests is recent or self._is_sound(tests[0]), f"{tests[0]} fails with all checks"
            code = self._run(tests, number) if tests else 0
            if code:
                found = self._last.read_text(encoding="utf-8")
                assert tests is not recent or self._is_sound(found), f"{found} fails by itself"
                recent[:] = [found, *(other for other in recent if other != found)][: self.RECENT]
                return f"{found} ({'fails' if code > 0 else signal.Signals(-code).name})"
        return ""


def _judge(checks: list[str], files: list[str]) -> int:
    """Leave out the checks of some files, or all, in the build of this checkout; 1 if too many are not noticed."""
    pytest.main([*OPTIONS, "--collect-only", "-qq", *TESTS])  # whoever is forked has all modules from here on, and
    assert pytest.main([*OPTIONS, LIBRARY]) == pytest.ExitCode.OK  # what these import for their first model
    judge = Judge(Path(os.environ[CHECKS]).parent)
    started, results = time.monotonic(), collections.Counter[tuple[str, bool]]()
    for number, check in enumerate(checks):
        name = Path(check.partition(":")[0]).name
        if files and name not in files:
            continue
        test = judge.noticed_by(number, check)
        results[name, bool(test)] += 1
        print(f"{check}: {test or 'NO TEST FAILS'}", flush=True)
    for name in dict.fromkeys(name for name, _ in results):
        print(f"{name}: {results[name, True]} noticed, {results[name, False]} not")
    noticed, count = sum(results[key] for key in results if key[1]), sum(results.values())
    print(f"{noticed} of {count} checks are noticed by a test ({time.monotonic() - started:.0f} s)")
    return int(noticed < ENOUGH * count)


def main() -> int:
    """Rewrite and build a copy of the checkout, then judge it in a process of its own."""
    if CHECKS in os.environ:
        return _judge(json.loads(Path(os.environ[CHECKS]).read_text(encoding="utf-8")), sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        skipped = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", "*.so", "*.o")
        shutil.copytree(ROOT, copy, ignore=skipped)
        listed = Path(folder) / "checks.json"
        listed.write_text(json.dumps(rewrite(copy)), encoding="utf-8")
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=copy, check=True)
        natively = {"TINYCOMP_TEST_ISAS": "native"}
        environment = os.environ | natively | {"PYTHONPATH": str(copy), CHECKS: str(listed)}
        command = [sys.executable, "-m", "tests.fuzz.unchecked_c", *sys.argv[1:]]
        return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
