"""Where requests begin and end: as h11 says, or the connection ends with a refusal; also on a server's own socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

for package in ("h11", "starlette", "uvicorn", "orjson", "prometheus_client"):
    pytest.importorskip(package, reason='serving needs the extra "serve"')

import h11  # noqa: E402

from tests.docs.pages import ROOT  # noqa: E402
from tests.serving.framing_cases import CASES, NEXT, chunked, duplicates, get, post  # noqa: E402
from tests.serving.judge import Request, disagreement, ours  # noqa: E402
from tests.serving.servers import running  # noqa: E402
from tinycomp.serving import server  # noqa: E402
from tinycomp.serving.application import Application, Limits  # noqa: E402
from tinycomp.serving.framing import HEAD_BYTES  # noqa: E402

CLOSING = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
SHORT = 3000
"""Bytes up to which a case is cut in two at every place."""


def test_no_case_is_there_twice() -> None:
    assert not duplicates()
    assert len(CASES) > 300


@pytest.mark.parametrize(("data", "count"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_requests_are_those_that_the_judge_sees(data: bytes, count: int) -> None:
    seen = ours([data])
    assert (seen.status or len(seen.requests)) == count
    assert not disagreement(data, seen)
    following = ours([data + NEXT])
    assert not disagreement(data + NEXT, following)
    if count >= 400:
        assert following == seen  # nothing is read behind what is refused


@pytest.mark.parametrize(("data", "count"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_packets_make_no_difference(data: bytes, count: int) -> None:
    whole = ours([data])
    if len(data) > SHORT:
        places = (1, len(data) // 2)
    else:
        assert ours(data[i : i + 1] for i in range(len(data))) == whole
        places = range(1, len(data))
    for place in places:
        assert ours([data[:place], data[place:]]) == whole, place


LIKE = b"POST /%b HTTP/1.1\r\nHost: a\r\n%bContent-Length: %b\r\n%b\r\n%b"
LAST = {
    "the same": LIKE % (b"a", b"", b"3", b"", b"abc"),
    "another length": LIKE % (b"a", b"", b"12", b"", b"abcdefghijkl"),
    "no digits": LIKE % (b"a", b"", b"", b"", b""),
    "a sign": LIKE % (b"a", b"", b"+3", b"", b"abc"),
    "too many digits": LIKE % (b"a", b"", b"0" * 16, b"", b""),
    "a second length": LIKE % (b"a", b"Content-Length: 3\r\n", b"3", b"", b"abc"),
    "a second length in other letters": LIKE % (b"a", b"", b"3", b"CONTENT-LENGTH: 3\r\n", b"abc"),
    "chunks": LIKE % (b"a", b"", b"3", b"Transfer-Encoding: chunked\r\n", b"abc"),
    "another path": LIKE % (b"b", b"", b"3", b"", b"abc"),
    "another field": LIKE % (b"a", b"X: y\r\n", b"3", b"", b"abc"),
    "a field behind": LIKE % (b"a", b"", b"3", b"Connection: close\r\n", b"abc"),
    "letters": (LIKE % (b"a", b"", b"4", b"", b"abcd")).replace(b"Content-Length", b"CONTENT-length"),
}


@pytest.mark.parametrize("first", LAST)
@pytest.mark.parametrize("second", LAST)
def test_a_head_like_the_last_is_read_as_if_it_were_the_first(first: str, second: str) -> None:
    data = LAST[first] + LAST[second]
    assert not disagreement(data, ours([data]))
    if len(ours([LAST[first]]).requests) == 1 and first != "a field behind" and not ours([LAST[first]]).status:
        both, alone = ours([data]), ours([LAST[second]])
        assert (both.requests[1:], both.status) == ([*alone.requests], alone.status)


class Echo(Application):
    """An application that notes what it is asked, and answers with how many bytes came."""

    def __init__(self) -> None:
        super().__init__([])
        self.requests: list[Request] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body, more = body + message["body"], message["more_body"]
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        self.requests.append((scope["method"], (scope["raw_path"] + query).decode(), body))
        answer = str(len(body)).encode()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]}
        )
        await send({"type": "http.response.body", "body": answer})


@pytest.fixture(scope="module")
def echo() -> Iterator[tuple[Echo, int]]:
    application = Echo()
    with running(application) as port:
        yield application, port


def connected(port: int) -> Any:
    return closing(socket.create_connection(("127.0.0.1", port), timeout=30))


def answers(connection: socket.socket, asked: list[Request]) -> list[int]:
    """The statuses of all answers until the server has sent its last one, whose framing h11 checks."""
    found, reader = [], h11.Connection(h11.CLIENT)
    methods = iter([*(method for method, _, _ in asked), "GET"])

    def ask() -> None:
        reader.send(h11.Request(method=next(methods), target="/", headers=[("Host", "a")]))
        reader.send(h11.EndOfMessage())

    ask()
    while True:
        event = reader.next_event()
        if event is h11.NEED_DATA:
            reader.receive_data(connection.recv(1 << 16))
        elif isinstance(event, h11.InformationalResponse):
            assert event.status_code == 100
        elif isinstance(event, h11.Response):
            found.append(event.status_code)
        elif isinstance(event, h11.EndOfMessage) and reader.their_state is h11.DONE:
            reader.start_next_cycle()
            ask()
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            assert not connection.recv(1 << 16)
            return found


@pytest.mark.parametrize(("data", "count"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_server_answers_what_the_judge_sees(echo: tuple[Echo, int], data: bytes, count: int) -> None:
    """A last request follows, so that every connection ends; an answer for each request, and one for a refusal."""
    application, port = echo
    application.requests.clear()
    expected = ours([data + CLOSING])
    with connected(port) as connection:
        connection.sendall(data + CLOSING)
        if expected.open is not None and not expected.status:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1000) == b""
        else:
            wanted = [200] * len(expected.requests) + ([expected.status] if expected.status else [])
            assert answers(connection, expected.requests) == wanted
    assert application.requests == [
        (method, target.removesuffix("?"), body) for method, target, body in expected.requests
    ]


@pytest.mark.parametrize("kind", [b"h2c", b"websocket"])
@pytest.mark.parametrize("body", [NEXT, b'{"a": 1}'])
def test_a_body_in_its_own_packet_is_no_request(echo: tuple[Echo, int], kind: bytes, body: bytes) -> None:
    application, port = echo
    application.requests.clear()
    head = post(b"Connection: Upgrade", b"Upgrade: " + kind, b"Content-Length: %d" % len(body), body=b"")
    with connected(port) as connection:
        connection.sendall(head)
        time.sleep(0.05)
        connection.sendall(body + CLOSING)
        assert answers(connection, [("POST", "", b"")]) == [200, 200]
    assert application.requests == [("POST", "/p", body), ("GET", "/last", b"")]


@pytest.mark.parametrize(
    "data",
    [
        post(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 3") + get() + CLOSING,
        chunked(b"3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n") + CLOSING,
    ],
)
def test_a_server_reads_packets_cut_at_every_byte(echo: tuple[Echo, int], data: bytes) -> None:
    application, port = echo
    expected = ours([data]).requests
    for place in range(1, len(data)):
        application.requests.clear()
        with connected(port) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(data[:place])
            time.sleep(0.001)
            connection.sendall(data[place:])
            assert answers(connection, expected) == [200] * len(expected)
        assert application.requests == expected


def test_leave_is_given_to_send_a_body(echo: tuple[Echo, int]) -> None:
    with connected(echo[1]) as connection:
        connection.sendall(post(b"Expect: 100-continue", b"Content-Length: 3", b"Connection: close", body=b""))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert b"HTTP/1.1 200 " in connection.recv(1000)
    with connected(echo[1]) as connection:  # HTTP/1.0 knows of no such answer
        connection.sendall(post(b"Expect: 100-continue", b"Content-Length: 3", version=b"1.0"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_refusal_says_what_is_wrong(echo: tuple[Echo, int]) -> None:
    with connected(echo[1]) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        head, _, body = connection.recv(4000).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 505 HTTP Version Not Supported\r\n")
    assert b"\r\nConnection: close" in head
    assert b"gRPC, which needs HTTP/2, is not offered: use the protocol's form over HTTP." in body


def test_a_client_that_goes_on_reads_why_it_was_refused(echo: tuple[Echo, int]) -> None:
    with connected(echo[1]) as connection:
        connection.sendall(b"GET /p HTTP/1.1\r\nX: " + b"y" * 70_000)
        connection.sendall(b"y" * 500_000)
        assert connection.recv(1000).startswith(b"HTTP/1.1 431 ")


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.3)

    class Large(Echo):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await super().__call__(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(100):
                await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            self.requests.append(("", "", b""))

    application = Large()
    with running(application) as port, connected(port) as connection:
        connection.sendall(get())
        for _ in range(1000):
            if application.requests:
                break
            time.sleep(0.01)
        assert application.requests  # it has been let go
        received = 0
        with suppress(ConnectionError):
            while data := connection.recv(1 << 20):
                received += len(data)
        assert received < 100 << 20


def test_what_follows_waits_until_a_request_is_answered(echo: tuple[Echo, int]) -> None:
    """Bytes that are no request do not take the place of the answers before them."""
    with connected(echo[1]) as connection:
        connection.sendall(get() * 3 + b"nonsense\r\n")
        assert answers(connection, [("GET", "", b"")] * 3) == [200, 200, 200, 400]


def test_a_body_that_breaks_off_ends_the_request(echo: tuple[Echo, int]) -> None:
    application, port = echo
    application.requests.clear()
    with connected(port) as connection:
        connection.sendall(chunked(b"3\r\nabc\r\nx\r\n") + CLOSING)
        assert answers(connection, []) == [400]
    assert application.requests == []


def test_the_page_about_proxies_has_these_limits() -> None:
    text = (ROOT / "docs" / "behind-a-proxy.md").read_text(encoding="utf-8")
    for limit in (
        f"{HEAD_BYTES >> 10} KiB, {server.HEAD_SECONDS:.0f} s",
        f"nobody reads | {server.WRITE_SECONDS:.0f} s",
        f"an idle connection | {server.KEPT_SECONDS} s",
        f"client_max_body_size {Limits().body >> 20}m;",
        f"keepalive_timeout {server.KEPT_SECONDS - 15}s;",
        f"proxy_read_timeout {Limits().timeout + 5:.0f}s;",
    ):
        assert limit in text
