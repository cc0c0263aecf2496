"""A simulated device: a queue, a memory of 1 MB, latency, and faults as often as one likes.

It executes callables on arrays in its memory, so that any target whose code generator returns one can have devices:
``simulated(target)``. What a command reads and writes lies in one block of bytes, which a first-fit allocator divides.
A command that fails leaves garbage where its results should be. Tests torture tinycomp with it, and vendors may read it
as an example: it imports what a target outside of tinycomp may.
"""

from __future__ import annotations

import queue
import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinycomp.target_api import (
    ALIGNMENT,
    Activity,
    Array,
    Device,
    DeviceBuffer,
    DeviceFault,
    DeviceProgram,
    FaultPolicy,
    Memory,
    MemoryLimitError,
    Node,
    Target,
    aligned,
)

Work = Callable[[], tuple[int, Sequence[Activity]]]
"""Does what a command is for; returns the bytes that it moved, and what can be told of it."""


@dataclass(frozen=True)
class Behaviour:
    """How a simulated device behaves.

    Attributes:
        memory: Bytes of its memory.
        latency: Seconds that every command takes, beside its work.
        bandwidth: Bytes that it copies in a second; None for as many as the host can.
        seconds: Seconds that a region takes, beside its work on the host; of a region's code, or one for all.
        fault_rate: Share of the commands that fail.
        hang_rate: Share of the commands that take ``hang`` seconds longer.
        hang: How long a command hangs, in seconds.
        seed: For the faults.
        peers: Whether it can read the memory of other simulated devices.
        shared: Whether the host may access its memory, and it that of the host, so that neither has to copy.
    """

    memory: int = 1 << 20
    latency: float = 0.0
    bandwidth: float | None = None
    seconds: float | Callable[[Any], float] = 0.0
    fault_rate: float = 0.0
    hang_rate: float = 0.0
    hang: float = 1.0
    seed: int = 0
    peers: bool = True
    shared: bool = False


@dataclass(eq=False)
class _Block:
    """Allocated bytes: where they are, and how many commands still use them. Adopted arrays have bytes of their own."""

    offset: int
    size: int
    memory: Array
    commands: int = 0
    freed: bool = False


@dataclass(eq=False)
class _Command:
    """A command in the queue, and the event of its end."""

    name: str
    work: Work
    blocks: Sequence[_Block]
    spoil: Sequence[DeviceBuffer]
    seconds: float
    ended: threading.Event = field(default_factory=threading.Event)
    fault: DeviceFault | None = None
    activities: Sequence[Activity] = ()


class SimulatedDevice(Device):
    """A device that is a thread.

    Args:
        name: For messages.
        behaviour: How it behaves.

    Attributes:
        peak: The most bytes of its memory that were in use at once.
    """

    def __init__(self, name: str = "sim:0", behaviour: Behaviour | None = None) -> None:
        self.name = name
        self.behaviour = behaviour or Behaviour()
        self.peak = 0
        self._bytes = _aligned_bytes(self.behaviour.memory)
        self._blocks: list[_Block] = []
        self._random = random.Random(f"{self.behaviour.seed} {name}")
        self._changed = threading.Condition(threading.RLock())
        self._queue: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._execute, name=name, daemon=True)
        self._thread.start()

    @property
    def memories(self) -> Sequence[Memory]:
        """Return the one memory."""
        return (Memory("dram", self.behaviour.memory),)

    @property
    def used(self) -> int:
        """Return the bytes that are allocated."""
        with self._changed:
            return sum(block.size for block in self._blocks)

    def allocate(self, size: int, memory: Memory) -> _Block:
        """Return the first gap that is large enough; waits for commands whose buffers have been freed."""
        size = aligned(size)
        with self._changed:
            while (offset := self._gap(size)) is None:
                if not any(block.freed for block in self._blocks):
                    raise MemoryLimitError(
                        "there is no room in the memory", where=self.name, expected=f"at most {memory.size} bytes",
                        found=f"{size} bytes beside {sum(block.size for block in self._blocks)}",
                    )  # fmt: skip
                self._changed.wait()
            block = _Block(offset, size, self._bytes[offset : offset + size])
            self._blocks.append(block)
            self._blocks.sort(key=lambda each: each.offset)
            self.peak = max(self.peak, sum(each.size for each in self._blocks))
            return block

    def _gap(self, size: int) -> int | None:
        start = 0
        for block in self._blocks:
            if block.offset - start >= size:
                return start
            start = block.offset + block.size
        return start if len(self._bytes) - start >= size else None

    def free(self, handle: _Block) -> None:
        """Give back a block, now or after the last command that uses it."""
        with self._changed:
            handle.freed = True
            self._drop(handle)

    def _drop(self, block: _Block) -> None:
        if block.freed and not block.commands and block in self._blocks:
            self._blocks.remove(block)
            self._changed.notify_all()

    def copy(self, source: DeviceBuffer | Array, target: DeviceBuffer | Array) -> _Command:
        """Copy bytes."""

        def work() -> tuple[int, Sequence[Activity]]:
            into = self._at(target)
            into[...] = self._at(source)
            return into.nbytes, ()

        size = target.nbytes
        rate = self.behaviour.bandwidth
        spoil = [target] if isinstance(target, DeviceBuffer) else []
        name = "copy in" if isinstance(source, np.ndarray) else "copy out" if not spoil else "copy across"
        return self._put(name, work, [source, target], spoil, size / rate if rate else 0.0)

    def submit(
        self, region: Callable[..., Any], operands: Sequence[DeviceBuffer], results: Sequence[DeviceBuffer]
    ) -> _Command:
        """Run a callable on arrays that it cannot write to; it returns what it would return to tinycomp.

        One with a method ``traced``, as programs of ``npu_sim`` have, tells what it does: name, source, start, end and
        bytes of every layer.
        """
        traced = getattr(region, "traced", None)

        def work() -> tuple[int, Sequence[Activity]]:
            given = [self._array(buffer) for buffer in operands]
            for array in given:
                array.setflags(write=False)
            returned, layers = (region(*given), []) if traced is None else traced(*given)
            for array, buffer in zip(_fitting(returned, results), results, strict=True):
                self._array(buffer)[...] = array
            done = [Activity(name, start, end, size, (source,)) for name, source, start, end, size in layers]
            return sum(buffer.nbytes for buffer in (*operands, *results)), done

        seconds = self.behaviour.seconds
        took = seconds(region) if callable(seconds) else seconds
        return self._put("run", work, [*operands, *results], results, took)

    def wait(self, event: _Command, timeout: float | None = None) -> Sequence[Activity]:
        """Wait for a command, and tell when it ran."""
        if not event.ended.wait(timeout):
            raise TimeoutError(f"{event.name} runs for more than {timeout} s")
        if event.fault is not None:
            raise event.fault
        return event.activities

    def close(self) -> None:
        """End after the commands in the queue."""
        with self._changed:
            self._closed = True
            self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def reaches(self, other: Device) -> bool:
        """Tell whether the other device is one of these, and both let each other in."""
        return isinstance(other, SimulatedDevice) and self.behaviour.peers and other.behaviour.peers

    def view(self, buffer: DeviceBuffer) -> Array | None:
        """Return the bytes, if the host may see them."""
        return self._at(buffer) if self.behaviour.shared else None

    def adopt(self, array: Array) -> _Block | None:
        """Return an array of the host as a block, if the device may access it."""
        return _Block(0, array.nbytes, array.reshape(-1).view(np.uint8)) if self.behaviour.shared else None

    def _at(self, place: DeviceBuffer | Array) -> Array:
        if isinstance(place, np.ndarray):
            return place.reshape(-1).view(np.uint8)
        block: _Block = place.handle
        end = place.offset + place.nbytes
        if end > block.size:
            raise DeviceFault(
                "a buffer leaves its block", command="address check", found=f"{end} of {block.size} bytes"
            )
        return block.memory[place.offset : end]

    def _array(self, buffer: DeviceBuffer) -> Array:
        return self._at(buffer).view(buffer.dtype).reshape(buffer.shape)

    def _put(
        self, name: str, work: Work, places: Sequence[DeviceBuffer | Array], spoil: Sequence[DeviceBuffer],
        seconds: float,
    ) -> _Command:  # fmt: skip
        blocks = [place.handle for place in places if isinstance(place, DeviceBuffer)]
        with self._changed:
            if self._closed:
                raise DeviceFault("the device has been closed", command=name, where=self.name)
            for block in blocks:
                block.commands += 1
            command = _Command(name, work, blocks, spoil, seconds)
            self._queue.put(command)
        return command

    def _execute(self) -> None:
        while (command := self._queue.get()) is not None:
            self._run(command)
            with self._changed:
                for block in command.blocks:
                    block.commands -= 1
                    self._drop(block)
            command.work = _nothing  # which holds arrays
            command.ended.set()
            del command

    def _run(self, command: _Command) -> None:
        behaviour, chance = self.behaviour, self._random.random
        started = time.perf_counter()
        failing = chance() < behaviour.fault_rate
        until = started + behaviour.latency + command.seconds
        until += behaviour.hang if chance() < behaviour.hang_rate else 0.0
        try:
            if failing:
                for buffer in command.spoil:
                    self._at(buffer)[...] = 0xA5
                command.fault = DeviceFault("a parity error", command=command.name)
            else:
                moved, command.activities = command.work()
        except DeviceFault as fault:
            command.fault = fault
        except BaseException as error:  # an exit, too: who waits for the command would wait for ever
            told = "".join(traceback.format_exception_only(type(error), error)).strip()
            command.fault = DeviceFault(told, command=command.name)
        left = until - time.perf_counter()
        if left > 0:
            time.sleep(left)
        if command.fault is None and not command.activities:
            command.activities = (Activity(command.name, started, time.perf_counter(), moved),)


def _fitting(returned: Any, buffers: Sequence[DeviceBuffer]) -> Sequence[Array]:
    """Return the results of a callable, which are as its region declares them: nothing is broadcast or converted."""
    arrays = returned if isinstance(returned, (tuple, list)) else [returned]
    found = [_kind(each) if isinstance(each, (np.ndarray, np.generic)) else type(each).__name__ for each in arrays]
    expected = [_kind(buffer) for buffer in buffers]
    if found != expected:
        raise DeviceFault(
            "the region's code returned wrong results", command="run", expected=", ".join(expected),
            found=", ".join(found) or "none",
        )  # fmt: skip
    return arrays


def _kind(array: Any) -> str:
    return f"{array.dtype}{[*array.shape]}" + (", masked" if np.any(getattr(array, "mask", False)) else "")


def _nothing() -> tuple[int, Sequence[Activity]]:
    return 0, ()


def _aligned_bytes(size: int) -> Array:
    whole = np.zeros(size + ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT
    return whole[start : start + size]


def simulated(target: Target, behaviour: Behaviour | None = None, faults: FaultPolicy | None = None) -> Target:
    """Return a target whose regions run on simulated devices, where another target returns callables.

    Args:
        target: Its description, and the generator of the code that the devices execute.
        behaviour: How the devices behave.
        faults: What is done about their faults.

    Example:
        >>> import numpy as np, tinycomp
        >>> half = Target("half")
        >>> half.accept("Relu")
        >>> _ = half.codegen(lambda region: lambda x: np.maximum(x, 0))
        >>> from tinycomp.data import digits, digits_model
        >>> with tinycomp.compile(digits_model(), simulated(half), devices=2) as module:
        ...     _ = module(digits()[0][:4])
        ...     print([device.name for device in module.devices])
        ['half:0', 'half:1']
    """
    made = target.with_options()

    def build(region: Node) -> DeviceProgram:
        return DeviceProgram(target.build(region), faults or FaultPolicy())

    made.codegen(build)
    made.device(lambda index: SimulatedDevice(f"{target.name}:{index}", behaviour))
    return made
