"""Read inputs and calibration data from files or make them up, and write results into files."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from tinycomp import checking
from tinycomp.cli.exits import UsageError
from tinycomp.data import digits
from tinycomp.errors import did_you_mean
from tinycomp.memory.reading import read_regular, reading
from tinycomp.runtime.files import write_file
from tinycomp.runtime.spec import TensorSpec

SHIPPED = "digits"
"""Stands for the images in :mod:`tinycomp.data`."""
_BATCH = 20
_SUFFIXES = (".npy", ".npz")
_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06")
_ARRAYS, _MOST = "an .npy or .npz file without pickled objects", 1 << 40
_SHOWN = 200
_HINT = "Write it with numpy.save or numpy.savez."


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
        read = read_feeds(text, specs, defaults)
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
                "only arrays of numbers can be saved", where=f'output "{name}"',
                found=str(getattr(value, "dtype", type(value).__name__)),
                hint="Leave out --output, or use the Python interface.",
            )  # fmt: skip
    stored = io.BytesIO()
    np.savez(stored, **outputs)
    write_file(path, stored.getvalue())


def read_feeds(text: str, specs: Sequence[TensorSpec], defaults: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Read ``name=file.npy``, ``file.npy`` for the only input, or ``file.npz``.

    Args:
        text: What is given.
        specs: What the model takes.
        defaults: Names of inputs that have a value of their own.

    Raises:
        UsageError: If the file cannot be read, it holds arrays of other names, or it does not say for which of several
            inputs it is.
    """
    name, equals, file = text.partition("=")
    if not equals:
        name, file = "", text
    known = {spec.name: spec for spec in specs}
    with _reading(file):
        data = read_regular(file, _MOST)
        if data.startswith(_ARCHIVES):
            if name:
                raise UsageError("an .npz file holds several inputs", where=text, hint=f"Write --input {file}.")
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return _members(archive, file, known)
        needed = [spec.name for spec in specs if spec.name not in defaults]
        if not name and len(needed) != 1:
            raise UsageError(
                "which input is this?", where=file, expected=f"one of {', '.join(needed)}",
                hint=f"Write --input NAME={file}.",
            )  # fmt: skip
        name = name or needed[0]
        _refuse_unknown(name, known, file)
        return {name: _array(io.BytesIO(data), known[name])}


def _members(archive: zipfile.ZipFile, file: str, known: Mapping[str, TensorSpec]) -> dict[str, np.ndarray]:
    """Return the arrays of an archive by the names of its members, of which none is read before all are known."""
    members = dict[str, str]()
    for member in archive.namelist():
        name = member.removesuffix(".npy")
        _refuse_unknown(name, known, file)
        if name in members:
            raise UsageError("two arrays have one name", where=f'{file}, "{name}"', hint=_HINT)
        members[name] = member
    arrays = dict[str, np.ndarray]()
    for name, member in members.items():
        with _reading(f'{file}, "{name}"'), archive.open(member) as stored:
            arrays[name] = _array(stored, known[name])
    return arrays


def _refuse_unknown(name: str, known: Collection[str], file: str) -> None:
    if name not in known:
        raise UsageError(
            f'the model has no input "{name[:_SHOWN]}"', where=file,
            expected=f"arrays for {', '.join(known) or 'nothing'}", hint=did_you_mean(name, known),
        )  # fmt: skip


def _array(file: IO[bytes], spec: TensorSpec) -> np.ndarray:
    """Return the array that a file holds, and nothing else; the end is read, where an archive compares checksums."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is an error, or read all the same
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):
        raise ValueError(f"more bytes than an array of {array.dtype} and shape {array.shape} has")
    wanted = spec.numpy_dtype
    if array.dtype.kind == "V" and wanted is not None and array.dtype == f"V{wanted.itemsize}" and wanted.kind == "V":
        return array.view(wanted)  # numpy writes the dtypes of ml_dtypes as bytes without a name
    return array


def _reading(where: str) -> contextlib.AbstractContextManager[None]:
    return reading(UsageError, where, _ARRAYS, problem="cannot be read as arrays", hint=_HINT)


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
