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
import sys
import sysconfig
from pathlib import Path

import cffi
from setuptools import Extension

HERE = Path(__file__).resolve().parent
INCLUDE = ["runtime_c/include", "runtime_c/src"]

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
    lists = [(HERE / name).read_text(encoding="utf-8") for name in ("kernels/kernels.def", "src/records.def")]
    return int(hashlib.sha256("".join([declarations(), *lists]).encode()).hexdigest()[:15], 16)


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
    known = {"x86_64": "scalar helium neon avx2 avx512", "aarch64": "scalar helium neon"}.get(
        machine(), "scalar helium"
    )
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
    flags += ["-ffunction-sections", "-fdata-sections"]
    if (system(), machine()) == ("win", "x86_64"):
        # The stack is aligned to 16 bytes there, which GCC forgets where it keeps a wider vector in it.
        flags.append("-Wa,-muse-unaligned-vector-move")
    flags.append(f"-DTC_FINGERPRINT={fingerprint()}LL")
    if os.environ.get("TINYCOMP_WERROR") == "1":
        flags += ["-Wall", "-Wextra", "-Werror"]
    if os.environ.get("TINYCOMP_BUILD_ISAS"):
        flags += ["-DTC_ISA_LIST=" + " ".join(f"TC_ISA({isa})" for isa in isas())]
    if sanitizers():
        flags += ["-O1", "-g1", *sanitizers(), "-fno-sanitize-recover=undefined"]
    return flags


def file_flags(source: str) -> list[str]:
    """Return the compiler flags that one file gets in addition.

    What few run is compiled to less: scalar kernels where every newer processor has a better set, and those for
    Helium and on x86 for NEON, which only pack weights here. Nobody reads flags of floating-point exceptions or
    errno, which would keep the compiler from making vectors of loops. The compiler makes no copies of loops for
    conditions, strides or constants that it sees in them: kernels that want several forms of a loop spell them out.
    Kernels have no tables for unwinding, a twentieth of the library: nothing is thrown through them. Functions that
    the library exports are inlined all the same, as nobody replaces them.
    """
    name = Path(source).stem
    if not name.startswith("isa_"):
        return ["-fno-semantic-interposition"]
    small = {
        "isa_helium": ["-Os"],
        "isa_neon": ["-Os"] if machine() == "x86_64" else [],
        "isa_scalar": ["-Os"] if len(isas()) > 2 else [],
    }
    if sanitizers():
        return []
    vectors = ["-fno-math-errno", "-fno-trapping-math"]
    copies = ["unswitch-loops", "split-loops", "ipa-cp-clone", "version-loops-for-strides", "loop-unroll-and-jam"]
    if name in small or system() == "macosx":  # flags of GCC
        copies = []
    return [
        *small.get(name, []),
        *vectors,
        *(f"-fno-{each}" for each in copies),
        *([] if system() == "win" else ["-fno-asynchronous-unwind-tables"]),
    ]


def link_flags() -> list[str]:
    """Return the linker flags."""
    return ["-pthread", *sanitizers()]


def system() -> str:
    """Return the system that is being built for, as ``linux``, ``macosx`` or ``win``."""
    return sysconfig.get_platform().split("-")[0]


LIBRARY = {"linux": "libtinycomp.so", "macosx": "libtinycomp.dylib"}.get(system(), "")
"""The file name of the library with the runtime; empty where the extension module holds the runtime itself.

So it does on Windows, where no module finds a library in the folder beside its own."""


def library_flags() -> list[str]:
    """Return the linker flags of the library: its name, and that its functions call each other directly."""
    if system() == "macosx":
        return [*link_flags(), f"-Wl,-install_name,@rpath/{LIBRARY}", "-Wl,-dead_strip"]
    return [*link_flags(), f"-Wl,-soname,{LIBRARY}", "-Wl,-Bsymbolic", "-Wl,--gc-sections"]


def strip_flag() -> str:
    """Return the linker flag that leaves out the names of what a library keeps to itself."""
    return "-Wl,-x" if system() == "macosx" else "-Wl,--strip-all"


def _rpath() -> list[str]:
    """Return the linker flag with which the extension module finds the library, wherever the package lies."""
    origin = "@loader_path" if system() == "macosx" else "$ORIGIN"
    return [f"-Wl,-rpath,{origin}/../lib"] if LIBRARY else []


def limited_api() -> str | None:
    """Return the oldest Python whose stable interface the extensions keep to, as in the tag of a wheel, or None.

    Buffers belong to it from 3.11 on; a build without the global lock has none. There, a wheel is for one version.
    """
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return None if sys.version_info < (3, 11) or free_threaded else "cp311"


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
        sources=[] if LIBRARY else [relative(path) for path in sources()],
        include_dirs=INCLUDE,
        depends=[relative(path) for path in HERE.rglob("*") if path.suffix in {".c", ".h", ".def"}],
        extra_compile_args=compile_flags(),
        extra_link_args=[*link_flags(), *_rpath()],
        **({} if limited_api() else {"py_limited_api": False}),
    )
    return ffi


def extensions() -> list[Extension]:
    """Return the extensions against Python's own interface: the runtime's calls and texts, objects, guards of files."""
    made = [
        _extension("tinycomp.runtime._direct", "direct.c"),
        _extension("tinycomp.runtime._texts", "texts.c"),
        _extension("tinycomp.ops._objects", "objects.c"),
        _extension("tinycomp.ir._wire", "wire.c"),
        _extension("tinycomp.memory._guard", "guard.c"),
    ]
    return made[:-1] if system() == "win" else made  # no file can be cut off there while it is mapped


def _extension(name: str, source: str) -> Extension:
    limited = limited_api() is not None
    return Extension(
        name,
        [relative(HERE / "python" / source)],
        include_dirs=INCLUDE,
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if limited else [],
        py_limited_api=limited,
        extra_compile_args=compile_flags(),
        extra_link_args=link_flags(),
    )
