"""Emit a program: buffers with aliases, kernel calls, and at the end one planned arena.

The dataclasses that code generation creates by the thousand are not frozen, because creating them would take three
times as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.layout import memory_order, strides
from tinycomp.ir.types import TensorType, bits, numpy_dtype, tensor
from tinycomp.lazy import cached_property
from tinycomp.memory.planner import Arena, Lifetime, placed_above, plan_arena, plan_tied
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.native.program import (
    ABSENT,
    SPAN,
    ArenaBuffer,
    Block,
    BufferSpec,
    Condition,
    Control,
    Found,
    Instruction,
    Left,
    Operand,
    Program,
    TableWord,
    Texts,
)
from tinycomp.symbolic import UNLIMITED, Expression, Size, Span, has_elements, product, span, typical
from tinycomp.target import Decline
from tinycomp.targets.c.codegen.texts import (
    DTYPE,
    KnownTexts,
    has_texts,
    heap_bytes,
    heap_makers,
    heap_specs,
    incoming_bytes,
    makes_heap,
)
from tinycomp.targets.c.options import Settings
from tinycomp.targets.common.checks import sized_type

Params = Mapping[str, float | Size]

OWN_BLOCKS: Params = MappingProxyType({"block_rows": 0, "panel_order": 0})
"""Parameters of a product that leave the shape of its blocks to the kernel, on the machine where it runs."""


MAX_RANK = 8
"""The most dimensions that the runtime's strided kernels take."""


@dataclass(eq=False)
class Buffer:
    """A piece of memory that some kernel call writes or reads.

    Attributes:
        nbytes: Its size.
        space: Where it lives; ``"arena"`` buffers get an offset at the end.
        index: The number of the input, output or constant.
        array: The contents of a constant; None for all other buffers.
    """

    nbytes: Size
    space: str = "arena"
    index: int = 0
    array: np.ndarray | None = None


@dataclass(eq=False, slots=True)
class View:
    """A position inside a buffer.

    Attributes:
        buffer: The buffer.
        offset: Bytes from its start.
    """

    buffer: Buffer
    offset: Size = 0

    def at(self, offset: Size) -> View:
        """Return the place ``offset`` bytes further on."""
        return View(self.buffer, self.offset + offset)

    def is_at(self, other: View) -> bool:
        """Tell whether both are the same place."""
        return self.buffer is other.buffer and self.offset == other.offset


@dataclass(eq=False, slots=True)
class Strided:
    """A tensor in memory with gaps or in another order.

    Attributes:
        view: The place of the first element.
        strides: The distance, in elements, between neighbours along each logical dimension; never negative.
        repeated: Whether some strides are 0, or may be in a run, as one element stands for many.
    """

    view: View
    strides: tuple[Size, ...]
    repeated: bool = False


@dataclass(slots=True)
class Call:
    """A kernel call whose operands have no offsets yet, or control flow; see :class:`Instruction`."""

    kernel: str
    operands: tuple[View | None, ...]
    params: Params
    sources: tuple[str, ...]
    macs: Size = 0
    found: Found | None = None
    control: Control | None = None


@dataclass(frozen=True, eq=False)
class Heap:
    """A heap that holds the bytes of texts.

    Attributes:
        view: Its place.
        nbytes: Its size.
    """

    view: View
    nbytes: Size


Over = Mapping[Buffer, tuple[Buffer, int]]
"""For a buffer that overlaps another one: that buffer, and how many bytes earlier it begins."""
Rewrite = Callable[[Sequence[Call], Callable[[np.ndarray], View]], tuple[list[Call], Over]]
"""Rewrites the calls of a program, and returns which buffers may overlap; the second argument stores a constant."""


@dataclass
class Emitter:
    """Collect the kernel calls of one region.

    Args:
        graph: The region's graph: every dimension is a number or an expression, and layouts are assigned.
        settings: The options of the compilation.
        most: The upper bounds, by symbol, of sizes that a run determines; None for an element, which may be any number.
        known: The constant texts of the program.
        derived: Derived forms of values that several calls share, by a key of the caller's choice.
        lower_body: Makes the program of a body, given its graph and a name.
        outer: For a body, the emitter of the program around it, which holds all constants.
    """

    graph: Graph
    settings: Settings = field(default_factory=Settings)
    most: Mapping[str, Size | None] = field(default_factory=dict)
    lower_body: Callable[[Emitter, Graph, str], Program] | None = None
    outer: Emitter | None = None
    calls: list[Call] = field(default_factory=list)
    demands: list[Condition] = field(default_factory=list)
    derived: dict[tuple[object, ...], tuple[View, ...]] = field(default_factory=dict)
    _views: dict[Value, View] = field(default_factory=dict)
    _constants: dict[int, tuple[Buffer, np.ndarray]] = field(default_factory=dict)
    _postponed: dict[Value, tuple[Strided, Callable[[], None]]] = field(default_factory=dict)
    _unwritten: dict[Value, Callable[[], None]] = field(default_factory=dict)
    _tables: dict[Buffer, list[tuple[int, Expression]]] = field(default_factory=dict)
    _heaps: dict[Node | None, Heap] = field(default_factory=dict)
    known: KnownTexts = field(default_factory=KnownTexts)

    def __post_init__(self) -> None:
        if self.outer is not None:
            self._constants = self.outer._constants
        elif has_texts(self.graph):
            self.known = KnownTexts.of(self.graph)
            size = incoming_bytes(self.known)
            self._heaps[None] = Heap(View(Buffer(size, "input", len(self.graph.inputs))), size)
        for index, value in enumerate(self.graph.inputs):
            self._views[value] = View(Buffer(nbytes(tensor(value.type)), "input", index))

    def view(self, value: Value) -> View:
        """Return the place of a value; on first use, place it, after the results of Concat that contain it."""
        found = self._views.get(value)
        if found is not None:
            return found
        placed = [value]
        while placed[-1] not in self._views and (concat := self._concat(placed[-1])) is not None:
            placed.append(concat.output)
        for each in reversed(placed):
            if each not in self._views:
                self._show(each)
        return self._views[value]

    def _show(self, value: Value) -> None:
        """Place a value, and emit the calls that were postponed until now."""
        if value.const is not None:
            is_text = value.dtype == DTYPE
            self._views[value] = self.constant(self.known.spans(value.const) if is_text else in_memory_order(value))
            return
        self._views[value] = self._place(value)
        if value in self._postponed:
            _, move = self._postponed.pop(value)
            move()
        elif value in self._unwritten:
            self._unwritten.pop(value)()

    def _place(self, value: Value) -> View:
        """Return the slice of a Concat's result if the value can be computed there as it is, else a new buffer."""
        part = self.joined(value)
        if part is not None and lies_as(tensor(value.type), part.strides):
            return part.view
        return View(Buffer(nbytes(tensor(value.type))))

    def joined(self, value: Value) -> Strided | None:
        """Return the slice of a Concat's result that ``value`` becomes, if it may be computed there."""
        concat = self._concat(value)
        return None if concat is None else self._slice(value, concat)

    def _concat(self, value: Value) -> Node | None:
        """Return the Concat in whose result ``value`` may be computed."""
        if value.const is not None:
            return None
        for user in value.users:
            if user.op == "Concat" and user.domain == "":
                type_ = tensor(value.type)
                if tensor(user.output.type).layout == type_.layout:
                    return None if self.graph.is_output(value) or nbytes(type_) == 0 else user
        return None

    def _slice(self, value: Value, concat: Node) -> Strided | None:
        whole = tensor(concat.output.type)
        steps = strides(whole)
        axis = int(concat.attrs["axis"]) % len(steps)
        before = concat.inputs[: concat.inputs.index(value)]
        start: Size = 0
        for part in before:
            start = start + (0 if part is None else sized_type(part)[1][axis])
        if any(map(self._is_found, (start, *steps))):
            return None  # it may be computed before its place is known
        return Strided(self.view(concat.output).at(start * steps[axis] * numpy_dtype(whole.dtype).itemsize), steps)

    def postpone(self, value: Value, source: Strided, move: Callable[[], None]) -> None:
        """Leave the elements of ``value`` where they are until a call needs them in the value's own memory order.

        Args:
            value: The result of an operator that only moves data.
            source: The current place of its elements.
            move: Emits the copy into ``view(value)``, which has been placed by then.
        """
        assert value not in self._views, value
        self._postponed[value] = (source, move)

    def postpone_writing(self, value: Value, write: Callable[[], None]) -> None:
        """Let ``write`` emit the calls that compute a value as soon as another call reads it, if one ever does."""
        assert value not in self._views, value
        self._unwritten[value] = write

    def strided(self, value: Value, adjacent: bool = True, repeated: bool = False) -> Strided:
        """Return the place and strides of a value, for kernels that take strides.

        Args:
            value: The value; it is moved into its own memory order if the kernel could not read it where it is.
            adjacent: Whether the elements along the last dimension must lie side by side.
            repeated: Whether one element may stand for many.
        """
        if value in self._postponed:
            source, _ = self._postponed[value]
            _, shape = sized_type(value)
            is_adjacent = not shape or shape[-1] == 1 or source.strides[-1] == 1
            if (is_adjacent or not adjacent) and (repeated or not source.repeated):
                return source
        return Strided(self.view(value), strides(tensor(value.type)))

    def where(self, value: Value) -> Strided:
        """Return where the elements of a value are, in any order, one of which may stand for many."""
        return self.strided(value, adjacent=False, repeated=True)

    def repeats(self, value: Value) -> bool:
        """Tell whether a value has not been written out, and one of its elements stands for many."""
        return value in self._postponed and self._postponed[value][0].repeated

    def is_placed(self, value: Value) -> bool:
        """Tell whether ``value`` has a place already."""
        return value in self._views

    def constant(self, array: np.ndarray) -> View:
        """Return the place of a constant array; the same array is stored once."""
        key = id(array)
        if key not in self._constants:
            stored = np.ascontiguousarray(array)
            self._constants[key] = (Buffer(stored.nbytes, "constant", len(self._constants), stored), array)
        return View(self._constants[key][0])

    def table(self, words: Sequence[Size | np.int64]) -> View:
        """Return the place of int64 words for a kernel to read; every run fills in those that are expressions.

        Raises:
            Decline: If a word has more than 64 bits.
        """
        try:
            array = np.array([0 if isinstance(word, Expression) else word for word in words], np.int64)
        except OverflowError:
            raise Decline("a size has more than 64 bits") from None
        place = self.constant(array)
        self._tables[place.buffer] = [(i, word) for i, word in enumerate(words) if isinstance(word, Expression)]
        return place

    def scratch(self, size: Size) -> View:
        """Return a new arena buffer of ``size`` bytes."""
        return View(Buffer(size))

    def heap(self, value: Value) -> Heap:
        """Return the heap of a value's texts; on first use, create the heap of the node that makes new texts."""
        maker = next(iter(heap_makers(value)), None)
        if maker not in self._heaps:
            assert maker is not None, value
            assert makes_heap(maker), value
            size = self.most_of(heap_bytes(self.known, maker.output))
            self._heaps[maker] = Heap(self.scratch(size), size)
        return self._heaps[maker]

    def most_of(self, size: Size) -> Size:
        """Return an upper bound of a size, given the upper bounds of the sizes that a run determines."""
        return self._room(Buffer(size))

    def alias(self, value: Value, of: View) -> None:
        """Give ``value`` the place ``of``."""
        assert value not in self._views, value
        self._views[value] = of

    def call(self, kernel: str, operands: Sequence[Value | View | None], params: Params, *nodes: Node) -> None:
        """Append a kernel call on behalf of ``nodes``; operands are in the order of the kernel's signature."""
        views = tuple([self.view(o) if isinstance(o, Value) else o for o in operands])
        sources = tuple(dict.fromkeys([name for node in nodes for name in node.sources]))
        self.calls.append(Call(kernel, views, dict(params), sources))

    def body(self, graph: Graph, name: str) -> Program:
        """Return the program of a body of control flow in this program."""
        assert self.lower_body is not None
        return self.lower_body(self, graph, name)

    def control(self, kind: str, operands: Sequence[Value | View | None], control: Control, node: Node) -> None:
        """Append control flow on behalf of a node; operands are in the order of :class:`Control`."""
        views = tuple([self.view(o) if isinstance(o, Value) else o for o in operands])
        self.calls.append(Call(kind, views, {}, tuple(node.sources), control=control))

    def grown(self, value: Value) -> View:
        """Place a result of the region whose size is known only after a run: an output, in memory of the runtime."""
        place = View(Buffer(nbytes(tensor(value.type)), "output", self.graph.outputs.index(value)))
        self.alias(value, place)
        return place

    def finds(self, size: Size, operand: int) -> None:
        """State that the last call determines a size, and writes it as an int64 to one of its operands."""
        assert isinstance(size, Expression), size
        assert size.name is not None, size
        self.calls[-1].found = Found(size.name, operand, self.most[size.name])

    def demand(self, value: Size, text: str, node: Node) -> None:
        """State that a number must be 0 at run time, with the message for ``node`` if it is not."""
        if isinstance(value, Expression):
            self.demands.append(Condition(value, text, f"{node.label} ({node.qualified_op})"))

    def count_macs(self, macs: Size) -> None:
        """Credit the last call with multiply-accumulate operations."""
        self.calls[-1].macs = macs

    def finish(self, name: str, rewrite: Rewrite | None = None) -> Program:
        """Return the program with its buffers placed in one arena.

        Args:
            name: The name of the program.
            rewrite: Replaces the calls by equivalent ones; used only if all sizes are numbers.
        """
        left = self._place_outputs()
        self._postponed.clear()  # the functions refer back to the emitter, which would keep it alive
        self._unwritten.clear()
        inputs = tuple(_input_spec(v) for v in self.graph.inputs)
        texts, heaps = self._texts()
        inputs += heap_specs(self.known) if texts is not None else ()
        shown = any(spec.elements or any(isinstance(dim, Expression) for dim in spec.shape) for spec in inputs)
        is_symbolic = bool(self.most) or shown
        setup = self._move_setup() if is_symbolic else 0
        over: Over = {}
        if rewrite is not None and not is_symbolic:
            self.calls, over = rewrite(self.calls, self.constant)
        lives = self._lifetimes(setup, left.values())
        numbers = {buffer: number for number, buffer in enumerate(lives)}
        tied = {numbers[buffer]: (numbers[other], ahead) for buffer, (other, ahead) in over.items()}
        arena = plan_arena(list(lives.values())) if rewrite is None else plan_tied(list(lives.values()), tied)
        places = _symbolic_places(lives) if is_symbolic else _static_places(lives, arena)
        instructions = tuple([_instruction(call, places) for call in self.calls])
        arrays = () if self.outer is not None else self._constants.values()
        constants = tuple([np.ascontiguousarray(array) for _, array in arrays])
        outputs = tuple(_spec(n, v) for n, v in zip(self.graph.output_names, self.graph.outputs, strict=True)) + heaps
        if not is_symbolic:
            blocks = tuple([
                Block(at, life.size, life.first, life.last, tied[number][0] if number in tied else None)
                for number, (at, life) in enumerate(zip(arena.offsets, lives.values(), strict=True))
            ])  # fmt: skip
            return Program(
                name, inputs, outputs, constants, arena.size, instructions, arena.lower_bound, blocks=blocks
            )  # fmt: skip
        above = placed_above(list(lives.values()), arena.offsets)
        return Program(
            name, inputs, outputs, constants, 0, instructions,
            left=tuple([Left(index, _operand(view, places)) for index, view in left.items()]),
            arena=tuple([ArenaBuffer(self._room(b), below) for b, below in zip(lives, above, strict=True)]),
            tables=self._table_words(), setup=setup, texts=texts,
        )  # fmt: skip

    def _texts(self) -> tuple[Texts | None, tuple[BufferSpec, ...]]:
        """Return which inputs and outputs are texts, and the additional outputs for their heaps."""
        if None not in self._heaps:
            return None, ()
        spans: list[tuple[int, int]] = []
        heaps: dict[Buffer, BufferSpec] = {}
        for index, value in enumerate(self.graph.outputs):
            if value.dtype != DTYPE:
                continue
            heap = self.heap(value)
            buffer, name = heap.view.buffer, f"{self.graph.output_names[index]}: texts"
            if buffer.space == "arena":
                buffer.space, buffer.index = "output", len(self.graph.outputs) + len(heaps)
                heaps[buffer] = BufferSpec(name, "uint8", (heap.nbytes,))
            spans.append((index, -1 if buffer.space == "input" else buffer.index))
        inputs = [index for index, value in enumerate(self.graph.inputs) if value.dtype == DTYPE]
        return Texts(tuple(inputs), tuple(spans), self.known.prefix), tuple(heaps.values())

    def _table_words(self) -> tuple[TableWord, ...]:
        return tuple([TableWord(table.index, i, word) for table, words in self._tables.items() for i, word in words])

    def _place_outputs(self) -> dict[int, View]:
        """Let results be computed directly in the outputs where each has a buffer of its own; copy the others.

        Returns:
            The results, by index, that stay in the arena because a run determines their sizes.
        """
        left: dict[int, View] = {}
        for index, value in enumerate(self.graph.outputs):
            view, size = self.view(value), nbytes(tensor(value.type))
            if any(map(self._is_found, (size, *(value.sizes or ())))):
                if view.buffer.space != "arena" or isinstance(view.offset, Expression):  # who reads it knows a number
                    view, source = self.scratch(size), view
                    self._copy_bytes(view, source, size)
                left[index] = view
            elif view.buffer.space == "arena" and view.offset == 0 and view.buffer.nbytes == size:
                view.buffer.space, view.buffer.index = "output", index
            elif (view.buffer.space, view.buffer.index, view.offset) == ("output", index, 0):
                continue  # written there by control flow
            elif size != 0:
                self._copy_bytes(View(Buffer(size, "output", index)), view, size)
        return left

    @cached_property
    def _limits(self) -> dict[str, Span]:
        """What is known of the sizes that a run determines; nothing of elements."""
        return {name: UNLIMITED if most is None else (0, most) for name, most in self.most.items()}

    def _is_found(self, size: Size) -> bool:
        """Tell whether a size depends on sizes that a run determines."""
        return isinstance(size, Expression) and not size.symbols.isdisjoint(self.most)

    def _room(self, buffer: Buffer) -> Size:
        """Return the bytes to reserve for a buffer, whatever sizes a run determines.

        Raises:
            Decline: If there is no upper bound.
        """
        room: Size | None = buffer.nbytes
        while room is not None and self._is_found(room):  # upper bounds may depend on others that a run determines
            room = span(room, self._limits)[1]
        if room is None:
            raise Decline(f"there is no limit to the {buffer.nbytes} bytes of a buffer")
        return room

    def _copy_bytes(self, target: View, source: View, size: Size) -> None:
        params = {"element_size": 1, **nd_params((size,), to_stride=(1,), from_stride=(1,))}
        self.calls.append(Call("copy", (target, source), params, ()))

    def _move_setup(self) -> int:
        """Move the calls that depend on sizes alone to the front, and return their number."""
        setup = set(range(len(self.calls)))
        foreign: set[Buffer] = set()  # the buffers that other calls write
        before = -1
        while len(setup) != before:
            before = len(setup)
            for index in range(len(self.calls)):
                call = self.calls[index]
                places = {view.buffer for view in call.operands if view is not None}
                if index in setup and (
                    call.control is not None
                    or call.kernel == "random_key"  # every run needs a new one
                    or self._follows_found(call)
                    or not places.isdisjoint(foreign)
                    or any(place.space in ("input", "output") for place in places)
                ):
                    setup.remove(index)
                if index not in setup:
                    foreign |= {buffer for buffer in _written(call) if buffer.space == "arena"}
        others = [call for index, call in enumerate(self.calls) if index not in setup]
        self.calls = [*[self.calls[index] for index in sorted(setup)], *others]
        return len(setup)

    def _follows_found(self, call: Call) -> bool:
        """Tell whether a call depends on sizes that a run determines, or determines one itself."""
        if not self.most:
            return False
        views = [view for view in call.operands if view is not None]
        words = [word for view in views for _, word in self._tables.get(view.buffer, ())]
        parts = [*call.params.values(), *[view.offset for view in views], *words]
        return call.found is not None or any(isinstance(p, Expression) and self._is_found(p) for p in parts)

    def _lifetimes(self, setup: int, left: Iterable[View]) -> dict[Buffer, Lifetime]:
        """Return the lifetime of each buffer of the arena.

        Args:
            setup: How many of the first calls run only for new sizes; every run reads their results.
            left: Places that are read after a run.
        """
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for index, call in enumerate(self.calls):
            for view in call.operands:
                if view is not None and view.buffer.space == "arena":
                    first.setdefault(view.buffer, index)
                    is_kept = first[view.buffer] < setup <= index
                    last[view.buffer] = len(self.calls) if is_kept else index
        last |= {view.buffer: len(self.calls) for view in left}
        return {b: Lifetime(typical(self._room(b)), first[b], last[b]) for b in first}


def _written(call: Call) -> list[Buffer]:
    """Return the buffers that a call writes; for control flow, all that it touches."""
    letters = "o" * len(call.operands) if call.control is not None else kernel_named(call.kernel).signature.lower()
    return [view.buffer for letter, view in zip(letters, call.operands, strict=True) if letter == "o" and view]


def _static_places(lives: Mapping[Buffer, Lifetime], arena: Arena) -> dict[Buffer, tuple[int, int]]:
    """Return index and first byte of every buffer in an arena that is one piece of memory."""
    return {buffer: (0, offset) for buffer, offset in zip(lives, arena.offsets, strict=True)}


def _symbolic_places(lives: Mapping[Buffer, Lifetime]) -> dict[Buffer, tuple[int, int]]:
    """Return index and first byte of every buffer in an arena that is laid out at run time."""
    return {buffer: (index, 0) for index, buffer in enumerate(lives)}


def nbytes(type_: TensorType) -> Size:
    """Return the bytes of a tensor without unknown dimensions; an element takes at least one whole byte."""
    assert type_.sizes is not None, type_
    return product(type_.sizes) * max(1, bits(type_.dtype) // 8)


def lies_as(type_: TensorType, steps: Sequence[Size]) -> bool:
    """Tell whether elements with strides ``steps`` lie in memory like those of a tensor of this type."""
    assert type_.sizes is not None, type_
    return same_steps(type_.sizes, steps, strides(type_))


def same_steps(shape: Sequence[Size], a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Tell whether two sets of strides are equivalent for a shape; those along sizes of 1 do not matter."""
    return all(n == 1 or x == y for n, x, y in zip(shape, a, b, strict=True))


def in_memory_order(value: Value) -> np.ndarray:
    """Return a constant's elements in the order of its layout."""
    assert value.const is not None
    layout = tensor(value.type).layout
    return value.const.transpose(memory_order(layout, value.const.ndim)) if layout else value.const


_Places = Mapping[Buffer, tuple[int, int]]


def _operand(view: View | None, places: _Places) -> Operand:
    if view is None:
        return ABSENT
    buffer = view.buffer
    index, start = places[buffer] if buffer.space == "arena" else (buffer.index, 0)
    return Operand(buffer.space, index, start + view.offset)


def _instruction(call: Call, places: _Places) -> Instruction:
    operands = tuple([_operand(view, places) for view in call.operands])
    return Instruction(call.kernel, operands, call.params, call.sources, call.macs, call.found, call.control)


def _spec(name: str, value: Value) -> BufferSpec:
    type_, shape = sized_type(value)
    return BufferSpec(name, SPAN if type_.dtype == DTYPE else type_.dtype, shape)


def _input_spec(value: Value) -> BufferSpec:
    spec = _spec(value.name, value)
    if not has_elements(*(value.contents or ())):
        return spec
    names = [size.name if isinstance(size, Expression) else None for size in value.contents or ()]
    return dataclasses.replace(spec, elements=tuple(names))


def merged_dims(sizes: Sequence[Size], *steps: Sequence[Size]) -> list[list[Size]]:
    """Return size and strides of every dimension, merging neighbours that are contiguous in all operands."""
    merged: list[list[Size]] = []
    for size, *step in zip(sizes, *steps, strict=True):
        if size == 1:
            continue
        if merged and all(outer == inner * size for outer, inner in zip(merged[-1][1:], step, strict=True)):
            merged[-1] = [merged[-1][0] * size, *step]
        else:
            merged.append([size, *step])
    return merged


def nd_params(sizes: Sequence[Size], **steps: Sequence[Size]) -> dict[str, float | Size]:
    """Return the parameters of the strided kernels: sizes and, by operand, element strides; slowest dimension first.

    Neighbouring dimensions that are contiguous in every operand are merged, and dimensions of size 1 are dropped.

    >>> params = nd_params((2, 3, 4), a_stride=(12, 4, 1), b_stride=(4, 0, 1))
    >>> [params[f"size{i}"] for i in (5, 6, 7)], [params[f"a_stride{i}"] for i in (5, 6, 7)]
    ([2, 3, 4], [12, 4, 1])
    """
    merged = merged_dims(sizes, *steps.values())
    columns = [*zip(*merged, strict=True)] if merged else [()] * (1 + len(steps))
    params = eight("size", columns[0], 1)
    for name, column in zip(steps, columns[1:], strict=True):
        params |= eight(name, column, 0)
    return params


def eight(name: str, values: Sequence[Size], missing: int) -> dict[str, float | Size]:
    """Name up to eight values as parameters, innermost dimension last; ``missing`` fills up the outer dimensions.

    >>> [n for n in eight("size", (5, 6), 1).values()]
    [1, 1, 1, 1, 1, 1, 5, 6]
    """
    padding = MAX_RANK - len(values)
    assert padding >= 0, values
    return {f"{name}{i}": n for i, n in enumerate([*[missing] * padding, *values])}
