"""Programs as records (:mod:`.encoding`), which the C runtime reads, and files hold; :mod:`.decoder` reads them.

A unit is a program with the bodies of its control flow, each of them before the program that runs it. Sizes are
numbers, or numbers of values: the symbols of the program, and then one value per formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinycomp.errors import TargetError, did_you_mean
from tinycomp.records import replace
from tinycomp.runtime.native.encoding import Writer
from tinycomp.runtime.native.library import Kernel, codes, ffi, kernel_named, lib
from tinycomp.runtime.native.program import (
    CONTROL_FLOW,
    SPACES,
    Array,
    Control,
    Instruction,
    Operand,
    Program,
)
from tinycomp.runtime.spec import array_dtype
from tinycomp.symbolic import (
    Expression,
    Formulas,
    Size,
    definitions,
    expected_sizes,
    expecting,
    maximum,
    naming,
    product,
    readable,
    substitute,
    symbol,
    typical,
)

Extent = tuple[int, int]
"""A size: the number of a value, or -1 and the size itself; (-1, -1) for one that is not known."""
_UNKNOWN: Extent = (-1, -1)

SPACE_CODES = {name: getattr(lib, f"TC_{name.upper()}") for name in SPACES}
FORMULA_CODES = {name.lower(): code for name, code in codes("tc_formula_operation", "TC_FORMULA_").items()}
FORMULA_CODES["ifzero"] = FORMULA_CODES.pop("if_zero")


def encoded(program: Program) -> bytes:
    """Return the records of a program, which are made once.

    Raises:
        TargetError: If the program is not valid; the message names the instruction.
    """
    known: bytes | None = program.__dict__.get("encoded")
    return program.__dict__.setdefault("encoded", encode(program)) if known is None else known


def with_constants(program: Program, constants: Sequence[Array]) -> Program:
    """Return a program with other arrays of the same contents."""
    changed = replace(program, constants=tuple(constants))
    if "encoded" in program.__dict__:
        changed.__dict__["encoded"] = program.__dict__["encoded"]
    return changed


def encode(program: Program) -> bytes:
    """Return the records of a program, made anew.

    Raises:
        TargetError: If the program is not valid; the message names the instruction.
    """
    unit = _Unit()
    unit.add(program)
    whole = Writer()
    whole.add("unit", len(unit.programs), len(program.constants))
    for each in unit.programs:
        whole.words.extend(each.write.words)
    return whole.to_bytes()


class _Unit:
    """Collect the records of programs, bodies first."""

    def __init__(self) -> None:
        self.programs: list[_ProgramWriter] = []

    def add(self, program: Program, *, is_body: bool = False) -> _ProgramWriter:
        written = _ProgramWriter(self, program)
        try:
            written.all(is_body)
        except OverflowError as error:
            raise TargetError("a number of the program does not fit", where=program.name, found=str(error)) from None
        written.number = len(self.programs)
        self.programs.append(written)
        return written


class _ProgramWriter:
    """Write the records of one program.

    Args:
        unit: Takes the bodies of its control flow.
        program: The program.

    Attributes:
        write: Has the records.
        number: The place of the program in its unit.
    """

    def __init__(self, unit: _Unit, program: Program) -> None:
        self.write, self.number = Writer(), -1
        self._unit, self.program = unit, program
        self._formulas = Formulas((*program.symbols, *program.found))
        self._told = 0
        self._named: set[str] = set()

    def value(self, size: Size) -> int:
        """Return the number of the value of a size.

        Raises:
            TargetError: If it depends on something else than sizes of inputs, or is too deeply nested.
        """
        formulas = self._formulas
        try:
            number = formulas.add(size)
        except KeyError as unknown:
            raise TargetError(
                f"the size {size} depends on {unknown}, which is not a dimension of an input", where=self.program.name
            ) from None
        except RecursionError:
            raise TargetError("a size is too deeply nested", where=self.program.name) from None
        for place, (name, operands) in enumerate(formulas.operations[self._told :], self._told + len(formulas.symbols)):
            a, b, c = (*operands, 0, 0)[:3]
            self.write.add("formula", FORMULA_CODES[name], a, b, c)
            if place in formulas.names:
                self._name(formulas.names[place], place)
        self._told = len(formulas.operations)
        return number

    def extent(self, size: Size | None) -> Extent:
        """Return a size in the form of the runtime."""
        if size is None:
            return _UNKNOWN
        if isinstance(size, int):
            return -1, size
        if not self.program.is_symbolic:
            raise TargetError(f"the size {size} does not depend on an input", where=self.program.name)
        return self.value(size), -1

    def _name(self, name: str, value: int, text: str = "") -> None:
        if name not in self._named:
            self._named.add(name)
            self.write.add("named", value, name, text)

    def text(self, size: Size) -> str:
        """Return a size as only Python needs it: its text."""
        if isinstance(size, int):
            return str(size)
        size = readable(size)
        for name, part in definitions(size).items():
            if name not in self._named:
                self._name(name, -1, str(part))
        return str(size)

    def all(self, is_body: bool) -> None:
        """Write all of the program.

        Args:
            is_body: Whether it is a body, which must tell the sizes of its results.
        """
        program, write = self.program, self.write
        if not program.is_symbolic:
            _refuse_sizes(program)
        write.add(
            "program", program.name, len(program.inputs), len(program.outputs), (*program.symbols, *program.found),
            len(program.symbols), [number for source in program.sources.values() for number in source],
        )  # fmt: skip
        with naming():
            self._buffers()
            for word in program.tables:
                write.add("word", word.constant, word.word, self.value(word.value))
            for piece in program.arena:
                write.add("piece", self.value(piece.nbytes), piece.above)
            for index, call in enumerate(program.instructions):
                self._call(call, f"{program.name}, instruction {index} ({call.kernel})")
            if not 0 <= program.arena_bytes < 1 << 63:
                raise TargetError("not a size of an arena", where=program.name, found=f"{program.arena_bytes} bytes")
            if program.is_symbolic:
                self._settle(is_body)
        for block in program.blocks:
            over = -1 if block.over is None else block.over
            write.add("block", block.offset, block.nbytes, block.first, block.last, over)
        if program.texts is not None:
            pairs = [number for pair in program.texts.outputs for number in pair]
            write.add("texts", program.texts.inputs, pairs, program.texts.prefix)
        write.add("end", program.arena_bytes, program.arena_bound)

    def _buffers(self) -> None:
        program = self.program
        numbers = {name: index for index, name in enumerate(program.symbols)}
        for space, specs in ((lib.TC_INPUT, program.inputs), (lib.TC_OUTPUT, program.outputs)):
            for index, spec in enumerate(specs):
                known = space == lib.TC_INPUT or index not in program.grown
                nbytes = -1
                if known and program.is_symbolic:
                    nbytes = self.value(product(spec.shape) * array_dtype(spec.dtype).itemsize)
                dims = [self.extent(dim) if known or isinstance(dim, int) else _UNKNOWN for dim in spec.shape]
                unknown = [self.text(dim) for dim, extent in zip(spec.shape, dims, strict=True) if extent == _UNKNOWN]
                elements = [-1 if name is None else numbers[name] for name in spec.elements]
                self.write.add("buffer", space, index, nbytes, spec.name, spec.dtype, dims, unknown, elements)

    def _call(self, call: Instruction, where: str) -> None:
        write = self.write
        if call.control is not None:
            self._control(call, call.control, where)
        else:
            kernel = kernel_named(call.kernel, where)
            given: Mapping[str, Any] = call.params
            if self.program.is_symbolic:  # parameters that a run fills in are 0 until then
                given = {name: 0 if isinstance(value, Expression) else value for name, value in given.items()}
            params = bytes(ffi.buffer(kernel.make_params(given, where)))
            places = [_place(operand, where) for operand in call.operands]
            macs = self.text(call.macs)
            write.add("call", kernel.index, places, params, macs, call.source)
            if given is not call.params:
                self._parameters(call, kernel)
        for index, operand in enumerate(call.operands):
            if isinstance(operand.offset, Expression):
                value = self.value(operand.offset)
                write.add("offset", index, value)
        if call.found is not None:
            found = self.value(symbol(call.found.symbol))
            most = -1 if call.found.most is None else self.value(call.found.most)
            write.add("finds", call.found.operand, found, most)

    def _parameters(self, call: Instruction, kernel: Kernel) -> None:
        for name, value in call.params.items():
            if isinstance(value, Expression):
                if kernel.fields.get(name) is not int:
                    raise TargetError(f'the parameter "{name}" of {call.kernel} is not a size', where=self.program.name)
                number = self.value(value)
                self.write.add("parameter", kernel.offsets[name], number)

    def _control(self, call: Instruction, control: Control, where: str) -> None:
        """Write control flow, its bodies and the sizes of its results."""
        is_loop = call.kernel == "loop"
        specs = control.bodies[0].inputs[2 * is_loop :]
        if call.kernel not in CONTROL_FLOW or len(specs) != len(control.shapes):
            raise TargetError("operands that do not fit the bodies", where=where)
        read = [
            product(shape) * array_dtype(spec.dtype).itemsize for shape, spec in zip(control.shapes, specs, strict=True)
        ]
        nbytes = [*[8, 1][0 if is_loop else 1 :], *read, *control.results]
        bodies = [self._body(control, program, is_loop) for program in control.bodies]
        growths = [self._growth(control, index, bodies[-1][0]) for index in range(len(control.results) * is_loop)]
        extents = [self.extent(n) for n in nbytes]
        shapes, macs = [self.text(dim) for shape in control.shapes for dim in shape], self.text(call.macs)
        self.write.add(
            "control", CONTROL_FLOW.index(call.kernel), control.carried, len(control.shapes) - control.carried,
            len(control.results), [_place(o, where) for o in call.operands], extents, shapes, macs, call.source,
        )  # fmt: skip
        for body, *fields in bodies:
            self.write.add("body", body.number, *fields)
        for growth in growths:
            self.write.add("growth", *growth)

    def _body(self, control: Control, program: Program, is_loop: bool) -> tuple[_ProgramWriter, Any, Any, Any]:
        """Write a body; return it with what its symbols are at first and next, and the bytes of its results."""
        body = self._unit.add(program, is_body=True)
        sources = program.sources.values() if program.is_symbolic else ()
        first = [self.extent(control.shapes[i - 2 * is_loop][axis]) for i, axis in sources]
        following = [
            body.value(program.outputs[i - 1].shape[axis]) if is_loop and i < 2 + control.carried else -1
            for i, axis in sources
        ]
        # What instructions of the body find out has no value before.
        first += [(-1, 0)] * len(program.found)
        following += [-1] * len(program.found)
        outputs = [body.extent(product(o.shape) * array_dtype(o.dtype).itemsize) for o in program.outputs]
        return body, first, following, outputs

    def _growth(self, control: Control, index: int, body: _ProgramWriter) -> tuple[int, list[Extent], list[Extent]]:
        """Return the rank of a result of a loop, its dimensions after an iteration, and before the first one."""
        if control.results[index] is not None:
            return -1, [], []
        dims = body.program.outputs[1 + index].shape
        before = {
            dim.name: size
            for spec, shape in zip(body.program.inputs[2:], control.shapes, strict=True)
            for dim, size in zip(spec.shape, shape, strict=True)
            if isinstance(dim, Expression) and dim.name is not None
        }
        start = control.shapes[index] if index < control.carried else [_at_first(dim, before) for dim in dims]
        return len(dims), [body.extent(d) for d in dims], [self.extent(d) for d in start]

    def _settle(self, is_body: bool) -> None:
        """Write the remaining sizes, and typical ones to check the program and pack its weights with."""
        program, write = self.program, self.write
        with expecting(expected_sizes(spec.shape for spec in program.inputs)):
            sizes = [typical(symbol(name)) for name in program.symbols]
            found = [call.found for call in program.instructions if call.found is not None]
            sizes += [0 if each.most is None else typical(each.most) for each in found]
        for dim in [dim for spec in program.outputs for dim in spec.shape] if is_body else ():
            self.value(dim)
        for spec in program.outputs if is_body else ():
            self.value(product(spec.shape) * array_dtype(spec.dtype).itemsize)
        for left in program.left:
            spec = program.outputs[left.output]
            nbytes = self.value(product(spec.shape) * array_dtype(spec.dtype).itemsize)
            dims = [self.value(dim) for dim in spec.shape]
            write.add("leaves", left.output, _place(left.place, program.name), nbytes, dims)
        values = [self.value(condition.value) for condition in program.conditions]
        for value, condition in zip(values, program.conditions, strict=True):  # formulas too, which shift all others
            write.add("condition", value, condition.text, condition.node)
        write.add("setup", program.setup)
        write.add("typical", sizes)


def _at_first(dim: Size, before: Mapping[str, Size]) -> Size:
    """Return what a size in a body is before the first iteration, given those of the values that the body reads."""
    if isinstance(dim, Expression) and not dim.symbols <= before.keys():
        return 0
    return maximum(substitute(dim, before), 0)


def _place(operand: Operand, where: str) -> tuple[int, int, int]:
    """Return an operand in the form of the runtime.

    Raises:
        TargetError: If there is no such space, or a number is larger than the runtime's.
    """
    space, index = SPACE_CODES.get(operand.space), operand.index
    if space is None:
        raise TargetError(
            f'there is no operand space "{operand.space}"', where=where, hint=did_you_mean(operand.space, SPACES)
        )
    offset = 0 if isinstance(operand.offset, Expression) else int(operand.offset)
    if not -(1 << 31) <= index < 1 << 31 or not -(1 << 63) <= offset < 1 << 63:
        raise TargetError("an operand's index or offset does not fit", where=where, found=f"{index}, {offset}")
    return space, index, offset


def _refuse_sizes(program: Program) -> None:
    """Refuse a program that depends on sizes without having symbols."""
    known = [spec for index, spec in enumerate(program.outputs) if index not in program.grown]
    for spec in (*program.inputs, *known):
        if any(isinstance(dim, Expression) for dim in spec.shape):
            raise TargetError(f"{spec} depends on sizes that are not dimensions of an input", where=program.name)
    if program.arena or program.tables:
        raise TargetError("the arena or a table depends on sizes, and the program has no symbols", where=program.name)
    for index, call in enumerate(program.instructions):
        if call.depends_on_sizes:
            where = f"{program.name}, instruction {index} ({call.kernel})"
            raise TargetError("a part of the call depends on sizes, and the program has no symbols", where=where)
