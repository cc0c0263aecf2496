"""The folders where what code generators made is kept: safe against races, damage, and other users.

An entry is ``<key>.json``, which describes it, and the file that this names: a shared object, a blob, or a saved
module. That file's name contains a checksum of its contents, so two processes that make the same entry never overwrite
each other's halves; both files come into being under another name and are then renamed. What is in the folder is
executed or runs as it stands, so a folder that someone else owns or may write to is not used at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinycomp.errors import OptionError, TinycompWarning
from tinycomp.memory.constants import VARIABLE, cache_folder
from tinycomp.memory.mapped import map_file
from tinycomp.memory.system import HAS_OWNERS, open_folder, open_regular
from tinycomp.records import dataclass, field
from tinycomp.runtime.archive import fingerprint
from tinycomp.runtime.files import PARTIAL, write_file

_T = TypeVar("_T")

FORMAT = 1
_MODE = 0o600
"""Nobody else has to read what is kept."""
_ABANDONED = 3600
"""Seconds after which a file that belongs to no entry is not one that is just being written."""
_LENGTH = 32
"""Characters of a checksum in the name of a file."""
LIMIT_VARIABLE = "TINYCOMP_CACHE_LIMIT"
"""The environment variable that says how many bytes compiled modules may take."""
LIMIT = 10_000_000_000
"""How many they may take by default: some twenty models of BERT's size in float32, and a small part of a usual disk."""


@dataclass(frozen=True)
class Entry:
    """Describe a region or a module in the cache.

    Attributes:
        key: Hash of everything that went into it.
        target: Name of the target, or of several.
        region: Symbol of the region, or name of the model.
        bytes: Size of what is kept.
        used: When it was last used, in seconds since the epoch.
        file: The name of the file with it.
        depends_on: Checksums of files that it was made of besides what the key stands for, by name.
    """

    key: str
    target: str
    region: str
    bytes: int
    used: float
    file: str
    depends_on: Mapping[str, str] = field(default_factory=dict)


class UnsafeFolderError(OSError):
    """Somebody else could change what is in the folder."""


class Cache:
    """Keep what code generators made, by key, in a folder that need not exist yet.

    Args:
        folder: The folder.
        suffix: The ending of the files beside the descriptions.
        what: What to call its contents in warnings.
    """

    def __init__(self, folder: Path, suffix: str, what: str) -> None:
        self.folder, self._suffix, self._what = folder, suffix, what

    def is_usable(self) -> bool:
        """Prepare the folder; answer whether that succeeded, and warn if not."""
        try:
            self.prepare()
        except OSError as error:
            self._warn(error)
            return False
        return True

    def keep(
        self, key: str, data: bytes, target: str, region: str, depends_on: Mapping[str, str] | None = None
    ) -> None:
        """Put bytes into the cache, or warn that it takes none."""
        try:
            self.store(key, data, target, region, depends_on)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        warnings.warn(f"{self._what} is not kept: {error}", TinycompWarning, stacklevel=3)

    def prepare(self) -> None:
        """Make the folder if it is not there, and see that nobody else can write to it.

        Raises:
            UnsafeFolderError: If somebody else can.
            OSError: If it cannot be made.
        """
        for folder in reversed([self.folder, *self.folder.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        check_folder(self.folder)

    def find(self, key: str) -> bytes | None:
        """Return the bytes of an entry, or None if there is none or it is damaged."""

        def take(entry: Entry, file: int) -> bytes | None:
            data = _contents(file)
            return data if entry.file == self._name(key, data) else None

        found = self._found(key, take)
        return None if found is None else found[1]

    def store(
        self, key: str, data: bytes, target: str, region: str, depends_on: Mapping[str, str] | None = None
    ) -> None:
        """Put bytes into the cache.

        Raises:
            WriteError: If it cannot be written.
        """
        name = self._name(key, data)
        about: dict[str, Any] = {"format": FORMAT, "target": target, "region": region, "bytes": len(data), "file": name}
        if depends_on:
            about["depends_on"] = dict(depends_on)
        for path, contents in ((self.folder / name, data), (self.folder / f"{key}.json", json.dumps(about).encode())):
            _make_way(path)
            write_file(path, contents, _MODE)

    def entry(self, key: str) -> Entry | None:
        """Return an entry; None if there is none, or its description is damaged."""
        try:
            with _opened(self.folder) as folder:
                return self._read(self.folder / f"{key}.json", folder)
        except OSError:
            return None

    def _found(self, key: str, take: Callable[[Entry, int], _T | None]) -> tuple[Entry, _T] | None:
        """Return an entry, and what ``take`` makes of it and its open file; None if it is not there or damaged."""
        try:
            with _opened(self.folder) as folder:
                entry = self._read(self.folder / f"{key}.json", folder)
                if entry is None:
                    return None
                with _own_file(entry.file, folder, self.folder / entry.file) as (file, _):
                    data = take(entry, file)
            if data is None:
                return None
            with contextlib.suppress(OSError):  # a cache that is only readable serves too
                os.utime(self.folder / f"{key}.json")
            return entry, data
        except OSError:
            return None

    def place(self, key: str, data: bytes) -> Path:
        """Return where :meth:`store` puts bytes."""
        return self.folder / self._name(key, data)

    def entries(self) -> list[Entry]:
        """Return all entries, the one used last first.

        Raises:
            OSError: If the folder is there and cannot be read.
        """
        if not self.folder.exists():
            return []
        with _opened(self.folder) as folder:
            read = [self._read(path, folder) for path in self.folder.glob("*.json")]
        found = [entry for entry in read if entry is not None]
        return sorted(found, key=lambda entry: -entry.used)

    def prune(self, older_than: float = 0.0, limit: int | None = None) -> list[Entry]:
        """Remove entries that were not used for so many seconds, and what no entry needs; return the entries.

        Modules that run already keep what they loaded.

        Args:
            older_than: The seconds; infinite to remove none for that.
            limit: Bytes that the entries may take that are left; those used longest ago go first.

        Raises:
            OSError: If the folder cannot be read or written.
        """
        now = time.time()
        entries, old, size = self.entries(), [], 0
        for entry in entries:
            size += entry.bytes
            if now - entry.used >= older_than or (limit is not None and size > limit):
                old.append(entry)
        for entry in old:
            (self.folder / f"{entry.key}.json").unlink(missing_ok=True)
            (self.folder / entry.file).unlink(missing_ok=True)
        kept = {name for e in entries if e not in old for name in (f"{e.key}.json", e.file)}
        for path in self._files():
            everything = older_than <= 0 and path.suffix != PARTIAL
            if path.name not in kept and (everything or now - path.stat().st_mtime >= _ABANDONED):
                path.unlink(missing_ok=True)
        return old

    def _name(self, key: str, data: bytes) -> str:
        """Return the name of the file with these bytes."""
        return f"{key}-{self._checksum(data)[:_LENGTH]}{self._suffix}"

    def _checksum(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def _files(self) -> Iterator[Path]:
        if self.folder.exists():
            yield from (
                p for p in self.folder.iterdir() if p.suffix in {self._suffix, ".json", PARTIAL} and p.is_file()
            )

    def _read(self, path: Path, folder: int | None) -> Entry | None:
        """Return what a description says; None if it is damaged or of another version."""
        try:
            with _own_file(path.name, folder, path) as (descriptor, status):
                about = json.loads(_contents(descriptor))
            file = str(about["file"])
            if about["format"] != FORMAT or not file.startswith(f"{path.stem}-") or Path(file).name != file:
                return None
            depends_on = {str(name): str(checksum) for name, checksum in about.get("depends_on", {}).items()}
            target, region, size = str(about["target"]), str(about["region"]), int(about["bytes"])
            return Entry(path.stem, target, region, size, status.st_mtime, file, depends_on)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


class CCache(Cache):
    """The cache of compiled C source.

    Args:
        folder: By default ``c`` in the folder that ``TINYCOMP_CACHE`` names, or else in the user's cache folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(default_folder() if folder is None else folder, ".so", "compiled C source")


class BlobCache(Cache):
    """The cache of the blobs that code generators return.

    Args:
        folder: By default ``blobs`` in the folder that ``TINYCOMP_CACHE`` names, or else in the user's cache folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(cache_folder() / "blobs" if folder is None else folder, ".blob", "a blob")


class ModuleCache(Cache):
    """The cache of compiled modules, in the form of saved ones.

    They may be large, so they are mapped and not copied, and the checksum in their names is that of the archive's
    directory: it covers the checksums of the members, which are compared when the archive is read.

    Args:
        folder: By default ``modules`` in the folder that ``TINYCOMP_CACHE`` names, or else in the user's cache folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(cache_folder() / "modules" if folder is None else folder, ".tcm", "a compiled module")

    def mapped(self, key: str, is_current: Callable[[Entry], bool]) -> tuple[Path, NDArray[np.uint8]] | None:
        """Return the file of an entry and its contents, which are still to be compared with their checksums.

        Args:
            key: The key.
            is_current: Tells whether what the entry depends on is still as it was.

        Returns:
            The path, and the contents, mapped; None if there is no such entry. Once the archive is read, :meth:`names`
            tells whether it is what the entry was made of.
        """
        found = self._found(
            key, lambda entry, file: map_file(file, self.folder / entry.file) if is_current(entry) else None
        )
        return None if found is None else (self.folder / found[0].file, found[1])

    def names(self, path: Path, fingerprint: str) -> bool:
        """Tell whether the name of a file is that of an archive with this fingerprint."""
        return path.stem.endswith(f"-{fingerprint[:_LENGTH]}")

    def store(
        self, key: str, data: bytes, target: str, region: str, depends_on: Mapping[str, str] | None = None
    ) -> None:
        """Put a module into the cache, and remove those used longest ago if they all take more than they may.

        Raises:
            WriteError: If it cannot be written.
            OSError: If it takes more than all may by itself, or others cannot be removed.
        """
        limit = size_limit()
        if len(data) > limit:
            raise OSError(f"it takes {len(data)} bytes, and all may take {limit}; {LIMIT_VARIABLE} says how many")
        super().store(key, data, target, region, depends_on)
        self.prune(float("inf"), limit)

    def _checksum(self, data: bytes) -> str:
        return fingerprint(data)


def size_limit() -> int:
    """Return how many bytes compiled modules may take: what ``TINYCOMP_CACHE_LIMIT`` says, or 10 GB.

    Raises:
        OptionError: If it says no number.
    """
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if text and not (text.isascii() and text.isdigit()):
        raise OptionError(
            "not a number of bytes", where=LIMIT_VARIABLE, expected="a whole number, such as 10000000000", found=text
        )
    return int(text) if text else LIMIT


def default_folder() -> Path:
    """Return the folder for compiled C source, unless another is asked for."""
    return cache_folder() / "c"


def check_folder(folder: Path) -> None:
    """See that only this user can put files into ``folder``, and nobody else can put another folder in its place.

    Raises:
        UnsafeFolderError: Otherwise; it says what is wrong and how to mend it.
        OSError: If the folder cannot be looked at.
    """
    with _opened(folder):
        pass


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """Open a folder, and before it all those above, each from the one before it, and check every one as it was opened.

    Yields:
        A descriptor; None where the user's own folders are protected by access lists, which ``stat`` does not show.

    Raises:
        UnsafeFolderError: If somebody else could change what is in it.
        OSError: If it cannot be opened.
    """
    if not HAS_OWNERS:
        yield None
        return
    resolved = folder.resolve(strict=True)
    opened: list[int] = []
    try:
        for index, name in enumerate(resolved.parts):
            opened.append(open_folder(name, opened[-1] if opened else None))
            place = Path(*resolved.parts[: index + 1])
            _check_owner(os.fstat(opened[-1]), place, resolved)
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _check_owner(status: os.stat_result, place: Path, folder: Path) -> None:
    """Refuse a folder that another user owns or may write to; above ``folder`` root and sticky ones are fine."""
    own = place == folder
    mine = (os.geteuid(),) if own else (os.geteuid(), 0)
    if status.st_uid not in mine:
        raise UnsafeFolderError(f"{place} belongs to user {status.st_uid}; set {VARIABLE} to a folder of your own")
    open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if own and open_to_others:
        raise UnsafeFolderError(f"others may write to {place}; run chmod go-w on it, or set {VARIABLE}")
    if open_to_others and not status.st_mode & stat.S_ISVTX:
        raise UnsafeFolderError(f"others may write to {place}, and so replace {folder}; run chmod go-w on it")


@contextlib.contextmanager
def _own_file(name: str, folder: int | None, path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open an entry's file, which must be this user's own, for a while.

    Yields:
        A descriptor, and what is known of the file.

    Raises:
        OSError: If it cannot be opened, or is somebody else's.
    """
    descriptor = open_regular(path if folder is None else name, folder, links=False)
    try:
        status = os.fstat(descriptor)
        if folder is not None and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise UnsafeFolderError(f"{path} belongs to somebody else, or others may write to it")
        yield descriptor, status
    finally:
        os.close(descriptor)


def _make_way(path: Path) -> None:
    """Remove what would pass its permissions on to the file that takes its place, or is a link to another one."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if HAS_OWNERS and (not stat.S_ISREG(mode) or mode & (stat.S_IWGRP | stat.S_IWOTH)):
            path.unlink()


def _contents(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()
