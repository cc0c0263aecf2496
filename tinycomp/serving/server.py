"""The server: uvicorn with the application, which finishes what is under way before it ends."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import uvicorn

from tinycomp.errors import OptionError
from tinycomp.serving.application import Application

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
    config = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=max(1, round(grace))
    )
    _Server(config, application).run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
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
