"""C source as what a code generator returns: the text, and all that is needed to compile and call it.

The function has one signature, whatever the region computes::

    int f(const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch);

``inputs`` and ``outputs`` point to the region's operands and results in order, ``constants`` to
:attr:`CSource.constants`. All are row-major without gaps and aligned to their elements; elements of fewer than 8 bits
take a byte each. Inputs may be one and the same array; outputs overlap nothing. ``scratch`` has
:attr:`CSource.scratch_bytes` bytes that belong to this call alone, aligned to 64 bytes, with any content. The function
returns 0, or a number that the error message then shows. Several threads may call it at once, so it must not write to
static storage. It may itself be ``static``: tinycomp exports a function of its own that calls it.

What comes from a model gets into the text through :func:`c_identifier`, :func:`c_comment`, :func:`c_string` and
:func:`c_number` only. A model may call a value ``*/ system("…"); /*``, put a newline into a node's name, or use a
name of a megabyte; none of that may reach generated C as it stands. All four return plain ASCII without line breaks.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ArtifactError, TargetError, shown
from tinycomp.memory.reading import reading
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.program import Array

MAX_NAME = 40
"""Most characters of a model's name that stay readable in an identifier."""
MAX_COMMENT = 200
"""Most characters of a comment."""

_PLAIN = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*\Z")
_C_INT_MAX = 2**31 - 1


def c_identifier(name: str, prefix: str = "v") -> str:
    """Return a C identifier for ``name``: the same for the same name, different ones for different names.

    The prefix keeps it apart from keywords, macros and library functions, whatever the name is.

    >>> c_identifier("stem_conv"), c_identifier("double"), c_identifier("a/b:0")
    ('v_stem_conv', 'v_double', 'v_a_b_0__845130c7dda5d99247ffd54c')
    """
    if _PLAIN.match(name) and len(name) <= MAX_NAME:
        return f"{prefix}_{name}"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    readable = re.sub(r"[^A-Za-z0-9]+", "_", name[:MAX_NAME]).strip("_")
    # No plain name has two underscores in a row, so that no name can pose as the identifier of another.
    return f"{prefix}_{readable}__{digest}"


def c_comment(text: str) -> str:
    r"""Return a comment on one line that shows ``text``.

    >>> c_comment("conv/1"), c_comment('*/ system("x");\n')
    ('/* conv/1 */', '/* * / system("x");\\n */')
    """
    shown = text[:MAX_COMMENT].encode("unicode_escape").decode("ascii").replace("*/", "* /").replace("/*", "/ *")
    return f"/* {shown[:MAX_COMMENT]}{'...' if len(text) > MAX_COMMENT or len(shown) > MAX_COMMENT else ''} */"


def c_string(text: str) -> str:
    r"""Return a string literal with the UTF-8 bytes of ``text``.

    >>> c_string('say "hi"'), c_string("é?\n")
    ('"say \\"hi\\""', '"\\303\\251\\077\\012"')
    """
    return f'"{"".join(map(_string_byte, text.encode("utf-8", "surrogatepass")))}"'


def _string_byte(byte: int) -> str:
    character = chr(byte)
    if character in '"\\':
        return f"\\{character}"
    # Three octal digits end by themselves, which hexadecimal ones do not; "?" could begin a trigraph.
    return character if 32 <= byte < 127 and character != "?" else f"\\{byte:03o}"


def c_number(value: Any, dtype: str) -> str:
    """Return an expression of exactly this value, in the fewest digits that a compiler reads back as it.

    Args:
        value: The number.
        dtype: ``"bool"``, an integer type, ``"float32"`` or ``"float64"``. Infinities and NaN need ``<math.h>``.

    Raises:
        TargetError: If an integer does not fit into 64 bits.

    >>> c_number(0.1, "float32"), c_number(-1.5, "float64"), c_number(np.inf, "float32"), c_number(-7, "int8")
    ('0.1f', '(-1.5)', 'INFINITY', '(-7)')
    """
    if "float" not in dtype:
        return _integer(int(value))
    number = np.float32(value) if dtype == "float32" else np.float64(value)
    if math.isfinite(number):
        text = str(number) + ("f" if dtype == "float32" else "")
    else:
        sign = "-" if math.copysign(1.0, number) < 0 else ""
        text = sign + ("NAN" if math.isnan(number) else "INFINITY")
    return f"({text})" if text.startswith("-") else text


def _integer(number: int) -> str:
    if not -(2**63) <= number < 2**64:
        raise TargetError("the number does not fit into 64 bits", where="c_number", found=shown(number))
    if number == -(2**63):
        return "(-9223372036854775807LL - 1)"  # C has no negative literals, and this one's opposite does not exist
    suffix = "ULL" if number >= 2**63 else "LL" if abs(number) > _C_INT_MAX else ""
    return f"({number}{suffix})" if number < 0 else f"{number}{suffix}"


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LISTS = ("flags", "libraries", "include_dirs", "library_dirs")


@dataclass(frozen=True, slots=True)
class CSource:
    """A region as C source; tinycomp compiles it with the system's compiler and keeps the result.

    Args:
        text: A translation unit in C11, with its ``#include`` lines. Names from a model get into it through
            :mod:`tinycomp.runtime.csource.source` only.
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
                raise TargetError(f"{name} must be texts", where="CSource", found=shown(getattr(self, name)))
        if not isinstance(self.function, str) or not _IDENTIFIER.match(self.function):
            raise TargetError("the function's name is not a C identifier", where="CSource", found=shown(self.function))
        if not isinstance(self.text, str) or not self.text.strip():
            raise TargetError("the C source is not a text", where="CSource", found=shown(self.text))
        if any(c.dtype.kind == "O" for c in self.constants):
            raise TargetError("a constant holds texts", where="CSource", hint="C functions take numbers only.")
        if self.scratch_bytes < 0:
            raise TargetError("scratch_bytes is negative", where="CSource", found=shown(self.scratch_bytes))

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
        with reading(ArtifactError, problem="the description of C source is damaged"):
            lists = {name: tuple(data[name]) for name in _LISTS}
            try:
                return cls(data["text"], data["function"], tuple(constants), data["scratch_bytes"], **lists)
            except TargetError as error:
                raise ValueError(error) from error
