"""The server: uvicorn with the application, which finishes what is under way before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tinycomp.errors import OptionError
from tinycomp.serving.application import Application

HEAD_BYTES = 1 << 16
"""What the head of a request may take."""
HEAD_SECONDS = 30.0
"""How long it may take to come, from when the connection is there or the head has begun."""
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
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
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
                application, log_config=None, access_log=False, lifespan="on", http=_Connection, ws="none",
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
    """A connection whose requests have heads of limited size, which come in limited time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._begin_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def _begin_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes, self._head_timer = 0, self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = None
