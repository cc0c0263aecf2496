"""Servers in a thread of the tests, and what clients say to them."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinycomp.serving.application import Application
from tinycomp.serving.protocol import DATATYPES, HEADER
from tinycomp.serving.server import Server, listen


@dataclass
class Answer:
    """What a server has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def array(self, dtype: str = "float32") -> np.ndarray:
        """The only output."""
        length = self.headers.get(HEADER.lower())
        (output,) = json.loads(self.body[: None if length is None else int(length)])["outputs"]
        if length is None:
            return np.array(output["data"], dtype).reshape(output["shape"])
        return np.frombuffer(self.body[int(length) :], dtype).reshape(output["shape"])


class Client:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, data, dict(headers or {}))
        response = self.connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def infer(self, model: str, array: np.ndarray, *, binary: bool = False, name: str = "x", **more: Any) -> Answer:
        given: dict[str, Any] = {"name": name, "shape": array.shape, "datatype": DATATYPES[array.dtype.name]}
        if not binary:
            body = {"inputs": [given | {"data": array.reshape(-1).tolist()}], **more}
            return self.ask("POST", f"/v2/models/{model}/infer", body)
        given["parameters"] = {"binary_data_size": array.nbytes}
        head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}, **more}).encode()
        return self.ask("POST", f"/v2/models/{model}/infer", head + array.tobytes(), {HEADER: str(len(head))})


def ask_once(port: int, *arguments: Any, **named: Any) -> Answer:
    """Ask for a result over a connection of its own."""
    with Client(port) as client:
        return client.infer(*arguments, **named)


@contextlib.contextmanager
def running(application: Application) -> Iterator[int]:
    """Serve in another thread; yields the port."""
    listening = listen("127.0.0.1", 0)
    server = Server(application)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
