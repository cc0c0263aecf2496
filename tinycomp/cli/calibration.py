"""Calibration data from files, one read at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tinycomp.cli.exits import UsageError
from tinycomp.cli.feeds import read_feeds
from tinycomp.data import digits
from tinycomp.runtime.spec import TensorSpec

SHIPPED = "digits"
"""Stands for the images in :mod:`tinycomp.data`."""
_BATCH = 20
_SUFFIXES = (".npy", ".npz")


class CalibrationFiles:
    """Inputs of a model from files, which can be gone through any number of times.

    Args:
        paths: ``.npy`` files with the only input of the model, ``.npz`` files with all inputs by name, folders of such
            files, or :data:`SHIPPED`.
        specs: What the model takes.

    Raises:
        UsageError: If there is no such file or folder, or a folder has none.
    """

    def __init__(self, paths: Sequence[str], specs: Sequence[TensorSpec]) -> None:
        self._specs = specs
        self._files = [file for path in paths for file in _files(path)]

    def __len__(self) -> int:
        """How many inputs there are."""
        return len(self._files)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read one after another.

        Raises:
            UsageError: If a file cannot be read.
        """
        for file in self._files:
            yield {self._specs[0].name: file} if not isinstance(file, Path) else read_feeds(str(file), self._specs)


def _files(path: str) -> list[Any]:
    if path == SHIPPED:
        images, _ = digits()
        return [images[start : start + _BATCH] for start in range(0, len(images), _BATCH)]
    place = Path(path)
    found = sorted(p for p in place.iterdir() if p.suffix in _SUFFIXES) if place.is_dir() else [place]
    if not found or not all(file.is_file() for file in found):
        raise UsageError(
            "there is no calibration data here", where=path, expected="an .npy or .npz file, or a folder of them",
            hint="Write one file per input with numpy.save, or numpy.savez where the model has several inputs.",
        )  # fmt: skip
    return list(found)
