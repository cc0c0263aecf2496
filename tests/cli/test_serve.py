"""``tinycomp serve`` serves, and finishes what is under way when it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tinycomp.cli import exits
from tinycomp.data import digits
from tinycomp.errors import OptionError

for package in ("starlette", "uvicorn", "orjson", "prometheus_client"):
    pytest.importorskip(package, reason='serving needs the extra "serve"')

from tests.serving.servers import Answer, Client, ask_once  # noqa: E402


def test_what_is_under_way_is_answered_after_sigterm(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, [str(Path(tinycomp.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable,
        "-m",
        "tinycomp",
        "serve",
        "ours:3=digits",
        "--port",
        "0",
        "--json",
        "--batch-delay",
        "1000",
    ]
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = ""
        while not said.endswith("\n}\n"):
            said += server.stdout.readline()
        started = json.loads(said)
        assert started["models"] == [{"name": "ours", "version": "3"}]
        port = int(started["url"].rpartition(":")[2].partition("/")[0])
        answers: list[Answer] = []
        thread = threading.Thread(target=lambda: answers.append(ask_once(port, "ours", digits()[0][:1], name="image")))
        thread.start()
        with Client(port) as watcher:
            while b"tinycomp_in_flight 1.0" not in watcher.ask("GET", "/metrics").body:
                time.sleep(0.01)
        server.send_signal(signal.SIGTERM)
        thread.join()
        assert server.wait(60) == exits.OK
    assert answers[0].status == 200
    assert int(np.argmax(answers[0].array())) == digits()[1][0]


def test_strangers_are_not_listened_to_unless_asked(monkeypatch: pytest.MonkeyPatch, call) -> None:
    asked: list[str] = []

    def listen(host: str, port: int) -> None:
        asked.append(host)
        raise OptionError("enough")

    monkeypatch.setattr("tinycomp.serving.server.listen", listen)
    call("serve", "digits")
    call("serve", "digits", "--host", "::")
    assert asked == ["127.0.0.1", "::"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--port", "99999"], "not a port"),
        (["digits", "--host", "192.0.2.1"], "cannot listen"),
        (["digits", "--timeout", "x"], "expected a number from 0 on, found x"),
        (["m:=digits"], "cannot read a model"),
        (["missing.tcm"], "there is no such file"),
        (["a=digits", "a=digits"], "a name is given twice"),
    ],
)
def test_what_is_wrong_is_said_before_serving(call, arguments: list[str], message: str) -> None:
    result = call("serve", *arguments)
    assert result.code == exits.USAGE
    assert message in result.error
