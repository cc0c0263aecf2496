"""The examples for other servers answer. They run where these are installed, or with interpreters that have them.

``TINYCOMP_KSERVE_PYTHON`` and ``TINYCOMP_BENTOML_PYTHON`` name such interpreters: KServe wants older packages than the
other tests do.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinycomp.data import digits

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
"""More than a server takes to start by far, even on a busy machine."""
IMAGES, LABELS = digits()


def interpreter(package: str) -> str:
    """A Python that has a package."""
    given = os.environ.get(f"TINYCOMP_{package.upper()}_PYTHON")
    if given is None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return given or sys.executable


def ask(process: subprocess.Popen[bytes], port: int, path: str, body: Any) -> tuple[int, Any]:
    """Ask a server, as soon as it answers."""
    end = time.monotonic() + SECONDS
    while True:
        assert process.poll() is None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            data = response.read()
            if response.status not in (404, 503) or time.monotonic() > end:
                return response.status, json.loads(data)
        except OSError:
            assert time.monotonic() < end
        finally:
            connection.close()
        time.sleep(0.1)


def served(arguments: list[str], folder: Path, port: int, path: str, body: Any) -> Any:
    """Start a server, return its answer, and stop it."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths, "BENTOML_HOME": str(folder), "BENTOML_DO_NOT_TRACK": "True"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            arguments, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )  # fmt: skip
        try:
            status, answer = ask(process, port, path, body)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(SECONDS)
    assert status == 200, answer
    return answer


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
        return found


def test_the_predictor_of_kserve_answers(tmp_path: Path, port: int) -> None:
    example = str(ROOT / "examples" / "kserve_predictor.py")
    command = [interpreter("kserve"), example, "--http_port", str(port), "--enable_grpc", "false"]
    tensor = {"name": "image", "shape": [3, 1, 8, 8], "datatype": "FP32", "data": IMAGES[:3].reshape(-1).tolist()}
    answer = served(command, tmp_path, port, "/v2/models/digits/infer", {"id": "7", "inputs": [tensor]})
    assert answer["id"] == "7"
    (output,) = answer["outputs"]
    assert np.reshape(output["data"], output["shape"]).argmax(axis=1).tolist() == LABELS[:3].tolist()


def test_the_service_of_bentoml_answers(tmp_path: Path, port: int) -> None:
    start = "from bentoml_cli.cli import cli; cli()"
    command = [interpreter("bentoml"), "-c", start, "serve", "bentoml_service:Digits", "--port", str(port)]
    command += ["--working-dir", str(ROOT / "examples")]
    answer = served(command, tmp_path, port, "/classify", {"images": IMAGES[:3].tolist()})
    assert np.array(answer).argmax(axis=1).tolist() == LABELS[:3].tolist()
