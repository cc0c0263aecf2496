"""How names, numbers and arrays are spelled in the textual form; shared by the printer and the parser.

Everything here is exact: a spelling gives back the same value, bit for bit, with the dtype that the text names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.ir.types import TensorType, dtype_name, numpy_dtype

BARE_VALUE = r"(?:[A-Za-z0-9_.]|/(?!/))+"
"""Value names that need no quotes after ``%``: no ``//``, which begins a comment."""
BARE_WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
"""Operators, domains, graph names and keys that need no quotes."""
RESERVED = frozenset({"_", "inf", "nan", "true", "false"})
_VALUE = re.compile(BARE_VALUE + r"\Z")
_WORD = re.compile(BARE_WORD + r"\Z")
_HASH_DIGITS = 16
_MAX_FLOAT_DIGITS = 17


def quote(text: str) -> str:
    r"""Return ``text`` in double quotes with JSON's escapes; printable characters stay as they are.

    >>> quote('a "b"'), quote("tab\t")
    ('"a \\"b\\""', '"tab\\t"')
    """
    return json.dumps(text, ensure_ascii=not text.isprintable())


def word(text: str) -> str:
    """Return ``text``, quoted unless it can stand alone."""
    return text if _WORD.match(text) and text not in RESERVED else quote(text)


def value_name(name: str) -> str:
    """Return the reference to a value: ``%name``, or ``_`` for the empty name of a skipped one."""
    if not name:
        return "_"
    return f"%{name}" if _VALUE.match(name) else f"%{quote(name)}"


def float_attr(value: float) -> str:
    """Return the shortest spelling of a float attribute; the suffix ``f`` says that the text means a float32.

    >>> float_attr(0.5), float_attr(0.1), float_attr(0.10000000149011612)
    ('0.5', '0.1', '0.1f')
    """
    text = repr(float(value))
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if float(single) == value:
        short = str(single)
        return text if short == text else f"{short}f"
    return text


def bytes_literal(value: bytes) -> str:
    r"""Return ``b"…"``: one character per byte.

    >>> bytes_literal(b"ok\xff")
    'b"ok\\u00ff"'
    """
    return "b" + json.dumps(value.decode("latin-1"))


class AbsentArray(np.ndarray):
    """Stand for a constant of which only the type and the hash are known; its elements are zeros and mean nothing.

    Attributes:
        content: The hash of the elements.
    """

    content = ""

    @classmethod
    def of(cls, content: str, type_: TensorType) -> AbsentArray:
        """Return the stand-in for a constant of known sizes; it takes no memory.

        Raises:
            ValueError: If a size is not known.
        """
        sizes = tuple(dim for dim in type_.shape or () if isinstance(dim, int))
        if type_.shape is None or len(sizes) != len(type_.shape):
            raise ValueError(f"{type_} is not the type of an array")
        array = np.broadcast_to(np.zeros((), numpy_dtype(type_.dtype)), sizes).view(cls)
        array.content = content
        return array


def content_hash(array: np.ndarray) -> str:
    """Return the first digits of the SHA-256 of an array's dtype, shape and elements."""
    if isinstance(array, AbsentArray) and array.content:
        return array.content
    from hashlib import sha256  # imported here: loading OpenSSL is slow, and few graphs are written

    name = dtype_name(array.dtype)
    digest = sha256(f"{name}{list(array.shape)}".encode())
    if name == "string":
        digest.update(json.dumps([str(s) for s in array.reshape(-1)]).encode())
    else:
        digest.update(raw_bytes(array))
    return digest.hexdigest()[:_HASH_DIGITS]


def raw_bytes(array: np.ndarray) -> memoryview:
    """Return the elements of a numeric array as row-major native bytes, without a copy where possible."""
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return native.reshape(-1).view(np.uint8).data


def array_literal(array: np.ndarray) -> str:
    """Return the elements of a (small) array: one scalar for rank 0, else a flat list; hex where text is not exact."""
    flat = array.reshape(-1)
    if not _has_exact_text(array):
        return f'hex "{raw_bytes(array).hex()}"'
    items = [_element(v, dtype_name(array.dtype)) for v in flat]
    return items[0] if array.ndim == 0 else f"[{', '.join(items)}]"


def _has_exact_text(array: np.ndarray) -> bool:
    """Tell whether a number has an exact decimal text: complex ones have none, nor NaNs with a sign or payload."""
    name = dtype_name(array.dtype)
    if name.startswith("complex"):
        return False
    if "float" not in name:
        return True
    missing = array[np.isnan(array)]
    return bytes(raw_bytes(missing)) == bytes(raw_bytes(np.full(missing.shape, np.nan, missing.dtype)))


def _element(value: Any, dtype: str) -> str:
    if dtype == "string":
        return quote(str(value))
    if dtype == "bool":
        return "true" if value else "false"
    if "float" not in dtype:
        return str(int(value))
    if dtype == "float64":
        return repr(float(value))
    if dtype == "float32":
        return str(value)
    return _shortest(float(value), numpy_dtype(dtype))


def _shortest(value: float, dtype: np.dtype) -> str:
    """Return the fewest digits that the narrow float ``dtype`` reads back as ``value``."""
    if not np.isfinite(value):
        return str(value)
    texts = (f"{value:.{digits}g}" for digits in range(1, _MAX_FLOAT_DIGITS))
    with np.errstate(over="ignore"):
        text = next((t for t in texts if float(np.asarray(float(t)).astype(dtype)) == value), repr(value))
    return text if "." in text or "e" in text else f"{text}.0"


def array_from_items(items: Sequence[Any], type_: TensorType) -> np.ndarray:
    """Return the array whose flat elements are ``items``.

    Raises:
        ValueError: If the count does not fit the shape, or an element does not fit the dtype.
    """
    shape = type_.static_shape
    if shape is None:
        raise ValueError(f"a literal needs a static shape, not {type_}")
    if len(items) != type_.size():
        raise ValueError(f"{type_} has {type_.size()} elements, the literal has {len(items)}")
    accepted = _ACCEPTED.get(type_.dtype, (int, float) if "float" in type_.dtype else (int,))
    for item in items:
        if type(item) not in accepted:
            raise ValueError(f"{item!r} is not an element of {type_.dtype}")
    return _exact_array(items, numpy_dtype(type_.dtype)).reshape(shape)


_ACCEPTED: dict[str, tuple[type, ...]] = {"string": (str,), "bool": (bool,)}


def _exact_array(items: Sequence[Any], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "Ob":
        return np.array(items, dtype=dtype)
    if "float" in dtype.name:
        with np.errstate(over="ignore"):
            return np.array([float(v) for v in items], dtype=np.float64).astype(dtype)
    array = np.array(items, dtype=object).astype(np.uint64 if dtype.name == "uint64" else np.int64).astype(dtype)
    if [int(v) for v in array] != list(items):
        raise ValueError(f"an element is out of range for {dtype.name}")
    return array


def array_from_hex(text: str, type_: TensorType) -> np.ndarray:
    """Return the array whose native bytes are ``text`` in hexadecimal.

    Raises:
        ValueError: If the bytes do not fill the shape.
    """
    if type_.dtype == "string":
        raise ValueError("strings are written as a list")
    data, dtype, shape = bytes.fromhex(text), numpy_dtype(type_.dtype), type_.static_shape
    if shape is None or len(data) != type_.size() * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes do not fill {type_}")
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()
