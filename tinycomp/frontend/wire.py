"""Weights read straight out of an ONNX file: the protobuf without its large tensors, and where those lie.

Protobuf's parser copies every tensor twice, once into the message and once out of it, which takes longer than all the
rest of an import. So the tensors of the main graph are found in the bytes of the file, and only what remains is parsed.
See "Encoding" in the documentation of Protocol Buffers for the form of these bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MORE = 0x80
"""Bytes of a number below this one are its last; nearly all numbers have one byte."""
_LARGE = 4096
"""Tensors of fewer bytes are left to protobuf's parser."""


class Split(NamedTuple):
    """A model in two parts.

    Attributes:
        frame: The bytes of the ModelProto without the ``raw_data`` of large tensors.
        weights: That ``raw_data``, where they lie, by the position of their tensors in ``graph.initializer``.
    """

    frame: bytes
    weights: Mapping[int, Bytes]


class _Field(NamedTuple):
    """One field of a message that has a length: where it starts, and its contents."""

    start: int
    content: int
    end: int


class _UnusualError(Exception):
    """The bytes are damaged, or in a form that serialisers do not write; protobuf's parser is to judge them."""


def split(data: memoryview) -> Split:
    """Return the parts of a model; all of it is the frame if it is damaged or of an unusual form."""
    try:
        return _split(data)
    except (_UnusualError, IndexError):
        return Split(bytes(data), {})


def _split(data: memoryview) -> Split:
    graphs = list(_fields(data, 0, len(data), _MODEL_GRAPH))
    if len(graphs) != 1:
        raise _UnusualError  # protobuf merges repeated messages
    (graph,) = graphs
    inner = _Frame(data, graph.content)
    weights: dict[int, Bytes] = {}
    for count, field in enumerate(_fields(data, graph.content, graph.end, _GRAPH_INITIALIZER)):
        if field.end - field.content >= _LARGE and (raw := _raw_data(data, field)) is not None:
            tensor = _Frame(data, field.content)
            tensor.leave_out(raw)
            inner.replace(field, _message(_GRAPH_INITIALIZER, tensor.until(field.end)))
            weights[count] = np.frombuffer(data[raw.content : raw.end], np.uint8)
    outer = _Frame(data, 0)
    outer.replace(graph, _message(_MODEL_GRAPH, inner.until(graph.end)))
    return Split(outer.until(len(data)), weights)


def _raw_data(data: memoryview, tensor: _Field) -> _Field | None:
    raw = list(_fields(data, tensor.content, tensor.end, _TENSOR_RAW_DATA))
    return raw[0] if len(raw) == 1 else None


class _Frame:
    """A message put together again from the parts of it that are kept."""

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = data
        self._parts: list[memoryview | bytes] = []
        self._at = start

    def leave_out(self, field: _Field) -> None:
        """Keep everything up to a field, and go on behind it."""
        self._parts.append(self._data[self._at : field.start])
        self._at = field.end

    def replace(self, field: _Field, by: bytes) -> None:
        """Put other bytes into the place of a field."""
        self.leave_out(field)
        self._parts.append(by)

    def until(self, end: int) -> bytes:
        """Return the message, which ended at ``end``."""
        return b"".join([*self._parts, self._data[self._at : end]])


def _message(number: int, content: bytes) -> bytes:
    """Return a field that holds a message."""
    header = bytearray([number << 3 | _LENGTH])
    size = len(content)
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    return bytes(header) + content


def _fields(data: memoryview, at: int, end: int, number: int) -> Iterator[_Field]:
    """Yield those fields of the message in ``data[at:end]`` that have a number and a length.

    Raises:
        _UnusualError: If a field is of a group, reaches past the end, or is written with more bytes than it takes.
    """
    wanted = number << 3 | _LENGTH
    while at < end:
        start = at
        tag, at = data[at], at + 1
        if tag >= _MORE:
            tag, at = _varint(data, start)
        kind = tag & 7
        if kind == _LENGTH:
            size, content = data[at], at + 1
            if size >= _MORE:
                size, content = _varint(data, at)
            at = content + size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise _UnusualError
        if at > end:
            raise _UnusualError
        if tag == wanted:
            yield _Field(start, content, at)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number in groups of seven bits, lowest first, and where it ends.

    Raises:
        _UnusualError: If it takes more than ten bytes, or fewer would do.
    """
    byte = data[at]
    if byte < _MORE:
        return byte, at + 1
    value = byte & 0x7F
    for place in range(1, 10):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < _MORE:
            if not byte:
                raise _UnusualError
            return value, at + place + 1
    raise _UnusualError
