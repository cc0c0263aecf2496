"""What may come over a connection in place of one request after the other, and what becomes of it.

A row is a name, bytes, and how many requests are in them, or the status with which what is none of them is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Case = tuple[str, bytes, int]

HOST = b"Host: a"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"


def request(first: bytes, *lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join((first, *lines, b"", body))


def post(*lines: bytes, body: bytes = b"abc", version: bytes = b"1.1") -> bytes:
    return request(b"POST /p HTTP/" + version, HOST, *lines, body=body)


def chunked(body: bytes, *lines: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", *lines, body=body)


def get(*lines: bytes, target: bytes = b"/p", method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    return request(b"%b %b HTTP/%b" % (method, target, version), HOST, *lines)


def _rows(kind: str, status: int, make: Any, *values: bytes) -> Iterator[Case]:
    for value in values:
        yield f"{kind}: {value[:40]!r}", make(value), status


CASES: list[Case] = [
    ("a GET", get(), 1),
    ("a POST", post(b"Content-Length: 3"), 1),
    ("chunks", chunked(b"3\r\nabc\r\n0\r\n\r\n"), 1),
    ("three in one packet", get() + post(b"Content-Length: 3") + chunked(b"1\r\na\r\n0\r\n\r\n"), 3),
    ("no length is no body", post(body=b""), 1),
    ("a GET with a body", get(b"Content-Length: 3") + b"abc", 1),
    ("a request inside a body", post(b"Content-Length: %d" % len(NEXT), body=NEXT), 1),
    ("a request inside a chunk", chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(NEXT), NEXT)), 1),
    ("a name in other letters", get(b"cOnTeNt-LeNgTh: 3") + b"abc", 1),
    ("no space behind the colon", post(b"Content-Length:3"), 1),
    ("spaces around a value", post(b"Content-Length:  \t3\t "), 1),
    ("an empty value", get(b"X:"), 1),
    ("letters beyond ASCII in a value", get(b"X: \xc3\xbc\xff"), 1),
    # Lengths
    *_rows(
        "Content-Length", 400, lambda value: post(b"Content-Length: " + value),
        b"", b"+3", b"-3", b"3.0", b"3,3", b"3, 3", b"3;3", b"0x3", b"3e0", b"3 3", b"3_0", b"\xb2", b"\xd9\xa3",
        b"three",
        b"'3'", b'"3"', b"1" * 16, b"9" * 400, b"18446744073709551619", b"3\x0b", b"3\x0c", b"3\x00", b"NaN",
        b"3abc", b",3",
        b"3,", b"0b11", b"0o3", b"3\x1f", b"3\x7f", b"--3", b"03,3", b"(3)",
    ),
    ("zeros before a length", post(b"Content-Length: 0003"), 1),
    ("a length twice, the same", post(b"Content-Length: 3", b"Content-Length: 3"), 400),
    ("a length twice, others", post(b"Content-Length: 3", b"Content-Length: 0"), 400),
    ("a length twice, in other letters", post(b"Content-Length: 3", b"CONTENT-LENGTH: 0"), 400),
    ("a length three times", post(b"Content-Length: 3", b"X: y", b"Content-Length: 3", b"Content-Length: 3"), 400),
    ("a length and chunks", chunked(b"0\r\n\r\n", b"Content-Length: 5"), 400),
    ("chunks and a length", post(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
    ("a length of nothing and chunks", chunked(b"0\r\n\r\n", b"Content-Length: 0"), 400),
    ("a length that is none, and chunks", chunked(b"0\r\n\r\n", b"Content-Length: x"), 400),
    # Codings
    *_rows(
        "Transfer-Encoding", 501, lambda value: post(b"Transfer-Encoding: " + value, body=b"0\r\n\r\n"),
        b"", b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"chunked,", b",chunked",
        b"xchunked",
        b"chunkedx", b"chunk", b"chunked;q=1", b'"chunked"', b"chunked identity", b"cow", b"compress", b"x-gzip",
        b"chunked\xa0",
        b"c hunked", b"chunked, identity", b"identity, chunked", b"deflate, gzip, chunked",
    ),
    *_rows(
        "Transfer-Encoding", 400, lambda value: post(b"Transfer-Encoding: " + value, body=b"0\r\n\r\n"),
        b"\x0bchunked", b"chunked\x0b", b"chunked\x00", b"\x0cchunked", b"chunked\x7f", b"chunked\rX", b"chunked\nX: y",
    ),
    *_rows(
        "Transfer-Encoding", 1, lambda value: post(b"Transfer-Encoding:" + value, body=b"0\r\n\r\n"),
        b"chunked", b" CHUNKED", b" Chunked", b"\tchunked", b" chunked \t",
    ),
    ("codings twice", chunked(b"0\r\n\r\n", b"Transfer-Encoding: chunked"), 400),
    ("codings twice, the first another", post(b"Transfer-Encoding: x", b"Transfer-Encoding: chunked"), 400),
    ("codings twice, the second another", chunked(b"0\r\n\r\n", b"Transfer-Encoding: identity"), 400),
    ("chunks in HTTP/1.0", post(b"Transfer-Encoding: chunked", version=b"1.0", body=b"0\r\n\r\n"), 400),
    ("the name with an underscore is another", post(b"Transfer_Encoding: chunked", b"Content-Length: 3"), 1),
    # Chunks
    *_rows(
        "a chunk", 400, chunked,
        b"\r\nabc\r\n0\r\n\r\n", b" 3\r\nabc\r\n0\r\n\r\n", b"3 \r\nabc\r\n0\r\n\r\n", b"+3\r\nabc\r\n0\r\n\r\n",
        b"-3\r\nabc\r\n0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"3\nabc\r\n0\r\n\r\n", b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabc0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n", b"4\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\n\r\n", b"3\r\nabc\r\n0\r\n\n",
        b"g\r\nabc\r\n0\r\n\r\n",
        b"3;\r\nabc\r\n0\r\n\r\n", b"3;=b\r\nabc\r\n0\r\n\r\n", b"3;a=\r\nabc\r\n0\r\n\r\n",
        b'3;a="\r\nabc\r\n0\r\n\r\n',
        b"3;a=b;\r\nabc\r\n0\r\n\r\n", b"3 ;a=b\r\nabc\r\n0\r\n\r\n", b"3; a=b\r\nabc\r\n0\r\n\r\n",
        b"3;a\nb\r\nabc\r\n0\r\n\r\n",
        b"3;a\rb\r\nabc\r\n0\r\n\r\n", b"3;a\0\r\nabc\r\n0\r\n\r\n", b"3\rabc\r\n0\r\n\r\n", b"3\r\nabc\r0\r\n\r\n",
        b"3.0\r\nabc\r\n0\r\n\r\n",
        b"3_\r\nabc\r\n0\r\n\r\n", b"3\xb2\r\nabc\r\n0\r\n\r\n", b"f" * 16 + b"\r\nabc",
        b"1" + b"0" * 400 + b"\r\nabc", b"3\t\r\nabc\r\n0\r\n\r\n",
        b"0\r\nX\r\n\r\n", b"0\r\n X: y\r\n\r\n", b"0\r\nX : y\r\n\r\n", b"0\r\nX: y\n\r\n", b"0\r\nX: \0\r\n\r\n",
        b"0\r\n\rX",
        b"3\r\nabc\r\n0\r\nX: y\r\nContent-Length: 7\r\n\r\n", b"0\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"0\r\nHost: b\r\n\r\n", b"0\r\n: y\r\n\r\n", b"3\r\nabc\r\n0\r\nX: y\r\n z\r\n\r\n",
    ),
    *_rows(
        "chunks", 1, chunked,
        b"0\r\n\r\n", b"0000\r\n\r\n", b"003\r\nabc\r\n00\r\n\r\n", b"a\r\n0123456789\r\n0\r\n\r\n",
        b"A\r\n0123456789\r\n0\r\n\r\n",
        b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", b"3;a\r\nabc\r\n0\r\n\r\n", b"3;a=b\r\nabc\r\n0;c=d\r\n\r\n",
        b'3;a="b; c"\r\nabc\r\n0\r\n\r\n',
        b'3;a="\\"";b\r\nabc\r\n0\r\n\r\n', b"3\r\n\r\na\r\n0\r\n\r\n", b"5\r\n0\r\n\r\n\r\n0\r\n\r\n",
        b"0\r\nX: y\r\n\r\n",
        b"3\r\nabc\r\n0\r\nX: y\r\nZ:\r\n\r\n",
    ),
    # Lines of a head
    ("bare line feeds", post(b"Content-Length: 3").replace(b"\r\n", b"\n"), 400),
    ("one bare line feed", b"GET /p HTTP/1.1\nHost: a\r\n\r\n", 400),
    ("a bare line feed in a head", get(b"X: y\nContent-Length: 5"), 400),
    ("a bare line feed at the end", b"GET /p HTTP/1.1\r\nHost: a\r\n\n", 400),
    ("a bare return", get(b"X: y\rContent-Length: 5"), 400),
    ("two returns", b"GET /p HTTP/1.1\r\r\nHost: a\r\n\r\n", 400),
    ("returns at the end", b"GET /p HTTP/1.1\r\nHost: a\r\r\n\r\n", 400),
    ("a folded line", get(b"X: y", b" z"), 400),
    ("a line folded by a tab", get(b"X: y", b"\tContent-Length: 3"), 400),
    ("a folded length", post(b"Content-Length:", b" 3"), 400),
    ("a folded coding", post(b"Transfer-Encoding:", b" chunked", body=b"0\r\n\r\n"), 400),
    ("a first line that is folded", request(b"GET /p HTTP/1.1", b" X: y", HOST), 400),
    ("a line of spaces", get(b" "), 400),
    *_rows(
        "a line", 400, get,
        b"X", b": y", b"X : y", b"X\t: y", b" X: y", b"X\0: y", b"X: \0", b"X: \x01", b"X: \x1b[31m", b"X: \x7f",
        b"\xc3\xbc: y",
        b"X Y: z", b"(X): y", b'"X": y', b"X@Y: z", b"X[0]: y", b"Content-Length : 3",
        b"Transfer-Encoding : chunked", b"X;Y: z",
        b"Content Length: 3", b"X/Y: z", b"{X}: y", b"X=Y", b"\x0bX: y", b"X\x0b: y", b"\x85X: y",
    ),
    ("an empty line before a request", b"\r\n" + get(), 400),
    ("an empty line after a request", get() + b"\r\n", 400),
    ("a line feed after a body", post(b"Content-Length: 3") + b"\r\n", 400),
    ("half a head", b"GET /p HTTP/1.1\r\nHost: a\r\n", 0),
    ("half a body", post(b"Content-Length: 4"), 0),
    ("half a chunk", chunked(b"4\r\nabc"), 0),
    ("no end of chunks", chunked(b"3\r\nabc\r\n"), 0),
    ("half an end of chunks", chunked(b"3\r\nabc\r\n0\r\n"), 0),
    # First lines
    *_rows(
        "a first line", 400, lambda line: request(line, HOST),
        b"GET", b"GET /p", b"GET  /p HTTP/1.1", b"GET /p  HTTP/1.1", b"GET\t/p\tHTTP/1.1", b"GET /p HTTP/1.1 ",
        b" GET /p HTTP/1.1",
        b"GET /p http/1.1", b"GET /p HTTP/1", b"GET /p HTTP/1.10", b"GET /p HTTP/11", b"GET /p HTTP1.1",
        b"GET /p HTTP/ 1.1",
        b"GET /p HTTP/1.1x", b"GET /p FTP/1.1", b"GET /p q HTTP/1.1", b"GET /\0 HTTP/1.1", b"GET /\xc3\xbc HTTP/1.1",
        b"GET /p\x7f HTTP/1.1",
        b"G(T /p HTTP/1.1", b"G\0T /p HTTP/1.1", b"\xffGET /p HTTP/1.1", b"GET p HTTP/1.1", b"GET * HTTP/1.1",
        b"GET  HTTP/1.1",
        b"GET /p#x HTTP/1.1", b"GET a:80 HTTP/1.1", b"GET ftp://a/p HTTP/1.1", b"GET http:/p HTTP/1.1",
        b"GET http:///p HTTP/1.1",
        b"GET http://u@a/p HTTP/1.1", b"GET //a\\b\x01 HTTP/1.1", b"HTTP/1.1 200 OK", b"GET /a%2Fb HTTP/1.1",
        b"GET /a%5cb HTTP/1.1",
        b"GET /a%00 HTTP/1.1", b"GET /a%0d%0a HTTP/1.1", b"GET /% HTTP/1.1", b"GET /%g0 HTTP/1.1",
        b"GET /?a#b HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01", b"\x00", b"<html>",
    ),
    *_rows(
        "a version", 505, lambda version: get(version=version),
        b"0.9", b"1.2", b"1.9", b"2.0", b"3.0", b"0.0", b"9.9",
    ),
    ("HTTP/2 with prior knowledge, as gRPC has it", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 505),
    ("CONNECT", get(method=b"CONNECT", target=b"a:80"), 501),
    ("CONNECT with a path", get(method=b"CONNECT"), 501),
    *_rows(
        "an address", 1, lambda target: get(target=target),
        b"/", b"/?", b"/a?b=c?d", b"/a%20b", b"/%C3%BC", b"/a;b=c", b"//a/b", b"/a/../b", b"/?%2f", b"/'\"<>|^`{}",
        b"/" + b"a" * 9000,
        b"http://a/p", b"HTTP://a/p", b"https://b:80/p?q", b"http://a", b"http://a?q", b"http://[::1]/p",
    ),
    ("OPTIONS for all", get(method=b"OPTIONS", target=b"*"), 1),
    ("a method that nobody knows", get(method=b"M-SEARCH!"), 1),
    ("methods have large letters and small", get(method=b"get"), 1),
    ("HEAD", get(method=b"HEAD"), 1),
    ("HEAD with a body", get(b"Content-Length: 3", method=b"HEAD") + b"abc", 1),
    # Hosts
    ("no host", b"GET /p HTTP/1.1\r\n\r\n", 400),
    ("no host in HTTP/1.0", b"GET /p HTTP/1.0\r\n\r\n", 1),
    ("two hosts", get(HOST), 400),
    ("two hosts, others", get(b"host: b"), 400),
    ("two hosts in HTTP/1.0", get(HOST, version=b"1.0"), 400),
    ("an absolute address without a host", b"GET http://a/p HTTP/1.1\r\n\r\n", 400),
    *_rows(
        "a host", 400, lambda host: request(b"GET /p HTTP/1.1", b"Host: " + host),
        b"a, b", b"a b", b"a/b", b"a\\b", b"a?b", b"a#b", b"a@b", b"\xc3\xbc", b'"a"', b"a\0b", b"<a>",
    ),
    *_rows(
        "a host", 1, lambda host: request(b"GET /p HTTP/1.1", b"Host: " + host),
        b"", b"a:80", b"[::1]:80", b"a-b.example", b"a_b", b"%C3%BC",
    ),
    # Connections
    ("nothing after close", get(b"Connection: close") + NEXT, 1),
    ("nothing after close in other letters", get(b"Connection: CLOSE") + NEXT, 1),
    ("nothing after close in a list", get(b"Connection: keep-alive, close") + NEXT, 1),
    ("nothing after close on a second line", get(b"Connection: x", b"Connection: close") + NEXT, 1),
    ("nothing after a body and close", post(b"Connection: close", b"Content-Length: 3") + NEXT, 1),
    ("nothing after HTTP/1.0", get(version=b"1.0") + NEXT, 1),
    ("nothing after HTTP/1.0 and its body", post(b"Content-Length: 3", version=b"1.0") + NEXT, 1),
    ("keeping HTTP/1.0 alive is left out", get(b"Connection: keep-alive", version=b"1.0"), 1),
    ("keep-alive", get(b"Connection: keep-alive") + NEXT, 2),
    ("closes is no close", get(b"Connection: closes") + NEXT, 2),
    ("a connection of tabs", get(b"Connection: \t,,\t"), 1),
    # Upgrades are ignored: what follows is a body, or the next request
    *(
        (f"Upgrade: {kind.decode()}, {what}", make(b"Connection: Upgrade", b"Upgrade: " + kind) + NEXT, 2)
        for kind in (b"h2c", b"websocket", b"TLS/1.0", b"anything", b"HTTP/2.0, h2c")
        for what, make in (
            ("with a body", lambda *lines: post(*lines, b"Content-Length: 3")),
            ("with chunks", lambda *lines: chunked(b"3\r\nabc\r\n0\r\n\r\n", *lines)),
            ("without a body", get),
            ("with a request as its body", lambda *lines: post(*lines, b"Content-Length: %d" % len(NEXT), body=NEXT)),
        )
    ),
    ("an upgrade in other letters", post(b"connection: UPGRADE", b"UPGRADE: H2C", b"Content-Length: 3") + NEXT, 2),
    ("an upgrade as Java offers it", post(
        b"Connection: Upgrade, HTTP2-Settings", b"Content-Length: 3", b"HTTP2-Settings: AAEAAEAA", b"Upgrade: h2c",
    ) + NEXT, 2),
    ("an upgrade that is not named", get(b"Connection: upgrade") + NEXT, 2),
    ("an upgrade that is not asked for", post(b"Upgrade: h2c", b"Content-Length: 3") + NEXT, 2),
    ("an upgrade and close", post(b"Connection: upgrade, close", b"Upgrade: h2c", b"Content-Length: 3") + NEXT, 1),
    ("an upgrade in HTTP/1.0", get(b"Connection: upgrade", b"Upgrade: h2c", version=b"1.0") + NEXT, 1),
    # Expectations
    ("leave to go on", post(b"Expect: 100-continue", b"Content-Length: 3"), 1),
    ("leave in other letters", post(b"Expect: 100-Continue", b"Content-Length: 3"), 1),
    ("leave without a body", get(b"Expect: 100-continue"), 1),
    ("leave in HTTP/1.0 is ignored", post(b"Expect: 100-continue", b"Content-Length: 3", version=b"1.0"), 1),
    ("another expectation", post(b"Expect: 200-ok", b"Content-Length: 3"), 417),
    ("two expectations", post(b"Expect: 100-continue", b"Expect: 100-continue", b"Content-Length: 3"), 417),
    ("an empty expectation", get(b"Expect:"), 417),
    # Sizes
    ("a long line", get(b"X: " + b"y" * 60_000), 1),
    ("many lines", get(*(b"X%d: y" % i for i in range(5_000))), 1),
    ("a head that is too large", get(b"X: " + b"y" * 70_000), 431),
    ("a head without end", b"GET /p HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000, 431),
    ("an address without end", b"GET /" + b"y" * 70_000, 431),
    ("a method without end", b"G" * 70_000, 431),
    ("too many lines", get(*(b"X%d: y" % i for i in range(12_000))), 431),
    ("spaces without end", get(b"X: y" + b" " * 60_000 + b"z"), 1),
    ("an extension without end", chunked(b"3;a=" + b"b" * 70_000), 400),
    ("a size without end", chunked(b"0" * 70_000), 400),
    ("extensions that are larger than the data", chunked(b"1;a=%b\r\nx\r\n" % (b"b" * 900) * 200), 400),
    ("many chunks that are small", chunked(b"1\r\nx\r\n" * 40_000), 400),
    ("trailers without end", chunked(b"0\r\n" + b"X: y\r\n" * 20_000), 400),
    ("many chunks of some size", chunked(b"8\r\n12345678\r\n" * 4_000 + b"0\r\n\r\n"), 1),
    ("a large body and half a head", post(b"Content-Length: 100000", body=b"x" * 100_000) + b"GET /next HTT", 1),
    ("a large body and a head that is as large as may be", post(b"Content-Length: 100000", body=b"x" * 100_000)
     + get(b"X: " + b"y" * 65_000), 2),
]  # fmt: skip


def duplicates() -> list[str]:
    return [name for name, group in itertools.groupby(sorted(name for name, _, _ in CASES)) if len([*group]) > 1]
