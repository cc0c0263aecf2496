"""The form of the C target's rules: per operator a check, a layout rule and a lowering, together in one family file.

A family file looks like this; the check answers True or ``reject("reason")`` and sees types that may still be symbolic,
the lowering runs with static types and emits kernel calls::

    FAMILY = Rules()

    @FAMILY.lower("Softmax", check=float_with_known_rank)
    def softmax(emit, node): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import Dim, TensorType, tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import Rejection, reject
from tinycomp.targets.c.emit import Emitter

Lower = Callable[[Emitter, Node], None]
Verdict = bool | Rejection
Check = Callable[[Node], Verdict]
Shape = tuple[Dim, ...] | None


@dataclass(frozen=True)
class LoweringRule:
    """How the C target treats one operator.

    Attributes:
        check: Whether it takes a node of this operator.
        lower: Emits the kernel calls of one node.
        layout: Which memory orders it takes and gives.
    """

    check: Check
    lower: Lower
    layout: LayoutRule


@dataclass
class Rules:
    """The rules of one family file, filled by its decorators while the file is imported."""

    by_op: dict[tuple[str, str], LoweringRule] = field(default_factory=dict)

    def lower(
        self, *ops: str, check: Check, layout: LayoutRule = LayoutRule.FOLLOW, domain: str = ""
    ) -> Callable[[Lower], Lower]:
        """Register the decorated function as the lowering of ``ops``."""

        def register(function: Lower) -> Lower:
            for op in ops:
                assert (domain, op) not in self.by_op, op
                self.by_op[domain, op] = LoweringRule(check, function, layout)
            return function

        return register


def merged(families: Iterable[Rules]) -> dict[tuple[str, str], LoweringRule]:
    """Return the rules of several families in one table."""
    table: dict[tuple[str, str], LoweringRule] = {}
    for family in families:
        assert not table.keys() & family.by_op.keys(), table.keys() & family.by_op.keys()
        table |= family.by_op
    return table


# Checks that several families share ------------------------------------------------------------------------------


def all_of(*checks: Check) -> Check:
    """Return a check that passes where all ``checks`` pass; the first refusal is the answer."""

    def check(node: Node) -> Verdict:
        for each in checks:
            verdict = each(node)
            if isinstance(verdict, Rejection):
                return verdict
        return True

    return check


def dtypes(*allowed: str, operands: Iterable[int] | None = None) -> Check:
    """Return a check of the dtypes of the operands (all, or those at the given places) and of the first result."""
    chosen = None if operands is None else frozenset(operands)

    def check(node: Node) -> Verdict:
        for index, value in enumerate(node.inputs):
            if value is None or (chosen is not None and index not in chosen):
                continue
            if tensor(value.type).dtype not in allowed:
                return reject(f'operand {index} ("{value.name}") is {value.type}, not {_either(allowed)}')
        return True

    return check


def ranks(*allowed: int) -> Check:
    """Return a check of the rank of the first operand."""

    def check(node: Node) -> Verdict:
        rank = tensor(first(node).type).rank
        if rank in allowed:
            return True
        return reject(f"operand 0 has rank {'unknown' if rank is None else rank}, not {_either(map(str, allowed))}")

    return check


def known_rank(node: Node) -> Verdict:
    """Whether the ranks of all operands and results are known and within what the kernels take."""
    for value in (*node.inputs, *node.used_outputs()):
        if value is None:
            continue
        rank = tensor(value.type).rank
        if rank is None:
            return reject(f'the rank of "{value.name}" is unknown')
        if rank > MAX_RANK:
            return reject(f'"{value.name}" has rank {rank}, more than {MAX_RANK}')
    return True


def constant(*operands: int) -> Check:
    """Return a check that the operands at these places are constants, if they are there at all."""

    def check(node: Node) -> Verdict:
        for index in operands:
            value = node.inputs[index] if index < len(node.inputs) else None
            if value is not None and not is_known(value):
                return reject(f'operand {index} ("{value.name}") is not a constant')
        return True

    return check


MAX_RANK = 8
"""The most dimensions that the runtime's strided kernels take."""

float32 = dtypes("float32")


def is_known(value: Value) -> bool:
    """Whether a value is a constant, or is dequantised from constants and so will be one before lowering."""
    producer = value.producer
    if value.is_const:
        return True
    return (
        producer is not None
        and producer.op == "DequantizeLinear"
        and all(v is None or v.is_const for v in producer.inputs)
    )


def surely_equal(a: Shape, b: Shape) -> bool:
    """Whether two shapes are the same at run time, too: two unknown sizes may well differ.

    >>> surely_equal(("N", 4), ("N", 4)), surely_equal((None, 4), (None, 4))
    (True, False)
    """
    return a is not None and a == b and None not in a


def first(node: Node) -> Value:
    """The first operand."""
    value = node.inputs[0]
    assert value is not None, node
    return value


def operand(node: Node, index: int) -> Value | None:
    """The operand at ``index``, or None if it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def static_type(value: Value) -> tuple[TensorType, tuple[int, ...]]:
    """The type of a value and its shape, which is static during lowering."""
    type_ = tensor(value.type)
    shape = type_.static_shape
    assert shape is not None, value
    return type_, shape


def _either(names: Iterable[str]) -> str:
    return " or ".join(names)
