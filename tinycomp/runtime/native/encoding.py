"""Records: what programs, and the modules around them, are encoded as, for the C runtime and in files.

A record is its kind and its fields, all of them whole numbers of 64 bits, least significant byte first; texts and
bytes are their length and then they themselves, filled up to a multiple of eight. Which records there are, and of which
fields they consist, is said once, in ``runtime_c/src/records.def``: the compiled runtime hands out that list.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from tinycomp.runtime.native.library import c_strings, lib

_LISTS = [text.split() for text in c_strings(lib.tc_record_fields)]
_KINDS = {name: (code, [field.rsplit(":")[1] for field in fields]) for code, (name, *fields) in enumerate(_LISTS)}
_NAMES = [(name, [field.rsplit(":")[1] for field in fields]) for name, *fields in _LISTS]
_WORDS = {"o": 3, "x": 2}
"""How many words an operand and an extent take."""


class Writer:
    """Collect records.

    Attributes:
        words: What has been written so far.
    """

    def __init__(self) -> None:
        self.words: array[int] = array("q")

    def add(self, kind: str, *values: Any) -> None:
        """Write a record, a value per field: numbers, texts, bytes, tuples of two or three numbers, and lists of these.

        Raises:
            OverflowError: If a number does not fit.
        """
        code, fields = _KINDS[kind]
        words = self.words
        words.append(code)
        for field, value in zip(fields, values, strict=True):
            if field in ("i", "n"):
                words.append(value)
            elif field == "t":
                self._text(value)
            elif field == "b":
                self._bytes(value)
            elif field in _WORDS:
                words.extend(value)
            else:
                self._list(field[0], value)

    def _list(self, kind: str, items: Sequence[Any]) -> None:
        words = self.words
        words.append(len(items))
        if kind == "t":
            for item in items:
                self._text(item)
        elif kind in _WORDS:
            for item in items:
                words.extend(item)
        else:
            words.extend(items)

    def _text(self, text: str) -> None:
        self._bytes(text.replace("\0", "\ufffd").encode("utf-8", "replace") + b"\0")

    def _bytes(self, data: bytes) -> None:
        words = self.words
        words.append(len(data))
        begin = len(words)
        words.frombytes(data + bytes(-len(data) % 8))
        if sys.byteorder == "big":
            own = words[begin:]
            own.byteswap()
            words[begin:] = own

    def to_bytes(self) -> bytes:
        """Return the records."""
        if sys.byteorder == "little":
            return self.words.tobytes()
        swapped = self.words[:]
        swapped.byteswap()
        return swapped.tobytes()


class Reader:
    """Read records one after the other.

    Args:
        data: The records.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) % 8:
            raise ValueError(f"{len(data)} bytes are no records")
        self.data, self._words = data, array("q")
        self._words.frombytes(data)
        if sys.byteorder == "big":
            self._words.byteswap()
        self._at = 0

    @property
    def at(self) -> int:
        """The first byte of the next record."""
        return 8 * self._at

    def __iter__(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield the name and the values of each record.

        Raises:
            ValueError: If there is no such record, or it ends too early.
        """
        while self._at < len(self._words):
            code = self._number()
            if not 0 <= code < len(_NAMES):
                raise ValueError(f"there is no record {code}")
            name, fields = _NAMES[code]
            yield name, [self._value(field) for field in fields]

    def _number(self) -> int:
        if self._at >= len(self._words):
            raise ValueError("the records end too early")
        self._at += 1
        return self._words[self._at - 1]

    def _numbers(self, count: int) -> list[int]:
        begin, end = self._at, self._at + count
        if not begin <= end <= len(self._words):
            raise ValueError("the records end too early")
        self._at = end
        return self._words[begin:end].tolist()

    def _value(self, field: str) -> Any:
        if field in ("i", "n"):
            return self._number()
        if field == "t":
            return self._text()
        if field == "b":
            return self._bytes()
        if field in _WORDS:
            return tuple(self._numbers(_WORDS[field]))
        count, kind = self._number(), field[0]
        if not 0 <= count <= len(self._words) - self._at:
            raise ValueError(f"a list of {count} items")
        if kind == "t":
            return [self._text() for _ in range(count)]
        if kind in _WORDS:
            size = _WORDS[kind]
            numbers = iter(self._numbers(size * count))
            return list(zip(*[numbers] * size, strict=True))
        return self._numbers(count)

    def _bytes(self) -> bytes:
        count = self._number()
        begin = 8 * self._at
        self._numbers(-(-count // 8))
        return self.data[begin : begin + count]

    def _text(self) -> str:
        data = self._bytes()
        if not data.endswith(b"\0") or b"\0" in data[:-1]:
            raise ValueError("a text has no end")
        return data[:-1].decode()
