#!/usr/bin/env python3
"""Compile the runtime and the driver ``replay`` for another processor, as one static program that an emulator can run.

Usage: runtime_c/tests/cross.py COMPILER PROCESSOR FOLDER, such as ``aarch64-linux-gnu-gcc aarch64 build/aarch64``.
Warnings are errors. The program is ``FOLDER/replay``; it is left alone if no source has changed since it was made.
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


def is_current(program: Path) -> bool:
    """Whether a program is newer than everything that it is made of."""
    parts = [p for pattern in ("**/*.[ch]", "**/*.def", "**/*.py") for p in RUNTIME.glob(pattern)]
    return program.exists() and program.stat().st_mtime > max(p.stat().st_mtime for p in parts)


def main() -> int:
    """Make the program if it is out of date, one process at a time, and return the first exit code that is not 0."""
    compiler, processor, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return 0 if is_current(folder / "replay") else make(compiler, processor, folder)


def make(compiler: str, processor: str, folder: Path) -> int:
    """Compile and link, and return the first exit code that is not 0."""
    os.environ |= {"TINYCOMP_WERROR": "1", "ARCHFLAGS": processor}
    sys.path.insert(0, str(RUNTIME))
    import build_ffi

    flags = [*build_ffi.compile_flags(), *(f"-I{RUNTIME / name}" for name in ("include", "src"))]
    sources = [HERE / "replay.c", *build_ffi.sources()]
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compile_one(source: Path, made: Path) -> int:
        return subprocess.run([compiler, *flags, "-c", str(source), "-o", str(made)]).returncode

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        code = max(workers.map(compile_one, sources, objects))
    if code:
        return code
    link = [compiler, "-static", *map(str, objects), *build_ffi.link_flags(), "-lm", "-o", str(folder / "replay")]
    return subprocess.run(link).returncode


if __name__ == "__main__":
    sys.exit(main())
