"""What an exported project has to do: the kernel calls of a compiled module in order, with all that they need.

Weights are packed while exporting, as the C runtime packs them for an instruction set; what is left for the project is
to call kernels with parameters, pointers and packed weights that never change. All memory of a run is planned as one
piece: the buffers of every region, what lies between regions, and what each call needs while it runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tinycomp.errors import UnsupportedError
from tinycomp.export_c.actions import (
    ABSENT,
    Action,
    Call,
    Calls,
    Condition,
    Copy,
    Fill,
    Find,
    If,
    Loop,
    Place,
    SizedCall,
    Source,
    Word,
)
from tinycomp.export_c.ethos_u import result_bytes, source_of
from tinycomp.export_c.memory import Memory, MemoryMap
from tinycomp.export_c.processors import Processor
from tinycomp.export_c.sized import Dims, Ranges, SizedRegion, numbers_of, work_of
from tinycomp.export_c.weights import Weights
from tinycomp.index import named
from tinycomp.runtime.blob import BlobRegion
from tinycomp.runtime.csource.region import SCRATCH_ALIGNMENT, CRegion
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.executor import LoadedProgram
from tinycomp.runtime.native.library import ffi, kernel_named, lib
from tinycomp.runtime.native.program import BufferSpec, Control, Instruction, Operand, Program
from tinycomp.runtime.plan import FIRST_FREE, Plan, Step
from tinycomp.runtime.regions import NativeRegion, read_while_running
from tinycomp.runtime.spec import TensorSpec, array_dtype
from tinycomp.symbolic import Size, product, size

_SAME_BYTES = frozenset({"Identity", *named("view")})
"""Operators of the host whose result has the bytes of their first operand."""
_COPIES_FIRST: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType({"qgemm": lambda p: p["m"] == 1})
"""Kernels that, on one thread, have copied all of operand 1 before they write operand 0, given their parameters."""
_TRIP, _FLAG = 8, 1
"""Bytes of the number of a trip, and of a condition."""


def calls_of(module: Module, processor: Processor) -> Calls:
    """Find out what a project has to do.

    Args:
        module: A compiled module.
        processor: What weights are packed for.

    Raises:
        UnsupportedError: If something of it has no form in C; it names the node.
    """
    plan = module.plan
    ranges = _require(module, plan)
    project = _Project(plan, processor, ranges)
    steps = project.steps()
    has_sources = any(source.scratch_bytes for source in project.sources)
    memory = project.memory.plan(SCRATCH_ALIGNMENT if has_sources else processor.alignment)
    return Calls(
        plan.inputs, module.outputs, ranges.given, tuple(ranges.found), *project.ports(),
        tuple(_settled(steps, memory)), bytes(project.weights.data), tuple(project.sources), memory, project.work,
        processor.cache,
    )  # fmt: skip


def _require(module: Module, plan: Plan) -> Ranges:
    """Refuse what has no form in C, before anything is written; return the sizes that a run chooses."""
    ranges = Ranges({}, {})
    for spec in (*plan.inputs, *module.outputs):
        dtype = spec.numpy_dtype
        if dtype is None or dtype.kind == "O" or spec.shape is None:
            raise UnsupportedError(
                "values of this type have no form in C", where=f'"{spec.name}"', expected="a tensor of numbers",
                found=str(spec),
            )  # fmt: skip
    for spec in plan.inputs:
        for dim in [dim for dim in spec.shape or () if not isinstance(dim, int)]:
            least, most = module.bounds.get(dim or "", (0, None))
            if dim is None or most is None:
                raise UnsupportedError(
                    "a dimension has no bound", where=f'"{spec.name}"', expected="numbers, or sizes with bounds",
                    found=str(spec), hint="Give sizes or bounds, such as --shape image=1..8,3,224,224.",
                )  # fmt: skip
            ranges.given[dim] = least, most
    for step in plan.steps:
        if isinstance(step.run, CRegion):
            _require_source(step, step.run.source)
        elif not isinstance(step.run, NativeRegion):
            if step.op in _SAME_BYTES or _is_npu(step):
                continue
            raise UnsupportedError(
                f"{step.op} has no form in C", where=_where(step),
                expected="nodes that the target c computes, or a target that generates C, or ethos_u",
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
    return ranges


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
        assert isinstance(step.run, NativeRegion)
        element = next((program.inputs[i].name for i, axis in program.sources.values() if axis < 0), None)
        flow = next((call for call in program.instructions if call.control is not None), None)
        if program is not step.run.program or flow is not None or element is not None:
            what = "the sizes in control flow depend on" if element is None else f'elements of "{element}" are'
            raise UnsupportedError(
                f"{what} sizes of the run", where=_where(step) if flow is None else ", ".join(flow.source),
                expected="sizes that are numbers, or dimensions with bounds",
                found=", ".join((*program.symbols, *program.found)), hint="Fix sizes with --shape.",
            )  # fmt: skip
        return
    if program.arena_bytes and not program.blocks:
        raise UnsupportedError(
            "the module has no list of the buffers in its arena", where=_where(step), expected="its buffers",
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


def _is_npu(step: Step) -> bool:
    return isinstance(step.run, BlobRegion) and step.run.blob.target == "ethos_u"


def _where(step: Step) -> str:
    return f"node {', '.join(step.sources[:4]) or step.label} ({step.op})"


class _Project:
    """Collects what a plan does, with places in buffers whose offsets are found out at last."""

    def __init__(self, plan: Plan, processor: Processor, ranges: Ranges) -> None:
        self.plan, self.processor, self.ranges = plan, processor, ranges
        self.weights, self.memory = Weights(processor), Memory()
        self.sources: list[CSource] = []
        self.work: Counter[str] = Counter()
        self._slots: dict[int, Place] = {}
        self._bytes: dict[int, Size] = {}
        self._dims: dict[int, Dims] = {}
        for slot, value in enumerate(plan.slots):
            if isinstance(value, np.ndarray):
                self._slots[slot] = Place("weights", 0, self.weights.constant(value))
                self._bytes[slot], self._dims[slot] = value.nbytes, value.shape
        for index, (slot, spec) in enumerate(zip(plan.input_slots, plan.inputs, strict=True)):
            self._slots[slot], self._dims[slot] = Place("input", index), _dims(spec)
            self._bytes[slot] = _nbytes(spec, self._dims[slot])

    def steps(self) -> list[Action]:
        """Return what the plan does."""
        outputs = [*enumerate(zip(self.plan.output_slots, self.plan.outputs, strict=True))]
        for index, (slot, spec) in outputs:
            self._slots.setdefault(slot, Place("output", index))
            if spec.is_static:
                self._bytes.setdefault(slot, _nbytes(spec, _dims(spec)))
        steps: list[Action] = []
        for number, step in enumerate(self.plan.steps):
            if isinstance(step.run, NativeRegion):
                steps += self._region(number, step, step.run.program)
            elif isinstance(step.run, CRegion):
                for slot, (dtype, shape) in zip(step.writes, step.run.results, strict=True):
                    self._dims[slot] = shape
                    self._make(slot, math.prod(shape) * dtype.itemsize, step)
                steps.append(self._source(step, step.run.source))
            elif isinstance(step.run, BlobRegion):
                for slot, nbytes in zip(step.writes, result_bytes(step.run.blob), strict=True):
                    self._make(slot, nbytes, step)
                steps.append(self._source(step, source_of(step.run.blob, f"npu_{len(self.sources)}")))
            else:
                same = self._bytes[step.reads[0]]
                self._make(step.writes[0], same, step)
                self._touch(step.reads[:1], step.writes[:1])
                steps.append(Copy(self._of(step.writes[0]), self._of(step.reads[0]), same))
                self.memory.tick(step.op, step.sources)
        for index, (slot, _) in outputs:
            if self._slots[slot] != Place("output", index):
                steps.append(Copy(Place("output", index), self._slots[slot], self._bytes[slot]))
        return steps

    def _region(self, number: int, step: Step, program: Program) -> list[Action]:
        """Return what a region on the target c does."""
        inputs = [*map(self._of, step.reads)]
        if not program.is_symbolic:
            for slot, buffer in zip(step.writes, program.outputs, strict=True):
                if slot not in self._bytes:
                    self._make(slot, _buffer_bytes(buffer), step)
            outputs, sizes = [*map(self._of, step.writes)], [self._bytes.get(slot, 0) for slot in step.writes]
            known = [size for size in sizes if isinstance(size, int)]
            return _Region(self, None, program, inputs, outputs, sizes=known).steps()
        missing = [slot for slot in step.reads if slot >= FIRST_FREE and slot not in self._dims]
        if missing:
            raise UnsupportedError("the shape of an operand is known only in a run", where=_where(step))
        # Where results lie is known when their sizes are, which follow from those of the operands.
        region = SizedRegion(
            self.memory, self.weights, self.processor, program, (inputs, outputs := []),
            [self._dims.get(slot, ()) for slot in step.reads], self.ranges, number, _where(step),
        )  # fmt: skip
        for slot, spec, dims in zip(step.writes, program.outputs, region.shapes(), strict=True):
            self._dims[slot] = dims
            self._make(slot, product(dims) * array_dtype(spec.dtype).itemsize, step)
            outputs.append(self._of(slot))
        self.work.update(region.work())
        return region.steps()

    def ports(self) -> tuple[tuple[tuple[Dims, ...], tuple[Dims, ...]], tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the dimensions of inputs and outputs, and how many bytes they have at most."""
        shapes, most = [], []
        for slots, specs in ((self.plan.input_slots, self.plan.inputs), (self.plan.output_slots, self.plan.outputs)):
            pairs = [*zip(slots, specs, strict=True)]
            shapes.append(tuple([_dims(spec) if spec.is_static else self._dims[slot] for slot, spec in pairs]))
            most.append(tuple([self.ranges.most(self._bytes[slot], "it", f'"{spec.name}"') for slot, spec in pairs]))
        return (shapes[0], shapes[1]), (most[0], most[1])

    def _make(self, slot: int, nbytes: Size, step: Step) -> None:
        """Give a value between steps a buffer, unless it has a place."""
        if slot >= FIRST_FREE:
            self._bytes[slot] = nbytes
            if slot not in self._slots:
                most = self.ranges.most(nbytes, "a result", _where(step))
                self._slots[slot] = Place("buffer", self.memory.add(most, f"result of {step.label}"))

    def _of(self, slot: int) -> Place:
        return ABSENT if slot < FIRST_FREE else self._slots[slot]

    def _touch(self, *slots: Sequence[int]) -> None:
        for place in (self._of(slot) for some in slots for slot in some):
            if place.base == "buffer":
                self.memory.touch(place.index)

    def _source(self, step: Step, source: CSource) -> Source:
        self._touch(step.reads, step.writes)
        constants = [Place("weights", 0, self.weights.constant(constant)) for constant in source.constants]
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


def _dims(spec: TensorSpec) -> Dims:
    """Return the dimensions of an input or of a result of known shape."""
    return tuple([size(dim or 0) for dim in spec.shape or ()])


def _nbytes(spec: TensorSpec, dims: Dims) -> Size:
    return product(dims) * array_dtype(spec.dtype).itemsize


def _buffer_bytes(spec: BufferSpec) -> int:
    dims = [dim for dim in spec.shape if isinstance(dim, int)]
    if len(dims) < len(spec.shape):
        raise UnsupportedError(
            "a size is found in the run",
            where=f'"{spec.name}"',
            expected="sizes that are numbers",
            found=str(spec.shape),
        )
    return math.prod(dims) * array_dtype(spec.dtype).itemsize


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
            native = LoadedProgram(program, processor.isa, cache=processor.cache)
            read = read_while_running(program)
            self._constants = {
                index: weights.constant(constant) for index, constant in enumerate(program.constants) if index in read
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
                step = self._call(number, call)
                steps += [step] if isinstance(step, Copy) or step.units else []  # of no elements, it does nothing
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
            state = self._project.weights.state(packed, numbers_of(self._native.handle, number))
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
        self._project.work[call.kernel] += work_of(self._native.handle, number)
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
        elif isinstance(step, SizedCall):
            yield replace(
                step, operands=tuple(map(placed, step.operands)), own_state=placed(step.own_state),
                scratch=placed(step.scratch),
            )  # fmt: skip
        elif isinstance(step, Fill | Word | Find):
            yield replace(step, place=placed(step.place))
        elif isinstance(step, Condition):
            yield step
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
