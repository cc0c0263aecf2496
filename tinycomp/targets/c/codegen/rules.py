"""Lowering rules, of which every operator of the C target has one: a check, a layout rule and a lowering.

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

Some operators go row by row through operands with a bounded dynamic dimension, their first one. Their calls are emitted
for the bound, in memory for as many rows, and do no more than a run needs. That works where row i of every result
follows from row i of those operands and from all of the others. The functions that tell so are a part of the rules;
they get the node, whose types have no size for these rows yet, and the operands with such rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import Dim
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.targets.c.codegen.element_program import Build
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter
from tinycomp.targets.common.checks import Check, Verdict

Lower = Callable[[Emitter, Node], None]
RowWise = Callable[[Node, Set[Value]], bool]
"""Tells whether a node goes row by row through the operands that have a bounded dynamic dimension."""


@dataclass(frozen=True)
class LoweringRule:
    """How the C target treats one operator.

    Attributes:
        check: Whether it takes a node of this operator.
        lower: Emits the kernel calls of one node, or None for an element-wise operator.
        layout: Which memory orders it takes and gives.
        build: Adds the steps of an element-wise operator to its fusion group's program.
        unsigned: Whether its kernel takes 8-bit data as uint8 only.
        either: Whether such a kernel can give int8 results all the same.
        row_wise: Where it goes row by row; None for nowhere.
    """

    check: Check
    lower: Lower | None
    layout: LayoutRule
    build: Build | None = None
    unsigned: bool = False
    either: bool = False
    row_wise: RowWise | None = None


@dataclass
class LoweringRules:
    """The rules of one family file, filled by its decorators while the file is imported."""

    by_op: dict[tuple[str, str], LoweringRule] = field(default_factory=dict)

    def lower(
        self,
        *ops: str,
        check: Check,
        layout: LayoutRule = LayoutRule.FOLLOW,
        domain: str = "",
        unsigned: bool = False,
        either: bool = False,
        row_wise: RowWise | None = None,
    ) -> Callable[[Lower], Lower]:
        """Register the decorated function as the lowering of ``ops``; see :class:`LoweringRule`."""

        def register(function: Lower) -> Lower:
            for op in ops:
                assert (domain, op) not in self.by_op, op
                self.by_op[domain, op] = LoweringRule(
                    check, function, layout, unsigned=unsigned, either=either, row_wise=row_wise
                )
            return function

        return register

    def element(self, *ops: str, check: Check) -> Callable[[Build], Build]:
        """Register the decorated function as that which adds the steps of ``ops`` to a fusion group's program."""

        def register(function: Build) -> Build:
            for op in ops:
                assert ("", op) not in self.by_op, op
                self.by_op["", op] = LoweringRule(check, None, LayoutRule.FOLLOW, function, row_wise=element_wise)
            return function

        return register


def merged(families: Iterable[LoweringRules]) -> dict[tuple[str, str], LoweringRule]:
    """Return the rules of several families in one table."""
    table: dict[tuple[str, str], LoweringRule] = {}
    for family in families:
        assert not table.keys() & family.by_op.keys(), table.keys() & family.by_op.keys()
        table |= family.by_op
    return table


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


def _rank(value: Value) -> int:
    """Return the number of dimensions, which the operators' own checks have found to be known; 0 where it is not."""
    return value.rank or 0


def element_wise(node: Node, counted: Set[Value]) -> bool:
    """Tell so where all counted operands have the result's rank, and the others are repeated for every row."""
    rank = _rank(node.output)
    for value in node.inputs:
        if value is None:
            continue
        shape = value.shape
        if shape is None or (value in counted and len(shape) != rank):
            return False
        if value not in counted and len(shape) == rank and shape[:1] != (1,):
            return False
    return rank > 0


def reshaping(node: Node, counted: Set[Value]) -> bool:
    """Tell so where the elements of a row stay together."""
    before, after = node.operand(0).shape, node.output.shape
    if not before or not after or isinstance(after[0], int):
        return False
    size = _row_size(before)
    return size is not None and size == _row_size(after)


def _row_size(shape: tuple[Dim, ...]) -> int | None:
    sizes = [n for n in shape[1:] if isinstance(n, int)]
    return math.prod(sizes) if len(sizes) == len(shape) - 1 else None


def gathering(node: Node, counted: Set[Value]) -> bool:
    """Tell so of Gather: whole slices by counted indices, or the same places of every row that there is."""
    data, indices = node.operand(0), node.optional_operand(1)
    axis = int(node.attrs.get("axis", 0)) % max(_rank(data), 1)
    return (indices in counted and data not in counted and axis == 0) or (indices not in counted and axis > 0)


def gathering_tuples(node: Node, counted: Set[Value]) -> bool:
    """Tell so of GatherND: slices of one tensor by counted tuples."""
    indices = node.optional_operand(1)
    one_tensor = node.operand(0) not in counted and not node.attrs.get("batch_dims", 0)
    return one_tensor and indices is not None and _rank(indices) > 1


def inside_rows(node: Node, counted: Set[Value]) -> bool:
    """Tell so of Concat and Split along another dimension than that of the rows."""
    parts = node.inputs if node.op == "Concat" else node.inputs[:1]
    axis = int(node.attrs.get("axis", 0)) % max(_rank(node.operand(0)), 1)
    return axis > 0 and all(value in counted for value in parts)


def transposing(node: Node, counted: Set[Value]) -> bool:
    """Tell so of Transpose inside rows."""
    return list(node.attrs.get("perm", ()))[:1] == [0]
