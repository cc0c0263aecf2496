"""Packed weights that several programs use."""

from __future__ import annotations

from tinycomp.runtime.clib import ffi, lib, raise_error


class Weights:
    """Packed weights that the programs of one model share: what a change of batch size need not make anew.

    Programs over the same arrays find each other's packed weights here; what no program uses any more is freed.
    """

    def __init__(self) -> None:
        error, out = ffi.new("tc_error *"), ffi.new("tc_weights **")
        if lib.tc_weights_create(out, error):
            raise_error(error, "packed weights")
        self.handle = ffi.gc(out[0], lib.tc_weights_destroy)

    @property
    def nbytes(self) -> int:
        """Bytes that the programs alive share."""
        return int(lib.tc_weights_bytes(self.handle))
