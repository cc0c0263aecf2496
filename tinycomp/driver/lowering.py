"""Lowering: a partitioned graph becomes a plan, a region what its target's code generator makes of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinycomp.driver.constant_placement import check_files, own_constants
from tinycomp.driver.memory_estimate import check_footprint, value_bytes
from tinycomp.errors import TargetError, UnsupportedError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, Type, compatible, tensor, type_of
from tinycomp.memory.budget import reserve_bytes
from tinycomp.memory.constants import Constants
from tinycomp.ops import bind, is_opaque
from tinycomp.ops.rows import row_sources
from tinycomp.ops.typing import retype
from tinycomp.runtime.csource.region import CRegion, Origin
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.native.executor import Pool, Weights
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.plan import ABSENT, DISCARD, FIRST_FREE, Plan, Run, Step
from tinycomp.runtime.regions import NativeRegion, PerShape
from tinycomp.runtime.spec import TensorSpec
from tinycomp.target import Settings, Target

Shapes = tuple[tuple[int, ...], ...]


@dataclass
class Lowering:
    """Turns graphs into plans.

    Attributes:
        targets: Whose code generators to use, by name.
        pool: Threads that native regions share.
        weights: Packed weights that native regions share.
        settings: How regions are to be computed.
        constants: Copies of constants that plans share.
        programs: Programs and C source made earlier, by region symbol and operand shapes; they are used instead of
            being made anew, and new ones are added.
        reference: Whether regions, too, run on the numpy kernels, for comparison.
    """

    targets: Mapping[str, Target]
    pool: Pool
    weights: Weights = field(default_factory=Weights)
    settings: Settings = field(default_factory=Settings)
    constants: Constants = field(default_factory=Constants)
    programs: dict[tuple[str, Shapes], Program | CSource] = field(default_factory=dict)
    reference: bool = False
    _values: int = field(default=0, init=False)
    """Bytes of the values alive together in the graphs that are being lowered."""
    _contexts: int = field(default=0, init=False)
    """Bytes that the regions lowered so far keep for their runs."""

    def plan(self, graph: Graph) -> Plan:
        """Return the plan of a graph; nested bodies become plans of their own.

        Raises:
            TargetError: If a code generator fails.
            UnsupportedError: If no tier knows an operator.
            MemoryLimitError: If values of known size exceed the budget in force.
        """
        slots = _Slots(graph, self.constants)
        nodes = graph.nodes
        last_use = _last_uses(graph, nodes)
        peak = check_footprint(graph, nodes, last_use, self._values + self._contexts)
        self._values += peak
        steps = []
        for index, node in enumerate(nodes):
            frees = tuple(slots.of[v] for v in last_use.get(index, ()))
            steps.append(self._step(node, slots, frees))
        self._values -= peak
        return Plan(
            specs([v.name for v in graph.inputs], graph.inputs),
            specs(graph.output_names, graph.outputs),
            tuple(steps),
            tuple(slots.initial),
            tuple(slots.of[v] for v in graph.inputs),
            tuple(slots.of[v] for v in graph.outputs),
        )

    def _step(self, node: Node, slots: _Slots, frees: tuple[int, ...]) -> Step:
        reads = tuple(ABSENT if v is None else slots.of[v] for v in node.inputs)
        writes = tuple(slots.of[v] if v.name else DISCARD for v in node.outputs)
        run, tier, bodies = self._computation(node)
        label = node.op if node.is_region else node.label
        rebuild = functools.partial(_with_bodies, node) if bodies else None
        return Step(label, node.qualified_op, tier, run, reads, writes, frees, node.sources, bodies, rebuild)

    def _computation(self, node: Node) -> tuple[Run, str, tuple[Plan, ...]]:
        if node.is_region and not self.reference:
            assert node.target is not None, node
            return self.region(node), node.target, ()
        if node.is_call:
            plan = self.plan(node.body)
            return plan.run, "numpy", ()
        bodies = tuple(self.plan(body) for body in node.bodies.values())
        return *_on_the_host(node, bodies), bodies

    def region(self, node: Node) -> Run:
        """Return the computation of a region; where its shapes are not known yet, one that is specialised per shape.

        Raises:
            TargetError: If the code generator fails.
        """
        target = self.targets.get(node.target or "")  # a saved program may do without its target
        if target is not None and not target.generates:  # known already, even where the first run's sizes are not
            target.build(node, self.settings.renewed())
        shapes = static_shapes(node.inputs)
        if shapes is not None and is_static(node):
            return self._built(node, shapes)
        return PerShape(lambda found: self._built(_with_shapes(node, found), found, keep=False))

    def _built(self, node: Node, shapes: Shapes, keep: bool = True) -> Run:
        """Build a region; its program is kept unless it is one of many that a bounded cache holds."""
        key = (node.op, shapes)
        made: Any = self.programs[key] if key in self.programs else self._made(node, keep)
        if isinstance(made, Program):
            made = self.constants.settle(made)
        if isinstance(made, (Program, CSource)):
            if keep:
                self.programs[key] = made
            return self._generated(made, node, keep)
        if callable(made):
            return lambda operands: _checked(made(*operands), node)
        raise TargetError(
            "the code generator returned something that cannot run",
            where=f"{node.target}, region {node.op}",
            expected="a Program, a CSource or a callable",
            found=type(made).__name__,
        )

    def _made(self, node: Node, keep: bool) -> Any:
        """Return what the target's code generator makes of a region."""
        reserve_bytes(sum(value_bytes(v) for v in node.outputs), f"region {node.op}", "its results")
        check_files(node.body)
        target = self._target(node)
        if not target.programs:
            own_constants(node.body, self.constants)
        return target.build(node, self.settings if keep else self.settings.renewed())

    def _generated(self, made: Program | CSource, node: Node, keep: bool) -> Run:
        if isinstance(made, Program):
            beside = self._values + self._contexts
            what = "the values alive there, its arena and results of unknown size"
            reserve_bytes(beside + made.arena_bytes + made.room, f"region {node.op}", what)
            region = NativeRegion(made, self.pool, self.weights, beside)
            self._contexts += region.native.context_bytes if keep else 0
            return region
        body = node.body
        counted = row_sources(body)
        if counted:
            raise _depends_on_data(node, next(iter(counted)), "C source writes arrays of known sizes, and ")
        inputs, outputs = specs([v.name for v in body.inputs], body.inputs), specs(body.output_names, body.outputs)
        return CRegion(made, inputs, outputs, Origin(node.target or "", node.op, str(body)))

    def _target(self, node: Node) -> Target:
        assert node.target is not None
        if node.target not in self.targets:
            raise TargetError(
                f'the region {node.op} needs the target "{node.target}"',
                expected=f"one of {', '.join(self.targets) or 'none'}",
                hint="Pass the target object when compiling or loading.",
            )
        return self.targets[node.target]


class _Slots:
    """Numbers the values of a graph; constants start out in their slots."""

    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.initial: list[Any] = [None] * FIRST_FREE
        self.of: dict[Value, int] = {}
        for value in graph.inputs:
            self._add(value, None)
        for value in graph.constants:
            assert value.const is not None
            self._add(value, constants.own(value.const))
        for node in graph.nodes:
            for value in node.used_outputs():
                self._add(value, None)

    def _add(self, value: Value, start: Any) -> None:
        self.of[value] = len(self.initial)
        self.initial.append(start)


def _last_uses(graph: Graph, nodes: Sequence[Node]) -> dict[int, list[Value]]:
    """The values that nobody needs after each step, by the step's index."""
    place = {node: index for index, node in enumerate(nodes)}
    dying: dict[int, list[Value]] = {}
    for value in graph.values.values():
        if value.is_const or graph.is_output(value):
            continue
        readers = [place[n] for n in value.users]
        if readers or value.producer is not None:
            end = max(readers) if readers else place[value.producer]  # type: ignore[index]
            dying.setdefault(end, []).append(value)
    return dying


def _on_the_host(node: Node, plans: Sequence[Plan]) -> tuple[Run, str]:
    """Return the computation of a host node whose bodies are ``plans``, and its tier."""
    kernel, tier = bind(node, {key: _as_function(plan) for key, plan in zip(node.bodies, plans, strict=True)})
    return (lambda operands: kernel(*operands)), tier


def _with_bodies(node: Node, plans: Sequence[Plan]) -> Run:
    return _on_the_host(node, plans)[0]


def _as_function(plan: Plan) -> Callable[..., tuple[Any, ...]]:
    return lambda *operands: tuple(plan.run(operands))


def _checked(result: Any, node: Node) -> Sequence[Any]:
    """Accept one array for one result, else a sequence of the right length; arrays must have the types declared."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(node.outputs):
        raise TargetError(
            "the region's code returned a wrong number of results",
            where=f"{node.target}, region {node.op}",
            expected=str(len(node.outputs)),
            found=str(len(results)),
        )
    for value, found in zip(node.outputs, results, strict=True):
        if isinstance(found, np.ndarray) and not _fits(found, value.type):
            raise TargetError(
                f'the region\'s code returned a wrong array for "{value.name}"',
                where=f"{node.target}, region {node.op}",
                expected=str(value.type),
                found=f"{found.dtype}{list(found.shape)}",
            )
    return results


def _fits(array: np.ndarray, type_: Type) -> bool:
    """Whether an array has the dtype and sizes that are known of a type."""
    return array.dtype.kind == "O" or compatible(type_, type_of(array))


def static_shapes(values: Sequence[Value | None]) -> Shapes | None:
    """Return the shapes of ``values`` if every one is a tensor of known shape, else None."""
    shapes = []
    for value in values:
        shape = None if value is None else tensor(value.type).static_shape
        if shape is None:
            return None
        shapes.append(shape)
    return tuple(shapes)


def _with_shapes(node: Node, shapes: Shapes) -> Node:
    """Return a copy of a region node, alone in a graph of its own, for concrete operand shapes."""
    holder = Graph(node.op, infer=node.body.infer, opsets=node.body.opsets)
    body = node.body.clone()
    types: list[Type] = []
    for value, shape in zip(node.inputs, shapes, strict=True):
        assert value is not None
        types.append(TensorType(tensor(value.type).dtype, shape))
    retype(body, types)
    operands = [holder.add_input(v.name, t) for v, t in zip(body.inputs, types, strict=True)]
    copy = holder.add(
        node.op,
        operands,
        domain=node.domain,
        version=node.version,
        outputs=[v.name for v in node.outputs],
        types=[v.type for v in body.outputs],
        bodies={"body": body},
        target=node.target,
        sources=node.sources,
    )
    counted = row_sources(body)
    unknown = [v for v in _inside(body) if v not in counted and tensor(v.type).static_shape is None]
    if unknown and not any(is_opaque(inner) for _, inner in body.walk()):
        raise _depends_on_data(node, unknown[0])
    return copy


def _depends_on_data(node: Node, value: Value, why: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"{why}a shape inside the region depends on data",
        where=f"{node.target}, region {node.op}",
        found=f'"{value.name}": {value.type}',
        hint="Let the target refuse the node that makes it.",
    )


def is_static(node: Node) -> bool:
    """Whether all shapes of a region, inside too, are known, but for numbers of rows that a run of it counts."""
    counted = row_sources(node.body)
    inside = [value for value in _inside(node.body) if value not in counted]
    return static_shapes([*node.inputs, *node.body.inputs, *inside]) is not None


def _inside(body: Graph) -> list[Value]:
    return [value for node in body.nodes for value in node.used_outputs()]


def specs(names: Sequence[str], values: Sequence[Value]) -> tuple[TensorSpec, ...]:
    """Return the interface of a graph as the runtime describes it."""
    result = []
    for name, value in zip(names, values, strict=True):
        if isinstance(value.type, TensorType):
            result.append(TensorSpec(name, value.type.dtype, value.type.shape))
        else:
            result.append(TensorSpec(name, str(value.type), None))
    return tuple(result)
