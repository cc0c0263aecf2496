"""A region as a list of oneDNN primitives, and how it runs on numpy arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from tinycomp.target_api import ALIGNMENT, Array, ExecutionError, Lifetime, aligned, plan_arena
from tinycomp_dnnl.interface import SCRATCH
from tinycomp_dnnl.library import Layout, Library
from tinycomp_dnnl.primitives import Primitive


class Place(Enum):
    """Whose memory a storage is."""

    ARENA = "arena"
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"


@dataclass(eq=False)
class Storage:
    """A piece of memory; several tensors may be views of it.

    Attributes:
        place: Whose it is.
        size: Bytes.
        index: Which input or output it is.
        data: The contents of a constant.
    """

    place: Place
    size: int
    index: int = 0
    data: Array | None = None


@dataclass(frozen=True, eq=False)
class Tensor:
    """A storage seen in a layout."""

    storage: Storage
    layout: Layout


@dataclass(frozen=True)
class Step:
    """One primitive with its operands.

    Attributes:
        primitive: What to execute.
        args: Tensors by argument number.
        label: The node that it comes from.
    """

    primitive: Primitive
    args: Mapping[int, Tensor]
    label: str

    def __str__(self) -> str:
        return f"{self.primitive.name} ({self.primitive.implementation}) {self.label}"


class Program:
    """A region made ready to run; immutable, and safe to run from many threads at once.

    Each run has memory objects and a stream of its own, which are kept for later runs. How many threads a run itself
    uses is up to the library's OpenMP runtime (``OMP_NUM_THREADS``).

    Args:
        library: Executes it.
        steps: What to execute, in order.
        outputs: Shapes of the results.

    Attributes:
        arena: Bytes that the intermediate results of one run take.
    """

    def __init__(self, library: Library, steps: Sequence[Step], outputs: Sequence[tuple[int, ...]]) -> None:
        self.steps = tuple(steps)
        self._library = library
        self._outputs = tuple(outputs)
        self._offsets, self.arena = _place(self.steps)
        self._idle: deque[_Context] = deque()

    def __call__(self, *operands: Array) -> list[Array]:
        """Return fresh arrays with the results.

        Args:
            operands: float32 arrays with the region's input shapes, in order.

        Raises:
            ExecutionError: If a primitive fails; the message names its node. Also in a forked process.
        """
        inputs = [np.require(x, np.float32, ["C", "A"]) for x in operands]
        results = [np.empty(shape, np.float32) for shape in self._outputs]
        try:
            context = self._idle.pop()
        except IndexError:
            context = _Context(self._library, self.steps, self._offsets, self.arena)
        context.run(inputs, results)
        self._idle.append(context)
        return results

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


class _Context:
    """What one run at a time needs: the arena, memory objects on it, argument lists and a stream."""

    def __init__(self, library: Library, steps: Sequence[Step], offsets: Mapping[Storage, int], arena: int) -> None:
        scratch = max((s.primitive.scratch for s in steps), default=0)
        self._library = library
        self._offsets = offsets
        self._block = aligned_bytes(arena + scratch)
        self._scratch_offset = arena
        self._stream = library.stream()
        self._memories: dict[Tensor, Any] = {}
        self._external: dict[Place, list[tuple[Any, int]]] = {Place.INPUT: [], Place.OUTPUT: []}
        self._calls = [(s.primitive.handle, *self._arguments(s), s) for s in steps]

    def run(self, inputs: Sequence[Array], results: Sequence[Array]) -> None:
        """Execute every step; the arrays must stay alive meanwhile."""
        self._library.check_process()
        ffi, lib = self._library.ffi, self._library.lib
        for place, arrays in ((Place.INPUT, inputs), (Place.OUTPUT, results)):
            for memory, index in self._external[place]:
                lib.dnnl_memory_set_data_handle(memory, ffi.from_buffer(arrays[index]))
        execute, stream = lib.dnnl_primitive_execute, self._stream
        for handle, count, args, step in self._calls:
            status = execute(handle, stream, count, args)
            if status:
                raise ExecutionError(f"oneDNN fails with status {status}", where=str(step))
        lib.dnnl_stream_wait(stream)

    def _arguments(self, step: Step) -> tuple[int, Any]:
        library = self._library
        pairs = [(number, self._memory(tensor)) for number, tensor in step.args.items()]
        if step.primitive.scratch:
            layout = library.plain((step.primitive.scratch // 4 + 1,))
            pairs.append((SCRATCH, self._keep(Tensor(_SCRATCH, layout), self._at(self._scratch_offset))))
        return len(pairs), library.ffi.new("exec_arg_t[]", pairs)

    def _memory(self, tensor: Tensor) -> Any:
        if tensor in self._memories:
            return self._memories[tensor]
        storage = tensor.storage
        if storage.place is Place.ARENA:
            return self._keep(tensor, self._at(self._offsets[storage]))
        if storage.place is Place.CONSTANT:
            assert storage.data is not None
            return self._keep(tensor, self._library.ffi.from_buffer(storage.data))
        memory = self._keep(tensor, self._library.ffi.NULL)
        self._external[storage.place].append((memory, storage.index))
        return memory

    def _keep(self, tensor: Tensor, data: Any) -> Any:
        self._memories[tensor] = self._library.memory(tensor.layout, data)
        return self._memories[tensor]

    def _at(self, offset: int) -> Any:
        return self._library.ffi.cast("char *", self._block.ctypes.data + offset)


_SCRATCH = Storage(Place.ARENA, 0)


def aligned_bytes(size: int) -> Array:
    """Return ``size`` bytes, and a few more, that start at a multiple of the alignment."""
    block = np.empty(size + 2 * ALIGNMENT, np.uint8)
    return block[-block.ctypes.data % ALIGNMENT :]


def run_once(library: Library, primitive: Primitive, args: Mapping[int, Tensor]) -> None:
    """Execute one primitive on constants now."""
    _Context(library, [Step(primitive, args, primitive.name)], {}, 0).run([], [])


def _place(steps: Sequence[Step]) -> tuple[dict[Storage, int], int]:
    """Return where each storage of the arena begins, and the arena's size."""
    first: dict[Storage, int] = {}
    last: dict[Storage, int] = {}
    for index, step in enumerate(steps):
        for tensor in step.args.values():
            if tensor.storage.place is Place.ARENA:
                first.setdefault(tensor.storage, index)
                last[tensor.storage] = index
    plan = plan_arena([Lifetime(s.size, first[s], last[s]) for s in first])
    return dict(zip(first, plan.offsets, strict=True)), aligned(plan.size)
