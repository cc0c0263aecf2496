"""The records of saved modules as data that tests edit: a list of kinds, and of their fields by name."""

from __future__ import annotations

from typing import Any

from tinycomp.errors import ArtifactError
from tinycomp.runtime.native.decoder import decode
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.encoding import Reader, Writer
from tinycomp.runtime.native.library import c_strings, lib
from tinycomp.runtime.native.program import Program

FIELDS = {
    name: dict(field.split(":") for field in fields)
    for name, *fields in (text.split() for text in c_strings(lib.tc_record_fields))
}
"""Names and kinds of the fields, by kind of record."""
Record = tuple[str, dict[str, Any]]
_SIZES = {"o": 3, "x": 2}


def read(data: bytes) -> list[list[Any]]:
    """Return the records of a file, each as its kind and its fields; texts for bytes."""
    return [[kind, dict(zip(FIELDS[kind], _plain(values), strict=True))] for kind, values in Reader(data)]


def _plain(values: Any) -> Any:
    """Return values as JSON has them."""
    if isinstance(values, (list, tuple)):
        return [_plain(each) for each in values]
    return values.hex() if isinstance(values, bytes) else values


def write(records: Any) -> bytes:
    """Return the file of records, in which what is of another type than it must be is nothing of that type."""
    writer = Writer()
    for record in records if isinstance(records, list) else []:
        kind, fields = record if isinstance(record, list) and len(record) == 2 else (None, None)
        if isinstance(kind, str) and kind in FIELDS:
            given = fields if isinstance(fields, dict) else {}
            writer.add(kind, *(_value(of, given.get(name)) for name, of in FIELDS[kind].items()))
    return writer.to_bytes()


def _value(of: str, value: Any) -> Any:
    if of.endswith("*"):
        return [_value(of[0], each) for each in value] if isinstance(value, (list, tuple)) else []
    if of in _SIZES:
        numbers = [_value("n", each) for each in value] if isinstance(value, (list, tuple)) else []
        return (*numbers, 0, 0, 0)[: _SIZES[of]]
    if of in ("t", "b"):
        text = value if isinstance(value, str) else str(value)
        if of == "t":
            return text
        return bytes.fromhex(text) if len(text) % 2 == 0 and set(text) <= set("0123456789abcdef") else text.encode()
    finite = isinstance(value, (int, float)) and value == value and abs(value) < 1 << 80
    return max(-(1 << 63), min(int(value), (1 << 63) - 1)) if finite else 0


def of_kind(records: list[list[Any]], kind: str) -> list[dict[str, Any]]:
    """Return the fields of all records of a kind, to be edited."""
    return [fields for name, fields in records if name == kind]


def program(records: list[list[Any]], constants: Any = ()) -> Program:
    """Return the program of the records of a unit."""
    reader = Reader(write(records))
    unit = iter(reader)
    kind, about = next(unit, ("nothing", []))
    if kind != "unit":
        raise ArtifactError("no unit")
    return decode(reader, unit, about, constants, 0)


def again(program_: Program) -> Program:
    """Return a program that went through its records."""
    return program(read(encoded(program_)), program_.constants)
