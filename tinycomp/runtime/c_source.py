"""C source as what a code generator returns: the text, and all that is needed to compile and call it.

The function has one signature, whatever the region computes::

    int f(const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch);

``inputs`` and ``outputs`` point to the region's operands and results in order, ``constants`` to
:attr:`CSource.constants`. All are row-major without gaps and aligned to their elements; elements of fewer than 8 bits
take a byte each. Inputs may be one and the same array; outputs overlap nothing. ``scratch`` has
:attr:`CSource.scratch_bytes` bytes that belong to this call alone, aligned to 64 bytes, with any content. The function
returns 0, or a number that the error message then shows. Several threads may call it at once, so it must not write to
static storage. It may itself be ``static``: tinycomp exports a function of its own that calls it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinycomp.errors import ArtifactError, TargetError
from tinycomp.runtime.program import Array

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LISTS = ("flags", "libraries", "include_dirs", "library_dirs")


@dataclass(frozen=True, slots=True)
class CSource:
    """A region as C source; tinycomp compiles it with the system's compiler and keeps the result.

    Args:
        text: A translation unit in C11, with its ``#include`` lines. Names from a model get into it through
            :mod:`tinycomp.runtime.c_text` only.
        function: The function to call, with the signature above.
        constants: Arrays that the function gets pointers to; numbers that are few may stand in the text instead.
        scratch_bytes: Memory that one call needs for what is between its operands and its results.
        flags: For the compiler, behind tinycomp's own, which are ``-std=c11 -O3 -ffp-contract=off``.
        libraries: To link with: ``"blas"`` for ``-lblas``. The mathematical library is always there.
        include_dirs: Folders with headers.
        library_dirs: Folders with libraries; the compiled code remembers them.

    Raises:
        TargetError: If a part is of the wrong kind.
    """

    text: str
    function: str
    constants: tuple[Array, ...] = field(default=(), repr=False)
    scratch_bytes: int = 0
    flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("constants", *_LISTS):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise TargetError(f"{name} must be a list", where="CSource", found=repr(value))
            # A list is the natural thing to write; what is kept must not change afterwards.
            object.__setattr__(self, name, tuple(value))
        for name in _LISTS:
            if not all(isinstance(item, str) for item in getattr(self, name)):
                raise TargetError(f"{name} must be texts", where="CSource", found=repr(getattr(self, name)))
        if not isinstance(self.function, str) or not _IDENTIFIER.match(self.function):
            raise TargetError("the function's name is no C identifier", where="CSource", found=repr(self.function))
        if not isinstance(self.text, str) or not self.text.strip():
            raise TargetError("there is no C text", where="CSource", found=repr(self.text))
        if any(c.dtype.kind == "O" for c in self.constants):
            raise TargetError("a constant holds texts", where="CSource", hint="C functions take numbers only.")
        if self.scratch_bytes < 0:
            raise TargetError("scratch_bytes is negative", where="CSource", found=str(self.scratch_bytes))

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the constants as values that ``json`` can write."""
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        return {"text": self.text, "function": self.function, "scratch_bytes": self.scratch_bytes, **lists}

    def to_text(self) -> str:
        """Return the C text, as :meth:`Program.to_text` returns kernel calls."""
        return self.text

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], constants: Sequence[Array]) -> CSource:
        """Rebuild C source from :meth:`to_dict` and its constants.

        Raises:
            ArtifactError: If something is missing or of the wrong kind.
        """
        try:
            lists = {name: tuple(map(str, data[name])) for name in _LISTS}
            scratch = int(data["scratch_bytes"])
            return cls(str(data["text"]), str(data["function"]), tuple(constants), scratch, **lists)
        except (KeyError, TypeError, ValueError, TargetError) as error:
            raise ArtifactError(
                "the description of C source is damaged", found=f"{type(error).__name__}: {error}"
            ) from error
