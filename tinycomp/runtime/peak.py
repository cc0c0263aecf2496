"""What a core of this machine can do, as the C runtime measures it."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tinycomp.runtime.clib import ffi, lib, raise_error


@functools.cache
def peak_flops(isa: str) -> float:
    """Return the floating-point operations per second of one core: independent multiply-adds and nothing else.

    It takes some milliseconds, once per process and instruction set. An instruction set without vectors has the speed
    that the compiler's own vectors give it.

    Args:
        isa: One of :func:`tinycomp.runtime.processor.available_isas`.

    Raises:
        UnsupportedError: If this machine does not run the instruction set.
    """
    return _measured(lib.tc_peak_flops, isa)


@functools.cache
def peak_int8(isa: str) -> float:
    """Return the operations per second of one core on 8-bit numbers: exact products, added up in 32 bits.

    Otherwise as :func:`peak_flops`.
    """
    return _measured(lib.tc_peak_int8, isa)


def _measured(measure: Callable[..., int], isa: str) -> float:
    error, rate = ffi.new("tc_error *"), ffi.new("double *")
    if measure(isa.encode(), rate, error):
        raise_error(error, "peak of the machine")
    return float(rate[0])
