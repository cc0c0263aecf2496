"""Row groups scored by several processes of this machine.

A thread for each process hands it one row group after the other. A process that ends in the middle of one is replaced,
and the row group is scored again: nothing of it has been written to its place.
"""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Iterator, Sequence

from tinycomp.errors import ExecutionError
from tinycomp.runtime.child import Child, EndedError
from tinycomp.scoring.piece import Done, Piece, Settings
from tinycomp.scoring.worker import score_piece

ATTEMPTS = 3
"""How many processes may end over the same row group before that is an error."""


def score_in_processes(
    settings: Settings, pieces: Sequence[Piece], count: int, inherited: Sequence[int] = ()
) -> Iterator[Done]:
    """Yield what has come of each piece, as they end.

    Args:
        settings: What the workers do.
        pieces: What there is to do.
        count: How many processes.
        inherited: Descriptors that they keep open as long as they live.

    Raises:
        ExecutionError: If processes end again and again over the same piece.
        TinycompError: What a worker raises.
    """
    waiting: queue.SimpleQueue[Piece] = queue.SimpleQueue()
    for piece in pieces:
        waiting.put(piece)
    answers: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
    workers = [_Process(settings, inherited) for _ in range(min(count, len(pieces)))]
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
    """A worker in a process of its own."""

    def __init__(self, settings: Settings, inherited: Sequence[int]) -> None:
        self._settings, self._child = pickle.dumps(settings), Child(inherited)

    def score(self, piece: Piece) -> Done:
        """Have a piece scored."""
        found = ""
        for _ in range(ATTEMPTS):
            try:
                return self._child.call(score_piece, self._settings, piece)
            except EndedError as ended:
                found = str(ended)
                if self._child.is_stopped:
                    break
        raise ExecutionError(
            f"the process that scored this ended, {ATTEMPTS} times", where=str(piece), found=found,
            hint="If memory is short, use a smaller batch= or fewer workers=.",
        )  # fmt: skip

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._child.stop()
