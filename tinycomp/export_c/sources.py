"""The files of the C runtime that kernels are made of: each kernel's header, and all that it includes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tinycomp.errors import UnsupportedError

_INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
_ENTRY = re.compile(r"(?:^static void|^#define [A-Z_]+) TC_NAME\(tc_(\w+)\)(?:\(|$)", re.MULTILINE)
"""A function that a kernel consists of, or the name of one whose body is shared."""
_FOLDERS = ("src", "include")
_BESIDE = "src/rows.c"
"""What kernels need beside their headers."""
_ALONE = ("src/standalone.h", "src/sized.h")
"""What lets them stand alone, without and with sizes that only a run knows."""


def runtime_folder() -> Path:
    """Return the folder with the sources of the C runtime: inside the installed package, or beside it in a checkout.

    Raises:
        UnsupportedError: If there is none.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "runtime_c", package.parent / "runtime_c"):
        if (folder / "kernels" / "kernels.def").is_file():
            return folder
    raise UnsupportedError(
        "the sources of the C runtime are missing", where=str(package), expected="a folder runtime_c",
        hint="Install tinycomp from a wheel, or work in a checkout.",
    )  # fmt: skip


@functools.cache
def _header_by_entry() -> Mapping[str, str]:
    """Return the header of each kernel, and of the functions beside it, relative to the runtime's folder."""
    root = runtime_folder()
    bodies = _INCLUDE.findall((root / "kernels" / "kernels.def").read_text(encoding="utf-8"))
    texts = {f"kernels/{name}": (root / "kernels" / name).read_text(encoding="utf-8") for name in bodies}
    return {entry: name for name, text in texts.items() for entry in _ENTRY.findall(text)}


def headers_of(kernels: Iterable[str]) -> list[str]:
    """Return the headers that define some kernels, relative to the runtime's folder, each once."""
    return sorted({_header_by_entry()[kernel] for kernel in kernels})


def files_of(kernels: Iterable[str], vocabulary: Iterable[str], is_sized: bool = False) -> dict[str, str]:
    """Return the text of every file that some kernels need, by its path relative to the runtime's folder.

    Args:
        kernels: Names of kernels.
        vocabulary: The ``simd_*.h`` files of the instruction set in use, to which all others are left out.
        is_sized: Whether calls depend on the sizes of a run.
    """
    root = runtime_folder()
    chosen = {f"src/{name}" for name in vocabulary}
    files: dict[str, str] = {}
    waiting = [*headers_of(kernels), *sorted(chosen), "src/vocabulary.h", _BESIDE, _ALONE[is_sized]]
    while waiting:
        name = waiting.pop()
        if name in files or (name.startswith("src/simd_") and name not in chosen):
            continue
        files[name] = (root / name).read_text(encoding="utf-8")
        if not name.endswith(".def"):  # only its rows are read there, not the bodies of all kernels
            waiting += [_resolved(root, name, included) for included in _INCLUDE.findall(files[name])]
    return dict(sorted(files.items()))


def _resolved(root: Path, name: str, included: str) -> str:
    """Find an included file as a compiler does: beside the file that includes it, then in the folders it is told of."""
    for folder in ((root / name).parent, *(root / each for each in _FOLDERS)):
        path = (folder / included).resolve()
        if path.is_file():
            return path.relative_to(root.resolve()).as_posix()
    raise FileNotFoundError(f"{name} includes {included}, which is nowhere")
