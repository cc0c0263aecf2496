"""The container of saved modules and dumps: a zip file with JSON, text and raw arrays; no pickle, nothing that runs.

Members: ``manifest.json`` (format version, checksums of the others, and what the module is), texts, and
``arrays.safetensors`` with every array as bytes, stored once per content. Programs name kernels, not machine code, so
a file works on every processor that tinycomp runs on.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tinycomp.errors import ArtifactError
from tinycomp.runtime.program import Array
from tinycomp.runtime.spec import TensorSpec

FORMAT = 1
"""Version of the file format; raised when an older reader could misread a newer file."""
_MANIFEST, _ARRAYS = "manifest.json", "arrays.safetensors"


@dataclass
class Archive:
    """The contents of a saved module, as plain data.

    Attributes:
        manifest: JSON-able description.
        texts: Further texts by member name.
        arrays: Arrays by key.
    """

    manifest: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)

    def store(self, array: Array) -> str:
        """Add an array and return its key; equal arrays share one."""
        digest = hashlib.sha256(f"{_dtype_text(array)}{array.shape}".encode())
        digest.update(_payload(array).tobytes())
        key = digest.hexdigest()[:32]
        self.arrays.setdefault(key, array)
        return key

    def array(self, key: str) -> Array:
        """Return a stored array.

        Raises:
            ArtifactError: If there is none with this key.
        """
        if key not in self.arrays:
            raise ArtifactError(f'the array "{key}" is missing', hint="The file is damaged: save the module again.")
        return self.arrays[key]

    def to_bytes(self) -> bytes:
        """Return the file's contents."""
        described = {k: {"dtype": _dtype_text(a), "shape": list(a.shape)} for k, a in self.arrays.items()}
        members = {name: text.encode() for name, text in self.texts.items()}
        members[_ARRAYS] = safetensors.numpy.save({k: _payload(a) for k, a in self.arrays.items()})
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
        manifest = {**self.manifest, "format": FORMAT, "arrays": described, "sha256": sums}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
            for name, data in {_MANIFEST: json.dumps(manifest).encode(), **members}.items():
                file.writestr(zipfile.ZipInfo(name), data)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "saved module") -> Archive:
        """Read and check a file's contents.

        Raises:
            ArtifactError: If it is not a saved module, is damaged, or was written by a newer version.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                members = _read_members(file, len(data))
            manifest = json.loads(members.pop(_MANIFEST))
            found = manifest["format"]
        except (zipfile.BadZipFile, LookupError, ValueError, TypeError, EOFError, RuntimeError) as error:
            raise ArtifactError(
                "this is not a saved module, or it is damaged",
                where=where,
                found=f"{type(error).__name__}: {error}",
                hint="Save the module again with module.save(path).",
            ) from error
        if found != FORMAT:
            raise ArtifactError(
                "the file has another format version",
                where=where,
                expected=str(FORMAT),
                found=str(found),
                hint="Compile the model again with this version of tinycomp.",
            )
        _check_sums(manifest, members, where)
        try:
            arrays = _read_arrays(members.pop(_ARRAYS), manifest["arrays"])
            return cls(manifest, {name: text.decode() for name, text in members.items()}, arrays)
        except (KeyError, ValueError, TypeError, AttributeError, safetensors.SafetensorError) as error:
            raise ArtifactError("the contents are damaged", where=where, found=str(error)) from error


def read_archive(source: str | PathLike[str] | bytes) -> Archive:
    """Read a saved module from a path, or from its bytes.

    Raises:
        ArtifactError: If there is no such file, or it is not a saved module.
    """
    if isinstance(source, bytes):
        return Archive.from_bytes(source)
    return Archive.from_bytes(read_bytes(source), str(source))


def read_bytes(path: str | PathLike[str]) -> bytes:
    """Return the contents of a file.

    Raises:
        ArtifactError: If it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(
            f"cannot read the file: {error.strerror}", where=str(path), hint="Check the path."
        ) from error


def _read_members(file: zipfile.ZipFile, size: int) -> dict[str, bytes]:
    """Read all members, which are stored as they are: together they are never larger than the file."""
    members = file.infolist()
    for info in members:
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f'the member "{info.filename}" is compressed')
    if sum(info.file_size for info in members) > size:
        raise ValueError("the members claim to be larger than the file")
    return {info.filename: file.read(info) for info in members}


def _check_sums(manifest: Mapping[str, Any], members: Mapping[str, bytes], where: str) -> None:
    sums = manifest.get("sha256")
    if not isinstance(sums, dict) or sums.keys() != members.keys():
        raise ArtifactError("members are missing or unknown", where=where, found=", ".join(sorted(members)))
    for name, data in members.items():
        if hashlib.sha256(data).hexdigest() != sums[name]:
            raise ArtifactError(
                f'the checksum of "{name}" is wrong', where=where, hint="The file is damaged: save the module again."
            )


def _read_arrays(data: bytes, described: Mapping[str, Mapping[str, Any]]) -> dict[str, Array]:
    raw = safetensors.numpy.load(data)
    arrays = {}
    for key, about in described.items():
        shape = tuple(int(d) for d in about["shape"])
        if about["dtype"] == "string":
            texts = json.loads(raw[key].tobytes())
            arrays[key] = np.array([str(t) for t in texts], dtype=object).reshape(shape)
        else:
            dtype = TensorSpec("", str(about["dtype"]), ()).numpy_dtype
            if dtype is None:
                raise ValueError(f"unknown dtype {about['dtype']}")
            arrays[key] = raw[key].view(dtype).reshape(shape)
    return arrays


def _dtype_text(array: Array) -> str:
    return "string" if array.dtype.kind == "O" else array.dtype.name


def _payload(array: Array) -> Array:
    """The elements as a flat array of bytes."""
    if array.dtype.kind == "O":
        return np.frombuffer(json.dumps([str(t) for t in array.reshape(-1)]).encode(), np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
