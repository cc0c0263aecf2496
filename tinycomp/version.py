"""Which tinycomp this is, for files, keys of caches and what the command line says: its version and its very files."""

from __future__ import annotations

import array
import functools
import os
import time
from pathlib import Path
from typing import NamedTuple

STARTED = time.time()
"""When the package was imported; what has changed since then may or may not be what this process runs."""


@functools.cache
def installed_version() -> str:
    """Return the version, or an empty text for a checkout that is not installed."""
    from importlib import metadata  # not before: it takes longer than to load a small module

    try:
        return metadata.version("tinycomp")
    except metadata.PackageNotFoundError:
        return ""


class Stamp(NamedTuple):
    """Identify the files of a package without reading them.

    Attributes:
        digest: Hash of names, sizes and times.
        newest: When a file of it was last written or put there, in seconds since the epoch.
    """

    digest: str
    newest: float


APART = frozenset({"cli", "data", "export_c", "generation", "quantization", "scoring", "serving"})
"""Parts of tinycomp that the compiler does not import."""


@functools.cache
def own_stamp() -> Stamp:
    """Return the stamp of tinycomp itself as it was when that was first asked for in this process.

    An installer writes a list of what it has installed, which stands for all of it; the files of a checkout are looked
    at themselves, but for the parts that compiling does not need.
    """
    package = Path(__file__).absolute().parent
    for name in os.listdir(package.parent):  # noqa: PTH208 - names are enough
        record = package.parent / name / "RECORD"
        if name.startswith("tinycomp-") and name.endswith(".dist-info") and record.is_file():
            return stamp_of(record)
    return stamp_of(package, APART)


def stamp_of(place: Path, apart: frozenset[str] = frozenset()) -> Stamp:
    """Return the stamp of a package: of its sources and libraries in a folder and those inside it, or of one file.

    Folders whose name is in ``apart`` are left out.

    Times tell versions apart that have one size. The time of the last change of an inode cannot be set, so that
    archives and images whose files all have one date are told apart, too.

    Raises:
        OSError: If it cannot be looked at.
    """
    found: list[tuple[str, int, int, int]] = []
    folders = [str(place)] if place.is_dir() else []
    if not folders:
        info = place.stat()
        found.append((str(place), info.st_size, info.st_mtime_ns, info.st_ctime_ns))
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(_CODE):
                    info = entry.stat()
                    found.append((entry.path, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
                elif "." not in name and name != "__pycache__" and name not in apart and entry.is_dir():
                    folders.append(entry.path)
    return _stamp(found)


_CODE = (".py", ".so", ".pyd", ".dll", ".dylib")


def _stamp(found: list[tuple[str, int, int, int]]) -> Stamp:
    import hashlib  # not before: OpenSSL is a third of what importing the package takes

    newest = max([max(written, changed) for _, _, written, changed in found], default=0)
    found.sort()
    digest = hashlib.sha256("\0".join([path for path, *_ in found]).encode("utf-8", "surrogatepass"))
    digest.update(array.array("q", [number for _, *numbers in found for number in numbers]).tobytes())
    return Stamp(digest.hexdigest(), newest / 1e9)
