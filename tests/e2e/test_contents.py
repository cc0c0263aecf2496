"""What files of a user may hold instead of what they should: one error with the file and the field, whatever it is."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tinycomp.cli.exits import UsageError
from tinycomp.cli.feeds import read_feeds
from tinycomp.driver.dump import read_dump
from tinycomp.errors import GenerationError, ModelError, TuningError
from tinycomp.generation.decoder import read_config
from tinycomp.generation.text import ByteTokenizer
from tinycomp.runtime.spec import TensorSpec
from tinycomp.targets.c.tuning.log import TuningLog

CONFIGS: dict[str, Any] = {
    "a number": (3, ": not the configuration of a decoder; expected an object; found 3"),
    "a list": ([], "expected an object; found []"),
    "a list for model": ({"model": []}, ", model: not the configuration of a decoder; expected an object"),
    "null for search": ({"search": None}, ", search: not the configuration"),
    "a text for decoder": ({"model": {"decoder": "x"}}, ", model.decoder: not the configuration"),
    "a number for a name": (
        {"model": {"decoder": {"inputs": {"input_ids": 3}}}},
        ", model.decoder.inputs.input_ids: not the configuration of a decoder; expected a text; found 3",
    ),
    "a list for a name": ({"model": {"decoder": {"outputs": {"logits": ["x"]}}}}, ", model.decoder.outputs.logits: "),
    "an object for a path": ({"model": {"decoder": {"filename": {}}}}, ", model.decoder.filename: "),
    "a text for a length": (
        {"model": {"context_length": "long"}}, ", model.context_length: not the configuration"
    ),
    "a length below zero": ({"model": {"context_length": -1}}, "expected a number of tokens; found -1"),
    "a length beyond range": ({"search": {"max_length": 10**30}}, ", search.max_length: "),
    "a text for a switch": ({"search": {"past_present_share_buffer": "no"}}, "expected true or false; found 'no'"),
    "a text for a token": ({"model": {"eos_token_id": "</s>"}}, ", model.eos_token_id: "),
    "a text among tokens": ({"model": {"eos_token_id": [1, "2"]}}, "expected a token or a list of tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_fields_of_a_configuration(name: str, tmp_path: Path) -> None:
    contents, message = CONFIGS[name]
    path = tmp_path / "genai_config.json"
    path.write_text(json.dumps(contents))
    with pytest.raises(GenerationError) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


READERS: dict[str, tuple[str, bytes, Callable[[Path], object], type[Exception], str]] = {
    "IR that is not UTF-8": ("x.tir", b"graph @\xff", read_dump, ModelError, "not a text file; expected tinycomp IR"),
    "JSON that is not UTF-8": ("c.json", b'{"\xff": 1}', read_config, GenerationError, "the file is damaged"),
    "JSON in JSON in JSON": ("c.json", b"[" * 200_000, read_config, GenerationError, "objects in objects, too deep"),
    "a log of something else": ("log", b"\xff\xfe\n{}", TuningLog.read, TuningError, "not a tuning log"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::tinycomp.errors.TinycompWarning")
@pytest.mark.parametrize("name", READERS)
def test_contents(name: str, tmp_path: Path) -> None:
    file, data, read, kind, message = READERS[name]
    (tmp_path / file).write_bytes(data)
    with pytest.raises(kind) as caught:
        read(tmp_path / file)
    assert file in str(caught.value)
    assert message in str(caught.value)


# Arrays ---------------------------------------------------------------------------------------------------------------

X = np.arange(6, dtype=np.float32).reshape(2, 3)
BRAIN = X.astype(ml_dtypes.bfloat16)
SPECS = (
    TensorSpec("x", "float32", ("n", 3)), TensorSpec("b/c", "float32", ("n", 3)), TensorSpec("h", "bfloat16", ("n", 3)),
)  # fmt: skip


def npy(value: Any = X, **options: Any) -> bytes:
    with io.BytesIO() as file:
        np.save(file, value, **options)
        return file.getvalue()


def header(
    text: str = "", data: bytes = X.tobytes(), version: int = 1, length: int | None = None, **entries: str
) -> bytes:  # fmt: skip
    """Return an array with another header, or with other entries in it, as they are written there."""
    fields = {"descr": "'<f4'", "fortran_order": "False", "shape": "(2, 3)"} | entries
    text = text or "{" + "".join(f"'{name}': {value}, " for name, value in fields.items() if value) + "}"
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes((version, 0)) + size.to_bytes(2 if version == 1 else 4, "little") + text.encode() + data


def zipped(members: dict[str, bytes] | list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", compression) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that are there twice
            for name, data in members.items() if isinstance(members, dict) else members:
                archive.writestr(name, data)
        return file.getvalue()


WHOLE = zipped({"x.npy": npy()})


def changed(place: str, value: int, size: int = 2, data: bytes = WHOLE) -> bytes:
    """Return an archive with a number changed: in the header of its member, in the directory, or at its end."""
    signature, offset = {
        "local flags": (b"PK\3\4", 6), "flags": (b"PK\1\2", 8), "method": (b"PK\1\2", 10), "crc": (b"PK\1\2", 16),
        "stored": (b"PK\1\2", 20), "size": (b"PK\1\2", 24), "name": (b"PK\1\2", 28), "offset": (b"PK\1\2", 42),
        "local name": (b"PK\3\4", 26), "local extra": (b"PK\3\4", 28),
        "entries": (b"PK\5\6", 10), "directory": (b"PK\5\6", 12), "start": (b"PK\5\6", 16),
    }[place]  # fmt: skip
    at = data.index(signature) + offset
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def moved(data: bytes, name: bytes) -> bytes:
    return data.replace(b"x.npy", name, 1)


DEFLATED = zipped({"x.npy": npy(np.zeros((500, 3), np.float32))}, zipfile.ZIP_DEFLATED)
HEADERS: dict[str, tuple[bytes, str]] = {
    "no order": (header(descr="'f4'"), ""),
    "a name": (header(descr="'float32'"), ""),
    "big endian": (header(descr="'>f4'", data=X.astype(">f4").tobytes()), ""),
    "columns first": (header(fortran_order="True", data=X.tobytes("F")), ""),
    "version 2": (header(version=2), ""),
    "version 3": (header(version=3), ""),
    "of Python 2": (header(shape="(2L, 3L)"), ""),
    "version 0": (header(version=0), "we only support format version"),
    "version 4": (header(version=4), "we only support format version"),
    "objects": (npy(np.array([{}]), allow_pickle=True), "Object arrays cannot be loaded"),
    "objects in fields": (header(descr="[('a', '|O')]"), "Object arrays cannot be loaded"),
    "more elements": (header(shape="(1, 3)"), "more bytes than an array of float32 and shape (1, 3) has"),
    "elements of none": (header(shape="(0, 3)"), "more bytes than an array of float32 and shape (0, 3) has"),
    "half an element": (npy() + b"\0\0", "more bytes than"),
    "two arrays": (npy() + npy(), "more bytes than"),
    "fewer elements": (header(shape="(3, 3)"), "expected 36 bytes got 24"),
    "no elements": (header(data=b""), "expected 24 bytes got 0"),
    "a negative size": (header(shape="(-2, 3)"), "negative dimensions"),
    "two negative sizes": (header(shape="(-2, -3)"), "can only specify one unknown dimension"),
    "an unknown size": (header(shape="(-1, 3)"), "negative dimensions"),
    "a size of 2^62": (header(shape=f"({1 << 62}, 3)"), "found ValueError"),
    "a size of 2^63": (header(shape=f"({1 << 63}, 3)"), "found ValueError"),
    "a size of 10^30": (header(shape=f"({10**30}, 3)"), "found OverflowError"),
    "sizes that are 6 modulo 2^64": (header(shape=f"({(1 << 64) // 3 + 2}, 3)"), "cannot reshape"),
    "sizes that are 0 modulo 2^64": (header(shape=f"({1 << 32}, {1 << 32})"), "found ValueError"),
    "none of 2^62": (header(shape=f"(0, {1 << 62})", data=b""), "array is too big"),
    "a computed size": (header(shape="(1 << 60, 3)"), "malformed node"),
    "a fraction": (header(shape="(2.0, 3)"), "shape is not valid"),
    "a list of sizes": (header(shape="[2, 3]"), "shape is not valid"),
    "one size": (header(shape="6"), "shape is not valid"),
    "true as a size": (header(shape="(True, 3)", data=X[:1].tobytes()), "an integer is required"),
    "3000 sizes": (header(shape=str((1,) * 3000)), "maximum supported dimension"),
    "a number as dtype": (header(descr="3"), "descr is not a valid dtype"),
    "an unknown dtype": (header(descr="'<x4'"), "descr is not a valid dtype"),
    "an empty dtype": (header(descr="''"), "descr is not a valid dtype"),
    "a huge dtype": (header(descr="'<U1000000000'"), "descr is not a valid dtype"),
    "a dict as dtype": (header(descr="{'names': ['a'], 'formats': ['<f4']}"), "too many values to unpack"),
    "arrays of arrays": (header(descr="('<f4', (3,))", shape="(2,)"), "could only read 6 elements"),
    "empty arrays of arrays": (header(descr="('<f4', (0,))"), "could only read 0 elements"),
    "an order that is a number": (header(fortran_order="1"), "fortran_order is not a valid bool"),
    "one entry more": (header(x="1"), "does not contain the correct keys"),
    "one entry less": (header(fortran_order=""), "does not contain the correct keys"),
    "a list": (header("[]"), "Header is not a dictionary"),
    "code": (header("__import__('os').abort()"), "malformed node"),
    "code as an entry": (header(descr="__import__('os').abort()"), "malformed node"),
    "a zero byte": (header(descr="'<f4\0'"), "Cannot parse header"),
    "a header that does not end": (header("{'descr': "), "TokenError"),
    "a deep header": (header("-" * 5000 + "1"), "objects in objects, too deep"),
    "lists in lists": (header("[" * 900 + "]" * 900), "Cannot parse header"),
    "a number of 6000 digits": (header("9" * 6000), "Cannot parse header"),
    "a long header": (header(shape="(2, 3)" + " " * 20000), "is large and may not be safe"),
    "a header of no length": (header(length=0), "Cannot parse header"),
    "a header beyond the file": (header(length=60000), "expected 60000 bytes"),
    "a header of 4 GB": (header(version=2, length=(1 << 32) - 1), "expected 4294967295 bytes"),
    **{
        f"cut off at {length}": (npy()[:length], "found ValueError: EOF")
        for length in (0, 1, 5, 6, 7, 8, 9, 10, 40, 127, 128, 151)
    },
    **{
        kind: (data.ljust(40), "the magic string is not correct; expected b'")
        for kind, data in {
            "HTML": b"<html>", "a picture": b"\x89PNG\r\n", "a pickle": b"\x80\4N.", "numbers": b"1,2,3\n",
            "HDF5": b"\x89HDF", "gzip": b"\x1f\x8b", "safetensors": b"\2\0\0\0\0\0\0\0{}",
            "a script": b"#!/bin/sh\n" + WHOLE, "zeros": bytes(8),
        }.items()
    },
}  # fmt: skip
ARCHIVES: dict[str, tuple[bytes, str]] = {
    "deflate": (zipped({"x.npy": npy()}, zipfile.ZIP_DEFLATED), ""),
    "bzip2": (zipped({"x.npy": npy()}, zipfile.ZIP_BZIP2), ""),
    "lzma": (zipped({"x.npy": npy()}, zipfile.ZIP_LZMA), ""),
    "a name without .npy": (zipped({"x": npy()}), ""),
    "a name with a slash": (zipped({"b/c.npy": npy(), "x.npy": npy()}), ""),
    "bfloat16 as numpy has it": (zipped({"h.npy": npy(BRAIN), "x.npy": npy()}), ""),
    "more behind the end": (WHOLE + bytes(30), ""),
    "too many entries": (changed("entries", 5), ""),
    **{
        f"compression {method}": (changed("method", method), 'x.npz, "x": cannot be read as arrays')
        for method in (1, 2, 6, 9, 10, 12, 14, 93, 95, 98, 99, 255)
    },
    "encrypted": (changed("flags", 1), "File 'x.npy' is encrypted"),
    "a patch": (changed("flags", 32), "patched data"),
    "strongly encrypted": (changed("flags", 64), "strong encryption"),
    "a wrong checksum": (changed("crc", 7, 4), "Bad CRC-32"),
    "a checksum that a larger size would leave out": (
        changed("size", 4000, 4, changed("crc", 7, 4)), "Bad CRC-32"
    ),
    "a smaller size": (changed("size", 100, 4), "Bad CRC-32"),
    "a member of no size": (changed("size", 0, 4), "Bad CRC-32"),
    "a member that takes the directory for its own": (
        changed("size", (1 << 32) - 2, 4, changed("stored", (1 << 32) - 2, 4)), "more bytes than"
    ),
    "more data than there are": (changed("stored", (1 << 31) - 1, 4, DEFLATED), "found EOFError"),
    "a member beyond the end": (changed("offset", 1 << 30, 4), "Truncated file header"),
    "a member in another": (changed("offset", 5, 4), "Bad magic number"),
    "a long name in the header": (changed("local name", 0xFFFF), "File name in directory"),
    "long extras in the header": (changed("local extra", 0xFFFF), "found EOFError"),
    "another name in the header": (moved(WHOLE, b"y.npy"), "differ"),
    "a directory of 1 GB": (changed("directory", 1 << 30, 4), "Bad offset for central directory"),
    "a directory beyond the end": (changed("start", 1 << 30, 4), "negative seek"),
    "a directory at the start": (changed("start", 0, 4), "Bad magic number"),
    "zeros behind the signature": (b"PK\3\4".ljust(100, b"\0"), "File is not a zip file"),
    **{
        f"cut off at {length}": (WHOLE[:length], "File is not a zip file")
        for length in (4, 40, len(WHOLE) // 2, len(WHOLE) - 22, len(WHOLE) - 1)
    },
    "a name twice": (zipped([("x.npy", npy()), ("x.npy", npy())]), 'x.npz, "x": two arrays have one name'),
    "two spellings of a name": (zipped([("x", npy()), ("x.npy", npy())]), 'x.npz, "x": two arrays have one name'),
    "a name that ends early": (zipped([("x.npy", npy()), ("x.npy\0y", npy())]), "two arrays have one name"),
    **{
        f"a member {name!r}": (zipped({"x.npy": npy(), name: b""}), "x.npz: the model has no input")
        for name in (
            "X.npy", "x.NPY", "x.npy.npy", ".npy", "/x.npy", "../x.npy", "./b/c.npy", "b//c.npy", "b\\c.npy", "d/",
            "x/", "README", "x\x1b[31m.npy", "\u202ex.npy", "q" * 60000,
        )
    },
    "a member that is a text": (zipped({"x.npy": b"a text"}), 'x.npz, "x": cannot be read as arrays'),
    "an archive in the archive": (zipped({"x.npy": WHOLE}), "the magic string is not correct"),
    "a bomb of another name": (zipped({"q": bytes(1 << 26)}, zipfile.ZIP_DEFLATED), 'has no input "q"'),
    **{
        f"a member with {kind}": (zipped({"x.npy": data}), message and 'x.npz, "x": cannot be read as arrays')
        for kind, (data, message) in HEADERS.items()
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "case"), [*(("x.npy", case) for case in HEADERS), *(("x.npz", case) for case in ARCHIVES)]
)
def test_arrays(file: str, case: str, tmp_path: Path) -> None:
    """They are read as they are, or there is an error with the file, and the array in it."""
    data, message = (HEADERS if file == "x.npy" else ARCHIVES)[case]
    path = tmp_path / file
    path.write_bytes(data)
    text = f"x={path}" if file == "x.npy" else str(path)
    if message:
        with pytest.raises(UsageError) as caught:
            read_feeds(text, SPECS)
        assert str(caught.value).startswith(str(path))
        assert message in str(caught.value)
        assert "unsafely" not in str(caught.value)
        assert len(str(caught.value)) < 1000
        return
    for name, found in read_feeds(text, SPECS).items():
        np.testing.assert_array_equal(found, BRAIN if name == "h" else X)
        assert found.dtype.newbyteorder("=") == (BRAIN if name == "h" else X).dtype


def test_prompts_that_are_not_text() -> None:
    with pytest.raises(GenerationError, match="text: not text; expected UTF-8; found UnicodeEncodeError"):
        ByteTokenizer().encode("caf\udce9")
