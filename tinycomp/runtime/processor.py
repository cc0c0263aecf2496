"""What the C runtime knows of the processor: instruction sets, vectors and caches."""

from __future__ import annotations

import os
from typing import NamedTuple

from tinycomp.errors import UnsupportedError
from tinycomp.runtime.clib import c_strings, ffi, lib


def available_isas() -> tuple[str, ...]:
    """Return the instruction sets that this machine runs, best last, for example ``("scalar", "avx2", "avx512")``."""
    return c_strings(lib.tc_isa_name)


def default_isa() -> str:
    """Return the instruction set that programs use by default: ``TINYCOMP_ISA`` if it is set, else the best.

    Raises:
        UnsupportedError: If the environment asks for one that this machine does not run.
    """
    name = lib.tc_isa_default()
    if name == ffi.NULL:
        wanted = os.environ.get("TINYCOMP_ISA", "")
        raise UnsupportedError(
            f'this machine cannot run the instruction set "{wanted}"',
            where="TINYCOMP_ISA",
            expected=f"one of {', '.join(available_isas())}",
        )
    return str(ffi.string(name).decode())


class IsaShape(NamedTuple):
    """What products of matrices look like on an instruction set.

    Attributes:
        lanes: Floats of a vector.
        panel: Columns of a panel of packed weights.
    """

    lanes: int
    panel: int


def isa_shape(isa: str) -> IsaShape:
    """Return the vectors and panels of an instruction set of this machine.

    Raises:
        UnsupportedError: If this machine does not run it.
    """
    shape = ffi.new("tc_isa_shape *")
    if not lib.tc_isa_describe(isa.encode(), shape):
        raise UnsupportedError(f'no instruction set "{isa}" here', expected=f"one of {', '.join(available_isas())}")
    return IsaShape(shape.lanes, shape.panel)


def cache_bytes(level: int) -> int:
    """Return the bytes of a cache of level 1 (data), 2 or 3; what is common where the system does not say."""
    return int(lib.tc_cache_bytes(level))


def cpu_features() -> tuple[str, ...]:
    """Return the processor features that matter to the runtime and that this machine has."""
    return c_strings(lib.tc_cpu_feature)
