"""What a core of this machine can do, as the C runtime measures it."""

from __future__ import annotations

import functools

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
    error, rate = ffi.new("tc_error *"), ffi.new("double *")
    if lib.tc_peak_flops(isa.encode(), rate, error):
        raise_error(error, "peak of the machine")
    return float(rate[0])
