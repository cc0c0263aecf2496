"""Calls of the C runtime that neither its reader of records nor Python makes: each is refused, and says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.runtime_c.clibrary import building
from tinycomp.runtime.native import library
from tinycomp.runtime.native.library import ANY_BYTES, kernel_named

ffi, lib = building()

MOST = 1 << 48
"""TC_MAX_BYTES."""
FAR = (1 << 31) - 1
NOTHING = ffi.NULL
NONE, INPUT, OUTPUT, CONSTANT, ARENA = (
    lib.TC_NONE, lib.TC_INPUT, lib.TC_OUTPUT, lib.TC_CONSTANT, lib.TC_ARENA
)  # fmt: skip
IF, LOOP = lib.TC_CONTROL_IF, lib.TC_CONTROL_LOOP
CONSTANT_FORMULA, ADD, MULTIPLY, DIVIDE = (
    lib.TC_FORMULA_CONSTANT, lib.TC_FORMULA_ADD, lib.TC_FORMULA_MULTIPLY, lib.TC_FORMULA_DIVIDE
)  # fmt: skip
COPY, GEMM, MATMUL = (kernel_named(name) for name in ("copy", "gemm_f32", "matmul_f32"))
ONE = {f"{name}{i}": 1 for name in ("size", "to_stride", "from_stride") for i in range(8)} | {"element_size": 8}
"""Parameters of a copy of one element of eight bytes."""


class RefusedError(Exception):
    """What the C runtime says when it refuses a call."""


def check(status: int, error: Any) -> None:
    if status:
        raise RefusedError(ffi.string(error.message).decode())


class Draft:
    """A program that is described by calls of the C functions, without any check of Python's."""

    def __init__(self, symbols: tuple[int, int] | None = None, inputs: int = 2, outputs: int = 1) -> None:
        out, self.error = ffi.new("tc_program **"), ffi.new("tc_error *")
        check(lib.tc_program_create(NOTHING, inputs, outputs, out, self.error), self.error)
        self.handle = ffi.gc(out[0], lib.tc_program_destroy)
        self.kept: list[Any] = []
        if symbols is not None:
            self.tell("symbols", *symbols)

    def tell(self, call: str, *arguments: Any) -> Draft:
        """Make a call of the interface, ``tc_program_...``."""
        check(getattr(lib, f"tc_program_{call}")(self.handle, *arguments, self.error), self.error)
        return self

    def append(self, kernel: Any = COPY, operands: Sequence[Any] = ((OUTPUT,), (INPUT,)), **params: float) -> Draft:
        """Append a call of a kernel: without others, a copy of eight bytes."""
        known = ONE if kernel is COPY else dict.fromkeys(kernel.fields, 0)
        values = kernel.make_params(known | params, "a test")
        places = ffi.new("tc_operand[]", list(operands))
        self.kept.append(values)
        params = ffi.cast("void *", library.address(values))
        return self.tell("append", kernel.index, places, len(operands), params, library.ffi.sizeof(kernel.ctype))

    def control(self, bodies: Sequence[Draft | None] = (), **fields: Any) -> Draft:
        """Append control flow: without other fields, an IF with one captured operand and one result.

        Args:
            bodies: Programs; copies of eight bytes are the rest.
            **fields: What the description says instead: ``operands`` and their ``nbytes``, ``symbols``, ``next`` and
                ``outputs`` of each body, ``growths`` of the results, and what is no list.
        """
        operands = fields.pop("operands", [(INPUT, 1), (INPUT,), (OUTPUT,)])
        nbytes = [n if isinstance(n, tuple) else (-1, n) for n in fields.pop("nbytes", [1, 8, 8])]
        usual = [(-1, 8)] * 8
        symbols, outputs = (ffi.new("tc_extent[]", fields.pop(name, usual)) for name in ("symbols", "outputs"))
        following = ffi.new("int64_t[]", fields.pop("next", [-1] * 8))
        programs = [*bodies, *[finished() for _ in range(2 - len(bodies))]]
        held = [
            ffi.new("tc_body[]", [
                (NOTHING if body is None else body.handle, symbols, following, outputs) for body in programs
            ]),
            ffi.new("tc_operand[]", [*operands, *[(NONE,)] * (8 - len(operands))]),
            ffi.new("tc_extent[]", [*nbytes, *[(-1, 0)] * (8 - len(nbytes))]),
        ]  # fmt: skip
        known = {"kind": IF, "captured": 1, "results": 1, "bodies": held[0], "operands": held[1], "bytes": held[2]}
        if "growths" in fields:
            dims = [ffi.new("tc_extent[]", growth[k]) for growth in fields["growths"] for k in (1, 2)]
            fields["growths"] = ffi.new("tc_growth[]", [
                (growth[0], dims[2 * i], dims[2 * i + 1]) for i, growth in enumerate(fields["growths"])
            ])  # fmt: skip
            held += dims
        self.kept += [programs, held]
        return self.tell("control", ffi.new("tc_control *", known | fields))

    def context(self, threads: int = 1) -> Any:
        """Return a context, which keeps the program."""
        out = ffi.new("tc_context **")
        check(lib.tc_context_create(self.handle, threads, out, self.error), self.error)
        self.kept.append(context := ffi.gc(out[0], lib.tc_context_destroy))
        return context

    def resize(self, *symbols: int) -> None:
        """Make a new context ready for sizes."""
        sizes = ffi.new("int64_t[]", symbols)
        check(lib.tc_context_resize(self.context(), sizes, ANY_BYTES, self.error), self.error)

    def run(self, context: Any, output: Any, first: int = 0) -> None:
        """Run on inputs of zeros, but for a first number."""
        numbers = ffi.new("int64_t[8]", [first])
        inputs, outputs = ffi.new("void *[]", [numbers, numbers]), ffi.new("void *[]", [output])
        check(lib.tc_run(self.handle, context, NOTHING, inputs, outputs, self.error), self.error)

    def finish(self, *typical: int) -> Draft:
        """Finish the program, for typical sizes if it has any."""
        if typical:
            self.tell("typical", ffi.new("int64_t[]", typical))
        return self.tell("finish", NOTHING, 0)


def static() -> Draft:
    return Draft()


def copied() -> Draft:
    return Draft(inputs=1).append()


def finished() -> Draft:
    return copied().finish()


def sized() -> Draft:
    """A size as value 0, and 8 as value 1, which the input has in bytes."""
    draft = Draft((1, 0)).tell("formula", CONSTANT_FORMULA, 8, 0, 0)
    return draft.tell("buffer_size", INPUT, 0, 1).tell("buffer_size", INPUT, 1, 1).tell("buffer_size", OUTPUT, 0, 1)


def pieced() -> Draft:
    """Likewise with a piece of the arena of 8 bytes."""
    return sized().tell("piece", 1, NOTHING, 0)


def appended() -> Draft:
    return sized().append()


def settled() -> Draft:
    return sized().tell("typical", ffi.new("int64_t[]", [8]))


def done() -> Draft:
    return sized().finish(8)


def tabled() -> Draft:
    """A program over sizes with a constant of two words."""
    draft = sized()
    draft.kept.append(words := ffi.new("int64_t[2]"))
    return draft.tell("add_constant", words, 16, False)


def finding(found: int = 2, operands: Sequence[Any] = ((ARENA,), (INPUT,))) -> Draft:
    """A program that may find sizes, and whose last instruction writes a word of the arena."""
    draft = Draft((1, found)).tell("formula", CONSTANT_FORMULA, 8, 0, 0)
    draft.tell("piece", 1 + found, NOTHING, 0)
    return draft.append(COPY, operands)


def one_found() -> Draft:
    """A finished program that finds out a size, and otherwise fits as a body."""
    draft = Draft((0, 1), 1).tell("formula", CONSTANT_FORMULA, 8, 0, 0)
    draft.tell("buffer_size", INPUT, 0, 1).tell("buffer_size", OUTPUT, 0, 1).tell("piece", 1, NOTHING, 0)
    return draft.append(COPY, [(ARENA,), (INPUT,)]).tell("finds", 0, 0, 1).finish(8)


def leaving() -> Draft:
    """A finished program whose result lies in its arena."""
    draft = Draft((1, 0), 1).tell("formula", CONSTANT_FORMULA, 8, 0, 0)
    draft.tell("buffer_size", INPUT, 0, 1).tell("piece", 1, NOTHING, 0).append(COPY, [(ARENA,), (INPUT,)])
    place = ffi.new("tc_operand *", {"space": ARENA})
    draft.kept.append(place)
    return draft.tell("leaves", 0, place, 1, 0, NOTHING).finish(8)


def branching() -> Draft:
    """A program over sizes with an instruction that is control flow."""
    return sized().control()


def found_in_control() -> Draft:
    draft = Draft((1, 1)).tell("formula", CONSTANT_FORMULA, 8, 0, 0).tell("piece", 2, NOTHING, 0)
    return draft.control(operands=[(ARENA,), (INPUT,), (OUTPUT,)])


def found_at_last(*call: Any, most: int | None = 2) -> Draft:
    """A program that finds out its value 1, described by one call more; value 2 is 8."""
    draft = Draft((1, 1)).tell("formula", CONSTANT_FORMULA, 8, 0, 0).tell("piece", 2, NOTHING, 0)
    if call:
        draft.tell(*call)
    draft.append(COPY, [(ARENA,), (INPUT,)])
    return draft if most is None else draft.tell("finds", 0, 1, most)


def without_bias() -> Draft:
    draft = tabled()
    params = {"m": 1, "n": 1, "k": 1, "lda": 1, "ldc": 1}
    return draft.append(GEMM, [(OUTPUT,), (INPUT,), (CONSTANT,), (NONE,), (NONE,)], **params)


def place(*operand: int) -> Any:
    return ffi.new("tc_operand *", operand)


NO_SYMBOLS = "a program cannot have .* symbols, or has some or instructions already"
NO_FORMULA = "there is no formula .*, or the program has no symbols or all its sizes"
NO_PIECE = "a piece of the arena of unknown size, or behind instructions"
NO_BUFFER = "there is no buffer .* in space .*, or no value .*, or they come behind instructions"
NO_PARAMETER = "there is no parameter at byte"
NO_OPERAND = "there is no operand"
NO_SETUP = "no program over sizes, or it has no .* instructions"
FINDS_NOTHING = "the last instruction finds out no symbol .* in operand"
NO_WORD = "constant .* has no word .*, or it comes behind instructions"
NO_CONSTANT = "a constant of .* bytes cannot be added"
NO_KERNEL = "there is no kernel .*, or the program is finished"
NO_PLACE = "output .* cannot lie there"
NOT_FINISHED = "an arena of .* bytes, or a program finished twice"

CALLS: list[tuple[Callable[[], Draft], str, tuple[Any, ...], str]] = [
    (finished, "add_constant", (ffi.new("char[8]"), 8, False), NO_CONSTANT),
    (static, "add_constant", (ffi.new("char[8]"), -1, False), NO_CONSTANT),
    (static, "add_constant", (ffi.new("char[8]"), MOST + 1, False), NO_CONSTANT),
    (static, "add_constant", (NOTHING, 8, False), NO_CONSTANT),
    (static, "append", (-1, NOTHING, 0, NOTHING, 0), NO_KERNEL),
    (static, "append", (lib.tc_kernel_count(), NOTHING, 0, NOTHING, 0), NO_KERNEL),
    (static, "append", (COPY.index, NOTHING, 2, NOTHING, 8), "2 operands and 8 bytes of parameters, not 2 and"),
    (lambda: Draft().finish(), "symbols", (1, 0), NO_SYMBOLS),
    (copied, "symbols", (1, 0), NO_SYMBOLS),
    (sized, "symbols", (1, 0), NO_SYMBOLS),
    (static, "symbols", (-1, 2), NO_SYMBOLS),
    (static, "symbols", (2, -1), NO_SYMBOLS),
    (static, "symbols", (lib.TC_MAX_SYMBOLS + 1, 0), NO_SYMBOLS),
    (static, "symbols", (1, lib.TC_MAX_SYMBOLS + 1), NO_SYMBOLS),
    (static, "symbols", (0, 0), NO_SYMBOLS),
    (settled, "formula", (CONSTANT_FORMULA, 8, 0, 0), NO_FORMULA),
    (static, "formula", (CONSTANT_FORMULA, 8, 0, 0), NO_FORMULA),
    (sized, "formula", (-1, 0, 0, 0), NO_FORMULA),
    (sized, "formula", (8, 0, 0, 0), NO_FORMULA),
    (sized, "formula", (ADD, 0, 2, 0), "a formula of value 2, which comes later"),
    (sized, "formula", (CONSTANT_FORMULA, MOST + 1, 0, 0), f"a size of {MOST + 1}"),
    (sized, "formula", (CONSTANT_FORMULA, -MOST - 1, 0, 0), f"a size of -{MOST + 1}"),
    (settled, "piece", (0, NOTHING, 0), NO_PIECE),
    (appended, "piece", (0, NOTHING, 0), NO_PIECE),
    (sized, "piece", (2, NOTHING, 0), NO_PIECE),
    (sized, "piece", (0, NOTHING, -1), NO_PIECE),
    (settled, "buffer_size", (INPUT, 0, 0), NO_BUFFER),
    (appended, "buffer_size", (INPUT, 0, 0), NO_BUFFER),
    (sized, "buffer_size", (INPUT, -1, 0), NO_BUFFER),
    (sized, "buffer_size", (INPUT, 2, 0), NO_BUFFER),
    (sized, "buffer_size", (ARENA, 0, 0), NO_BUFFER),
    (sized, "buffer_size", (INPUT, 0, 2), NO_BUFFER),
    (sized, "parameter", (0, 0), NO_PARAMETER),
    (branching, "parameter", (0, 0), NO_PARAMETER),
    (appended, "parameter", (-8, 0), NO_PARAMETER),
    (appended, "parameter", (4, 0), NO_PARAMETER),
    (appended, "parameter", (library.ffi.sizeof(COPY.ctype), 0), NO_PARAMETER),
    (appended, "parameter", ((1 << 63) - 8, 0), NO_PARAMETER),
    (appended, "parameter", (0, 2), "there is no value 2, or the program is finished"),
    (lambda: appended().finish(8), "parameter", (0, 0), "there is no value 0, or the program is finished"),
    (sized, "offset", (0, 0), NO_OPERAND),
    (appended, "offset", (-FAR, 0), NO_OPERAND),
    (appended, "offset", (FAR, 0), NO_OPERAND),
    (without_bias, "offset", (3, 0), NO_OPERAND),
    (done, "setup", (0,), NO_SETUP),
    (static, "setup", (0,), NO_SETUP),
    (sized, "setup", (-1,), NO_SETUP),
    (sized, "setup", (1,), NO_SETUP),
    (lambda: pieced().append(COPY, [(ARENA,), (INPUT,)]), "setup", (1,), r"instruction 0 \(copy\) does not follow"),
    (lambda: pieced().append(COPY, [(OUTPUT,), (ARENA,)]), "setup", (1,), r"instruction 0 \(copy\) does not follow"),
    (lambda: pieced().control(operands=[(ARENA,)] * 3), "setup", (1,), r"instruction 0 \(if\) does not follow"),
    (lambda: finding().tell("typical", ffi.new("int64_t[3]")), "finds", (0, 1, 0), FINDS_NOTHING),
    (lambda: Draft((1, 1)), "finds", (0, 1, 0), FINDS_NOTHING),
    (found_in_control, "finds", (0, 1, 0), FINDS_NOTHING),
    (lambda: finding().tell("finds", 0, 1, 0), "finds", (0, 2, 0), FINDS_NOTHING),
    (finding, "finds", (-FAR, 1, 0), FINDS_NOTHING),
    (finding, "finds", (FAR, 1, 0), FINDS_NOTHING),
    (finding, "finds", (1, 1, 0), FINDS_NOTHING),
    (lambda: finding(operands=[(ARENA,), (ARENA,)]), "finds", (1, 1, 0), FINDS_NOTHING),
    (lambda: finding().append(), "finds", (0, 1, 0), FINDS_NOTHING),
    (finding, "finds", (0, 2, 0), FINDS_NOTHING),
    (lambda: finding(0), "finds", (0, 1, 0), FINDS_NOTHING),
    (finding, "finds", (0, 1, 4), FINDS_NOTHING),
    (finding, "finds", (0, 1, -2), FINDS_NOTHING),
    (tabled, "word", (-FAR, 0, 0), NO_WORD),
    (tabled, "word", (FAR, 0, 0), NO_WORD),
    (tabled, "word", (0, -1, 0), NO_WORD),
    (tabled, "word", (0, 2, 0), NO_WORD),
    (tabled, "word", (0, 0, 2), NO_WORD),
    (lambda: tabled().append(), "word", (0, 0, 0), NO_WORD),
    (lambda: tabled().tell("typical", ffi.new("int64_t[]", [8])), "word", (0, 0, 0), NO_WORD),
    (static, "leaves", (0, place(ARENA), 0, 0, NOTHING), NO_PLACE),
    (lambda: finding().tell("typical", ffi.new("int64_t[3]")), "leaves", (0, place(ARENA), 0, 0, NOTHING), NO_PLACE),
    (finding, "leaves", (-1, place(ARENA), 0, 0, NOTHING), NO_PLACE),
    (finding, "leaves", (1, place(ARENA), 0, 0, NOTHING), NO_PLACE),
    (finding, "leaves", (0, place(INPUT), 0, 0, NOTHING), NO_PLACE),
    (finding, "leaves", (0, place(ARENA, 1), 0, 0, NOTHING), NO_PLACE),
    (finding, "leaves", (0, place(ARENA), 4, 0, NOTHING), NO_PLACE),
    (finding, "leaves", (0, place(ARENA), 0, -1, NOTHING), NO_PLACE),
    (finding, "leaves", (0, place(ARENA), 0, 512, ffi.new("int64_t[]", [3] * 512)), NO_PLACE),
    (finding, "leaves", (0, place(ARENA), 0, 1, ffi.new("int64_t[]", [4])), NO_PLACE),
    (static, "typical", (ffi.new("int64_t[1]"),), "the program has no symbols, or has its sizes already"),
    (settled, "typical", (ffi.new("int64_t[1]"),), "the program has no symbols, or has its sizes already"),
    (finished, "finish", (NOTHING, 0), NOT_FINISHED),
    (static, "finish", (NOTHING, -1), NOT_FINISHED),
    (static, "finish", (NOTHING, MOST + 1), NOT_FINISHED),
]


@pytest.mark.parametrize(("draft", "call", "arguments", "message"), CALLS)
def test_descriptions_that_are_refused(draft: Callable[[], Draft], call: str, arguments: Any, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        draft().tell(call, *arguments)


@pytest.mark.parametrize(("inputs", "outputs"), [(-1, 0), (0, -1)])
def test_programs_have_no_fewer_than_no_buffers(inputs: int, outputs: int) -> None:
    with pytest.raises(RefusedError, match="a negative number of inputs or outputs"):
        Draft(None, inputs, outputs)


def test_nothing_is_appended_to_a_finished_program() -> None:
    with pytest.raises(RefusedError, match=NO_KERNEL):
        finished().append()


@pytest.mark.parametrize(
    ("operand", "message"),
    [
        ((ARENA + 1,), "operand 1: there is no operand space 5"),
        ((INPUT, -1), "operand 1: index -1 is not among the 2 buffers"),
        ((INPUT, 2), "operand 1: index 2 is not among the 2 buffers"),
        ((INPUT, 0, -1), "operand 1: offset -1 is out of range"),
        ((INPUT, 0, MOST + 1), "operand 1: offset 281474976710657 is out of range"),
        ((INPUT, 0, (1 << 63) - 1), "operand 1: offset 9223372036854775807 is out of range"),
    ],
)
def test_operands_that_are_refused(operand: tuple[int, ...], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        static().append(COPY, [(OUTPUT,), operand])


NO_CONTROL = "there is no such control flow, or the program is finished"
NO_BODY = "a body is not finished, or does not take or give what it must"


@pytest.mark.parametrize(
    ("draft", "bodies", "fields", "message"),
    [
        (lambda: static().finish(), (), {}, NO_CONTROL),
        (static, (), {"kind": IF - 1}, NO_CONTROL),
        (static, (), {"kind": LOOP + 1}, NO_CONTROL),
        (static, (), {"kind": LOOP, "carried": -1}, NO_CONTROL),
        (static, (), {"captured": -1}, NO_CONTROL),
        (static, (), {"captured": (1 << 20) + 1}, NO_CONTROL),
        (static, (), {"results": (1 << 20) + 1}, NO_CONTROL),
        (static, (), {"kind": LOOP, "carried": 1, "results": 0}, NO_CONTROL),
        (static, (), {"carried": 1}, NO_CONTROL),
        (static, (None,), {}, NO_BODY),
        (static, (copied,), {}, NO_BODY),
        (static, (leaving,), {}, NO_BODY),
        (static, (lambda: Draft(None, 2).append().finish(),), {}, NO_BODY),
        (static, (lambda: Draft(None, 1, 2).append().finish(),), {}, NO_BODY),
    ],
)
def test_control_flow_that_is_refused(draft: Callable[[], Draft], bodies: Any, fields: Any, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        draft().control([body and body() for body in bodies], **fields)


def body() -> Draft:
    """A finished program over a size, value 0; value 1 is 8."""
    draft = Draft((1, 0), 1).tell("formula", CONSTANT_FORMULA, 8, 0, 0)
    return draft.tell("buffer_size", INPUT, 0, 1).tell("buffer_size", OUTPUT, 0, 1).append().finish(8)


def looped(condition: int = 1, nbytes: int = 1) -> Draft:
    """A finished program that goes on as long as it is told to, and whose row is the number of the trip."""
    draft = Draft(None, 2, 2).append(COPY, [(OUTPUT,), (INPUT, condition)], element_size=nbytes)
    return draft.append(COPY, [(OUTPUT, 1), (INPUT,)]).finish()


def looped_over_sizes() -> Draft:
    """Likewise over a size, value 0; values 1 to 3 are 8, 1 and 16."""
    draft = Draft((1, 0), 2, 2)
    for number in (8, 1, 16):
        draft.tell("formula", CONSTANT_FORMULA, number, 0, 0)
    for space, index, value in ((INPUT, 0, 1), (INPUT, 1, 2), (OUTPUT, 0, 2), (OUTPUT, 1, 1)):
        draft.tell("buffer_size", space, index, value)
    draft.append(COPY, [(OUTPUT,), (INPUT, 1)], element_size=1)
    return draft.append(COPY, [(OUTPUT, 1), (INPUT,)]).finish(8)


LOOPED = {
    "kind": LOOP, "captured": 0, "operands": [(NONE,), (NONE,), (OUTPUT,)], "nbytes": [8, 1, 8],
    "outputs": [(-1, 1), (-1, 8)],
}  # fmt: skip
"""A loop without end whose result has room for the row of one trip."""
GROWN = LOOPED | {"nbytes": [8, 1, (-1, -1)]}
NO_BODY_VALUE = "there is no such value for a body"
NO_SIZE = "an operand has no size, or there is no such value"


def test_control_flow_that_is_accepted() -> None:
    sized().control([body(), body()], symbols=[(0, 0)], outputs=[(1, 0)])
    static().control([one_found(), one_found()], symbols=[(-1, 0)], outputs=[(1, 0)])
    sized().control([looped_over_sizes()], **LOOPED | {"symbols": [(0, 0)], "next": [1]})
    static().control([looped()], **GROWN, growths=[(1, [(-1, 8)], [(-1, 8)])])


@pytest.mark.parametrize(
    ("draft", "bodies", "fields", "message"),
    [
        (static, (body, body), {"symbols": [(0, 0)]}, NO_BODY_VALUE),
        (static, (body, body), {"symbols": [(-1, MOST + 1)]}, NO_BODY_VALUE),
        (static, (body, body), {"outputs": [(2, 0)]}, NO_BODY_VALUE),
        (static, (body, body), {"outputs": [(-1, MOST + 1)]}, NO_BODY_VALUE),
        (static, (one_found, one_found), {"symbols": [(-1, 0)], "outputs": [(0, 0)]}, NO_BODY_VALUE),
        (static, (looped_over_sizes,), LOOPED | {"next": [4]}, NO_BODY_VALUE),
        (static, (), {"nbytes": [1, 8, (0, 0)]}, NO_SIZE),
        (static, (), {"nbytes": [1, 8, MOST + 1]}, NO_SIZE),
        (static, (), {"nbytes": [1, 8, -1]}, NO_SIZE),
        (static, (), {"nbytes": [2, 8, 8]}, NO_SIZE),
        (sized, (), {"nbytes": [(1, 0), 8, 8]}, NO_SIZE),
        (static, (looped,), LOOPED | {"operands": [(INPUT,), (NONE,), (OUTPUT,)], "nbytes": [1, 1, 8]}, NO_SIZE),
        (static, (looped,), LOOPED | {"operands": [(NONE,), (INPUT,), (OUTPUT,)], "nbytes": [8, 8, 8]}, NO_SIZE),
        (static, (), {"nbytes": [1, 8, -1], "growths": [(0, [], [])]}, NO_SIZE),
        (static, (looped,), LOOPED | {"growths": [(0, [], [])]}, NO_SIZE),
        (static, (looped,), GROWN | {"growths": [(lib.TC_MAX_RANK, [(-1, 8)] * 8, [(-1, 8)] * 8)]}, NO_SIZE),
        (static, (looped,), GROWN | {"growths": [(1, [(0, 0)], [(-1, 8)])]}, NO_SIZE),
        (static, (looped,), GROWN | {"growths": [(1, [(-1, 8)], [(0, 0)])]}, NO_SIZE),
        (
            static, (looped,),
            GROWN | {"growths": [(0, [], [])], "operands": [(NONE,), (NONE,), (OUTPUT, 0, 8)]}, NO_SIZE,
        ),
        (
            static, (looped,),
            GROWN | {"growths": [(0, [], [])], "operands": [(NONE,), (NONE,), (ARENA,)]}, NO_SIZE,
        ),
    ],
)  # fmt: skip
def test_sizes_of_control_flow_that_are_refused(
    draft: Callable[[], Draft], bodies: Any, fields: Any, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        draft().control([body() for body in bodies], **fields)


@pytest.mark.parametrize(
    ("bodies", "fields", "message"),
    [
        ((), {"nbytes": [1, 4, 8]}, "the body reads 8 bytes of its input 0, which has 4"),
        ((), {"outputs": [(-1, 4)]}, "the body writes 8 bytes of its output 0, which has 4"),
        ((), {"nbytes": [1, 8, 16]}, "result 0 has 8 bytes, not 16"),
        ((), {"operands": [(INPUT, 1), (INPUT,), (NONE,)]}, "result 0 has no place"),
        ((looped,), LOOPED, "there are more rows of scan output 0 than expected"),
        ((looped,), LOOPED | {"operands": [(NONE,), (NONE,), (NONE,)]}, "result 0 has no place"),
        ((looped,), LOOPED | {"operands": [(INPUT,), (NONE,), (OUTPUT,)]}, "result 0 has 0 bytes, not 8"),
        ((lambda: looped(0, 8),), LOOPED | {"outputs": [(-1, 8)] * 2}, "the condition has 8 bytes"),
    ],
)
def test_runs_of_control_flow_that_fail(bodies: Any, fields: Any, message: str) -> None:
    draft = static().control([body() for body in bodies], **fields).finish()
    with pytest.raises(RefusedError, match=message):
        draft.run(draft.context(), ffi.new("int64_t[2]"))


@pytest.mark.parametrize(
    ("dim", "nbytes"),
    [((0, 0), (-1, 8)), ((-1, 8), (0, 0))],
    ids=["another shape of as many bytes", "other bytes of the same shape"],
)
def test_rows_that_change_from_trip_to_trip(dim: tuple[int, int], nbytes: tuple[int, int]) -> None:
    """The size is 8 in the first trip and 16 in the second."""
    changing = {"symbols": [(-1, 8)], "next": [3], "growths": [(1, [dim], [dim])], "outputs": [(-1, 1), nbytes]}
    counted = [(INPUT,), (NONE,), (OUTPUT,)]
    draft = sized().control([looped_over_sizes()], **GROWN | changing | {"operands": counted}).finish(8)
    context = draft.context()
    check(lib.tc_context_resize(context, ffi.new("int64_t[]", [8]), ANY_BYTES, draft.error), draft.error)
    draft.run(context, NOTHING, 1)
    with pytest.raises(RefusedError, match="scan output 0 changes its shape between trips"):
        draft.run(context, NOTHING, 2)


def moved(shift: int = -16) -> Draft:
    """A program over sizes with a value, the size and ``shift``, for an offset."""
    draft = sized().tell("formula", CONSTANT_FORMULA, shift, 0, 0)
    return draft.tell("formula", ADD, 0, 2, 0)


@pytest.mark.parametrize("described", [Draft.append, Draft.control], ids=["kernel", "control flow"])
def test_offsets_that_sizes_make_negative(described: Callable[[Draft], Draft]) -> None:
    draft = described(moved()).tell("offset", 1, 3).finish(16)
    draft.resize(16)
    with pytest.raises(
        RefusedError, match=r"operand 1: offset -8 is out of range|operand 1 ends at byte 0 of a buffer"
    ):
        draft.resize(8)


def test_sizes_of_operands_that_become_negative() -> None:
    draft = moved().control(nbytes=[1, (3, 0), 8]).finish(24)
    draft.resize(24)
    with pytest.raises(RefusedError, match=r"operand 1 ends at byte -8 of a buffer"):
        draft.resize(8)


@pytest.mark.parametrize(
    "draft",
    [
        lambda: found_at_last("piece", 1, NOTHING, 0),
        lambda: found_at_last("buffer_size", INPUT, 1, 1),
        lambda: found_at_last("buffer_size", OUTPUT, 0, 1),
        lambda: found_at_last(most=1),
        lambda: found_at_last(most=None),
    ],
    ids=["piece", "input", "output", "most", "nothing found"],
)
def test_memory_that_depends_on_what_is_found_out(draft: Callable[[], Draft]) -> None:
    found_at_last().finish(8, 8)
    with pytest.raises(RefusedError, match="sizes of memory follow from what is found out, or a symbol is not"):
        draft().finish(8, 8)


@pytest.mark.parametrize("above", [[-MOST], [MOST], [0]], ids=["far below", "far behind", "itself"])
def test_pieces_of_the_arena_that_lie_above_none(above: list[int]) -> None:
    with pytest.raises(RefusedError, match="the pieces of the arena lie in a circle"):
        sized().tell("piece", 1, ffi.new("int64_t[]", above), 1).finish(8)


@pytest.mark.parametrize("size", [MOST + 1, -MOST - 1])
def test_sizes_that_are_none(size: int) -> None:
    with pytest.raises(RefusedError, match=f"a size of {size}"):
        done().resize(size)


@pytest.mark.parametrize(
    ("formula", "size"),
    [((ADD, 0, 1, 0), MOST), ((ADD, 0, 2, 0), -MOST), ((MULTIPLY, 0, 0, 0), MOST)],
    ids=["above", "below", "a product that is 0 in 64 bits"],
)
def test_sizes_beyond_all_memory(formula: tuple[int, ...], size: int) -> None:
    draft = moved().tell("formula", *formula).finish(24)
    draft.resize(24)
    with pytest.raises(RefusedError, match="the sizes are too large for memory"):
        draft.resize(size)


def test_typical_sizes_that_divide_by_nothing() -> None:
    draft = sized().tell("formula", DIVIDE, 1, 0, 0).finish(0)
    draft.resize(8)
    with pytest.raises(RefusedError, match="a size that divides another is 0"):
        draft.resize(0)


def test_pieces_of_the_arena_beyond_all_memory() -> None:
    draft = Draft((1, 0)).tell("piece", 0, NOTHING, 0).tell("piece", 0, ffi.new("int64_t[1]"), 1).finish(8)
    draft.resize(8)
    with pytest.raises(RefusedError, match="the sizes are too large, or one is negative"):
        draft.resize(MOST)


def test_constants_that_are_not_aligned() -> None:
    data = ffi.new("int64_t[2]")
    draft = static().tell("add_constant", ffi.cast("char *", data) + 4, 8, False)
    with pytest.raises(RefusedError, match="operand 1: the constant is not aligned to its element size"):
        draft.append(COPY, [(OUTPUT,), (CONSTANT,)]).finish()


def test_calls_that_need_more_scratch_than_there_can_be() -> None:
    shape = ffi.new("tc_isa_shape *")
    assert lib.tc_isa_describe(lib.tc_isa_default(), shape)
    depth = MOST // ffi.sizeof("float") // shape.panel
    strides = {"a_column": 1, "b_row": 1, "b_column": 1, "a_row": depth, "c_row": 1}
    draft = static().append(
        MATMUL, [(OUTPUT,), (INPUT,), (INPUT, 1), (NONE,), (NONE,)],
        batch0=1, batch1=1, m=1, n=1, k=depth, alpha=1.0, **strides,
    )  # fmt: skip
    with pytest.raises(RefusedError, match=r"instruction 0 \(matmul_f32\): the call is too large"):
        draft.finish()


@pytest.mark.parametrize(("draft", "threads"), [(copied, 1), (finished, 0), (finished, 1025)])
def test_contexts_that_are_refused(draft: Callable[[], Draft], threads: int) -> None:
    with pytest.raises(RefusedError, match=f"the program is not finished, or {threads} threads were asked for"):
        draft().context(threads)


def test_static_programs_have_no_sizes() -> None:
    with pytest.raises(RefusedError, match="the program has no symbols"):
        finished().resize(8)


def test_runs_without_sizes() -> None:
    draft = appended().finish(8)
    with pytest.raises(RefusedError, match="the context has no sizes yet"):
        draft.run(draft.context(), ffi.new("int64_t *"))


def test_outputs_that_are_not_aligned() -> None:
    draft, memory = finished(), ffi.new("int64_t[2]")
    assert not library.address(memory) % 8
    with pytest.raises(RefusedError, match="output 0 is not aligned to its element size"):
        draft.run(draft.context(), ffi.cast("char *", memory) + 4)
    draft.run(draft.context(), memory)


@pytest.mark.parametrize("threads", [0, 1025])
def test_pools_that_are_refused(threads: int) -> None:
    error, out = ffi.new("tc_error *"), ffi.new("tc_pool **")
    with pytest.raises(RefusedError, match=f"a pool has 1 to 1024 threads, not {threads}"):
        check(lib.tc_pool_create(threads, out, error), error)


@pytest.mark.parametrize("nbytes", [0, MOST + 1])
def test_memory_whose_speed_is_not_measured(nbytes: int) -> None:
    error, rate = ffi.new("tc_error *"), ffi.new("double *")
    with pytest.raises(RefusedError, match=f"cannot read {nbytes} bytes"):
        check(lib.tc_peak_read(NOTHING, 1, nbytes, rate, error), error)
