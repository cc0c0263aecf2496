"""The text of an exported project: C source, build files, and what a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from tinycomp.export_c.calls import Action, Call, Calls, Copy, Fill, If, Loop, Place, Source
from tinycomp.export_c.processors import Processor
from tinycomp.runtime.csource.source import CSource, c_comment, c_identifier, c_number
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.spec import TensorSpec, array_dtype

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
    """

    name: str
    ctype: str
    spec: TensorSpec

    @property
    def elements(self) -> int:
        """How many there are."""
        return int(np.prod([int(dim or 0) for dim in self.spec.shape or ()]))


@dataclass(frozen=True)
class Names:
    """What the project calls things.

    Attributes:
        prefix: In front of every name that it exports.
        inputs: In order.
        outputs: In order.
        weights: ``"array"`` in C, ``"binary"`` for a file that the assembler includes, or ``"pointer"`` for memory that
            a caller gives.
    """

    prefix: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    weights: str = "array"

    @property
    def pointers(self) -> tuple[str, ...]:
        """The arguments of a run, without the memory."""
        own = ("packed_weights",) if self.weights == "pointer" else ()
        return (*own, *(port.name for port in (*self.inputs, *self.outputs)))

    @property
    def macro(self) -> str:
        """The prefix of macros."""
        return self.prefix.upper()


def names_of(calls: Calls, prefix: str, weights: str = "array") -> Names:
    """Choose an identifier for every input and output: their names where these are identifiers, and none twice."""
    taken = {"memory", "packed_weights"}
    return Names(prefix, _ports(calls.inputs, "in", taken), _ports(calls.outputs, "out", taken), weights)


def _ports(specs: Sequence[TensorSpec], kind: str, taken: set[str]) -> tuple[Port, ...]:
    ports = []
    for number, spec in enumerate(specs):
        plain = c_identifier(spec.name).removeprefix("v_")
        name = f"{kind}_{plain}" if len(plain) < 40 else f"{kind}_{number}"
        name = f"{name}_{number}" if name in taken else name
        taken.add(name)
        dtype = array_dtype(spec.dtype)
        ports.append(Port(name, _C_TYPES.get(dtype, "uint8_t"), spec))
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
        lines += [f"/* {c_text(str(port.spec))} */", f"#define {upper}_{port.name.upper()}_ELEMENTS {port.elements}"]
    lines += [
        "",
        f"enum {names.prefix}_status {{",
        f"  {upper}_OK = 0,",
        f"  {upper}_INVALID = 1, /* a pointer is NULL, or the memory is not aligned */",
        f"  {upper}_FAILED = 2   /* the data does not fit the model, such as an index out of range */",
        "};",
        "",
        "/* Runs the model in the caller's memory: as many runs at a time as there are memories. Tensors are row-major",
        " * and aligned to their elements; outputs overlap nothing. Returns an enum " + f"{names.prefix}_status. */",
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


def _parameters(names: Names) -> str:
    inputs = ["const void *packed_weights"] if names.weights == "pointer" else []
    inputs += [f"const {port.ctype} *{port.name}" for port in names.inputs]
    return ", ".join([*inputs, *(f"{port.ctype} *{port.name}" for port in names.outputs)])


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
    writer = _Writer(names)
    for call in kernel_calls:
        value = _params(call)
        if value and (call.kernel, value) not in writer.params:
            name = f"parameters_{len(writer.params)}"
            writer.params[call.kernel, value] = name
            lines.append(f"static const tc_{call.kernel}_params {name} = {value};")
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
    lines += writer.actions(calls.steps, "  ")
    lines += [f"  return {names.macro}_OK;", "}", ""]
    lines += [
        f"#ifndef {names.macro}_NO_STATIC_MEMORY",
        f"int {names.prefix}_run({_parameters(names)}) {{",
        f"  static _Alignas({names.macro}_ALIGNMENT) unsigned char memory[{names.macro}_MEMORY_BYTES];",
        f"  return {names.prefix}_run_in(memory, {', '.join(pointers)});",
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


def _params(call: Call) -> str:
    fields = kernel_named(call.kernel).fields
    parts = [
        f".{name} = {c_number(value, 'float32' if fields[name] is float else 'int64')}"
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
        params: Names of parameters, by kernel and value.
        loops: How many loops there are so far, which names their variables.
    """

    names: Names
    params: dict[tuple[str, str], str] = field(default_factory=dict)
    loops: int = 0

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
                lines += self._action(steps[at], indent)
                at += 1
        return lines

    def _variable(self, kind: str) -> str:
        self.loops += 1
        return f"{kind}{self.loops}"

    def _action(self, step: Action, indent: str) -> list[str]:
        if isinstance(step, Call):
            return self._call(step, indent)
        if isinstance(step, Fill):
            return [f"{indent}memset({self._pointer(step.place)}, {step.value}, {step.nbytes});"]
        if isinstance(step, Copy):
            return [indent + self._copy(step)]
        if isinstance(step, Source):
            return self._source(step, indent)
        return self._if(step, indent) if isinstance(step, If) else self._loop(step, indent)

    def _pointer(self, place: Place, moved: str = "") -> str:
        return _pointer(place, self.names, moved)

    def _moving(self, places: Sequence[Place], nexts: Sequence[Place], index: str) -> list[str]:
        """Return places in a loop, given those of the next round."""
        return [
            self._pointer(place, f" + {after.offset - place.offset} * {index}" if after != place else "")
            for place, after in zip(places, nexts, strict=True)
        ]

    def _copy(self, step: Copy, index: str = "", following: Copy | None = None) -> str:
        after = following or step
        to, source = self._moving([step.to, step.source], [after.to, after.source], index)
        return f"memcpy({to}, {source}, {step.nbytes});"

    def _call(self, step: Call, indent: str, index: str = "", following: Call | None = None) -> list[str]:
        """Return lines for a call; in a loop, ``following`` is the one that comes in its place in the next round."""
        if not step.units:
            return []
        value = self.params.get((step.kernel, _params(step)))
        what = ": ".join([step.kernel, *([", ".join(step.sources)] if step.sources else [])])
        places = [*step.operands, step.scratch]
        nexts = places if following is None else [*following.operands, following.scratch]
        texts = self._moving(places, nexts, index)
        return [
            f"{indent}{c_comment(what)}",
            *(f"{indent}operands[{number}] = {text};" for number, text in enumerate(texts[:-1])),
            indent + ("call.params = NULL;" if value is None else f"call.params = &{value};"),
            indent + ("call.state = NULL;" if step.state is None else f"call.state = weights + {step.state};"),
            f"{indent}call.scratch = {texts[-1]};",
            f"{indent}TC_NAME(tc_{step.kernel})(&call, 0, {step.units});",
            f"{indent}if (failure) {{",
            f"{indent}  return {self.names.macro}_FAILED;",
            f"{indent}}}",
        ]

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
        lines += self.actions(step.begin, indent)
        lines += [
            f"{indent}for (; {goes_on} && {trip} < {limit}; {trip}++) {{",
            *self._rows_end(step, f"{indent}  ", f"{trip} >= {step.trips}"),
            f"{indent}  memcpy({self._pointer(step.trip)}, &{trip}, sizeof({trip}));",
            *self.actions(step.body, f"{indent}  "),
            f"{indent}  {goes_on} = *(const unsigned char *)({self._pointer(step.goes_on)});",
            *(f"{indent}  " + self._copy(row, trip, replace(row, to=row.to.at(row.nbytes))) for row in step.rows),
            *(f"{indent}  {self._copy(copy)}" for copy in step.carried),
            f"{indent}}}",
            *self._rows_end(step, indent, f"{trip} != {step.trips}"),
            *(indent + self._copy(copy) for copy in step.end),
        ]
        return lines

    def _rows_end(self, step: Loop, indent: str, wrong: str) -> list[str]:
        """Return the check that there are as many trips as the results have rows."""
        if step.trips is None:
            return []
        return [f"{indent}if ({wrong}) {{", f"{indent}  return {self.names.macro}_FAILED;", f"{indent}}}"]


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
        return (step.nbytes,), (step.to, step.source)
    if isinstance(step, Call) and step.units:
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


def _pointer(place: Place, names: Names, moved: str = "") -> str:
    """Return an expression for a place; ``moved`` adds bytes to it, such as ``" + i * 64"``."""
    if place.base == "absent":
        return "NULL"
    if place.base == "arena":
        return f"arena + {place.offset}{moved}"
    if place.base == "weights":
        return f"(void *)(uintptr_t)(weights + {place.offset}{moved})"
    if place.base == "input":
        base = f"(void *)(uintptr_t){names.inputs[place.index].name}"
    else:
        base = f"(void *){names.outputs[place.index].name}"
    return f"(unsigned char *){base} + {place.offset}{moved}" if place.offset or moved else base


def kernels(
    called: Iterable[str], headers: Iterable[str], definitions: Mapping[str, str], processor: Processor, names: Names
) -> str:
    """Return the header that makes the kernels part of ``model.c``.

    Args:
        called: The kernels.
        headers: Their files.
        definitions: Macros that choose variants of them.
        processor: What they are for.
        names: What the project calls things.
    """
    lines = [
        "/* The kernels that the model calls, for one instruction set. */",
        f"#ifndef {names.macro}_KERNELS_H",
        f"#define {names.macro}_KERNELS_H",
        "",
        "#define TC_STANDALONE 1",
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
        '#include "runtime/src/standalone.h"',
        '#include "runtime/src/rows.c"',
        *[f'#include "runtime/{name}"' for name in headers],
        "#ifdef __GNUC__",
        "#pragma GCC diagnostic pop",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


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


def test(names: Names, feeds: Sequence[np.ndarray[Any, Any]], results: Sequence[np.ndarray[Any, Any]]) -> str:
    """Return ``test.c``: a run on inputs whose results are known."""
    lines = [
        "/* Runs the model on inputs whose results are known. Integers must be equal, floats close. */",
        "#include <math.h>",
        "#include <stdio.h>",
        "",
        f'#include "{names.prefix}.h"',
        "",
    ]
    for port, array in zip(names.inputs, feeds, strict=True):
        lines.append(_array(port, f"{port.name}_data", array))
    for port, array in zip(names.outputs, results, strict=True):
        lines.append(_array(port, f"{port.name}_expected", array))
        lines.append(f"static {port.ctype} {port.name}_data[{max(port.elements, 1)}];")
    arguments = ", ".join(f"{port.name}_data" for port in (*names.inputs, *names.outputs))
    if names.weights == "pointer":
        arguments = f"weights, {arguments}"
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
        "  test_begin();",
        f"  const int status = {names.prefix}_run({arguments});",
        "  test_end();",
        f"  if (status != {names.macro}_OK) {{",
        '    printf("the run failed with status %d\\n", status);',
        "    return 1;",
        "  }",
        "  long wrong = 0;",
    ]
    for port in names.outputs:
        is_float = port.ctype in ("float", "double")
        x, y = f"{port.name}_data[i]", f"{port.name}_expected[i]"
        same = f"{x} == {y}"
        if is_float:
            near = f"fabs((double){x} - (double){y}) <= 1e-5 + 1e-5 * fabs((double){y})"
            same = f"({same} || {near} || ({x} != {x} && {y} != {y}))"
        lines += [f"  for (long i = 0; i < {port.elements}; i++) {{", f"    wrong += !({same});", "  }"]
    total = sum(port.elements for port in names.outputs)
    lines += [
        f'  printf("%ld of {total} results differ\\n", wrong);',
        "  return wrong != 0;",
        "}",
        "",
    ]
    return "\n".join(lines)


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
    return f"static const {port.ctype} {name}[{max(port.elements, 1)}] = {{\n  " + ",\n  ".join(rows) + "};"


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
    return f"""\
# Builds lib{names.prefix}.a, and with `make check` runs its test.
CC ?= cc
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
\t$(CC) $(ALL_CFLAGS) $(INCLUDES) $< lib{names.prefix}.a -lm -o $@

.PHONY: check clean
check: test
\t./test

clean:
\trm -f *.o *.a test
"""


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
target_link_libraries({names.prefix} PUBLIC m)

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
    arguments = ", ".join(names.pointers)
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

| name | | type | in the model |
|---|---|---|---|
{tensors}

## Memory

{memory_table(calls)}

- `{names.prefix}.h`, `{names.prefix}.c`: the calls, in the order of the model.
- {held}
- `{names.prefix}_kernels.h`, `runtime/`: the kernels that are called, from tinycomp's C runtime (Apache-2.0).
{parts}"""


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
