"""Programs for the C runtime: flat lists of kernel calls over an arena, as plain data.

The code generator of the C target produces programs, and saved modules contain them. A program names kernels and their
parameters and is independent of the machine; when it is loaded, weights are packed for the instruction set there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tinycomp.lazy import cached_property
from tinycomp.records import dataclass, field, replace
from tinycomp.runtime.native.library import kernel_named, lib
from tinycomp.symbolic import Expression, Size

Array = np.ndarray[Any, np.dtype[Any]]

ALGORITHMS = MappingProxyType(
    {
        lib.TC_CONV_DIRECT: "direct",
        lib.TC_CONV_LINES: "lines",
        lib.TC_CONV_WINOGRAD_2: "Winograd F(2x2, 3x3)",
        lib.TC_CONV_WINOGRAD_4: "Winograd F(4x4, 3x3)",
        lib.TC_CONV_COLUMNS: "columns",
    }
)
"""The algorithms of convolutions by number."""

_EXTENDED_IN_PLACE = MappingProxyType({"cache_append_f32": (0, 1), "tensor_scatter": (0, 1)})
"""Kernels that extend an operand in place if it shares memory with the result: the indices of result and operand."""

SPAN = "uint64"
"""The type of a text in a program: a span of a heap of bytes."""
CONTROL_FLOW = ("if", "loop")
"""Instructions other than kernel calls, in the order of their codes."""
SPACES = ("none", "input", "output", "constant", "arena")


@dataclass(frozen=True, slots=True)
class Operand:
    """The place of one operand of a kernel call.

    Args:
        space: One of ``none`` (absent), ``input``, ``output``, ``constant`` and ``arena``.
        index: The number of the input, output or constant; 0 for the arena.
        offset: Bytes from the start of that buffer.
    """

    space: str
    index: int = 0
    offset: Size = 0

    def __str__(self) -> str:
        """Return for example ``input[0]``, ``arena+4096`` or ``-`` for an absent operand."""
        if self.space == "none":
            return "-"
        place = self.space if self.space == "arena" else f"{self.space}[{self.index}]"
        return place if isinstance(self.offset, int) and self.offset == 0 else f"{place}+{self.offset}"


ABSENT = Operand("none")


@dataclass(frozen=True, slots=True)
class Found:
    """A size that an instruction determines, such as how many boxes remain; later instructions may depend on it.

    Args:
        symbol: The name of the size in expressions.
        operand: The operand of the instruction that receives the size, an int64 in the arena.
        most: An upper bound, which depends only on the sizes of the inputs; None for an element of a tensor, which may
            be any number.
    """

    symbol: str
    operand: int
    most: Size | None

    def __str__(self) -> str:
        return f"finds {self.symbol}" if self.most is None else f"finds {self.symbol} <= {self.most}"


@dataclass(frozen=True, slots=True)
class Control:
    """Control flow: ``if`` runs one of two bodies, ``loop`` runs one body repeatedly.

    The operands of ``if`` are the condition, the values that the bodies read, and the results. Those of ``loop`` are
    the trip count and the condition (both may be absent), the carried values, the other values that the body reads, and
    the results: the carried values, then the concatenated rows of all iterations. The inputs of a ``loop`` body begin
    with the number of the iteration and the condition, and its outputs with whether to continue.

    Args:
        bodies: Programs that use the constants of the program around them.
        carried: How many values an iteration passes to the next one.
        shapes: The initial shapes of the carried values, and the shapes of the other values that the bodies read.
        results: Bytes of the results; None for an output whose size is known only after a run.
    """

    bodies: tuple[Program, ...]
    carried: int
    shapes: tuple[tuple[Size, ...], ...]
    results: tuple[Size | None, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One kernel call, or control flow.

    Args:
        kernel: The kernel's name, as in ``runtime_c/kernels/kernels.def``.
        operands: One per letter of the kernel's signature; absent ones are :data:`ABSENT`.
        params: Every field of the kernel's parameter struct.
        source: Names of the model's nodes that this call computes.
        macs: Multiply-adds of the call, for reports.
        found: The size that it determines, if any.
        control: The bodies of ``if`` and ``loop``; None for a kernel call.
    """

    kernel: str
    operands: tuple[Operand, ...]
    params: Mapping[str, float | Size]
    source: tuple[str, ...] = ()
    macs: Size = 0
    found: Found | None = None
    control: Control | None = None

    @property
    def depends_on_sizes(self) -> bool:
        """Whether a part of it depends on sizes known only at run time."""
        parts: list[Any] = [*self.params.values(), *[operand.offset for operand in self.operands]]
        if self.control is not None:
            parts += [*[dim for shape in self.control.shapes for dim in shape], *self.control.results]
        return Expression in map(type, parts)

    @property
    def algorithm(self) -> str:
        """The name of the algorithm that a convolution uses; empty for kernels that have only one."""
        return ALGORITHMS.get(int(self.params.get("algorithm", 0)), "")


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Name, dtype and shape of a program's input or output; the buffer is row-major and contiguous.

    Args:
        name: The name in messages.
        dtype: The type of the elements.
        shape: The dimensions.
        elements: For an input of int32 or int64 and known shape whose elements are sizes: the symbol of each element,
            or None for one that is not a size.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    elements: tuple[str | None, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Left:
    """An output that is in the arena at the end of a run, because the run determines its size.

    Args:
        output: The number of the output.
        place: Its place in the arena.
    """

    output: int
    place: Operand


@dataclass(frozen=True, slots=True)
class Texts:
    """The inputs and outputs of a program that are texts: arrays of spans, each a part of a heap of bytes.

    Two inputs follow those of the caller: the heap of all incoming texts, and two int64, the number of bytes of all
    texts and of the longest one. A heap that the program fills with new texts is an output after those of the caller.

    Args:
        inputs: The inputs that are spans of the incoming heap.
        outputs: The outputs that are spans, each with its heap: the number of an output, or -1 for the incoming heap.
        prefix: The bytes at the beginning of every heap: the constant texts of the program.
    """

    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    prefix: bytes = field(repr=False)

    @property
    def heaps(self) -> frozenset[int]:
        """The outputs that are heaps."""
        return frozenset(heap for _, heap in self.outputs if heap >= 0)


@dataclass(frozen=True, slots=True)
class Block:
    """A buffer in the arena of a program whose sizes are numbers.

    Args:
        offset: Its first byte.
        nbytes: Its size.
        first: The first instruction that uses it.
        last: The last instruction that uses it.
        over: The buffer that it may overlap, because it is written only where the bytes of that one are dead.
    """

    offset: int
    nbytes: int
    first: int
    last: int
    over: int | None = None


@dataclass(frozen=True, slots=True)
class ArenaBuffer:
    """A buffer in the arena of a program with symbolic sizes.

    Args:
        nbytes: Its size.
        above: The buffers after whose ends it must begin.
    """

    nbytes: Size
    above: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableWord:
    """An int64 word of a constant that is computed from the sizes of a run.

    Args:
        constant: The number of the constant.
        word: The number of the word in it.
        value: The value of the word.
    """

    constant: int
    word: int
    value: Size


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the sizes of a run of a symbolic program.

    Args:
        value: A value that must be 0.
        text: The message for any other value.
        node: The node that needs the condition.
    """

    value: Size
    text: str
    node: str

    @property
    def is_declared(self) -> bool:
        """Whether it says that a value has the shape that the model declares."""
        return self.node.endswith("(tinycomp::Declared)")


@dataclass(frozen=True)
class Program:
    """A flat list of kernel calls with the memory they need.

    Args:
        name: The name in messages and reports.
        inputs: The buffers that the caller provides to be read, in order.
        outputs: The buffers that the caller provides to be written, in order.
        constants: C-contiguous arrays; they must not change while the program is in use.
        arena_bytes: The size of the arena, which holds all intermediate values.
        instructions: The instructions in the order of execution.
        arena_bound: A lower bound of the arena: the most bytes in use during one instruction. 0 if it is unknown.
        left: The outputs that are in the arena at the end of a run.
        arena: The buffers of the arena if sizes are known only at run time; arena operands then name one by index.
        tables: The words of constants that are computed from sizes.
        conditions: The conditions on sizes.
        setup: How many of the first instructions depend on sizes alone, and run only for new sizes.
        blocks: The buffers of the arena if all sizes are numbers; empty if they are unknown.
        texts: The inputs and outputs that are texts, if there are any.

    A program with symbolic dimensions works for all sizes: parameters, offsets and sizes of buffers may be expressions
    over its symbols, which every run evaluates.
    """

    name: str
    inputs: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]
    constants: tuple[Array, ...] = field(repr=False)
    arena_bytes: int
    instructions: tuple[Instruction, ...]
    arena_bound: int = 0
    left: tuple[Left, ...] = ()
    arena: tuple[ArenaBuffer, ...] = ()
    tables: tuple[TableWord, ...] = ()
    conditions: tuple[Condition, ...] = ()
    setup: int = 0
    blocks: tuple[Block, ...] = ()
    texts: Texts | None = None

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Return the names of the sizes that a run reads off its inputs, from their dimensions and elements."""
        return tuple(self.sources)

    @cached_property
    def sources(self) -> Mapping[str, tuple[int, int]]:
        """Return the place of each symbol, which is the number of an input and an axis, or -1 - i for the element i."""
        sources: dict[str, tuple[int, int]] = {}
        for index, spec in enumerate(self.inputs):
            for axis, dim in enumerate(spec.shape):
                if isinstance(dim, Expression) and dim.name is not None:
                    sources.setdefault(dim.name, (index, axis))
        for index, spec in enumerate(self.inputs):
            for place, name in enumerate(spec.elements):
                if name is not None:
                    sources.setdefault(name, (index, -1 - place))
        return MappingProxyType(sources)

    @cached_property
    def found(self) -> tuple[str, ...]:
        """The names of the sizes that instructions determine, in order."""
        return tuple([call.found.symbol for call in self.instructions if call.found is not None])

    @property
    def is_symbolic(self) -> bool:
        """Whether it serves sizes that only a run shows."""
        return bool(self.symbols or self.found)

    @cached_property
    def operands(self) -> tuple[BufferSpec, ...]:
        """Return what the caller hands in, which are the inputs with texts as such."""
        if self.texts is None:
            return self.inputs
        return _with_texts(self.inputs[:-2], self.texts.inputs)

    @cached_property
    def results(self) -> tuple[BufferSpec, ...]:
        """Return what the caller gets, which are the outputs with texts as such."""
        if self.texts is None:
            return self.outputs
        count = len(self.outputs) - len(self.texts.heaps)
        return _with_texts(self.outputs[:count], [index for index, _ in self.texts.outputs])

    def walk(self) -> Iterator[Program]:
        """Yield the program and all bodies in it."""
        waiting = [self]
        for program in waiting:
            yield program
            waiting += [b for call in program.instructions if call.control is not None for b in call.control.bodies]

    @cached_property
    def grown(self) -> frozenset[int]:
        """Return the outputs whose size only a run shows; they lie in the runtime's memory, and are copied."""
        grown = {left.output for left in self.left}
        for call in self.instructions:
            if call.control is not None:
                results = call.operands[len(call.operands) - len(call.control.results) :]
                grown |= {o.index for o, nbytes in zip(results, call.control.results, strict=True) if nbytes is None}
        return frozenset(grown)

    @property
    def in_place(self) -> frozenset[tuple[int, int]]:
        """Return the inputs and outputs that may be the same memory, in pairs (caches that a run extends in place).

        Nothing else reads such an input, nothing else writes such an output, and nothing reads that before. Where sizes
        decide the shapes, it holds for runs in which both are equal.
        """
        if _EXTENDED_IN_PLACE.keys().isdisjoint([call.kernel for call in self.instructions]):
            return frozenset()
        uses = Counter((operand.space, operand.index) for call in self.instructions for operand in call.operands)
        pairs, seen = set(), set[tuple[str, int]]()
        for call in self.instructions:
            places = _EXTENDED_IN_PLACE.get(call.kernel)
            if places is not None:
                target, source = (call.operands[place] for place in places)
                whole = (target.space, source.space) == ("output", "input") and target.offset == source.offset == 0
                alone = whole and uses["input", source.index] == 1 and ("output", target.index) not in seen
                if alone and _written_once(self, target) and _alike(self, source.index, target.index):
                    pairs.add((source.index, target.index))
            seen.update((operand.space, operand.index) for operand in call.operands)
        return frozenset(pairs)

    def to_text(self) -> str:
        """Return the program for people, one kernel call per line."""
        lines = [f"program {self.name} (arena {self.arena_bytes} bytes, {len(self.constants)} constants)"]
        lines += [f"  input[{i}]  {spec}" for i, spec in enumerate(self.inputs)]
        lines += [f"  output[{i}] {spec}" for i, spec in enumerate(self.outputs)]
        width = len(str(len(self.instructions)))
        for i, call in enumerate(self.instructions):
            if i == self.setup and i:
                lines.append(f"  {'':{width}} -- the calls above run only for new sizes")
            operands = ", ".join(map(str, call.operands))
            params = " ".join(f"{name}={_number(value)}" for name, value in call.params.items())
            found = f" {call.found}" if call.found else ""
            source = f"  # {', '.join(call.source)}" if call.source else ""
            lines.append(f"  {i:>{width}} {call.kernel}({operands}) {params}{found}{source}")
            for body in call.control.bodies if call.control is not None else ():
                lines += [f"  {'':{width}} {line}" for line in body.to_text().splitlines()]
        return "\n".join(lines)


def _alike(program: Program, source: int, target: int) -> bool:
    """Tell whether an input and an output may have the same dtype and shape; if that depends on sizes, a run checks."""
    before, after = program.inputs[source], program.outputs[target]
    if before.dtype != after.dtype or len(before.shape) != len(after.shape):
        return False
    pairs = zip(before.shape, after.shape, strict=True)
    return all(a == b or isinstance(a, Expression) or isinstance(b, Expression) for a, b in pairs)


def _written_once(program: Program, target: Operand) -> bool:
    """Tell whether exactly one call writes an output."""
    writes = 0
    for call in program.instructions:
        letters = kernel_named(call.kernel, program.name).signature.lower()
        places = [operand for letter, operand in zip(letters, call.operands, strict=False) if letter == "o"]
        writes += sum((place.space, place.index) == (target.space, target.index) for place in places)
    return writes == 1


def _number(value: float | Size) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _with_texts(specs: Sequence[BufferSpec], texts: Sequence[int]) -> tuple[BufferSpec, ...]:
    return tuple([replace(spec, dtype="string") if i in texts else spec for i, spec in enumerate(specs)])


def check_decoded(program: Program) -> None:
    """Refuse two sizes of one name, unknown outputs, texts that are not spans, and heaps that are not heaps.

    Raises:
        ValueError: If there is one.
    """
    names = (*program.symbols, *program.found)
    if len(set(names)) < len(names):
        raise ValueError(f"a size is found twice: {', '.join(names)}")
    for left in program.left:
        if not 0 <= left.output < len(program.outputs):
            raise ValueError(f"there is no output {left.output}")
    _check_texts(program)


def _check_texts(program: Program) -> None:
    """Refuse texts that are not spans, and heaps that are not heaps."""
    texts = program.texts
    if texts is None:
        return
    if len(program.inputs) < 2:
        raise ValueError("there are texts but no heap")
    heap, sizes = program.inputs[-2:]
    named = len(sizes.elements) == 2 and all(name is not None for name in sizes.elements)
    if (heap.dtype, len(heap.shape), sizes.dtype, sizes.shape) != ("uint8", 1, "int64", (2,)) or not named:
        raise ValueError(f"{heap} and {sizes} are not a heap and its sizes")
    first = len(program.outputs) - len(texts.heaps)
    if texts.heaps != frozenset(range(first, len(program.outputs))):
        raise ValueError(f"heaps {sorted(texts.heaps)} of {len(program.outputs)} outputs")
    for index in texts.heaps:
        spec = program.outputs[index]
        if (spec.dtype, len(spec.shape)) != ("uint8", 1):
            raise ValueError(f"{spec} is not a heap")
    places = [(program.inputs[:-2], texts.inputs), (program.outputs[:first], [index for index, _ in texts.outputs])]
    for specs, spans in places:
        if len(set(spans)) < len(spans):
            raise ValueError(f"spans {spans} are named twice")
        for index in spans:
            if not 0 <= index < len(specs) or specs[index].dtype != SPAN or specs[index].elements:
                raise ValueError(f"{index} is not the index of spans")
