"""Patterns as data: the sub-patterns, the builder ``P``, and the tracing of pattern functions.

``P.Conv(x, w)`` asks for an ONNX operator, ``P["com.vendor"].Op(x)`` for one of another domain; the lower-case names
are the constructs of the language, which ``docs/patterns.md`` shows with examples. A sub-pattern object stands for one
value: if it is used twice in a pattern, both places must have the very same value. :mod:`tinycomp.rewrite.matcher`
decides whether a sub-pattern can stand for a value.
"""

from __future__ import annotations

import inspect
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import EllipsisType
from typing import Any, TypeVar

import numpy as np

from tinycomp.errors import PatternError, did_you_mean, shown
from tinycomp.index import named
from tinycomp.ir.graph import COMPOSITE, TINYCOMP
from tinycomp.lazy import cached_property
from tinycomp.ops.signatures import lacks_attribute, misfit, signature, takes_operands, unknown_operator
from tinycomp.records import dataclass, field

_P = TypeVar("_P", bound="ValuePattern")

Head = tuple[str, str]
"""Domain and name of an operator."""
ShapePattern = tuple["int | str | EllipsisType | None", ...]

OWN_OPS = frozenset({"Relayout", "StopFusion"})
"""Operators of tinycomp's own domain, which patterns and replacements name without the domain."""
_SUM = frozenset({("", "Sum")})
_SUM_OF_TWO = _SUM | {("", "Add")}
_RESHAPE = ("", "Reshape")
_REPEAT_REACH = 16
"""How many operators a repetition counts as in :func:`distances`."""


# Sub-patterns ----------------------------------------------------------------------------------------------------


class ValuePattern:
    """Stand where a pattern expects a value; the base of all sub-patterns.

    Attributes:
        name: The binding under which a match shows the value; empty for none.
    """

    name: str = ""

    def named(self: _P, name: str) -> _P:
        """Bind the value to ``name`` in the match, and return the pattern itself."""
        self.name = name
        return self

    def where(self, **constraints: Any) -> Where:
        """Ask for a dtype, shape, rank, value, number of uses, layout, or constness; see :class:`Constraints`."""
        return Where(self, Constraints(**constraints))

    def __add__(self, other: Any) -> OpPattern:
        return _binary("Add", self, other)

    def __radd__(self, other: Any) -> OpPattern:
        return _binary("Add", other, self)

    def __sub__(self, other: Any) -> OpPattern:
        return _binary("Sub", self, other)

    def __rsub__(self, other: Any) -> OpPattern:
        return _binary("Sub", other, self)

    def __mul__(self, other: Any) -> OpPattern:
        return _binary("Mul", self, other)

    def __rmul__(self, other: Any) -> OpPattern:
        return _binary("Mul", other, self)

    def __truediv__(self, other: Any) -> OpPattern:
        return _binary("Div", self, other)

    def __rtruediv__(self, other: Any) -> OpPattern:
        return _binary("Div", other, self)

    def __matmul__(self, other: Any) -> OpPattern:
        return _binary("MatMul", self, other)

    def __or__(self, other: Any) -> AnyOf:
        return AnyOf((self, to_pattern(other)))

    @property
    def heads(self) -> frozenset[Head] | None:
        """Return the operators that it can stand at, None for any, an empty set for none."""
        return frozenset()

    def children(self) -> Sequence[ValuePattern]:
        """Return the direct sub-patterns."""
        return ()

    def required(self) -> Sequence[ValuePattern]:
        """Return the direct sub-patterns that every match needs."""
        return self.children()


@dataclass(eq=False, repr=False)
class AnyValue(ValuePattern):
    """Stand for any value (``P.any``); with ``optional``, also for an absent operand."""

    name: str = ""
    optional: bool = False

    def __call__(self) -> ValuePattern:
        """Return another one, so that ``P.any()`` reads like the other constructs."""
        return type(self)()


class NotConst(AnyValue):
    """Stand for any value that is not a constant (``P.not_const``)."""


@dataclass(eq=False, repr=False)
class Const(ValuePattern):
    """Stand for a constant (``P.const``), optionally of a given value."""

    value: Any = None

    def __call__(self, value: Any = None) -> Const:
        """Return a pattern for the constant ``value``: a number, an array, or a predicate on the array."""
        return Const(value)


class Absent(ValuePattern):
    """Stand for a left-out operand (``P.absent`` or ``None``)."""

    def __call__(self) -> Absent:
        """Return another one."""
        return Absent()


@dataclass(eq=False, repr=False)
class OpPattern(ValuePattern):
    """Stand for one operator application; as a value, for its first result.

    Attributes:
        names: Accepted operators as (domain, name); None for any.
        operands: One pattern per operand. An operand without a pattern must be absent, unless ``variadic``.
        variadic: Whether further operands may follow (``...``).
        attrs: Constraint per attribute.
        bodies: Patterns of the results of each nested graph, by attribute name.
        trait: A trait that the operator must have, or an empty text.
        anywhere: The only operand pattern may stand at any operand; the others are unconstrained.
        view: The change of shape that was asked for, such as ``"Flatten"``, if an equal Reshape is accepted as well;
            otherwise an empty text.
    """

    names: frozenset[Head] | None
    operands: tuple[ValuePattern, ...]
    variadic: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)
    bodies: Mapping[str, Sequence[ValuePattern]] = field(default_factory=dict)
    trait: str = ""
    anywhere: bool = False
    view: str = ""

    def __getitem__(self, index: int) -> ValuePattern:
        """Return the pattern of result ``index``."""
        return self if index == 0 else Result(self, index)

    def __iter__(self) -> Iterator[ValuePattern]:
        raise PatternError(
            "the number of results of an operator pattern is not known",
            where=self.text,
            hint="Write P.Split(x)[1], or a, b = P.Split(x).results(2).",
        )

    def results(self, count: int) -> tuple[ValuePattern, ...]:
        """Return the patterns of the first ``count`` results."""
        return tuple(self[i] for i in range(count))

    @cached_property
    def expected(self) -> tuple[str, ...]:
        """The names of the accepted operators, for messages."""
        if self.names is None:
            return ("an element-wise operator" if self.trait == "elementwise" else "any operator",)
        return tuple(sorted(_display(head) for head in self.names))

    @property
    def text(self) -> str:
        """The operator in messages."""
        return " or ".join(self.expected)

    @cached_property
    def telling(self) -> Sequence[tuple[int, ValuePattern]]:
        """The operand patterns that can rule a value out, with their places; constants, cheap to judge, come first."""
        telling = [pair for pair in enumerate(self.operands) if not isinstance(pair[1], AnyValue)]
        return sorted(telling, key=lambda pair: not isinstance(pair[1], Const))

    @property
    def heads(self) -> frozenset[Head] | None:
        """The accepted operators."""
        return self.names

    def children(self) -> Sequence[ValuePattern]:
        """Return operands, then what the bodies hold."""
        return (*self.operands, *itertools.chain.from_iterable(self.bodies.values()))


@dataclass(frozen=True, repr=False)
class Result(ValuePattern):
    """Stand for result ``index`` of an operator pattern (never 0, which is the operator pattern itself)."""

    op: OpPattern
    index: int

    @property
    def heads(self) -> frozenset[Head] | None:
        """The operators of the operator pattern."""
        return self.op.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return the operator."""
        return (self.op,)


@dataclass(eq=False, repr=False)
class AnyOf(ValuePattern):
    """Stand for the same value as the first alternative that leads to a match (``P.any_of``, ``P.optional``)."""

    options: tuple[ValuePattern, ...]

    def __post_init__(self) -> None:
        self._at: dict[Head, tuple[ValuePattern, ...]] = {}
        self._leaves_at: dict[Head, tuple[ValuePattern, ...]] = {}

    @property
    def heads(self) -> frozenset[Head] | None:
        """The union over the alternatives."""
        known = [option.heads for option in self.options]
        return None if None in known else frozenset[Head]().union(*(heads for heads in known if heads is not None))

    def options_at(self, head: Head) -> tuple[ValuePattern, ...]:
        """Return the alternatives that can stand at an operator, where no-ops are not looked through."""
        options = self._at.get(head)
        if options is None:
            options = self._at[head] = tuple(
                p for p in self.options if not isinstance(p, (OpPattern, Result)) or p.heads is None or head in p.heads
            )
        return options

    @cached_property
    def leaves(self) -> tuple[ValuePattern, ...]:
        """The alternatives, with nested alternatives flattened."""
        nested = [option.leaves if isinstance(option, AnyOf) else (option,) for option in self.options]
        return tuple(dict.fromkeys(itertools.chain.from_iterable(nested)))

    def leaves_at(self, head: Head) -> tuple[ValuePattern, ...]:
        """Return those of :attr:`leaves` that can stand at an operator, where no-ops are not looked through."""
        leaves = self._leaves_at.get(head)
        if leaves is None:
            leaves = self._leaves_at[head] = tuple(p for p in self.leaves if _may_stand_at(p, head))
        return leaves

    def children(self) -> Sequence[ValuePattern]:
        """Return the alternatives."""
        return self.options

    def required(self) -> Sequence[ValuePattern]:
        """Return the last alternative, which for ``P.optional`` is the smallest."""
        return self.options[-1:]


def _may_stand_at(pattern: ValuePattern, head: Head) -> bool:
    """Tell whether a pattern can stand for a result of an operator, as far as the operator alone decides."""
    while isinstance(pattern, Where):
        pattern = pattern.inner
    if isinstance(pattern, (OpPattern, Result)):
        return pattern.heads is None or head in pattern.heads
    return not isinstance(pattern, (Const, Absent))


@dataclass(eq=False, repr=False)
class Where(ValuePattern):
    """Stand for the same value as a sub-pattern, if the value also satisfies constraints."""

    inner: ValuePattern
    constraints: Constraints

    @property
    def heads(self) -> frozenset[Head] | None:
        """The operators of the inner pattern."""
        return self.inner.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return the inner pattern."""
        return (self.inner,)


@dataclass(eq=False, repr=False)
class Repeat(ValuePattern):
    """Stand for as many steps above ``start`` as possible (``P.repeat``).

    Attributes:
        step: Builds one step from what stands below it.
        start: What the steps begin with.
        at_least: Fewest steps.
        at_most: Most steps, or None for any number.
    """

    step: Callable[[ValuePattern], ValuePattern]
    start: ValuePattern
    at_least: int
    at_most: int | None

    @cached_property
    def link(self) -> ValuePattern:
        """One more step, above all the others."""
        rest = None if self.at_most is None else self.at_most - 1
        return self.step(Repeat(self.step, self.start, max(self.at_least - 1, 0), rest))

    @property
    def heads(self) -> frozenset[Head] | None:
        """The operators of one step and, if no step is needed, of the start."""
        first = self.link.heads
        if self.at_least or first is None:
            return first
        return None if self.start.heads is None else first | self.start.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return the start and, where at least one step is needed, a step."""
        return (self.link, self.start) if self.at_least else (self.start,)


@dataclass(eq=False, repr=False)
class Dominance(ValuePattern):
    """Stand for ``root``, at which all paths from ``parent`` over ``path`` operators meet (``P.dominates``).

    No value of the parent or of the paths may be used elsewhere. The other operands of path operators are free.

    Attributes:
        parent: The start of the paths.
        path: The pattern of every operator on a path; its operands do not matter.
        root: The operator at which the paths meet.
        at_most: Most operators on the paths.
    """

    parent: ValuePattern
    path: OpPattern
    root: OpPattern
    at_most: int

    @property
    def heads(self) -> frozenset[Head] | None:
        """The operators of the root."""
        return self.root.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return root and parent."""
        return (self.root, self.parent)


@dataclass(frozen=True, eq=False)
class AttrBinding:
    """Bind an attribute to a name; if the name is used twice, both attributes must be equal.

    Attributes:
        name: Name of the binding.
        constraint: A further literal, set or callable that must hold, or None.
    """

    name: str
    constraint: Any = None


@dataclass(frozen=True, eq=False)
class Constraints:
    """Hold the constraints of ``where`` on a value; a field that is None means no constraint.

    Attributes:
        dtype: dtype name, set of names, or predicate.
        shape: A predicate on the shape, or one entry per dimension: a size, None for any size, or a text, which must
            stand for the same size wherever it occurs. One ``...`` stands for any number of dimensions.
        rank: Number of dimensions, set of numbers, or predicate.
        value: The value of a constant, as in ``P.const``.
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


def to_pattern(item: Any) -> ValuePattern:
    """Return an operand as a pattern: None becomes ``P.absent``, a number or array ``P.const``.

    Raises:
        PatternError: If the operand is something else.
    """
    if isinstance(item, ValuePattern):
        return item
    if item is None:
        return Absent()
    if isinstance(item, (bool, int, float, list, np.ndarray, np.generic)):
        return Const(item)
    raise PatternError(
        "an operand must be a pattern", expected="a pattern, a number, an array, None or ...", found=shown(item)
    )


def distances(pattern: ValuePattern) -> list[tuple[ValuePattern, int]]:
    """Return every sub-pattern with the most operators between it and the root, the nearest first."""
    depths: dict[ValuePattern, int] = {}
    queue = deque([(pattern, 0)])
    while queue:
        current, depth = queue.popleft()
        if depths.get(current, -1) >= depth:
            continue
        depths[current] = depth
        step = 1 if isinstance(current, OpPattern) else _REPEAT_REACH if isinstance(current, Repeat) else 0
        queue.extend((child, depth + step) for child in current.children())
    return list(depths.items())


def _view(heads: frozenset[Head] | None, operands: int, attrs: Mapping[str, Any]) -> str:
    """Return the change of shape that a pattern asks for, if an equal Reshape can be recognised; else an empty text."""
    if heads is None or len(heads) != 1 or operands != 1 or not all(isinstance(axis, int) for axis in attrs.values()):
        return ""
    ((domain, name),) = heads
    return name if not domain and name in named("view") and name != "Reshape" else ""


def _binary(op: str, a: Any, b: Any) -> OpPattern:
    return OpPattern(frozenset({("", op)}), (to_pattern(a), to_pattern(b)))


def _display(head: Head) -> str:
    domain, name = head
    return name if domain in ("", COMPOSITE, TINYCOMP) else f"{domain}::{name}"


# The language ----------------------------------------------------------------------------------------------------

_CONSTRUCTS = (
    "absent", "any", "any_of", "attr", "composite", "const", "dominates", "elementwise", "not_const", "op", "optional",
    "repeat",
)  # fmt: skip

Step = Callable[[ValuePattern], ValuePattern] | str | Iterable[str]


class Builder:
    """Build sub-patterns; :data:`P` is the builder for ONNX's own domain.

    Args:
        domain: Domain of the operators.
    """

    def __init__(self, domain: str = "") -> None:
        self._domain = domain

    def __getitem__(self, domain: str) -> Builder:
        """Return a builder for the operators of ``domain``."""
        return Builder(domain)

    def __getattr__(self, name: str) -> Callable[..., OpPattern]:
        if not name[:1].isupper() and not self._domain:
            raise PatternError(
                f'there is no construct "{name}" in the pattern language',
                hint=did_you_mean(name, _CONSTRUCTS) or "Operators begin with a capital letter.",
            )
        return lambda *operands, **attrs: self.op(name, *operands, **attrs)

    # Operators -----------------------------------------------------------------------------------------------------

    def op(self, names: str | Iterable[str] | None, /, *operands: Any, **attrs: Any) -> OpPattern:
        """Ask for an operator by name, by one of several names, or (None) for any operator.

        Args:
            names: Operator names; one with a dot is a composite's qualified name. A Sum of two operands also accepts an
                Add, and a Flatten, Squeeze or Unsqueeze of one operand a Reshape to the same shape, because
                simplification replaces the former by the latter.
            operands: A pattern each; None asks for an absent operand, a number or array for a constant, and a trailing
                ``...`` allows any further operands.
            attrs: A constraint per attribute: a literal, a set of literals, a predicate, or ``P.attr``. For a nested
                graph (``then_branch=…``), the pattern of its result, or a tuple of several.
        """
        heads = None if names is None else frozenset(self._head(n) for n in _names(names))
        variadic = bool(operands) and operands[-1] is ...
        fixed = operands[:-1] if variadic else operands
        if any(item is ... for item in fixed):
            raise PatternError('"..." must come last', where=str(names), hint="Write P.any for one operand.")
        if heads == _SUM and len(fixed) == 2 and not variadic:
            heads = _SUM_OF_TWO
        bodies = {k: v if isinstance(v, tuple) else (v,) for k, v in attrs.items() if _is_body(v)}
        plain = {k: v for k, v in attrs.items() if k not in bodies}
        if heads:
            _check_attributes(heads, attrs)
            _check_operands(heads, len(fixed), variadic)
        view = _view(heads, len(fixed), plain)
        if view and heads:
            heads |= {_RESHAPE}
        return OpPattern(heads, tuple(map(to_pattern, fixed)), variadic, plain, bodies, view=view)

    def composite(self, name: str, *operands: Any, **attrs: Any) -> OpPattern:
        """Ask for a composite by its qualified name, such as ``npu.conv_relu``."""
        return Builder(COMPOSITE).op(name, *operands, **attrs)

    def elementwise(self, x: Any) -> OpPattern:
        """Ask for any element-wise operator that has ``x`` among its operands."""
        return OpPattern(None, (to_pattern(x),), trait="elementwise", anywhere=True)

    def _head(self, name: str) -> Head:
        domain = self._domain or (COMPOSITE if "." in name else TINYCOMP if name in OWN_OPS else "")
        hint = unknown_operator(name, domain)
        if hint is not None:
            raise PatternError(f'there is no operator "{name}"', where=f"P.{name}", hint=hint)
        return domain, name

    # Values --------------------------------------------------------------------------------------------------------

    @property
    def any(self) -> AnyValue:
        """Ask for any value; every ``P.any`` is a new sub-pattern."""
        return AnyValue()

    @property
    def const(self) -> Const:
        """Ask for a constant; ``P.const(0.5)`` for one whose elements all have that value."""
        return Const()

    @property
    def not_const(self) -> NotConst:
        """Ask for any value that is not a constant."""
        return NotConst()

    @property
    def absent(self) -> Absent:
        """Ask for a left-out operand; None in an operand's place means the same."""
        return Absent()

    # Combinations --------------------------------------------------------------------------------------------------

    def any_of(self, *options: Any) -> AnyOf:
        """Ask for the first of several alternatives that leads to a match; ``a | b`` means the same."""
        if not options:
            raise PatternError("any_of needs at least one alternative")
        return AnyOf(tuple(map(to_pattern, options)))

    def optional(self, wrap: Callable[..., ValuePattern], inner: Any, *operands: Any, **attrs: Any) -> AnyOf:
        """Ask for ``wrap(inner, …)`` or, where that does not lead to a match, for ``inner`` alone.

        >>> from tinycomp.rewrite import P
        >>> maybe_padded = P.optional(P.Pad, P.any, ...)
        >>> maybe_scaled = P.optional(lambda v: P.Relu(v * P.const), P.Conv(P.any, P.any, ...))
        """
        start = to_pattern(inner)
        return AnyOf((wrap(start, *operands, **attrs), start))

    def repeat(self, step: Step, start: Any, *, at_least: int = 1, at_most: int | None = None) -> Repeat:
        """Ask for as many steps above ``start`` as possible.

        Args:
            step: One step: a function of the pattern below it, such as ``P.elementwise``, or names of operators that
                take the result below as any operand.
            start: The pattern below the first step.
            at_least: Fewest steps.
            at_most: Most steps.
        """
        if callable(step):
            return Repeat(step, to_pattern(start), at_least, at_most)
        heads = frozenset(self._head(n) for n in _names(step))
        return Repeat(lambda below: OpPattern(heads, (below,), anywhere=True), to_pattern(start), at_least, at_most)

    def dominates(
        self, parent: Any, path: Step, root: str | Iterable[str] | OpPattern, *, at_most: int = 64
    ) -> Dominance:
        """Ask for ``root`` such that every path from ``parent`` leads to it over operators of ``path`` only.

        Args:
            parent: The start of the paths.
            path: Operator names, or ``P.elementwise``.
            root: The operator at which the paths meet: names, or an operator pattern.
            at_most: Most operators on the paths.
        """
        end = root if isinstance(root, OpPattern) else self.op(root, ...)
        between = path(AnyValue()) if callable(path) else self.op(path, ...)
        if not isinstance(between, OpPattern):
            raise PatternError("a path is described by operators", expected="operator names or P.elementwise")
        return Dominance(to_pattern(parent), between, end, at_most)

    def attr(self, name: str, constraint: Any = None) -> AttrBinding:
        """Bind an attribute to ``name``; two attributes with one name must be equal."""
        return AttrBinding(name, constraint)


_LITERALS = (bool, int, float, str, bytes, list, tuple, np.ndarray, np.generic)


def _check_attributes(heads: frozenset[Head], attrs: Mapping[str, Any]) -> None:
    """Refuse constraints on attributes that no version of any of the operators can fulfil."""
    for name, wanted in attrs.items():
        where = f"P.{_any_of(heads)}({name}=…)"
        if all(lacks_attribute(op, domain, name) for domain, op in heads):
            names = sorted({each for domain, op in heads for each in signature(op, domain).attributes})
            raise PatternError(
                f'there is no attribute "{name}"', where=where, expected=f"one of {', '.join(names) or 'none'}",
                hint=did_you_mean(name, names),
            )  # fmt: skip
        for literal in wanted if isinstance(wanted, (set, frozenset)) else (wanted,):
            forms = [misfit(op, domain, name, literal) for domain, op in heads if isinstance(literal, _LITERALS)]
            if forms and None not in forms:
                expected = " or ".join(dict.fromkeys(filter(None, forms)))
                raise PatternError(
                    "the attribute never has this value", where=where, expected=expected, found=shown(literal)
                )


def _check_operands(heads: frozenset[Head], count: int, variadic: bool) -> None:
    """Refuse numbers of operands that no version of any of the operators takes."""
    if any(takes_operands(op, domain, count, variadic) for domain, op in heads):
        return
    known = [signature(op, domain) for domain, op in heads]
    least, most = min(each.least for each in known), max(each.most for each in known)
    raise PatternError(
        "the operator never has that many operands" if count > most else "the operator always has more operands",
        where=f"P.{_any_of(heads)}", expected=f"{least} to {most}" if least < most else str(most), found=str(count),
        hint="" if count > most else "Write P.any for an operand that does not matter, ... for any further ones.",
    )  # fmt: skip


def _any_of(heads: Iterable[Head]) -> str:
    return " or ".join(sorted(map(_display, heads)))


def _names(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _is_body(item: Any) -> bool:
    return isinstance(item, ValuePattern) or (
        isinstance(item, tuple) and bool(item) and all(isinstance(i, ValuePattern) for i in item)
    )


P = Builder()
"""The builder of patterns over ONNX's operators."""


# Tracing ---------------------------------------------------------------------------------------------------------


def trace(function: Callable[..., Any], name: str) -> tuple[tuple[ValuePattern, ...], list[ValuePattern]]:
    """Call a pattern function once with a sub-pattern for each argument; return its results and the arguments.

    Args:
        function: The function; it returns one sub-pattern, or a tuple of several.
        name: Name of the pattern for messages.

    Raises:
        PatternError: If the function does not describe a pattern.
    """
    arguments = [_argument(p, name) for p in inspect.signature(function).parameters.values()]
    result = function(*arguments)
    outputs = result if isinstance(result, tuple) else (result,)
    for item in outputs:
        if not isinstance(item, ValuePattern):
            raise PatternError(
                "the function does not return a pattern", where=f"pattern {name}",
                expected="P.Op(…), or a tuple of several", found=shown(item),
            )  # fmt: skip
    return outputs, arguments


def _argument(parameter: inspect.Parameter, where: str) -> ValuePattern:
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        raise PatternError(
            f'the argument "{parameter.name}" cannot be traced',
            where=f"pattern {where}",
            expected="plain positional arguments",
        )
    default = parameter.default
    if isinstance(default, ValuePattern):
        return default.named(parameter.name)
    return AnyValue(parameter.name, optional=default is None)
