"""Row groups scored by several processes of this machine.

A thread for each process hands it one row group after the other. A process that ends in the middle of one is replaced,
and the row group is scored again: nothing of it has been written to its place.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from tinycomp.errors import ExecutionError
from tinycomp.scoring.piece import Done, Piece, Settings

ATTEMPTS = 3
"""How many processes may end over the same row group before that is an error."""
_START = "import sys; sys.path[:] = sys.argv[1:]; from tinycomp.scoring.worker import main; main()"


def score_in_processes(settings: Settings, pieces: Sequence[Piece], count: int) -> Iterator[Done]:
    """Yield what has come of each piece, as they end.

    Args:
        settings: What the workers do.
        pieces: What there is to do.
        count: How many processes.

    Raises:
        ExecutionError: If processes end again and again over the same piece.
        TinycompError: What a worker raises.
    """
    waiting: queue.SimpleQueue[Piece] = queue.SimpleQueue()
    for piece in pieces:
        waiting.put(piece)
    answers: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
    workers = [_Process(settings) for _ in range(min(count, len(pieces)))]
    threads = [threading.Thread(target=_work, args=(worker, waiting, answers), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in pieces:
            answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _work(
    worker: _Process, waiting: queue.SimpleQueue[Piece], answers: queue.SimpleQueue[Done | BaseException]
) -> None:
    while True:
        try:
            piece = waiting.get_nowait()
        except queue.Empty:
            worker.stop()
            return
        try:
            answers.put(worker.score(piece))
        except BaseException as error:
            answers.put(error)
            return


class _Process:
    """A worker in a process of its own, which is started when it is needed, and again when it has ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def score(self, piece: Piece) -> Done:
        """Have a piece scored."""
        code: int | None = None
        for _ in range(ATTEMPTS):
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump(piece, process.stdin)
                process.stdin.flush()
                answer = pickle.load(process.stdout)
            except (OSError, EOFError, pickle.UnpicklingError):  # it has ended, or is ending
                process.kill()
                code = process.wait()
                if self._stopped:
                    break
                continue
            if isinstance(answer, Done):
                return answer
            raise answer
        raise ExecutionError(
            f"the process that scored this ended, {ATTEMPTS} times", where=str(piece), found=_ending(code),
            hint="If memory is short, use a smaller batch= or fewer workers=.",
        )  # fmt: skip

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise ExecutionError("scoring was stopped")
            if self._process is None or self._process.poll() is not None:
                self._close()
                command = [sys.executable, "-c", _START, *sys.path]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                assert self._process.stdin is not None
                with contextlib.suppress(OSError):  # if it has ended already, so it will be found
                    pickle.dump(self._settings, self._process.stdin)
                    self._process.stdin.flush()
            return self._process

    def stop(self) -> None:
        """End the process, whatever it does."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._close()

    def _close(self) -> None:
        for stream in () if self._process is None else (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what could not be written to it any more
                    stream.close()


def _ending(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
