"""Lowering rules: every operator of the C target has one, with a check, a layout rule and a lowering.

Those of a family of operators stand together in one file. It looks like this; the check answers True or
``reject("reason")`` and sees types that may still be symbolic, the lowering runs with static types and emits kernel
calls::

    FAMILY = LoweringRules()

    @FAMILY.lower("Softmax", check=float_with_known_rank)
    def softmax(emit, node): ...

An element-wise operator is not lowered alone: it adds its steps to the program of its fusion group
(:mod:`fusion_groups`)::

    @FAMILY.element("Add", check=numbers)
    def add(steps, node): ...

The file and its operators are listed in :mod:`tinycomp.index`, by which it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinycomp.ir.graph import Node
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass, field
from tinycomp.rewrite import reject
from tinycomp.symbolic import Size
from tinycomp.targets.c.codegen.element_program import Build
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter
from tinycomp.targets.common.checks import Check, Verdict

Lower = Callable[[Emitter, Node], None]
Layout = LayoutRule | Callable[[Node], LayoutRule]


@dataclass(frozen=True)
class LoweringRule:
    """How the C target treats one operator.

    Attributes:
        check: Whether it takes a node of this operator.
        lower: Emits the kernel calls of one node; None for an element-wise operator, or what does so where its operands
            are texts.
        layout: Which memory orders it takes and gives; a function of the node where that depends on it.
        build: Adds the steps of an element-wise operator to its fusion group's program.
        unsigned: Whether its kernel takes 8-bit data as uint8 only.
        either: Whether such a kernel can give int8 results all the same.
    """

    check: Check
    lower: Lower | None
    layout: Layout
    build: Build | None = None
    unsigned: bool = False
    either: bool = False

    def layout_of(self, node: Node) -> LayoutRule:
        """Return how a node treats memory orders."""
        return self.layout if isinstance(self.layout, LayoutRule) else self.layout(node)


@dataclass
class LoweringRules:
    """The rules of one family file, filled by its decorators while the file is imported."""

    by_op: dict[tuple[str, str], LoweringRule] = field(default_factory=dict)

    def lower(
        self,
        *ops: str,
        check: Check,
        layout: Layout = LayoutRule.FOLLOW,
        domain: str = "",
        unsigned: bool = False,
        either: bool = False,
    ) -> Callable[[Lower], Lower]:
        """Register the decorated function as the lowering of ``ops``; see :class:`LoweringRule`."""

        def register(function: Lower) -> Lower:
            for op in ops:
                assert (domain, op) not in self.by_op, op
                self.by_op[domain, op] = LoweringRule(check, function, layout, unsigned=unsigned, either=either)
            return function

        return register

    def element(self, *ops: str, check: Check, texts: Lower | None = None) -> Callable[[Build], Build]:
        """Register the decorated function as that which adds the steps of ``ops`` to a fusion group's program.

        Args:
            ops: Names of operators.
            check: Whether the target takes a node of them.
            texts: The lowering of nodes whose operands are texts.
        """

        def register(function: Build) -> Build:
            for op in ops:
                assert ("", op) not in self.by_op, op
                self.by_op["", op] = LoweringRule(check, texts, LayoutRule.FOLLOW, function)
            return function

        return register


def known_rank(node: Node) -> Verdict:
    """Tell whether the ranks of all operands and results are known and within what the kernels take."""
    for value in (*node.inputs, *node.used_outputs()):
        if value is None:
            continue
        rank = value.rank
        if rank is None:
            return reject(f'the rank of "{value.name}" is unknown')
        if rank > MAX_RANK:
            return reject(f'"{value.name}" has rank {rank}, more than {MAX_RANK}')
    return True


def taken(node: Node) -> Verdict:
    """Return the check of a composite, whose own checks have been asked already."""
    return True


def known(sizes: Sequence[Size | None]) -> list[Size]:
    """Return the elements of an operand that has passed the check ``settled``: none of them is unknown."""
    held = [size for size in sizes if size is not None]
    assert len(held) == len(sizes), sizes
    return held
