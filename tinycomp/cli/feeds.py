"""Read inputs and calibration data from files or make them up, and write results into files."""

from __future__ import annotations

import dataclasses
import io
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinycomp import checking
from tinycomp.cli.exits import UsageError
from tinycomp.data import digits
from tinycomp.memory.reading import read_regular, reading
from tinycomp.runtime.files import write_file
from tinycomp.runtime.spec import TensorSpec

SHIPPED = "digits"
"""Stands for the images in :mod:`tinycomp.data`."""
_BATCH = 20
_SUFFIXES = (".npy", ".npz")
_ARRAYS, _MOST = "an .npy or .npz file without pickled objects", 1 << 40


def feeds_of(
    options: Namespace, specs: Sequence[TensorSpec], defaults: Collection[str] = (), *, default_seed: int | None = None
) -> dict[str, Any]:
    """Return the inputs that the options ask for, by name.

    Args:
        options: With ``input`` and ``random``.
        specs: What the model takes.
        defaults: Names of inputs that have a value of their own; none is made up for them.
        default_seed: Seed of made-up inputs if the options name no inputs at all; None makes that an error.

    Raises:
        UsageError: If a file cannot be read, an input is given twice, or no inputs are given.
    """
    needed = [spec for spec in specs if spec.name not in defaults]
    given: dict[str, Any] = {}
    for text in options.input:
        read = read_feeds(text, needed)
        for name in read.keys() & given.keys():
            raise UsageError("this input is given twice", where=f'input "{name}"', found=text, hint="Give it once.")
        given |= read
    seed = options.random if options.random is not None or options.input else default_seed
    if seed is not None:
        return random_feeds([s for s in needed if s.name not in given], seed) | given
    if not options.input and needed:
        raise UsageError(
            "no inputs are given",
            expected=", ".join(map(str, needed)),
            hint=f"Pass --input {needed[0].name}=FILE.npy for each, --input FILE.npz for all, or --random 0.",
        )
    return given


def random_feeds(specs: Sequence[TensorSpec], seed: int) -> dict[str, Any]:
    """Return made-up inputs: normal floats, small integers, and 1 for every size that is open.

    Raises:
        UsageError: If an input is not a tensor of numbers.
    """
    return checking.random_feeds([_concrete(spec) for spec in specs], seed)


def _concrete(spec: TensorSpec) -> TensorSpec:
    dtype = spec.numpy_dtype
    if dtype is None or dtype.kind == "O" or spec.shape is None:
        raise UsageError(
            "cannot make up values for this input", where=f'input "{spec.name}"', found=str(spec),
            hint=f"Pass --input {spec.name}=FILE.npy.",
        )  # fmt: skip
    return dataclasses.replace(spec, shape=tuple(d if isinstance(d, int) else 1 for d in spec.shape))


def save_outputs(path: Path, outputs: Mapping[str, Any]) -> None:
    """Write results into an ``.npz`` file, by name.

    Raises:
        UsageError: If one of them is not an array of numbers.
        WriteError: If there is no space or permission.
    """
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OV":
            raise UsageError(
                "only arrays of numbers can be saved", where=f'output "{name}"', found=type(value).__name__,
                hint="Leave out --output, or use the Python interface.",
            )  # fmt: skip
    stored = io.BytesIO()
    np.savez(stored, **outputs)
    write_file(path, stored.getvalue())


def read_feeds(text: str, specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Read ``name=file.npy``, ``file.npy`` for the only input, or ``file.npz``.

    Raises:
        UsageError: If the file cannot be read, or it does not say for which of several inputs it is.
    """
    name, equals, file = text.partition("=")
    if not equals:
        name, file = "", text
    loaded = _load(Path(file))
    if isinstance(loaded, dict):
        if name:
            raise UsageError("an .npz file holds several inputs", where=text, hint=f"Write --input {file}.")
        return loaded
    if not name and len(specs) != 1:
        raise UsageError(
            "which input is this?", where=file, expected=f"one of {', '.join(s.name for s in specs)}",
            hint=f"Write --input NAME={file}.",
        )  # fmt: skip
    return {name or specs[0].name: loaded}


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    hint = "Write it with numpy.save or numpy.savez."
    with reading(UsageError, path, _ARRAYS, problem="cannot be read as arrays", hint=hint):
        stored = np.load(io.BytesIO(read_regular(path, _MOST)), allow_pickle=False)
        if isinstance(stored, np.ndarray):
            return stored
        with stored:
            return dict(stored)


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
        """Count the inputs."""
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
    files = sorted(p for p in place.iterdir() if p.suffix in _SUFFIXES) if place.is_dir() else [place]
    if not files or not all(file.is_file() for file in files):
        raise UsageError(
            "there is no calibration data here", where=path, expected="an .npy or .npz file, or a folder of them",
            hint="Write one file per input with numpy.save, or numpy.savez where the model has several inputs.",
        )  # fmt: skip
    return list(files)
