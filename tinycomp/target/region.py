"""Regions as the checks of their targets see them, and the answer that asks for a split."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.lazy import cached_property
from tinycomp.records import dataclass
from tinycomp.target.policy import macs, operators, sample_bytes


@dataclass(frozen=True, eq=False)
class Region:
    """A read-only view of a region before it is outlined, valid during a check.

    Bytes and multiply-accumulates count a dimension of unknown size as its upper bound, or as 1 if it has none.

    Attributes:
        target: The target that claims it.
        nodes: Its nodes, producers first; composites are nodes with a body.
        inputs: The values that enter, constants excluded.
        outputs: The values that leave.
        constants: The constants that its nodes read, those inside composites included.
    """

    target: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[Value, ...]

    @classmethod
    def of(cls, graph: Graph, nodes: Sequence[Node]) -> Region:
        """Return the region that ``nodes`` of ``graph``, all claimed by one target, would be."""
        inside = set(nodes)
        read = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v.producer not in inside)
        bodies = [body for n in nodes for body in n.bodies.values()]
        for body in bodies:
            bodies += [below for n in body.nodes for below in n.bodies.values()]
        return cls(
            nodes[0].target or "",
            tuple(nodes),
            tuple(v for v in read if not v.is_const),
            tuple(v for n in nodes for v in n.outputs if graph.is_output(v) or not inside.issuperset(v.users)),
            (*(v for v in read if v.is_const), *(v for body in bodies for v in body.constants)),
        )

    @property
    def label(self) -> str:
        """Return its name in messages, which is that of its first node."""
        return f"the region of {self.nodes[0].label}"

    @property
    def operators(self) -> list[str]:
        """List the operators in it, also those inside composites, but not those that compute nothing."""
        return [op for node in self.nodes for op in operators(node)]

    @property
    def macs(self) -> int:
        """Count its multiply-accumulates."""
        return macs(self.nodes)

    @property
    def constant_bytes(self) -> int:
        """Sum up the bytes of its constants."""
        return sum(map(sample_bytes, self.constants))

    @cached_property
    def peak_bytes(self) -> int:
        """Estimate the most bytes of values that are alive at the same time, inputs and outputs included.

        Nodes run in their order, a value lives from its producer to its last use, and a composite is one step.
        """
        place = {node: index for index, node in enumerate(self.nodes)}
        leaving, dying = set(self.outputs), dict[int, int]()
        alive = peak = 0
        for value in self.inputs:
            alive += sample_bytes(value)
            _die(value, max(place[user] for user in value.users if user in place), dying)
        for index, node in enumerate(self.nodes):
            for value in node.used_outputs():
                alive += sample_bytes(value)
                if value not in leaving:
                    _die(value, max((place[user] for user in value.users), default=index), dying)
            peak = max(peak, alive)
            alive -= dying.get(index, 0)
        return peak


def _die(value: Value, index: int, dying: dict[int, int]) -> None:
    dying[index] = dying.get(index, 0) + sample_bytes(value)


@dataclass(frozen=True, eq=False)
class Split:
    """Ask for a region to be split, see :func:`split`; false in conditions.

    Attributes:
        values: Values between nodes of the region.
        reason: The reason.
    """

    values: tuple[Value, ...]
    reason: str

    def __bool__(self) -> bool:
        return False


def split(*values: Value, reason: str) -> Split:
    """Ask in a region check for a border at ``values``: no region will hold both the producer and a reader of one.

    The parts are checked like any other region.
    """
    return Split(values, reason)
