"""The folders where what code generators made is kept: safe against races, damage, and other users.

An entry is ``<key>.json``, which describes it, and the file that this names: a shared object, or a blob. That file's
name contains the checksum of its bytes, so two processes that make the same entry never overwrite each other's halves;
both files come into being under another name and are then renamed. What is in the folder is executed, so a folder that
someone else owns or may write to is not used at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tinycomp.errors import TinycompWarning
from tinycomp.memory.constants import VARIABLE, cache_folder
from tinycomp.memory.system import HAS_OWNERS, open_folder, open_regular
from tinycomp.runtime.files import PARTIAL, write_file

FORMAT = 1
_MODE = 0o600
"""Nobody else has to read what is kept."""
_ABANDONED = 3600
"""Seconds after which a file that belongs to no entry is not one that is just being written."""


@dataclass(frozen=True)
class Entry:
    """Describe a region in the cache.

    Attributes:
        key: Hash of everything that went into it.
        target: Name of the target.
        region: Symbol of the region.
        bytes: Size of what is kept.
        used: When it was last used, in seconds since the epoch.
        file: The name of the file with it.
    """

    key: str
    target: str
    region: str
    bytes: int
    used: float
    file: str


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

    def keep(self, key: str, data: bytes, target: str, region: str) -> None:
        """Put bytes into the cache, or warn that it takes none."""
        try:
            self.store(key, data, target, region)
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
        try:
            with _opened(self.folder) as folder:
                entry = self._read(self.folder / f"{key}.json", folder)
                if entry is None:
                    return None
                data, _ = _read_own(entry.file, folder, self.folder / entry.file)
            if entry.file != self._name(key, data):
                return None
            with contextlib.suppress(OSError):  # a cache that is only readable serves too
                os.utime(self.folder / f"{key}.json")
            return data
        except OSError:
            return None

    def store(self, key: str, data: bytes, target: str, region: str) -> None:
        """Put bytes into the cache.

        Raises:
            WriteError: If it cannot be written.
        """
        name = self._name(key, data)
        about = {"format": FORMAT, "target": target, "region": region, "bytes": len(data), "file": name}
        write_file(self.folder / name, data, _MODE)
        write_file(self.folder / f"{key}.json", json.dumps(about).encode(), _MODE)

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

    def prune(self, older_than: float = 0.0) -> list[Entry]:
        """Remove entries that were not used for so many seconds, and what no entry needs; return the entries.

        Modules that run already keep what they loaded.

        Raises:
            OSError: If the folder cannot be read or written.
        """
        now = time.time()
        entries = self.entries()
        old = [entry for entry in entries if now - entry.used >= older_than]
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
        return f"{key}-{hashlib.sha256(data).hexdigest()[:32]}{self._suffix}"

    def _files(self) -> Iterator[Path]:
        if self.folder.exists():
            yield from (
                p for p in self.folder.iterdir() if p.suffix in {self._suffix, ".json", PARTIAL} and p.is_file()
            )

    def _read(self, path: Path, folder: int | None) -> Entry | None:
        """Return what a description says; None if it is damaged or of another version."""
        try:
            text, status = _read_own(path.name, folder, path)
            about = json.loads(text)
            file = str(about["file"])
            if about["format"] != FORMAT or not file.startswith(f"{path.stem}-") or Path(file).name != file:
                return None
            used = status.st_mtime
            return Entry(path.stem, str(about["target"]), str(about["region"]), int(about["bytes"]), used, file)
        except (OSError, ValueError, KeyError, TypeError):
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


def _read_own(name: str, folder: int | None, path: Path) -> tuple[bytes, os.stat_result]:
    """Return the contents of an entry's file, which must be this user's own, and what is known of it.

    Raises:
        OSError: If it cannot be read, or is somebody else's.
    """
    descriptor = open_regular(path if folder is None else name, folder, links=False)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if folder is not None and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise UnsafeFolderError(f"{path} belongs to somebody else, or others may write to it")
        return file.read(), status
