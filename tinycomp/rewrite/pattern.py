"""Sub-patterns that stand for a value without asking for an operator, and their common base.

Users build them with :data:`tinycomp.rewrite.P`. A sub-pattern object stands for one value: used in two places of a
pattern, both places must hold the very same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from tinycomp.errors import PatternError
from tinycomp.ir.graph import Value
from tinycomp.rewrite.constraints import Constraints, check_const
from tinycomp.rewrite.engine import Head
from tinycomp.rewrite.search import Choice, Search

if TYPE_CHECKING:
    from tinycomp.rewrite.feasibility import Feasibility
    from tinycomp.rewrite.op_pattern import OpPattern

_P = TypeVar("_P", bound="ValuePattern")


class ValuePattern:
    """Base of everything that can stand where a pattern expects a value.

    Attributes:
        name: The binding under which a match shows the value; empty for none.
    """

    name: str = ""
    rules_out: ClassVar[bool] = False
    """Whether :meth:`may_stand` can ever say no."""
    only_at_heads: ClassVar[bool] = False
    """Whether it stands, no-ops apart, for nothing but results of the operators in :attr:`heads`."""
    is_free: ClassVar[bool] = False
    """Whether its value is a parameter of what is matched."""
    is_leaf: ClassVar[bool] = False
    """Whether it is a :class:`Leaf`."""

    # For users -----------------------------------------------------------------------------------------------------

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
        return AnyOf([self, to_pattern(other)])

    # For the search ------------------------------------------------------------------------------------------------

    @property
    def heads(self) -> frozenset[Head] | None:
        """Operators that the pattern can stand at; None means any, empty means that it stands at no operator."""
        return frozenset()

    def children(self) -> Sequence[ValuePattern]:
        """Return the direct sub-patterns."""
        return ()

    def required(self) -> Sequence[ValuePattern]:
        """Return the direct sub-patterns that every match needs."""
        return self.children()

    def choices(self, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
        """Yield the ways to stand for ``value``, each as the goals that remain."""
        if self in search.values:
            if self._holds(value, search):
                yield ()
            return
        for choice in self.fresh_choices(value, anchored, search):
            search.record(search.values, self, value)
            yield choice

    def may_stand(self, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
        """Whether the pattern can stand for ``value``, as far as operators and constants tell."""
        return True

    def fresh_choices(self, value: Value | None, anchored: bool, search: Search) -> Iterable[Choice]:
        """Like :meth:`choices`, when the pattern stands for nothing yet."""
        raise NotImplementedError

    def stands(self, value: Value | None, search: Search) -> bool:
        """Whether a leaf stands for ``value``, which is recorded then."""
        raise NotImplementedError

    def _holds(self, value: Value | None, search: Search) -> bool:
        """Whether ``value`` is the one that it stands for already."""
        held = search.values[self]
        if held is value:
            return True
        text = f"{self.name or 'the value'} ({held.name})" if held is not None else f"{self.name} absent"
        search.fail(f"expected {text} again, found {search.describe(value)}")
        return False


class Leaf(ValuePattern):
    """A sub-pattern without parts: it stands for a value in one way or in none, and leaves no goals."""

    is_leaf = True

    def stands(self, value: Value | None, search: Search) -> bool:
        """Whether it stands for ``value``, which is recorded then."""
        if self in search.values:
            return self._holds(value, search)
        if not self.fits(value, search):
            return False
        search.record(search.values, self, value)
        return True

    def fits(self, value: Value | None, search: Search) -> bool:
        """Like :meth:`stands`, when the pattern stands for nothing yet."""
        raise NotImplementedError


def _binary(op: str, a: Any, b: Any) -> OpPattern:
    from tinycomp.rewrite.op_pattern import OpPattern

    return OpPattern(frozenset({("", op)}), [to_pattern(a), to_pattern(b)])


def to_pattern(item: Any) -> ValuePattern:
    """Return a pattern for what stands in an operand's place: None is ``P.absent``, a number or array ``P.const``."""
    if isinstance(item, ValuePattern):
        return item
    if item is None:
        return Absent()
    if isinstance(item, (bool, int, float, list, np.ndarray, np.generic)):
        return Const(item)
    raise PatternError(
        "an operand must be a pattern", expected="a pattern, a number, an array, None or ...", found=repr(item)
    )


class AnyValue(Leaf):
    """``P.any``: any value; with ``optional``, also an absent operand."""

    is_free = True

    def __init__(self, name: str = "", *, optional: bool = False) -> None:
        self.name = name
        self.optional = optional

    def __call__(self) -> AnyValue:
        """Return another one, so that ``P.any()`` reads like the other constructs."""
        return AnyValue()

    def fits(self, value: Value | None, search: Search) -> bool:
        """Accept every value."""
        if value is None and not self.optional:
            search.fail(f"expected {f'an operand {self.name}' if self.name else 'an operand'}, found none")
            return False
        return True


class Const(Leaf):
    """``P.const``: a constant, optionally of a given value."""

    rules_out = True

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __call__(self, value: Any = None) -> Const:
        """Return a pattern for the constant ``value``: a number, an array, or a predicate on the array."""
        return Const(value)

    def fits(self, value: Value | None, search: Search) -> bool:
        """Accept a constant."""
        if value is None or value.const is None:
            search.fail(f"expected a constant, found {search.describe(value)}", value.producer if value else None)
            return False
        reason = "" if self.value is None else check_const(value.const, self.value)
        if reason:
            search.fail(reason)
        return not reason

    def may_stand(self, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
        """Whether the value is such a constant."""
        if value is None or value.const is None:
            return False
        return self.value is None or not check_const(value.const, self.value)


class NotConst(AnyValue):
    """``P.not_const``: any value that is not a constant."""

    def __call__(self) -> NotConst:
        """Return another one."""
        return NotConst()

    def fits(self, value: Value | None, search: Search) -> bool:
        """Accept whatever is computed at run time."""
        if value is None or value.const is not None:
            search.fail(f"expected anything but a constant, found {search.describe(value)}")
            return False
        return True


class Absent(Leaf):
    """``P.absent`` or ``None``: the operand must be left out."""

    rules_out = True

    def __call__(self) -> Absent:
        """Return another one."""
        return Absent()

    def fits(self, value: Value | None, search: Search) -> bool:
        """Accept an absent operand."""
        if value is not None:
            search.fail(f"expected an absent operand, found {search.describe(value)}")
        return value is None

    def may_stand(self, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
        """Whether the operand is absent."""
        return value is None


class AnyOf(ValuePattern):
    """``P.any_of(a, b)``: the first alternative that leads to a match; ``P.optional`` is one of them."""

    rules_out = True

    def __init__(self, options: Sequence[ValuePattern]) -> None:
        self.options = tuple(options)
        self._by_head: dict[Head, tuple[ValuePattern, ...]] = {}

    @property
    def heads(self) -> frozenset[Head] | None:
        """The union over the alternatives."""
        found = [option.heads for option in self.options]
        return None if None in found else frozenset[Head]().union(*(h for h in found if h is not None))

    def children(self) -> Sequence[ValuePattern]:
        """Return the alternatives."""
        return self.options

    def required(self) -> Sequence[ValuePattern]:
        """Return the last alternative, which for ``P.optional`` is the smallest."""
        return self.options[-1:]

    def fresh_choices(self, value: Value | None, anchored: bool, search: Search) -> Iterable[Choice]:
        """Try the alternatives in order; all of them only where somebody wants to know why none fits."""
        options = self._open_at(value, anchored, search) if search.is_guided else self.options
        return [((option, value, anchored),) for option in options]

    def may_stand(self, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
        """Whether any alternative can."""
        for option in self._open_at(value, anchored, feasible):  # noqa: SIM110 (a generator would cost)
            if feasible.may_stand(option, value, anchored):
                return True
        return False

    def _open_at(self, value: Value | None, anchored: bool, looking: Feasibility | Search) -> tuple[ValuePattern, ...]:
        """Return the alternatives that can stand for a value by its operator: all where no-ops are looked through."""
        if value is None or value.producer is None or (not anchored and looking.looks_through(value)):
            return self.options
        head = value.producer.domain, value.producer.op
        found = self._by_head.get(head)
        if found is None:
            found = tuple(p for p in self.options if not p.only_at_heads or p.heads is None or head in p.heads)
            self._by_head[head] = found
        return found


class Where(ValuePattern):
    """A sub-pattern whose value must also satisfy constraints."""

    rules_out = True

    def __init__(self, inner: ValuePattern, constraints: Constraints) -> None:
        self.inner = inner
        self.constraints = constraints

    @property
    def heads(self) -> frozenset[Head] | None:
        """Those of the inner pattern."""
        return self.inner.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return the inner pattern."""
        return (self.inner,)

    def fresh_choices(self, value: Value | None, anchored: bool, search: Search) -> Iterable[Choice]:
        """Match the inner pattern first, so that a failure tells how far the match had come."""
        return [((self.inner, value, anchored), (_Test(self.constraints), value, anchored))]

    def may_stand(self, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
        """Whether the inner pattern can."""
        return feasible.may_stand(self.inner, value, anchored)


class _Test(Leaf):
    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints

    def fits(self, value: Value | None, search: Search) -> bool:
        reason = "" if value is None else self.constraints.check(value, search)
        if reason:
            assert value is not None
            search.fail(reason, value.producer)
        return not reason
