"""Talk to tosa-tools, which may be installed in another environment: its pinned packages are older than onnx wants."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO

import numpy as np

from tinycomp.errors import TargetError
from tinycomp.ops.numeric import Array
from tinycomp.targets.tosa import worker
from tinycomp.targets.tosa.program import Program

PYTHON = "TINYCOMP_TOSA_PYTHON"
"""The environment variable that names the interpreter of the environment with the tools."""


def interpreter(given: str = "") -> str:
    """Return the interpreter to run tools with: the one of an option, of the environment variable, or this one."""
    return given or os.environ.get(PYTHON, "") or sys.executable


def environment() -> dict[str, str]:
    """Return the environment variables of tools, whose packages are not those of this process."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONSAFEPATH": "1"}


def missing(package: str, python: str, found: str) -> TargetError:
    """Return the error that says what to install, and where."""
    return TargetError(
        f"{package} does not run", where=python, expected=f"an interpreter of Python with {package}", found=found,
        hint="Make an environment (python -m venv tosa; tosa/bin/pip install tosa-tools ethos-u-vela), "
        f"and set {PYTHON} or the option python to its interpreter, tosa/bin/python.",
    )  # fmt: skip


class Worker:
    """Hold a process that has tosa-tools; it ends with the last reference. Threads take turns.

    Args:
        python: The interpreter to start.
    """

    def __init__(self, python: str) -> None:
        self.python = python
        self._turn = threading.Lock()
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            self._process = subprocess.Popen(
                [python, str(Path(worker.__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._messages, env=environment(),
            )  # fmt: skip
        except OSError as error:
            self._messages.close()
            raise missing("tosa-tools", python, str(error)) from error
        weakref.finalize(self, _end, self._process, self._messages)

    @property
    def has_ended(self) -> bool:
        """Tell whether the process is no more."""
        return self._process.poll() is not None

    def ask(self, do: str, arrays: dict[str, Array]) -> dict[str, Array]:
        """Return the answer to a request.

        Raises:
            TargetError: If the tools are missing, or refuse it.
        """
        request = io.BytesIO()
        named = {name or "about": array for name, array in arrays.items()}
        np.savez(request, do=np.array(do), **named)  # type: ignore[arg-type]
        with self._turn:
            data = self._exchange(request.getvalue())
        with np.load(io.BytesIO(data), allow_pickle=False) as answer:
            result = {name: answer[name] for name in answer.files}
        if "error" in result:
            found = str(result["error"])
            if found.startswith("ModuleNotFoundError"):
                raise missing("tosa-tools", self.python, found)
            raise TargetError(f"tosa-tools cannot {do} a program", where=self.python, found=f"{found}\n{self._said()}")
        return result

    def _exchange(self, request: bytes) -> bytes:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(len(request).to_bytes(8, "little") + request)
            process.stdin.flush()
            head = process.stdout.read(8)
            data = process.stdout.read(int.from_bytes(head, "little"))
        except OSError as error:
            raise missing("tosa-tools", self.python, f"{error}\n{self._said()}") from error
        except BaseException:  # the next request would get the answer to this one
            process.kill()
            process.wait()
            raise
        if not data:
            process.wait()
            raise missing("tosa-tools", self.python, f"the process ended\n{self._said()}")
        return data

    def _said(self) -> str:
        """Return the end of what the tools have printed."""
        self._messages.seek(0)
        return self._messages.read()[-2000:].decode(errors="replace").strip()


def _end(process: subprocess.Popen[bytes], messages: IO[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait()
    messages.close()


_workers: weakref.WeakValueDictionary[str, Worker] = weakref.WeakValueDictionary()
_starting = threading.Lock()


def worker_of(python: str) -> Worker:
    """Return the process of an interpreter, which whoever holds one shares; a new one if nobody does."""
    with _starting:
        found = _workers.get(python)
        if found is None or found.has_ended:
            found = _workers[python] = Worker(python)
        return found


def serialize(program: Program, python: str) -> Array:
    """Return the TOSA file of a program as bytes, uint8.

    Raises:
        TargetError: If the tools are missing, or refuse it.
    """
    return worker_of(python).ask("serialize", program.to_arrays())["tosa"]


class ReferenceModel:
    """Run a TOSA file in the reference model: slow, and exact.

    Args:
        file: Its bytes, uint8.
        unsigned: Which results are of uint8, which the file stores as int8.
        python: The interpreter that has tosa-tools.
    """

    def __init__(self, file: Array, unsigned: Array, python: str) -> None:
        self._file, self._unsigned = file, unsigned.tolist()
        self._worker = worker_of(python)

    def __call__(self, *operands: Array) -> list[Array]:
        """Return the results."""
        signed = [a.view(np.int8) if a.dtype == np.uint8 else a for a in map(np.ascontiguousarray, operands)]
        answer = self._worker.ask("run", {"tosa": self._file, **{str(i): a for i, a in enumerate(signed)}})
        results = [answer[str(place)] for place in range(len(self._unsigned))]
        given = [a.view(np.uint8) if u else a for a, u in zip(results, self._unsigned, strict=True)]
        return [a.astype(np.int64) if a.dtype == np.int32 else a for a in given]  # places, which ONNX counts in int64
