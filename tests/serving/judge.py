"""What is in the bytes of a connection, as ours reads it and as h11 does, which shares no line with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import h11

from tinycomp.serving.framing import Framing, Head
from tinycomp.serving.protocol import RequestError

Request = tuple[str, str, bytes]
"""Method, address and body."""


@dataclass
class Seen:
    """What somebody has seen.

    Attributes:
        requests: Those that are complete.
        open: The one that is not; None without one.
        status: With which the rest is refused; 0 if it is not.
    """

    requests: list[Request] = field(default_factory=list)
    open: Request | None = None
    status: int = 0

    def begin(self, method: bytes, target: bytes) -> None:
        self.open = (method.decode(), target.decode(), b"")

    def go_on(self, data: bytes) -> None:
        assert self.open is not None
        self.open = (*self.open[:2], self.open[2] + data)

    def end(self) -> None:
        assert self.open is not None
        self.requests.append(self.open)
        self.open = None


def ours(packets: Iterable[bytes]) -> Seen:
    framing, seen = Framing(), Seen()
    try:
        for packet in packets:
            framing.feed(packet)
            while (event := framing.next()) is not None:
                if isinstance(event, Head):
                    seen.begin(event.method, event.target)
                elif isinstance(event, bytes):
                    seen.go_on(event)
                else:
                    seen.end()
    except RequestError as error:
        seen.status = error.status
    return seen


def judged(data: bytes) -> Seen:
    connection, seen = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20), Seen()
    connection.receive_data(data)
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                seen.begin(event.method, _path(event.target))
            elif isinstance(event, h11.Data):
                seen.go_on(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                seen.end()
                connection.send(h11.Response(status_code=400, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    break
                connection.start_next_cycle()
            else:
                break
    except h11.RemoteProtocolError as error:
        seen.status = error.error_status_hint
    return seen


def _path(target: bytes) -> bytes:
    scheme, colon, rest = target.partition(b"://")
    if not colon or scheme.lower() not in (b"http", b"https"):
        return target
    rest, question, query = rest.partition(b"?")
    _, _, path = rest.partition(b"/")
    return b"/" + path + question + query


def disagreement(data: bytes, seen: Seen) -> str:
    """Say what the judge does not see in these bytes, or what it sees and we pass over; nothing if we agree.

    To refuse what the judge reads is no disagreement, since the connection ends with it.
    """
    other = judged(data)
    if seen.requests != other.requests[: len(seen.requests)]:
        return f"other requests: {seen.requests} beside {other.requests}"
    if not seen.status and (seen.requests, seen.open, 0) != (other.requests, other.open, other.status):
        return f"{seen}, but the judge: {other}"
    return ""
