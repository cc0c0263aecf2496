"""A partitioned graph as plain data, as far as pictures need to know it: boxes in boxes, and what flows between them.

Everything is numbered: values, and nodes with those that hold others before what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from tinycomp.records import dataclass, field
from tinycomp.runtime.plan import Position


@dataclass(frozen=True, slots=True)
class DiagramValue:
    """A value.

    Attributes:
        name: Its name in its graph.
        type: Its type as the textual form prints it.
        bytes: How many it takes; symbolic sizes count as the report counts them.
        constant: Whether it is known at compile time.
    """

    name: str
    type: str
    bytes: int
    constant: bool = False


@dataclass(frozen=True, slots=True)
class DiagramNode:
    """A node, or a body of control flow.

    Attributes:
        kind: ``"region"``, ``"composite"``, ``"function"``, ``"conversion"`` between layouts, ``"control"`` flow,
            ``"body"`` of it, or ``"operator"``.
        op: Operator, name of the composite, symbol of the region, or name of the body.
        label: The name to show.
        target: The target that runs it; empty on the host.
        sources: Source names of the nodes behind it.
        parent: Number of the node that holds it; None at the top.
        reads: Numbers of its operands, in the graph that it stands in; -1 for an absent one.
        writes: Numbers of its results, likewise; -1 for one that is skipped.
        takes: Of a node that holds others, the values with which they begin, one for each operand.
        gives: Of such a node, the values that leave it, one for each result.
        attributes: Attributes as text.
        macs: Multiply-accumulate operations of one run.
        position: Where it stands among the steps, if it is one.
    """

    kind: str
    op: str
    label: str
    target: str
    sources: tuple[str, ...]
    parent: int | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    takes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    macs: int = 0
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call that a native region makes.

    Attributes:
        region: Symbol of the region.
        kernel: The kernel.
        algorithm: Which one, where there are several.
        sources: Source names of the nodes that it computes.
    """

    region: str
    kernel: str
    algorithm: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArenaBlock:
    """A buffer in an arena.

    Attributes:
        offset: Its first byte.
        size: Its bytes.
        first: Index of the kernel call that writes it first.
        last: Index of the last kernel call that touches it; the number of calls for what is read when a run has ended.
    """

    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """The arena of a native region.

    Attributes:
        region: Symbol of the region.
        size: Its bytes.
        calls: The kernel calls of a run, in order.
        blocks: The buffers in it.
    """

    region: str
    size: int
    calls: tuple[KernelCall, ...]
    blocks: tuple[ArenaBlock, ...]


@dataclass(frozen=True, slots=True)
class Diagram:
    """A partitioned graph.

    Attributes:
        values: By number.
        nodes: By number; what a node holds has larger numbers than itself, and stands in topological order.
        inputs: Numbers of the graph's inputs.
        outputs: Numbers of its outputs.
        arenas: Those of native regions, in order of execution.
    """

    values: tuple[DiagramValue, ...]
    nodes: tuple[DiagramNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    arenas: tuple[ArenaPlan, ...] = ()
