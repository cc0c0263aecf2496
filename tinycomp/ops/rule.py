"""One rule per operator: what follows from a node's operands, and what they have to fulfil.

A rule is a function of :class:`Facts` that returns the types of all results. It reads dtypes, sizes (numbers,
expressions, or None where nothing is known), constants and known elements of operands, and states conditions::

    @FAMILY.infer("Gemm")
    def _gemm(facts: Facts) -> Results:
        rows, inner = facts.dims(0, 2)
        also_inner, columns = facts.dims(1, 2)
        facts.require_equal(inner, also_inner, "the operands' inner dimensions differ")
        return [facts.tensor(facts.dtype(0), (rows, columns))]

A condition that is decided by what is known is an error at once, in the name of the node. One that depends on sizes
of the run becomes a :class:`Demand`: it is read for the sizes that it implies (:mod:`tinycomp.ops.agreement`), and each
run checks it. The rule itself runs again on the host, on the arrays of a run, before a kernel: so a kernel need not
check what a rule states, and both say the same.

A rule never compares sizes that may be expressions (that raises :class:`tinycomp.symbolic.UndecidedError`): it states
conditions, or computes with :func:`tinycomp.symbolic.maximum` and its like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from tinycomp.errors import ExecutionError, TypeInferenceError, UnsupportedError, did_you_mean
from tinycomp.ir.graph import MOST_CONTENTS, TINYCOMP, Node, Value
from tinycomp.ir.proto import MAX_RANK
from tinycomp.ir.types import (
    UNKNOWN,
    UNKNOWN_DTYPE,
    Dim,
    SequenceType,
    TensorType,
    Type,
    tensor_type,
    type_of,
)
from tinycomp.ops.numeric import Array
from tinycomp.records import dataclass
from tinycomp.symbolic import (
    Expression,
    Size,
    bounds,
    broadcast,
    dimension,
    if_zero,
    marked_axes,
    maximum,
    minimum,
    product,
    ruled_before,
    size,
)

Sizes = tuple[Size | None, ...]
"""A shape of numbers and expressions; None is a dimension of which nothing is known."""
Results = Sequence[Type]
Rule = Callable[["Facts"], Results]
"""Gives the types of a node's results: see the head of this module."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A condition on sizes that only a run decides.

    Attributes:
        value: What must be 0.
        text: What is wrong where it is not.
        equal: The two sizes of which it says that they are equal, if that is all that it says.
    """

    value: Expression
    text: str
    equal: tuple[Size, Size] | None = None


class Facts:
    """What is known of a node and its operands, and the conditions that its rule has stated.

    Args:
        node: The node.
        operands: Its operands; by default those that the node has.
        in_run: Whether the operands are those of a run: then failures are errors of the run.

    Attributes:
        node: The node.
        in_run: Whether the operands are those of a run.
        count: The number of operands, absent ones in between included, captured ones left out.
        demands: The conditions that depend on sizes of a run.
        elements_read: The numbers of the operands whose elements the rule has looked at.
        scales_read: The numbers of the constant operands that it has only checked.
    """

    __slots__ = ("_operands", "count", "demands", "elements_read", "in_run", "node", "scales_read")

    def __init__(self, node: Node, operands: Sequence[Value | None] | None = None, *, in_run: bool = False) -> None:
        self.node = node
        self._operands = node.inputs if operands is None else operands
        self.in_run = in_run
        self.count = len(self._operands) - node.captures
        self.demands: list[Demand] = []
        self.elements_read: set[int] = set()
        self.scales_read: set[int] = set()

    # What is known -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version of the operator."""
        return self.node.version

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.node.attrs.get(name, default)

    def has(self, index: int) -> bool:
        """Tell whether an operand is there."""
        return self._operand(index) is not None

    def type(self, index: int) -> Type:
        """Return the type of an operand, :data:`tinycomp.ir.types.UNKNOWN` for an absent one."""
        value = self._operand(index)
        return UNKNOWN if value is None else value.type

    def dtype(self, index: int) -> str:
        """Return the element type of an operand, ``"?"`` where it is unknown or no tensor."""
        type_ = self.type(index)
        return type_.dtype if isinstance(type_, TensorType) else UNKNOWN_DTYPE

    def first_dtype(self, *indices: int) -> str:
        """Return the element type that operands of one type have: that of the first of which it is known."""
        return next((d for d in map(self.dtype, indices or range(self.count)) if d != UNKNOWN_DTYPE), UNKNOWN_DTYPE)

    def shape(self, index: int) -> Sizes | None:
        """Return the sizes of an operand; None where even the rank is unknown, or the operand is absent."""
        type_ = self.type(index)
        shape = type_.shape if isinstance(type_, TensorType) else None
        for dim in shape or ():
            if not isinstance(dim, int):
                return sizes_of(shape or ())
        return shape  # type: ignore[return-value]  # the loop has checked each

    def rank(self, index: int) -> int | None:
        """Return the number of dimensions of an operand, or None."""
        type_ = self.type(index)
        return type_.rank if isinstance(type_, TensorType) else None

    def dim(self, index: int, axis: int) -> Size | None:
        """Return one size of an operand, or None where it is not known or there is no such axis."""
        type_ = self.type(index)
        shape = type_.shape if isinstance(type_, TensorType) else None
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        dim = shape[axis]
        return dim if dim is None or isinstance(dim, int) else size(dim)

    def dims(self, index: int, rank: int) -> Sizes:
        """Return the sizes of an operand that must have ``rank`` dimensions, each None where its rank is unknown."""
        self.require_rank(index, rank)
        return self.shape(index) or (None,) * rank

    def const(self, index: int) -> Array | None:
        """Return the value of a constant operand."""
        value = self._operand(index)
        if value is None or value.const is None:
            return None
        self.elements_read.add(index)
        return value.const

    def scale(self, index: int) -> Array | None:
        """Return the value of a constant operand that decides neither types nor sizes."""
        self.scales_read.add(index)
        return self.node.const(index)

    def elements(self, index: int) -> Sizes | None:
        """Return the elements of a small tensor of integers, each None where it is not known; None for others."""
        value = self._operand(index)
        if value is None:
            return None
        self.elements_read.add(index)
        if value.const is not None:
            array = value.const
            return tuple([int(v) for v in array.reshape(-1).tolist()]) if array.dtype.kind in "iub" else None
        known, shape = value.contents, value.static_shape
        if known is None and shape is not None and value.dtype in ("int32", "int64", "bool"):
            count = int(np.prod(shape, dtype=object))
            return (None,) * count if count <= MOST_CONTENTS else None
        return known

    def ints(self, index: int, attribute: str = "") -> list[int] | None:
        """Return integers that are an attribute or an operand; None if not all are known."""
        values: Iterable[Any] | None = self.node.attrs.get(attribute) if attribute else None
        if values is None:
            values = self.elements(index)
        if values is None:
            return None
        numbers = list(values)
        return [int(v) for v in numbers] if all(isinstance(v, (int, np.integer)) for v in numbers) else None

    def has_ints(self, index: int, attribute: str = "") -> bool:
        """Tell whether there are such integers, known or not."""
        return attribute in self.node.attrs or self.has(index)

    def _operand(self, index: int) -> Value | None:
        return self._operands[index] if index < self.count else None

    # Results -------------------------------------------------------------------------------------------------------

    def tensor(self, dtype: str, shape: Sequence[Size | None] | None) -> TensorType:
        """Return the type of a result; sizes may be numbers, expressions or None."""
        if shape is None:
            return tensor_type(dtype, None)
        if len(shape) > MAX_RANK:
            raise UnsupportedError(
                "too many dimensions", where=self.node.label, expected=f"up to {MAX_RANK}, as numpy has",
                found=str(len(shape)),
            )  # fmt: skip
        for dim in shape:
            if not isinstance(dim, int):
                return tensor_type(dtype, tuple([None if d is None else dimension(d) for d in shape]))
        return tensor_type(dtype, tuple(shape))

    # Conditions ----------------------------------------------------------------------------------------------------

    def fail(self, message: str, *, expected: object = "", found: object = "", hint: str = "") -> NoReturn:
        """Refuse the node.

        Raises:
            TypeInferenceError: Where a model is compiled.
            ExecutionError: In a run.
        """
        node = self.node
        if self.in_run:
            raise ExecutionError(
                message, where=f"{node.label} ({node.op})", expected=str(expected), found=str(found), hint=hint
            )
        where = f"node {node.label} ({node.qualified_op}, version {node.version})"
        raise TypeInferenceError(message, where=where, expected=str(expected), found=str(found), hint=hint)

    def require(self, holds: bool, message: str, *, expected: object = "", found: object = "", hint: str = "") -> None:
        """Refuse the node unless ``holds``."""
        if not holds:
            self.fail(message, expected=expected, found=found, hint=hint)

    def require_equal(self, a: Size | None, b: Size | None, message: str) -> Size | None:
        """Demand that two sizes are equal; return what is known of them, a number if one of them is."""
        if a is None or b is None:
            return b if a is None else a
        if a == b:
            return a
        rest = a - b
        if isinstance(rest, int) or _differs(rest):
            self.fail(message, expected=b, found=a)
        self.demands.append(Demand(rest, f"{message}: {a} and {b}", (a, b)))
        return b if isinstance(b, int) else a

    def require_one_or(self, own: Size | None, wanted: Size | None, message: str) -> None:
        """Demand that a size is 1 or ``wanted``."""
        if isinstance(own, Expression) and wanted is not None:
            self.demand(if_zero(own - 1, 0, own - wanted), f"{message}: {own} is neither 1 nor {wanted}")
        elif own != 1:
            self.require_equal(own, wanted, message)

    def require_same(self, a: Sizes, b: Sizes, message: str) -> Sizes:
        """Demand that two shapes of one rank are equal; return what is known of them."""
        return tuple([self.require_equal(x, y, message) for x, y in zip(a, b, strict=True)])

    def require_at_least(self, value: Size | None, least: int, message: str, *, found: object = "") -> None:
        """Demand that a size is not below ``least``."""
        if value is None or (isinstance(value, int) and value >= least):
            return
        below = minimum(value - least, 0)
        if isinstance(below, int):
            if below < 0:
                self.fail(message, expected=f"at least {least}", found=found or str(value))
            return
        if (high := bounds(value)[1]) is not None and high < least:
            self.fail(message, expected=f"at least {least}", found=found or str(value))
        self.demands.append(Demand(below, f"{message}: {found or value} is below {least}"))

    def require_at_most(self, value: Size | None, most: Size | None, message: str) -> None:
        """Demand that a size is not above another."""
        if value is None or most is None:
            return
        above = maximum(value - most, 0)
        if isinstance(above, Expression):
            self.demands.append(Demand(above, f"{message}: {value} is more than {most}"))
        elif above:
            self.fail(message, expected=f"up to {most}", found=value)

    def require_divisible(self, value: Size | None, by: Size | None, message: str) -> None:
        """Demand that ``by`` divides a size."""
        if value is None or by is None:
            return
        if by == 0:
            self.fail(message, expected=f"a divisor of {value}", found=by)
        rest = value % by
        if isinstance(rest, Expression):
            self.demands.append(Demand(rest, f"{message}: {by} does not divide {value}"))
        elif rest:
            self.fail(message, expected=f"a divisor of {value}", found=by)

    def require_rank(self, index: int, rank: int, what: str = "") -> None:
        """Demand that an operand has ``rank`` dimensions."""
        known = self.rank(index)
        if known is not None and known != rank:
            self.fail(f"{what or self.name(index)} has the wrong rank", expected=f"{rank} dimensions",
                      found=self.shown(index))  # fmt: skip

    def require_rank_from(self, index: int, least: int, what: str = "") -> None:
        """Demand that an operand has at least ``least`` dimensions."""
        known = self.rank(index)
        if known is not None and known < least:
            self.fail(f"{what or self.name(index)} has too few dimensions", expected=f"at least {least}",
                      found=self.shown(index))  # fmt: skip

    def require_vector(self, index: int, count: Size | None, what: str = "") -> None:
        """Demand that an operand, where it is there, is a vector of ``count`` elements."""
        if self.rank(index) is not None:
            what = what or self.name(index)
            self.require_rank(index, 1, what)
            self.require_equal(self.dim(index, 0), count, f"{what} has the wrong size")

    def require_shape(self, index: int, sizes: Sizes, what: str = "") -> None:
        """Demand that an operand, where it is there, has a shape, of which sizes may be unknown."""
        what = what or self.name(index)
        self.require_rank(index, len(sizes), what)
        for axis, (own, wanted) in enumerate(zip(self.shape(index) or (), sizes, strict=False)):
            self.require_equal(own, wanted, f"axis {axis} of {what} has the wrong size")

    def require_scalar(self, index: int, what: str = "") -> None:
        """Demand that an operand, where it is there, holds one element, whatever its rank."""
        for axis, dim in enumerate(self.shape(index) or ()):
            if dim is not None:
                self.require_equal(dim, 1, f"axis {axis} of {what or self.name(index)}, which holds one number")

    def require_axis(self, axis: int, rank: int | None, what: str = "axis", *, negative: bool = True) -> int:
        """Demand that an axis lies in a tensor of ``rank`` dimensions; return it counted from the front."""
        if rank is None:
            return axis
        if not (-rank if negative else 0) <= axis < rank:
            self.fail(f"{what} is out of range", expected=_axis_range(rank, negative), found=axis)
        return axis % rank

    def require_axes(self, axes: Sequence[int], rank: int | None, what: str = "axes") -> list[int]:
        """Demand that axes lie in a tensor of ``rank`` dimensions and differ; return them counted from the front."""
        fixed = [self.require_axis(axis, rank, f"an entry of {what}") for axis in axes]
        if len(set(fixed)) < len(fixed):
            self.fail(f"{what} names an axis twice", expected="distinct axes", found=list(axes))
        return fixed

    def require_axes_or_elements(self, axes: Sequence[Size], rank: int, what: str = "axes") -> None:
        """Demand that axes lie in a tensor and differ, where some may be elements of a tensor."""
        named: Size = 0
        for mark in marked_axes(axes, rank):
            named = named + if_zero(mark, 0, 1)
        if isinstance(named, int):
            self.require_axes([axis for axis in axes if isinstance(axis, int)], rank, what)
        else:
            self.demand(len(axes) - named, f"{what} names an axis twice, or one that is out of range for rank {rank}")

    def require_one_of(self, name: str, choices: Sequence[object], default: Any = None) -> Any:
        """Demand that an attribute, where it is given, is one of a few words or numbers; return it."""
        value = self.attr(name, default)
        if value is None or value in choices:
            return value
        return self._refuse_choice(name, value, choices)

    def _refuse_choice(self, name: str, value: object, choices: Sequence[object]) -> NoReturn:
        words = [str(choice) for choice in choices]
        shown = words if len(words) < 12 else [*words[:3], "…", words[-1]]
        hint = did_you_mean(str(value), words) if isinstance(value, str) else ""
        self.fail(f"unknown {name}", expected=f"one of {', '.join(shown)}", found=repr(value), hint=hint)

    def require_few(self, index: int) -> None:
        """Demand that an operand whose elements are sizes of a result has no more of them than there are dimensions."""
        count = self.dim(index, 0)
        if isinstance(count, int) and count > MAX_RANK:
            self.fail("too many dimensions", expected=f"up to {MAX_RANK} sizes", found=self.shown(index))

    def broadcast(self, *shapes: Sizes | None, message: str = "the operands do not broadcast") -> Sizes | None:
        """Demand that shapes broadcast to one, and return it; None where a rank is not known."""
        result: list[Size | None] = []
        for shape in shapes:
            if shape is None:
                return None
            missing = max(len(shape) - len(result), 0)
            result = [*shape[:missing], *result]
            for axis in range(missing - len(shape), 0):
                result[axis] = self._broadcast_size(result[axis], shape[axis], message, shapes)
        return tuple(result)

    def _broadcast_size(
        self, a: Size | None, b: Size | None, message: str, shapes: Sequence[Sizes | None]
    ) -> Size | None:
        if a is None or b is None:
            known = b if a is None else a
            return known if isinstance(known, int) and known != 1 else None
        if a == b or (isinstance(b, int) and b == 1):
            return a
        if isinstance(a, int) and a == 1:
            return b
        value = if_zero(a - 1, 0, if_zero(b - 1, 0, a - b))
        if isinstance(value, Expression):
            self.demands.append(Demand(value, f"{message}: {a} and {b} are different, and neither is 1"))
        elif value:
            self.fail(message, expected="sizes that are equal or 1", found=" and ".join(map(shape_text, shapes)))
        return broadcast(a, b)

    def require_broadcast(self, index: int, to: Sizes | None, what: str = "") -> None:
        """Demand that an operand broadcasts to a shape without changing it."""
        shape = self.shape(index)
        if shape is None or to is None:
            return
        what = what or self.name(index)
        if len(shape) > len(to):
            self._cannot_broadcast(index, to, what)
        for own, wanted in zip(reversed(shape), reversed(to), strict=False):
            if own is None or wanted is None or own in (1, wanted):
                continue
            if isinstance(own, int) and isinstance(wanted, int):
                self._cannot_broadcast(index, to, what)
            text = f"{what} does not broadcast to its tensor: {own} and {wanted}"
            value = own - wanted if isinstance(own, int) else if_zero(own - 1, 0, own - wanted)
            if isinstance(value, Expression):
                self.demands.append(Demand(value, text, (own, wanted) if isinstance(own, int) else None))
            elif value:
                self._cannot_broadcast(index, to, what)

    def _cannot_broadcast(self, index: int, to: Sizes, what: str) -> NoReturn:
        self.fail(
            f"{what} does not broadcast to its tensor", expected=f"shape {shape_text(to)} or one that broadcasts to it",
            found=self.shown(index),
        )  # fmt: skip

    def demand(self, value: Size, text: str) -> None:
        """State that a number must be 0, and what is wrong otherwise."""
        if isinstance(value, Expression):
            self.demands.append(Demand(value, text))
        elif value:
            self.fail(text)

    def follow(self, rule: Rule, node: Node, first: int) -> None:
        """State what a rule states of another node, whose operands are those from number ``first`` on."""
        other = Facts(node, self._operands[first:], in_run=self.in_run)
        rule(other)
        self.demands += other.demands
        self.elements_read |= {index + first for index in other.elements_read}
        self.scales_read |= {index + first for index in other.scales_read}

    # Words ---------------------------------------------------------------------------------------------------------

    def shown(self, index: int) -> str:
        """Return an operand's type as text."""
        value = self._operand(index)
        return "absent" if value is None else str(value.type)

    def name(self, index: int) -> str:
        """Return what messages call an operand."""
        return f"operand {index}"


def _differs(rest: Expression) -> bool:
    low, high = bounds(rest)
    return (low is not None and low > 0) or (high is not None and high < 0)


def _axis_range(rank: int, negative: bool) -> str:
    return f"an axis in [{-rank if negative else 0}, {rank - 1}]" if rank else "no axis, since the tensor is a scalar"


def sizes_of(shape: Sequence[Dim]) -> Sizes:
    """Return dimensions as sizes."""
    return tuple([dim if dim is None or isinstance(dim, int) else size(dim) for dim in shape])


def known_of(sizes: Iterable[Size | None]) -> list[Size]:
    """Return those of some sizes of which something is known."""
    return [each for each in sizes if each is not None]


def known_product(sizes: Sequence[Size | None]) -> Size | None:
    """Return the product of sizes, or None if one of them is not known."""
    known = known_of(sizes)
    return product(known) if len(known) == len(sizes) else None


def shape_text(shape: Sizes | None) -> str:
    """Return a shape as messages show it."""
    return "[...]" if shape is None else f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


# Rules of many operators -------------------------------------------------------------------------------------------


def same_as_first(facts: Facts) -> Results:
    """Give every result the type of the first operand: the rule of element-wise operators of one operand."""
    return [facts.tensor(facts.dtype(0), facts.shape(0))] * len(facts.node.outputs)


def broadcasting(facts: Facts) -> Results:
    """Give the result the shape that all operands broadcast to, and the element type of the first that has one."""
    shapes = [facts.shape(i) for i in range(facts.count) if facts.has(i)]
    return [facts.tensor(facts.first_dtype(), facts.broadcast(*shapes))]


def broadcasting_to(dtype: str) -> Rule:
    """Return the rule of operators whose operands broadcast and whose result has a certain element type."""

    def rule(facts: Facts) -> Results:
        shapes = [facts.shape(i) for i in range(facts.count) if facts.has(i)]
        return [facts.tensor(dtype, facts.broadcast(*shapes))]

    return rule


# Conditions of a node that others stand for -------------------------------------------------------------------------

_STATED = ("stated_op", "stated_domain", "stated_version", "stated_results")


def stating(node: Node) -> dict[str, Any]:
    """Return the attributes of a node ``tinycomp::Conditions`` that states what the rule of ``node`` does."""
    return dict(zip(_STATED, (node.op, node.domain, node.version, len(node.outputs)), strict=True)) | node.attrs


def stated_of(node: Node) -> Node:
    """Return the node whose conditions a node states: itself, unless it is a ``tinycomp::Conditions``."""
    if not states_for_another(node):
        return node
    op, domain, version, results = (node.attrs[name] for name in _STATED)
    stated = Node(op, domain, version, node.inputs[1:])
    stated.attrs = {name: value for name, value in node.attrs.items() if name not in _STATED}
    stated.outputs, stated.sources = node.outputs * results, node.sources
    return stated


def states_for_another(node: Node) -> bool:
    """Tell whether a node is a ``tinycomp::Conditions``, which hands on its first operand."""
    return (node.domain, node.op) == (TINYCOMP, "Conditions")


# Readings of a rule ------------------------------------------------------------------------------------------------


def value_of(operand: Any) -> Value | None:
    """Return an operand of a run as a value whose elements are known."""
    if operand is None:
        return None
    if isinstance(operand, np.ndarray):
        return Value("", type_of(operand), const=operand)
    return Value("", SequenceType(UNKNOWN) if isinstance(operand, (list, tuple)) else UNKNOWN)


def run_check(node: Node, rule: Rule) -> Callable[[Sequence[Any]], None]:
    """Return what checks the operands of a run by a node's rule; it raises ExecutionError.

    Shapes that have passed are remembered where the rule looks at no elements but those of constants.
    """
    constant = {index for index, value in enumerate(node.inputs) if value is not None and value.is_const}
    passed: set[Any] = set()

    def check(operands: Sequence[Any]) -> None:
        key = tuple([(x.shape, x.dtype) if isinstance(x, np.ndarray) else x is None for x in operands])
        if key in passed:
            return
        facts = Facts(node, [value_of(x) for x in operands], in_run=True)
        rule(facts)
        if facts.elements_read <= constant and len(passed) < _MOST_REMEMBERED:
            passed.add(key)

    return check


_MOST_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Ruled:
    """What a rule says of a node.

    Attributes:
        types: The types of the results.
        demands: The conditions that depend on sizes of a run.
        elements_read: The numbers of the operands whose elements the rule has looked at.
    """

    types: tuple[Type, ...]
    demands: tuple[Demand, ...] = ()
    elements_read: frozenset[int] = frozenset()


_Said = dict[tuple[int, ...], dict[tuple[bytes, ...], Ruled]]
"""By the constant operands that a rule has looked at, and by their elements, what it said."""
_MOST_BYTES = 1024
"""Most bytes of a constant that is compared with others."""


def ruled(node: Node, rule: Rule) -> Ruled:
    """Return what a rule says of a node; of nodes that look the same to it, as in repeated blocks, it judges one.

    Raises:
        TypeInferenceError: If the operands do not fit the operator.
    """
    key = _seen(node)
    if key is None:
        return _judged(Facts(node), rule)
    known: _Said = ruled_before().get(key, {})
    for places, said in known.items():
        elements = _elements(node, places)
        if elements is not None and elements in said:
            return said[elements]
    facts = Facts(node)
    found = _judged(facts, rule)
    looked = sorted(facts.elements_read | facts.scales_read)
    places = tuple([i for i in looked if (value := node.optional_operand(i)) is not None and value.const is not None])
    elements = _elements(node, places)
    if elements is not None:
        ruled_before().setdefault(key, {}).setdefault(places, {})[elements] = found
    return found


def _judged(facts: Facts, rule: Rule) -> Ruled:
    types = tuple(rule(facts))[: len(facts.node.outputs)]
    return Ruled(types, tuple(facts.demands), frozenset(facts.elements_read))


def _seen(node: Node) -> tuple[object, ...] | None:
    """Return all that a rule sees of a node, but for the elements of constants; None where that may be more."""
    if node.domain or node.bodies:
        return None
    operands: list[object] = []
    for value in node.inputs:
        if value is None:
            operands.append(None)
            continue
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.layout:
            return None
        known: object = None if value.const is None else False
        if known is None and (type_.contents is not None or value.producer is None):
            known = value.contents
        operands += (type_.dtype, type_.shape, known)
    try:
        attrs = tuple([(name, tuple(v) if isinstance(v, list) else v) for name, v in node.attrs.items()])
        hash(attrs)
    except TypeError:
        return None
    return (node.op, node.version, node.captures, len(node.outputs), attrs, *operands)


def _elements(node: Node, places: Sequence[int]) -> tuple[bytes, ...] | None:
    """Return the elements of constant operands for a comparison; None where they are too many, or texts."""
    elements = []
    for place in places:
        const = node.operand(place).const
        if const is None or const.nbytes > _MOST_BYTES or const.dtype.hasobject:
            return None
        elements.append(const.tobytes())
    return tuple(elements)
