"""The devices that a module uses: who opens and closes them, who waits for their commands, and what they have done."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tinycomp.errors import DeviceFault, MemoryLimitError, TargetError, TinycompError
from tinycomp.memory.budget import LASTING, LOOK, Limits, check_time, current
from tinycomp.memory.locks import Lock
from tinycomp.runtime.device.interface import Activity, Array, Device, DeviceBuffer, told

if TYPE_CHECKING:
    from tinycomp.runtime.rows import DeviceRow

_T = TypeVar("_T")
_faults = logging.getLogger("tinycomp.device.faults")
_making = Lock()
_numbers = itertools.count()
_LATE = 1.0
"""Seconds by which a device's own wait may be longer than it was told."""
_TURN = 10.0
"""Seconds that a device is told to wait at once: whether the run still wants that is looked at between the turns."""
_CLOSING = 60.0
"""Seconds that a device may take to close, once it has no commands."""


Finish = Callable[[], None]
"""Waits for the end of commands that have been submitted together, and goes on with what follows."""


class Instance:
    """A device as all modules that use it see it: the thread that waits for its commands, and memory for requests.

    A request is given all the memory that it needs on a device at once, which other requests use again after it.

    Args:
        device: The device.

    Attributes:
        device: The device.
        active: Requests that use it now.
        number: Its place in the order in which requests ask for memory, so that none waits for another in a circle.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.active = 0
        self.number = next(_numbers)
        self.process = os.getpid()
        self._idle: dict[int, list[DeviceBuffer]] = {}
        self._out = 0
        self._changed = threading.Condition()
        self._tasks: queue.SimpleQueue[Finish | None] = queue.SimpleQueue()
        self._ends: list[BaseException] = []
        """What the device has raised when it was closed."""
        self._waiter: threading.Thread | None = None
        self._closed = False
        self._due: tuple[str, float] | None = None
        """What the thread that waits has called of the device, and when that is to return."""

    @classmethod
    def of(cls, device: Device) -> Instance:
        """Return the instance of a device, the same one every time."""
        with _making:
            if device._instance is None:
                device._instance = cls(device)
            made: Instance = device._instance
            return made

    def enter(self) -> None:
        """Count a request that begins."""
        with self._changed:
            self.active += 1

    def leave(self) -> None:
        """Count a request that ends."""
        with self._changed:
            self.active -= 1

    def watch(self, finish: Finish) -> None:
        """Have the end of commands waited for, after those before them.

        Raises:
            DeviceFault: If the device has been closed meanwhile.
        """
        with self._changed:
            self.check_open()
            if self._waiter is None:
                name = f"tinycomp, {self.device.name}"
                self._waiter = threading.Thread(target=self._serve, name=name, daemon=True)
                self._waiter.start()
            self._tasks.put(finish)

    def awaited(self, event: Any, patience: float | None, is_wanted: Callable[[], bool]) -> Sequence[Activity]:
        """Wait for a command on the thread that does so for the device, while it is wanted and so many seconds at most.

        Raises:
            TimeoutError: If it has not ended then.
            DeviceFault: If it has failed.
        """
        end = time.monotonic() + (LASTING if patience is None else min(patience, LASTING))
        while True:
            now = time.monotonic()
            turn = max(min(end - now, _TURN), 0.0)
            self._due = "wait", now + turn + _LATE
            try:
                return self.device.wait(event, turn) or ()
            except TimeoutError:  # at once, it is no end of a turn but what the vendor's code has met
                if turn < _TURN or time.monotonic() < now + _TURN / 2 or not is_wanted():
                    raise
            finally:
                self._due = None

    def wait(self, event: Any, patience: float | None) -> None:
        """Wait for a command, so many seconds at most and no longer than the run may take, whatever the device does.

        Raises:
            TimeoutError: If the command has not ended in so many seconds.
            DeviceFault: If it has failed, or the device does not say that it has not ended.
            TimeLimitError: If the run is to end.
        """
        limits = current()
        said: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        asking = [True]

        def finish() -> None:
            try:
                self.awaited(event, patience, lambda: bool(asking))
            except BaseException as error:
                said.put(error)
            else:
                said.put(None)

        self.watch(finish)
        try:
            with limits.cancellation.ending(lambda: said.put(None)):
                error = heard(said, limits, (self,))
        finally:
            asking.clear()
        check_time(limits, f"waiting for {self.device.name}")
        if error is not None:
            raise error

    def check_back(self) -> None:
        """Refuse to go on with a device that has not returned in time from its own ``wait`` or ``close``.

        Raises:
            DeviceFault: If it has not.
        """
        due = self._due
        if due is not None and time.monotonic() > due[1]:
            raise DeviceFault(
                f"the device does not return from its {due[0]}, whose time is up", command=due[0],
                where=self.device.name,
                hint="It is used again when it has. Reset the device, or ask its vendor.",
            )  # fmt: skip

    def check_open(self) -> None:
        """Refuse to go on with a device that is closed, does not return, or belongs to the parent of this process.

        Raises:
            DeviceFault: If it is one.
        """
        if self._closed:
            raise DeviceFault("the device has been closed", where=self.device.name, hint="Load the module anew.")
        self.check_back()
        check_process(self.device, self.process)

    def acquire(self, size: int, limits: Limits) -> DeviceBuffer:
        """Return so many bytes of the device's first memory, perhaps after other requests have given theirs back.

        Raises:
            MemoryLimitError: If the device has not that much.
            ExecutionError: If the time is up.
        """
        own = _held()
        with limits.cancellation.ending(self._wake), self._changed:
            while True:
                buffer = self._taken(size, own.get(self.number, 0))
                if buffer is not None:
                    break
                self._wait(limits)
            self._out += 1
        own[self.number] = own.get(self.number, 0) + 1
        return buffer

    def _taken(self, size: int, own: int) -> DeviceBuffer | None:
        """Return memory that is free, or None if other requests than this thread's ``own`` will give some back."""
        if self._idle.get(size):
            return self._idle[size].pop()
        while True:
            try:
                return self._room((size,), np.uint8)
            except MemoryLimitError as error:
                if any(self._idle.values()):
                    self.trim()
                elif self._out > own:
                    return None
                else:
                    raise MemoryLimitError(
                        "the device does not have the memory that a run needs", where=self.device.name,
                        expected=error.expected, found=f"{size} bytes for a run",
                        hint="Use smaller inputs, let the target split its regions, or release buffers.",
                    ) from error  # fmt: skip

    def room_for(self, array: Array) -> DeviceBuffer:
        """Return a buffer for a constant, to be kept.

        Raises:
            MemoryLimitError: If there is no room.
        """
        with self._changed:
            try:
                return self._room(array.shape, array.dtype)
            except MemoryLimitError:
                self.trim()
                return self._room(array.shape, array.dtype)

    def _room(self, shape: Sequence[int], dtype: Any) -> DeviceBuffer:
        try:
            return self.device.empty(shape, dtype)
        except TinycompError:
            raise
        except Exception as error:
            raise DeviceFault(told(error), command="allocate", where=f"{self.device.name}, command allocate") from error

    def _wait(self, limits: Limits) -> None:
        check_time(limits, f"waiting for memory of {self.device.name}")
        self._changed.wait(limits.remaining)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def give_back(self, buffer: DeviceBuffer) -> None:
        """Take back what :meth:`acquire` returned; commands on it may still run, as others come behind them."""
        own = _held()
        own[self.number] -= 1
        with self._changed:
            self._out -= 1
            if self._closed:
                buffer.release()
            else:
                self._idle.setdefault(buffer.nbytes, []).append(buffer)
            self._changed.notify_all()

    def trim(self) -> None:
        """Give back memory that no request uses now."""
        with self._changed:
            for buffers in self._idle.values():
                while buffers:
                    buffers.pop().release()

    def close(self, patience: float | None = None) -> None:
        """Let the commands that are waited for end, and close the device.

        Args:
            patience: Seconds after which this is left to the thread that waits for the commands; None for no limit.

        Raises:
            DeviceFault: If the device fails at that.
        """
        if self.process != os.getpid():
            return
        with self._changed:
            if self._closed:
                return
            self._closed = True
            waiter = self._waiter
            try:
                self.trim()
            except Exception as error:  # the memory of a device ends with it
                _faults.warning("%s, command free: %s", self.device.name, told(error))
            finally:
                self._tasks.put(None)
        if waiter is None:
            self._serve()  # on this thread, as none can be started at the end of the process: the vendor's to end
        elif waiter is not threading.current_thread():
            end = time.monotonic() + (float("inf") if patience is None else patience)
            while waiter.is_alive() and time.monotonic() < end:
                waiter.join(min(LOOK, max(end - time.monotonic(), 0)))
                self.check_back()
        for raised in self._ends:
            if waiter is None and not isinstance(raised, Exception):
                raise raised
            raise DeviceFault(
                f"the device does not close: {told(raised)}", command="close", where=self.device.name
            ) from raised

    def _serve(self) -> None:
        """Wait for commands until the device is to close, and close it."""
        while (finish := self._tasks.get()) is not None:
            finish()
            del finish  # it holds the arrays of a request
        self._due = "close", time.monotonic() + _CLOSING
        try:
            self.device.close()
        except BaseException as error:  # it is told by who has asked
            self._ends.append(error)
        finally:
            self._due = None


def heard(said: queue.SimpleQueue[_T], limits: Limits, instances: Iterable[Instance]) -> _T:
    """Return what other threads say, unless the run is to end first, or one of its devices does not return."""
    while True:
        try:
            return said.get(timeout=limits.pause)
        except queue.Empty:
            check_time(limits, f"waiting for {', '.join(each.device.name for each in instances)}")
            for instance in instances:
                instance.check_back()


class _Held(threading.local):
    """How many pieces of memory the requests of this thread hold, by number of the device."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}


_of_thread = _Held()


def _held() -> dict[int, int]:
    return _of_thread.counts


def check_process(device: Device, process: int) -> None:
    """Refuse a device that belongs to the parent of this process.

    Raises:
        DeviceFault: If it does.
    """
    if process != os.getpid():
        raise DeviceFault(
            "the device was opened by another process", where=device.name,
            hint="Open it after the fork, or let the module open it: devices=1.",
        )  # fmt: skip


class Member:
    """One device of a set, and what it has done for the module."""

    def __init__(self, instance: Instance, target: str) -> None:
        self.instance = instance
        self.device = instance.device
        self.chosen = 0
        """Which choice of the set took it last."""
        self._target = target
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def count(self, **amounts: int) -> None:
        """Add to the figures of the report's row, by their names."""
        with self._lock:
            self._counts.update(amounts)

    def row(self) -> DeviceRow:
        """Return what the device has done so far."""
        from tinycomp.runtime.rows import DeviceRow  # imported here: few reports are read

        with self._lock:
            return DeviceRow(self.device.name, self._target, **self._counts)


class DeviceSet:
    """The devices of one target that a module may use; they are opened when the first of them is needed.

    Args:
        target: Name of the target.
        opener: Opens the device of an index.
        picks: Indices of the devices to open, or devices that are open already, which the set does not close.
    """

    def __init__(self, target: str, opener: Callable[[int], Any], picks: Sequence[int | Device] = (0,)) -> None:
        self.target = target
        self._opener = opener
        self._picks = tuple(picks)
        self._members: list[Member] = []
        self._born = self._process = os.getpid()
        self._choices = itertools.count(1)
        self._lock = Lock()
        self._close: Any = None

    def __len__(self) -> int:
        return len(self._picks)

    def members(self) -> list[Member]:
        """Return the devices, open.

        Raises:
            TargetError: If one cannot be opened.
            DeviceFault: If one has been closed, or was opened by the parent of this process.
        """
        with self._lock:
            if self._process != os.getpid():
                self._members, self._process = [], os.getpid()
            if not self._members:
                self._open()
            for member in self._members:
                member.instance.check_open()
            return self._members

    def opened(self) -> list[Member]:
        """Return the devices that are open already."""
        with self._lock:
            return list(self._members)

    def _open(self) -> None:
        owned: list[Instance] = []
        members = []
        try:
            for pick in self._picks:
                if isinstance(pick, Device):
                    check_process(pick, self._born)
                    members.append(Member(Instance.of(pick), self.target))
                else:
                    owned.append(Instance.of(self._opened(pick)))
                    members.append(Member(owned[-1], self.target))
        except BaseException:
            _close_all(owned)
            raise
        self._members = members
        self._close = weakref.finalize(self, _close_all, owned)

    def _opened(self, index: int) -> Device:
        where = f"target {self.target}, device {index}"
        try:
            device = self._opener(index)
        except TinycompError:
            raise
        except Exception as error:
            raise TargetError(f"the device does not open: {told(error)}", where=where) from error
        if not isinstance(device, Device):
            raise TargetError(
                "the target opened something else than a device", where=where, expected="a tinycomp.Device",
                found=type(device).__name__,
            )  # fmt: skip
        return device

    def choose(self, lanes: int, affinity: Callable[[Member], int]) -> list[Member]:
        """Choose a device for each of so many independent groups of regions, and count the request on each once.

        The least busy devices come first, among equals those that were chosen the longest time ago. A device is chosen
        and counted in one step, so that requests of several threads do not all take the same one.

        Args:
            lanes: How many groups there are.
            affinity: How many bytes of a request's operands are on a device already.

        Returns:
            A device per group; the caller lets each distinct one :meth:`Instance.leave` in the end.
        """
        members = self.members()
        count = len(members)

        def used(start: int) -> list[Member]:
            return [members[(start + lane) % count] for lane in range(min(lanes, count))]

        def rank(start: int) -> tuple[int, int, int]:
            busy = sum(member.instance.active for member in used(start))
            return -affinity(members[start]), busy, members[start].chosen

        with self._lock:
            start = min(range(count), key=rank)
            choice = next(self._choices)
            for member in used(start):
                member.chosen = choice
                member.instance.enter()
        return [members[(start + lane) % count] for lane in range(lanes)]

    def close(self) -> None:
        """Close the devices that the set has opened, after the commands that are under way."""
        with self._lock:
            close, self._close = self._close, None
        closing = None if close is None else close.detach()
        for instance in () if closing is None else closing[2][0]:
            instance.close()
        for member in self.opened():
            member.instance.trim()


_PATIENCE = 1.0
"""Seconds that the end of a module that nobody has closed waits for its devices."""


def _close_all(instances: Iterable[Instance]) -> None:
    for instance in instances:
        with contextlib.suppress(TinycompError):
            instance.close(_PATIENCE)
