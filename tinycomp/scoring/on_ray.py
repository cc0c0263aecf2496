"""Row groups scored by Ray Data: on a cluster whose machines see the same files, or on this one.

Ray restarts actors that end and repeats what they were doing; that is safe, since a row group's results take their
place as a whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from tinycomp.errors import UnsupportedError
from tinycomp.scoring.piece import Done, Piece, Settings
from tinycomp.scoring.worker import Worker


def score_on_ray(settings: Settings, pieces: Sequence[Piece], count: int, address: str) -> Iterator[Done]:
    """Yield what has come of each piece, as they end.

    Args:
        settings: What the workers do.
        pieces: What there is to do.
        count: How many actors.
        address: Of the cluster, ``"auto"`` for the one that runs here, ``"local"`` for one of its own on this machine.

    Raises:
        UnsupportedError: If Ray is not installed.
        TinycompError: What a worker raises.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UnsupportedError(
            "Ray is needed", where="ray=", found=str(error), hint='Install it: pip install "tinycomp[ray]".'
        ) from error
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = [{"piece": number} for number in range(len(pieces))]
        data = ray.data.from_items(rows, override_num_blocks=len(pieces)).map_batches(
            _Actor, fn_constructor_args=(settings, pieces), batch_size=1, num_cpus=settings.threads,
            compute=ray.data.ActorPoolStrategy(size=min(count, len(pieces))),
        )  # fmt: skip
        for row in data.iter_rows():
            answer = pickle.loads(row["answer"])
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        if started:
            ray.shutdown()


class _Actor:
    """A worker as a class that Ray Data makes actors of."""

    def __init__(self, settings: Settings, pieces: Sequence[Piece]) -> None:
        self._settings, self._pieces = settings, pieces
        self._worker: Worker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Score the pieces that a batch names; of errors that are raised here, Ray would keep the text alone."""
        return {"answer": [pickle.dumps(self._score(self._pieces[int(number)])) for number in batch["piece"]]}

    def _score(self, piece: Piece) -> Done | BaseException:
        try:
            self._worker = self._worker or Worker(self._settings)
            return self._worker.score(piece)
        except Exception as error:
            return error
