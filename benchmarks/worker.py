"""An object in a process of its own, which answers questions between long silences.

The process may be of another interpreter; it imports nothing but the module of the object.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_CHILD = "from benchmarks.worker import serve; serve()"


class Worker:
    """Our side of the process; after a failure every answer is None.

    Attributes:
        error: What went wrong, or nothing.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.error = ""
        self._process = process

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the object returns."""
        if not self.error:
            self._tell((method, arguments))
        return self._answer()

    def _tell(self, message: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(pickle.dumps(message))
            self._process.stdin.flush()

    def _answer(self) -> Any:
        if self.error:
            return None
        assert self._process.stdout is not None
        try:
            self.error, answer = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            self.error, answer = "the process ended", None
        return answer


@contextlib.contextmanager
def worker(module: str, name: str, *arguments: Any, python: str = sys.executable) -> Iterator[Worker]:
    """Start a process, make an object in it, and end the process.

    Args:
        module: Where the class of the object is.
        name: The class.
        arguments: What the object is made of; they and all answers must allow pickling.
        python: The interpreter.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [python, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    made = Worker(process)
    try:
        made._tell((module, name, arguments))
        made._answer()
        yield made
    finally:
        process.kill()
        process.communicate()


def serve() -> None:
    """The child's side: an object's description on standard input, then questions; the answers on standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the object itself prints is no answer
    made = None
    with contextlib.suppress(EOFError):
        while True:
            message = pickle.load(sys.stdin.buffer)
            try:
                if made is None:
                    module, name, arguments = message
                    made, answer = getattr(importlib.import_module(module), name)(*arguments), None
                else:
                    answer = getattr(made, message[0])(*message[1])
                reply: tuple[str, Any] = ("", answer)
            except Exception as error:
                reply = (f"{type(error).__name__}: {error}".partition("\n")[0], None)
            pickle.dump(reply, out)
            out.flush()


def pin(threads: int) -> None:
    """Keep this process on one core where the engine in it has one thread."""
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
