"""Describe a program to the C runtime, call by call, in the order that ``runtime_c/include/tinycomp.h`` asks for.

:func:`describe` walks a program and makes the calls of a :class:`Builder`: the C runtime itself, or a record of the
calls for programs that run without Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tinycomp.errors import TargetError, did_you_mean
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.library import Kernel, codes, ffi, kernel_named, lib
from tinycomp.runtime.native.program import CONTROL_FLOW, SPACES, Array, Control, Instruction, Operand, Program
from tinycomp.runtime.spec import array_dtype
from tinycomp.symbolic import (
    Expression,
    Formulas,
    Size,
    expected_sizes,
    expecting,
    maximum,
    product,
    substitute,
    symbol,
    typical,
)

Place = tuple[int, int, int]
"""The place of an operand: space, index, offset."""
Extent = tuple[int, int]
"""A size: the number of a runtime value, or -1 and the size itself."""

_SPACE_CODES = {name: getattr(lib, f"TC_{name.upper()}") for name in SPACES}
_FORMULA_CODES = {name.lower(): code for name, code in codes("tc_formula_operation", "TC_FORMULA_").items()}
_FORMULA_CODES["ifzero"] = _FORMULA_CODES.pop("if_zero")


@dataclass(frozen=True, slots=True)
class Body:
    """A body of control flow, a ``tc_body``.

    Attributes:
        builder: The builder that the body has been described to.
        symbols: The initial values of its symbols, as values of the program around it.
        following: For each symbol, the value of the body that it takes in the next iteration; -1 for no change.
        outputs: The bytes of its outputs, as values of the body.
    """

    builder: Builder
    symbols: Sequence[Extent]
    following: Sequence[int]
    outputs: Sequence[Extent]


@dataclass(frozen=True, slots=True)
class Growth:
    """The size of a loop's result, a ``tc_growth``: rank -1 for a result of known size.

    Attributes:
        rank: The rank of a carried value or of a row.
        dims: The dimensions after an iteration, as values of the body.
        first: The dimensions without any iteration, as values of the program around it.
    """

    rank: int
    dims: Sequence[Extent] = ()
    first: Sequence[Extent] = ()


@dataclass(frozen=True, slots=True)
class ControlCall:
    """An instruction that runs bodies, a ``tc_control``."""

    kind: int
    carried: int
    captured: int
    operands: Sequence[Place]
    nbytes: Sequence[Extent]
    bodies: Sequence[Body]
    growths: Sequence[Growth]


class Builder(Protocol):
    """The receiver of the description of a program. Every method raises TargetError if it refuses a call."""

    def constant(self, array: Array) -> None:
        """Add a constant."""

    def append(self, kernel: Kernel, operands: Sequence[Place], params: Any) -> None:
        """Add a kernel call; ``params`` is a pointer to the kernel's struct."""

    def control(self, call: ControlCall) -> None:
        """Add control flow, whose bodies are finished."""

    def tell(self, call: str, *arguments: int | Sequence[int] | Place) -> None:
        """Make a call of the interface: ``symbols``, ``formula``, ``buffer_size`` and so on, as in ``tc_program_…``."""

    def body(self, program: Program) -> Builder:
        """Return a builder for a body, which has the constants of the program around it."""

    def finish(self, arena_bytes: int) -> None:
        """End the description."""


@dataclass
class Described:
    """A program with the descriptions of its sizes.

    Attributes:
        program: The program.
        sizes: The descriptions; None if all sizes are numbers.
    """

    program: Program
    sizes: Sizes | None = None

    def extent(self, size: Size | None) -> Extent:
        """Return a size in the form of the runtime.

        Raises:
            TargetError: If it depends on sizes that the program does not know.
        """
        if size is None:
            return -1, -1
        if isinstance(size, int):
            return -1, size
        if self.sizes is None:
            raise TargetError(f"the size {size} does not depend on an input", where=self.program.name)
        return self.sizes.value(size), -1


def describe(program: Program, constants: Sequence[Array], builder: Builder, is_body: bool = False) -> Described:
    """Describe a whole program to a builder.

    Args:
        program: The program.
        constants: The constants of the outermost program.
        builder: The receiver of the description.
        is_body: Whether it is a body, which must tell the sizes of its results.

    Raises:
        TargetError: If the program is not valid; the message names the instruction.
    """
    described = Described(program)
    if program.is_symbolic:
        described.sizes = Sizes(program, builder)
    else:
        _refuse_sizes(program)
    for constant in constants:
        builder.constant(constant)
    if described.sizes is not None:
        described.sizes.describe_buffers()
    for index, call in enumerate(program.instructions):
        _append(described, builder, constants, index, call)
    if not 0 <= program.arena_bytes < 1 << 63:
        raise TargetError("not a size of an arena", where=program.name, found=f"{program.arena_bytes} bytes")
    if described.sizes is not None:
        described.sizes.settle(is_body)
    builder.finish(program.arena_bytes)
    return described


def _append(described: Described, builder: Builder, constants: Sequence[Array], index: int, call: Instruction) -> None:
    where = f"{described.program.name}, instruction {index} ({call.kernel})"
    if call.control is not None:
        builder.control(_control_call(described, builder, constants, call, call.control, where))
        if described.sizes is not None:
            described.sizes.describe_offsets(call)
        return
    kernel = kernel_named(call.kernel, where)
    given: Mapping[str, Any] = call.params
    if described.sizes is not None:  # parameters that a run fills in are 0 until then
        given = {name: 0 if isinstance(value, Expression) else value for name, value in given.items()}
    builder.append(kernel, [place_of(operand, where) for operand in call.operands], kernel.make_params(given, where))
    if described.sizes is not None:
        described.sizes.describe_call(call, kernel)


def _control_call(
    described: Described, builder: Builder, constants: Sequence[Array], call: Instruction, control: Control, where: str
) -> ControlCall:
    """Describe the bodies of control flow, and return it in the form of the runtime."""
    is_loop = call.kernel == "loop"
    specs = control.bodies[0].inputs[2 * is_loop :]
    if call.kernel not in CONTROL_FLOW or len(specs) != len(control.shapes):
        raise TargetError("operands that do not fit the bodies", where=where)
    read = [
        product(shape) * array_dtype(spec.dtype).itemsize for shape, spec in zip(control.shapes, specs, strict=True)
    ]
    nbytes = [*[8, 1][0 if is_loop else 1 :], *read, *control.results]
    bodies, growths, last = [], [], described
    before = {
        dim.name: size
        for spec, shape in zip(specs, control.shapes, strict=True)
        for dim, size in zip(spec.shape, shape, strict=True)
        if isinstance(dim, Expression) and dim.name is not None
    }
    for program in control.bodies:
        inside = builder.body(program)
        last = body = describe(program, constants, inside, True)
        sources = () if body.sizes is None else body.sizes.sources
        first = [described.extent(control.shapes[i - 2 * is_loop][axis]) for i, axis in sources]
        following = [
            body.sizes.value(program.outputs[i - 1].shape[axis])
            if body.sizes is not None and is_loop and i < 2 + control.carried
            else -1
            for i, axis in sources
        ]
        # What instructions of the body find out has no value before.
        first += [(-1, 0)] * len(program.found)
        following += [-1] * len(program.found)
        outputs = [body.extent(product(o.shape) * array_dtype(o.dtype).itemsize) for o in program.outputs]
        bodies.append(Body(inside, first, following, outputs))
    for index, result in enumerate(control.results):
        if result is not None or not is_loop:
            growths.append(Growth(-1))
            continue
        dims = last.program.outputs[1 + index].shape
        start = control.shapes[index] if index < control.carried else [_at_first(dim, before) for dim in dims]
        growths.append(Growth(len(dims), [last.extent(d) for d in dims], [described.extent(d) for d in start]))
    return ControlCall(
        CONTROL_FLOW.index(call.kernel), control.carried, len(control.shapes) - control.carried,
        [place_of(o, where) for o in call.operands], [described.extent(n) for n in nbytes], bodies, growths,
    )  # fmt: skip


def _at_first(dim: Size, before: Mapping[str, Size]) -> Size:
    """Return what a size in a body is before the first iteration, given those of the values that the body reads."""
    if isinstance(dim, Expression) and not dim.symbols <= before.keys():
        return 0
    return maximum(substitute(dim, before), 0)


def place_of(operand: Operand, where: str) -> Place:
    """Return an operand in the form of the runtime.

    Raises:
        TargetError: If there is no such space, or a number is larger than the runtime's.
    """
    space, index = _SPACE_CODES.get(operand.space), operand.index
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


@dataclass
class Sizes:
    """The descriptions of sizes that are known only at run time, by the numbers of the runtime's values.

    Attributes:
        program: A program with symbols.
        builder: The receiver of the descriptions, which must come first.
        sources: For each symbol, the input and the dimension that give its size, or -1 - i for the element i.
        dims: The values of the dimensions of inputs and outputs, at the end of the description.
    """

    program: Program
    builder: Builder
    sources: tuple[tuple[int, int], ...] = ()
    dims: Mapping[Expression, int] = field(default_factory=dict)
    _told: int = 0

    def __post_init__(self) -> None:
        self.sources = tuple(self.program.sources.values())
        self._formulas = Formulas((*self.program.symbols, *self.program.found))
        self.builder.tell("symbols", len(self.program.symbols), len(self.program.found))

    def value(self, size: Size) -> int:
        """Return the number of the runtime value of a size.

        Raises:
            TargetError: If it depends on something else than sizes of inputs, or is too deeply nested.
        """
        try:
            number = self._formulas.add(size)
        except KeyError as unknown:
            raise TargetError(
                f"the size {size} depends on {unknown}, which is not a dimension of an input", where=self.program.name
            ) from None
        except RecursionError:
            raise TargetError("a size is too deeply nested", where=self.program.name) from None
        for name, operands in self._formulas.operations[self._told :]:
            a, b, c = (*operands, 0, 0)[:3]
            self.builder.tell("formula", _FORMULA_CODES[name], a, b, c)
        self._told = len(self._formulas.operations)
        return number

    def describe_buffers(self) -> None:
        """Describe the sizes of inputs, outputs and buffers of the arena, and the computed words of constants."""
        program = self.program
        for space, specs in ((lib.TC_INPUT, program.inputs), (lib.TC_OUTPUT, program.outputs)):
            for index, spec in enumerate(specs):
                if space == lib.TC_OUTPUT and index in program.grown:
                    continue
                value = self.value(product(spec.shape) * array_dtype(spec.dtype).itemsize)
                self.builder.tell("buffer_size", space, index, value)
        for word in program.tables:
            self.builder.tell("word", word.constant, word.word, self.value(word.value))
        for piece in program.arena:
            self.builder.tell("piece", self.value(piece.nbytes), piece.above, len(piece.above))

    def describe_call(self, call: Instruction, kernel: Kernel) -> None:
        """Describe the parts of the last instruction that depend on sizes."""
        for name, value in call.params.items():
            if isinstance(value, Expression):
                if kernel.fields.get(name) is not int:
                    raise TargetError(f'the parameter "{name}" of {call.kernel} is not a size', where=self.program.name)
                byte = ffi.offsetof(kernel.ctype, name)
                self.builder.tell("parameter", byte, self.value(value))
        self.describe_offsets(call)
        if call.found is not None:
            found = self.value(symbol(call.found.symbol))
            most = -1 if call.found.most is None else self.value(call.found.most)
            self.builder.tell("finds", call.found.operand, found, most)

    def describe_offsets(self, call: Instruction) -> None:
        """Describe the offsets of operands of the last instruction that depend on sizes."""
        for index, operand in enumerate(call.operands):
            if isinstance(operand.offset, Expression):
                self.builder.tell("offset", index, self.value(operand.offset))

    def settle(self, is_body: bool) -> None:
        """Describe the remaining sizes, and give typical ones to check the program and pack its weights with.

        Args:
            is_body: Whether all sizes of results become values.
        """
        with expecting(expected_sizes(spec.shape for spec in self.program.inputs)):
            sizes = [typical(symbol(name)) for name in self.program.symbols]
            found = [call.found for call in self.program.instructions if call.found is not None]
            sizes += [0 if each.most is None else typical(each.most) for each in found]
        self.dims = {
            dim: self.value(dim)
            for index, spec in enumerate((*self.program.outputs, *self.program.inputs))
            for dim in spec.shape
            if isinstance(dim, Expression) and index not in self.program.grown
        }
        for dim in [dim for spec in self.program.outputs for dim in spec.shape] if is_body else ():
            self.value(dim)
        self._describe_left()
        self._describe_conditions()
        self.builder.tell("setup", self.program.setup)
        self.builder.tell("typical", sizes)

    def _describe_left(self) -> None:
        for left in self.program.left:
            spec = self.program.outputs[left.output]
            nbytes = self.value(product(spec.shape) * array_dtype(spec.dtype).itemsize)
            dims = [self.value(dim) for dim in spec.shape]
            place = place_of(left.place, self.program.name)
            self.builder.tell("leaves", left.output, place, nbytes, len(dims), dims)

    def _describe_conditions(self) -> None:
        values = [self.value(condition.value) for condition in self.program.conditions]
        code = _FORMULA_CODES["condition"]  # after all other formulas, whose numbers they would shift
        for index, value in enumerate(values):
            self.builder.tell("formula", code, value, index, 0)
