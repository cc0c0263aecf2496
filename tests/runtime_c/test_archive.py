"""The archive around a saved module, as programs without Python read it: every number that lies is refused."""

from __future__ import annotations

import functools
import io
import re
import struct
import zipfile
import zlib

import onnx
import pytest

import tinycomp
from tests.runtime_c.clibrary import CModule, LibraryError

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
m (float[3] x) => (float[3] y) { y = Neg(x) }"""
FIRST = "native.bin"
"""The member whose record lies; it comes first."""
SATURATED = (1 << 32) - 1
FAR = 1 << 40
NO_MODULE = "this is not a saved module, or it is cut off"
ENTRY, LOCAL = "<IHHHHHHIIIHHHHHII", "<IHHHHHIIIHH"
END, END_64, LOCATOR = "<IHHHHIIH", "<IQHHIIQQQQ", "<IIQI"


@functools.cache
def members() -> dict[str, bytes]:
    """The members of a saved module that the C library reads."""
    contents = tinycomp.compile(onnx.parser.parse_model(MODEL)).to_bytes()
    with zipfile.ZipFile(io.BytesIO(contents)) as file:
        return {name: file.read(name) for name in (FIRST, "arrays.safetensors")}


def archive(wide: bool = False, **lies: int | bytes) -> bytes:
    """Return a saved module as an archive, with 64-bit records at its end if it is wide.

    Args:
        wide: Whether the 64-bit records say where the directory lies.
        **lies: What the archive says instead of the truth: ``method``, ``size``, ``stored``, ``at``, ``checksum`` and
            ``extra`` of the first member; ``header`` and ``extra_bytes`` of what lies before it; ``count``, ``length``,
            ``offset``, ``comment`` and ``end`` of the directory; ``mark`` and ``record`` of the 64-bit records.
    """
    body, directory = b"", b""
    for name, data in members().items():
        said = lies if name == FIRST else {}
        extra = said.get("extra", b"")
        assert isinstance(extra, bytes)
        sizes = zlib.crc32(data), len(data), len(data)
        place = said.get("at", len(body))
        header = (said.get("header", 0x04034B50), 20, 0, 0, 0, 0, *sizes, len(name), said.get("extra_bytes", 0))
        body += struct.pack(LOCAL, *header) + name.encode() + data
        figures = said.get("checksum", sizes[0]), said.get("stored", len(data)), said.get("size", len(data))
        entry = 0x02014B50, 20, 20, 0, said.get("method", 0), 0, 0, *figures, len(name), len(extra), 0, 0, 0, 0, place
        directory += struct.pack(ENTRY, *entry) + name.encode() + extra
    figures = lies.get("count", 2), lies.get("length", len(directory)), lies.get("offset", len(body))
    records = b""
    if wide:
        end = lies.get("record", len(body) + len(directory))
        records = struct.pack(END_64, lies.get("mark", 0x06064B50), 44, 45, 45, 0, 0, 2, *figures)
        records += struct.pack(LOCATOR, 0x07064B50, 0, end, 1)
        figures = 0xFFFF, SATURATED, SATURATED
    last = struct.pack(END, lies.get("end", 0x06054B50), 0, 0, figures[0], *figures, lies.get("comment", 0))
    return body + directory + records + last


def widened(*values: int, kind: int = 1, length: int | None = None) -> bytes:
    """Return the field of an entry that has its numbers in 64 bits."""
    return struct.pack(f"<HH{len(values)}Q", kind, 8 * len(values) if length is None else length, *values)


def truth(member: str = FIRST) -> int:
    return len(members()[member])


def test_archives_that_tell_the_truth() -> None:
    nothing = struct.pack("<HH", 7, 0)
    for contents in (
        archive(),
        archive(wide=True),
        archive(size=SATURATED, stored=SATURATED, extra=widened(truth(), truth())),
        archive(size=SATURATED, stored=SATURATED, at=SATURATED, extra=nothing + widened(truth(), truth(), 0)),
    ):
        CModule(contents)


@pytest.mark.parametrize(
    ("lies", "message"),
    [
        ({"end": 0}, NO_MODULE),
        ({"comment": 1}, NO_MODULE),
        ({"count": 3 + (1 << 14)}, NO_MODULE),
        ({"offset": SATURATED - 1}, NO_MODULE),
        ({"length": SATURATED - 1}, NO_MODULE),
        ({"wide": True, "mark": 0}, NO_MODULE),
        ({"wide": True, "record": FAR}, NO_MODULE),
        ({"wide": True, "record": (1 << 64) - 8}, NO_MODULE),
        ({"wide": True, "offset": FAR}, NO_MODULE),
        ({"wide": True, "length": FAR}, NO_MODULE),
        ({"wide": True, "count": FAR}, NO_MODULE),
        ({"method": 8}, f'it is compressed, the member "{FIRST}"'),
        ({"stored": 8}, f'it is compressed, the member "{FIRST}"'),
        ({"header": 0}, f'there is no header of "{FIRST}"'),
        ({"at": SATURATED - 64}, f'there is no header of "{FIRST}"'),
        ({"extra_bytes": 0xFFFF}, f'it is cut off, the member "{FIRST}"'),
        ({"size": SATURATED - 64, "stored": SATURATED - 64}, f'it is cut off, the member "{FIRST}"'),
        ({"checksum": 0}, f'the checksum is wrong of "{FIRST}"'),
        ({"size": SATURATED, "stored": SATURATED}, f'there is no size of "{FIRST}"'),
        (
            {"size": SATURATED, "stored": SATURATED, "extra": widened(8, 8, kind=2)},
            f'there is no size of "{FIRST}"',
        ),
    ],
)
def test_archives_that_lie(lies: dict[str, int], message: str) -> None:
    with pytest.raises(LibraryError, match=re.escape(message)):
        CModule(archive(**lies))


@pytest.mark.parametrize("length", [8, 17, 0xFFFF])
def test_sizes_that_their_field_has_no_room_for(length: int) -> None:
    """The numbers are there and true, and yet lie outside of the field."""
    field = widened(truth(), truth(), length=length)
    with pytest.raises(LibraryError, match="there is no size"):
        CModule(archive(size=SATURATED, stored=SATURATED, extra=field))


def test_files_that_are_too_small_for_the_record_they_name() -> None:
    end = struct.pack(END, 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, SATURATED, SATURATED, 0)
    with pytest.raises(LibraryError, match=NO_MODULE):
        CModule(struct.pack(LOCATOR, 0x07064B50, 0, FAR, 1) + end)
