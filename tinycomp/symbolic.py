"""Symbolic sizes: integer expressions over named sizes, in a canonical form.

A :data:`Size` is an ``int`` where it is known and an :class:`Expression` where it follows from named sizes: sums,
products, floor divisions, minima, maxima and choices. Arithmetic is that of Python and normalises at once, so equal
polynomials are equal objects and print alike:

>>> n, m = symbol("n"), symbol("m")
>>> (n + 1) * m - m
m*n
>>> (4 * n + 6) // 2, (n * 12) // n, n - n
(2*n + 3, 12, 0)

Types store a dimension as a number or as this text (:func:`dimension`); :func:`size` reads it back. Every symbol is a
size, that is, a whole number of at least 0; only elements of tensors (:func:`element`) may be negative. A comparison is
decided only if its result is the same for all sizes; otherwise it raises :class:`UndecidedError`, so that no code
generator takes the wrong branch silently.

>>> n + 1 > 0
True
>>> n > 0
Traceback (most recent call last):
    ...
tinycomp.symbolic.UndecidedError: whether n - 1 >= 0 depends on sizes of the run
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from tinycomp.lazy import cached_property
from tinycomp.records import dataclass, field

Range = tuple[int, int | None]
"""The least and the greatest value of a symbol; the greatest may be None for no limit."""

_COMMENT = r'(?:[^"#]|"(?:[^"\\]|\\.)*")*#'
"""Matches a text with a "#" outside of quotes, after which Python would not read."""
_ELEMENT = re.compile(r"(.*)\[(?:0|[1-9][0-9]*)\]\Z", re.DOTALL)
FARTHEST = 1 << 40
"""The limit, on both sides, to which an element of a tensor is clamped if it serves as a size. It is larger than any
memory, and leaves room for arithmetic in 64 bits."""
_FUNCTIONS = ("min", "max", "ifzero")
_TYPICAL = 64
_IMAGE_RANK = 4
_IMAGE_SIDE = 256
_LONGEST = 10_000
"""Most characters of an expression to read, and of its normal form, because a short text may expand to a long one."""
_DEEPEST = 40
"""Most functions nested within each other in an expression to read."""
_MOST_TERMS = 200
"""Most terms of a sum to read."""
_MOST_PARTS = 1000
"""Most products of terms in one multiplication to read, and pairs of operands in one minimum or maximum."""
_SHORT, _SHALLOW = 300, 8
"""Most characters, and most functions nested within each other, of a part of a named size that gets no name."""


class UndecidedError(TypeError):
    """A comparison depends on sizes that are known only at run time."""


@dataclass(frozen=True, eq=False)
class _Atom:
    """An irreducible factor of a polynomial: a symbol, a function of expressions, or an expression that has a name.

    Attributes:
        kind: ``"symbol"``, ``"//"``, ``"min"``, ``"max"``, ``"ifzero"`` or ``"named"``.
        name: The name of a symbol or of an expression.
        operands: The operands of a function; the expression that has a name.
    """

    kind: str
    name: str = ""
    operands: tuple[Size, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare names rather than what they stand for: named sizes consist of others, which many of them share."""
        if self is other:
            return True
        if not isinstance(other, _Atom) or self.kind != other.kind or self.name != other.name:
            return False
        return self.kind == "named" or self.operands == other.operands

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.operands)) if self.kind != "named" else hash(self.name)

    @cached_property
    def text(self) -> str:
        """The atom as it is printed and sorted."""
        if self.kind == "symbol":
            element = _ELEMENT.match(self.name)
            return self.name if _is_plain(element[1] if element else self.name) else _quoted(self.name)
        if self.kind == "named":
            return _quoted(self.name)
        if self.kind == "//":
            top, bottom = (_inner(operand) for operand in self.operands)
            return f"{top}//{bottom}"
        return f"{self.kind}({', '.join(map(str, self.operands))})"

    @cached_property
    def depth(self) -> int:
        """How many functions are nested within each other, as the text shows them."""
        nested = [operand.depth for operand in self.operands if isinstance(operand, Expression)]
        return 0 if self.kind == "named" else 1 + max(nested, default=-1)


_Monomial = tuple[tuple[_Atom, int], ...]
"""A product of powers, sorted by the text of the atoms; empty for the constant term."""


class Expression:
    """A polynomial with integer coefficients over symbols and functions of expressions; immutable and hashable.

    Use arithmetic and the functions of this module to make one. An expression is never constant: constants are plain
    ``int``, so ``isinstance(x, int)`` tells known sizes from others.
    """

    __slots__ = ("__dict__", "_hash", "_terms")

    def __init__(self, terms: Iterable[tuple[_Monomial, int]]) -> None:
        self._terms = tuple(terms)  # in the order of _term_order: the constant term comes last
        self._hash = hash(self._terms)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols that the value depends on."""
        found: set[str] = set()
        for monomial, _ in self._terms:
            for atom, _ in monomial:
                found.update({atom.name} if atom.kind == "symbol" else ())
                found.update(*(operand.symbols for operand in atom.operands if isinstance(operand, Expression)))
        return frozenset(found)

    @cached_property
    def named(self) -> tuple[_Atom, ...]:
        """The parts that have a name, before those that consist of them, so that no recursion need go through all."""
        found: dict[_Atom, None] = {}
        for monomial, _ in self._terms:
            for atom, _ in monomial:
                for operand in atom.operands:
                    found |= dict.fromkeys(operand.named if isinstance(operand, Expression) else ())
                if atom.kind == "named":
                    found[atom] = None
        return tuple(found)

    @cached_property
    def depth(self) -> int:
        """Return how many functions are nested within each other (0 for a polynomial over symbols)."""
        return max(atom.depth for monomial, _ in self._terms for atom, _ in monomial)

    @cached_property
    def name(self) -> str | None:
        """The name of the symbol if the expression is just a symbol, else None."""
        if len(self._terms) != 1:
            return None
        (monomial, factor), *_ = self._terms
        if factor != 1 or len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].kind != "symbol":
            return None
        return monomial[0][0].name

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int):
            return self._plus(other.__index__())  # numpy's integers become Python's
        if not isinstance(other, Expression):
            return NotImplemented
        terms = dict(self._terms)
        for monomial, factor in other._terms:
            terms[monomial] = terms.get(monomial, 0) + factor
        return _made(terms)

    __radd__ = __add__

    def _plus(self, number: int) -> Size:
        *others, last = self._terms
        if last[0]:
            others.append(last)
        else:
            number += last[1]
        return Expression((*others, ((), number)) if number else others)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        if not _is_size(other):
            return NotImplemented
        return self + -other

    def __rsub__(self, other: int) -> Size:
        return -self + other

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):
            number = other.__index__()  # numpy's integers become Python's
            if number == 1:
                return self
            return Expression((monomial, factor * number) for monomial, factor in self._terms) if number else 0
        if not isinstance(other, Expression):
            return NotImplemented
        terms: dict[_Monomial, int] = {}
        for left, a in self._terms:
            for right, b in other._terms:
                monomial = _times(left, right)
                terms[monomial] = terms.get(monomial, 0) + a * b
        return _made(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return _divided(self, other) if _is_size(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> Size:
        return _divided(other, self)

    def __mod__(self, other: Size) -> Size:
        return self - other * (self // other) if _is_size(other) else NotImplemented

    def __rmod__(self, other: int) -> Size:
        return other - self * (other // self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expression) and self._hash == other._hash and self._terms == other._terms

    def __hash__(self) -> int:
        return self._hash

    def __ge__(self, other: Size) -> bool:
        return _is_at_least_zero(self - other)

    def __gt__(self, other: Size) -> bool:
        return _is_at_least_zero(self - other - 1)

    def __le__(self, other: Size) -> bool:
        return _is_at_least_zero(other - self)

    def __lt__(self, other: Size) -> bool:
        return _is_at_least_zero(other - self - 1)

    def __bool__(self) -> bool:
        if not is_positive(self):
            raise UndecidedError(f"whether {self} is 0 depends on sizes of the run")
        return True

    def __index__(self) -> int:
        raise UndecidedError(f"{self} is not a number before run time")

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        return _text(self)


Size = int | Expression


def symbol(name: str) -> Expression:
    """Return the size with this name."""
    return _of_atom(_Atom("symbol", name))


def element(name: str, index: int) -> Expression:
    """Return an element of an integer tensor as a size; unlike all others it may be negative.

    >>> bounds(element("ends", 0)), bounds(maximum(element("ends", 0), 0))[0]
    ((None, None), 0)
    """
    return symbol(f"{name}[{index}]")


def has_elements(*sizes: Size | None) -> bool:
    """Tell whether one of the sizes depends on elements of tensors."""
    return any(_ELEMENT.match(name) for size in sizes if isinstance(size, Expression) for name in size.symbols)


def minimum(*sizes: Size) -> Size:
    """Return the least of some sizes.

    A number above :data:`FARTHEST` stands for no limit.

    >>> minimum(symbol("n"), symbol("n") + 2), minimum(symbol("n"), 7, 9), minimum(symbol("n"), 2**63 - 1)
    (n, min(7, n), n)
    """
    return _extreme("min", sizes)


def maximum(*sizes: Size) -> Size:
    """Return the greatest of some sizes.

    >>> maximum(symbol("n"), 0), maximum(symbol("n") - 2, 0)
    (n, max(0, n - 2))
    """
    return _extreme("max", sizes)


def if_zero(test: Size, then: Size, otherwise: Size) -> Size:
    """Return ``then`` if ``test`` is 0, else ``otherwise``.

    >>> if_zero(symbol("n") - 1, 0, 64)
    ifzero(n - 1, 0, 64)
    """
    if then == otherwise:
        return then
    if isinstance(test, int):
        return otherwise if test else then
    low, high = bounds(test)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return otherwise
    return _of_atom(_Atom("ifzero", "", (test, then, otherwise)))


def marked_axes(axes: Iterable[Size], rank: int) -> list[Size]:
    """Return, for every dimension, how many of ``axes`` name it; negative axes count from the back.

    >>> marked_axes([-1, 0], 3), marked_axes([element("axes", 0)], 1)
    ([1, 0, 1], [ifzero(axes[0], 1, ifzero(axes[0] + 1, 1, 0))])
    """
    marks: list[Size] = [0] * rank
    for axis in axes:
        for place in range(rank):
            marks[place] = marks[place] + if_zero(axis - place, 1, if_zero(axis - place + rank, 1, 0))
    return marks


def rounded_up(value: Size, multiple: int) -> Size:
    """Return the least multiple of ``multiple`` that is at least ``value``."""
    return (value + (multiple - 1)) // multiple * multiple


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of some sizes."""
    number, rest = 1, []
    for each in sizes:
        if isinstance(each, int):
            number *= each.__index__()  # numpy's integers become Python's
        else:
            rest.append(each)
    return functools.reduce(operator.mul, rest, number)


def broadcast(a: Size, b: Size) -> Size:
    """Return the size that two compatible dimensions broadcast to: if one is 1, the other.

    >>> broadcast(symbol("n"), 1), broadcast(symbol("n"), 8), broadcast(symbol("n"), symbol("m"))
    (n, 8, ifzero(n - 1, m, n))
    """
    if a == b or b == 1:
        return a
    if a == 1 or (isinstance(b, int) and b > 1):
        return b
    if isinstance(a, int) and a > 1:
        return a
    if _is_cut(a, b) or _is_among(a, b):
        return b
    if _is_cut(b, a) or _is_among(b, a):
        return a
    return if_zero(a - 1, b, a)


def _is_cut(a: Size, b: Size) -> bool:
    """Tell whether ``a`` is the minimum of ``b`` and positive numbers: then they are compatible only if equal."""
    atom = _only_atom(a)
    if atom is None or atom.kind != "min" or b not in atom.operands:
        return False
    return all(is_positive(other) for other in atom.operands if other != b)


def _is_among(a: Size, b: Size) -> bool:
    """Tell whether ``b`` is a broadcast of ``a`` and other sizes."""
    waiting = [b]
    while waiting:
        current = waiting.pop()
        atom = _only_atom(current)
        if current == a:
            return True
        if atom is not None and atom.kind == "ifzero":
            test, then, otherwise = atom.operands
            if test == otherwise - 1:
                waiting += (then, otherwise)
    return False


def broadcast_shapes(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """Return the shape that compatible shapes broadcast to.

    >>> broadcast_shapes((symbol("n"), 1), (8,))
    (n, 8)
    """
    result: list[Size] = []
    for shape in shapes:
        missing = len(shape) - len(result)
        result = [*shape[: max(missing, 0)], *result]
        start = len(result) - len(shape)
        result[start:] = [broadcast(a, b) for a, b in zip(result[start:], shape, strict=True)]
    return tuple(result)


# ---- text ----


def size(dim: int | str) -> Size:
    """Return a dimension of a type, a number or the text of an expression, as a size.

    A text that is not an expression is the name of a symbol.

    >>> size(3), size("2*n + 1"), size("batch size"), size("n + n")
    (3, 2*n + 1, "batch size", 2*n)
    """
    if isinstance(dim, int):
        return dim
    known = _ASSUMED.get().found.sizes
    value = known.get(dim)
    return _remembered(known, dim, _size_of_text) if value is None else value


def _size_of_text(dim: str) -> Size:
    named = _ASSUMED.get().names.get(dim)
    if named is not None:
        return named
    if _is_plain(dim):
        return symbol(dim)
    try:
        tree = _tree(dim.strip())
        value = 0 if isinstance(tree, ast.Constant) else _read(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError):
        return symbol(dim)
    # A text whose value is a number, such as "-1" or "3", is a name, because a type stores numbers as such.
    return symbol(dim) if isinstance(value, int) else value


def parse(text: str) -> Size:
    """Return the size with this text, the inverse of ``str``.

    Raises:
        ValueError: If the text is not an expression.
    """
    return _remembered(_ASSUMED.get().found.parsed, text, _parsed)


def _parsed(text: str) -> Size:
    try:
        return _read(_tree(text))
    except (SyntaxError, RecursionError, MemoryError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r} is not an expression of sizes") from error


def _remembered(known: dict[str, Size], text: str, read: Callable[[str], Size]) -> Size:
    """Return the size of a text from a cache, which belongs to the assumptions because simplification uses them."""
    value = known.get(text)
    if value is None:
        value = read(text)
        _keep(known, text, value)
    return value


def _keep(known: dict[str, Size], text: str, value: Size) -> None:
    if len(known) >= _MOST_TEXTS:
        known.clear()
    known[text] = value


@functools.lru_cache(maxsize=4096)
def _dimension(value: Expression) -> tuple[str | None, bool]:
    """Return a size as a type stores it, and whether that is a name: another size may have it for its text."""
    atom = _only_atom(value)
    if atom is not None and atom.kind in ("symbol", "named"):
        return atom.name, True
    text = str(value)
    return (None if _is_too_long(value, text) else text), False


def dimension(value: Size) -> int | str | None:
    """Return a size as a type stores it: a number, the name of a symbol, or the text of an expression.

    Returns:
        The name of an expression that is too long to be read again, inside a block of :func:`naming`; elsewhere None
        for it: the dimension counts as unknown.

    >>> dimension(symbol("batch size")), dimension(symbol("n") + 1)
    ('batch size', 'n + 1')
    """
    if isinstance(value, int):
        return value
    text, is_name = _dimension(value)
    assumed = _ASSUMED.get()
    if text is not None:
        if not is_name:  # so that it need not be read
            _keep(assumed.found.sizes, text, value)
        return text
    if not assumed.names_sizes:
        assumed.own.is_cut = True
        return None
    part = _part(value)
    return part if isinstance(part, int) else _dimension(part)[0]


def readable(value: Size) -> Size:
    """Return an equal size whose text can be read again, in which parts have names where it would be too long."""
    return value if isinstance(value, int) or not _is_too_long(value, str(value)) else _part(value)


@contextmanager
def naming() -> Iterator[dict[str, Expression]]:
    """Give names, inside the block, to sizes that are too long for the text of a dimension, and to parts of them.

    A named size is as good as its expression, but for its text and for what cancels: bounds, substitution and formulas
    go on to what it stands for. The same expression always gets the same name.

    Returns:
        The sizes by name, each behind those that it consists of. A name that is added means that size in a text.

    >>> long = sum((symbol(f"a{i}") for i in range(1, 250)), symbol("a0"))
    >>> dimension(long) is None
    True
    >>> with naming() as names:
    ...     len(names), evaluate(size(dimension(long)), {f"a{i}": 2 for i in range(250)})
    (0, 500)
    """
    outer = _ASSUMED.get()
    if outer.names_sizes:
        yield outer.names
        return
    names: dict[str, Expression] = {}
    token = _ASSUMED.set(_Assumptions(outer.ranges, names, True, outer=None if outer.names else outer.own))
    try:
        yield names
    finally:
        _ASSUMED.reset(token)


def define(name: str, value: Size) -> Expression:
    """Let a name mean a size in the texts that are read inside a block of :func:`naming`, and return the size.

    Raises:
        ValueError: If the size is a number, or the name means another one.
    """
    names = _ASSUMED.get().names
    made = None if isinstance(value, int) else _with_name(name, value)
    if made is None or names.setdefault(name, made).named[-1].operands != (value,):
        raise ValueError(f"{name!r} cannot be the name of {value}")
    return names[name]


def definitions(*sizes: Size) -> dict[str, Size]:
    """Return the named sizes that sizes consist of, each behind those that it consists of itself."""
    return {atom.name: atom.operands[0] for size in sizes if isinstance(size, Expression) for atom in size.named}


def _named(value: Expression) -> Expression:
    """Return a size with a name; as it is where its text could not be read again."""
    import hashlib  # imported here, because few programs need it

    text = str(value)
    if _is_too_long(value, text):
        return value
    name = f"={hashlib.sha256(text.encode()).hexdigest()[:16]}"
    named, assumed = _with_name(name, value), _ASSUMED.get()
    return assumed.names.setdefault(name, named) if assumed.names_sizes else named


def _with_name(name: str, value: Expression) -> Expression:
    made = _of_atom(_Atom("named", name, (value,)))
    _ = made.symbols, made.named  # as long as those of its parts are remembered, no recursion goes through all parts
    return made


def _part(value: Size) -> Size:
    """Return a size with a short text, in which longer parts have names."""
    if isinstance(value, int) or _is_short(value) or value.name is not None:
        return value
    whole: Size = 0
    piece: Size = 0
    for monomial, factor in value._terms:
        term: Size = factor
        for atom, power in monomial:
            shorter = _part_of_atom(atom)
            for _ in range(power):
                term = term * shorter
        longer = piece + term
        if isinstance(piece, Expression) and isinstance(longer, Expression) and not _is_short(longer):
            whole, longer = whole + _named(piece), term
        piece = longer
    whole = whole + piece
    return whole if isinstance(whole, int) or _is_short(whole) else _named(whole)


def _part_of_atom(atom: _Atom) -> Expression:
    if atom.kind in ("symbol", "named"):
        return _of_atom(atom)
    made = _of_atom(_Atom(atom.kind, atom.name, tuple(map(_part, atom.operands))))
    return made if _is_short(made) else _named(made)


def _is_short(value: Expression) -> bool:
    return value.depth <= _SHALLOW and len(str(value)) <= _SHORT


def _tree(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise ValueError("too long for an expression of sizes")
    if "#" in text and re.match(_COMMENT, text):
        raise ValueError("no expression of sizes")
    return ast.parse(text, mode="eval").body


def _read(tree: ast.expr) -> Size:
    value = _read_part(tree)
    if isinstance(value, Expression) and _is_too_long(value, str(value)):
        raise ValueError("too long for an expression of sizes")
    return value


def _is_too_long(value: Expression, text: str) -> bool:
    return len(text) > _LONGEST or len(value._terms) > _MOST_TERMS or value.depth > _DEEPEST


def _read_part(tree: ast.expr) -> Size:
    match tree:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int(number)):
            return number
        case ast.Constant(value=str(name)) | ast.Name(id=name):
            return known if (known := _ASSUMED.get().names.get(name)) is not None else symbol(name)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(number))) if number is not True:
            return element(name, number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return _read_sum(tree)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            a, b = _read(left), _read(right)
            if isinstance(op, ast.Mult) and len(_terms_of(a)) * len(_terms_of(b)) > _MOST_PARTS:
                raise ValueError("too many terms for an expression of sizes")
            value: Size = _OPERATIONS[type(op)](a, b)
            return value
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in _FUNCTIONS:
            operands = [_read(arg) for arg in args]
            if name != "ifzero" and sum(map(_width, operands)) ** 2 <= _MOST_PARTS:
                return _extreme(name, operands)
            if name == "ifzero" and len(operands) == 3:
                return if_zero(*operands)
    raise ValueError("no expression of sizes")


def _read_sum(tree: ast.expr) -> Size:
    """Read a sum from its first term on without recursion, because its tree is as deep as it has terms."""
    later: list[tuple[ast.operator, ast.expr]] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub):
        later.append((tree.op, tree.right))
        tree = tree.left
    if len(later) >= _MOST_TERMS:
        raise ValueError("too many terms for an expression of sizes")
    total = _read(tree)
    for op, term in reversed(later):
        total = _OPERATIONS[type(op)](total, _read(term))
    return total


_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _width(value: Size) -> int:
    """Return how many operands a size contributes to a minimum or maximum."""
    atom = _only_atom(value)
    return max(len(atom.operands), 1) if atom is not None else 1


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and name not in _FUNCTIONS and not keyword.iskeyword(name)


def _quoted(name: str) -> str:
    escaped = name.encode("unicode_escape").decode("ascii")
    return '"' + escaped.replace('"', '\\"') + '"'


def _text(value: Expression) -> str:
    parts: list[str] = []
    for monomial, factor in value._terms:
        factors = [] if abs(factor) == 1 and monomial else [str(abs(factor))]
        for atom, power in monomial:
            # A sign in front would belong to the dividend: -n//2 is not -(n//2).
            alone = power == 1 and len(monomial) == 1 and not factors and (factor > 0 or parts)
            text = f"({atom.text})" if atom.kind == "//" and not alone else atom.text
            factors += [text] * power
        sign = ("-" if factor < 0 else "") if not parts else (" - " if factor < 0 else " + ")
        parts.append(sign + "*".join(factors))
    return "".join(parts)


def _inner(value: Size) -> str:
    """Return an operand of a division, in parentheses unless it is one plain factor."""
    text = str(value)
    plain = isinstance(value, int) and value >= 0
    if isinstance(value, Expression) and len(value._terms) == 1:
        (monomial, factor), *_ = value._terms
        plain = factor == 1 and len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].kind != "//"
    return text if plain else f"({text})"


# ---- canonical form ----


def _is_size(value: object) -> bool:
    return isinstance(value, (int, Expression))


def _terms_of(value: Size) -> Sequence[tuple[_Monomial, int]]:
    if isinstance(value, Expression):
        return value._terms
    number = value.__index__()  # numpy's integers become Python's
    return (((), number),) if number else ()


def _made(terms: Mapping[_Monomial, int]) -> Size:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Expression(sorted(kept.items(), key=_term_order) if len(kept) > 1 else kept.items())


def _of_atom(atom: _Atom) -> Expression:
    """Return an atom as an expression; equal ones are mostly one object, which takes less time to compare."""
    known = _ASSUMED.get().found.atoms
    value = known.get(atom)
    if value is None:
        if len(known) >= _MOST_FOUND:
            known.clear()
        value = known[atom] = Expression([(((atom, 1),), 1)])
    return value


def _term_order(term: tuple[_Monomial, int]) -> tuple[Any, ...]:
    monomial, _ = term
    return -sum(power for _, power in monomial), [(atom.text, -power) for atom, power in monomial]


def _times(a: _Monomial, b: _Monomial) -> _Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].text))


def _over(a: _Monomial, b: _Monomial) -> _Monomial | None:
    """Return a / b if that is a monomial again."""
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


def _divided(top: Size, bottom: Size) -> Size:
    """Return the floor of a quotient; a divisor that turns out to be 0 is an error at run time."""
    if isinstance(bottom, int):
        return _divided_by_number(top, bottom.__index__())
    if top == bottom:
        return 1
    if isinstance(top, int) and top == 0:
        return 0
    quotient = _exact_quotient(top, bottom)
    return quotient if quotient is not None else _of_atom(_Atom("//", "", (top, bottom)))


def _exact_quotient(top: Size, bottom: Expression) -> Size | None:
    """Return the quotient of two polynomials by long division, or None if there is a remainder."""
    lead, factor = bottom._terms[0]
    quotient: Size = 0
    rest = top
    for _ in range(len(_terms_of(top)) + 1):
        if isinstance(rest, int):
            return quotient if rest == 0 else None
        monomial, coefficient = rest._terms[0]
        power = _over(monomial, lead)
        if power is None or coefficient % factor:
            return None
        step = _made({power: coefficient // factor})
        quotient = quotient + step
        rest = rest - step * bottom
    return None


def _divided_by_number(top: Size, bottom: int) -> Size:
    if bottom == 0:
        raise ZeroDivisionError("a size is divided by 0")
    if isinstance(top, int):
        return top // bottom
    if bottom < 0:
        return _divided_by_number(-top, -bottom)
    divided = [factor for monomial, factor in top._terms if monomial and factor % bottom]
    if divided and max(divided) < 0:
        return -_divided_by_number(bottom - 1 - top, bottom)  # rounded up: what is divided has no negative terms
    whole = {monomial: factor // bottom for monomial, factor in top._terms}
    rest = _made({monomial: factor % bottom for monomial, factor in top._terms})
    return _made(whole) + _proper_fraction(rest, bottom)


def _proper_fraction(top: Size, bottom: int) -> Size:
    """Return floor(top / bottom), where all coefficients of ``top`` are smaller than ``bottom``."""
    if isinstance(top, int):
        return 0
    common = math.gcd(bottom, *(factor for monomial, factor in top._terms if monomial))
    if common > 1:
        top = _made({monomial: factor // common for monomial, factor in top._terms})
        bottom //= common
    if bottom == 1:
        return top
    if isinstance(top, Expression) and len(top._terms) == 1:
        (monomial, factor), *_ = top._terms
        if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            inner = monomial[0][0]
            if inner.kind == "//" and isinstance(inner.operands[1], int):
                return _divided_by_number(inner.operands[0], inner.operands[1] * bottom)
    return _of_atom(_Atom("//", "", (top, bottom)))


def _extreme(kind: str, sizes: Sequence[Size]) -> Size:
    numbers = [value for value in sizes if isinstance(value, int)]
    if len(numbers) == len(sizes):
        return min(numbers) if kind == "min" else max(numbers)
    flat: list[Size] = []
    for value in sizes:
        name = _only_atom(value)
        flat += name.operands if name is not None and name.kind == kind else (value,)
    kept: list[Size] = []
    for value in dict.fromkeys(flat):
        if any(_is_beyond(kind, value, other) for other in kept):
            continue
        kept = [other for other in kept if not _is_beyond(kind, other, value)]
        kept.append(value)
    if len(kept) == 1:
        return kept[0]
    return _of_atom(_Atom(kind, "", tuple(sorted(kept, key=str))))


def _only_atom(value: Size) -> _Atom | None:
    """Return the function or symbol if the expression is just one, else None."""
    if isinstance(value, int) or len(value._terms) != 1:
        return None
    (monomial, factor), *_ = value._terms
    return monomial[0][0] if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None


def _is_beyond(kind: str, value: Size, other: Size) -> bool:
    """Tell whether ``value`` never matters beside ``other`` in a minimum or maximum."""
    if isinstance(value, int) and not isinstance(other, int) and (value if kind == "min" else -value) > FARTHEST:
        return True  # no size and no element that serves as one is as far
    return is_at_least_zero(value - other if kind == "min" else other - value)


# ---- bounds and assumptions ----


@dataclass
class _Found:
    """Results that depend on assumptions.

    Attributes:
        bounds: Bounds of expressions; an expression asks for those of its operands many times.
        sizes: Results of :func:`size`.
        parsed: Results of :func:`parse`.
        ruled: What :func:`ruled_before` returns.
        atoms: Expressions that are one atom.
        is_cut: Whether a size was too long for a type.
    """

    bounds: dict[Expression, tuple[int | None, int | None]] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    parsed: dict[str, Size] = field(default_factory=dict)
    ruled: dict[Any, Any] = field(default_factory=dict)
    atoms: dict[_Atom, Expression] = field(default_factory=dict)
    is_cut: bool = False


@dataclass(frozen=True)
class _Assumptions:
    """Hold the ranges of symbols, with results that depend on them.

    Attributes:
        ranges: Ranges by the names of symbols.
        names: Named sizes, see :func:`naming`.
        names_sizes: Whether sizes that are too long get names.
        own: Results under these assumptions.
        outer: Those under the same without named sizes, which are as good as long as there is no name.
    """

    ranges: Mapping[str, Range]
    names: dict[str, Expression] = field(default_factory=dict)
    names_sizes: bool = False
    own: _Found = field(default_factory=_Found)
    outer: _Found | None = None

    @property
    def found(self) -> _Found:
        """The results so far."""
        return self.own if self.outer is None or self.names or self.outer.is_cut else self.outer


_NOTHING = _Assumptions(MappingProxyType({}))
_ASSUMED = ContextVar("assumptions", default=_NOTHING)
_MOST_FOUND = 1 << 14
_MOST_TEXTS = 1 << 12


@contextmanager
def assuming(ranges: Mapping[str, Range]) -> Iterator[None]:
    """Assume, inside the block, that symbols are within these ranges; other symbols are at least 0."""
    outer = _ASSUMED.get()
    if ranges.items() <= outer.ranges.items():
        yield
        return
    token = _ASSUMED.set(_Assumptions({**outer.ranges, **ranges}, outer.names, outer.names_sizes))
    try:
        yield
    finally:
        _ASSUMED.reset(token)


@contextmanager
def remembering() -> Iterator[None]:
    """Forget at the end of the block what has been found in it."""
    outer = _ASSUMED.get()
    token = _ASSUMED.set(_Assumptions(outer.ranges, outer.names, outer.names_sizes))
    try:
        yield
    finally:
        _ASSUMED.reset(token)


def ruled_before() -> dict[Any, Any]:
    """Return the cache of what rules say of nodes, which belongs to the assumptions that hold."""
    known = _ASSUMED.get().found.ruled
    if len(known) >= _MOST_FOUND:
        known.clear()
    return known


def bounds(value: Size) -> tuple[int | None, int | None]:
    """Return a lower and an upper bound of a size under the current assumptions; None where none is known.

    >>> with assuming({"n": (1, 512)}):
    ...     bounds(2 * symbol("n") - 1)
    (1, 1023)
    """
    if isinstance(value, int):
        return value, value
    assumed = _ASSUMED.get()
    found = assumed.found.bounds
    known = found.get(value)
    if known is not None:
        return known
    for atom in value.named:
        bounds(atom.operands[0])
    low: int | None = 0
    high: int | None = 0
    for monomial, factor in value._terms:
        least, greatest = _monomial_bounds(monomial, assumed.ranges)
        first, last = _scaled(least, factor), _scaled(greatest, factor)
        if factor < 0:
            first, last = last, first
        low = None if low is None or first is None else low + first
        high = None if high is None or last is None else high + last
    low, high = _narrowed(value, low, high)
    if len(found) >= _MOST_FOUND:
        found.clear()
    found[value] = low, high
    return low, high


def _narrowed(value: Expression, low: int | None, high: int | None) -> tuple[int | None, int | None]:
    """Narrow limits by what a function says about its own operands, where these then cancel.

    A quotient ``top//d`` is ``(top - r)/d`` with a remainder ``r`` from 0 to ``d - 1``, so ``n - 4*(n//4)`` is from 0
    to 3, however large ``n`` is; a minimum is at most each of its operands, so ``n - min(n, m)`` is at least 0.
    """
    for monomial, factor in value._terms:
        if len(monomial) != 1 or monomial[0][1] != 1:
            continue
        atom = monomial[0][0]
        if atom.kind == "//" and isinstance(divisor := atom.operands[1], int):
            common = math.gcd(divisor, factor)
            times, remainders = divisor // common, -factor // common
            least, most = _bounds_without(value, monomial, times, remainders * -atom.operands[0])
            below, above = min(remainders * (divisor - 1), 0), max(remainders * (divisor - 1), 0)
            low = _higher(low, None if least is None else -(-(least + below) // times))
            high = _lower(high, None if most is None else (most + above) // times)
        elif atom.kind in ("min", "max"):
            for operand in atom.operands:
                least, most = _bounds_without(value, monomial, 1, factor * operand)
                if (atom.kind == "max") == (factor > 0):
                    low = _higher(low, least)
                else:
                    high = _lower(high, most)
    return low, high


def _bounds_without(value: Expression, monomial: _Monomial, times: int, instead: Size) -> tuple[int | None, int | None]:
    """Return the limits of ``times * value`` with something else for one of its terms, if terms then cancel."""
    rest = times * _made({other: factor for other, factor in value._terms if other != monomial}) + instead
    return bounds(rest) if len(_terms_of(rest)) < len(value._terms) else (None, None)


def _higher(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _lower(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _scaled(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _monomial_bounds(monomial: _Monomial, ranges: Mapping[str, Range]) -> tuple[int | None, int | None]:
    low: int | None = 1
    high: int | None = 1
    for atom, power in monomial:
        least, greatest = _atom_bounds(atom, ranges)
        if least is None or least < 0 or low is None:
            return None, None
        low *= least**power
        high = None if high is None or greatest is None else high * greatest**power
    return low, high


def _atom_bounds(atom: _Atom, ranges: Mapping[str, Range]) -> tuple[int | None, int | None]:
    if atom.kind == "symbol":
        limits_of = ranges.get(atom.name)
        return limits_of or ((-FARTHEST, FARTHEST) if _ELEMENT.match(atom.name) else (0, None))
    if atom.kind == "named":
        return bounds(atom.operands[0])
    limits = [bounds(operand) for operand in atom.operands]
    if atom.kind == "//":
        (low, high), (least, most) = limits
        if least is None or least < 0 or low is None:
            return None, None
        return _quotient(low, least, most), (None if high is None else _quotient(high, most, least))
    if atom.kind == "ifzero":
        (a, b), (c, d) = limits[1:]
        return (None if a is None or c is None else min(a, c)), (None if b is None or d is None else max(b, d))
    lows, highs = [low for low, _ in limits], [high for _, high in limits]
    known_lows, known_highs = [x for x in lows if x is not None], [x for x in highs if x is not None]
    if atom.kind == "min":
        return (min(known_lows) if len(known_lows) == len(lows) else None), min(known_highs, default=None)
    return max(known_lows, default=None), (max(known_highs) if len(known_highs) == len(highs) else None)


def _quotient(top: int, if_negative: int | None, otherwise: int | None) -> int:
    """Return a bound of a quotient: the sign of the extreme dividend decides which divisor makes it most extreme."""
    divisor = if_negative if top < 0 else otherwise
    return top // max(divisor, 1) if divisor is not None else -1 if top < 0 else 0


def _is_at_least_zero(value: Size) -> bool:
    low, high = bounds(value)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    raise UndecidedError(f"whether {value} >= 0 depends on sizes of the run")


def is_positive(value: Size) -> bool:
    """Tell whether a size is known to be at least 1."""
    low, _ = bounds(value)
    return low is not None and low > 0


def surely_at_most(a: Size, b: Size) -> bool:
    """Tell whether ``a <= b`` for all sizes."""
    return is_at_least_zero(b - a)


# ---- substitution ----


def solved(a: Size, b: Size) -> tuple[str, Size] | None:
    """Return a symbol and the value, a number or another symbol, that makes two sizes equal.

    None if they are equal already, cannot be equal, or depend on more symbols.

    >>> solved(60 * symbol("n"), 120), solved(symbol("n"), symbol("m"))
    (('n', 2), ('m', n))
    >>> solved(symbol("n"), 2 * symbol("m")), solved(symbol("n"), 2 * symbol("a"))
    (None, None)
    """
    rest = a - b
    if isinstance(rest, int) or len(rest._terms) > 2:
        return None
    (monomial, factor), *others = rest._terms
    name = _of_atom(monomial[0][0]).name if len(monomial) == 1 and monomial[0][1] == 1 else None
    if name is None:
        return None
    other = _made({m: -f for m, f in others})
    if isinstance(other, int):
        number, left = divmod(other, factor)
        return None if left or number < 0 else (name, number)
    value = other * factor if factor in (-1, 1) else 0
    return (name, value) if isinstance(value, Expression) and value.name is not None else None


def substitute(value: Size, sizes: Mapping[str, Size]) -> Size:
    """Return a size with symbols replaced by numbers or other sizes; symbols not in ``sizes`` stay.

    >>> substitute(symbol("n") * 3 + symbol("m"), {"n": 2, "m": symbol("k") + 1})
    k + 7

    Raises:
        ZeroDivisionError: If a divisor becomes 0.
    """
    known: dict[_Atom, Size] = {}
    for atom in () if isinstance(value, int) or value.symbols.isdisjoint(sizes) else value.named:
        inner = atom.operands[0]
        found = _substitute(inner, sizes, known)
        known[atom] = _of_atom(atom) if found is inner else _part(found)
    return _substitute(value, sizes, known)


def _substitute(value: Size, sizes: Mapping[str, Size], known: Mapping[_Atom, Size]) -> Size:
    if isinstance(value, int) or value.symbols.isdisjoint(sizes):
        return value
    total: Size = 0
    for monomial, factor in value._terms:
        term: Size = factor
        for atom, power in monomial:
            replaced = _substituted(atom, sizes, known)
            for _ in range(power):
                term = term * replaced
        total = total + term
    return total


def _substituted(atom: _Atom, sizes: Mapping[str, Size], known: Mapping[_Atom, Size]) -> Size:
    if atom.kind == "symbol":
        return sizes.get(atom.name, _of_atom(atom))
    if atom.kind == "named":
        return known[atom]
    operands = [_substitute(operand, sizes, known) for operand in atom.operands]
    if atom.kind == "//":
        return operands[0] // operands[1]
    if atom.kind == "ifzero":
        return if_zero(*operands)
    return _extreme(atom.kind, operands)


Span = tuple[Size | None, Size | None]
"""The least and the greatest value of a size, as sizes themselves; None where there is none."""
UNLIMITED: Span = (None, None)


def span(value: Size, free: Mapping[str, Span]) -> Span:
    """Return limits of a size that do not depend on the symbols ``free``, of which only limits are known.

    >>> start, stop, n = element("start", 0), element("stop", 0), symbol("n")
    >>> length = maximum(minimum(stop, n) - maximum(minimum(start, n), 0), 0)
    >>> span(length, {"start[0]": UNLIMITED, "stop[0]": UNLIMITED}), span(start + n, {"start[0]": UNLIMITED})
    ((0, n), (None, None))
    >>> span(broadcast(symbol("rows"), symbol("m")), {"rows": (0, n)})
    (0, max(m, n))
    """
    if isinstance(value, int) or value.symbols.isdisjoint(free.keys()):
        return value, value
    low: Size | None = 0
    high: Size | None = 0
    for monomial, factor in value._terms:
        least, greatest = _monomial_span(monomial, free)
        if factor < 0:
            least, greatest = greatest, least
        low = None if low is None or least is None else low + factor * least
        high = None if high is None or greatest is None else high + factor * greatest
    return low, high


def _monomial_span(monomial: _Monomial, free: Mapping[str, Span]) -> Span:
    if len(monomial) == 1 and monomial[0][1] == 1:
        return _atom_span(monomial[0][0], free)
    low: Size | None = 1
    high: Size | None = 1
    for atom, power in monomial:
        least, greatest = _atom_span(atom, free)
        if least is None or not is_at_least_zero(least):
            return None, None
        low = None if low is None else low * product([least] * power)
        high = None if high is None or greatest is None else high * product([greatest] * power)
    return low, high


def _atom_span(atom: _Atom, free: Mapping[str, Span]) -> Span:
    whole = _of_atom(atom)
    if whole.symbols.isdisjoint(free.keys()):
        return whole, whole
    if atom.kind == "symbol":
        return free[atom.name]
    spans = [span(operand, free) for operand in atom.operands]
    if atom.kind == "named":
        return spans[0]
    if atom.kind == "//":
        (low, high), (least, most) = spans
        is_known = low is not None and is_at_least_zero(low)
        if least is None or not is_positive(least) or (least != most and not is_known):
            return None, None
        return None if low is None or most is None else low // most, None if high is None else high // least
    if atom.kind == "ifzero":
        spans = spans[1:]
    lows, highs = [low for low, _ in spans if low is not None], [high for _, high in spans if high is not None]
    low = minimum(*lows) if len(lows) == len(spans) else None
    high = maximum(*highs) if len(highs) == len(spans) else None
    if atom.kind == "min" and highs:
        high = minimum(*highs)
    if atom.kind == "max" and lows:
        low = maximum(*lows)
    return low, high


def is_at_least_zero(value: Size) -> bool:
    """Tell whether a size is at least 0 whatever the sizes of the run are."""
    low, _ = bounds(value)
    return low is not None and low >= 0


def evaluate(value: Size, sizes: Mapping[str, int]) -> int:
    """Return the value of a size for given values of its symbols.

    Raises:
        KeyError: If a symbol has no number.
        ZeroDivisionError: If a divisor becomes 0.
    """
    result = substitute(value, sizes)
    if isinstance(result, Expression):
        raise KeyError(", ".join(sorted(result.symbols)))
    return result


_EXPECTED: ContextVar[Mapping[str, int]] = ContextVar("expected", default=MappingProxyType({}))


@contextmanager
def expecting(sizes: Mapping[str, int]) -> Iterator[None]:
    """Let :func:`typical` use these sizes inside the block."""
    token = _EXPECTED.set({**_EXPECTED.get(), **sizes})
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def expected_sizes(shapes: Iterable[Sequence[Size]]) -> dict[str, int]:
    """Guess the most usual sizes for inputs of these shapes: a batch of one, and images of a common size.

    >>> expected_sizes([(symbol("batch"), 3, symbol("height"), symbol("width"))])
    {'batch': 1, 'height': 256, 'width': 256}
    """
    expected: dict[str, int] = {}
    for shape in shapes:
        is_image = len(shape) == _IMAGE_RANK and shape[1] in (1, 3)
        for axis, dim in enumerate(shape):
            if isinstance(dim, Expression) and dim.name is not None and len(shape) > 1:
                if axis == 0:
                    expected[dim.name] = 1
                elif axis > 1 and is_image:
                    expected[dim.name] = _IMAGE_SIDE
    return expected


def typical(value: Size) -> int:
    """Return the value of a size for middling symbols; only for heuristics, because it may be wrong."""
    if isinstance(value, int):
        return value
    ranges, expected = _ASSUMED.get().ranges, _EXPECTED.get()
    sizes: dict[str, int] = {}
    for name in value.symbols:
        low, high = ranges.get(name, (0, None))
        middling = expected.get(name, _TYPICAL)
        sizes[name] = max(low, middling if high is None else min(middling, high))
    try:
        return evaluate(value, sizes)
    except ZeroDivisionError:
        return 0


_SAMPLES: ContextVar[Callable[[], Mapping[str, int]]] = ContextVar("samples", default=dict)


@contextmanager
def sampling(sizes: Callable[[], Mapping[str, int]]) -> Iterator[None]:
    """Let :func:`sample` use the sizes that a function returns, inside the block; it is called if there is need."""
    token = _SAMPLES.set(functools.cache(sizes))
    try:
        yield
    finally:
        _SAMPLES.reset(token)


def sample(value: Size) -> int:
    """Return the value of a size with every symbol at its upper bound, or at a size to sample, 1 by default.

    >>> with assuming({"n": (1, 64)}):
    ...     sample(symbol("n") * 4), sample(symbol("m") * 4)
    (256, 4)
    """
    if isinstance(value, int):
        return value
    ranges, samples = _ASSUMED.get().ranges, _SAMPLES.get()()
    sizes = {}
    for name in value.symbols:
        low, high = ranges.get(name, (0, None))
        sizes[name] = max(low, samples.get(name, 1)) if high is None else high
    try:
        return evaluate(value, sizes)
    except ZeroDivisionError:
        return 0


# ---- straight-line code ----

Operation = tuple[str, tuple[int, ...]]


class Formulas:
    """Straight-line code that computes many sizes at run time, common subexpressions only once.

    Values are numbered: first the symbols in the given order, then one value per operation. An operation is a name,
    ``"constant"``, ``"add"``, ``"multiply"``, ``"divide"`` (floor), ``"min"``, ``"max"`` or ``"ifzero"``, and the
    numbers of its operands; the operand of ``"constant"`` is the constant itself.

    >>> formulas = Formulas(["n"])
    >>> formulas.add(2 * symbol("n") + 1)
    4
    >>> formulas.operations
    [('constant', (2,)), ('multiply', (0, 1)), ('constant', (1,)), ('add', (2, 3))]

    Args:
        symbols: The names of the symbols.
    """

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self.operations: list[Operation] = []
        self.names: dict[int, str] = {}
        """Names of values that are sizes with names."""
        self._numbers: dict[Operation, int] = {}
        self._known: dict[Any, int] = {name: index for index, name in enumerate(symbols)}

    def add(self, value: Size) -> int:
        """Add the operations that compute ``value``, and return its number.

        Raises:
            KeyError: If it depends on a symbol that is not among those given.
        """
        if isinstance(value, int):
            return self._emit("constant", value.__index__())
        key = ("expression", value)
        if key not in self._known:
            for atom in value.named:
                self.names.setdefault(self.add(atom.operands[0]), atom.name)
            total = None
            for monomial, factor in value._terms:
                term = self._term(monomial, factor)
                total = term if total is None else self._emit("add", total, term)
            assert total is not None
            self._known[key] = total
        return self._known[key]

    def _term(self, monomial: _Monomial, factor: int) -> int:
        if not monomial:
            return self._emit("constant", factor)
        result = None
        for atom, power in monomial:
            value = self._atom(atom)
            for _ in range(power):
                result = value if result is None else self._emit("multiply", result, value)
        assert result is not None
        return result if factor == 1 else self._emit("multiply", result, self._emit("constant", factor))

    def _atom(self, atom: _Atom) -> int:
        if atom.kind == "symbol":
            return self._known[atom.name]
        if atom.kind == "named":
            return self.add(atom.operands[0])
        operands = [self.add(operand) for operand in atom.operands]
        if atom.kind in ("//", "ifzero"):
            return self._emit({"//": "divide"}.get(atom.kind, atom.kind), *operands)
        result, *others = operands
        for other in others:
            result = self._emit(atom.kind, result, other)
        return result

    def _emit(self, name: str, *operands: int) -> int:
        operation = (name, operands)
        if operation not in self._numbers:
            self._numbers[operation] = len(self.symbols) + len(self.operations)
            self.operations.append(operation)
        return self._numbers[operation]
