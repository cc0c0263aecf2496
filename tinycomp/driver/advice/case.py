"""A case: one operator that a target does not run, with all that is known about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tinycomp.driver.advice.setup import Setup
from tinycomp.ir.graph import Graph, Node
from tinycomp.records import dataclass
from tinycomp.remark import Remark
from tinycomp.rewrite.traits import has_trait
from tinycomp.target import Target

_NUMBERS = re.compile(r"\d+")
_LONG = 48
"""Characters of a name that are shown."""


@dataclass(frozen=True)
class Case:
    """Hold an operator that a target does not run.

    Attributes:
        setup: What was compiled.
        optimized: The model as the targets were asked about it.
        node: The operator in the partitioned graph.
        target: The target.
        remarks: Why not, the nearest misses first.
        alike: The operators that are refused for the same reason, this one among them.
    """

    setup: Setup
    optimized: Graph
    node: Node
    target: Target
    remarks: Sequence[Remark]
    alike: Sequence[Node]

    @property
    def reason(self) -> str:
        """The nearest reason, or an empty text."""
        return str(self.remarks[0]) if self.remarks else ""

    def originals(self, graph: Graph) -> list[tuple[Graph, Node]]:
        """Return the nodes of a model that the operators refused alike came from, with their graphs."""
        names = {(_kind(node), source) for node in self.alike for source in node.sources}
        return [
            (scope, node) for scope, node in graph.walk()
            if any((_kind(node), source) in names for source in node.sources)
        ]  # fmt: skip


def _kind(node: Node) -> str:
    """Return the operator of a node; that of a product may change while the model is simplified."""
    return "product" if has_trait(node, "product") else node.qualified_op


def by_source(remarks: Iterable[Remark], target: str) -> Mapping[str, list[Remark]]:
    """Return the remarks about a target by the source names that they are about."""
    found: dict[str, list[Remark]] = {}
    for remark in dict.fromkeys(remarks):
        for source in remark.sources if remark.target == target else ():
            found.setdefault(source, []).append(remark)
    return found


def abridged(name: str) -> str:
    """Return a source name that fits into a sentence: exporters put whole lists of names into one."""
    return name if len(name) <= _LONG else f"{name[: _LONG // 2]}…{name[-_LONG // 2 :]}"


def form(reason: str) -> str:
    """Return a reason without its numbers: what refusals of the same kind have in common."""
    return _NUMBERS.sub("#", reason)


def numbers(reason: str) -> list[int]:
    """Return the numbers in a reason, in order."""
    return [int(found) for found in _NUMBERS.findall(reason)]
