"""How the runtime is built: once for Python and for other programs, for one system in one file."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import cffi
import pytest

from tests.runtime_c.clibrary import LIBRARY
from tinycomp.runtime.native import library

RUNTIME = Path(__file__).resolve().parents[2] / "runtime_c"
sys.path.insert(0, str(RUNTIME))
with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
    warnings.simplefilter("ignore")  # about the interpreter's own distutils, which others may have imported
    patch.setenv("SETUPTOOLS_USE_DISTUTILS", "stdlib")
    import build_ffi

STANDARD = frozenset(
    f"{name}.h"
    for name in [
        "arm_acle",
        "arm_mve",
        "arm_neon",
        "float",
        "immintrin",
        "limits",
        "math",
        "stdalign",
        "stdarg",
        "stdatomic",
        "stdbool",
        "stddef",
        "stdint",
        "stdio",
        "stdlib",
        "string",
    ]
)
"""Headers that are the same everywhere, and those with intrinsics."""


@pytest.mark.skipif(not LIBRARY.exists(), reason="the extension holds the runtime itself")
def test_python_runs_the_library_that_other_programs_link_with() -> None:
    extension = Path(library._native.__file__)
    assert extension.stat().st_size < LIBRARY.stat().st_size / 4, "the extension holds the runtime once more"


@pytest.mark.skipif(not LIBRARY.exists(), reason="the extension holds the runtime itself")
def test_the_library_exports_what_the_headers_declare_and_nothing_else() -> None:
    ffi = cffi.FFI()
    names = [name for name in dir(library.lib) if callable(getattr(library.lib, name)) and name.startswith("tc_")]
    names.remove("tc_python_permits")  # is Python's own
    ffi.cdef("\n".join(f"void {name}(void);" for name in [*names, "tc_allocate", "tc_isa_find", "tc_module_open"]))
    there = ffi.dlopen(str(LIBRARY))
    assert not [name for name in [*names, "tc_module_open"] if not hasattr(there, name)]
    assert not [name for name in ("tc_allocate", "tc_isa_find") if hasattr(there, name)]


def test_only_the_files_for_a_system_include_its_headers() -> None:
    files = [*(RUNTIME / "src").glob("*.[ch]"), *(RUNTIME / "kernels").rglob("*.h")]
    other = {
        path.name: sorted(set(found) - STANDARD)
        for path in files
        if not path.name.startswith("platform") and (found := re.findall(r"#\s*include <([^>]+)>", path.read_text()))
    }
    assert not {name: found for name, found in other.items() if found}


def test_what_few_run_is_compiled_to_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINYCOMP_SANITIZE", raising=False)
    monkeypatch.setenv("TINYCOMP_BUILD_ISAS", "scalar helium avx2")
    files = [build_ffi.relative(path) for path in build_ffi.sources()]
    levels = {Path(f).stem: [g for g in build_ffi.file_flags(f) if g.startswith("-O")] for f in files if "isa_" in f}
    assert {name: level for name, level in levels.items() if level} == {"isa_scalar": ["-Os"], "isa_helium": ["-Os"]}
    monkeypatch.setenv("TINYCOMP_BUILD_ISAS", "scalar")
    assert "-Os" not in build_ffi.file_flags("runtime_c/src/isa_scalar.c")


def test_a_wheel_says_which_versions_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_ffi.sys, "version_info", (3, 10, 14))
    assert build_ffi.limited_api() is None
    monkeypatch.setattr(build_ffi.sys, "version_info", (3, 14, 0))
    monkeypatch.setattr(build_ffi.sysconfig, "get_config_var", {"Py_GIL_DISABLED": 0}.get)
    assert build_ffi.limited_api() == "cp311"
    monkeypatch.setattr(build_ffi.sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    assert build_ffi.limited_api() is None


@pytest.mark.parametrize(
    ("platform", "system"), [("linux-x86_64", "linux"), ("win-amd64", "win"), ("macosx-11.0-arm64", "macosx")]
)
def test_the_system_is_that_of_the_wheel(monkeypatch: pytest.MonkeyPatch, platform: str, system: str) -> None:
    monkeypatch.delenv("ARCHFLAGS", raising=False)
    monkeypatch.setattr(build_ffi.sysconfig, "get_platform", lambda: platform)
    assert build_ffi.system() == system
    assert ("-Wa,-muse-unaligned-vector-move" in build_ffi.compile_flags()) == (system == "win")
