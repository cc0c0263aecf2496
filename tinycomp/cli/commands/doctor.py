"""``tinycomp doctor``: examine the installation and say what to do about what is broken.

It imports as little as it can: it must run where tinycomp itself does not.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from importlib import metadata

from rich.text import Text

from tinycomp.cli.exits import FAILED, OK
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable
from tinycomp.memory.system import usable_processors
from tinycomp.records import asdict, dataclass

GOOD, WARNING, BROKEN = "ok", "warning", "broken"
_OPTIONAL = ("onnxruntime",)
_COMPILERS = ("cc", "gcc", "clang")
_RUNTIME = "tinycomp.runtime"
_EXAMPLE = """\
tinycomp doctor
tinycomp doctor --json"""
_STYLES = {BROKEN: "bold red", WARNING: "yellow"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: The thing.
        found: What it is like.
        status: ``ok``, ``warning`` (something works less well) or ``broken`` (something does not work at all).
        hint: What to do, where there is something to do.
    """

    what: str
    found: str
    status: str = GOOD
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return a JSON-able form."""
        return asdict(self)


def examine() -> list[Finding]:
    """Look at everything; nothing that is broken keeps the rest from being looked at."""
    return [*_system(), *_packages(), *_native(), _compiler(), _cache()]


def _system() -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} at {sys.executable}")
    yield Finding("machine", f"{platform.machine()}, {platform.platform()}")


def _packages() -> Iterator[Finding]:
    """Compare the installed versions with what the package's own metadata ask for, and import each package."""
    try:
        requirements = metadata.requires("tinycomp") or []
        yield Finding("tinycomp", metadata.version("tinycomp"))
    except metadata.PackageNotFoundError:
        hint = "Install it with pip, also for working on it: pip install -e ."
        yield Finding("tinycomp", "runs from a folder that is not installed", WARNING, hint)
        requirements = []
    for requirement in requirements:
        match = re.match(r"([\w.-]+)\s*(?:>=\s*([\w.]+))?[^;]*$", requirement)  # those with a marker are optional
        if match is not None:
            yield _package(match[1], match[2] or "")
    for name in _OPTIONAL:
        yield _optional(name)


def _package(name: str, least: str) -> Finding:
    hint = f"pip install --upgrade '{name}>={least}'" if least else f"pip install {name}"
    try:
        importlib.import_module(name.replace("-", "_"))
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "present, version unknown", WARNING)
    except Exception as error:  # a broken package may raise anything while it is imported
        return Finding(name, f"does not import: {error}", BROKEN, hint)
    if _numbers(installed) < _numbers(least):
        return Finding(name, f"{installed}, but tinycomp needs {least}", BROKEN, hint)
    return Finding(name, installed)


def _optional(name: str) -> Finding:
    try:
        return Finding(name, f"{metadata.version(name)} (optional)")
    except metadata.PackageNotFoundError:
        return Finding(name, "not installed (optional: bench --peer and verify use it)")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0])[:3])


def _native() -> Iterator[Finding]:
    try:
        kernels = importlib.import_module(f"{_RUNTIME}.native.library")
        processor = importlib.import_module(f"{_RUNTIME}.native.processor")
    except Exception as error:  # whatever it is, it is the finding
        hint = "Build it: pip install --force-reinstall tinycomp, or python setup.py build_ext --inplace in a checkout."
        yield Finding("native runtime", f"does not load: {error}", BROKEN, hint)
        return
    yield Finding("native runtime", f"loads, {len(kernels.kernel_names())} kernels")
    yield _guarded("processor features", lambda: ", ".join(processor.cpu_features()) or "none that matter")
    yield _isa(processor.available_isas())
    yield _threads(processor.default_threads())


def _isa(available: tuple[str, ...]) -> Finding:
    wanted = os.environ.get("TINYCOMP_ISA", "")
    text = f"{wanted or available[-1]} in use; this machine runs {', '.join(available)}"
    if wanted and wanted not in available:
        hint = f"Unset TINYCOMP_ISA, or set it to one of {', '.join(available)}."
        return Finding("instruction set", f"TINYCOMP_ISA={wanted}, which this machine does not run", BROKEN, hint)
    return Finding("instruction set", text + (" (from TINYCOMP_ISA)" if wanted else ""))


def _threads(usable: int) -> Finding:
    allowed = usable_processors()
    text = f"{usable} per run by default; {os.cpu_count()} processors, {allowed} of them allowed by the affinity"
    return Finding("threads", text)


def _compiler() -> Finding:
    """Look for a C compiler, which targets that generate C and building from source need."""
    names = shlex.split(os.environ.get("CC", ""))[:1] or list(_COMPILERS)
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        hint = "Only targets that generate C source need one; install gcc or clang, or set CC."
        return Finding("C compiler", f"none of {', '.join(names)}", WARNING, hint)
    return _guarded("C compiler", lambda: f"{path}: {_first_line(path)}")


def _cache() -> Finding:
    """Look at the folder that compiled C source is kept in; it is made when it is first needed."""
    try:
        cache = importlib.import_module("tinycomp.runtime.cache")
    except ImportError:
        return Finding("cache folder", "unknown without platformdirs", WARNING)
    folder = cache.default_folder()
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(nearest, os.W_OK):
        hint = "Targets that generate C source cannot keep what they compiled; make the folder writable."
        return Finding("cache folder", f"{folder} (not writable)", WARNING, hint)
    if not folder.exists():
        return Finding("cache folder", f"{folder} (not made yet)")
    try:
        cache.check_folder(folder)
    except OSError as error:
        return Finding("cache folder", f"{folder} (not used)", WARNING, f"{error}.")
    return Finding("cache folder", str(folder))


def _first_line(path: str) -> str:
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    return shown.stdout.partition("\n")[0]


def _guarded(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, look())
    except Exception as error:
        return Finding(what, f"{type(error).__name__}: {error}", WARNING)


def _configure(parser: ArgumentParser) -> None:
    del parser


def _run(options: Namespace, session: Session) -> int:
    findings = examine()
    table = FoldingTable(title="tinycomp doctor", title_justify="left", expand=True)
    for name in ("", "what", "found"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        status = Text(finding.status, style=_STYLES.get(finding.status, "green"))
        table.add_row(status, finding.what, Text(finding.found))
    session.show(table)
    broken = [f for f in findings if f.status == BROKEN]
    session.show(*(f"{f.what}: {f.hint}" for f in findings if f.hint))
    session.show("Something is broken." if broken else "Everything that tinycomp needs is there.")
    session.result({"ok": not broken, "findings": [f.to_dict() for f in findings]})
    return FAILED if broken else OK


COMMAND = Command(_EXAMPLE, _configure, _run)
