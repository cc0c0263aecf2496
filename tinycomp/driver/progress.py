"""A progress bar on stderr, for what takes long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """A progress bar on stderr.

    Args:
        wanted: Whether to show one; None for where stderr is a terminal.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._console = Console(stderr=True)
        self._shown = self._console.is_terminal if wanted is None else wanted

    @contextmanager
    def over(self, what: str, items: Iterable[Any], total: int) -> Iterator[Iterator[Any]]:
        """Yield an iterator over ``items`` that moves the bar; a ``total`` of 0 is one that is not known."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        options = {"console": self._console, "transient": self._console.is_terminal, "disable": not self._shown}
        with Progress(*columns, **options) as bar:  # type: ignore[arg-type]
            yield iter(bar.track(items, total=total or None, description=what))
