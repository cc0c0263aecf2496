#!/usr/bin/env python3
"""Compile the runtime for one instruction set, and the driver ``replay``, as a static program that can be run here.

Usage: runtime_c/tests/cross.py COMPILER ISA FOLDER [SUBSTITUTES [FLAG ...]]. A compiler for another processor makes a
program for an emulator: ``aarch64-linux-gnu-gcc neon build/neon``. With SUBSTITUTES, a folder beside this file, the
program is its own emulator: ``gcc avx512 build/avx512 avx512 -O1`` compiles the sources in that folder in the place of
those with the same names. Warnings are errors. The program is ``FOLDER/replay``; it is left alone if no source has
changed since it was made.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent
sys.path.insert(0, str(RUNTIME))

import build_ffi  # noqa: E402


def is_current(program: Path) -> bool:
    """Whether a program is newer than everything that it is made of."""
    parts = [p for pattern in ("**/*.[ch]", "**/*.def", "**/*.py") for p in RUNTIME.glob(pattern)]
    return program.exists() and program.stat().st_mtime > max(p.stat().st_mtime for p in parts)


def main() -> int:
    """Make the program if it is out of date, one process at a time, and return the first exit code that is not 0."""
    compiler, isa, place, *rest = sys.argv[1:]
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current(folder / "replay"):
            return 0
        os.environ |= {"TINYCOMP_WERROR": "1", "TINYCOMP_BUILD_ISAS": isa}
        return make([compiler, *flags(), *rest[1:]], sources(*rest[:1]), folder)


def sources(substitutes: str = "") -> list[Path]:
    """Return the files to compile."""
    files = {path.name: path for path in [HERE / "replay.c", *build_ffi.sources()]}
    return list((files | {path.name: path for path in (HERE / substitutes).glob("*.c") if substitutes}).values())


def flags() -> list[str]:
    """Return the compiler flags."""
    include = [f"-I{RUNTIME / name}" for name in ("include", "src")]
    return [*build_ffi.compile_flags(), *build_ffi.link_flags(), *include]


def make(compile_command: list[str], files: list[Path], folder: Path) -> int:
    """Compile and link, and return the first exit code that is not 0."""
    objects = [folder / f"{source.stem}.o" for source in files]

    def compile_one(source: Path, made: Path) -> int:
        return subprocess.run([*compile_command, "-c", str(source), "-o", str(made)]).returncode

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        code = max(workers.map(compile_one, files, objects))
    link = [*compile_command, "-static", *map(str, objects), "-lm", "-o", str(folder / "replay")]
    return code or subprocess.run(link).returncode


if __name__ == "__main__":
    sys.exit(main())
