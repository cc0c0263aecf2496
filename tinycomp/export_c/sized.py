"""Regions whose sizes only a run knows: calls with sizes as expressions, in memory for the most that these may be.

Every buffer lies at a place of its own, wherever sizes are, since there is room for the most. The kernels are asked in
every run what they need; how much that is at most is found out here, by asking them at many sizes, all of them if they
are few.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tinycomp.errors import UnsupportedError
from tinycomp.export_c.actions import ABSENT, Action, Call, Condition, Copy, Fill, Find, Place, SizedCall, Word
from tinycomp.export_c.memory import Memory
from tinycomp.export_c.processors import Processor
from tinycomp.export_c.weights import Numbers, Weights
from tinycomp.records import dataclass
from tinycomp.runtime.native.executor import LoadedProgram
from tinycomp.runtime.native.library import ANY_BYTES, ffi, kernel_named, lib
from tinycomp.runtime.native.program import BufferSpec, Instruction, Operand, Program
from tinycomp.runtime.regions import read_while_running
from tinycomp.runtime.spec import array_dtype
from tinycomp.symbolic import Expression, Size, assuming, bounds, evaluate, product, substitute, symbol

_ASKED = 4096
"""Combinations of sizes at which kernels are asked what they need."""
_MANY = 8
"""Symbols of a size of which not all extremes are combined."""
_MOST = 1 << 40
"""Bytes that no buffer has."""
_WORD = 8
"""Bytes of a size in memory."""

Dims = tuple[Size, ...]


@dataclass
class Ranges:
    """The sizes of a model and what is known of them.

    Attributes:
        given: Those that a run is given, by name: the least and the most that they may be.
        found: Those that a run finds out, likewise.
    """

    given: dict[str, tuple[int, int]]
    found: dict[str, tuple[int, int]]

    def most(self, size: Size, what: str, where: str) -> int:
        """Return the most that a size may be.

        Raises:
            UnsupportedError: If there is no bound; it says of what.
        """
        if isinstance(size, int):
            return size
        with assuming({**self.given, **self.found}):
            _, high = bounds(size)
        if high is not None and size.symbols <= self.given.keys():
            high = min(high, self._greatest(size, high))
        if high is None or high > _MOST:
            raise UnsupportedError(
                f"{what} has no bound", where=where, expected="sizes that are at most so large", found=f"{size} bytes",
                hint="Bound the sizes of the inputs, such as --shape ids=1..512.",
            )  # fmt: skip
        return max(high, 0)

    def _greatest(self, size: Expression, high: int) -> int:
        """Return the greatest value of a size that is no more than ``high``, which may be less exact."""
        ranges = {name: range(least, most + 1) for name, (least, most) in self.given.items() if name in size.symbols}
        ends = {name: (each[0], each[-1]) for name, each in ranges.items()}
        if len(ends) < _MANY and max(_values(size, ends), default=high) == high:
            return high
        return max(_values(size, ranges), default=high) if _combinations(ranges) <= _ASKED else high

    def samples(self) -> Iterator[dict[str, int]]:
        """Yield sizes of the inputs: all combinations if they are few, else the extremes and some in between."""
        ranges = {name: range(least, most + 1) for name, (least, most) in self.given.items()}
        if _combinations(ranges) <= _ASKED:
            return _combined(ranges)
        draw = random.Random(0)
        ends = itertools.islice(_combined({name: (each[0], each[-1]) for name, each in ranges.items()}), _ASKED // 2)
        drawn = ({name: draw.choice(each) for name, each in ranges.items()} for _ in range(_ASKED // 2))
        return itertools.chain(ends, drawn)


def _combinations(choices: Mapping[str, Sequence[int]]) -> int:
    return math.prod(map(len, choices.values()))


def _combined(choices: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    return (dict(zip(choices, chosen, strict=True)) for chosen in itertools.product(*choices.values()))


def _values(size: Expression, choices: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """Yield the values that a size has; where a divisor is 0, it has none."""
    for chosen in _combined(choices):
        with contextlib.suppress(ZeroDivisionError):
            yield evaluate(size, chosen)


class _Asked:
    """What the kernels of a program have answered at many sizes.

    Attributes:
        scratch: The most bytes that an instruction needs while it runs, by number.
        packs_anew: The instructions whose state is not the same at all sizes.
        cleared: The outputs of which a run need not write every byte; -1 for the arena.
    """

    def __init__(
        self, native: LoadedProgram, program: Program, samples: Iterator[Mapping[str, int]], where: str
    ) -> None:
        count = len(program.instructions)
        self.scratch, self.packs_anew, self.cleared = [0] * count, set[int](), set[int]()
        plan, common = ffi.new("tc_step_plan *"), ffi.new("tc_step_plan *")
        error, out = ffi.new("tc_error *"), ffi.new("tc_context **")
        buffer, begin, end = ffi.new("int32_t *"), ffi.new("int64_t *"), ffi.new("int64_t *")
        if lib.tc_context_create(native.handle, 1, out, error):
            raise UnsupportedError("the region cannot be planned", where=where, found=_message(error))
        context, answered = ffi.gc(out[0], lib.tc_context_destroy), 0
        for sizes in samples:
            if lib.tc_context_resize(context, [sizes[name] for name in program.symbols], ANY_BYTES, error):
                continue  # it does not work for these, which a run finds out, too
            answered += 1
            for number in range(count):
                lib.tc_context_plan(context, number, plan)
                lib.tc_program_plan(native.handle, number, common)
                self.scratch[number] = max(self.scratch[number], plan.scratch_bytes)
                if not common.fixed or plan.state != common.state:
                    self.packs_anew.add(number)
            hole = 0
            while lib.tc_context_cleared(context, hole, buffer, begin, end):
                self.cleared.add(buffer[0])
                hole += 1
        if not answered:
            raise UnsupportedError("the model works for no sizes within its bounds", where=where, found=_message(error))


def _message(error: Any) -> str:
    return str(ffi.string(error.message).decode("utf-8", "replace"))


class SizedRegion:
    """The calls of one symbolic program.

    Args:
        memory: Where its buffers go.
        weights: Where its weights go.
        processor: What these are for.
        program: The program.
        places: Where its inputs lie, and where its outputs shall.
        dims: The dimensions of its inputs, in sizes of the model.
        ranges: What is known of those.
        number: Which of the model's regions it is.
        where: How errors call it.
    """

    def __init__(
        self, memory: Memory, weights: Weights, processor: Processor, program: Program,
        places: tuple[Sequence[Place], Sequence[Place]], dims: Sequence[Dims], ranges: Ranges, number: int, where: str,
    ) -> None:  # fmt: skip
        self._memory, self._weights, self._program, self._where = memory, weights, program, where
        self._inputs, self._outputs = places
        self._ranges = ranges
        self._sizes: dict[str, Size] = {name: dims[i][axis] for name, (i, axis) in program.sources.items()}
        native = LoadedProgram(program, processor.isa, cache=processor.cache)
        self._native = native
        samples = ({name: evaluate(size, chosen) for name, size in self._sizes.items()} for chosen in ranges.samples())
        self._asked = _Asked(native, program, samples, where)
        self._found: dict[str, str] = {}
        for call in program.instructions:
            if call.found is not None:
                assert call.found.most is not None, "elements are found in bodies alone"
                found = self._found[call.found.symbol] = f"{call.found.symbol} in region {number}"
                ranges.found[found] = 0, ranges.most(self._at(call.found.most), call.found.symbol, where)
                self._sizes[call.found.symbol] = symbol(found)
        self._tables = {word.constant for word in program.tables}
        self._pieces: dict[int, int] = {}
        self._copies: dict[int, int] = {}
        self._constants = {
            index: weights.constant(program.constants[index]) for index in sorted(self._read() | self._tables)
        }

    def _read(self) -> set[int]:
        """Return the constants that calls read, or pack in every run."""
        read = set(read_while_running(self._program))
        for number in self._asked.packs_anew:
            read |= {o.index for o in self._program.instructions[number].operands if o.space == "constant"}
        return read

    def _at(self, size: Size) -> Size:
        """Return a size of the program in sizes of the model."""
        return substitute(size, self._sizes)

    def work(self) -> Counter[str]:
        """Return what each kernel has to do, at typical sizes."""
        work: Counter[str] = Counter()
        for number, call in enumerate(self._program.instructions):
            work[call.kernel] += work_of(self._native.handle, number)
        return work

    def shapes(self) -> list[Dims]:
        """Return the dimensions of the outputs, in sizes of the model."""
        return [tuple(self._at(dim) for dim in spec.shape) for spec in self._program.outputs]

    def _nbytes(self, spec: BufferSpec) -> Size:
        return self._at(product(spec.shape)) * array_dtype(spec.dtype).itemsize

    def steps(self) -> list[Action]:
        """Return what the program does."""
        program, memory = self._program, self._memory
        steps: list[Action] = []
        waiting = [*program.conditions]

        def conditions(is_shown: bool) -> Iterator[Condition]:
            for condition in [*waiting]:
                value = self._at(condition.value)
                names = value.symbols if isinstance(value, Expression) else frozenset()
                if not names & (set(self._ranges.found) - known):
                    waiting.remove(condition)
                    yield Condition(value, f"{condition.text} (node {condition.node})", is_shown)

        known = set(self._ranges.found) - set(self._found.values())
        steps += conditions(True)
        for index in sorted(self._asked.cleared - {-1}):
            if index not in program.grown:
                steps.append(Fill(self._outputs[index], self._nbytes(program.outputs[index])))
        self._keep([*self._outputs])
        for number, call in enumerate(program.instructions):
            for operand in call.operands:
                steps += self._begun(operand, call)
            steps.append(self._call(number, call))
            self._keep([self._place(operand) for operand in call.operands])
            if call.found is not None and call.found.most is not None:
                name = self._found[call.found.symbol]
                place = self._place(call.operands[call.found.operand])
                steps.append(Find(name, place, self._at(call.found.most)))
                known.add(name)
                steps += conditions(False)
            memory.tick(call.kernel, call.source)
        for left in program.left:
            place = self._place(left.place)
            steps.append(Copy(self._outputs[left.output], place, self._nbytes(program.outputs[left.output])))
            self._keep([place, self._outputs[left.output]])
        if program.left:
            memory.tick("copy", ())
        return steps

    def _begun(self, operand: Operand, call: Instruction) -> Iterator[Action]:
        """Yield what happens before a buffer is used for the first time."""
        what = ", ".join(call.source) or call.kernel
        if operand.space == "arena" and operand.index not in self._pieces:
            nbytes = self._at(self._program.arena[operand.index].nbytes)
            most = self._ranges.most(nbytes, "a buffer", f"{self._where}, {what}")
            self._pieces[operand.index] = self._memory.add(most, what)
            if -1 in self._asked.cleared:
                yield Fill(Place("buffer", self._pieces[operand.index]), nbytes)
        elif operand.space == "constant" and operand.index in self._tables - self._copies.keys():
            nbytes = self._program.constants[operand.index].nbytes
            copy = self._copies[operand.index] = self._memory.add(nbytes, f"sizes for {what}")
            yield Copy(Place("buffer", copy), Place("weights", 0, self._constants[operand.index]), nbytes)
            for word in self._program.tables:
                if word.constant == operand.index:
                    yield Word(Place("buffer", copy, _WORD * word.word), self._at(word.value))

    def _place(self, operand: Operand) -> Place:
        offset = self._at(operand.offset)
        if operand.space == "none":
            return ABSENT
        if operand.space == "arena":
            return Place("buffer", self._pieces[operand.index], offset)
        if operand.space == "constant":
            if operand.index in self._copies:
                return Place("buffer", self._copies[operand.index], offset)
            place = self._constants.get(operand.index)
            return ABSENT if place is None else Place("weights", 0, place + offset)
        return (self._inputs if operand.space == "input" else self._outputs)[operand.index].at(offset)

    def _room(self, operand: Operand) -> Size:
        """Return how many bytes an operand has."""
        if operand.space == "none":
            return 0
        if operand.space == "constant":
            return self._program.constants[operand.index].nbytes - self._at(operand.offset)
        if operand.space == "arena":
            return self._at(self._program.arena[operand.index].nbytes) - self._at(operand.offset)
        specs = self._program.inputs if operand.space == "input" else self._program.outputs
        return self._nbytes(specs[operand.index]) - self._at(operand.offset)

    def _call(self, number: int, call: Instruction) -> Call | SizedCall:
        plan = ffi.new("tc_step_plan *")
        lib.tc_program_plan(self._native.handle, number, plan)
        packs_anew, state = number in self._asked.packs_anew and plan.state_bytes > 0, None
        letters = kernel_named(call.kernel).signature
        tables = any(o.space == "constant" and o.index in self._tables for o in call.operands)
        is_static = not (call.depends_on_sizes or tables)
        if plan.state != ffi.NULL and plan.state_bytes and (is_static or not packs_anew):
            packed = bytes(ffi.buffer(plan.state, plan.state_bytes))
            state = self._weights.state(packed, numbers_of(self._native.handle, number))
        keeps = packs_anew and not is_static
        places = tuple([
            ABSENT if letter in "pP" and not keeps else self._place(operand)
            for letter, operand in zip(letters, call.operands, strict=False)
        ])  # fmt: skip
        fields = kernel_named(call.kernel).fields
        params = {
            name: float(call.params[name]) if kind is float else self._at(call.params[name])  # type: ignore[arg-type]
            for name, kind in fields.items()
        }
        if is_static:
            scratch = self._alone(plan.scratch_bytes, "what a kernel needs while it runs")
            numbers = {name: fields[name](value) for name, value in params.items()}
            return Call(call.kernel, numbers, places, state, plan.units, scratch, call.source)
        scratch_bytes, own_bytes = self._asked.scratch[number], plan.state_bytes if packs_anew else 0
        return SizedCall(
            call.kernel, params, places, tuple([operand.space for operand in call.operands]),
            tuple(map(self._room, call.operands)), state, self._alone(own_bytes, "how a kernel goes about its sizes"),
            own_bytes, self._alone(scratch_bytes, "what a kernel needs while it runs"), scratch_bytes, call.source,
        )  # fmt: skip

    def _alone(self, nbytes: int, what: str) -> Place:
        """Return memory for the step at hand alone."""
        if not nbytes:
            return ABSENT
        place = Place("buffer", self._memory.add(nbytes, what))
        self._keep([place])
        return place

    def _keep(self, places: Sequence[Place]) -> None:
        for place in places:
            if place.base == "buffer":
                self._memory.touch(place.index)


def numbers_of(program: Any, instruction: int) -> Iterator[Numbers]:
    """Yield the numbers in the state of an instruction of a program in the C runtime."""
    found, index = ffi.new("tc_numbers *"), 0
    while lib.tc_program_numbers(program, instruction, index, found):
        yield found.offset, found.count, found.size, found.times, found.step
        index += 1


def work_of(program: Any, instruction: int) -> int:
    """Return the operations of an instruction of a program in the C runtime, and the bytes that it moves."""
    work = ffi.new("tc_work *")
    lib.tc_program_work(program, instruction, work)
    return int(work.done + work.read + work.written)
