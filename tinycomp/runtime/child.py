"""Processes for calls that must not hold up this one, nor take it with them when they end.

Functions and arguments go to the process as pickles through a pipe that only the two hold, results come back through
another. A process whose parent has gone ends at once, whatever it does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

_Result = TypeVar("_Result")
_START = "import sys; sys.path[:] = sys.argv[1:]; from tinycomp.runtime.child import main; main()"


class EndedError(Exception):
    """The process has ended in the middle of a call.

    Attributes:
        code: Its exit code; below 0 the number of a signal.
    """

    def __init__(self, code: int | None) -> None:
        self.code = code
        ending = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        super().__init__("it was stopped" if code is None else ending)


class Child:
    """A process that is started when it is needed, and again when it has ended.

    Args:
        inherited: Descriptors that it keeps open as long as it lives.
    """

    def __init__(self, inherited: Sequence[int] = ()) -> None:
        self._inherited = tuple(inherited)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.is_stopped = False

    def call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Have a function of a module called, one at a time.

        Raises:
            EndedError: If the process ends meanwhile, or is stopped.
            Exception: What the function raises.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(pickle.dumps((function, arguments), protocol=5), process.stdin, protocol=5)
            process.stdin.flush()
            result, error = pickle.load(process.stdout)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as broken:  # it has ended, or is ending
            process.kill()
            raise EndedError(process.wait()) from broken
        except BaseException:  # the next call would get the answer to this one
            self.end()
            raise
        if error is not None:
            raise error
        returned: _Result = result
        return returned

    def end(self) -> None:
        """End the process, whatever it does; the next call starts another."""
        with self._lock:
            self._end()

    def stop(self) -> None:
        """End the process, whatever it does, for good."""
        self.is_stopped = True
        self.end()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self.is_stopped:
                raise EndedError(None)
            if self._process is None or self._process.poll() is not None:
                self._end()
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _START, *sys.path],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=self._inherited,
                )  # fmt: skip
            return self._process

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what could not be written to it any more
                    stream.close()
        self._process = None


def main() -> None:
    """Serve the process that has started this one; what anybody prints goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that has started this one
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        threading.Thread(target=_receive, args=(sys.stdin.buffer, calls), daemon=True).start()
        while True:
            result = error = None
            try:
                function, arguments = pickle.loads(calls.get())
                result = function(*arguments)
            except Exception as caught:
                error = caught
            pickle.dump((result, error), answers, protocol=5)
            answers.flush()


def _receive(requests: BinaryIO, calls: queue.SimpleQueue[Any]) -> None:
    """Hand calls on until nobody makes any more."""
    while True:
        try:
            calls.put(pickle.load(requests))
        except (OSError, EOFError, pickle.UnpicklingError):
            os._exit(0)
