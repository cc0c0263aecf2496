"""What an exported project has to do: the kernel calls of a compiled module in order, with all that they need.

Weights are packed while exporting, as the C runtime packs them for an instruction set; what is left for the project is
to call kernels with parameters, pointers and packed weights that never change. All memory of a run is planned as one
piece: the buffers of every region, what lies between regions, and what each call needs while it runs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tinycomp.errors import UnsupportedError
from tinycomp.export_c.memory import Memory, MemoryMap
from tinycomp.export_c.processors import Processor
from tinycomp.runtime.csource.region import SCRATCH_ALIGNMENT, CRegion
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.executor import LoadedProgram
from tinycomp.runtime.native.library import ffi, kernel_named, lib
from tinycomp.runtime.native.program import BufferSpec, Control, Instruction, Operand, Program
from tinycomp.runtime.plan import FIRST_FREE, Plan, Step
from tinycomp.runtime.regions import NativeRegion, read_while_running
from tinycomp.runtime.spec import TensorSpec, array_dtype

_SAME_BYTES = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators of the host whose result has the bytes of their first operand."""
_COPIES_FIRST: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType({"qgemm": lambda p: p["m"] == 1})
"""Kernels that, on one thread, have copied all of operand 1 before they write operand 0, given their parameters."""
_TRIP, _FLAG = 8, 1
"""Bytes of the number of a trip, and of a condition."""


@dataclass(frozen=True)
class Place:
    """Where an operand lies.

    Attributes:
        base: ``"input"``, ``"output"``, ``"arena"``, ``"weights"`` or ``"absent"``; while memory is not planned,
            ``"buffer"``.
        index: Which input, output or buffer.
        offset: In bytes.
    """

    base: str
    index: int = 0
    offset: int = 0

    def at(self, offset: int) -> Place:
        """Return the place so many bytes further on."""
        return replace(self, offset=self.offset + offset)


ABSENT = Place("absent")


@dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Attributes:
        kernel: Its name.
        params: Every field of its parameter struct.
        operands: One place per letter of its signature.
        state: Where its packed weights begin among the weights; None if it has none.
        units: How many units of work there are.
        scratch: Where the memory lies that it needs while it runs.
        sources: Names of the model's nodes that it computes.
    """

    kernel: str
    params: Mapping[str, int | float]
    operands: tuple[Place, ...]
    state: int | None
    units: int
    scratch: Place
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Fill:
    """Bytes that are set to a value: to 0 what nothing is certain to write before it is read."""

    place: Place
    nbytes: int
    value: int = 0


@dataclass(frozen=True)
class Copy:
    """Bytes that are wanted somewhere else as well, such as a result that is an input or a constant."""

    to: Place
    source: Place
    nbytes: int


@dataclass(frozen=True)
class Source:
    """A call of a function that another target's code generator has written.

    Attributes:
        number: Which of the sources.
        inputs: Its operands.
        outputs: Its results.
        constants: Where its constants begin among the weights.
        scratch: Where the memory lies that it needs while it runs.
        sources: Names of the model's nodes that it computes.
    """

    number: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    constants: tuple[Place, ...]
    scratch: Place
    sources: tuple[str, ...]


@dataclass(frozen=True)
class If:
    """One of two sequences.

    Attributes:
        condition: A byte that chooses the first if it is not 0.
        bodies: Both.
        sources: Names of the model's nodes.
    """

    condition: Place
    bodies: tuple[tuple[Action, ...], tuple[Action, ...]]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """A sequence that is repeated.

    Attributes:
        limit: Where the most trips stand, an int64; absent for any number.
        condition: A byte that is 0 if there shall be no trip; absent if there shall be.
        trip: Where every trip finds its number.
        goes_on: A byte that every trip makes 0 if it is the last one.
        begin: What happens before the first trip.
        body: One trip.
        carried: What happens behind each trip: its values are those that the next one reads.
        rows: Of every trip: a value, and where that of the first one is kept; others follow it.
        trips: The number of trips that there must be for the rows to fill their results; None if there are no rows.
        end: What happens behind the last trip.
        sources: Names of the model's nodes.
    """

    limit: Place
    condition: Place
    trip: Place
    goes_on: Place
    begin: tuple[Action, ...]
    body: tuple[Action, ...]
    carried: tuple[Copy, ...]
    rows: tuple[Copy, ...]
    trips: int | None
    end: tuple[Copy, ...]
    sources: tuple[str, ...]


Action = Call | Fill | Copy | Source | If | Loop


def _calls_in(actions: Iterable[Action]) -> Iterator[Call]:
    """Yield all calls of kernels in some actions and in what these repeat or choose between."""
    waiting = [*actions][::-1]
    while waiting:
        action = waiting.pop()
        if isinstance(action, Call):
            yield action
        elif isinstance(action, If):
            waiting += [*action.bodies[0], *action.bodies[1]][::-1]
        elif isinstance(action, Loop):
            waiting += action.body[::-1]


@dataclass(frozen=True)
class Calls:
    """Everything that a project does.

    Attributes:
        inputs: What the model takes, in order; all sizes are known.
        outputs: What it gives.
        steps: What is done, in order.
        weights: Packed weights and constants, which calls find by their offset.
        sources: What other targets' code generators have written.
        memory: What lies where in the memory of a run, and when.
        cache: What kernels take the second-level cache to hold, in bytes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    steps: tuple[Action, ...]
    weights: bytes
    sources: tuple[CSource, ...]
    memory: MemoryMap
    cache: int

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of kernels, in order."""
        return tuple(_calls_in(self.steps))

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
    project = _Project(plan, processor)
    steps = project.steps()
    has_sources = any(source.scratch_bytes for source in project.sources)
    memory = project.memory.plan(SCRATCH_ALIGNMENT if has_sources else processor.alignment)
    return Calls(
        module.inputs, module.outputs, tuple(_settled(steps, memory)), bytes(project.weights.data),
        tuple(project.sources), memory, processor.cache,
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
        if isinstance(step.run, CRegion):
            _require_source(step, step.run.source)
        elif not isinstance(step.run, NativeRegion):
            if step.op in _SAME_BYTES:
                continue
            raise UnsupportedError(
                f"{step.op} has no form in C", where=_where(step),
                expected="nodes that the target c computes, or a target that generates C",
                found=f"a node of the {step.tier} tier", hint="tinycomp report MODEL --why NODE says why.",
            )  # fmt: skip
        elif step.run.program.texts is not None:
            raise UnsupportedError(
                "texts have no form in C", where=_where(step), expected="tensors of numbers",
                found="a region that takes or gives texts",
            )  # fmt: skip
        else:
            given = {index for index, slot in enumerate(step.writes) if slot in plan.output_slots}
            for program in step.run.program.walk():
                _require_program(step, program, given if program is step.run.program else set())


def _require_source(step: Step, source: CSource) -> None:
    needed = [name for name in source.libraries if name != "m"] + list(source.include_dirs)
    if needed:
        raise UnsupportedError(
            "the code of another target needs more than a project has", where=_where(step),
            expected="C that stands alone", found=", ".join(needed),
        )  # fmt: skip


def _require_program(step: Step, program: Program, given: Set[int]) -> None:
    """Refuse what a program does that has no form; the outputs ``given`` are the model's, whose sizes are known."""
    if program.is_symbolic:
        raise UnsupportedError(
            "a size is known only in a run", where=_where(step), expected="sizes that are numbers",
            found=", ".join((*program.symbols, *program.found)), hint="Fix all sizes with --shape.",
        )  # fmt: skip
    if program.arena_bytes and not program.blocks:
        raise UnsupportedError(
            "the module does not say what lies in its memory", where=_where(step), expected="its buffers",
            hint="Compile the model with this version of tinycomp.",
        )  # fmt: skip
    for call in program.instructions:
        results = () if call.control is None else call.control.results
        for number, nbytes in enumerate(results):
            operand = call.operands[len(call.operands) - len(results) + number]
            assert call.control is not None
            if nbytes is not None or (operand.index in given and number >= call.control.carried):
                continue
            raise UnsupportedError(
                f"how large a result of control flow ({call.kernel}) is depends on data",
                where=", ".join(call.source) or _where(step), expected="sizes that are numbers",
            )  # fmt: skip


def _where(step: Step) -> str:
    return f"node {', '.join(step.sources[:4]) or step.label} ({step.op})"


class _Project:
    """Collects what a plan does, with places in buffers whose offsets are found out at last."""

    def __init__(self, plan: Plan, processor: Processor) -> None:
        self.plan, self.processor = plan, processor
        self.weights, self.memory = _Weights(), Memory()
        self.sources: list[CSource] = []
        self._slots: dict[int, Place] = {}
        self._bytes: dict[int, int] = {}
        for slot, value in enumerate(plan.slots):
            if isinstance(value, np.ndarray):
                self._slots[slot] = Place("weights", 0, self.weights.add(_bytes_of(value), processor.alignment))
                self._bytes[slot] = value.nbytes
        for index, (slot, spec) in enumerate(zip(plan.input_slots, plan.inputs, strict=True)):
            self._slots[slot], self._bytes[slot] = Place("input", index), _nbytes(spec)

    def steps(self) -> list[Action]:
        """Return what the plan does."""
        copied: list[Action] = []
        for index, (slot, spec) in enumerate(zip(self.plan.output_slots, self.plan.outputs, strict=True)):
            place = self._slots.setdefault(slot, Place("output", index))
            self._bytes.setdefault(slot, _nbytes(spec))
            if place != Place("output", index):
                copied.append(Copy(Place("output", index), place, _nbytes(spec)))
        steps: list[Action] = []
        for step in self.plan.steps:
            if isinstance(step.run, NativeRegion):
                for slot, buffer in zip(step.writes, step.run.program.outputs, strict=True):
                    if slot not in self._bytes:
                        self._make(slot, _buffer_bytes(buffer), step)
                inputs, outputs = map(self._of, step.reads), map(self._of, step.writes)
                sizes = [self._bytes.get(slot, 0) for slot in step.writes]
                steps += _Region(self, None, step.run.program, [*inputs], [*outputs], sizes=sizes).steps()
            elif isinstance(step.run, CRegion):
                steps.append(self._source(step, step.run))
            else:
                nbytes = self._bytes[step.reads[0]]
                self._make(step.writes[0], nbytes, step)
                self._touch(step.reads[:1], step.writes[:1])
                steps.append(Copy(self._of(step.writes[0]), self._of(step.reads[0]), nbytes))
                self.memory.tick(step.op, step.sources)
        return steps + copied

    def _make(self, slot: int, nbytes: int, step: Step) -> None:
        """Give a value between steps a buffer, unless it has a place."""
        if slot >= FIRST_FREE:
            self._bytes[slot] = nbytes
            if slot not in self._slots:
                self._slots[slot] = Place("buffer", self.memory.add(nbytes, f"result of {step.label}"))

    def _of(self, slot: int) -> Place:
        return ABSENT if slot < FIRST_FREE else self._slots[slot]

    def _touch(self, *slots: Sequence[int]) -> None:
        for place in (self._of(slot) for some in slots for slot in some):
            if place.base == "buffer":
                self.memory.touch(place.index)

    def _source(self, step: Step, region: CRegion) -> Source:
        source = region.source
        for slot, (dtype, shape) in zip(step.writes, region.results, strict=True):
            self._make(slot, math.prod(shape) * dtype.itemsize, step)
        self._touch(step.reads, step.writes)
        alignment = self.processor.alignment
        constants = [Place("weights", 0, self.weights.add(_bytes_of(c), alignment)) for c in source.constants]
        scratch = self.scratch(source.scratch_bytes)
        self.memory.tick(step.label, step.sources)
        self.sources.append(source)
        inputs, outputs = tuple(map(self._of, step.reads)), tuple(map(self._of, step.writes))
        return Source(len(self.sources) - 1, inputs, outputs, tuple(constants), scratch, step.sources)

    def scratch(self, nbytes: int) -> Place:
        """Return memory for the step at hand alone."""
        if not nbytes:
            return ABSENT
        buffer = self.memory.add(nbytes, "what a kernel needs while it runs")
        self.memory.touch(buffer)
        return Place("buffer", buffer)


def _nbytes(spec: TensorSpec) -> int:
    assert spec.shape is not None
    return math.prod([int(dim or 0) for dim in spec.shape]) * array_dtype(spec.dtype).itemsize


def _buffer_bytes(spec: BufferSpec) -> int:
    return math.prod(int(dim) for dim in spec.shape) * array_dtype(spec.dtype).itemsize


def _bytes_of(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _bytes_in_a_row(params: Mapping[str, Any]) -> int | None:
    """Return how many bytes a copy moves that lie side by side on both sides; None if they do not."""
    nbytes = whole = params["element_size"]
    for dim in range(lib.TC_MAX_RANK - 1, -1, -1):
        size = params[f"size{dim}"]
        if size != 1 and not params[f"to_stride{dim}"] == params[f"from_stride{dim}"] == nbytes // whole:
            return None
        nbytes *= size
    return int(nbytes)


class _Region:
    """The calls of one program, which may be a body."""

    def __init__(
        self, project: _Project, native: Any, program: Program, inputs: Sequence[Place], outputs: Sequence[Place],
        around: _Region | None = None, sizes: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._sizes = sizes  # of the outputs, in bytes
        self._project, self._program, self._inputs, self._outputs = project, program, inputs, outputs
        processor, weights = project.processor, project.weights
        if around is None:
            native, _ = LoadedProgram.of(program, processor.isa, cache=processor.cache)
            read = read_while_running(program)
            self._constants = {
                index: weights.add(_bytes_of(constant), processor.alignment)
                for index, constant in enumerate(program.constants)
                if index in read
            }
        else:
            self._constants = around._constants
        self._native = native
        self._bodies = iter(native.bodies)
        self._buffers: dict[int, int] = {}  # by number of the block

    def steps(self) -> list[Action]:
        """Return what the program does; fills stand where the buffers begin to be used that they are in."""
        holes = [*self._holes()]
        steps: list[Action] = [
            Fill(self._outputs[index].at(begin), end - begin) for index, begin, end in holes if index >= 0
        ]
        memory = self._project.memory
        self._keep([fill.place for fill in steps if isinstance(fill, Fill)])
        for number, call in enumerate(self._program.instructions):
            for index, block in enumerate(self._program.blocks):
                if block.first == number:
                    over = None
                    if block.over is not None:
                        over = self._buffers[block.over], self._program.blocks[block.over].offset - block.offset
                    self._buffers[index] = memory.add(block.nbytes, ", ".join(call.source) or call.kernel, over)
                    steps += [
                        Fill(Place("buffer", self._buffers[index], low - block.offset), high - low)
                        for output, begin, end in holes
                        if output < 0
                        and (low := max(begin, block.offset)) < (high := min(end, block.offset + block.nbytes))
                    ]
                if block.first <= number <= block.last:
                    memory.touch(self._buffers[index])
            if call.control is None:
                steps.append(self._call(number, call))
            else:
                control = self._loop if call.kernel == "loop" else self._if
                steps.append(control(number, call, call.control))
            for index, block in enumerate(self._program.blocks):
                if block.first <= number <= block.last:
                    memory.touch(self._buffers[index])  # of control flow, after what its bodies do
            memory.tick(call.kernel, call.source)
        return steps

    def _holes(self) -> Iterator[tuple[int, int, int]]:
        buffer, begin, end = ffi.new("int32_t *"), ffi.new("int64_t *"), ffi.new("int64_t *")
        number = 0
        while lib.tc_program_cleared(self._native.handle, number, buffer, begin, end):
            yield buffer[0], begin[0], end[0]
            number += 1

    def _call(self, number: int, call: Instruction) -> Call | Copy:
        if call.kernel == "copy" and (nbytes := _bytes_in_a_row(call.params)) is not None:
            to, source = (self._place(operand, number) for operand in call.operands)
            return Copy(to, source, nbytes)
        plan = ffi.new("tc_step_plan *")
        known = lib.tc_program_plan(self._native.handle, number, plan)
        assert known
        state = None
        if plan.state != ffi.NULL and plan.state_bytes:
            packed = bytes(ffi.buffer(plan.state, plan.state_bytes))
            state = self._project.weights.add(packed, self._project.processor.alignment)
        letters = kernel_named(call.kernel).signature
        operands = [
            ABSENT if letter in "pP" else self._place(operand, number)
            for letter, operand in zip(letters, call.operands, strict=False)
        ]
        params = {name: kind(call.params[name]) for name, kind in kernel_named(call.kernel).fields.items()}
        copies_first = _COPIES_FIRST.get(call.kernel)
        if copies_first is not None and copies_first(params):
            result, operand = operands[:2]
            if result.base == operand.base == "buffer" and result.index != operand.index:
                self._project.memory.read_before_written(operand.index, result.index)
        scratch = self._project.scratch(plan.scratch_bytes)
        return Call(call.kernel, params, tuple(operands), state, plan.units, scratch, call.source)

    def _place(self, operand: Operand, number: int) -> Place:
        offset = int(operand.offset)
        if operand.space == "none":
            return ABSENT
        if operand.space == "constant":
            return Place("weights", 0, self._constants[operand.index] + offset)
        if operand.space == "arena":
            blocks = self._program.blocks
            alive = [i for i, b in enumerate(blocks) if b.first <= number <= b.last and b.offset <= offset]
            index = max(alive, key=lambda i: (blocks[i].offset + blocks[i].nbytes > offset, blocks[i].offset))
            return Place("buffer", self._buffers[index], offset - blocks[index].offset)
        place = (self._inputs if operand.space == "input" else self._outputs)[operand.index].at(offset)
        self._keep([place])
        return place

    def _new(self, nbytes: int, what: str) -> Place:
        buffer = self._project.memory.add(nbytes, what)
        self._project.memory.touch(buffer)
        return Place("buffer", buffer)

    def _keep(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.base == "buffer":
                self._project.memory.touch(place.index)

    def _if(self, number: int, call: Instruction, control: Control) -> If:
        places = [self._place(operand, number) for operand in call.operands]
        condition, first = places[0], 1 + len(control.shapes)
        bodies = []
        for program in control.bodies:
            outputs = self._results(places[first:], program.outputs)
            body = _Region(self._project, next(self._bodies), program, places[1:first], outputs, self)
            bodies.append(tuple(body.steps()))
            self._keep((*places, *outputs))
        return If(condition, (bodies[0], bodies[1]), call.source)

    def _results(self, places: Sequence[Place], specs: Sequence[BufferSpec]) -> list[Place]:
        """Return where a body puts its results: where they are wanted, or for nothing."""
        return [
            self._new(_buffer_bytes(spec), spec.name) if place.base == "absent" else place
            for place, spec in zip(places, specs, strict=True)
        ]

    def _loop(self, number: int, call: Instruction, control: Control) -> Loop:
        places = [self._place(operand, number) for operand in call.operands]
        (program,), count = control.bodies, control.carried
        read, results = places[2 : 2 + len(control.shapes)], places[2 + len(control.shapes) :]
        specs = program.outputs[1:]
        trip, flag, goes_on = self._new(_TRIP, "number of a trip"), self._new(_FLAG, ""), self._new(_FLAG, "condition")
        now = [self._new(_buffer_bytes(spec), spec.name) for spec in specs[:count]]
        following = [self._new(_buffer_bytes(spec), spec.name) for spec in specs]
        body = _Region(
            self._project, next(self._bodies), program, [trip, flag, *now, *read[count:]], [goes_on, *following], self
        )
        steps = tuple(body.steps())
        self._keep((*places, trip, flag, goes_on, *now, *following))
        sizes = [_buffer_bytes(spec) for spec in specs]
        begin = [Copy(to, of, size) for to, of, size in zip(now, read, sizes, strict=False)]
        carried = [Copy(to, of, size) for to, of, size in zip(now, following, sizes, strict=False)]
        rows = [
            Copy(to, of, size)
            for to, of, size in zip(results[count:], following[count:], sizes[count:], strict=True)
            if to.base != "absent"
        ]
        rooms = [
            self._sizes[operand.index] if nbytes is None else int(nbytes)
            for operand, nbytes in zip(call.operands[2 + len(control.shapes) :], control.results, strict=True)
        ]
        trips = {
            room // size
            for to, room, size in zip(results[count:], rooms[count:], sizes[count:], strict=True)
            if to.base != "absent" and size
        }
        end = [Copy(to, of, size) for to, of, size in zip(results, now, sizes, strict=False) if to.base != "absent"]
        return Loop(
            places[0], places[1], trip, goes_on, (*begin, Fill(flag, _FLAG, 1)), steps, tuple(carried), tuple(rows),
            trips.pop() if trips else None, tuple(end), call.source,
        )  # fmt: skip


def _settled(steps: Iterable[Action], memory: MemoryMap) -> Iterator[Action]:
    """Yield actions with offsets in the arena for places in buffers."""

    def placed(place: Place) -> Place:
        return Place("arena", 0, memory.offset(place.index) + place.offset) if place.base == "buffer" else place

    def copied(copies: Iterable[Copy]) -> tuple[Copy, ...]:
        return tuple(replace(each, to=placed(each.to), source=placed(each.source)) for each in copies)

    for step in steps:
        if isinstance(step, Call):
            yield replace(step, operands=tuple(map(placed, step.operands)), scratch=placed(step.scratch))
        elif isinstance(step, Fill):
            yield replace(step, place=placed(step.place))
        elif isinstance(step, Copy):
            yield from copied([step])
        elif isinstance(step, Source):
            yield replace(
                step, inputs=tuple(map(placed, step.inputs)), outputs=tuple(map(placed, step.outputs)),
                scratch=placed(step.scratch),
            )  # fmt: skip
        elif isinstance(step, If):
            one, other = (tuple(_settled(body, memory)) for body in step.bodies)
            yield replace(step, condition=placed(step.condition), bodies=(one, other))
        else:
            yield replace(
                step, limit=placed(step.limit), condition=placed(step.condition), trip=placed(step.trip),
                goes_on=placed(step.goes_on), begin=tuple(_settled(step.begin, memory)),
                body=tuple(_settled(step.body, memory)), carried=copied(step.carried), rows=copied(step.rows),
                end=copied(step.end),
            )  # fmt: skip
