"""The text of an exported project: C source, build files, and what a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tinycomp.export_c.actions import (
    Action,
    Call,
    Calls,
    Condition,
    Copy,
    Fill,
    Find,
    If,
    Loop,
    Place,
    Sized,
    Source,
    Word,
)
from tinycomp.export_c.ethos_u import LIBRARY
from tinycomp.export_c.processors import Processor
from tinycomp.records import dataclass, field, replace
from tinycomp.runtime.csource.source import CSource, c_comment, c_identifier, c_number
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.spec import TensorSpec, array_dtype
from tinycomp.symbolic import Expression, Formulas, Size

_C_TYPES: Mapping[np.dtype[Any], str] = {
    np.dtype(bool): "uint8_t", np.dtype(np.float32): "float", np.dtype(np.float64): "double",
    np.dtype(np.float16): "uint16_t", np.dtype(ml_dtypes.bfloat16): "uint16_t",
    **{np.dtype(f"{kind}{size}"): f"{kind}{size}_t" for kind in ("int", "uint") for size in (8, 16, 32, 64)},
}  # fmt: skip
_ROW = 24
"""Bytes in a line of the weights."""


@dataclass(frozen=True)
class Port:
    """An input or output as C sees it.

    Attributes:
        name: An identifier.
        ctype: The type of its elements.
        spec: The model's name, dtype and shape.
        elements: How many there are, or may be at most.
        dims: Its dimensions.
    """

    name: str
    ctype: str
    spec: TensorSpec
    elements: int
    dims: tuple[Size, ...]

    @property
    def is_sized(self) -> bool:
        """Whether sizes of the run decide its shape."""
        return any(isinstance(dim, Expression) for dim in self.dims)


@dataclass(frozen=True)
class Names:
    """What the project calls things.

    Attributes:
        prefix: In front of every name that it exports.
        inputs: In order.
        outputs: In order.
        sizes: What sizes of a run are called, by their names in the model.
        weights: ``"array"`` in C, ``"binary"`` for a file that the assembler includes, or ``"pointer"`` for memory that
            a caller gives.
    """

    prefix: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: Mapping[str, str]
    weights: str = "array"

    @property
    def pointers(self) -> tuple[str, ...]:
        """The arguments of a run that must be there, without the memory."""
        own = ("packed_weights",) if self.weights == "pointer" else ()
        sizes = ("sizes",) if self.sizes else ()
        return (*own, *sizes, *(port.name for port in (*self.inputs, *self.outputs)))

    @property
    def arguments(self) -> tuple[str, ...]:
        """All arguments of a run, without the memory."""
        return (*self.pointers, *(("shapes",) if self.gives_shapes else ()))

    @property
    def gives_shapes(self) -> bool:
        """Whether a run says what shapes its results have."""
        return any(port.is_sized for port in self.outputs)

    @property
    def macro(self) -> str:
        """The prefix of macros."""
        return self.prefix.upper()


def names_of(calls: Calls, prefix: str, weights: str = "array") -> Names:
    """Choose an identifier for every input and output: their names where these are identifiers, and none twice."""
    taken = {"memory", "packed_weights", "sizes", "shapes"}
    inputs, outputs = (
        _ports(specs, kind, calls.shapes[side], calls.most_bytes[side], taken)
        for side, (specs, kind) in enumerate(((calls.inputs, "in"), (calls.outputs, "out")))
    )
    sizes: dict[str, str] = {}
    for name in (*calls.sizes, *calls.found):
        plain = c_identifier(name).removeprefix("v_")
        sizes[name] = plain if plain not in sizes.values() else f"{plain}_{len(sizes)}"
    return Names(prefix, inputs, outputs, {name: sizes[name] for name in calls.sizes}, weights)


def _ports(
    specs: Sequence[TensorSpec], kind: str, shapes: Sequence[tuple[Size, ...]], most: Sequence[int], taken: set[str]
) -> tuple[Port, ...]:
    ports = []
    for number, (spec, dims, nbytes) in enumerate(zip(specs, shapes, most, strict=True)):
        plain = c_identifier(spec.name).removeprefix("v_")
        name = f"{kind}_{plain}" if len(plain) < 40 else f"{kind}_{number}"
        name = f"{name}_{number}" if name in taken else name
        taken.add(name)
        dtype = array_dtype(spec.dtype)
        ports.append(Port(name, _C_TYPES.get(dtype, "uint8_t"), spec, nbytes // dtype.itemsize, dims))
    return tuple(ports)


def header(calls: Calls, names: Names, alignment: int) -> str:
    """Return ``model.h``: what a caller needs to know."""
    upper = names.macro
    lines = [
        f"/* {c_text(f'The model {names.prefix}: its inputs, its outputs, and how to run it.')} */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_peak_comment(calls),
        f"/* Bytes of memory for a run, aligned to {upper}_ALIGNMENT; nothing in it outlives a run. */",
        f"#define {upper}_MEMORY_BYTES {max(calls.memory.size, 1)}",
        f"#define {upper}_ALIGNMENT 64",
        "/* Bytes of weights, which are never written, and what they are aligned to. */",
        f"#define {upper}_WEIGHTS_BYTES {max(len(calls.weights), 1)}",
        f"#define {upper}_WEIGHTS_ALIGNMENT {alignment}",
        "",
    ]
    for port in (*names.inputs, *names.outputs):
        most = ", at most so many elements" if port.is_sized else ""
        lines += [
            f"/* {c_text(str(port.spec))}{most} */",
            f"#define {upper}_{port.name.upper()}_ELEMENTS {port.elements}",
        ]
    lines += _structs(calls, names)
    lines += [
        "",
        f"enum {names.prefix}_status {{",
        f"  {upper}_OK = 0,",
        f"  {upper}_INVALID = 1, /* a pointer is NULL, or the memory is not aligned */",
        f"  {upper}_FAILED = 2,  /* the data does not fit the model, such as an index out of range */",
        f"  {upper}_SIZES = 3    /* a size is out of its bounds, or sizes do not fit each other */",
        "};",
        "",
        "/* Runs the model in the caller's memory: as many runs at a time as there are memories. Tensors are row-major",
        " * and aligned to their elements; outputs overlap nothing."
        + (" Shapes may be NULL." if names.gives_shapes else "")
        + f" Returns an enum {names.prefix}_status. */",
        f"int {names.prefix}_run_in(void *memory, {_parameters(names)});",
        "",
        f"#ifndef {upper}_NO_STATIC_MEMORY",
        "/* The same in memory of the project's own: one run at a time. */",
        f"int {names.prefix}_run({_parameters(names)});",
        "#endif",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _peak_comment(calls: Calls) -> list[str]:
    peak = calls.memory.peak
    if peak is None:
        return []
    text = f"Most of it is in use in step {peak.step}, {peak.kernel}: {', '.join(peak.sources)}"
    return [c_comment(text)]


def _structs(calls: Calls, names: Names) -> list[str]:
    """Return what a run is told of sizes, and tells of them."""
    lines: list[str] = []
    if names.sizes:
        lines += [
            "",
            "/* Sizes that a run chooses; the inputs have these dimensions. */",
            f"typedef struct {names.prefix}_sizes {{",
        ]
        for name, (least, most) in calls.sizes.items():
            lines.append(f"  int64_t {names.sizes[name]}; /* {c_text(name)}, {least} to {most} */")
        lines.append(f"}} {names.prefix}_sizes;")
    if names.gives_shapes:
        lines += ["", "/* Dimensions of results, which a run says. */", f"typedef struct {names.prefix}_shapes {{"]
        for port in names.outputs:
            if port.is_sized:
                dims = ", ".join(map(str, port.dims))
                lines.append(f"  int64_t {port.name}[{len(port.dims)}]; /* {c_text(dims)} */")
        lines.append(f"}} {names.prefix}_shapes;")
    return lines


def _parameters(names: Names) -> str:
    inputs = ["const void *packed_weights"] if names.weights == "pointer" else []
    inputs += [f"const {names.prefix}_sizes *sizes"] if names.sizes else []
    inputs += [f"const {port.ctype} *{port.name}" for port in names.inputs]
    shapes = [f"{names.prefix}_shapes *shapes"] if names.gives_shapes else []
    return ", ".join([*inputs, *(f"{port.ctype} *{port.name}" for port in names.outputs), *shapes])


def c_text(text: str) -> str:
    """Return text for the inside of a comment."""
    return c_comment(text).removeprefix("/*").removesuffix("*/").strip()


def source(calls: Calls, names: Names) -> str:
    """Return ``model.c``: the parameters of every call, and the calls in order."""
    lines = [
        "/* The kernel calls of the model, in order. */",
        f'#include "{names.prefix}.h"',
        "",
        *([f'#include "{names.prefix}_kernels.h"'] if calls.kernels else ["#include <string.h>"]),
        *([] if names.weights == "pointer" else [f'#include "{names.prefix}_weights.h"']),
        "",
    ]
    kernel_calls = calls.calls
    writer = _Writer(names, calls)
    lines += writer.parameters()
    for number, _ in enumerate(calls.sources):
        lines.append(f"int {names.prefix}_part_{number}({PART_SIGNATURE});")
    lines += ["", f"int {names.prefix}_run_in(void *memory, {_parameters(names)}) {{"]
    pointers = names.pointers
    missing = " || ".join(f"!{pointer}" for pointer in ("memory", *pointers))
    lines += [
        f"  if ({missing} || (uintptr_t)memory % {names.macro}_ALIGNMENT) {{",
        f"    return {names.macro}_INVALID;",
        "  }",
        "  unsigned char *const arena = memory;",
        "  (void)arena;",
    ]
    if names.weights == "pointer":
        lines += [
            f"  if ((uintptr_t)packed_weights % {names.macro}_WEIGHTS_ALIGNMENT) {{",
            f"    return {names.macro}_INVALID;",
            "  }",
            "  const unsigned char *const weights = packed_weights;",
        ]
    else:
        lines.append(f"  const unsigned char *const weights = {names.prefix}_weights;")
    lines.append("  (void)weights;")
    if kernel_calls:  # one for all calls, because compilers keep those of different blocks side by side on the stack
        lines += [
            "  const char *failure = NULL;",
            f"  void *operands[{max(len(call.operands) for call in kernel_calls)}];",
            f"  tc_call call = {{NULL, operands, NULL, NULL, {calls.cache}, &failure}};",
        ]
    if writer.expanded:
        members = [f"    tc_{kernel}_params {kernel};" for kernel in writer.expanded]
        lines += ["  union {", *members, "  } whole;"]
    lines += writer.sizes("  ")
    lines += writer.actions(calls.steps, "  ")
    lines += writer.shapes("  ")
    lines += [f"  return {names.macro}_OK;", "}", ""]
    lines += [
        f"#ifndef {names.macro}_NO_STATIC_MEMORY",
        f"int {names.prefix}_run({_parameters(names)}) {{",
        f"  static _Alignas({names.macro}_ALIGNMENT) unsigned char memory[{names.macro}_MEMORY_BYTES];",
        f"  return {names.prefix}_run_in(memory, {', '.join(names.arguments)});",
        "}",
        "#endif",
        "",
    ]
    return "\n".join(lines)


PART_SIGNATURE = "const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch"


def part(source: CSource, number: int, names: Names) -> str:
    """Return the code of another target, under a name of the project's."""
    own = f"{names.prefix}_part_{number}"
    return f"""\
/* A part of the model as another target's code generator wrote it; compiled with -ffp-contract=off. */
#define {source.function} {own}_function
{source.text}
int {own}({PART_SIGNATURE});
int {own}({PART_SIGNATURE}) {{
  return {own}_function(inputs, outputs, constants, scratch);
}}
"""


def _number(value: float, kind: type) -> str:
    return c_number(value, "float32" if kind is float else "int64")


def _params(call: Call) -> str:
    fields = kernel_named(call.kernel).fields
    parts = [
        f".{name} = {_number(value, fields[name])}"
        for name, value in call.params.items()
        if fields[name] is float or value
    ]
    return f"{{{', '.join(parts)}}}" if parts else "{0}" if fields else ""


_LONGEST_PERIOD = 24
"""Calls in a row that are recognised when they come again."""
_FEWEST_SAVED = 3
"""Calls that a loop must save."""


@dataclass
class _Writer:
    """Writes actions as C.

    Attributes:
        names: What the project calls things.
        calls: What it does.
        params: Names of parameters, by kernel and value.
        loops: How many loops there are so far, which names their variables.
    """

    names: Names
    calls: Calls
    params: dict[tuple[str, str], str] = field(default_factory=dict)
    loops: int = 0

    def __post_init__(self) -> None:
        self._formulas = Formulas((*self.calls.sizes, *self.calls.found))
        self._computed = 0  # of the formulas
        self._ahead: list[str] = []  # lines that must stand in front of the action at hand
        self.expanded: list[str] = []  # kernels of whose parameters only those are kept that differ

    def parameters(self) -> list[str]:
        """Return the parameters of all calls as constants, each once, and what expands those that are kept in part."""
        by_kernel: dict[str, dict[str, Call]] = {}
        for call in self.calls.calls:
            if call.sized is None and (value := _params(call)):
                by_kernel.setdefault(call.kernel, {}).setdefault(value, call)
        lines: list[str] = []
        for kernel, calls in by_kernel.items():
            few = _Few.of(kernel, [call.params for call in calls.values()])
            if few is not None:
                self.expanded.append(kernel)
                lines += few.lines()
            for value, call in calls.items():
                name = self.params[kernel, value] = f"parameters_{len(self.params)}"
                held = f"tc_{kernel}_params {name} = {value}" if few is None else few.constant(name, call.params)
                lines.append(f"static const {held};")
        return lines

    def sizes(self, indent: str) -> list[str]:
        """Return lines that read and check the sizes of a run."""
        lines = []
        for number, (name, (least, most)) in enumerate(self.calls.sizes.items()):
            lines += [
                f"{indent}const int64_t {self._value(number)} = sizes->{self.names.sizes[name]};",
                *self._unless(indent, f"{self._value(number)} < {least} || {self._value(number)} > {most}", "SIZES"),
            ]
        return lines

    def shapes(self, indent: str) -> list[str]:
        """Return lines that say what shapes the results have."""
        lines = [
            f"{indent}  shapes->{port.name}[{axis}] = {self._size(dim)};"
            for port in self.names.outputs
            if port.is_sized
            for axis, dim in enumerate(port.dims)
        ]
        lines = [f"{indent}if (shapes) {{", *lines, f"{indent}}}"] if lines else []
        return [*self._before(indent), *lines]

    def _value(self, number: int) -> str:
        """Return what a value is called."""
        if number < len(self.calls.sizes):
            return f"size_{number}"
        shown = len(self._formulas.symbols)
        if number < shown:
            return f"found_{number - len(self.calls.sizes)}"
        name, operands = self._formulas.operations[number - shown]
        return str(operands[0]) if name == "constant" else f"value_{number - shown}"

    def _size(self, size: Size) -> str:
        """Return an expression for a size; what it is computed from goes in front of the action at hand."""
        if isinstance(size, int):
            return str(size)
        number = self._formulas.add(size)
        for index in range(self._computed, len(self._formulas.operations)):
            name, operands = self._formulas.operations[index]
            if name != "constant":
                self._ahead += self._computation(index, name, [self._value(each) for each in operands])
        self._computed = len(self._formulas.operations)
        return self._value(number)

    def _computation(self, index: int, name: str, operands: Sequence[str]) -> list[str]:
        to, (a, b, *rest) = self._value(len(self._formulas.symbols) + index), operands
        if name == "divide":
            floor = f"{a} / {b} - ({a} % {b} < 0)"
            return [*self._unless("", f"{b} <= 0", "SIZES"), f"const int64_t {to} = {floor};"]
        value = {
            "add": f"{a} + {b}", "multiply": f"{a} * {b}", "min": f"{a} < {b} ? {a} : {b}",
            "max": f"{a} > {b} ? {a} : {b}", "ifzero": f"{a} == 0 ? {b} : {''.join(rest)}",
        }[name]  # fmt: skip
        return [f"const int64_t {to} = {value};"]

    def _unless(self, indent: str, wrong: str, status: str) -> list[str]:
        status = status if self.names.sizes else "FAILED"
        return [f"{indent}if ({wrong}) {{", f"{indent}  return {self.names.macro}_{status};", f"{indent}}}"]

    def _before(self, indent: str) -> list[str]:
        """Return the lines that must stand in front of the action at hand."""
        lines, self._ahead = [indent + line for line in self._ahead], []
        return lines

    def actions(self, steps: Sequence[Action], indent: str) -> list[str]:
        """Return lines for some actions; calls that come again and again, in steady strides, are a loop."""
        lines: list[str] = []
        at = 0
        while at < len(steps):
            period, times = _repetition(steps, at)
            if times > 1:
                index = self._variable("i")
                lines.append(f"{indent}for (ptrdiff_t {index} = 0; {index} < {times}; {index}++) {{")
                for here, following in zip(steps[at : at + period], steps[at + period :], strict=False):
                    if isinstance(here, Call) and isinstance(following, Call):
                        lines += self._call(here, f"{indent}  ", index, following)
                    elif isinstance(here, Copy) and isinstance(following, Copy):
                        lines.append(f"{indent}  {self._copy(here, index, following)}")
                lines.append(f"{indent}}}")
                at += period * times
            else:
                action = self._action(steps[at], indent)
                lines += [*self._before(indent), *action]
                at += 1
        return lines

    def _variable(self, kind: str) -> str:
        self.loops += 1
        return f"{kind}{self.loops}"

    def _action(self, step: Action, indent: str) -> list[str]:
        if isinstance(step, Call):
            return self._call(step, indent) if step.sized is None else self._sized_call(step, step.sized, indent)
        if isinstance(step, Word):
            to, value = self._pointer(step.place), self._size(step.value)
            return [f"{indent}memcpy({to}, &(int64_t){{{value}}}, sizeof(int64_t));"]
        if isinstance(step, Find):
            return self._find(step, indent)
        if isinstance(step, Condition):
            wrong = self._unless(indent, f"{self._size(step.value)} != 0", "SIZES" if step.is_shown else "FAILED")
            return [indent + c_comment(step.text), *wrong]
        if isinstance(step, Fill):
            return [f"{indent}memset({self._pointer(step.place)}, {step.value}, {self._bytes(step.nbytes)});"]
        if isinstance(step, Copy):
            return [indent + self._copy(step)]
        if isinstance(step, Source):
            return self._source(step, indent)
        return self._if(step, indent) if isinstance(step, If) else self._loop(step, indent)

    def _bytes(self, nbytes: Size) -> str:
        return str(nbytes) if isinstance(nbytes, int) else f"(size_t){self._size(nbytes)}"

    def _find(self, step: Find, indent: str) -> list[str]:
        name = self._value(len(self.calls.sizes) + self.calls.found.index(step.symbol))
        most = self._size(step.most)
        return [
            f"{indent}int64_t {name};",
            f"{indent}memcpy(&{name}, {self._pointer(step.place)}, sizeof({name}));",
            *self._unless(indent, f"{name} < 0 || {name} > {most}", "FAILED"),
        ]

    def _sized_call(self, step: Call, sized: Sized, indent: str) -> list[str]:
        """Return lines for a call that is planned in every run."""
        fields, name = kernel_named(step.kernel).fields, f"TC_NAME(tc_{step.kernel})"
        values = [
            f".{key} = " + (self._size(value) if isinstance(value, Expression) else _number(value, fields[key]))
            for key, value in step.params.items()
            if fields[key] is float or value != 0
        ]
        pack = "NULL" if sized.state.base == "absent" else f"TC_NAME(tc_{step.kernel}_pack)"
        spaces = ", ".join(f"{{TC_{space.upper()}, 0, 0}}" for space in sized.spaces)
        state = "NULL" if step.state is None else f"weights + {step.state}"
        inside = f"{indent}  "
        return [
            indent + "{ " + c_comment(": ".join([step.kernel, *([", ".join(step.sources)] if step.sources else [])])),
            *(
                [f"{inside}const tc_{step.kernel}_params parameters = {{{', '.join(values) or '0'}}};"]
                if fields
                else []
            ),
            f"{inside}static const tc_sized kernel = {{TC_NAME(tc_{step.kernel}_prepare), {pack}, {name}, "
            f"{len(step.operands)}}};",
            f"{inside}static const tc_operand places[] = {{{spaces}}};",
            f"{inside}const int64_t bytes[] = {{{', '.join(map(self._size, sized.nbytes))}}};",
            *(f"{inside}operands[{number}] = {self._pointer(place)};" for number, place in enumerate(step.operands)),
            f"{inside}call.params = {'&parameters' if fields else 'NULL'};",
            f"{inside}call.state = {state};",
            f"{inside}call.scratch = {self._pointer(step.scratch)};",
            f"{inside}if (!tc_run_sized(&kernel, &call, places, bytes, {self._pointer(sized.state)}, "
            f"{sized.state_bytes}, {sized.scratch_bytes}) || failure) {{",
            f"{inside}  return {self.names.macro}_FAILED;",
            f"{inside}}}",
            f"{indent}}}",
        ]

    def _pointer(self, place: Place, moved: str = "") -> str:
        return _pointer(place, self._size(place.offset), self.names, moved)

    def _moving(self, places: Sequence[Place], nexts: Sequence[Place], index: str) -> list[str]:
        """Return places in a loop, given those of the next round."""
        return [
            self._pointer(place, f" + {after.offset - place.offset} * {index}" if after != place else "")
            for place, after in zip(places, nexts, strict=True)
        ]

    def _copy(self, step: Copy, index: str = "", following: Copy | None = None) -> str:
        after = following or step
        to, source = self._moving([step.to, step.source], [after.to, after.source], index)
        return f"memcpy({to}, {source}, {self._bytes(step.nbytes)});"

    def _call(self, step: Call, indent: str, index: str = "", following: Call | None = None) -> list[str]:
        """Return lines for a call; in a loop, ``following`` is the one that comes in its place in the next round."""
        value = self.params.get((step.kernel, _params(step)))
        what = ": ".join([step.kernel, *([", ".join(step.sources)] if step.sources else [])])
        places = [*step.operands, step.scratch]
        nexts = places if following is None else [*following.operands, following.scratch]
        texts = self._moving(places, nexts, index)
        return [
            f"{indent}{c_comment(what)}",
            *(f"{indent}operands[{number}] = {text};" for number, text in enumerate(texts[:-1])),
            f"{indent}call.params = {self._kept(step.kernel, value)};",
            indent + ("call.state = NULL;" if step.state is None else f"call.state = weights + {step.state};"),
            f"{indent}call.scratch = {texts[-1]};",
            f"{indent}TC_NAME(tc_{step.kernel})(&call, 0, {step.units});",
            f"{indent}if (failure) {{",
            f"{indent}  return {self.names.macro}_FAILED;",
            f"{indent}}}",
        ]

    def _kept(self, kernel: str, name: str | None) -> str:
        """Return a pointer to parameters that are kept under a name."""
        if name is None:
            return "NULL"
        return f"expand_{kernel}(&whole.{kernel}, &{name})" if kernel in self.expanded else f"&{name}"

    def _source(self, step: Source, indent: str) -> list[str]:
        def array(name: str, kind: str, places: Sequence[Place]) -> str:
            items = ", ".join(map(self._pointer, places)) or "NULL"
            return f"{indent}  {kind} {name}[] = {{{items}}};"

        name = f"{self.names.prefix}_part_{step.number}"
        return [
            indent + "{ " + c_comment(", ".join(step.sources) or name),
            array("inputs", "const void *const", step.inputs),
            array("outputs", "void *const", step.outputs),
            array("constants", "const void *const", step.constants),
            f"{indent}  if ({name}(inputs, outputs, constants, {self._pointer(step.scratch)})) {{",
            f"{indent}    return {self.names.macro}_FAILED;",
            f"{indent}  }}",
            f"{indent}}}",
        ]

    def _if(self, step: If, indent: str) -> list[str]:
        one, other = (self.actions(body, f"{indent}  ") for body in step.bodies)
        return [
            indent + c_comment("if: " + ", ".join(step.sources)),
            f"{indent}if (*(const unsigned char *)({self._pointer(step.condition)})) {{",
            *one,
            f"{indent}}} else {{",
            *other,
            f"{indent}}}",
        ]

    def _loop(self, step: Loop, indent: str) -> list[str]:
        trip, limit, goes_on = self._variable("trip"), self._variable("limit"), self._variable("goes_on")
        lines = [
            indent + c_comment("loop: " + ", ".join(step.sources)),
            f"{indent}int64_t {limit} = INT64_MAX, {trip} = 0;",
        ]
        if step.limit.base != "absent":
            lines.append(f"{indent}memcpy(&{limit}, {self._pointer(step.limit)}, sizeof({limit}));")
        begins = (
            "1" if step.condition.base == "absent" else f"*(const unsigned char *)({self._pointer(step.condition)})"
        )
        lines.append(f"{indent}unsigned char {goes_on} = {begins};")
        lines += [
            f"{indent}for (; {goes_on} && {trip} < {limit}; {trip}++) {{",
            *self._rows_end(step, f"{indent}  ", f"{trip} >= {step.trips}"),
            f"{indent}  memcpy({self._pointer(step.trip)}, &{trip}, sizeof({trip}));",
            *self.actions(step.body, f"{indent}  "),
            f"{indent}  {goes_on} = *(const unsigned char *)({self._pointer(step.goes_on)});",
            *(f"{indent}  " + self._copy(row, trip, replace(row, to=row.to.at(row.nbytes))) for row in step.rows),
            f"{indent}}}",
            *self._rows_end(step, indent, f"{trip} != {step.trips}"),
        ]
        return lines

    def _rows_end(self, step: Loop, indent: str, wrong: str) -> list[str]:
        """Return the check that there are as many trips as the results have rows."""
        if step.trips is None:
            return []
        return [f"{indent}if ({wrong}) {{", f"{indent}  return {self.names.macro}_FAILED;", f"{indent}}}"]


_FEWEST_BYTES = 1024
"""Bytes that keeping a part of the parameters must save."""
_INTEGERS = tuple(
    (f"{sign}int{size}_t", size // 8, low, high)
    for size in (8, 16, 32, 64)
    for sign, low, high in (("", -(1 << size - 1), (1 << size - 1) - 1), ("u", 0, (1 << size) - 1))
)
"""Types with their bytes and their range, narrow ones first."""


@dataclass(frozen=True)
class _Few:
    """The parameters of a kernel that its calls do not share, as a struct of narrow numbers.

    Attributes:
        kernel: The kernel.
        common: The parameters that all calls share.
        types: Names and C types of the others, wide ones first.
    """

    kernel: str
    common: Mapping[str, float]
    types: Mapping[str, str]

    @classmethod
    def of(cls, kernel: str, params: Sequence[Mapping[str, float]]) -> _Few | None:
        """Return how to keep so many calls' parameters in fewer bytes; None if that does not save enough."""
        fields = kernel_named(kernel).fields
        found: list[tuple[int, str, str]] = []
        common = {name: params[0][name] for name in fields}
        for name, kind in fields.items():
            values = [each[name] for each in params]
            if all(value == values[0] for value in values):
                continue
            del common[name]
            if kind is float:
                found.append((4, name, "float"))
            else:
                fits = (each for each in _INTEGERS if each[2] <= min(values) and max(values) <= each[3])
                ctype, nbytes, _, _ = next(fits)
                found.append((nbytes, name, ctype))
        found.sort(key=lambda each: -each[0])
        whole = sum(4 if kind is float else 8 for kind in fields.values())
        narrow = sum(nbytes for nbytes, _, _ in found)
        if (len(params) - 1) * whole - len(params) * narrow < _FEWEST_BYTES:
            return None
        return cls(kernel, common, {name: ctype for _, name, ctype in found})

    def lines(self) -> list[str]:
        """Return the struct, what all calls share, and the function that makes parameters of both."""
        signature = f"const void *expand_{self.kernel}(tc_{self.kernel}_params *p, const few_{self.kernel} *few)"
        shared = {name: value for name, value in self.common.items() if value}
        fields = kernel_named(self.kernel).fields
        values = ", ".join(f".{name} = {_number(value, fields[name])}" for name, value in shared.items()) or "0"
        return [
            f"typedef struct few_{self.kernel} {{",
            *(f"  {ctype} {name};" for name, ctype in self.types.items()),
            f"}} few_{self.kernel};",
            "#ifdef __GNUC__",
            f"static __attribute__((noinline)) {signature};",
            "#endif",
            f"static {signature} {{",
            f"  static const tc_{self.kernel}_params common = {{{values}}};",
            "  *p = common;",
            *(f"  p->{name} = few->{name};" for name in self.types),
            "  return p;",
            "}",
        ]

    def constant(self, name: str, params: Mapping[str, float]) -> str:
        """Return the definition of one call's part."""
        fields = kernel_named(self.kernel).fields
        values = ", ".join(_number(params[each], fields[each]) for each in self.types)
        return f"few_{self.kernel} {name} = {{{values}}}"


def _repetition(steps: Sequence[Action], at: int) -> tuple[int, int]:
    """Return how many calls from one on come again, and how often they come in all."""
    best, saved = (1, 1), _FEWEST_SAVED - 1
    for period in range(1, min(_LONGEST_PERIOD, (len(steps) - at) // 2) + 1):
        times = 1
        while at + (times + 1) * period <= len(steps) and all(
            _follows(steps, at + offset, period, times) for offset in range(period)
        ):
            times += 1
        if (times - 1) * period > saved:
            best, saved = (period, times), (times - 1) * period
    return best


def _apart(step: Action) -> tuple[tuple[Any, ...], tuple[Place, ...]] | None:
    """Return what a step of a loop must have in common with others, and its places; None if it is in no loop."""
    if isinstance(step, Copy):
        numbers = (step.nbytes, step.to.offset, step.source.offset)
        return ((step.nbytes,), (step.to, step.source)) if all(isinstance(n, int) for n in numbers) else None
    if isinstance(step, Call) and step.sized is None:
        return (step.kernel, step.params, step.state, step.units), (*step.operands, step.scratch)
    return None


def _follows(steps: Sequence[Action], at: int, period: int, times: int) -> bool:
    """Tell whether a call ``times`` periods later is the same one, as much further on as all of them are."""
    same = [_apart(steps[place]) for place in (at, at + period, at + times * period)]
    first, second, last = same
    if first is None or second is None or last is None or not first[0] == second[0] == last[0]:
        return False
    triples = zip(first[1], second[1], last[1], strict=True)
    return all(
        (one.base, one.index) == (other.base, other.index) == (two.base, two.index)
        and other.offset - one.offset == times * (two.offset - one.offset)
        for one, two, other in triples
    )


def _pointer(place: Place, offset: str, names: Names, moved: str = "") -> str:
    """Return an expression for a place; ``moved`` adds bytes to it, such as ``" + i * 64"``."""
    if place.base == "absent":
        return "NULL"
    if place.base == "arena":
        return f"arena + {offset}{moved}"
    if place.base == "weights":
        return f"(void *)(uintptr_t)(weights + {offset}{moved})"
    if place.base == "input":
        base = f"(void *)(uintptr_t){names.inputs[place.index].name}"
    else:
        base = f"(void *){names.outputs[place.index].name}"
    return f"(unsigned char *){base} + {offset}{moved}" if offset != "0" or moved else base


def kernels(
    called: Iterable[str], headers: tuple[Sequence[str], Sequence[str]], definitions: Mapping[str, str],
    processor: Processor, names: Names, is_sized: bool = False,
) -> str:  # fmt: skip
    """Return the header that makes the kernels part of ``model.c``.

    Args:
        called: The kernels.
        headers: Their files: of those that have most to do, and of others, which small processors have short.
        definitions: Macros that choose variants of them.
        processor: What they are for.
        names: What the project calls things.
        is_sized: Whether calls depend on the sizes of a run.
    """
    lines = [
        "/* The kernels that the model calls, for one instruction set. */",
        f"#ifndef {names.macro}_KERNELS_H",
        f"#define {names.macro}_KERNELS_H",
        "",
        "#define TC_STANDALONE 1",
        *(["#define TC_SIZED 1"] if is_sized else []),
        "#include <math.h>",
        "#include <string.h>",
        "",
        *processor.guard,
        '#include "kernel.h"',
        *([f"#include <{processor.intrinsics}>"] if processor.intrinsics else []),
        *[f'#include "{name}"' for name in processor.vocabulary],
        "",
        f"#define TC_ISA_SUFFIX {processor.isa}",
        '#include "vocabulary.h"',
        "",
        *[f"#define {name} {value}".rstrip() for name, value in definitions.items()],
        "",
        "#ifdef __GNUC__ /* what kernels need of the stack they shall not all need at once */",
        "#define DECLARE(name) static __attribute__((noinline)) void name(const tc_call *, int64_t, int64_t)",
        *[f"DECLARE(TC_NAME(tc_{kernel}));" for kernel in called],
        "#undef DECLARE",
        "#endif",
        "",
        "/* Kernels share headers: what this model does not call is not used, and compilers leave it out. */",
        "#ifdef __GNUC__",
        "#pragma GCC diagnostic push",
        '#pragma GCC diagnostic ignored "-Wunused-function"',
        '#pragma GCC diagnostic ignored "-Wunused-const-variable"',
        '#pragma GCC diagnostic ignored "-Wunknown-pragmas"',
        "#ifndef __clang__ /* which takes counts for negative without optimisation */",
        '#pragma GCC diagnostic ignored "-Wstringop-overflow"',
        "#endif",
        "#endif",
        f'#include "runtime/src/{"sized" if is_sized else "standalone"}.h"',
        '#include "runtime/src/rows.c"',
        *[f'#include "runtime/{name}"' for name in headers[0]],
        *_short([f'#include "runtime/{name}"' for name in headers[1]], processor),
        "#ifdef __GNUC__",
        "#pragma GCC diagnostic pop",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _short(lines: Sequence[str], processor: Processor) -> list[str]:
    """Return lines of C that a small processor has in few bytes, where the compiler knows how to be told."""
    if not lines or not processor.is_small:
        return [*lines]
    knows = "#if defined(__GNUC__) && !defined(__clang__)"
    begin = [knows, "#pragma GCC push_options", '#pragma GCC optimize("Os")', "#endif"]
    return [*begin, *lines, knows, "#pragma GCC pop_options", "#endif"]


def weights_header(names: Names) -> str:
    """Return the declaration of the weights."""
    lines = [
        "/* Packed weights and constants. */",
        f"#ifndef {names.macro}_WEIGHTS_H",
        f"#define {names.macro}_WEIGHTS_H",
        "",
        f'#include "{names.prefix}.h"',
        "",
        f"extern const unsigned char {names.prefix}_weights[]; /* {names.macro}_WEIGHTS_BYTES */",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def weights(calls: Calls, names: Names, processor: Processor) -> str:
    """Return ``weights.c``: all that never changes, in a section that a linker script can place."""
    data = calls.weights or b"\0"
    rows = (data[at : at + _ROW] for at in range(0, len(data), _ROW))
    attributes = f"{names.macro}_WEIGHTS_ATTRIBUTES"
    order = "as the kernels read them"
    if names.weights == "binary":
        return f"""\
/* Packed weights and constants, {order}: {names.prefix}_weights.bin, which the assembler looks for where
 * it runs and in the folders of -I. */
#include "{names.prefix}_weights.h"

#ifndef {names.macro}_WEIGHTS_SECTION
#define {names.macro}_WEIGHTS_SECTION ".rodata.{names.prefix}_weights, \\"a\\""
#endif

__asm__(".section " {names.macro}_WEIGHTS_SECTION "\\n"
        ".balign {processor.alignment}\\n"
        ".global {names.prefix}_weights\\n"
        "{names.prefix}_weights:\\n"
        ".incbin \\"{names.prefix}_weights.bin\\"\\n"
        ".text\\n");
"""
    return "\n".join(
        [
            f"/* Packed weights and constants, {order}. */",
            f'#include "{names.prefix}_weights.h"',
            "",
            f'#ifndef {attributes} /* such as __attribute__((section(".qspi"))) */',
            f"#define {attributes}",
            "#endif",
            "",
            f"_Alignas({processor.alignment}) {attributes} const unsigned char "
            f"{names.prefix}_weights[{names.macro}_WEIGHTS_BYTES] = {{",
            *[f"  {','.join(map(str, row))}," for row in rows],
            "};",
            "",
        ]
    )


@dataclass(frozen=True)
class Case:
    """A run whose results are known.

    Attributes:
        sizes: The sizes that it chooses, by name.
        feeds: Its inputs, in order.
        results: Its results, in order.
    """

    sizes: Mapping[str, int]
    feeds: Sequence[np.ndarray[Any, Any]]
    results: Sequence[np.ndarray[Any, Any]]


def test(names: Names, cases: Sequence[Case]) -> str:
    """Return ``test.c``: runs on inputs whose results are known."""
    lines = [
        "/* Runs the model on inputs whose results are known. Integers must be equal, floats close. */",
        "#include <math.h>",
        "#include <stdio.h>",
        "",
        f'#include "{names.prefix}.h"',
        "",
    ]
    numbered = [("" if len(cases) == 1 else f"_{number}", case) for number, case in enumerate(cases)]
    for suffix, case in numbered:
        for port, array in zip(names.inputs, case.feeds, strict=True):
            lines.append(_array(port, f"{port.name}_data{suffix}", array))
        for port, array in zip(names.outputs, case.results, strict=True):
            lines.append(_array(port, f"{port.name}_expected{suffix}", array))
    lines += [f"static {port.ctype} {port.name}_result[{max(port.elements, 1)}];" for port in names.outputs]
    lines += [
        "",
        "#ifdef TEST_SETUP /* of a board: what must happen before and after a run, such as counting instructions */",
        "void test_begin(void);",
        "void test_end(void);",
        "#else",
        "static void test_begin(void) {}",
        "static void test_end(void) {}",
        "#endif",
        "",
        "int main(void) {",
        *(_read_weights(names) if names.weights == "pointer" else []),
        "  long wrong = 0;",
    ]
    for suffix, case in numbered:
        lines += _case(names, suffix, case)
    total = sum(array.size for case in cases for array in case.results)
    lines += [
        f'  printf("%ld of {total} results differ\\n", wrong);',
        "  return wrong != 0;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _case(names: Names, suffix: str, case: Case) -> list[str]:
    """Return lines that make a run and look at its results."""
    given = {"weights": ["weights"]} if names.weights == "pointer" else {}
    arguments = [
        *given.get("weights", []), *(["&sizes"] if names.sizes else []),
        *(f"{port.name}_data{suffix}" for port in names.inputs), *(f"{port.name}_result" for port in names.outputs),
        *(["&shapes"] if names.gives_shapes else []),
    ]  # fmt: skip
    lines = ["  {"]
    if names.sizes:
        chosen = ", ".join(f".{names.sizes[name]} = {size}" for name, size in case.sizes.items())
        lines.append(f"    const {names.prefix}_sizes sizes = {{{chosen}}};")
    if names.gives_shapes:
        lines.append(f"    {names.prefix}_shapes shapes;")
    lines += [
        "    test_begin();",
        f"    const int status = {names.prefix}_run({', '.join(arguments)});",
        "    test_end();",
        f"    if (status != {names.macro}_OK) {{",
        '      printf("the run failed with status %d\\n", status);',
        "      return 1;",
        "    }",
    ]
    for port, array in zip(names.outputs, case.results, strict=True):
        x, y = f"{port.name}_result[i]", f"{port.name}_expected{suffix}[i]"
        same = f"{x} == {y}"
        if port.ctype in ("float", "double"):
            near = f"fabs((double){x} - (double){y}) <= 1e-5 + 1e-5 * fabs((double){y})"
            same = f"({same} || {near} || ({x} != {x} && {y} != {y}))"
        if port.is_sized:
            lines += [f"    wrong += shapes.{port.name}[{axis}] != {dim};" for axis, dim in enumerate(array.shape)]
        lines += [f"    for (long i = 0; i < {array.size}; i++) {{", f"      wrong += !({same});", "    }"]
    return [*lines, "  }"]


def _read_weights(names: Names) -> list[str]:
    """Return lines that read the weights from the project's file."""
    upper = names.macro
    return [
        f"  static _Alignas({upper}_WEIGHTS_ALIGNMENT) unsigned char weights[{upper}_WEIGHTS_BYTES];",
        f'  FILE *file = fopen("{names.prefix}_weights.bin", "rb");',
        "  if (!file || fread(weights, 1, sizeof(weights), file) != sizeof(weights)) {",
        f'    printf("there is no {names.prefix}_weights.bin here\\n");',
        "    return 1;",
        "  }",
        "  fclose(file);",
    ]


def _array(port: Port, name: str, array: np.ndarray[Any, Any]) -> str:
    flat = np.ascontiguousarray(array).reshape(-1)
    if port.ctype not in ("float", "double"):
        flat = flat.view(np.dtype(port.ctype.removesuffix("_t"))) if flat.size else flat.astype(np.uint8)
    dtype = {"float": "float32", "double": "float64"}.get(port.ctype, "int64")
    values = [c_number(value.item(), dtype) for value in flat] or ["0"]
    rows = [", ".join(values[at : at + 12]) for at in range(0, len(values), 12)]
    return f"static const {port.ctype} {name}[{max(flat.size, 1)}] = {{\n  " + ",\n  ".join(rows) + "};"


def makefile(calls: Calls, names: Names, processor: Processor) -> str:
    """Return a Makefile that builds a library and its test."""
    parts = [f"{names.prefix}_part_{number}" for number in range(len(calls.sources))]
    stems = [names.prefix, *([] if names.weights == "pointer" else [f"{names.prefix}_weights"]), *parts]
    objects = " ".join(f"{stem}.o" for stem in stems)
    flags = "".join(
        f"""
{part}.o: {part}.c
\t$(CC) $(ALL_CFLAGS) -ffp-contract=off {" ".join(source.flags)} -c $< -o $@
"""
        for part, source in zip(parts, calls.sources, strict=True)
    )
    packed = f" {names.prefix}_weights.bin" if names.weights == "binary" else ""
    kernels = f" {names.prefix}_kernels.h" if calls.kernels else ""
    weights = f"""
{names.prefix}_weights.o: {names.prefix}_weights.c {names.prefix}.h{packed}
\t$(CC) $(ALL_CFLAGS) $(INCLUDES) -c $< -o $@
"""
    libraries = " ".join(f"-l{library}" for library in _libraries(calls))
    return f"""\
# Builds lib{names.prefix}.a, and with `make check` runs its test.
CC ?= cc
LDLIBS ?= {" ".join([*libraries.split(), "-lm"])}
CFLAGS ?= -O3
ALL_CFLAGS = -std=c11 -Wall -Wextra -pedantic -ffp-contract=fast -fno-math-errno -ffunction-sections \\
  {processor.flags} $(CFLAGS)
INCLUDES = -I. -Iruntime/src -Iruntime/include

lib{names.prefix}.a: {objects}
\t$(AR) rcs $@ $^

{names.prefix}.o: {names.prefix}.c {names.prefix}.h{kernels}
\t$(CC) $(ALL_CFLAGS) $(INCLUDES) -c $< -o $@
{"" if names.weights == "pointer" else weights}{flags}
test: test.c lib{names.prefix}.a
\t$(CC) $(ALL_CFLAGS) $(INCLUDES) $< lib{names.prefix}.a $(LDLIBS) -o $@

.PHONY: check clean
check: test
\t./test

clean:
\trm -f *.o *.a test
"""


def _libraries(calls: Calls) -> list[str]:
    """Return the libraries that other targets' code calls, beside that of mathematics."""
    return sorted({library for source in calls.sources for library in source.libraries} - {"m"})


def cmake(calls: Calls, names: Names, processor: Processor) -> str:
    """Return a CMakeLists.txt for the same."""
    flags = f"\ntarget_compile_options({names.prefix} PRIVATE {processor.flags})" if processor.flags else ""
    parts = [f"{names.prefix}_part_{number}.c" for number in range(len(calls.sources))]
    files = [f"{names.prefix}.c", *([] if names.weights == "pointer" else [f"{names.prefix}_weights.c"]), *parts]
    own = "".join(
        f"\nset_source_files_properties({part} PROPERTIES COMPILE_OPTIONS "
        f'"{";".join(("-ffp-contract=off", *source.flags))}")'
        for part, source in zip(parts, calls.sources, strict=True)
    )
    packed = ""
    if names.weights == "binary":
        packed = (
            f"\nset_source_files_properties({names.prefix}_weights.c PROPERTIES"
            f"\n  COMPILE_OPTIONS -I${{CMAKE_CURRENT_SOURCE_DIR}} "
            f"OBJECT_DEPENDS ${{CMAKE_CURRENT_SOURCE_DIR}}/{names.prefix}_weights.bin)"
        )
    return f"""\
cmake_minimum_required(VERSION 3.16)
project({names.prefix} C)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library({names.prefix} STATIC {" ".join(files)})
target_include_directories({names.prefix} PUBLIC . PRIVATE runtime/src runtime/include)
target_compile_options({names.prefix} PRIVATE -ffp-contract=fast -fno-math-errno){flags}{own}{packed}
target_link_libraries({names.prefix} PUBLIC {" ".join([*_libraries(calls), "m"])})

enable_testing()
add_executable({names.prefix}_test test.c)
target_link_libraries({names.prefix}_test {names.prefix})
add_test(NAME {names.prefix} COMMAND {names.prefix}_test WORKING_DIRECTORY ${{CMAKE_CURRENT_SOURCE_DIR}})
"""


def readme(calls: Calls, names: Names, processor: Processor) -> str:
    """Return what a person reads first: how to build and call the model, and where memory goes."""
    tensors = "\n".join(
        f"| `{port.name}` | {kind} | `{port.ctype}[{port.elements}]` | `{_inline(str(port.spec))}` |"
        for kind, ports in (("input", names.inputs), ("output", names.outputs))
        for port in ports
    )
    arguments = ", ".join(f"&{each}" if each in ("sizes", "shapes") else each for each in names.arguments)
    binary = f"{names.prefix}_weights.bin"
    held = {
        "array": f"`{names.prefix}_weights.c`: packed weights and constants. `{names.macro}_WEIGHTS_ATTRIBUTES` may\n"
        "  hold attributes that place them, such as a section of your linker script.",
        "binary": f"`{binary}`, `{names.prefix}_weights.c`: packed weights and constants, which the assembler\n"
        f"  includes in the section of `{names.macro}_WEIGHTS_SECTION`.",
        "pointer": f"`{binary}`: packed weights and constants, {names.macro}_WEIGHTS_BYTES of them, for memory at a\n"
        f"  multiple of {names.macro}_WEIGHTS_ALIGNMENT bytes.",
    }[names.weights]
    parts = (
        f"- `{names.prefix}_part_*.c`: what the code generators of other targets have written.\n"
        if calls.sources
        else ""
    )
    if LIBRARY in _libraries(calls):
        parts += (
            "  They call Arm's driver of the Ethos-U, which your program sets up: `ethosu_driver.h` must be on the\n"
            f"  include path (`CFLAGS=-I...`), and the library is `{LIBRARY}` (`LDLIBS=...`).\n"
        )
    return f"""\
# {names.prefix} in C

A model as portable C11: no heap, no threads, no files; of the C library only `math.h`, `memcpy`, `memset` and, where a
compiler makes it of a loop, `memmove`. Made for {processor.description}.

```sh
make check        # builds lib{names.prefix}.a and runs test.c, whose results are known
```

```c
#include "{names.prefix}.h"

int status = {names.prefix}_run({arguments});
```

`{names.prefix}_run` has memory of its own and serves one caller at a time. `{names.prefix}_run_in` takes
`{names.macro}_MEMORY_BYTES` bytes of yours, and nothing else is written: as many may run at a time as there are
memories. Define `{names.macro}_NO_STATIC_MEMORY` to leave the first one out.

{_sizes_text(calls, names)}| name | | type | in the model |
|---|---|---|---|
{tensors}

## Memory

{memory_table(calls)}

- `{names.prefix}.h`, `{names.prefix}.c`: the calls, in the order of the model.
- {held}
- `{names.prefix}_kernels.h`, `runtime/`: the kernels that are called, from tinycomp's C runtime (Apache-2.0).
{parts}"""


def _sizes_text(calls: Calls, names: Names) -> str:
    """Return how a person gives sizes and learns of them."""
    text = ""
    if names.sizes:
        rows = "\n".join(
            f"| `{names.sizes[name]}` | {least} to {most} | `{_inline(name)}` |"
            for name, (least, most) in calls.sizes.items()
        )
        text = (
            f"Every run chooses sizes, a `{names.prefix}_sizes`; the memory is enough for the largest. Others than\n"
            f"these are `{names.macro}_SIZES`.\n\n| size | | in the model |\n|---|---|---|\n{rows}\n\n"
        )
    if names.gives_shapes:
        text += f"A run says what shapes its results have: `{names.prefix}_shapes`, unless that is `NULL`.\n\n"
    return text


def memory_table(calls: Calls) -> str:
    """Return how much memory a run takes, and what lies in it when most is in use, as Markdown."""
    memory = calls.memory
    rows = [f"| memory of a run | {memory.size:,} |", f"| weights and constants | {len(calls.weights):,} |"]
    table = ["| | bytes |", "|---|--:|", *rows]
    if (peak := memory.peak) is None:
        return "\n".join(table)
    sources = _inline(c_text(", ".join(peak.sources)))
    table += [
        "",
        f"Most is in use in step {peak.step} of {len(memory.steps)}, `{peak.kernel}`"
        + (f" for `{sources}`:" if sources else ":"),
        "",
        "| from | bytes | in use in steps | what |",
        "|--:|--:|---|---|",
        *(
            f"| {b.offset:,} | {b.nbytes:,} | {b.first} to {b.last} | `{_inline(c_text(b.what))}` |"
            for b in memory.alive(peak.step)
        ),
    ]
    return "\n".join(table)


def _inline(text: str) -> str:
    return text.replace("`", "'").replace("|", "/")
