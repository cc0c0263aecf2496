"""What a device is to tinycomp: memories, a queue of commands, and buffers.

A vendor derives a class from :class:`Device`. Its commands (copies and regions) take effect in the order in which they
were submitted, as on a stream of CUDA or a command queue of OpenCL, and :meth:`Device.wait` tells when one has ended.
"""

from __future__ import annotations

import math
import traceback
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tinycomp.arguments import checked, checked_fields
from tinycomp.errors import DeviceFault, FeedError, OptionError, did_you_mean, shown
from tinycomp.memory.budget import LASTING, check_positive
from tinycomp.memory.placement import Memory
from tinycomp.memory.reading import reading
from tinycomp.records import dataclass, field

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that a device did while it ran a command, for profiles and traces.

    Attributes:
        name: What, such as the name of a layer's kernel or ``"dma in"``.
        start: When it began, on the clock of :func:`time.perf_counter`, in seconds.
        end: When it ended.
        bytes: Bytes that it moved; 0 where that is not known.
        sources: Source names of the nodes behind it, if the device knows them.
    """

    name: str
    start: float
    end: float
    bytes: int = 0
    sources: tuple[str, ...] = ()


@checked_fields(least={"retries": 0})
@dataclass(frozen=True, slots=True)
class FaultPolicy:
    """Say what happens when a region fails on its device: by default the fault is raised.

    Attributes:
        retries: How often the region is run again there.
        fallback: Whether it runs on the numpy kernels instead when that has not helped. Every time is logged as a
            warning and counted in the report.
        timeout: Seconds that each of its commands may take, from when the ones before it have ended; None for no limit.

    Raises:
        OptionError: If a number is not of its kind.
    """

    retries: int = 0
    fallback: bool = False
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_positive("FaultPolicy, timeout", self.timeout, "seconds")

    @property
    def recovers(self) -> bool:
        """Tell whether a fault may be made good."""
        return self.retries > 0 or self.fallback


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """What a code generator, or a loader of blobs, returns for a region that runs on a device of its target.

    Attributes:
        code: Whatever the device executes; tinycomp does not look at it.
        faults: What happens when it fails; ``faults=`` of :func:`tinycomp.compile` comes before it.
    """

    code: Any
    faults: FaultPolicy = field(default_factory=FaultPolicy)


class Device(ABC):
    """A device, described by its vendor: what is abstract here, and perhaps ``load``, ``reaches``, ``view``, ``adopt``.

    Every method may be called from several threads at once. None but :meth:`wait` and :meth:`close` waits for a
    command: the others put it into the queue, and must return, as they are called on the thread of a run. A device has
    one queue, whose commands take effect in order, so that a region may read what a copy submitted before it brings. It
    keeps alive the arrays of a command until it has ended.

    Attributes:
        name: For messages, reports and traces, such as ``"npu:0"``.
    """

    name: str = "device"
    _instance: Any = None
    """What tinycomp keeps of the device."""

    @property
    @abstractmethod
    def memories(self) -> Sequence[Memory]:
        """Return the memories; buffers lie in the first unless another one is asked for."""

    @abstractmethod
    def allocate(self, size: int, memory: Memory) -> Any:
        """Return the vendor's handle for ``size`` bytes of a memory; may wait for commands whose buffers are free.

        Raises:
            MemoryLimitError: If there is no room.
        """

    @abstractmethod
    def free(self, handle: Any) -> None:
        """Give back what :meth:`allocate` returned, once the commands submitted so far have ended."""

    @abstractmethod
    def copy(self, source: DeviceBuffer | Array, target: DeviceBuffer | Array) -> Any:
        """Begin to copy, and return the event of its end.

        One of the two is a buffer of this device; the other one is another, a contiguous array of the host, or a buffer
        of a device that this one :meth:`reaches`. Both have the same number of bytes.
        """

    @abstractmethod
    def submit(self, region: Any, operands: Sequence[DeviceBuffer], results: Sequence[DeviceBuffer]) -> Any:
        """Begin to run a region, and return the event of its end.

        Buffers may be parts of what a handle stands for: each begins at its ``offset``, a multiple of the alignment of
        the memory.

        Args:
            region: What :meth:`load` returned for its program.
            operands: What it reads, in order.
            results: What it writes, in order; none of them overlaps another buffer of the command.
        """

    @abstractmethod
    def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity] | None:
        """Wait for the end of a command.

        A long command is waited for in turns: after a TimeoutError, the same event may be asked about again. A device
        that does not return from a turn in time is refused until it has.

        Returns:
            What the device did meanwhile, if it knows.

        Raises:
            DeviceFault: If the command has failed.
            TimeoutError: If it has not ended in so many seconds.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the device; commands that have not ended need not."""

    def load(self, program: DeviceProgram) -> Any:
        """Return what :meth:`submit` is given for a program: asked once for each, to bring its weights along."""
        return program.code

    def reaches(self, other: Device) -> bool:
        """Tell whether :meth:`copy` takes buffers of another device as sources."""
        return False

    def view(self, buffer: DeviceBuffer) -> Array | None:
        """Return the bytes of a buffer as an array of uint8 over the same memory, if the host may access it."""
        return None

    def adopt(self, array: Array) -> Any:
        """Return a handle for the memory of a contiguous array, if the device may access it; None otherwise."""
        return None

    @checked("dtype")
    def empty(self, shape: Sequence[int], dtype: DTypeLike, memory: str | None = None) -> DeviceBuffer:
        """Return a new buffer, in the first memory unless another one is named.

        Raises:
            MemoryLimitError: If there is no room.
            OptionError: If there is no such memory, or no such type or shape.
        """
        self._collect()
        place = self._memory(memory)
        with reading(OptionError, self.name, "numbers", problem="there is no such type"):
            kind = _of_numbers(np.dtype(dtype if dtype is not None else object))
        if min(shape, default=0) < 0:
            raise OptionError("a size is negative", where=self.name, expected="0 or more", found=shown(tuple(shape)))
        handle = self.allocate(max(math.prod(shape) * kind.itemsize, 1), place)
        return DeviceBuffer(self, place.name, handle, tuple(shape), kind)

    def put(self, array: Any, memory: str | None = None) -> DeviceBuffer:
        """Return a new buffer with the elements of an array.

        Raises:
            MemoryLimitError: If there is no room.
            FeedError: If it is no array of numbers.
            DeviceFault: If the copy fails.
        """
        host = _on_host(array, self.name)
        buffer = self.empty(host.shape, host.dtype, memory)
        self._await(self.copy(host, buffer))
        return buffer

    def from_dlpack(self, tensor: Any) -> DeviceBuffer:
        """Return a tensor of another library as a buffer: over the same memory if the device may access that.

        Raises:
            FeedError: If its memory is not the host's.
            MemoryLimitError: If it has to be copied, and there is no room.
            DeviceFault: If the copy fails.
        """
        if isinstance(tensor, DeviceBuffer) and tensor.device is self:
            return tensor
        with reading(
            FeedError, self.name, "an object with __dlpack__ in memory of the host",
            problem="the tensor cannot be read", hint="Move it to the host first.",
        ):  # fmt: skip
            array = np.from_dlpack(tensor)
        return self.adopted(array) or self.put(array)

    def adopted(self, array: Array) -> DeviceBuffer | None:
        """Return a buffer over the memory of an array, if the device may access it and the array is contiguous."""
        handle = self.adopt(array) if array.flags.c_contiguous and array.flags.aligned else None
        return None if handle is None else DeviceBuffer(self, "host", handle, array.shape, array.dtype, keeps=array)

    def _await(self, event: Any, timeout: float | None = None) -> None:
        """Wait for a command; of a device that modules use no longer than asked, even if it does not look at that."""
        waiting = self if self._instance is None else self._instance
        waiting.wait(event, None if timeout is None else min(timeout, LASTING))

    def _memory(self, name: str | None) -> Memory:
        known = list(self.memories)
        if name is None and known:
            return known[0]
        for memory in known if isinstance(name, str) else ():
            if memory.name == name:
                return memory
        names = [memory.name for memory in known]
        raise OptionError(
            "the device has no such memory", where=self.name, expected=f"one of {', '.join(names) or 'none'}",
            found=shown(name), hint=did_you_mean(name, names),
        )  # fmt: skip

    def _collect(self) -> None:
        """Free what buffers that nobody refers to any more have left."""
        left = self._left
        while left:
            try:
                self.free(left.popleft())
            except IndexError:  # another thread was faster
                return

    @property
    def _left(self) -> deque[Any]:
        left: deque[Any] = self.__dict__.setdefault("_left_handles", deque())  # atomic
        return left

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class DeviceBuffer:
    """An array in the memory of a device.

    A module takes it as an input, and writes to it as an output. Its memory is given back when :meth:`release` is
    called, or, after nobody refers to it any more, with the next allocation.

    Attributes:
        device: The device.
        memory: Name of the memory.
        handle: The vendor's handle.
        shape: Sizes.
        dtype: Of the elements.
        offset: Where it begins in what the handle stands for, in bytes.
    """

    def __init__(
        self, device: Device, memory: str, handle: Any, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0,
        *, keeps: object = None,
    ) -> None:  # fmt: skip
        self.device = device
        self.memory = memory
        self.handle = handle
        self.shape = shape
        self.dtype = dtype
        self.offset = offset
        self._keeps = keeps
        # A finalizer may run anywhere, also inside the vendor's code: it only takes a note.
        self._release = None if keeps is not None else weakref.finalize(self, device._left.append, handle)
        if self._release is not None:
            self._release.atexit = False

    @property
    def nbytes(self) -> int:
        """Return the bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def part(self, offset: int, shape: Sequence[int], dtype: DTypeLike) -> DeviceBuffer:
        """Return a buffer over a part of this one, which begins ``offset`` bytes behind it."""
        whole = self if self._keeps is None else self._keeps
        place = self.offset + offset
        return DeviceBuffer(self.device, self.memory, self.handle, tuple(shape), np.dtype(dtype), place, keeps=whole)

    @checked(least={"timeout": 0})
    def numpy(self, timeout: float | None = None) -> Array:
        """Return a copy of the elements on the host.

        Raises:
            DeviceFault: If the copy fails.
            TimeoutError: If it has not ended in so many seconds.
        """
        array = np.empty(self.shape, self.dtype)
        self.device._await(self.device.copy(self, array), timeout)
        return array

    @checked("array", least={"timeout": 0})
    def write(self, array: Any, timeout: float | None = None) -> None:
        """Copy the elements of an array of the same dtype and shape into the buffer.

        Raises:
            FeedError: If the array does not fit.
            DeviceFault: If the copy fails.
            TimeoutError: If it has not ended in so many seconds.
        """
        host = _on_host(array, self.device.name)
        if host.dtype != self.dtype or host.shape != self.shape:
            raise FeedError(
                "the array does not fit the buffer", where=self.device.name, expected=str(self),
                found=f"{host.dtype}{list(host.shape)}",
            )  # fmt: skip
        self.device._await(self.device.copy(host, self), timeout)

    def release(self) -> None:
        """Give the memory back now; the buffer cannot be used any more."""
        release = self._release
        if release is not None and release.detach() is not None:
            self.device.free(self.handle)

    def __dlpack__(self, **options: Any) -> Any:
        """Export the memory itself, without a copy, where the host may access it.

        Raises:
            BufferError: If it may not.
        """
        return self._viewed().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        """Return DLPack's name of the memory."""
        return self._viewed().__dlpack_device__()

    def _viewed(self) -> Array:
        view = self.device.view(self)
        if view is None:
            raise BufferError(
                f"the host cannot access the memory {self.memory} of {self.device.name}; copy it with .numpy()"
            )
        return np.asarray(_Exported(self, view)).view(self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"<DeviceBuffer {self.dtype.name}{list(self.shape)} in {self.memory} of {self.device.name}>"


class _Exported:
    """Memory of a buffer as numpy takes it, which keeps the buffer as long as an array or tensor over it is there."""

    def __init__(self, buffer: DeviceBuffer, view: Array) -> None:
        self.__array_interface__ = view.__array_interface__
        self._keeps = buffer, view


def _on_host(value: Any, where: str) -> Array:
    """Return a contiguous array of the host with the elements of a value."""
    with reading(FeedError, where, "an array of numbers", problem="the array cannot be read"):
        array = np.asarray(value)
        _of_numbers(array.dtype if not isinstance(value, np.ma.MaskedArray) else np.dtype(object))
        return np.ascontiguousarray(array).reshape(array.shape)


def _of_numbers(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind not in "biufcV" or dtype.hasobject:
        raise TypeError(f"{dtype} is no type of numbers")
    return dtype


def as_fault(error: BaseException, command: str) -> DeviceFault:
    """Return an error of a vendor's code as a fault of a command."""
    if isinstance(error, DeviceFault):
        return error
    if isinstance(error, TimeoutError):
        return DeviceFault(
            "the command has not ended in time", command=command, found=str(error),
            hint="Allow more with FaultPolicy(timeout=), or reset the device.",
        )  # fmt: skip
    return DeviceFault(told(error), command=command)


def told(error: BaseException) -> str:
    """Return the kind and text of an error, also of one whose text fails."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()
