"""What an exported project has to do: the kernel calls of a compiled module in order, with all that they need.

Weights are packed while exporting, as the C runtime packs them for an instruction set; what is left for the project is
to call kernels with parameters, pointers and packed weights that never change.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinycomp.errors import UnsupportedError
from tinycomp.export_c.processors import Processor
from tinycomp.memory.planner import ALIGNMENT, Lifetime, plan_arena
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.executor import LoadedProgram
from tinycomp.runtime.native.library import ffi, kernel_named, lib
from tinycomp.runtime.native.program import Instruction, Operand, Program
from tinycomp.runtime.plan import FIRST_FREE, Plan, Step
from tinycomp.runtime.regions import NativeRegion, read_while_running
from tinycomp.runtime.spec import TensorSpec, array_dtype


@dataclass(frozen=True)
class Place:
    """Where an operand lies.

    Attributes:
        base: ``"input"``, ``"output"``, ``"arena"``, ``"weights"`` or ``"absent"``.
        index: Which input or output.
        offset: In bytes.
    """

    base: str
    index: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Attributes:
        kernel: Its name.
        params: Every field of its parameter struct.
        operands: One place per letter of its signature.
        state: Where its packed weights begin among the weights; None if it has none.
        units: How many units of work there are.
        sources: Names of the model's nodes that it computes.
    """

    kernel: str
    params: Mapping[str, int | float]
    operands: tuple[Place, ...]
    state: int | None
    units: int
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Clear:
    """Bytes that nothing is certain to write before they are read, and that are set to 0."""

    place: Place
    nbytes: int


@dataclass(frozen=True)
class Copy:
    """A result that is an input, a constant or another result, and is copied where the caller wants it."""

    to: Place
    source: Place
    nbytes: int


Action = Call | Clear | Copy


@dataclass(frozen=True)
class Calls:
    """Everything that a project does.

    Attributes:
        inputs: What the model takes, in order; all sizes are known.
        outputs: What it gives.
        steps: What is done, in order.
        weights: Packed weights and constants, which calls find by their offset.
        arena_bytes: Memory for everything in between, and for what kernels need while they run.
        scratch: Where the latter begins in that memory.
        cache: What kernels take the second-level cache to hold, in bytes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    steps: tuple[Action, ...]
    weights: bytes
    arena_bytes: int
    scratch: int
    cache: int

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of kernels, in order."""
        return tuple(step for step in self.steps if isinstance(step, Call))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that are called, each once, in the order of their first calls."""
        return tuple(dict.fromkeys(call.kernel for call in self.calls))


@dataclass
class _Weights:
    """Bytes that never change, equal ones once."""

    data: bytearray = field(default_factory=bytearray)
    _known: dict[bytes, int] = field(default_factory=dict)

    def add(self, data: bytes, alignment: int) -> int:
        key = hashlib.sha256(data).digest()
        if key not in self._known:
            self.data += bytes(-len(self.data) % alignment)
            self._known[key] = len(self.data)
            self.data += data
        return self._known[key]


def calls_of(module: Module, processor: Processor) -> Calls:
    """Find out what a project has to do.

    Args:
        module: A compiled module.
        processor: What weights are packed for.

    Raises:
        UnsupportedError: If something of it has no form in C; it names the node.
    """
    plan = module.plan
    _require(module, plan)
    weights = _Weights()
    slots = _places_of_values(plan, weights, processor.alignment)
    steps: list[Action] = []
    arena_bytes, scratch_bytes = 0, 0
    arena_start = slots.size
    for step in plan.steps:
        region = step.run
        assert isinstance(region, NativeRegion)
        inputs, outputs = [slots.of(slot) for slot in step.reads], [slots.of(slot) for slot in step.writes]
        region_calls = _Region(region.program, processor, inputs, outputs, arena_start, weights)
        steps += region_calls.steps()
        arena_bytes = max(arena_bytes, region.program.arena_bytes)
        scratch_bytes = max(scratch_bytes, region_calls.scratch_bytes)
    scratch = _rounded(arena_start + arena_bytes, ALIGNMENT if scratch_bytes else 1)
    steps += slots.copies()
    return Calls(
        module.inputs, module.outputs, tuple(steps), bytes(weights.data), scratch + scratch_bytes, scratch,
        processor.cache,
    )  # fmt: skip


def _require(module: Module, plan: Plan) -> None:
    """Refuse what has no form in C, before anything is written."""
    for spec in (*module.inputs, *module.outputs):
        if not spec.is_static:
            raise UnsupportedError(
                "a dimension is known only in a run", where=f'"{spec.name}"', expected="sizes that are numbers",
                found=str(spec), hint="Give sizes, such as --shape image=1x3x224x224.",
            )  # fmt: skip
        dtype = spec.numpy_dtype
        if dtype is None or dtype.kind == "O":
            raise UnsupportedError(
                "values of this type have no form in C", where=f'"{spec.name}"', expected="a tensor of numbers",
                found=str(spec),
            )  # fmt: skip
    for step in plan.steps:
        if not isinstance(step.run, NativeRegion):
            raise UnsupportedError(
                f"{step.op} has no form in C", where=_where(step), expected="nodes that the target c computes",
                found=f"a node of the {step.tier} tier", hint="tinycomp report MODEL --why NODE says why.",
            )  # fmt: skip
        program = step.run.program
        if program.is_symbolic:
            raise UnsupportedError(
                "a size is known only in a run", where=_where(step), expected="sizes that are numbers",
                found=", ".join((*program.symbols, *program.found)), hint="Fix all sizes with --shape.",
            )  # fmt: skip
        for call in program.instructions:
            if call.control is not None:
                raise UnsupportedError(
                    f"control flow ({call.kernel}) has no form in C yet", where=", ".join(call.source) or _where(step)
                )


def _where(step: Step) -> str:
    return f"node {', '.join(step.sources[:4]) or step.label} ({step.op})"


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


class _Slots:
    """Where the values of a plan lie: those between regions in one piece of the arena."""

    def __init__(self, places: Mapping[int, Place], size: int, copied: Sequence[Copy]) -> None:
        self._places = places
        self.size = size
        self._copied = copied

    def of(self, slot: int) -> Place:
        return Place("absent") if slot < FIRST_FREE else self._places[slot]

    def copies(self) -> list[Action]:
        return [*self._copied]


def _places_of_values(plan: Plan, weights: _Weights, alignment: int) -> _Slots:
    places: dict[int, Place] = {}
    for slot, value in enumerate(plan.slots):
        if isinstance(value, np.ndarray):
            places[slot] = Place("weights", 0, weights.add(_bytes_of(value), alignment))
    for index, slot in enumerate(plan.input_slots):
        places[slot] = Place("input", index)
    copied: list[Copy] = []
    for index, (slot, spec) in enumerate(zip(plan.output_slots, plan.outputs, strict=True)):
        if slot in places:
            copied.append(Copy(Place("output", index), places[slot], _nbytes(spec)))
        else:
            places[slot] = Place("output", index)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        region = step.run
        assert isinstance(region, NativeRegion)
        for slot, buffer in zip(step.writes, region.program.outputs, strict=True):
            if slot >= FIRST_FREE and slot not in places:
                first[slot], last[slot] = number, number
                sizes[slot] = math.prod(int(dim) for dim in buffer.shape) * array_dtype(buffer.dtype).itemsize
        for slot in step.reads:
            if slot in first:
                last[slot] = number
    arena = plan_arena([Lifetime(sizes[slot], first[slot], last[slot]) for slot in first])
    places |= {slot: Place("arena", 0, offset) for slot, offset in zip(first, arena.offsets, strict=True)}
    return _Slots(places, arena.size, copied)


def _nbytes(spec: TensorSpec) -> int:
    assert spec.shape is not None
    return int(np.prod([int(dim or 0) for dim in spec.shape])) * array_dtype(spec.dtype).itemsize


def _bytes_of(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


class _Region:
    """The calls of one region."""

    def __init__(
        self, program: Program, processor: Processor, inputs: Sequence[Place], outputs: Sequence[Place], arena: int,
        weights: _Weights,
    ) -> None:  # fmt: skip
        self._program, self._inputs, self._outputs, self._arena = program, inputs, outputs, arena
        self._native = LoadedProgram(program, program.constants, processor.isa, cache=processor.cache)
        read = read_while_running(program)
        self._constants = {
            index: weights.add(_bytes_of(constant), processor.alignment)
            for index, constant in enumerate(program.constants)
            if index in read
        }
        self._weights, self._alignment = weights, processor.alignment
        self.scratch_bytes = 0

    def steps(self) -> list[Action]:
        steps: list[Action] = []
        buffer, begin, end = ffi.new("int32_t *"), ffi.new("int64_t *"), ffi.new("int64_t *")
        number = 0
        while lib.tc_program_cleared(self._native.handle, number, buffer, begin, end):
            place = Operand("arena") if buffer[0] < 0 else Operand("output", buffer[0])
            at = self._place(Operand(place.space, place.index, begin[0]))
            steps.append(Clear(at, end[0] - begin[0]))
            number += 1
        return steps + [self._call(index, call) for index, call in enumerate(self._program.instructions)]

    def _call(self, index: int, call: Instruction) -> Call:
        plan = ffi.new("tc_step_plan *")
        known = lib.tc_program_plan(self._native.handle, index, plan)
        assert known
        self.scratch_bytes = max(self.scratch_bytes, plan.scratch_bytes)
        state = None
        if plan.state != ffi.NULL and plan.state_bytes:
            state = self._weights.add(bytes(ffi.buffer(plan.state, plan.state_bytes)), self._alignment)
        letters = kernel_named(call.kernel).signature
        operands = [
            Place("absent") if letter in "pP" else self._place(operand)
            for letter, operand in zip(letters, call.operands, strict=False)
        ]
        params = {name: kind(call.params[name]) for name, kind in kernel_named(call.kernel).fields.items()}
        return Call(call.kernel, params, tuple(operands), state, plan.units, call.source)

    def _place(self, operand: Operand) -> Place:
        offset = int(operand.offset)
        if operand.space == "none":
            return Place("absent")
        if operand.space == "constant":
            return Place("weights", 0, self._constants[operand.index] + offset)
        if operand.space == "arena":
            return Place("arena", 0, self._arena + offset)
        base = (self._inputs if operand.space == "input" else self._outputs)[operand.index]
        return Place(base.base, base.index, base.offset + offset)
