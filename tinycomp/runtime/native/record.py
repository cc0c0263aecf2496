"""Records of plans for programs without Python: ``tc_module_open`` of ``tinycomp_run.h`` reads them, not the JSON.

The member ``native.bin`` of a saved module holds the calls that build its programs (:mod:`.building`) and how these
follow each other, as numbers of 64 bits, least significant byte first. Texts and bytes are their length and then they
themselves, filled up to a multiple of eight; texts end with a zero. Arrays are named by their place in a table of where
they lie in ``arrays.safetensors``. ``runtime_c/src/module.c`` reads it in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tinycomp.records import dataclass
from tinycomp.runtime.native.building import ControlCall, Described, Extent, Place, describe
from tinycomp.runtime.native.library import Kernel, ffi, lib
from tinycomp.runtime.native.program import Array, BufferSpec, Program
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Expression, Size

MEMBER = "native.bin"
"""The name of the member."""
_MARK = b"TNYCOMP1"
_MOST = 1 << 48
"""No size is larger."""
_CALLS = (
    "symbols", "constant", "buffer_size", "word", "piece", "formula", "append", "parameter", "offset", "finds",
    "control", "leaves", "setup", "typical", "finish",
)  # fmt: skip
_CODES = {name: code for code, name in enumerate(_CALLS)}


class _Writer:
    """Collect numbers, texts and bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def numbers(self, *values: int) -> None:
        self._parts.append(struct.pack(f"<{len(values)}q", *values))

    def counted(self, values: Sequence[int]) -> None:
        self.numbers(len(values), *values)

    def extents(self, values: Sequence[tuple[int, ...]]) -> None:
        for value in values:
            self.numbers(*value)

    def block(self, data: bytes) -> None:
        self.numbers(len(data))
        self._parts.append(data + bytes(-len(data) % 8))

    def text(self, text: str) -> None:
        self.block(text.replace("\0", "\ufffd").encode("utf-8", "replace") + b"\0")

    def whole(self) -> bytes:
        return b"".join(self._parts)


class Recorder:
    """Record programs, and the module around them."""

    def __init__(self) -> None:
        self._arrays: dict[str, int] = {}
        self._programs: list[bytes] = []
        self._module = _Writer()

    def program(self, program: Program, constants: Sequence[str], read: frozenset[int]) -> tuple[int, Described]:
        """Record a program with its bodies.

        Args:
            program: The program.
            constants: The keys of its constants in the archive.
            read: Which of these are read in every run.

        Returns:
            Its number, and the values that its sizes are.
        """
        builder = _RecordingBuilder(self, program, constants, read)
        described = describe(program, program.constants, builder)
        return builder.number, described

    def add(self, program: bytes) -> int:
        """Take the record of a program and return its number."""
        self._programs.append(program)
        return len(self._programs) - 1

    def array(self, key: str) -> int:
        """Return the number of an array of the archive."""
        return self._arrays.setdefault(key, len(self._arrays))

    def module(self, about: ModuleRecord) -> None:
        """Record the module around the programs, last of all."""
        names = {dim for spec in (*about.inputs, *about.outputs) for dim in spec.shape or () if isinstance(dim, str)}
        symbols = {name: index for index, name in enumerate(sorted(names))}
        write = self._module
        write.numbers(about.slots, len(symbols))
        for name in symbols:
            least, most = about.bounds.get(name, (0, None))
            write.text(name)
            write.numbers(least, _MOST if most is None else most)
        write.numbers(len(about.defaults))
        for key, array in about.defaults.values():
            self._fixed(key, array)
        write.numbers(len(about.constants))
        for slot, (key, array) in about.constants.items():
            write.numbers(slot)
            self._fixed(key, array)
        starts = {name: index for index, name in enumerate(about.defaults)}
        self._ports(about.inputs, about.input_slots, symbols, starts)
        self._ports(about.outputs, about.output_slots, symbols, {})
        write.numbers(len(about.in_place))
        for pair in about.in_place:
            write.numbers(*pair)
        write.numbers(len(about.steps))
        for step in about.steps:
            self._step(step)

    def _fixed(self, key: str, array: Array) -> None:
        self._type(array.dtype.name, [(-1, size) for size in array.shape])
        self._module.numbers(self.array(key))

    def _type(self, dtype: str, dims: Sequence[Extent] | None) -> None:
        self._module.text(dtype)
        self._module.numbers(-1 if dims is None else len(dims))
        self._module.extents(dims or ())

    def _ports(
        self, specs: Sequence[TensorSpec], slots: Sequence[int], symbols: Mapping[str, int], starts: Mapping[str, int]
    ) -> None:
        self._module.numbers(len(specs))
        for spec, slot in zip(specs, slots, strict=True):
            self._module.text(spec.name)
            dims = None if spec.shape is None else [_dimension(dim, symbols) for dim in spec.shape]
            self._type(spec.dtype, dims)
            self._module.numbers(slot, starts.get(spec.name, -1))

    def _step(self, step: StepRecord) -> None:
        write = self._module
        write.text(step.name)
        write.numbers(step.program, len(step.reads), len(step.writes))
        if step.described is not None:
            sizes = step.described.sizes
            sources = () if sizes is None else sizes.sources
            write.numbers(len(sources))
            for source in sources:
                write.numbers(*source)
            conditions = step.described.program.conditions
            write.numbers(len(conditions))
            for condition in conditions:
                write.text(f"{condition.text} (node {condition.node})")
        else:
            write.numbers(step.scratch_bytes)
            write.counted([self.array(key) for key in step.constants])
        for specs, slots, grown in ((step.inputs, step.reads, frozenset()), (step.outputs, step.writes, step.grown)):
            for index, (spec, slot) in enumerate(zip(specs, slots, strict=True)):
                write.numbers(slot)
                unknown = index in grown
                dims = [(-1, -1) if unknown else _extent(step.described, dim) for dim in spec.shape]
                self._type(spec.dtype, dims)
                write.numbers(unknown)

    def to_bytes(self, places: Mapping[str, tuple[int, int]]) -> bytes:
        """Return the record.

        Args:
            places: Where arrays lie among all arrays, by key: offset and size in bytes.
        """
        write = _Writer()
        write.numbers(int.from_bytes(_MARK, "little"), lib.tc_fingerprint(), len(self._arrays))
        for key in self._arrays:
            write.numbers(*places[key])
        write.numbers(len(self._programs))
        return b"".join([write.whole(), *self._programs, self._module.whole()])


@dataclass(frozen=True)
class StepRecord:
    """Hold a step of a plan.

    Attributes:
        name: What it is called in messages; of a function, by what the C program says which one it is.
        program: The number of its program; -1 for a function of its own.
        described: What describing the program has shown; None for a function.
        inputs: Its operands.
        outputs: Its results.
        reads: Their slots.
        writes: Likewise.
        grown: Which results have sizes that only a run shows.
        constants: The keys of the constants of a function.
        scratch_bytes: What a function needs.
    """

    name: str
    program: int
    described: Described | None
    inputs: Sequence[BufferSpec]
    outputs: Sequence[BufferSpec]
    reads: Sequence[int]
    writes: Sequence[int]
    grown: frozenset[int] = frozenset()
    constants: Sequence[str] = ()
    scratch_bytes: int = 0


@dataclass(frozen=True)
class ModuleRecord:
    """Hold the parts of a module other than its programs.

    Attributes:
        inputs: What it takes.
        outputs: What it gives.
        input_slots: Where inputs go.
        output_slots: Where outputs are found.
        slots: How many slots there are.
        bounds: The least and the most that sizes may be, by symbol.
        defaults: Keys and values of inputs that may be left out, by name.
        constants: Keys and values by slot.
        in_place: Inputs and outputs that may be the same memory.
        steps: What it does.
    """

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    input_slots: Sequence[int]
    output_slots: Sequence[int]
    slots: int
    bounds: Mapping[str, tuple[int, int | None]]
    defaults: Mapping[str, tuple[str, Array]]
    constants: Mapping[int, tuple[str, Array]]
    in_place: Sequence[tuple[int, int]]
    steps: Sequence[StepRecord]


def _dimension(dim: int | str | None, symbols: Mapping[str, int]) -> Extent:
    """Return a dimension of the module itself: its symbol, its size, or neither."""
    return (symbols[dim], -1) if isinstance(dim, str) else (-1, -1 if dim is None else dim)


def _extent(described: Described | None, size: Size) -> Extent:
    if described is None:
        assert not isinstance(size, Expression), size  # functions have known sizes
        return -1, size
    return described.extent(size)


class _RecordingBuilder:
    """The :class:`~.building.Builder` that records the description of a program."""

    def __init__(self, recorder: Recorder, program: Program, constants: Sequence[str], read: frozenset[int]) -> None:
        self._recorder, self._constants, self._read = recorder, constants, read
        self._write = _Writer()
        self._write.numbers(len(program.inputs), len(program.outputs))
        self._told = 0
        self.number = -1

    def constant(self, array: Array) -> None:
        """Record the next constant."""
        key = self._recorder.array(self._constants[self._told])
        self._write.numbers(_CODES["constant"], self._told in self._read, key)
        self._told += 1

    def append(self, kernel: Kernel, operands: Sequence[Place], params: Any) -> None:
        """Record a kernel call."""
        self._write.numbers(_CODES["append"], kernel.index, len(operands))
        self._write.extents(operands)
        self._write.block(bytes(ffi.buffer(params)))

    def control(self, call: ControlCall) -> None:
        """Record control flow."""
        write = self._write
        write.numbers(_CODES["control"], call.kind, call.carried, call.captured, len(call.growths))
        write.extents(call.operands)
        write.extents(call.nbytes)
        for body in call.bodies:
            assert isinstance(body.builder, _RecordingBuilder)
            write.numbers(body.builder.number)
            write.extents(body.symbols)
            write.numbers(*body.following)
            write.extents(body.outputs)
        for growth in call.growths:
            write.numbers(growth.rank)
            write.extents(growth.dims)
            write.extents(growth.first)

    def body(self, program: Program) -> _RecordingBuilder:
        """Return the builder of a body."""
        return _RecordingBuilder(self._recorder, program, self._constants, self._read)

    def finish(self, arena_bytes: int) -> None:
        """Hand the record over."""
        self._write.numbers(_CODES["finish"], arena_bytes)
        self.number = self._recorder.add(self._write.whole())

    def tell(self, call: str, *arguments: Any) -> None:
        """Record any other call."""
        self._write.numbers(_CODES[call])
        if call == "typical":
            self._write.counted(arguments[0])
        elif call == "piece":
            value, above, _ = arguments
            self._write.numbers(value)
            self._write.counted(above)
        elif call == "leaves":
            output, place, nbytes, rank, dims = arguments
            self._write.numbers(output, *place, nbytes, rank, *dims)
        else:
            self._write.numbers(*arguments)
