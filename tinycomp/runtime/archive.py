"""The container of saved modules and dumps: a zip file with JSON, text and raw arrays; no pickle, nothing that runs.

Members: ``manifest.json`` (format version, and what the module is), texts, ``arrays.safetensors`` with every array as
bytes, stored once per content, ``native.bin``, the records of their programs (:mod:`.native.module_records`), and
``checksums.json``, those of all others. Programs name kernels, not machine code, so a file works on every processor
that tinycomp runs on. Nothing is compressed, so that a file that is read is mapped and its arrays are views of it. The
checksums are those that a zip file has of each member, which are computed once and compared with both lists: they tell
of damage and of edits, not of malice, against which everything is validated.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.errors import ArtifactError
from tinycomp.memory.constants import ALIGNMENT, Place, place_of
from tinycomp.memory.mapped import map_file, mapping_of
from tinycomp.memory.reading import reading
from tinycomp.memory.system import open_regular
from tinycomp.records import dataclass, field
from tinycomp.runtime.forms import COUNT, DAMAGED, check_form
from tinycomp.runtime.manifest import ARCHIVE
from tinycomp.runtime.native.module_records import MEMBER, Recorded, Recorder, read_records
from tinycomp.runtime.native.program import Array
from tinycomp.runtime.spec import TensorSpec

FORMAT = 7
"""Version of the file format; raised when an older reader could misread a newer file."""
_ZIP_HEADER = 30
_SIZES_64 = 20
"""Bytes of the extra field of a zip file's header with sizes of 64 bits."""
_FILLING = 0xD935
"""What the extra field of a zip file is called that aligns what follows, as zipalign writes it."""
_ASCII: dict[str, Any] = {"metadata_encoding": "ascii"} if sys.version_info >= (3, 11) else {}
_MANIFEST, _ARRAYS, _CHECKSUMS = "manifest.json", "arrays.safetensors", "checksums.json"


@dataclass
class Archive:
    """Hold the contents of a saved module, as plain data.

    Attributes:
        manifest: JSON-able description.
        texts: Further texts by member name.
        arrays: Arrays by key.
        record: The records of programs that are written; see :mod:`.native.module_records`.
        fingerprint: Of a file that was read, what :func:`fingerprint` says of it.
    """

    manifest: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    record: Recorder = field(default_factory=Recorder)
    fingerprint: str = ""
    _read: bytes = b""
    _stored: dict[Place, tuple[Array, str]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def store(self, array: Array) -> str:
        """Add an array and return its key; equal arrays share one."""
        place = place_of(array)
        if place not in self._stored:  # the array is kept, so that nothing else can come to lie there
            self._stored[place] = array, self._add(array)
        return self._stored[place][1]

    def _add(self, array: Array) -> str:
        digest = hashlib.sha256(f"{_dtype_text(array)}{array.shape}".encode())
        digest.update(_payload(array).data)
        key = digest.hexdigest()[:32]
        self.arrays.setdefault(key, array)
        return key

    def array(self, key: str) -> Array:
        """Return a stored array.

        Raises:
            ArtifactError: If there is none with this key.
        """
        if key not in self.arrays:
            raise ArtifactError(f'the array "{key}" is missing', hint=DAMAGED)
        return self.arrays[key]

    def recorded(self) -> Recorded:
        """Return the programs of a file that was read, and how they make up a module.

        Raises:
            ArtifactError: If the records are damaged.
        """
        return read_records(self._read, self.array)

    def to_bytes(self) -> bytes:
        """Return the file's contents."""
        import safetensors.numpy  # imported here: few programs save

        described = {k: {"dtype": _dtype_text(a), "shape": list(a.shape)} for k, a in self.arrays.items()}
        manifest = {**self.manifest, "format": FORMAT, "arrays": described}
        members = {_MANIFEST: json.dumps(manifest).encode()}
        members |= {name: text.encode() for name, text in self.texts.items()}
        payloads = {k: _payload(a) for k, a in self.arrays.items()}
        members[_ARRAYS] = safetensors.numpy.save({k: _padded(p) for k, p in payloads.items()})
        body, places = _places(np.frombuffer(members[_ARRAYS], np.uint8))
        members[MEMBER] = self.record.to_bytes({k: (begin, payloads[k].size) for k, (begin, _) in places.items()})
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
            for name, data in members.items():
                info = zipfile.ZipInfo(name)
                if name == _ARRAYS:
                    info.extra = _filling(buffer.tell() + _ZIP_HEADER + len(name) + _SIZES_64 + len(data) - body.size)
                with file.open(info, "w", force_zip64=name == _ARRAYS) as member:
                    member.write(data)
            file.writestr(zipfile.ZipInfo(_CHECKSUMS), json.dumps(_checksums(file)))
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes | NDArray[np.uint8], where: str = "saved module") -> Archive:
        """Read and check a file's contents, of which the arrays become views.

        Raises:
            ArtifactError: If it is not a saved module, is damaged, or has another format version.
        """
        contents = np.frombuffer(data, np.uint8)
        mapping = mapping_of(contents)  # which the module within a module is only a part of
        is_whole = mapping is not None and len(mapping) == contents.size
        stream: Any = mapping if is_whole else io.BytesIO(contents.tobytes())
        hint = "Save the module again with module.save(path); a model is compiled, tinycomp.compile(path)."
        with reading(ArtifactError, where, problem="this is not a saved module, or it is damaged", hint=hint):
            with _opened(stream) as file:
                members, digest = _members(file, contents), _fingerprint(file, contents.size)
                checksums = _checksums(file)
            manifest = json.loads(members.pop(_MANIFEST).tobytes())
            version = manifest["format"]
        if version != FORMAT:
            raise ArtifactError(
                "the file has another format version",
                where=where,
                expected=str(FORMAT),
                found=str(version),
                hint="Compile the model again with this version of tinycomp.",
            )
        with reading(ArtifactError, where, problem="the checksums are damaged"):
            written = json.loads(members.pop(_CHECKSUMS).tobytes())
        check_form(written, {str: COUNT}, f"{where}, {_CHECKSUMS}")
        if others := written.items() ^ checksums.items():
            raise ArtifactError(
                "members are missing, unknown or edited", where=where, expected=f"those that {_CHECKSUMS} names",
                found=", ".join(sorted({name for name, _ in others})), hint=DAMAGED,
            )  # fmt: skip
        check_form(manifest, ARCHIVE, where)
        with reading(ArtifactError, where, problem="the contents are damaged"):
            arrays = _read_arrays(members.pop(_ARRAYS), manifest["arrays"])
            records = members.pop(MEMBER).tobytes()
            texts = {name: text.tobytes().decode() for name, text in members.items()}
            return cls(manifest, texts, arrays, fingerprint=digest, _read=records)


def read_archive(source: str | PathLike[str] | bytes) -> Archive:
    """Read a saved module from a path, or from its bytes.

    Raises:
        ArtifactError: If there is no such file, or it is not a saved module.
    """
    if isinstance(source, bytes):
        return Archive.from_bytes(source)
    return Archive.from_bytes(map_path(source), str(source))


def fingerprint(data: bytes) -> str:
    """Return a hash of the names, places, sizes and checksums of the members of an archive, without reading these.

    Raises:
        ArtifactError: If it is no archive.
    """
    with reading(ArtifactError, problem="the archive is damaged"), _opened(io.BytesIO(data)) as file:
        return _fingerprint(file, len(data))


def _opened(stream: Any) -> zipfile.ZipFile:
    """Open an archive for reading, without importing the encoding that names in zip files have by default."""
    return zipfile.ZipFile(stream, **_ASCII)


def _checksums(file: zipfile.ZipFile) -> dict[str, int]:
    return {each.filename: each.CRC for each in file.infolist() if each.filename != _CHECKSUMS}


def _fingerprint(file: zipfile.ZipFile, size: int) -> str:
    members = [(each.filename, each.header_offset, each.file_size, each.CRC) for each in file.infolist()]
    return hashlib.sha256(f"{size} {members}".encode("utf-8", "surrogatepass")).hexdigest()


def map_path(path: str | PathLike[str]) -> NDArray[np.uint8]:
    """Return the contents of a file, mapped into memory.

    Raises:
        ArtifactError: If it cannot be read.
    """
    with reading(ArtifactError, path, "a saved module"), os.fdopen(open_regular(path), "rb") as file:
        return map_file(file, Path(path).absolute())


def _members(file: zipfile.ZipFile, data: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
    """Return views of all members, which are stored as they are: together they are never larger than the file."""
    infos = file.infolist()
    if len({info.filename for info in infos}) < len(infos):
        raise ValueError("two members have one name")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f'the member "{info.filename}" is compressed')
    if sum(info.file_size for info in infos) > data.size:
        raise ValueError("the members claim to be larger than the file")
    return {info.filename: _member(info, data) for info in infos}


def _member(info: zipfile.ZipInfo, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the contents of a member, which lie behind a header of 30 bytes, its name, and extra fields."""
    header = data[info.header_offset : info.header_offset + _ZIP_HEADER].tobytes()
    if len(header) < _ZIP_HEADER or header[:4] != b"PK\x03\x04":
        raise ValueError(f'the member "{info.filename}" has no header')
    start = info.header_offset + _ZIP_HEADER + sum(struct.unpack("<HH", header[26:]))
    if start + info.file_size > data.size:
        raise ValueError(f'the member "{info.filename}" is cut off')
    contents = data[start : start + info.file_size]
    if zlib.crc32(contents.data) != info.CRC:
        raise ValueError(f'the checksum of the member "{info.filename}" is wrong')
    return contents


def _read_arrays(data: NDArray[np.uint8], described: Mapping[str, Mapping[str, Any]]) -> dict[str, Array]:
    raw = _tensors(data)
    arrays = {}
    for key, about in described.items():
        shape = tuple(about["shape"])
        if about["dtype"] == "string":
            texts = json.loads(raw[key].tobytes())
            arrays[key] = np.array([str(t) for t in texts], dtype=object).reshape(shape)
        else:
            dtype = TensorSpec("", about["dtype"], ()).numpy_dtype
            if dtype is None:
                raise ValueError(f"unknown dtype {about['dtype']}")
            arrays[key] = raw[key][: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
    return arrays


def _tensors(data: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
    """Return the tensors of a safetensors file as views."""
    body, places = _places(data)
    return {name: body[begin:end] for name, (begin, end) in places.items()}


def _places(data: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], dict[str, tuple[int, int]]]:
    """Return the bytes of all tensors of a safetensors file, and where each begins and ends among them.

    The file is the length of a JSON header, the header, then all bytes.
    """
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    if length > data.size - 8:
        raise ValueError(f"a header of {length} bytes")
    header, body = json.loads(data[8 : 8 + length].tobytes()), data[8 + length :]
    places = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = (int(offset) for offset in about["data_offsets"])
        if about["dtype"] != "U8" or not 0 <= begin <= end <= body.size:
            raise ValueError(f'the tensor "{name}" does not lie in the file')
        places[name] = (begin, end)
    return body, places


def _dtype_text(array: Array) -> str:
    return "string" if array.dtype.kind == "O" else array.dtype.name


def _filling(place: int) -> bytes:
    """Return an extra field of a zip file, without which the arrays of a mapped file would begin at this place.

    With it, they begin at a multiple of what kernels read constants at, so that none of them has to be copied.
    """
    return struct.pack("<HH", _FILLING, size := -(place + 4) % ALIGNMENT) + bytes(size)


def _padded(payload: Array) -> Array:
    """Return bytes that end where the next array may begin; spaces, which may follow texts in JSON."""
    return np.pad(payload, (0, -payload.size % ALIGNMENT), constant_values=ord(" "))


def _payload(array: Array) -> Array:
    """Return the elements as a flat array of bytes."""
    if array.dtype.kind == "O":
        return np.frombuffer(json.dumps([str(t) for t in array.reshape(-1)]).encode(), np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
