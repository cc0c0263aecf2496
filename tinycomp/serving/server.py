"""The server: uvicorn with the application, which finishes what is under way before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import http
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tinycomp.errors import OptionError
from tinycomp.serving.application import Application
from tinycomp.serving.framing import Event, Framing, Head
from tinycomp.serving.protocol import RequestError

HEAD_SECONDS = 30.0
"""How long a head may take to come, from when the connection is there or the head has begun."""
WRITE_SECONDS = 60.0
"""How long a client may leave an answer unread."""
LINGER_SECONDS = 2.0
"""How long what a client still sends is read over before the connection is closed, so that it reads why."""
KEPT_SECONDS = 75
"""How long a connection without requests stays; longer than proxies keep theirs."""
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: The address.
        port: The port; 0 for one that is free.

    Raises:
        OptionError: If that cannot be.
    """
    if port > 65535:
        raise OptionError("not a port", where=f"{host}, port {port}", expected="0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        host.encode("idna")
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:  # the latter of names that no host can have
        raise OptionError(
            "cannot listen", where=f"{host}, port {port}", found=str(error), hint="Choose another --port or --host."
        ) from error


def serve(application: Application, listening: socket.socket, *, grace: float = 30.0) -> None:
    """Serve until SIGTERM or Ctrl-C, and return once the requests that are under way have been answered.

    Args:
        application: What is served.
        listening: The socket.
        grace: Seconds that these may take; what is left then is dropped.
    """
    Server(application, grace).run(sockets=[listening])


class Server(uvicorn.Server):
    """A server of uvicorn for an application.

    Args:
        application: What is served.
        grace: Seconds for requests that are under way in the end.
    """

    def __init__(self, application: Application, grace: float = 30.0) -> None:
        super().__init__(
            uvicorn.Config(
                application, log_config=None, access_log=False, proxy_headers=False,
                lifespan="on", http=_Connection, ws="none",
                timeout_keep_alive=KEPT_SECONDS, timeout_graceful_shutdown=max(1, round(grace)),
            )
        )  # fmt: skip
        self._application = application

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        self._application.drain()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs; uvicorn would raise them again, which ends the process."""
        try:
            before = {each: signal.signal(each, self.handle_exit) for each in _STOPPING}
        except ValueError:  # not on the main thread, which alone has signals
            yield
            return
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


class _Connection(HttpToolsProtocol):
    """A connection of uvicorn's whose requests :class:`~tinycomp.serving.framing.Framing` reads, one after the other.

    A request is looked at when the one before it has been answered; until then it waits in the system, unread.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._framing = Framing()
        self._is_read, self._is_refused = True, False
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._close_in(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if not self._is_refused:
            self._framing.feed(data)
            self._go_on()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_read:
            self._close_in(HEAD_SECONDS)  # what is left of the body is read over
        self._go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_in(None)
        super().connection_lost(exc)
        self.resume_writing()

    def _go_on(self) -> None:
        """Read what has come, up to the end of the request that is answered now."""
        try:
            while not self.transport.is_closing() and (not self._is_read or self._is_answered()):
                event = self._framing.next()
                if event is None:
                    break
                self._take(event)
        except RequestError as error:
            self._refuse(error)
            return
        if self._framing.has_begun:
            if not self._is_answered():
                self.flow.pause_reading()
            elif self._timer is None:
                self._close_in(HEAD_SECONDS)

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _take(self, event: Event) -> None:
        """Tell uvicorn what has been read."""
        if isinstance(event, Head):
            self.on_message_begin()
            self.url, self.expect_100_continue, self.parser = event.target, event.waits, _Parsed(event)  # type: ignore[assignment]
            self.headers.extend(event.fields)
            self.on_headers_complete()
            self._close_in(None)
            self._is_read = False
        elif isinstance(event, bytes):
            self.on_body(event)
        else:
            self._is_read = True
            if self._is_answered():
                self._close_in(None)
            self.on_message_complete()

    def _refuse(self, error: RequestError) -> None:
        """Answer what is no request, unless an answer has begun, and close once the client has had time to read it."""
        self._is_refused = True
        has_begun = not self._is_read and self.cycle.response_started
        if not self._is_read:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not has_begun:
            body = orjson.dumps({"error": str(error)})
            reason = http.HTTPStatus(error.status).phrase
            self.transport.write(
                f"HTTP/1.1 {error.status} {reason}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._close_in(LINGER_SECONDS)

    def _close_in(self, seconds: float | None) -> None:
        """Close the connection after some time, unless something else is said before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.close)


class _Parsed:
    """What uvicorn asks its parser about a head."""

    def __init__(self, head: Head) -> None:
        self.get_http_version = lambda: head.version
        self.get_method = lambda: head.method
        self.should_keep_alive = lambda: head.keeps
        self.should_upgrade = lambda: False
