"""Regions as steps of a plan: native programs, and regions that are built for each set of operand shapes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from tinycomp.lazy import LazyModule, cached_property
from tinycomp.memory.budget import current
from tinycomp.memory.constants import Constants
from tinycomp.memory.locks import Lock
from tinycomp.runtime.native.direct import Direct, call_within, make_direct
from tinycomp.runtime.native.encoder import with_constants
from tinycomp.runtime.native.executor import NativeProgram, Pool, Weights
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.native.program import Array, Program
from tinycomp.runtime.plan import Plan, Run

if TYPE_CHECKING:
    from tinycomp.runtime.native import texts as native_texts
    from tinycomp.runtime.rows import ArenaRow
else:
    native_texts = LazyModule("tinycomp.runtime.native.texts")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keep the ``limit`` values used last.

    Args:
        limit: The most values kept; at least 1.
    """

    def __init__(self, limit: int) -> None:
        assert limit >= 1, limit
        self._limit = limit
        self._values: OrderedDict[K, V] = OrderedDict()
        self._making: dict[K, Lock] = {}
        self._lock = Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value for ``key``, made on first use.

        Two threads never make the same value, and other keys are served while one is being made. A forked child makes
        a value again that its parent was just making.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._making.setdefault(key, Lock())
        with making:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = make()
            finally:
                with self._lock:
                    self._making.pop(key, None)
            with self._lock:
                self._values[key] = value
                if len(self._values) > self._limit:
                    self._values.popitem(last=False)
            return value

    def items(self) -> list[tuple[K, V]]:
        """Return the cached entries, the least recently used first."""
        with self._lock:
            return list(self._values.items())

    def __len__(self) -> int:
        return len(self._values)


_FEW = 1 << 20
"""Most bytes of texts for the direct call, which does not check the memory budget."""
SPECIALISATIONS = 16
"""For how many sets of operand shapes a region is kept that is built for each set."""


def settled(program: Program, constants: Constants) -> Program:
    """Return a program with its constants in memory or in files, as :mod:`tinycomp.memory.constants` decides."""
    return with_constants(program, constants.settle(program.constants, read_while_running(program)))


def read_while_running(program: Program) -> frozenset[int]:
    """Return the constants of a program that kernels read in every run, because they are not packed beforehand."""
    found: set[int] = set()
    for call in [call for each in program.walk() for call in each.instructions]:
        if call.control is not None:
            signature = "i" * len(call.operands)
        else:
            signature = kernel_named(call.kernel, program.name).signature
        for letter, operand in zip(signature, call.operands, strict=False):
            if operand.space == "constant" and letter not in "pP":
                found.add(operand.index)
    return frozenset(found)


class NativeRegion:
    """Run a program as a step: allocate its results and make one C call.

    Args:
        program: The program.
        pool: Threads that share the work.
        weights: Packed weights, shared with other regions.
        beside: Bytes that a run needs in addition to the memory of this program, for the memory budget.
    """

    def __init__(self, program: Program, pool: Pool, weights: Weights | None = None, beside: int = 0) -> None:
        self.program = program
        self.native = NativeProgram(program, pool, weights=weights, beside=beside)
        self._border = None if program.texts is None else native_texts.TextBorder(program, program.texts)

    @cached_property
    def direct(self) -> Direct | None:
        """Return a direct call of the program that bypasses most of Python, if there is one."""
        return make_direct(self.native, range(len(self.program.inputs)), range(len(self.program.outputs)))

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        """Return the results in new arrays; operands that are not contiguous are copied."""
        inputs = operands
        if self._border is not None:
            encoded = self._border.encode([_ready(x) for x in operands])
            assert encoded is not None
            inputs = encoded
        limits, direct = current(), self.direct
        if direct is None:
            results = None
        elif limits.may_end or limits.memory is not None:
            results = call_within(limits, self.native, direct, inputs)
        else:
            results = direct(inputs)
        if results is None:
            results = self.native.call([_ready(x) for x in inputs])
        return results if self._border is None else self._border.decode(inputs, results)

    def short(self, operands: Sequence[Any], given: Sequence[Any] | None = None) -> list[Array] | None:
        """Return the results of a program with few texts by a direct call, or None if that is not possible.

        Args:
            operands: The operands, which may be of any type.
            given: Arrays for the results, if the caller has any.
        """
        border, texts = self._border, self.program.texts
        if border is None or texts is None or self.direct is None or given is not None:
            return None
        if len(operands) != len(self.program.operands) or not all(map(_is_plain, operands)):
            return None
        if any(operands[index].dtype.kind != "O" for index in texts.inputs):
            return None
        inputs = border.encode(operands, _FEW)
        outputs = None if inputs is None else self.direct(inputs)
        return None if inputs is None or outputs is None else border.decode(inputs, outputs)

    def profile(self, operands: Sequence[Array]) -> list[float]:
        """Run once and return the seconds of every instruction."""
        arrays = [_ready(x) for x in operands]
        if self._border is not None:
            arrays = self._border.encode(arrays) or []
        return self.native.profile(arrays, self.native.call(arrays))


def arenas(plan: Plan, path: tuple[int, ...] = ()) -> dict[tuple[int, ...], ArenaRow]:
    """Return the arena of every native region of static shapes, by position as in the report."""
    sizes: dict[tuple[int, ...], ArenaRow] = {}
    for index, step in enumerate(plan.steps):
        if isinstance(step.run, NativeRegion):
            sizes[(*path, index)] = _arena(step.run.program)
        for number, body in enumerate(step.bodies):
            sizes |= arenas(body, (*path, index, number))
    return sizes


def _arena(program: Program) -> ArenaRow:
    from tinycomp.runtime.rows import ArenaRow, BufferRow, CallRow  # imported here: few reports are read

    calls = [CallRow(call.kernel, call.source) for call in program.instructions] if program.blocks else []
    buffers = [BufferRow(block.offset, block.nbytes, block.first, block.last) for block in program.blocks]
    return ArenaRow(program.arena_bytes, program.arena_bound, tuple(calls), tuple(buffers))


class PerShape:
    """Run a region whose shapes are known only at run time: it is built for each set, and a bounded cache keeps some.

    Args:
        build: Makes the step for given operand shapes.
    """

    def __init__(self, build: Callable[[tuple[tuple[int, ...], ...]], Run]) -> None:
        self._build = build
        self.cache: BoundedCache[tuple[tuple[int, ...], ...], Run] = BoundedCache(SPECIALISATIONS)

    def __call__(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Run the step for these shapes."""
        return self.current(operands)(operands)

    def current(self, operands: Sequence[Any]) -> Run:
        """Return the step for the shapes of ``operands``."""
        return self.at(tuple(np.shape(x) for x in operands))

    def at(self, shapes: tuple[tuple[int, ...], ...]) -> Run:
        """Return the step for operands of these shapes."""
        return self.cache.get(shapes, lambda: self._build(shapes))


class Bucketed:
    """Run a region that computes row by row only on certain numbers of rows.

    Missing rows are padded by repeating the last one, and their results are cut off. More rows than the largest number
    run in parts.

    Args:
        run: The region for any number of rows.
        buckets: The numbers of rows, the smallest first.
        batched: For each operand, whether it has rows.
        devices: The devices that the parts may run on, if there are any.
    """

    def __init__(
        self, run: PerShape, buckets: Sequence[int], batched: Sequence[bool], devices: object | None = None
    ) -> None:
        self._run = run
        self.devices = devices
        self._buckets = tuple(buckets)
        self._batched = tuple(batched)

    def __call__(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Return the results for all rows."""
        numbers = {len(x) for x, rows in zip(operands, self._batched, strict=True) if rows}
        rows = min(numbers)
        if len(numbers) > 1 or rows == 0 or rows in self._buckets:
            return self._run(operands)
        step = self._buckets[-1]
        parts = [self._part(operands, start, min(start + step, rows)) for start in range(0, rows, step)]
        return parts[0] if len(parts) == 1 else [np.concatenate(results) for results in zip(*parts, strict=True)]

    def _part(self, operands: Sequence[Any], start: int, end: int) -> list[Any]:
        rows = end - start
        bucket = next(size for size in self._buckets if size >= rows)
        part = [
            _padded(x[start:end], bucket) if batched else x
            for x, batched in zip(operands, self._batched, strict=True)
        ]  # fmt: skip
        return [result[:rows] for result in self._run(part)]


def _padded(array: Array, rows: int) -> Array:
    missing = rows - len(array)
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array


def _is_plain(array: Any) -> bool:
    return type(array) is np.ndarray and array.flags.c_contiguous


def _ready(array: Array) -> Array:
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])
