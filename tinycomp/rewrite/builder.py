"""``P``, with which patterns are written.

``P.Conv(x, w)`` asks for an ONNX operator, ``P["com.vendor"].Op(x)`` for one of another domain; the lower-case
names are the constructs of the language. See ``docs/patterns.md`` for each with an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tinycomp.errors import PatternError, did_you_mean
from tinycomp.ir.graph import COMPOSITE, TINYCOMP
from tinycomp.rewrite.constraints import AttrBinding
from tinycomp.rewrite.dominance import Dominance
from tinycomp.rewrite.op_pattern import OpPattern
from tinycomp.rewrite.pattern import Absent, AnyOf, AnyValue, Const, NotConst, ValuePattern, to_pattern
from tinycomp.rewrite.repeat import Repeat

_OWN_OPS = frozenset({"Relayout", "StopFusion"})
_CONSTRUCTS = (
    "absent", "any", "any_of", "attr", "composite", "const", "dominates", "elementwise", "not_const", "op", "optional",
    "repeat",
)  # fmt: skip

Step = Callable[[ValuePattern], ValuePattern] | str | Iterable[str]


class Builder:
    """Builds sub-patterns; :data:`P` is the one for ONNX's own domain.

    Args:
        domain: Operator domain of what attribute access builds.
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
            names: Operator names; one with a dot is a composite's qualified name.
            operands: A pattern each; None asks for an absent operand, a number or array for a constant, and a trailing
                ``...`` allows any further operands.
            attrs: What each attribute must be: a literal, a set of literals, a predicate, or ``P.attr``. For a nested
                graph (``then_branch=…``): the pattern of its result, or a tuple of several.
        """
        heads = None if names is None else frozenset(self._head(n) for n in _names(names))
        variadic = bool(operands) and operands[-1] is ...
        fixed = operands[:-1] if variadic else operands
        if any(item is ... for item in fixed):
            raise PatternError('"..." may only stand last', where=str(names), hint="Write P.any for one operand.")
        bodies = {k: v if isinstance(v, tuple) else (v,) for k, v in attrs.items() if _is_body(v)}
        plain = {k: v for k, v in attrs.items() if k not in bodies}
        return OpPattern(heads, [to_pattern(item) for item in fixed], variadic=variadic, attrs=plain, bodies=bodies)

    def composite(self, name: str, *operands: Any, **attrs: Any) -> OpPattern:
        """Ask for a composite by its qualified name, such as ``npu.conv_relu``."""
        return Builder(COMPOSITE).op(name, *operands, **attrs)

    def elementwise(self, x: Any) -> OpPattern:
        """Ask for any element-wise operator that has ``x`` among its operands."""
        return OpPattern(None, [to_pattern(x)], trait="elementwise", anywhere=True)

    def _head(self, name: str) -> tuple[str, str]:
        if self._domain:
            return self._domain, name
        return COMPOSITE if "." in name else TINYCOMP if name in _OWN_OPS else "", name

    # Values --------------------------------------------------------------------------------------------------------

    @property
    def any(self) -> AnyValue:
        """Any value; each mention is a new one."""
        return AnyValue()

    @property
    def const(self) -> Const:
        """A constant; ``P.const(0.5)`` one whose elements all have that value."""
        return Const()

    @property
    def not_const(self) -> NotConst:
        """Any value that is not a constant."""
        return NotConst()

    @property
    def absent(self) -> Absent:
        """A left-out operand; None in an operand's place says the same."""
        return Absent()

    # Combinations --------------------------------------------------------------------------------------------------

    def any_of(self, *options: Any) -> AnyOf:
        """Alternatives in order; ``a | b`` says the same."""
        if not options:
            raise PatternError("any_of needs at least one alternative")
        return AnyOf([to_pattern(item) for item in options])

    def optional(self, wrap: Callable[..., ValuePattern], inner: Any, *operands: Any, **attrs: Any) -> AnyOf:
        """Ask for ``wrap(inner, …)`` or, where that does not lead to a match, for ``inner`` alone.

        >>> from tinycomp.rewrite import P
        >>> maybe_padded = P.optional(P.Pad, P.any, ...)
        >>> maybe_scaled = P.optional(lambda v: P.Relu(v * P.const), P.Conv(P.any, P.any, ...))
        """
        start = to_pattern(inner)
        return AnyOf([wrap(start, *operands, **attrs), start])

    def repeat(self, step: Step, start: Any, *, at_least: int = 1, at_most: int | None = None) -> Repeat:
        """Ask for a chain above ``start``, as long as possible.

        Args:
            step: What one link is: a function of what stands below it (``P.elementwise``), or operator names, each
                taking the chain at any operand.
            start: What the chain begins with.
            at_least: Fewest links.
            at_most: Most links.
        """
        build = step if callable(step) else self._link(step)
        return Repeat(build, to_pattern(start), at_least, at_most)

    def dominates(
        self, parent: Any, path: Step, root: str | Iterable[str] | OpPattern, *, at_most: int = 64
    ) -> Dominance:
        """Ask for ``root`` such that every way from ``parent`` leads to it over operators of ``path`` only.

        Args:
            parent: What the paths begin with.
            path: Operator names, or ``P.elementwise``.
            root: Where they meet: operator names, or an operator pattern.
            at_most: Most operators between the two.
        """
        end = root if isinstance(root, OpPattern) else self.op(root, ...)
        between = path(AnyValue()) if callable(path) else self.op(path, ...)
        if not isinstance(between, OpPattern):
            raise PatternError("a path is described by operators", expected="operator names or P.elementwise")
        return Dominance(to_pattern(parent), between, end, at_most)

    def attr(self, name: str, constraint: Any = None) -> AttrBinding:
        """Bind an attribute to ``name``; two attributes with one name must be equal."""
        return AttrBinding(name, constraint)

    def _link(self, names: str | Iterable[str]) -> Callable[[ValuePattern], ValuePattern]:
        heads = frozenset(self._head(n) for n in _names(names))
        return lambda below: OpPattern(heads, [below], anywhere=True)


def _names(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _is_body(item: Any) -> bool:
    return isinstance(item, ValuePattern) or (
        isinstance(item, tuple) and bool(item) and all(isinstance(i, ValuePattern) for i in item)
    )


P = Builder()
"""Writes patterns over ONNX's operators."""
