"""Files of records: the member ``native.bin`` of a saved module, for Python and for programs without it.

It holds the programs of the module (:mod:`.encoder`) and, where all of its steps are programs or functions of C, how
these follow each other. Arrays are named by number, in a table of their keys and of where they lie in
``arrays.safetensors``. ``runtime_c/src/module.c`` reads it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tinycomp.errors import ArtifactError
from tinycomp.memory.reading import reading
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.decoder import decode
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.encoding import Reader, Writer
from tinycomp.runtime.native.library import lib
from tinycomp.runtime.native.program import Array, BufferSpec, Program
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Expression

MEMBER = "native.bin"
"""The name of the member."""
_MOST = 1 << 48
"""No size is larger."""


@dataclass(frozen=True)
class StepRecord:
    """Hold a step of a plan.

    Attributes:
        label: What it is called in messages; of a function, by what the C program says which one it is.
        op: What it runs.
        tier: How it runs.
        sources: The nodes that it computes.
        unit: The number of its program; -1 for a function of its own.
        reads: The slots of its operands.
        writes: Those of its results.
        frees: Those that hold nothing afterwards.
        values: Of a function, operands and results.
        constants: The keys of the constants of a function.
        scratch_bytes: What a function needs.
    """

    label: str
    op: str
    tier: str
    sources: Sequence[str]
    unit: int
    reads: Sequence[int]
    writes: Sequence[int]
    frees: Sequence[int]
    values: tuple[Sequence[BufferSpec], Sequence[BufferSpec]] = ((), ())
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


class Recorder:
    """Record programs, and the module around them."""

    def __init__(self) -> None:
        self._arrays: dict[str, int] = {}
        self._units: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._module = Writer()

    def program(self, program: Program, constants: Sequence[str]) -> int:
        """Record a program, unless it is recorded already, and return its number.

        Args:
            program: The program.
            constants: The keys of its constants in the archive.
        """
        unit = tuple([self._array(key) for key in constants]), encoded(program)
        return self._units.setdefault(unit, len(self._units))

    def _array(self, key: str) -> int:
        return self._arrays.setdefault(key, len(self._arrays))

    def module(self, about: ModuleRecord) -> None:
        """Record the module around the programs, last of all."""
        names = {dim for spec in (*about.inputs, *about.outputs) for dim in spec.shape or () if isinstance(dim, str)}
        symbols = {name: index for index, name in enumerate(sorted(names))}
        add = self._module.add
        add("module", about.slots, len(about.inputs), len(about.outputs), len(about.steps))
        for name in symbols:
            least, most = about.bounds.get(name, (0, None))
            add("symbol", name, least, _MOST if most is None else most)
        for key, array in about.defaults.values():
            add("default", self._array(key), _dtype(array), array.shape)
        for slot, (key, array) in about.constants.items():
            add("fixed", self._array(key), _dtype(array), array.shape, slot)
        starts = {name: index for index, name in enumerate(about.defaults)}
        for spec, slot in zip(about.inputs, about.input_slots, strict=True):
            add("input", *_port(spec, symbols), slot, starts.get(spec.name, -1))
        for spec, slot in zip(about.outputs, about.output_slots, strict=True):
            add("output", *_port(spec, symbols), slot)
        for pair in about.in_place:
            add("pair", *pair)
        for step in about.steps:
            texts = step.label, step.op, step.tier, step.sources
            add("step", *texts, step.unit, step.reads, step.writes, step.frees)
            if step.unit < 0:
                for written, specs in enumerate(step.values):
                    for buffer in specs:
                        assert not any(isinstance(dim, Expression) for dim in buffer.shape), buffer
                        add("value", written, buffer.dtype, buffer.shape)
                add("function", step.scratch_bytes, [self._array(key) for key in step.constants])

    def to_bytes(self, places: Mapping[str, tuple[int, int]]) -> bytes:
        """Return the records.

        Args:
            places: Where arrays lie among all arrays, by key: offset and size in bytes.
        """
        head, parts = Writer(), []
        head.add("file", lib.tc_fingerprint())
        for key in self._arrays:
            head.add("array", key, *places[key])
        for arrays, data in self._units:
            before = Writer()
            before.add("constants", arrays)
            parts += [before.to_bytes(), data]
        return b"".join([head.to_bytes(), *parts, self._module.to_bytes()])


def _dtype(array: Array) -> str:
    return "string" if array.dtype.kind == "O" else array.dtype.name


def _port(spec: TensorSpec, symbols: Mapping[str, int]) -> tuple[str, str, int, list[tuple[int, int]]]:
    """Return name, type, rank and dimensions, each of which is a symbol, a size, or neither."""
    dims = [
        (symbols[dim], -1) if isinstance(dim, str) else (-1, -1 if dim is None else dim) for dim in spec.shape or ()
    ]
    return spec.name, spec.dtype, -1 if spec.shape is None else len(dims), dims


@dataclass
class Recorded:
    """Hold what the records of a file say.

    Attributes:
        programs: The programs.
        slots: How many slots there are; 0 where the programs do not make up a module.
        constants: Arrays by slot.
        inputs: What the module takes, and in which slots.
        outputs: What it gives, and from which slots.
        steps: What it does.
    """

    programs: list[Program] = field(default_factory=list)
    slots: int = 0
    constants: dict[int, Array] = field(default_factory=dict)
    inputs: list[tuple[TensorSpec, int]] = field(default_factory=list)
    outputs: list[tuple[TensorSpec, int]] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)


def read_records(data: bytes, array: Callable[[str], Array]) -> Recorded:
    """Return what the records of a file say.

    Args:
        data: The records.
        array: Returns the array with a key.

    Raises:
        ArtifactError: If they are damaged, or of another version.
    """
    found, arrays, constants, symbols = Recorded(), list[Array](), list[Array](), list[str]()
    wanted: list[int] = []
    with reading(ArtifactError, problem="the description of the programs is damaged"):
        reader = Reader(data)
        records, begin = iter(reader), 0
        for kind, fields in records:
            if kind == "file" and fields != [lib.tc_fingerprint()]:
                raise ArtifactError(
                    "the module was saved by another version of tinycomp", hint="Save the module again."
                )
            if (begin == 0) != (kind == "file"):
                raise ValueError(f"a record {kind!r} at byte {begin}")
            if kind == "array":
                arrays.append(array(fields[0]))
            elif kind == "constants":
                constants = [arrays[index] for index in fields[0]]
            elif kind == "unit":
                found.programs.append(decode(reader, records, fields, constants, begin))
            elif kind == "module":
                found.slots, *wanted = fields
            elif kind == "symbol":
                symbols.append(fields[0])
            elif kind == "fixed":
                found.constants[fields[3]] = arrays[fields[0]]
            elif kind in ("input", "output"):
                name, dtype, rank, dims, slot, *_ = fields
                port = _spec(name, dtype, rank, dims, symbols), slot
                (found.inputs if kind == "input" else found.outputs).append(port)
            elif kind == "step":
                found.steps.append(StepRecord(*fields))
            elif kind not in ("file", "default", "pair", "value", "function"):
                raise ValueError(f"a record {kind!r} in a module")
            begin = reader.at
        if wanted and wanted != [len(found.inputs), len(found.outputs), len(found.steps)]:
            raise ValueError("parts of the module are missing")
    return found


def _spec(name: str, dtype: str, rank: int, dims: Sequence[tuple[int, int]], symbols: Sequence[str]) -> TensorSpec:
    if len(dims) != max(rank, 0):
        raise ValueError(f"{len(dims)} dimensions of rank {rank}")
    shape = [symbols[symbol] if symbol >= 0 else None if number < 0 else number for symbol, number in dims]
    return TensorSpec(name, dtype, None if rank < 0 else tuple(shape))
