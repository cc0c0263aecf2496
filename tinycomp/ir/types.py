"""Types of values: what a tensor, sequence, optional or map holds.

``TensorType.shape`` is always the logical shape that ONNX defines; ``layout`` only says how the elements lie in
memory. Changing the layout therefore never changes an axis, a shape or the meaning of an operator.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping

import numpy as np

from tinycomp import symbolic
from tinycomp.errors import ModelError
from tinycomp.records import dataclass, field, replace
from tinycomp.symbolic import Size

Dim = int | str | None
"""A dimension: a size, an expression over named sizes (:mod:`tinycomp.symbolic`), or None where nothing is known."""

UNKNOWN_DTYPE = "?"
EIGHT_BITS = frozenset({"int8", "uint8"})
ROW_MAJOR = ""


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor.

    Attributes:
        dtype: numpy/ml_dtypes name, ``"string"``, or ``"?"`` where nothing is known.
        shape: Logical dimensions, or None where even the rank is unknown.
        layout: Memory order of the elements; empty means row-major, else a name such as ``"NHWC"``.
        contents: The elements, in order, of a small integer tensor that is computed from sizes, with None for an
            unknown element; None for all other tensors. Comparisons of types ignore it.
    """

    dtype: str
    shape: tuple[Dim, ...] | None
    layout: str = ROW_MAJOR
    contents: tuple[Size | None, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def rank(self) -> int | None:
        """Number of dimensions, or None."""
        return None if self.shape is None else len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if every dimension is a number, else None."""
        for dim in self.shape or ():
            if not isinstance(dim, int):
                return None
        return self.shape  # type: ignore[return-value]  # the loop has checked each

    @property
    def sizes(self) -> tuple[Size, ...] | None:
        """The shape as numbers and expressions, or None where a dimension is unknown."""
        shape = self.shape
        if shape is None or None in shape:
            return None
        for dim in shape:
            if not isinstance(dim, int):
                return tuple([symbolic.size(d) for d in shape if d is not None])
        return shape  # type: ignore[return-value]  # the loop has checked each

    def size(self, unknown: int = 1) -> int:
        """Return the number of elements, with ``unknown`` in place of every symbolic or unknown dimension."""
        total = 1
        for dim in self.shape or ():
            total *= dim if isinstance(dim, int) else unknown
        return total

    def nbytes(self, unknown: int = 1) -> int:
        """Return the size in bytes as stored; sub-byte elements count as packed, strings as pointers."""
        return (self.size(unknown) * bits(self.dtype) + 7) // 8

    def with_layout(self, layout: str) -> TensorType:
        """Return the same logical type stored in another memory order."""
        return TensorType(self.dtype, self.shape, layout, self.contents)

    def __str__(self) -> str:
        dims = "..." if self.shape is None else ", ".join(_dim_text(d) for d in self.shape)
        return f"{self.dtype}[{dims}{'; ' + _dim_text(self.layout) if self.layout else ''}]"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: Type

    def __str__(self) -> str:
        return f"seq<{self.element}>"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent at run time."""

    element: Type

    def __str__(self) -> str:
        return f"optional<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A dictionary from integers or strings to values."""

    key: str
    value: Type

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


Type = TensorType | SequenceType | OptionalType | MapType
UNKNOWN = TensorType(UNKNOWN_DTYPE, None)
"""The type of a value about which nothing is known."""


def _dim_text(dim: Dim) -> str:
    if dim is None:
        return "?"
    if isinstance(dim, int) or (dim.isascii() and dim.isidentifier()):
        return str(dim)
    return json.dumps(dim)


def tensor(type_: Type) -> TensorType:
    """Return ``type_`` as a tensor type, or :data:`UNKNOWN` for the other kinds."""
    return type_ if isinstance(type_, TensorType) else UNKNOWN


_PLAIN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64", "complex64", "complex128")  # fmt: skip
_DTYPES: Mapping[str, np.dtype] = {name: np.dtype(name) for name in _PLAIN} | {"string": np.dtype(object)}
_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6,
         UNKNOWN_DTYPE: 0}  # fmt: skip


@functools.cache
def _special() -> Mapping[str, np.dtype]:
    """Return the dtypes that numpy itself does not have, which few models use."""
    import ml_dtypes

    kinds = {name: getattr(ml_dtypes, name) for name in dir(ml_dtypes)}
    prefixes = ("bfloat", "float", "int", "uint")
    return {name: np.dtype(x) for name, x in kinds.items() if name.startswith(prefixes) and isinstance(x, type)}


def numpy_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of a dtype name (``"string"`` is stored as Python objects).

    Raises:
        ModelError: If the element type is unknown.
        KeyError: If there is no such name.
    """
    if name == UNKNOWN_DTYPE:
        raise ModelError("the element type is unknown", expected="a known element type", found=repr(name))
    return _DTYPES[name] if name in _DTYPES else _special()[name]


def known_dtypes() -> Collection[str]:
    """Return every dtype name."""
    return [*_DTYPES, *_special()]


@functools.cache
def dtype_name(dtype: np.dtype) -> str:
    """Return the dtype name of a numpy dtype; any text or object dtype is ``"string"``."""
    return "string" if dtype.kind in "OUST" else dtype.newbyteorder("=").name


def bits(dtype: str) -> int:
    """Return the number of bits that one element occupies in memory when packed."""
    return _BITS[dtype] if dtype in _BITS else numpy_dtype(dtype).itemsize * 8


def type_of(array: np.ndarray) -> TensorType:
    """Return the type of an array."""
    return tensor_type(dtype_name(array.dtype), array.shape)


@functools.lru_cache(maxsize=4096)
def tensor_type(dtype: str, shape: tuple[Dim, ...] | None) -> TensorType:
    """Return a row-major type without known contents; equal calls share one object, as a model has many."""
    return TensorType(dtype, shape)


def map_tensors(type_: Type, change: Callable[[TensorType], Type]) -> Type:
    """Return a type with another one for the tensors that it is of, if they are alone, in a sequence, or optional."""
    if isinstance(type_, TensorType):
        return change(type_)
    if isinstance(type_, MapType):
        return MapType(type_.key, map_tensors(type_.value, change))
    return type(type_)(map_tensors(type_.element, change))


def substitute(type_: Type, sizes: Mapping[str, int]) -> Type:
    """Return ``type_`` with every symbol of ``sizes`` replaced by its size."""

    def change(own: TensorType) -> TensorType:
        return own if own.shape is None else replace(own, shape=tuple(_substituted(d, sizes) for d in own.shape))

    return map_tensors(type_, change)


def _substituted(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    if not isinstance(dim, str):
        return dim
    return symbolic.dimension(symbolic.substitute(symbolic.size(dim), sizes))


def inform(inferred: Type, declared: Type) -> Type:
    """Return an inferred type, with what is declared where nothing is known.

    >>> known, said = TensorType("float32", ("n", None)), TensorType("float32", (1, 8))
    >>> str(inform(known, said)), str(inform(known, TensorType("float32", (8,))))
    ('float32[n, 8]', 'float32[n, ?]')
    """
    return _merged(inferred, declared, lambda known, said: said if known is None else known)


def refine(before: Type, after: Type) -> Type:
    """Return what two inferences say together of one value, the later one where they contradict each other.

    >>> str(refine(TensorType("float32", ("N", None)), TensorType("float32", (None, 8))))
    'float32[N, 8]'
    """
    return _merged(after, before, _better_dim)


def _merged(first: Type, second: Type, better: Callable[[Dim, Dim], Dim]) -> Type:
    """Return the first type with what the second adds to it; ``better`` chooses between dimensions."""
    if type(first) is type(second) and isinstance(first, (SequenceType, OptionalType)):
        return type(first)(_merged(first.element, second.element, better))  # type: ignore[union-attr]  # of one class
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return second if first == UNKNOWN else first
    dtype = second.dtype if first.dtype == UNKNOWN_DTYPE else first.dtype
    layout = first.layout or second.layout
    if first.shape is None:
        return TensorType(dtype, second.shape, layout)
    if second.shape is None or len(second.shape) != len(first.shape):
        return TensorType(dtype, first.shape, layout, first.contents)
    shape = tuple(map(better, first.shape, second.shape))
    return TensorType(dtype, shape, layout, first.contents)


def _better_dim(after: Dim, before: Dim) -> Dim:
    if after is None or (isinstance(before, int) and not isinstance(after, int)):
        return before
    return after


def join(a: Type, b: Type) -> Type:
    """Return the most precise type that covers both; kinds or dtypes that differ give :data:`UNKNOWN`.

    Contents are kept only where both types have the same.

    >>> str(join(TensorType("float32", (1, 8)), TensorType("float32", (2, 8))))
    'float32[?, 8]'
    """
    if a == b and isinstance(a, TensorType) and not same(a, b):
        return replace(a, contents=None)
    if same(a, b):
        return a
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(join(a.element, b.element))
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        return OptionalType(join(present(a), present(b)))
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype != b.dtype:
        return UNKNOWN
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(a.dtype, None)
    return TensorType(a.dtype, tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))


def same(a: Type, b: Type) -> bool:
    """Tell whether two types are equal, contents included."""
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return same(a.element, b.element)
    if isinstance(a, OptionalType) and isinstance(b, OptionalType):
        return same(a.element, b.element)
    return a == b and tensor(a).contents == tensor(b).contents


def without_contents(type_: Type) -> Type:
    """Return the type with nothing known about the elements."""
    return TensorType(type_.dtype, type_.shape, type_.layout) if isinstance(type_, TensorType) else type_


def without_shape(type_: Type) -> Type:
    """Return the type with nothing known but the element type, where it is a tensor."""
    return TensorType(type_.dtype, None) if isinstance(type_, TensorType) else type_


def present(type_: Type) -> Type:
    """Return the element type of an optional, and any other type as it is."""
    return type_.element if isinstance(type_, OptionalType) else type_


def compatible(a: Type, b: Type) -> bool:
    """Tell whether one value could have both types: equal dtypes, equal ranks, and no sizes that differ."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a == b or UNKNOWN in (a, b) or (type(a) is type(b) and not isinstance(a, TensorType))
    if UNKNOWN_DTYPE not in (a.dtype, b.dtype) and a.dtype != b.dtype:
        return False
    if a.shape is None or b.shape is None:
        return True
    if len(a.shape) != len(b.shape):
        return False
    return all(not (isinstance(x, int) and isinstance(y, int)) or x == y for x, y in zip(a.shape, b.shape, strict=True))
