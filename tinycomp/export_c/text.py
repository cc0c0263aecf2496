"""The files of an exported project, from the templates beside this file: C source, build files, and a page to read."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinycomp.export_c.actions import Calls
from tinycomp.export_c.ethos_u import LIBRARY
from tinycomp.export_c.names import Names, Port, c_text
from tinycomp.export_c.printer import Printer
from tinycomp.export_c.processors import Processor
from tinycomp.export_c.sources import headers_of
from tinycomp.export_c.variants import definitions_of
from tinycomp.records import dataclass
from tinycomp.runtime.csource.source import c_comment, c_number

_ROW = 24
"""Bytes in a line of the weights."""
_BUSY = 0.003
"""The part of a model's work that a kernel has at least whose code is made for speed alone."""
_PART_SIGNATURE = "const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch"
_HOLE = re.compile(r"@(\w+)@")


@functools.cache
def template(name: str) -> str:
    """Return the text of a template."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def filled(name: str, values: Mapping[str, object]) -> str:
    """Return a template with values, or lines of them, in place of their names between two @.

    A line that has nothing but values is left out where these are empty.
    """
    lines = []
    for line in template(name).splitlines():
        text = _HOLE.sub(lambda hole: _lines(values[hole[1]]), line)
        if text.strip() or not _HOLE.search(line):
            lines.append(text)
    return "\n".join(lines) + "\n"


def _lines(value: object) -> str:
    return "\n".join(value) if isinstance(value, list) else str(value)


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


def texts_of(calls: Calls, names: Names, processor: Processor, cases: Sequence[Case]) -> dict[str, str]:
    """Return the text of every file of a project but those of the C runtime, by name."""
    prefix, is_pointer = names.prefix, names.weights == "pointer"
    values = {
        "name": prefix, "NAME": names.macro, "alignment": processor.alignment, "part_signature": _PART_SIGNATURE,
        "processor": processor.description, **_interface(calls, names), **_source(calls, names),
    }  # fmt: skip
    values |= {**_build(calls, names, processor), **_page(calls, names)}
    files = {f"{prefix}.h": "model.h", f"{prefix}.c": "model.c"}
    files |= {name: name for name in ("Makefile", "CMakeLists.txt", "README.md")}
    if not is_pointer:
        files |= {f"{prefix}_weights.h": "weights.h", f"{prefix}_weights.c": f"weights_{names.weights}.c"}
        rows = (calls.weights[at : at + _ROW] for at in range(0, max(len(calls.weights), 1), _ROW))
        is_array = names.weights == "array"
        values["weights_rows"] = [f"  {','.join(map(str, row or bytes(1)))}," for row in rows] if is_array else []
    if calls.kernels:
        files[f"{prefix}_kernels.h"] = "kernels.h"
        values |= _kernels(calls, processor)
    made = {file: filled(name, values) for file, name in files.items()}
    for number, source in enumerate(calls.sources):
        own = {"part": f"{prefix}_part_{number}", "function": source.function, "text": source.text}
        made[f"{prefix}_part_{number}.c"] = filled("part.c", {**values, **own})
    return {**made, "test.c": _test(names, cases, values)}


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


def _interface(calls: Calls, names: Names) -> dict[str, object]:
    """Return what ``model.h`` says: what a caller needs to know."""
    elements: list[str] = []
    for port in (*names.inputs, *names.outputs):
        most = ", at most so many elements" if port.is_sized else ""
        elements += [
            f"/* {c_text(str(port.spec))}{most} */",
            f"#define {names.macro}_{port.name.upper()}_ELEMENTS {port.elements}",
        ]
    return {
        "title": c_text(f"The model {names.prefix}: its inputs, its outputs, and how to run it."),
        "peak": _peak_comment(calls), "memory_bytes": max(calls.memory.size, 1),
        "weights_bytes": max(len(calls.weights), 1), "elements": elements, "structs": _structs(calls, names),
        "shapes_note": " Shapes may be NULL." if names.gives_shapes else "", "parameters": _parameters(names),
        "arguments": ", ".join(names.arguments),
    }  # fmt: skip


def _source(calls: Calls, names: Names) -> dict[str, object]:
    """Return what ``model.c`` consists of: the parameters of every call, and the calls in order."""
    kernel_calls, is_pointer, printer = calls.calls, names.weights == "pointer", Printer(names, calls)
    constants = printer.parameters()
    constants += [f"int {names.prefix}_part_{number}({_PART_SIGNATURE});" for number, _ in enumerate(calls.sources)]
    weights = [f"  const unsigned char *const weights = {'packed' if is_pointer else names.prefix}_weights;"]
    if is_pointer:
        aligned = f"(uintptr_t)packed_weights % {names.macro}_WEIGHTS_ALIGNMENT"
        weights = [f"  if ({aligned}) {{", f"    return {names.macro}_INVALID;", "  }", *weights]
    call: list[str] = []
    if kernel_calls:  # one for all calls, because compilers keep those of different blocks side by side on the stack
        call += [
            "  const char *failure = NULL;",
            f"  void *operands[{max(len(call.operands) for call in kernel_calls)}];",
            f"  tc_call call = {{NULL, operands, NULL, NULL, {calls.cache}, &failure}};",
        ]
    if printer.expanded:
        call += ["  union {", *(f"    tc_{kernel}_params {kernel};" for kernel in printer.expanded), "  } whole;"]
    return {
        "includes": [
            f'#include "{names.prefix}_kernels.h"' if calls.kernels else "#include <string.h>",
            *([] if is_pointer else [f'#include "{names.prefix}_weights.h"']),
        ],
        "constants": constants, "missing": " || ".join(f"!{pointer}" for pointer in ("memory", *names.pointers)),
        "find_weights": weights, "call": call,
        "actions": [*printer.sizes("  "), *printer.actions(calls.steps, "  "), *printer.shapes("  ")],
    }  # fmt: skip


def _kernels(calls: Calls, processor: Processor) -> dict[str, object]:
    """Return what makes the kernels part of ``model.c``."""
    total = sum(calls.work.values())
    busy = headers_of(kernel for kernel in calls.kernels if calls.work[kernel] >= _BUSY * total)
    others = [name for name in headers_of(calls.kernels) if name not in busy]
    vocabulary = [f"<{processor.intrinsics}>"] if processor.intrinsics else []
    vocabulary += [f'"{name}"' for name in processor.vocabulary]
    return {
        "define_sized": "#define TC_SIZED 1" if calls.is_sized else "", "guard": [*processor.guard],
        "vocabulary": [f"#include {each}" for each in vocabulary], "isa": processor.isa,
        "definitions": [f"#define {name} {value}".rstrip() for name, value in definitions_of(calls.calls).items()],
        "declarations": [f"DECLARE(TC_NAME(tc_{kernel}));" for kernel in calls.kernels],
        "alone": "sized" if calls.is_sized else "standalone",
        "kernel_headers": [*_included(busy), *_short(_included(others), processor)],
    }  # fmt: skip


def _included(names: Iterable[str]) -> list[str]:
    return [f'#include "runtime/{name}"' for name in names]


def _short(lines: Sequence[str], processor: Processor) -> list[str]:
    """Return lines of C that a small processor has in few bytes, where the compiler knows how to be told."""
    if not lines or not processor.is_small:
        return [*lines]
    knows = "#if defined(__GNUC__) && !defined(__clang__)"
    begin = [knows, "#pragma GCC push_options", '#pragma GCC optimize("Os")', "#endif"]
    return [*begin, *lines, knows, "#pragma GCC pop_options", "#endif"]


def _test(names: Names, cases: Sequence[Case], values: Mapping[str, object]) -> str:
    """Return ``test.c``: runs on inputs whose results are known."""
    arrays, runs = list[str](), list[str]()
    for number, case in enumerate(cases):
        suffix = "" if len(cases) == 1 else f"_{number}"
        for port, array in zip(names.inputs, case.feeds, strict=True):
            arrays.append(_array(port, f"{port.name}_data{suffix}", array))
        for port, array in zip(names.outputs, case.results, strict=True):
            arrays.append(_array(port, f"{port.name}_expected{suffix}", array))
        runs.append(filled("test_run.c", {**values, **_run(names, suffix, case)}).rstrip("\n"))
    arrays += [f"static {port.ctype} {port.name}_result[{max(port.elements, 1)}];" for port in names.outputs]
    read = filled("read_weights.c", values).rstrip("\n") if names.weights == "pointer" else ""
    total = sum(array.size for case in cases for array in case.results)
    return filled("test.c", {**values, "arrays": arrays, "read_weights": read, "runs": runs, "total": total})


def _run(names: Names, suffix: str, case: Case) -> dict[str, object]:
    """Return what makes a run and looks at its results."""
    given = {
        "packed_weights": "weights", "sizes": "&sizes", "shapes": "&shapes",
        **{port.name: f"{port.name}_data{suffix}" for port in names.inputs},
        **{port.name: f"{port.name}_result" for port in names.outputs},
    }  # fmt: skip
    declare, compare = list[str](), list[str]()
    if names.sizes:
        chosen = ", ".join(f".{names.sizes[name]} = {size}" for name, size in case.sizes.items())
        declare.append(f"    const {names.prefix}_sizes sizes = {{{chosen}}};")
    if names.gives_shapes:
        declare.append(f"    {names.prefix}_shapes shapes;")
    for port, array in zip(names.outputs, case.results, strict=True):
        x, y = f"{port.name}_result[i]", f"{port.name}_expected{suffix}[i]"
        same = f"{x} == {y}"
        if port.ctype in ("float", "double"):
            near = f"fabs((double){x} - (double){y}) <= 1e-5 + 1e-5 * fabs((double){y})"
            same = f"({same} || {near} || ({x} != {x} && {y} != {y}))"
        if port.is_sized:
            compare += [f"    wrong += shapes.{port.name}[{axis}] != {dim};" for axis, dim in enumerate(array.shape)]
        compare += [f"    for (long i = 0; i < {array.size}; i++) {{", f"      wrong += !({same});", "    }"]
    arguments = ", ".join(given[each] for each in names.arguments)
    return {"given": arguments, "declare": declare, "compare": compare}


def _array(port: Port, name: str, array: np.ndarray[Any, Any]) -> str:
    flat = np.ascontiguousarray(array).reshape(-1)
    if port.ctype not in ("float", "double"):
        flat = flat.view(np.dtype(port.ctype.removesuffix("_t"))) if flat.size else flat.astype(np.uint8)
    dtype = {"float": "float32", "double": "float64"}.get(port.ctype, "int64")
    values = [c_number(value.item(), dtype) for value in flat] or ["0"]
    rows = [", ".join(values[at : at + 12]) for at in range(0, len(values), 12)]
    return f"static const {port.ctype} {name}[{max(flat.size, 1)}] = {{\n  " + ",\n  ".join(rows) + "};"


def _build(calls: Calls, names: Names, processor: Processor) -> dict[str, object]:
    """Return what the build files say of the sources and of what single ones need."""
    prefix, here, compile_c = names.prefix, "${CMAKE_CURRENT_SOURCE_DIR}", "$(CC) $(ALL_CFLAGS) "
    parts = {f"{prefix}_part_{number}": source.flags for number, source in enumerate(calls.sources)}
    stems = [prefix, *([] if names.weights == "pointer" else [f"{prefix}_weights"]), *parts]
    rules = list[str]()
    options = [f"target_compile_options({prefix} PRIVATE {processor.flags})"] if processor.flags else []
    if names.weights != "pointer":
        packed = f" {prefix}_weights.bin" if names.weights == "binary" else ""
        rules += [f"\n{prefix}_weights.o: {prefix}_weights.c {prefix}.h{packed}"]
        rules += [f"\t{compile_c}$(INCLUDES) -c $< -o $@"]
    for part, flags in parts.items():
        rules += [f"\n{part}.o: {part}.c", f"\t{compile_c}-ffp-contract=off {' '.join(flags)} -c $< -o $@"]
        own = ";".join(("-ffp-contract=off", *flags))
        options.append(f'set_source_files_properties({part}.c PROPERTIES COMPILE_OPTIONS "{own}")')
    if names.weights == "binary":
        options += [
            f"set_source_files_properties({prefix}_weights.c PROPERTIES",
            f"  COMPILE_OPTIONS -I{here} OBJECT_DEPENDS {here}/{prefix}_weights.bin)",
        ]
    libraries = _libraries(calls)
    return {
        "linked": " ".join(f"-l{library}" for library in (*libraries, "m")),
        "cmake_libraries": " ".join((*libraries, "m")), "flags": processor.flags, "rules": rules,
        "objects": " ".join(f"{stem}.o" for stem in stems), "sources": " ".join(f"{stem}.c" for stem in stems),
        "cmake_options": options, "kernels_header": f" {prefix}_kernels.h" if calls.kernels else "",
    }  # fmt: skip


def _libraries(calls: Calls) -> list[str]:
    """Return the libraries that other targets' code calls, beside that of mathematics."""
    return sorted({library for source in calls.sources for library in source.libraries} - {"m"})


def _page(calls: Calls, names: Names) -> dict[str, object]:
    """Return what a person reads: how to call the model, and where memory goes."""
    binary = f"{names.prefix}_weights.bin"
    weights = {
        "array": f"`{names.prefix}_weights.c`: packed weights and constants. `{names.macro}_WEIGHTS_ATTRIBUTES` may\n"
        "  hold attributes that place them, such as a section of your linker script.",
        "binary": f"`{binary}`, `{names.prefix}_weights.c`: packed weights and constants, which the assembler\n"
        f"  includes in the section of `{names.macro}_WEIGHTS_SECTION`.",
        "pointer": f"`{binary}`: packed weights and constants, {names.macro}_WEIGHTS_BYTES of them, for memory at a\n"
        f"  multiple of {names.macro}_WEIGHTS_ALIGNMENT bytes.",
    }[names.weights]
    parts = list[str]()
    if calls.sources:
        parts.append(f"- `{names.prefix}_part_*.c`: what the code generators of other targets have written.")
    if LIBRARY in _libraries(calls):
        parts += [
            "  They call Arm's driver of the Ethos-U, which your program sets up: `ethosu_driver.h` must be on the",
            f"  include path (`CFLAGS=-I...`), and the library is `{LIBRARY}` (`LDLIBS=...`).",
        ]
    return {
        "example": ", ".join(f"&{each}" if each in ("sizes", "shapes") else each for each in names.arguments),
        "sizes_text": _sizes_text(calls, names), "memory_table": memory_table(calls), "weights_text": weights,
        "parts_text": parts,
        "tensors": [
            f"| `{port.name}` | {kind} | `{port.ctype}[{port.elements}]` | `{_inline(str(port.spec))}` |"
            for kind, ports in (("input", names.inputs), ("output", names.outputs))
            for port in ports
        ],
    }  # fmt: skip


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
    return text.removesuffix("\n")


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
