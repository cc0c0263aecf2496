#!/usr/bin/env python3
"""Compile a driver of this folder and link it with the objects of the runtime, all with the same flags.

Usage: runtime_c/tests/build.py faults|races FOLDER, the folder being where ``setup.py build_ext`` left the objects. The
program stands beside its source.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent
WRAPPED = ("malloc", "calloc", "realloc", "aligned_alloc", "free", "pthread_create")
"""What the driver ``faults`` stands in front of."""


def main() -> int:
    """Compile and link, and return the compiler's exit code."""
    driver, folder = sys.argv[1:]
    sys.path.insert(0, str(RUNTIME))
    import build_ffi

    sources = [HERE / f"{driver}.c", HERE / "models.c"]
    include = [f"-I{RUNTIME / name}" for name in ("include", "src")]
    objects = sorted(Path(folder).glob("*.o"))
    wraps = [f"-Wl,--wrap={name}" for name in WRAPPED] if driver == "faults" else []
    command = ["gcc", *build_ffi.compile_flags(), *include, *sources, *objects, *wraps, *build_ffi.link_flags(), "-lm"]
    return subprocess.run([*map(str, command), "-o", str(HERE / driver)]).returncode


if __name__ == "__main__":
    sys.exit(main())
