"""A region on Ethos-U as C: the call of Arm's driver, with command stream and weights in sections of their own.

The driver is that of https://gitlab.arm.com/artificial-intelligence/ethos-u/ethos-u-core-driver, which takes base
addresses by their numbers: of the weights, of the arena, and of the fast memory.
"""

from __future__ import annotations

import numpy as np

from tinycomp.errors import UnsupportedError
from tinycomp.runtime.blob import Blob
from tinycomp.runtime.csource.source import CSource

LIBRARY = "ethosu_core_driver"
"""What a program with such a region is linked with, or a target of CMake."""
_ROW = 24
"""Bytes in a line of data."""
_ARENAS = {"scratch": "arena", "scratch_fast": "fast"}


def driver_call(blob: Blob, name: str) -> dict[str, str]:
    """Return a header and a source, by their names, that run a region of the target ``ethos_u``.

    Args:
        blob: What the region became, one of ``module.blobs``.
        name: In front of all that is exported; an identifier in lower case.

    Raises:
        UnsupportedError: If the blob is of another target, or the name is none.
    """
    if blob.target != "ethos_u":
        raise UnsupportedError("no command stream", where="blob", expected="of the target ethos_u", found=blob.target)
    if not (name.isidentifier() and name.isascii() and name.islower()):
        raise UnsupportedError("not a name", where="name", expected="an identifier in lower case", found=name)
    return {f"{name}.h": _header(blob, name), f"{name}.c": _source(blob, name)}


def source_of(blob: Blob, name: str) -> CSource:
    """Return the same as a part of a project, whose arena and fast memory lie in that of a run.

    Args:
        blob: What the region became.
        name: In front of the names in it.
    """
    upper, text = name.upper(), "\n".join(driver_call(blob, name).values())
    text = text.replace(f'#include "{name}.h"\n', "").replace(f"int {name}_run(", f"static int {name}_run(")
    arena, fast = (_rounded(_numbers(blob, f"{field}_size")[0]) for field in _ARENAS)
    entry = f"""\
#ifndef {upper}_FAST /* memory that only the device needs to reach; by default beside the arena */
#define {upper}_FAST ((unsigned char *)scratch + {arena})
#endif
static int {name}(const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch) {{
  (void)constants;
  return {name}_run(inputs, outputs, scratch, {upper}_FAST);
}}
"""
    return CSource(text + entry, name, libraries=(LIBRARY,), scratch_bytes=arena + fast)


def result_bytes(blob: Blob) -> list[int]:
    """Return how many bytes the results of a region have."""
    return _numbers(blob, "output_bytes")


def _rounded(nbytes: int) -> int:
    return -(-max(nbytes, 16) // 16) * 16


def _numbers(blob: Blob, field: str) -> list[int]:
    return [int(number) for number in blob.arrays[field]]


def _header(blob: Blob, name: str) -> str:
    upper = name.upper()
    sizes = [
        f"#define {upper}_{macro.upper()}_BYTES {max(_numbers(blob, f'{field}_size')[0], 16)}"
        for field, macro in _ARENAS.items()
    ]
    counts = {side: len(_numbers(blob, f"{side}_bytes")) for side in ("input", "output")}
    return "\n".join([
        "/* A region of a model on Ethos-U. */", f"#ifndef {upper}_H", f"#define {upper}_H", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        "/* Bytes of the memory of a run, and of the fast memory beside it, both aligned to 16. */", *sizes, "",
        f"/* Runs the region: {counts['input']} operand(s) and {counts['output']} result(s), row-major.",
        " * Returns 0, or what the driver returns if it fails. */",
        f"int {name}_run(const void *const *operands, void *const *results, void *arena, void *fast);", "",
        "#ifdef __cplusplus", "}", "#endif", "", "#endif", "",
    ])  # fmt: skip


def _source(blob: Blob, name: str) -> str:
    base = {_numbers(blob, "weight_region")[0]: (f"(uintptr_t){name}_weights", f"sizeof({name}_weights)")}
    for field, pointer in _ARENAS.items():
        if _numbers(blob, f"{field}_size")[0]:  # what is not used has no number of its own
            number = _numbers(blob, f"{field}_region")[0]
            base[number] = (f"(uintptr_t){pointer}", f"{name.upper()}_{pointer.upper()}_BYTES")
    addresses, sizes = zip(*(base.get(number, ("0", "0")) for number in range(max(base) + 1)), strict=True)
    return "\n".join([
        f'#include "{name}.h"', "", "#include <ethosu_driver.h>", "#include <stdint.h>", "#include <string.h>", "",
        *_data(f"{name}_stream", np.frombuffer(blob.data, np.uint8)), "",
        *_data(f"{name}_weights", blob.arrays["weights"]), "",
        f"int {name}_run(const void *const *operands, void *const *results, void *arena, void *fast) {{",
        "  (void)arena;", "  (void)fast;", f"  uint64_t base[] = {{{', '.join(addresses)}}};",
        f"  const size_t size[] = {{{', '.join(sizes)}}};",
        *_copies(blob, "input", "memcpy({at}, operands[{index}], {count});"),
        "  struct ethosu_driver *driver = ethosu_reserve_driver();",
        f"  const int failed = ethosu_invoke_v3(driver, {name}_stream, (int)sizeof({name}_stream), base, size,",
        f"                                      {len(addresses)}, 0);", "  ethosu_release_driver(driver);",
        "  if (failed) {", "    return failed;", "  }",
        *_copies(blob, "output", "memcpy(results[{index}], {at}, {count});"), "  return 0;", "}", "",
    ])  # fmt: skip


def _copies(blob: Blob, side: str, statement: str) -> list[str]:
    places = zip(*(_numbers(blob, f"{side}_{what}") for what in ("region", "offset", "bytes")), strict=True)
    return [
        "  " + statement.format(at=f"(unsigned char *)(uintptr_t)base[{region}] + {offset}", index=index, count=count)
        for index, (region, offset, count) in enumerate(places)
    ]


def _data(name: str, data: np.ndarray) -> list[str]:
    macro = f"{name.upper()}_ATTRIBUTES"
    rows = (data[at : at + _ROW].tolist() for at in range(0, len(data), _ROW))
    return [
        f'#ifndef {macro} /* such as __attribute__((section(".qspi"))) */', f"#define {macro}", "#endif",
        f"_Alignas(16) {macro} static const unsigned char {name}[{len(data)}] = {{",
        *(f"  {','.join(map(str, row))}," for row in rows), "};",
    ]  # fmt: skip
