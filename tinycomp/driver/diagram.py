"""Describe a partitioned graph and its plan for pictures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.ir.blocked import conversion_of
from tinycomp.ir.graph import Attr, Graph, Node, Value
from tinycomp.runtime.diagram import (
    ArenaBlock,
    ArenaPlan,
    Diagram,
    DiagramNode,
    DiagramValue,
    KernelCall,
)
from tinycomp.runtime.native.program import Instruction, Program
from tinycomp.runtime.plan import Plan, Position
from tinycomp.runtime.regions import NativeRegion
from tinycomp.symbolic import Size, assuming, sample, substitute
from tinycomp.target.policy import macs, sample_bytes

_LONGEST = 80
"""Characters of an attribute's text that are kept."""


def make_diagram(graph: Graph, plan: Plan, sizes: Mapping[str, int] = MappingProxyType({})) -> Diagram:
    """Return the data of a picture of a partitioned graph.

    Args:
        graph: The graph.
        plan: What it became.
        sizes: Sizes by symbol, as for the report.
    """
    drawing = _Drawing(sizes)
    with assuming(graph.bounds):
        inputs = drawing.numbers(graph.inputs)
        drawing.add_graph(graph)
        outputs = drawing.numbers(graph.outputs)
        values = tuple([drawing.described(value) for value in drawing.values])
        return Diagram(values, tuple(drawing.nodes), inputs, outputs, tuple(_arenas(plan, sizes)))


class _Drawing:
    """Numbers values and nodes as it comes across them."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.values: dict[Value, int] = {}
        self.nodes: list[DiagramNode] = []
        self._sizes = sizes

    def numbers(self, values: Iterable[Value | None]) -> tuple[int, ...]:
        """Return the numbers of values; -1 for what is absent or skipped."""
        known = self.values
        return tuple([-1 if v is None or not v.name else known.setdefault(v, len(known)) for v in values])

    def described(self, value: Value) -> DiagramValue:
        return DiagramValue(value.name, str(value.type), sample_bytes(value, self._sizes), value.is_const)

    def add_graph(self, graph: Graph) -> None:
        """Add all nodes of a graph and of the bodies in it, each before those that it holds."""
        waiting: list[tuple[Node, int | None, str, Position | None]] = []
        waiting += _placed(graph, None, "", ())
        while waiting:
            node, parent, target, position = waiting.pop()
            number = len(self.nodes)
            target = node.target or target
            self._add(node, parent, target, position)
            is_step = position is not None and not (node.is_region or node.is_composite)
            inner = []
            bodies = () if conversion_of(node) is not None else node.bodies.items()
            for index, (name, body) in enumerate(bodies):
                path = (*position, index) if position is not None and is_step else None
                holder = number if node.is_call else self._add_body(node, name, body, number, target)
                inner.append(_placed(body, holder, target, path))
            waiting.extend(itertools.chain.from_iterable(reversed(inner)))

    def _add(self, node: Node, parent: int | None, target: str, position: Position | None) -> None:
        body = node.body if node.is_call and conversion_of(node) is None else None
        self.nodes.append(
            DiagramNode(
                kind=_kind(node),
                op=_shown_op(node),
                label=node.label,
                target=target,
                sources=node.sources,
                parent=parent,
                reads=self.numbers(node.inputs),
                writes=self.numbers(node.outputs),
                takes=self.numbers(body.inputs) if body is not None else (),
                gives=self.numbers(body.outputs) if body is not None else (),
                attributes={} if node.is_composite else {name: _text(value) for name, value in node.attrs.items()},
                macs=macs([node], self._sizes) if node.is_call or not node.bodies else 0,
                position=position,
            )
        )

    def _add_body(self, node: Node, name: str, body: Graph, parent: int, target: str) -> int:
        """Add a body of control flow, which is fed from the last operands of its node; return its number."""
        fed = node.inputs[max(0, len(node.inputs) - len(body.inputs)) :]
        self.nodes.append(
            DiagramNode(
                "body",
                name,
                name,
                target,
                (),
                parent,
                self.numbers(fed),
                (),
                self.numbers(body.inputs),
                self.numbers(body.outputs),
            )
        )
        return len(self.nodes) - 1


def _placed(
    graph: Graph, parent: int | None, target: str, path: Position | None
) -> list[tuple[Node, int | None, str, Position | None]]:
    """Return the nodes of a graph with where they stand, the last one first."""
    nodes = enumerate(graph.nodes)
    return [(node, parent, target, None if path is None else (*path, i)) for i, node in nodes][::-1]


def _kind(node: Node) -> str:
    if node.is_region:
        return "region"
    if node.is_composite:
        return "composite"
    if conversion_of(node) is not None:
        return "conversion"
    if node.is_call:
        return "function"
    return "control" if node.bodies else "operator"


def _shown_op(node: Node) -> str:
    conversion = conversion_of(node)
    if conversion is not None:
        return " ".join(conversion)
    return node.op if node.is_region or node.is_composite else node.qualified_op


def _text(value: Attr) -> str:
    """Return an attribute as text for people, cut off where it is long."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = ", ".join(map(str, value[:_LONGEST])) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _arenas(plan: Plan, sizes: Mapping[str, int]) -> Iterator[ArenaPlan]:
    """Yield the arenas of the native regions of a plan and of the bodies in it."""
    waiting = [plan]
    while waiting:
        following: list[Plan] = []
        for step in waiting.pop().steps:
            following += step.bodies
            if isinstance(step.run, NativeRegion):
                yield _arena(step.label, step.run.program, sizes)
        waiting += following[::-1]


def _arena(region: str, program: Program, sizes: Mapping[str, int]) -> ArenaPlan:
    calls = tuple([KernelCall(region, c.kernel, c.algorithm, c.source) for c in _walked(program)])
    blocks = _symbolic_blocks(program, sizes) if program.arena else _static_blocks(program)
    size = max((block.offset + block.size for block in blocks), default=program.arena_bytes)
    return ArenaPlan(region, max(size, program.arena_bytes), calls, tuple(blocks))


def _walked(program: Program) -> Sequence[Instruction]:
    """Return the instructions of a program, then those of the bodies in it."""
    return [call for each in program.walk() for call in each.instructions]


def _static_blocks(program: Program) -> list[ArenaBlock]:
    return [ArenaBlock(each.offset, each.nbytes, each.first, each.last) for each in program.blocks]


def _symbolic_blocks(program: Program, sizes: Mapping[str, int]) -> list[ArenaBlock]:
    """Return the buffers of an arena whose sizes a run decides, for the sizes of the report."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, call in enumerate(program.instructions):
        for operand in call.operands:
            if operand.space == "arena":
                first.setdefault(operand.index, index)
                is_kept = first[operand.index] < program.setup <= index
                last[operand.index] = max(last.get(operand.index, 0), len(program.instructions) if is_kept else index)
    last |= {left.place.index: len(program.instructions) for left in program.left}
    ends: dict[int, int] = {}
    blocks = []
    for number in _bottom_up([piece.above for piece in program.arena]):
        piece = program.arena[number]
        offset = max((ends[other] for other in piece.above), default=0)
        size = _bytes(piece.nbytes, sizes)
        ends[number] = offset + size
        if number in first:
            blocks.append(ArenaBlock(offset, size, first[number], last[number]))
    return blocks


def _bottom_up(above: Sequence[Sequence[int]]) -> list[int]:
    """Return the buffers of an arena in an order in which each comes after those in its ``above``."""
    missing = [len(others) for others in above]
    lying_above: list[list[int]] = [[] for _ in above]
    for number, others in enumerate(above):
        for other in others:
            lying_above[other].append(number)
    order = [number for number, count in enumerate(missing) if not count]
    for number in order:
        for other in lying_above[number]:
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    return order


def _bytes(size: Size, sizes: Mapping[str, int]) -> int:
    return sample(substitute(size, sizes))
