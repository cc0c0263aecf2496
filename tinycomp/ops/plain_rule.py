"""What a rule for the type of a plain node looks like; :mod:`tinycomp.ops.plain_types` tells what they are for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeGuard

from tinycomp.ir.graph import Node
from tinycomp.ir.types import Dim

Shape = tuple[Dim, ...]
Operand = tuple[str, Shape]
"""The dtype and dimensions of a dense tensor that lies row by row."""
FLOATS = frozenset({"float16", "float32", "float64"})
NUMBERS = FLOATS | {"int32", "int64"}
ANY = 1 << 30
"""More operands than any node has."""


class Rule(NamedTuple):
    """How the type of a result follows from the operands; the least number of them is there, others may be absent."""

    type_of_result: Callable[[Node, Sequence[Operand]], Operand | None]
    least: int = 1
    most: int = 1
    since: int = 1
    dtypes: frozenset[str] | None = FLOATS
    """What the operands may be, all of one dtype; None where the rule itself sees to the dtypes."""


def is_known(dim: Dim) -> TypeGuard[int]:
    """Whether a dimension is a number."""
    return isinstance(dim, int)


def fit(a: Dim, b: Dim) -> bool:
    """Whether two dimensions may be equal."""
    return a == b or not (is_known(a) and is_known(b))
