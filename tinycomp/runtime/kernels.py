"""The kernels of the C runtime: their names, signatures and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinycomp.errors import TargetError, did_you_mean
from tinycomp.runtime.clib import ffi, lib


class Kernel:
    """What Python knows of one kernel.

    Attributes:
        index: Its number in the C runtime.
        name: Its name.
        signature: One letter per operand, as in ``runtime_c/kernels/kernels.def``.
        ctype: Its parameter struct.
        fields: The parameters, in order, with their Python types (int or float).
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.name: str = ffi.string(lib.tc_kernel_name(index)).decode()
        self.signature: str = ffi.string(lib.tc_kernel_signature(index)).decode()
        self.ctype = ffi.typeof(f"tc_{self.name}_params")
        self.fields: dict[str, type] = {
            name: float if field.type.cname in {"float", "double"} else int for name, field in self.ctype.fields
        }

    def make_params(self, params: Mapping[str, int | float], where: str) -> Any:
        """Return a filled C struct.

        Raises:
            TargetError: If a field is missing, unknown, of the wrong type or out of range.
        """
        for name in params:
            if name not in self.fields:
                raise TargetError(
                    f'kernel "{self.name}" has no parameter "{name}"',
                    where=where,
                    expected=", ".join(self.fields),
                    hint=did_you_mean(name, self.fields),
                )
        missing = [name for name in self.fields if name not in params]
        if missing:
            raise TargetError(f'kernel "{self.name}" lacks the parameters {", ".join(missing)}', where=where)
        try:
            return ffi.new(ffi.getctype(self.ctype, "*"), dict(params))
        except (TypeError, OverflowError) as error:
            raise TargetError(
                f'a parameter of kernel "{self.name}" does not fit', where=where, found=str(error)
            ) from None


_KERNELS = {kernel.name: kernel for kernel in map(Kernel, range(lib.tc_kernel_count()))}


def kernel_names() -> tuple[str, ...]:
    """Return the names of all kernels."""
    return tuple(_KERNELS)


def kernel_named(name: str, where: str = "") -> Kernel:
    """Return the kernel of a name.

    Args:
        name: Of the kernel.
        where: Who asks, for the message.

    Raises:
        TargetError: If there is no such kernel.
    """
    try:
        return _KERNELS[name]
    except KeyError:
        raise TargetError(f'there is no kernel "{name}"', where=where, hint=did_you_mean(name, _KERNELS)) from None
