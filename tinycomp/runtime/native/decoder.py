"""Programs of records: what :func:`~.encoder.encode` has written, read again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tinycomp.errors import ArtifactError
from tinycomp.memory.reading import reading
from tinycomp.records import replace
from tinycomp.runtime.native.encoder import FORMULA_CODES, SPACE_CODES, Extent
from tinycomp.runtime.native.encoding import Reader
from tinycomp.runtime.native.library import kernel_at, kernel_named, lib
from tinycomp.runtime.native.program import (
    CONTROL_FLOW,
    ArenaBuffer,
    Array,
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
    check_decoded,
)
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Size, define, if_zero, maximum, minimum, naming, parse, product, symbol

_SPACES = {code: name for name, code in SPACE_CODES.items()}
_ARITHMETIC: dict[int, Callable[[Any, Any, Any], Size]] = {
    FORMULA_CODES["add"]: lambda a, b, _: a + b,
    FORMULA_CODES["multiply"]: lambda a, b, _: a * b,
    FORMULA_CODES["divide"]: lambda a, b, _: a // b,
    FORMULA_CODES["min"]: lambda a, b, _: minimum(a, b),
    FORMULA_CODES["max"]: lambda a, b, _: maximum(a, b),
    FORMULA_CODES["ifzero"]: if_zero,
}


def decode(records: Reader, unit: Iterator[tuple[str, list[Any]]], about: Sequence[int], constants: Sequence[Array],
           begin: int) -> Program:  # fmt: skip
    """Return the program of a unit whose first record has been read.

    Args:
        records: Where it is read from.
        unit: Yields the records that follow.
        about: The fields of the first record.
        constants: The arrays that the unit names by number.
        begin: Where its records begin.

    Raises:
        ArtifactError: If something is missing or of the wrong kind.
    """
    with reading(ArtifactError, problem="the description of a program is damaged"), naming():
        count, wanted = about
        if wanted != len(constants) or count < 1:
            raise ValueError(f"{count} programs with {len(constants)} constants")
        programs: list[_ProgramReader] = []
        for _ in range(count):
            kind, fields = next(unit, ("nothing", []))
            if kind != "program":
                raise ValueError(f"a program begins with a record {kind!r}")
            programs.append(_ProgramReader(programs, *fields))
            for kind, fields in unit:
                try:
                    programs[-1].read(kind, *fields)
                except (IndexError, KeyError, TypeError, ZeroDivisionError) as error:
                    raise ValueError(f"a record {kind!r} of {fields[:3]}: {error}") from error
                if kind == "end":
                    break
        program = programs[-1].program(tuple(constants))
        program.__dict__["encoded"] = records.data[begin : records.at]
        return program


class _ProgramReader:
    """Read the records of one program.

    Args:
        bodies: The programs of the unit that come before.
        name: A field of its first record, like all others.
        inputs: Likewise.
        outputs: Likewise.
        symbols: Likewise.
        shown: Likewise.
        sources: Likewise.
    """

    def __init__(
        self, bodies: Sequence[_ProgramReader], name: str, inputs: int, outputs: int, symbols: Sequence[str],
        shown: int, sources: Sequence[int],
    ) -> None:  # fmt: skip
        self._bodies, self._number = bodies, len(bodies)
        self._name, self._shown = name, shown
        self._symbols, self._sources = symbols, sources
        self._values: list[Size] = [symbol(each) for each in symbols]
        self._specs: dict[int, list[BufferSpec | None]] = {
            lib.TC_INPUT: [None] * inputs, lib.TC_OUTPUT: [None] * outputs,
        }  # fmt: skip
        self._calls: list[Instruction] = []
        self._control: list[Any] | None = None
        self._parts: dict[str, list[Any]] = {}

    def read(self, kind: str, *fields: Any) -> None:
        """Read one record.

        Raises:
            ValueError: If it does not belong here.
        """
        if self._control is not None and kind not in ("body", "growth"):
            self._take_control()
        if kind in _PARTS:
            part, make = _PARTS[kind]
            self._parts.setdefault(part, []).append(make(self, *fields))
        elif (read := getattr(self, f"_read_{kind}", None)) is not None:
            read(*fields)
        else:
            raise ValueError(f"a record {kind!r} in a program")

    def value(self, number: int) -> Size:
        """Return the size that a value is."""
        if not 0 <= number < len(self._values):
            raise ValueError(f"there is no size {number}")
        return self._values[number]

    def _extent(self, extent: Extent) -> Size | None:
        value, number = extent
        return self.value(value) if value >= 0 else None if number < 0 else number

    def _text(self, text: str) -> Size:
        return int(text) if text.isdecimal() else parse(text)

    def _read_named(self, value: int, name: str, text: str) -> None:
        named = define(name, self.value(value) if value >= 0 else parse(text))
        if value >= 0:
            self._values[value] = named

    def _read_formula(self, operation: int, *operands: int) -> None:
        if operation == FORMULA_CODES["constant"]:
            self._values.append(operands[0])
            return
        values = [self.value(number) for number in operands]
        self._values.append(_ARITHMETIC[operation](*values))

    def _read_buffer(
        self, space: int, index: int, _: int, name: str, dtype: str, dims: Sequence[Extent], unknown: Sequence[str],
        elements: Sequence[int],
    ) -> None:  # fmt: skip
        texts = iter(unknown)
        sizes = [self._extent(dim) for dim in dims]
        shape = tuple([self._text(next(texts)) if size is None else size for size in sizes])
        names = tuple([None if number < 0 else self._symbols[number] for number in elements])
        kind = TensorSpec(name, dtype, ()).numpy_dtype
        are_sizes = not names or (dtype in ("int32", "int64") and product(shape) == len(names))
        if kind is None or kind.hasobject or not are_sizes:
            raise ValueError(f"{name!r} is not a buffer, or has no {len(names)} elements that could be sizes")
        if self._specs[space][index] is not None:
            raise ValueError(f"the buffer {name!r} is described twice")
        self._specs[space][index] = BufferSpec(name, dtype, shape, names)

    def _read_call(
        self, kernel: int, operands: Sequence[tuple[int, int, int]], params: bytes, macs: str, nodes: Sequence[str]
    ) -> None:
        named = kernel_at(kernel)
        self._calls.append(
            Instruction(named.name, _operands(operands), named.read_params(params), tuple(nodes), self._text(macs))
        )

    def _change(self, **fields: Any) -> None:
        self._calls[-1] = replace(self._calls[-1], **fields)

    def _read_parameter(self, byte: int, value: int) -> None:
        call = self._calls[-1]
        names = {offset: name for name, offset in kernel_named(call.kernel).offsets.items()}
        self._change(params={**call.params, names[byte]: self.value(value)})

    def _read_offset(self, operand: int, value: int) -> None:
        operands = [*self._calls[-1].operands]
        operands[operand] = replace(operands[operand], offset=self.value(value))
        self._change(operands=tuple(operands))

    def _read_finds(self, operand: int, number: int, most: int) -> None:
        if not 0 <= operand < len(self._calls[-1].operands):
            raise ValueError(f"a size {self.value(number)} in operand {operand}")
        upper = None if most == -1 else self.value(most)
        self._change(found=Found(self._symbols[number], operand, upper))

    def _read_control(self, *fields: Any) -> None:
        kind, carried, captured, results, operands, nbytes, shapes, macs, nodes = fields
        wanted = 1 + kind + carried + captured + results
        if kind >= len(CONTROL_FLOW) or not carried <= results or len(operands) != wanted:
            raise ValueError(f"control flow of {len(operands)} operands")
        self._calls.append(Instruction(CONTROL_FLOW[kind], _operands(operands), {}, tuple(nodes), self._text(macs)))
        sizes = tuple([self._extent(extent) for extent in nbytes[len(nbytes) - results :]])
        self._control = [carried, captured, sizes, [self._text(each) for each in shapes], []]

    def _read_body(self, number: int, *_: Any) -> None:
        if self._control is None or not number < self._number:
            raise ValueError(f"there is no body {number}")
        self._control[-1].append(self._bodies[number].program(()))

    def _read_growth(self, *_: Any) -> None:
        if self._control is None:
            raise ValueError("a growth of no result")

    def _take_control(self) -> None:
        """Give the last instruction its bodies."""
        assert self._control is not None
        carried, captured, results, dims, bodies = self._control
        self._control = None
        is_loop = self._calls[-1].kernel == "loop"
        if len(bodies) != (1 if is_loop else 2):
            raise ValueError(f"control flow with {len(bodies)} bodies")
        ranks = [len(spec.shape) for spec in bodies[0].inputs[2 * is_loop :]]
        if len(ranks) != carried + captured or sum(ranks) != len(dims):
            raise ValueError(f"operands that do not fit the body {bodies[0].name}")
        starts = [sum(ranks[:i]) for i in range(len(ranks) + 1)]
        shapes = tuple([tuple(dims[begin:end]) for begin, end in itertools.pairwise(starts)])
        for body in bodies:
            if [len(spec.shape) for spec in body.inputs[2 * is_loop :]] != ranks:
                raise ValueError(f"operands that do not fit the body {body.name}")
            if len(body.outputs) != len(results) + is_loop or body.grown:
                raise ValueError(f"results that do not fit the body {body.name}")
        self._change(control=Control(tuple(bodies), carried, shapes, results))

    def condition(self, value: int, text: str, node: str) -> Condition:
        """Return a condition, which is a formula as well."""
        self._values.append(0)
        return Condition(self.value(value), text, node)

    def program(self, constants: tuple[Array, ...]) -> Program:
        """Return the program.

        Raises:
            ValueError: If something is missing or does not fit.
        """
        inputs, outputs = self._specs.values()
        if None in inputs or None in outputs:
            raise ValueError("a buffer is not described")
        (arena, bound), (setup,) = self._parts.get("end", [(0, 0)])[-1], self._parts.get("setup", [0])[-1:]
        (texts,) = self._parts.get("texts", [None])[-1:]
        parts = {name: tuple(self._parts.get(name, ())) for name in ("left", "arena", "tables", "conditions", "blocks")}
        program = Program(
            name=self._name, inputs=tuple(filter(None, inputs)), outputs=tuple(filter(None, outputs)),
            constants=constants, arena_bytes=arena, instructions=tuple(self._calls), arena_bound=bound, setup=setup,
            texts=texts, **parts,
        )  # fmt: skip
        check_decoded(program)
        said = self._symbols[: self._shown], [*zip(self._sources[::2], self._sources[1::2], strict=True)]
        if said != ([*program.symbols], [*program.sources.values()]):
            raise ValueError("sizes are read off other places than the inputs show")
        return program


def _operands(places: Iterable[tuple[int, int, int]]) -> tuple[Operand, ...]:
    return tuple([Operand(_SPACES[space], index, offset) for space, index, offset in places])


_PARTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "word": ("tables", lambda r, constant, word, value: TableWord(constant, word, r.value(value))),
    "piece": ("arena", lambda r, value, above: ArenaBuffer(r.value(value), tuple(above))),
    "leaves": ("left", lambda _, output, place, *__: Left(output, *_operands([place]))),
    "condition": ("conditions", _ProgramReader.condition),
    "block": ("blocks", lambda _, offset, size, first, last, over: Block(
        offset, size, first, last, None if over < 0 else over
    )),
    "texts": ("texts", lambda _, inputs, outputs, prefix: Texts(
        tuple(inputs), tuple(zip(outputs[::2], outputs[1::2], strict=True)), prefix
    )),
    "setup": ("setup", lambda _, instructions: instructions),
    "end": ("end", lambda _, arena, bound: (arena, bound)),
    "typical": ("typical", lambda _, sizes: sizes),
}  # fmt: skip
"""Records that become part of a program by themselves: of which field of it, and how."""
