"""The text of an exported project: C source, build files, and what a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tinycomp.export_c.calls import Action, Call, Calls, Clear, Copy, Place
from tinycomp.export_c.processors import Processor
from tinycomp.runtime.csource.source import c_comment, c_identifier, c_number
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
    """

    prefix: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def macro(self) -> str:
        """The prefix of macros."""
        return self.prefix.upper()


def names_of(calls: Calls, prefix: str) -> Names:
    """Choose an identifier for every input and output: their names where these are identifiers, and none twice."""
    taken = {"memory"}
    return Names(prefix, _ports(calls.inputs, "in", taken), _ports(calls.outputs, "out", taken))


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


def header(calls: Calls, names: Names) -> str:
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
        f"/* Bytes of memory for a run, aligned to {upper}_ALIGNMENT; nothing in it outlives a run. */",
        f"#define {upper}_MEMORY_BYTES {max(calls.arena_bytes, 1)}",
        f"#define {upper}_ALIGNMENT 64",
        "/* Bytes of weights, which are never written. */",
        f"#define {upper}_WEIGHTS_BYTES {max(len(calls.weights), 1)}",
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


def _parameters(names: Names) -> str:
    inputs = [f"const {port.ctype} *{port.name}" for port in names.inputs]
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
        f'#include "{names.prefix}_kernels.h"',
        f'#include "{names.prefix}_weights.h"',
        "",
    ]
    numbered = [(number, step) for number, step in enumerate(calls.steps) if isinstance(step, Call)]
    params: dict[str, str] = {}
    for number, call in numbered:
        value = _params(call)
        if value and value not in params:
            params[value] = f"parameters_{number}"
            lines.append(f"static const tc_{call.kernel}_params parameters_{number} = {value};")
    lines += ["", f"int {names.prefix}_run_in(void *memory, {_parameters(names)}) {{"]
    pointers = [*(port.name for port in names.inputs), *(port.name for port in names.outputs)]
    missing = " || ".join(f"!{pointer}" for pointer in ("memory", *pointers))
    lines += [
        f"  if ({missing} || (uintptr_t)memory % {names.macro}_ALIGNMENT) {{",
        f"    return {names.macro}_INVALID;",
        "  }",
        "  unsigned char *const arena = memory;",
        f"  const unsigned char *const weights = {names.prefix}_weights;",
        "  const char *failure = NULL;",
        "  (void)arena;",
        "  (void)weights;",
    ]
    if numbered:  # one for all calls, because compilers keep those of different blocks side by side on the stack
        lines += [
            f"  void *operands[{max(len(call.operands) for _, call in numbered)}];",
            f"  tc_call call = {{NULL, operands, NULL, arena + {calls.scratch}, {calls.cache}, &failure}};",
        ]
    for step in calls.steps:
        lines += _action(step, names, params)
    lines += [f"  return failure ? {names.macro}_FAILED : {names.macro}_OK;", "}", ""]
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


def _params(call: Call) -> str:
    fields = kernel_named(call.kernel).fields
    parts = [
        f".{name} = {c_number(value, 'float32' if fields[name] is float else 'int64')}"
        for name, value in call.params.items()
        if fields[name] is float or value
    ]
    return f"{{{', '.join(parts)}}}" if parts else "{0}" if fields else ""


def _action(step: Action, names: Names, params: Mapping[str, str]) -> list[str]:
    if isinstance(step, Clear):
        return [f"  memset({_pointer(step.place, names)}, 0, {step.nbytes});"]
    if isinstance(step, Copy):
        return [f"  memcpy({_pointer(step.to, names)}, {_pointer(step.source, names)}, {step.nbytes});"]
    if not step.units:
        return []
    value = _params(step)
    state = "NULL" if step.state is None else f"weights + {step.state}"
    what = step.kernel + (f": {', '.join(step.sources)}" if step.sources else "")
    return [
        f"  {c_comment(what)}",
        *(f"  operands[{index}] = {_pointer(operand, names)};" for index, operand in enumerate(step.operands)),
        f"  call.params = {'&' + params[value] if value else 'NULL'};",
        f"  call.state = {state};",
        f"  TC_NAME(tc_{step.kernel})(&call, 0, {step.units});",
        "  if (failure) {",
        f"    return {names.macro}_FAILED;",
        "  }",
    ]


def _pointer(place: Place, names: Names) -> str:
    if place.base == "absent":
        return "NULL"
    if place.base == "arena":
        return f"arena + {place.offset}"
    if place.base == "weights":
        return f"(void *)(uintptr_t)(weights + {place.offset})"
    if place.base == "input":
        base = f"(void *)(uintptr_t){names.inputs[place.index].name}"
    else:
        base = f"(void *){names.outputs[place.index].name}"
    return f"(unsigned char *){base} + {place.offset}" if place.offset else base


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
    return "\n".join(
        [
            "/* Packed weights and constants: little-endian, as the kernels read them. */",
            f'#include "{names.prefix}_weights.h"',
            "",
            f'#ifndef {names.macro}_WEIGHTS_ATTRIBUTES /* such as __attribute__((section(".qspi"))) */',
            f"#define {names.macro}_WEIGHTS_ATTRIBUTES",
            "#endif",
            "",
            f"_Alignas({processor.alignment}) {names.macro}_WEIGHTS_ATTRIBUTES const unsigned char "
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


def _array(port: Port, name: str, array: np.ndarray[Any, Any]) -> str:
    flat = np.ascontiguousarray(array).reshape(-1)
    if port.ctype not in ("float", "double"):
        flat = flat.view(np.dtype(port.ctype.removesuffix("_t"))) if flat.size else flat.astype(np.uint8)
    dtype = {"float": "float32", "double": "float64"}.get(port.ctype, "int64")
    values = [c_number(value.item(), dtype) for value in flat] or ["0"]
    rows = [", ".join(values[at : at + 12]) for at in range(0, len(values), 12)]
    return f"static const {port.ctype} {name}[{max(port.elements, 1)}] = {{\n  " + ",\n  ".join(rows) + "};"


def makefile(names: Names, processor: Processor) -> str:
    """Return a Makefile that builds a library and its test."""
    return f"""\
# Builds lib{names.prefix}.a, and with `make check` runs its test.
CC ?= cc
CFLAGS ?= -O3
ALL_CFLAGS = -std=c11 -Wall -Wextra -pedantic -ffp-contract=fast -fno-math-errno -ffunction-sections \\
  {processor.flags} $(CFLAGS)
INCLUDES = -I. -Iruntime/src -Iruntime/include

lib{names.prefix}.a: {names.prefix}.o {names.prefix}_weights.o
\t$(AR) rcs $@ $^

{names.prefix}.o: {names.prefix}.c {names.prefix}.h {names.prefix}_kernels.h
\t$(CC) $(ALL_CFLAGS) $(INCLUDES) -c $< -o $@

{names.prefix}_weights.o: {names.prefix}_weights.c {names.prefix}.h
\t$(CC) $(ALL_CFLAGS) $(INCLUDES) -c $< -o $@

test: test.c lib{names.prefix}.a
\t$(CC) $(ALL_CFLAGS) $(INCLUDES) $< lib{names.prefix}.a -lm -o $@

.PHONY: check clean
check: test
\t./test

clean:
\trm -f *.o *.a test
"""


def cmake(names: Names, processor: Processor) -> str:
    """Return a CMakeLists.txt for the same."""
    flags = f"\ntarget_compile_options({names.prefix} PRIVATE {processor.flags})" if processor.flags else ""
    return f"""\
cmake_minimum_required(VERSION 3.16)
project({names.prefix} C)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library({names.prefix} STATIC {names.prefix}.c {names.prefix}_weights.c)
target_include_directories({names.prefix} PUBLIC . PRIVATE runtime/src runtime/include)
target_compile_options({names.prefix} PRIVATE -ffp-contract=fast -fno-math-errno){flags}
target_link_libraries({names.prefix} PUBLIC m)

enable_testing()
add_executable({names.prefix}_test test.c)
target_link_libraries({names.prefix}_test {names.prefix})
add_test(NAME {names.prefix} COMMAND {names.prefix}_test)
"""


def readme(calls: Calls, names: Names, processor: Processor, buffers: Iterable[tuple[str, int]]) -> str:
    """Return what a person reads first: how to build and call the model, and where memory goes."""
    tensors = "\n".join(
        f"| `{port.name}` | {kind} | `{port.ctype}[{port.elements}]` | `{_inline(str(port.spec))}` |"
        for kind, ports in (("input", names.inputs), ("output", names.outputs))
        for port in ports
    )
    memory = "\n".join(f"| {what} | {size:,} |" for what, size in buffers)
    arguments = ", ".join(port.name for port in (*names.inputs, *names.outputs))
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

| memory | bytes |
|---|---|
{memory}

`{names.macro}_WEIGHTS_ATTRIBUTES` may hold attributes that place the weights, such as a section of your linker script.

- `{names.prefix}.h`, `{names.prefix}.c`: the calls, in the order of the model.
- `{names.prefix}_weights.c`: packed weights and constants.
- `{names.prefix}_kernels.h`, `runtime/`: the kernels that are called, from tinycomp's C runtime (Apache-2.0).
"""


def _inline(text: str) -> str:
    return text.replace("`", "'").replace("|", "/")
