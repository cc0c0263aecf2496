"""The lowering rules of the C target by operator; the file of a family is imported when one of its rules is needed."""

from __future__ import annotations

from tinycomp.index import LOWERINGS
from tinycomp.lazy import LazyTable
from tinycomp.ops.record import heads
from tinycomp.targets.c.codegen.rules import LoweringRule

TABLE = LazyTable[tuple[str, str], LoweringRule](
    __package__, {family: heads(ops) for family, ops in LOWERINGS.items()}, lambda module: module.FAMILY.by_op
)
"""The rules of all operators by domain and name."""
