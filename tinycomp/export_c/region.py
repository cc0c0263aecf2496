"""The calls of one program: a region on the target ``c``, or a body of its control flow.

A program is printed as it was built for the processor: its instructions in order, the parameters and operands that they
have, the states that kernels have packed, the buffers of its arena with their lives. Sizes may be expressions; there is
memory for the most that they may be, and every buffer lies at one place, whatever they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tinycomp.errors import UnsupportedError
from tinycomp.export_c.actions import (
    ABSENT,
    Action,
    Call,
    Condition,
    Copy,
    Fill,
    Find,
    If,
    Loop,
    Place,
    Sized,
    Word,
)
from tinycomp.export_c.memory import Memory
from tinycomp.export_c.processors import Processor
from tinycomp.export_c.sized import Dims, Ranges, needs_of, numbers_of, work_of
from tinycomp.export_c.weights import Weights
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.executor import LoadedProgram
from tinycomp.runtime.native.library import ffi, kernel_named, lib
from tinycomp.runtime.native.program import BufferSpec, Control, Instruction, Operand, Program
from tinycomp.runtime.regions import read_while_running
from tinycomp.runtime.spec import array_dtype
from tinycomp.symbolic import Expression, Size, evaluate, product, substitute, symbol

_COPIES_FIRST: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType({"qgemm": lambda p: p["m"] == 1})
"""Kernels that, on one thread, have copied all of operand 1 before they write operand 0, given their parameters."""
_WORD, _FLAG = 8, 1
"""Bytes of a size or of the number of a trip, and of a condition."""


@dataclass
class Parts:
    """Collect what the regions of a project share.

    Attributes:
        processor: What it is for.
        ranges: What is known of sizes.
        weights: Packed weights and constants.
        memory: The buffers of a run.
        work: Operations and bytes moved of each kernel, roughly.
    """

    processor: Processor
    ranges: Ranges
    weights: Weights
    memory: Memory = field(default_factory=Memory)
    work: Counter[str] = field(default_factory=Counter)

    def buffer(self, nbytes: int, what: str) -> Place:
        """Return memory that is in use from the step at hand on."""
        place = Place("buffer", self.memory.add(nbytes, what))
        self.keep([place])
        return place

    def scratch(self, nbytes: int, what: str = "what a kernel needs while it runs") -> Place:
        """Return memory for the step at hand alone, if it needs any."""
        return self.buffer(nbytes, what) if nbytes else ABSENT

    def keep(self, places: Iterable[Place]) -> None:
        """State that the step at hand uses places."""
        for place in places:
            if place.base == "buffer":
                self.memory.touch(place.index)


@dataclass(frozen=True)
class _Piece:
    """A buffer in the arena of a program: what it is in :class:`Block`, of a size that may be an expression."""

    nbytes: Size
    first: int
    last: int
    offset: int = 0
    over: int | None = None


class Region:
    """The calls of one program.

    Args:
        parts: What they are added to.
        program: The program.
        inputs: Where its inputs lie.
        dims: The dimensions of these, in sizes of the model.
        number: Which of the model's regions it is.
        where: How errors call it.
        around: The region and what the C runtime calls the program, if it is a body of control flow.
    """

    def __init__(
        self, parts: Parts, program: Program, inputs: Sequence[Place], dims: Sequence[Dims] = (), number: int = 0,
        where: str = "", around: tuple[Region, Any] | None = None,
    ) -> None:  # fmt: skip
        self._parts, self._program, self._inputs, self._where = parts, program, inputs, where
        self._outputs: Sequence[Place] = ()
        self._sizes: dict[str, Size] = {name: dims[i][axis] for name, (i, axis) in program.sources.items()}
        processor, ranges = parts.processor, parts.ranges
        self._native = around[1] if around else LoadedProgram(program, processor.isa, cache=processor.cache)
        self._bodies = iter(self._native.bodies)
        samples = ({name: evaluate(size, chosen) for name, size in self._sizes.items()} for chosen in ranges.samples())
        self._needs = needs_of(self._native.handle, program, samples, where)
        self._unknown: dict[str, str] = {}  # sizes that a run has yet to find out
        for call in program.instructions:
            if call.found is not None:
                assert call.found.most is not None, "elements are found in bodies alone"
                found = self._unknown[call.found.symbol] = f"{call.found.symbol} in region {number}"
                ranges.found[found] = 0, ranges.most(self._at(call.found.most), call.found.symbol, where)
                self._sizes[call.found.symbol] = symbol(found)
        self._waiting = [*program.conditions]
        self._tables = {word.constant for word in program.tables}
        self._pieces = self._arena()
        self._buffers: dict[int, int] = {}  # by number of the piece
        self._copies: dict[int, int] = {}  # of tables
        self._constants: dict[int, int] = around[0]._constants if around else self._kept()

    def _kept(self) -> dict[int, int]:
        """Return where the constants lie that calls read, or pack in every run."""
        program = self._program
        read = {*read_while_running(program), *self._tables}
        for number in self._needs.packs_anew:
            read |= {o.index for o in program.instructions[number].operands if o.space == "constant"}
        return {index: self._parts.weights.constant(program.constants[index]) for index in sorted(read)}

    def _arena(self) -> list[_Piece]:
        """Return the buffers of the arena, with the instructions that use them."""
        program = self._program
        if not program.is_symbolic:
            return [_Piece(b.nbytes, b.first, b.last, b.offset, b.over) for b in program.blocks]
        uses = defaultdict[int, list[int]](list)
        for number, call in enumerate(program.instructions):
            for operand in call.operands:
                uses[operand.index] += [number] * (operand.space == "arena")
        for left in program.left:
            uses[left.place.index].append(len(program.instructions))
        lives = [uses[index] or [-1] for index in range(len(program.arena))]
        return [_Piece(self._at(p.nbytes), life[0], life[-1]) for p, life in zip(program.arena, lives, strict=True)]

    def _at(self, size: Size) -> Size:
        """Return a size of the program in sizes of the model."""
        return substitute(size, self._sizes) if isinstance(size, Expression) else size

    def dims(self, spec: BufferSpec) -> Dims:
        """Return the dimensions of an output, in sizes of the model.

        Raises:
            UnsupportedError: If they follow from something else.
        """
        if any(isinstance(dim, Expression) and not dim.symbols <= self._sizes.keys() for dim in spec.shape):
            raise UnsupportedError(
                "a size is found in the run", where=f'"{spec.name}"', expected="sizes that are numbers",
                found=str(spec.shape),
            )  # fmt: skip
        return tuple([self._at(dim) for dim in spec.shape])

    def nbytes(self, spec: BufferSpec) -> Size:
        """Return how many bytes an output has; as :meth:`dims`."""
        return product(self.dims(spec)) * array_dtype(spec.dtype).itemsize

    def steps(self, outputs: Sequence[Place], rooms: Sequence[Size] = ()) -> list[Action]:
        """Return what the program does.

        Args:
            outputs: Where its results shall lie.
            rooms: How many bytes there are for them, which decide the trips of loops.
        """
        self._outputs, program, memory = outputs, self._program, self._parts.memory
        steps: list[Action] = [*self._conditions(is_shown=True)]
        for index, begin, end in self._needs.cleared:
            if index >= 0 and outputs[index].base != "absent":
                nbytes = self.nbytes(program.outputs[index]) if end is None else end - begin
                steps.append(Fill(outputs[index].at(begin), nbytes))
                self._parts.keep([outputs[index]])
        for number, call in enumerate(program.instructions):
            for index, piece in enumerate(self._pieces):
                if piece.first == number:
                    steps += self._begun(index, piece, call)
                if piece.first <= number <= piece.last:
                    memory.touch(self._buffers[index])
            steps += self._table_copies(call)
            if call.control is not None:
                steps += (self._loop if call.kernel == "loop" else self._if)(number, call, call.control, rooms)
            else:
                steps += self._call(number, call)
            if call.found is not None and call.found.most is not None:
                place = self._place(call.operands[call.found.operand], number)
                steps.append(Find(self._unknown.pop(call.found.symbol), place, self._at(call.found.most)))
                steps += self._conditions(is_shown=False)
            for index, piece in enumerate(self._pieces):
                if piece.first <= number <= piece.last:
                    memory.touch(self._buffers[index])  # of control flow, after what its bodies do
            memory.tick(call.kernel, call.source)
        for left in program.left:
            place = self._place(left.place, len(program.instructions))
            steps.append(Copy(outputs[left.output], place, self.nbytes(program.outputs[left.output])))
            self._parts.keep([place, outputs[left.output]])
        if program.left:
            memory.tick("copy", ())
        return steps

    def _conditions(self, is_shown: bool) -> Iterator[Condition]:
        """Yield the conditions that may be checked by now, each once."""
        unknown = set(self._unknown.values())
        for condition in [*self._waiting]:
            value = self._at(condition.value)
            if not (isinstance(value, Expression) and value.symbols & unknown):
                self._waiting.remove(condition)
                yield Condition(value, f"{condition.text} (node {condition.node})", is_shown)

    def _begun(self, index: int, piece: _Piece, call: Instruction) -> Iterator[Fill]:
        """Give a piece of the arena a buffer, and yield what clears it."""
        what, over = ", ".join(call.source) or call.kernel, None
        if piece.over is not None:
            over = self._buffers[piece.over], self._pieces[piece.over].offset - piece.offset
        most = self._parts.ranges.most(piece.nbytes, "a buffer", f"{self._where}, {what}")
        self._buffers[index] = self._parts.memory.add(most, what, over)
        for output, begin, end in self._needs.cleared:
            if output < 0 and end is None:
                yield Fill(Place("buffer", self._buffers[index]), piece.nbytes)
            elif output < 0 and end is not None:
                low, high = max(begin, piece.offset), min(end, piece.offset + most)
                if low < high:
                    yield Fill(Place("buffer", self._buffers[index], low - piece.offset), high - low)

    def _table_copies(self, call: Instruction) -> Iterator[Action]:
        """Yield copies of the tables that a call is the first to read, filled with the sizes of the run."""
        for operand in call.operands:
            index = operand.index
            if operand.space == "constant" and index in self._tables - self._copies.keys():
                nbytes = self._program.constants[index].nbytes
                what = f"sizes for {', '.join(call.source) or call.kernel}"
                self._copies[index] = self._parts.memory.add(nbytes, what)
                table = Place("buffer", self._copies[index])
                yield Copy(table, Place("weights", 0, self._constants[index]), nbytes)
                for word in self._program.tables:
                    if word.constant == index:
                        yield Word(table.at(_WORD * word.word), self._at(word.value))

    def _place(self, operand: Operand, number: int) -> Place:
        offset = self._at(operand.offset)
        if operand.space == "none":
            return ABSENT
        if operand.space == "constant" and operand.index not in self._copies:
            at = self._constants.get(operand.index)
            return ABSENT if at is None else Place("weights", 0, at + offset)
        if operand.space == "constant":
            place = Place("buffer", self._copies[operand.index], offset)
        elif operand.space == "arena" and isinstance(offset, int) and not self._program.is_symbolic:
            pieces = self._pieces
            alive = [i for i, p in enumerate(pieces) if p.first <= number <= p.last and p.offset <= offset]
            index = max(alive, key=lambda i: (_end(pieces[i]) > offset, pieces[i].offset))
            place = Place("buffer", self._buffers[index], offset - pieces[index].offset)
        elif operand.space == "arena":
            place = Place("buffer", self._buffers[operand.index], offset)
        else:
            place = (self._inputs if operand.space == "input" else self._outputs)[operand.index].at(offset)
        self._parts.keep([place])
        return place

    def _room(self, operand: Operand) -> Size:
        """Return how many bytes an operand has."""
        program, offset = self._program, self._at(operand.offset)
        if operand.space == "none":
            return 0
        if operand.space == "constant":
            return program.constants[operand.index].nbytes - offset
        if operand.space == "arena":
            return self._pieces[operand.index].nbytes - offset
        return self.nbytes((program.inputs if operand.space == "input" else program.outputs)[operand.index]) - offset

    def _call(self, number: int, call: Instruction) -> Iterator[Call | Copy]:
        """Yield a call, or nothing if it has no elements."""
        parts, kernel, plan = self._parts, kernel_named(call.kernel), ffi.new("tc_step_plan *")
        lib.tc_program_plan(self._native.handle, number, plan)
        reads_sizes = any(o.space == "constant" and o.index in self._tables for o in call.operands)
        is_static = not (call.depends_on_sizes or reads_sizes)
        if is_static and call.kernel == "copy" and (nbytes := _bytes_in_a_row(call.params)) is not None:
            to, source = (self._place(operand, number) for operand in call.operands)
            yield Copy(to, source, nbytes)
            return
        packs_anew = not is_static and number in self._needs.packs_anew and plan.state_bytes > 0
        state = None
        if plan.state != ffi.NULL and plan.state_bytes and not packs_anew:
            packed = bytes(ffi.buffer(plan.state, plan.state_bytes))
            state = parts.weights.state(packed, numbers_of(self._native.handle, number))
        operands = tuple([
            ABSENT if letter in "pP" and not packs_anew else self._place(operand, number)
            for letter, operand in zip(kernel.signature, call.operands, strict=False)
        ])  # fmt: skip
        params = {
            name: self._at(value) if isinstance(value := call.params[name], Expression) else kind(value)
            for name, kind in kernel.fields.items()
        }
        parts.work[call.kernel] += work_of(self._native.handle, number)
        if not is_static:
            spaces, rooms = [o.space for o in call.operands], map(self._room, call.operands)
            own, nbytes = plan.state_bytes if packs_anew else 0, self._needs.scratch[number]
            place = parts.scratch(own, "how a kernel goes about its sizes")
            sized = Sized(tuple(spaces), tuple(rooms), place, own, nbytes)
            yield Call(call.kernel, params, operands, state, 0, parts.scratch(nbytes), call.source, sized)
        elif plan.units:
            copies_first = _COPIES_FIRST.get(call.kernel)
            if copies_first is not None and copies_first(params):
                result, operand = operands[:2]
                if result.base == operand.base == "buffer" and result.index != operand.index:
                    parts.memory.read_before_written(operand.index, result.index)
            scratch = parts.scratch(plan.scratch_bytes)
            yield Call(call.kernel, params, operands, state, plan.units, scratch, call.source)

    def _if(self, number: int, call: Instruction, control: Control, _: object) -> list[Action]:
        places = [self._place(operand, number) for operand in call.operands]
        first = 1 + len(control.shapes)
        bodies = []
        for program in control.bodies:
            outputs = [  # where they are wanted, or for nothing
                self._value(spec) if place.base == "absent" else place
                for place, spec in zip(places[first:], program.outputs, strict=True)
            ]
            bodies.append(self._body(program, places[1:first], outputs))
            self._parts.keep((*places, *outputs))
        return [If(places[0], (bodies[0], bodies[1]), call.source)]

    def _loop(self, number: int, call: Instruction, control: Control, rooms: Sequence[Size]) -> list[Action]:
        places = [self._place(operand, number) for operand in call.operands]
        (program,), count, first = control.bodies, control.carried, 2 + len(control.shapes)
        read, results, specs = places[2:first], places[first:], program.outputs[1:]
        buffer = self._parts.buffer
        trip, flag, goes_on = buffer(_WORD, "number of a trip"), buffer(_FLAG, ""), buffer(_FLAG, "condition")
        now, following = [*map(self._value, specs[:count])], [*map(self._value, specs)]
        steps = self._body(program, [trip, flag, *now, *read[count:]], [goes_on, *following])
        self._parts.keep((*places, trip, flag, goes_on, *now, *following))
        sizes = [_number(self.nbytes(spec)) for spec in specs]
        begin = map(Copy, now, read, sizes)
        carried = map(Copy, now, following, sizes)
        kept = [index for index, place in enumerate(results) if place.base != "absent"]
        end = [Copy(results[index], now[index], sizes[index]) for index in kept if index < count]
        rows = [Copy(results[index], following[index], sizes[index]) for index in kept if index >= count]
        room = [rooms[o.index] if n is None else n for o, n in zip(call.operands[first:], control.results, strict=True)]
        trips = {_number(room[index]) // sizes[index] for index in kept if index >= count and sizes[index]}
        loop = Loop(
            places[0], places[1], trip, goes_on, (*steps, *carried), tuple(rows), trips.pop() if trips else None,
            call.source,
        )  # fmt: skip
        return [*begin, Fill(flag, _FLAG, 1), loop, *end]

    def _body(self, program: Program, inputs: Sequence[Place], outputs: Sequence[Place]) -> tuple[Action, ...]:
        return tuple(Region(self._parts, program, inputs, around=(self, next(self._bodies))).steps(outputs))

    def _value(self, spec: BufferSpec) -> Place:
        return self._parts.buffer(_number(self.nbytes(spec)), spec.name)


def _number(size: Size) -> int:
    assert isinstance(size, int), "control flow over sizes is refused before"
    return size


def _end(piece: _Piece) -> int:
    return piece.offset + _number(piece.nbytes)


def _bytes_in_a_row(params: Mapping[str, Any]) -> int | None:
    """Return how many bytes a copy moves that lie side by side on both sides; None if they do not."""
    nbytes = whole = params["element_size"]
    for dim in range(lib.TC_MAX_RANK - 1, -1, -1):
        size = params[f"size{dim}"]
        if size != 1 and not params[f"to_stride{dim}"] == params[f"from_stride{dim}"] == nbytes // whole:
            return None
        nbytes *= size
    return int(nbytes)
