"""Tests on attributes, types and constants that a pattern may ask for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Set
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import schema
from tinycomp.ir.types import tensor
from tinycomp.rewrite.match import Rejection

if TYPE_CHECKING:
    from tinycomp.rewrite.search import Search

ShapePattern = tuple["int | str | EllipsisType | None", ...]
_FILLED_DEFAULTS = {"dilations": 1, "pads": 0, "strides": 1}


@dataclass(frozen=True, eq=False)
class AttrBinding:
    """Binds an attribute to a name; used twice, both attributes must be equal.

    Attributes:
        name: Name of the binding.
        constraint: A further literal, set or callable that must hold, or None.
    """

    name: str
    constraint: Any = None


def attribute(node: Node, name: str) -> Any:
    """Return an attribute of ``node``, its ONNX default where the node leaves it out, or None."""
    return node.attrs[name] if name in node.attrs else _default(node.op, node.domain, node.version, name)


@functools.cache
def _default(op: str, domain: str, version: int, name: str) -> Any:
    found = schema(op, domain, version)
    if found is None or name not in found.attributes:
        return None
    proto = found.attributes[name].default_value
    value = helper.get_attribute_value(proto) if proto.name else None
    return value.decode() if isinstance(value, bytes) else value


def check_attr(node: Node, name: str, wanted: Any, search: Search) -> str:
    """Return why an attribute does not satisfy ``wanted``, or an empty text."""
    found = attribute(node, name)
    if isinstance(wanted, AttrBinding):
        if wanted.name in search.attrs:
            held = search.attrs[wanted.name]
            return "" if same(found, held) else f"expected {name}={held!r} as bound, found {name}={found!r}"
        search.record(search.attrs, wanted.name, found)
        return "" if wanted.constraint is None else check_attr(node, name, wanted.constraint, search)
    if found is None and name in _FILLED_DEFAULTS:
        found = _filled(_FILLED_DEFAULTS[name], wanted)
    reason = check_plain(found, wanted)
    return reason and (f"{name}: {reason}" if callable(wanted) else f"expected {name}={_text(wanted)}, found {found!r}")


def _filled(default: int, wanted: Any) -> list[int] | None:
    """Spell out a spatial attribute that is left out, with as many entries as the literals that it is compared with."""
    literals = wanted if isinstance(wanted, (set, frozenset)) else [wanted]
    length = next((len(w) for w in literals if isinstance(w, (list, tuple))), None)
    return None if length is None else [default] * length


def check_plain(found: Any, wanted: Any) -> str:
    """Test a plain value against a literal, a set of literals, or a predicate; return why not, or an empty text."""
    if callable(wanted):
        answer = wanted(found)
        return _answer(answer, found)
    if isinstance(wanted, (set, frozenset)):
        return "" if any(same(found, w) for w in wanted) else f"expected {_text(wanted)}, found {found!r}"
    return "" if same(found, wanted) else f"expected {_text(wanted)}, found {found!r}"


def _answer(answer: Any, found: Any) -> str:
    if isinstance(answer, Rejection):
        return answer.reason
    return "" if answer is None or bool(answer) else f"{_short(found)} is refused"


def same(a: Any, b: Any) -> bool:
    """Whether two attributes are equal; floats up to single precision, lists and tuples alike."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        number = isinstance(a, (int, float)) and isinstance(b, (int, float))
        return number and bool(a == b or np.isclose(a, b, rtol=1e-6, atol=0.0))
    return bool(a == b)


def _text(wanted: Any) -> str:
    if isinstance(wanted, Set):
        return " or ".join(repr(w) for w in sorted(wanted, key=str))
    return repr(wanted)


def _short(found: Any) -> str:
    if isinstance(found, np.ndarray) and found.size > 8:
        return f"{found.dtype}{list(found.shape)}"
    return str(found)


def check_const(array: np.ndarray, wanted: Any) -> str:
    """Test a constant against a number, an array or a predicate; return why not, or an empty text.

    A number asks that every element has that value, whatever the shape; an array or list asks for shape and elements.
    """
    if callable(wanted):
        return _answer(wanted(array), array)
    literal = np.asarray(wanted)
    shaped = literal.ndim == 0 or literal.shape == array.shape
    if shaped and array.size and bool(np.all(_close(array, literal))):
        return ""
    return f"expected the constant {wanted}, found {_short(array)}"


def _close(array: np.ndarray, literal: np.ndarray) -> Any:
    if literal.dtype.kind not in "fiub" or array.dtype.kind in "OUS":
        return array == literal
    if array.dtype.kind in "iub":
        return array == literal
    rounded = literal.astype(array.dtype)
    return (array == rounded) | np.isclose(array.astype(np.float64), literal.astype(np.float64), rtol=1e-6, atol=0.0)


@dataclass(frozen=True, eq=False)
class Constraints:
    """What ``where`` asks of a value; a field that is None asks nothing.

    Attributes:
        dtype: dtype name, set of names, or predicate.
        shape: Dimensions: a size, None for any, a text that binds a size and must agree where it stands again, one
            ``...`` for any number of dimensions; or a predicate on the shape.
        rank: Number of dimensions, set of numbers, or predicate.
        value: What the constant must be, as in ``P.const``.
        uses: Number of uses (graph outputs count), set of numbers, or predicate.
        layout: Name of the memory order, set of names, or predicate.
        const: True asks for a constant, False for anything else.
    """

    dtype: str | Set[str] | Callable[[str], Any] | None = None
    shape: ShapePattern | Callable[[Any], Any] | None = None
    rank: int | Set[int] | Callable[[Any], Any] | None = None
    value: Any = None
    uses: int | Set[int] | Callable[[int], Any] | None = None
    layout: str | Set[str] | Callable[[str], Any] | None = None
    const: bool | None = None

    @property
    def binds_constant(self) -> bool:
        """Whether only a constant can satisfy them."""
        return self.const is True or self.value is not None

    def check(self, value: Value, search: Search) -> str:
        """Return why ``value`` does not satisfy them, or an empty text."""
        type_ = tensor(value.type)
        if self.binds_constant and value.const is None:
            return "expected a constant, found " + search.describe(value)
        if self.const is False and value.const is not None:
            return "expected anything but a constant, found " + search.describe(value)
        plain = (
            ("dtype", self.dtype, type_.dtype),
            ("rank", self.rank, type_.rank),
            ("layout", self.layout, type_.layout),
            ("uses", self.uses, search.uses(value)),
        )
        for name, wanted, found in plain:
            reason = "" if wanted is None else check_plain(found, wanted)
            if reason:
                return f"{name} of {value.name}: {reason}"
        reason = "" if self.shape is None else self._check_shape(type_.shape, search)
        if reason:
            return f"shape of {value.name}: {reason}"
        return "" if self.value is None or value.const is None else check_const(value.const, self.value)

    def _check_shape(self, shape: Any, search: Search) -> str:
        if callable(self.shape):
            return check_plain(shape, self.shape)
        assert self.shape is not None
        wanted = list(self.shape)
        refusal = f"expected {_shape_text(wanted)}, found {_shape_text(shape)}"
        if shape is None:
            return "" if wanted == [...] else refusal
        if ... in wanted:
            at = wanted.index(...)
            wanted[at : at + 1] = [None] * (len(shape) - len(wanted) + 1)
        fits = len(wanted) == len(shape)
        fits = fits and all(_fits(w, f, search) for w, f in zip(wanted, shape, strict=True))
        return "" if fits else refusal


def _fits(wanted: Any, found: Any, search: Search) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, str):
        if wanted not in search.dims:
            search.record(search.dims, wanted, found)
        return found is not None and search.dims[wanted] == found
    return bool(wanted == found)


def _shape_text(shape: Any) -> str:
    if shape is None:
        return "unknown rank"
    return "[" + ", ".join("..." if d is ... else "?" if d is None else str(d) for d in shape) + "]"
