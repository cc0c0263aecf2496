r"""Writing C text from things that a model's author chose: names, labels and numbers.

A model may call a value ``*/ system("…"); /*``, put a newline into a node's name, or use a name of a megabyte. None of
that may reach generated C as it stands: every name goes through :func:`c_identifier`, :func:`c_comment` or
:func:`c_string`, every number through :func:`c_number`. All four return plain ASCII without line breaks.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

import numpy as np

from tinycomp.errors import TargetError

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
        raise TargetError("the number does not fit into 64 bits", where="c_number", found=str(number))
    if number == -(2**63):
        return "(-9223372036854775807LL - 1)"  # C has no negative literals, and this one's opposite does not exist
    suffix = "ULL" if number >= 2**63 else "LL" if abs(number) > _C_INT_MAX else ""
    return f"({number}{suffix})" if number < 0 else f"{number}{suffix}"
