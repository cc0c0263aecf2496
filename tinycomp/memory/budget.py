"""What one run may spend: a budget of bytes and a point in time, and whether it is still wanted.

The limits of a run live in a context variable, so that kernels deep inside a plan see them without passing them on,
and runs in several threads do not see each other's. Kernels whose results may be far larger than their operands call
:func:`reserve` before they allocate; plans call :func:`check_time` between their steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import RLock
from typing import NamedTuple

from tinycomp.errors import MemoryLimitError, OptionError, TimeLimitError, shown
from tinycomp.memory import system
from tinycomp.memory.locks import Lock

SMALL = 1 << 26
"""Without a budget of the user's, requests up to this many bytes are granted without asking the system."""
ENLARGE = "Use smaller inputs, or compile with a larger memory_limit=."


_asking = Lock()
"""Held by who asks for an end."""


class Cancellation:
    """Let other threads end a run, where its timeout would."""

    def __init__(self) -> None:
        self.is_asked = False
        self._enders: list[Callable[[], object]] = []

    def ask(self) -> None:
        """End the run soon."""
        self.is_asked = True
        with _asking:
            for end in [*self._enders]:
                end()

    def add(self, end: Callable[[], object]) -> None:
        """Have something called, perhaps twice, when the run is to end, which does not see it itself."""
        self._enders.append(end)
        if self.is_asked:
            end()

    def remove(self, end: Callable[[], object]) -> None:
        """Have something called no more from now on."""
        self._enders.remove(end)
        if self.is_asked:
            with _asking:  # who asks may be about to call it
                return

    @contextmanager
    def ending(self, end: Callable[[], object]) -> Iterator[None]:
        """Have something called within the ``with`` statement: see :meth:`add`."""
        self.add(end)
        try:
            yield
        finally:
            self.remove(end)


_NOBODY = Cancellation()
"""What nobody asks."""


class Limits(NamedTuple):
    """The limits of a run.

    Attributes:
        memory: Bytes; None for what the machine has available.
        deadline: When to stop, on the clock of :func:`time.monotonic`; None for never.
        timeout: The seconds that led to the deadline, for the message.
        cancellation: Ends the run before.
    """

    memory: int | None = None
    deadline: float | None = None
    timeout: float | None = None
    cancellation: Cancellation = _NOBODY

    @property
    def may_end(self) -> bool:
        """Tell whether a run may have to end before it is done."""
        return self.deadline is not None or self.cancellation is not _NOBODY

    @property
    def remaining(self) -> float | None:
        """Return the seconds that a run has left; None for any number."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    @property
    def pause(self) -> float:
        """Return the seconds after which who waits looks again whether the run is to end."""
        remaining = self.remaining
        return LOOK if remaining is None else min(remaining, LOOK)


LOOK = 0.25
"""Seconds after which who waits for others looks at what they may not tell."""
_UNLIMITED = Limits()
LASTING = 1e9
"""Seconds that no run takes."""
_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
_current: ContextVar[Limits] = ContextVar("tinycomp_limits", default=_UNLIMITED)


@contextmanager
def limited(
    memory: int | None = None, timeout: float | None = None, cancellation: Cancellation | None = None
) -> Iterator[None]:
    """Set the limits of everything that runs inside the ``with`` statement; what could cancel it before still can.

    Raises:
        TinycompError: If a limit is not a number above 0.
    """
    check_positive("timeout", timeout, "seconds")
    deadline = None if timeout is None else time.monotonic() + min(timeout, LASTING)
    token = _current.set(Limits(memory, deadline, timeout, cancellation or _current.get().cancellation))
    try:
        yield
    finally:
        _current.reset(token)


def end_with(cancellation: Cancellation) -> None:
    """Let what this thread does from now on end when that is asked, and set no other limits."""
    _current.set(Limits(cancellation=cancellation))


def check_positive(name: str, value: float | None, unit: str) -> None:
    """Refuse an option that is neither None nor a number above 0.

    Raises:
        OptionError: If it is.
    """
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0):
        return
    raise OptionError("not a limit", where=name, expected=f"{unit}, a number above 0, or None", found=shown(value))


def current() -> Limits:
    """Return the limits in force."""
    return _current.get()


def check_time(limits: Limits, where: str = "") -> None:
    """Stop a run whose timeout is over, or which nobody wants any more.

    Raises:
        TimeLimitError: If it is one.
    """
    if limits.cancellation.is_asked or (limits.deadline is not None and time.monotonic() > limits.deadline):
        raise time_is_up(limits, where)


def time_is_up(limits: Limits, where: str) -> TimeLimitError:
    """Return the error that says that the time is up, or the run cancelled."""
    if limits.cancellation.is_asked:
        return TimeLimitError("the run was cancelled", where=where)
    return TimeLimitError(
        "the time is up", where=where, expected=f"an end within {limits.timeout or 0:g} s",
        hint="Allow more with timeout=, or look for a loop that does not end.",
    )  # fmt: skip


@contextmanager
def in_time(lock: Lock | RLock, limits: Limits, where: str) -> Iterator[None]:
    """Hold a lock, which others may hold for long.

    Raises:
        TimeLimitError: If the time of the run is up before it is free.
    """
    while not lock.acquire(timeout=limits.pause):
        check_time(limits, where)
    try:
        yield
    finally:
        lock.release()


def reserve(shape: Sequence[int], itemsize: int, where: str) -> None:
    """Refuse an array that the budget does not allow, before it is allocated.

    Args:
        shape: Its sizes, in any range.
        itemsize: Bytes of one element.
        where: The operator, for the message.

    Raises:
        MemoryLimitError: If it is too large.
    """
    size = math.prod(shape) * itemsize
    if size > SMALL or _current.get().memory is not None:
        reserve_bytes(size, where, f"shape {list(shape)}")


def reserve_bytes(size: int, where: str, what: str = "") -> None:
    """Refuse ``size`` bytes if the budget does not allow them; ``what`` says what they are for.

    Raises:
        MemoryLimitError: If they are too many.
    """
    limit = _current.get().memory
    allowed = limit if limit is not None else available_memory() if size > SMALL else size
    if size > allowed:
        raise MemoryLimitError(
            "more memory would be needed than the budget allows", where=where, expected=f"at most {allowed} bytes",
            found=f"{size} bytes" + (f" for {what}" if what else ""), hint=ENLARGE,
        )  # fmt: skip


def available_memory() -> int:
    """Return the bytes that the machine can still give out, within the process's cgroup."""
    found = system.available_memory()
    return min(1 << 62 if found is None else found, _cgroup())


def _cgroup(root: Path = Path("/sys/fs/cgroup")) -> int:
    for limit, used in _CGROUP_FILES:
        try:
            return max(int((root / limit).read_text()) - int((root / used).read_text()), 0)
        except (OSError, ValueError):
            continue
    return 1 << 62
