"""Build script of the extension modules ``tinycomp.runtime._native`` (used by setup.py through cffi) and ``_direct``.

The declarations come from the public headers themselves, between their cdef markers, so that nothing is written twice.
Set ``TINYCOMP_WERROR=1`` to turn warnings into errors, ``TINYCOMP_SANITIZE=1`` for address and undefined-behaviour
checks, or ``TINYCOMP_SANITIZE=thread`` for data races. ``TINYCOMP_BUILD_ISAS="scalar avx2"`` builds for these
instruction sets alone.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sysconfig
from pathlib import Path

import cffi
from setuptools import Extension

HERE = Path(__file__).resolve().parent

# The generated wrapper is not ours to keep free of these.
_PREAMBLE = """
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include "tinycomp.h"
"""


HEADERS = ("tinycomp_error.h", "tinycomp.h", "tinycomp_elements.h", "tinycomp_kernels.h")
"""The public headers, in the order in which cffi reads them."""


def declarations() -> str:
    """Return the parts of the public headers that cffi reads."""
    return "".join(_between_markers(HERE / "include" / name) for name in HEADERS)


def fingerprint() -> int:
    """Return a number that changes with the interface: parameters, kernels and their order."""
    kernels = (HERE / "kernels" / "kernels.def").read_text(encoding="utf-8")
    return int(hashlib.sha256((declarations() + kernels).encode()).hexdigest()[:15], 16)


def _between_markers(header: Path) -> str:
    text = header.read_text(encoding="utf-8")
    begin, end = text.index("/* cdef-begin"), text.index("/* cdef-end")
    return text[text.index("*/", begin) + 2 : end]


def machine() -> str:
    """Return the processor that is being built for, also when cross-compiling or making a macOS wheel."""
    target = os.environ.get("ARCHFLAGS", "") or sysconfig.get_platform()
    for name in ("arm64", "aarch64", "x86_64", "amd64"):
        if name in target.lower():
            return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)
    return platform.machine().lower()


def isas() -> list[str]:
    """Return the instruction sets to build, worst first: those in ``TINYCOMP_BUILD_ISAS``, or all of the processor."""
    known = {"x86_64": "scalar helium avx2 avx512", "aarch64": "scalar helium neon"}.get(machine(), "scalar helium")
    return (os.environ.get("TINYCOMP_BUILD_ISAS") or known).split()


def sources() -> list[Path]:
    """Return the C files to compile; of the instruction sets those of :func:`isas`."""
    common = sorted(path for path in (HERE / "src").glob("*.c") if not path.name.startswith("isa_"))
    return [*common, *(HERE / "src" / f"isa_{isa}.c" for isa in isas())]


def sanitizers() -> list[str]:
    """Return the flag that ``TINYCOMP_SANITIZE`` stands for, to compile and to link with."""
    wanted = os.environ.get("TINYCOMP_SANITIZE", "")
    return {"": [], "1": ["-fsanitize=address,undefined"], "thread": ["-fsanitize=thread"]}[wanted]


def compile_flags() -> list[str]:
    """Return the compiler flags.

    Contraction is on because ISO mode would turn fused multiply-adds off. Python's own flags ask for debugging
    information, which takes a third of the time to compile.
    """
    flags = ["-std=gnu11", "-O3", "-g0", "-ffp-contract=fast", "-fvisibility=hidden", "-pthread"]
    flags.append(f"-DTC_FINGERPRINT={fingerprint()}LL")
    if os.environ.get("TINYCOMP_WERROR") == "1":
        flags += ["-Wall", "-Wextra", "-Werror"]
    if os.environ.get("TINYCOMP_BUILD_ISAS"):
        flags += ["-DTC_ISA_LIST=" + " ".join(f"TC_ISA({isa})" for isa in isas())]
    if sanitizers():
        flags += ["-O1", "-g1", *sanitizers(), "-fno-sanitize-recover=undefined"]
    return flags


def link_flags() -> list[str]:
    """Return the linker flags."""
    return ["-pthread", *sanitizers()]


def relative(path: Path) -> str:
    """Return a path as setuptools wants it: relative to the project and with forward slashes."""
    return path.relative_to(HERE.parent).as_posix()


def make_ffi() -> cffi.FFI:
    """Return the builder that ``cffi_modules`` in setup.py asks for."""
    ffi = cffi.FFI()
    ffi.cdef(declarations() + 'extern "Python" int32_t tc_python_permits(void *owner, int64_t bytes);')
    ffi.set_source(
        "tinycomp.runtime._native",
        _PREAMBLE,
        sources=[relative(path) for path in sources()],
        include_dirs=["runtime_c/include", "runtime_c/src"],
        depends=[relative(path) for path in HERE.rglob("*") if path.suffix in {".h", ".def"}],
        extra_compile_args=compile_flags(),
        extra_link_args=link_flags(),
    )
    return ffi


def extensions() -> list[Extension]:
    """Return the extensions against Python's own interface: calls of the runtime, texts, and guards of mapped files."""
    return [
        _extension("tinycomp.runtime._direct", "direct.c"),
        _extension("tinycomp.runtime._texts", "texts.c"),
        _extension("tinycomp.memory._guard", "guard.c"),
    ]


def _extension(name: str, source: str) -> Extension:
    return Extension(
        name,
        [relative(HERE / "python" / source)],
        include_dirs=["runtime_c/include"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        extra_compile_args=compile_flags(),
        extra_link_args=link_flags(),
    )
