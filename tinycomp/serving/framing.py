"""Requests of HTTP/1.1 out of the bytes of a connection: where each head and each body ends.

A proxy before the server must see the same requests in the same bytes: where the two differ, one client can put words
into the mouth of another. So there is one spelling of everything. What RFC 9112 lets a server mend (folded lines, bare
line feeds, lists of lengths, a length beside chunks) is refused, and the connection with it; offers to upgrade are
ignored, as RFC 9110, section 7.8, has it, and so are trailers and extensions of chunks.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable

from tinycomp.records import dataclass
from tinycomp.serving.protocol import RequestError

HEAD_BYTES = 1 << 16
"""What the head of a request may take; beside as much as its data, also what stands around the chunks of a body."""
_LINE_BYTES = 1 << 12
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST = re.compile(rb"(%b) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])" % _TOKEN)
_FIELD = re.compile(rb"(%b):([\t\x20-\x7e\x80-\xff]*)(?:\r\n|\Z)" % _TOKEN)
_CHUNK = re.compile(
    rb'([0-9a-fA-F]{1,15})(?:;%b(?:=(?:%b|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"))?)*'
    % (_TOKEN, _TOKEN)
)
_NAME_OF_HOST = rb"[-\w.~%!$&'()*+,;=:\[\]]"
_HOST = re.compile(rb"%b*" % _NAME_OF_HOST, re.ASCII)
_ABSOLUTE = re.compile(rb"https?://%b+(?=[/?]|\Z)" % _NAME_OF_HOST, re.ASCII | re.IGNORECASE)
_MEANT = frozenset((b"host", b"expect", b"connection", b"content-length", b"transfer-encoding"))
_UNCLEAR = re.compile(rb"#|%(?![0-9a-f]{2})|%2f|%5c|%[01][0-9a-f]|%7f", re.IGNORECASE)
"""What one reader of an address takes for another part of it than the next."""
_STRAY = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\0")
_DIGITS = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,15})(?=\r\n|\Z)")
_NO_METHOD = re.compile(rb"(?!%b(?: |\Z))" % _TOKEN)


@dataclass
class Head:
    """The head of a request.

    Attributes:
        method: Its method.
        target: The path, with what follows a question mark.
        version: ``"1.0"`` or ``"1.1"``.
        fields: Names in lower case, and values.
        length: Bytes of the body; None for chunks.
        keeps: Whether the connection stays for another request.
        waits: Whether the client waits for leave to send the body.
    """

    method: bytes
    target: bytes
    version: str
    fields: list[tuple[bytes, bytes]]
    length: int | None
    keeps: bool
    waits: bool


class End(enum.Enum):
    """The end of a request."""

    OF_REQUEST = enum.auto()


Event = Head | bytes | End


class Framing:
    r"""The requests of a connection: give it bytes as they come, and ask for what is in them.

    Nothing is read beyond what is asked for, so that a request is not looked at before the one before it is done with.

    Example:
        >>> framing = Framing()
        >>> framing.feed(b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET")
        >>> framing.next().target, framing.next(), framing.next(), framing.next()
        (b'/v2', b'abc', <End.OF_REQUEST: 1>, None)
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._looked = 0
        self._left = self._carried = self._around = 0
        self._keeps = True
        self._around_digits: tuple[bytes, bytes | None] | None = None
        self._like: Head
        self._next: Callable[[], Event | None] = self._head

    @property
    def has_begun(self) -> bool:
        """Whether a part of a head has come."""
        return self._next == self._head and bool(self._data)

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        if self._next != self._nothing:
            self._data += data

    def close(self) -> None:
        """Read no further request, and nothing more of this one."""
        self._next = self._nothing
        self._data.clear()

    def next(self) -> Event | None:
        """Return the next head, piece of a body or end of a request; None until more has come.

        Raises:
            RequestError: If what has come is no request. Nothing more is read.
        """
        try:
            return self._next()
        except RequestError:
            self.close()
            raise

    def _head(self) -> Head | None:
        end = self._data.find(b"\r\n\r\n", self._looked)
        if (len(self._data) if end < 0 else end) > HEAD_BYTES:
            raise RequestError("the head of the request is too large", status=431, expected=f"up to {HEAD_BYTES} bytes")
        if end < 0:
            self._check_beginning()
            return None
        head = self._read(self._taken(end + 4)[:-4])
        self._keeps, self._left, self._carried, self._around = head.keeps, head.length or 0, 0, 0
        self._next = self._chunk if head.length is None else self._piece
        return head

    def _read(self, data: bytes) -> Head:
        """Return a head; one like the last, but for the digits of the length, is not read anew."""
        digits = _DIGITS.search(data)
        around = (data, None) if digits is None else (data[: digits.start(1)], data[digits.end(1) :])
        if around != self._around_digits:
            self._like = read_head(data)
            self._around_digits = around if len(data) <= _LINE_BYTES else None
        like = self._like
        if digits is None:
            return like
        fields = like.fields.copy()
        fields[[name for name, _ in fields].index(b"content-length")] = b"content-length", digits[1]
        return Head(like.method, like.target, like.version, fields, int(digits[1]), like.keeps, like.waits)

    def _check_beginning(self) -> None:
        """Refuse what cannot become a head, instead of waiting for its end."""
        if self._data and _NO_METHOD.match(self._data):
            raise _malformed("the request line", bytes(self._data[:40]))
        _check_lines(self._data, max(0, self._looked - 1))
        first = self._data.find(b"\r\n")
        if first >= 0:
            _read_request_line(bytes(self._data[:first]))
        self._looked = max(0, len(self._data) - 3)

    def _piece(self) -> Event | None:
        """Return what has come of a body of known length."""
        if not self._left:
            return self._end()
        if not self._data:
            return None
        data = self._taken(min(self._left, len(self._data)))
        self._left -= len(data)
        return data

    def _chunk(self) -> Event | None:
        """Read the line before a chunk."""
        line = self._line()
        if line is None:
            return None
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise _malformed("the size of a chunk", line, "a hexadecimal number, and well-formed extensions")
        self._left = int(found[1], 16)
        self._next = self._piece_of_chunk if self._left else self._trailer
        return self._next()

    def _piece_of_chunk(self) -> Event | None:
        if not self._left:
            if len(self._data) >= 2 and self._data.startswith(b"\r\n"):
                del self._data[:2]
                self._next = self._chunk
                return self._chunk()
            if not b"\r\n".startswith(self._data):
                raise _malformed("a chunk", bytes(self._data[:2]), "a line feed at the end of its size")
            return None
        piece = self._piece()
        self._carried += len(piece) if isinstance(piece, bytes) else 0
        return piece

    def _trailer(self) -> Event | None:
        while (line := self._line()) is not None:
            if not line:
                return self._end()
            if _read_field(line)[0].lower() in (b"content-length", b"transfer-encoding", b"host"):
                raise _malformed("a trailer", line, "nothing that says where a request ends or goes")
        return None

    def _line(self) -> bytes | None:
        """Return a line around the chunks without its end; None until it is there."""
        end = self._data.find(b"\r\n", 0, _LINE_BYTES)
        self._around += end + 2 if end >= 0 else 0
        if end < 0:
            _check_lines(self._data[:_LINE_BYTES], 0)
        if (end < 0 and len(self._data) >= _LINE_BYTES) or self._around > HEAD_BYTES + self._carried:
            raise RequestError("there is more around the chunks of the body than in them", expected="larger chunks")
        return None if end < 0 else self._taken(end + 2)[:-2]

    def _taken(self, count: int) -> bytes:
        with memoryview(self._data) as view:
            data = bytes(view[:count])
        del self._data[:count]
        self._looked = 0
        return data

    def _end(self) -> End:
        if self._keeps:
            self._next = self._head
        else:
            self.close()
        return End.OF_REQUEST

    def _nothing(self) -> None:
        """Read nothing: the last request has been read, or the one that ends the connection."""


def read_head(data: bytes) -> Head:
    """Return the head that is written in some bytes, the empty line behind it left out.

    Raises:
        RequestError: If none is, or it is of a kind that is not answered here.
    """
    first, end, rest = data.partition(b"\r\n")
    method, target, version = _read_request_line(first)
    lines = _FIELD.findall(rest) if end else []
    if sum(map(len, itertools.chain.from_iterable(lines))) + 3 * len(lines) != len(rest) + len(end):
        lines = [_read_field(line) for line in rest.split(b"\r\n")]
    fields = [(name.lower(), value.strip(b" \t")) for name, value in lines]
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        if name in _MEANT:
            values.setdefault(name, []).append(value)
    hosts = values.get(b"host", [])
    if len(hosts) > 1 or (not hosts and version != "1.0") or (hosts and not _HOST.fullmatch(hosts[0])):
        raise _malformed("Host", b", ".join(hosts), "the name of one host")
    expected = [value.lower() for value in values.get(b"expect", [])] if version != "1.0" else []
    if expected not in ([], [b"100-continue"]):
        raise RequestError("not an expectation that can be met", status=417, where="Expect", expected="100-continue")
    words = [word.strip(b" \t").lower() for value in values.get(b"connection", ()) for word in value.split(b",")]
    keeps = version != "1.0" and b"close" not in words
    return Head(method, target, version, fields, _length(version, values), keeps, bool(expected))


def _read_request_line(line: bytes) -> tuple[bytes, bytes, str]:
    found = _REQUEST.fullmatch(line)
    if found is None:
        raise _malformed("the request line", line)
    method, target, version = found[1], found[2], found[3].decode()
    if version not in ("1.0", "1.1"):
        raise RequestError(
            "not a version of HTTP that is spoken here", status=505, expected="HTTP/1.1", found=f"HTTP/{version}",
            hint="gRPC, which needs HTTP/2, is not offered: use the protocol's form over HTTP.",
        )  # fmt: skip
    if method == b"CONNECT":
        raise RequestError("this server is no proxy", status=501, found="CONNECT")
    absolute = _ABSOLUTE.match(target)
    if absolute is not None:
        target = target[absolute.end() :]
        target = target if target.startswith(b"/") else b"/" + target
    is_path = target.startswith(b"/") or (target == b"*" and method == b"OPTIONS")
    if not is_path or _UNCLEAR.search(target.partition(b"?")[0]) or b"#" in target:
        raise _malformed("the address", target, "a path, with nothing escaped that divides it")
    return method, target, version


def _read_field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise _malformed("a line of the head", line, "NAME: VALUE")
    return found[1], found[2]


def _length(version: str, values: dict[bytes, list[bytes]]) -> int | None:
    """Return how many bytes the body has; None for chunks (RFC 9112, section 6.3)."""
    codings, lengths = values.get(b"transfer-encoding"), values.get(b"content-length")
    if codings is None:
        if lengths is None:
            return 0
        if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,15}", lengths[0]):
            raise _malformed("Content-Length", b", ".join(lengths), "one number")
        return int(lengths[0])
    if version == "1.0" or lengths is not None or len(codings) > 1:
        raise _malformed(
            "Transfer-Encoding", b", ".join(codings), "it once, without Content-Length, and in HTTP/1.1 only"
        )
    if codings[0].lower() != b"chunked":
        raise RequestError(
            "not an encoding that can be read", status=501, where="Transfer-Encoding", expected="chunked",
            found=codings[0][:40].decode("latin-1"),
        )  # fmt: skip
    return None


def _check_lines(data: bytes | bytearray, start: int) -> None:
    found = _STRAY.search(data, start)
    if found is not None:
        raise _malformed(
            "the head", bytes(data[max(0, found.start() - 20) : found.end()]), "lines that end in CR LF, without NUL"
        )


def _malformed(where: str, found: bytes, expected: str = "METHOD /PATH HTTP/1.1") -> RequestError:
    return RequestError("not well-formed", where=where, expected=expected, found=repr(found[:80])[1:])
