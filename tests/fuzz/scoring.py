"""Damaged Parquet files: rows that are scored once each, or an error with the path."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzz.harness import Harness
from tests.scoring.damage import case, check


@functools.cache
def _folder() -> str:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return folder


def _check(seed: int) -> Counter[str]:
    return check(case(seed), _folder())


def _save(seed: int, folder: Path, stem: str) -> None:
    (folder / f"{stem}.parquet").write_bytes(case(seed))


HARNESS = Harness("scoring", _check, _save)
