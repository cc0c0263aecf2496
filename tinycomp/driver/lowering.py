"""Lowering: turn a partitioned graph into a plan, in which a target's code generator has compiled each region."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinycomp.driver.devices import DeviceOptions
from tinycomp.errors import TargetError, UnsupportedError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import Dim, TensorType, Type, bits
from tinycomp.lazy import LazyModule
from tinycomp.memory.budget import check_time, current, reserve_bytes
from tinycomp.memory.constants import Constants, check_files
from tinycomp.ops import OPS, bind, is_opaque
from tinycomp.ops.body_types import retype
from tinycomp.ops.rows import following_rows
from tinycomp.passes.merge_composite import merge_for
from tinycomp.records import dataclass, field
from tinycomp.rewrite.traits import has_trait
from tinycomp.runtime.callable_region import CallableRegion
from tinycomp.runtime.native.executor import Pool, Weights
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.plan import ABSENT, DISCARD, FIRST_FREE, Plan, Run, Step
from tinycomp.runtime.regions import Bucketed, NativeRegion, PerShape, settled
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import assuming
from tinycomp.target import Decline, Target, decline
from tinycomp.target.target import composites_for

if TYPE_CHECKING:
    from tinycomp.analysis import data_dependent, independent_rows
    from tinycomp.driver import blobs
    from tinycomp.quantized import Rounding
    from tinycomp.quantized import layers as quantized_layers
    from tinycomp.quantized.integers import Kernel
    from tinycomp.runtime import blob as blob_region
    from tinycomp.runtime.csource import region as c_region
    from tinycomp.runtime.csource import source as c_source
    from tinycomp.runtime.device import interface as device_interface
    from tinycomp.runtime.device import plan as device_plan
    from tinycomp.runtime.device import region as device_region

    Programs = dict[tuple[str, "Shapes"], Program | c_source.CSource | blob_region.Blob]
    """Compiled regions by symbol and operand shapes; the shapes of a region that serves several sizes are symbolic."""
    Layer = tuple[Node, Kernel]
    Layers = Mapping[Node, Layer]
else:
    data_dependent = LazyModule("tinycomp.analysis.data_dependent")
    independent_rows = LazyModule("tinycomp.analysis.independent_rows")
    blobs = LazyModule("tinycomp.driver.blobs")
    blob_region = LazyModule("tinycomp.runtime.blob")
    c_region = LazyModule("tinycomp.runtime.csource.region")
    c_source = LazyModule("tinycomp.runtime.csource.source")
    device_interface = LazyModule("tinycomp.runtime.device.interface")
    device_plan = LazyModule("tinycomp.runtime.device.plan")
    device_region = LazyModule("tinycomp.runtime.device.region")
    quantized_layers = LazyModule("tinycomp.quantized.layers")

Shapes = tuple[tuple[Dim, ...], ...]


@dataclass(frozen=True)
class Lowered:
    """Hold a partitioned graph and what lowering made of it.

    Attributes:
        graph: The graph.
        plan: Its plan.
        programs: Its compiled regions.
        per_shape: Its regions that are built for each set of sizes, by symbol.
    """

    graph: Graph
    plan: Plan
    programs: Programs
    per_shape: Sequence[tuple[str, PerShape]] = ()


@dataclass
class Lowering:
    """Turn graphs into plans.

    Attributes:
        targets: The targets by name, for their code generators.
        pool: Threads that native regions share.
        weights: Packed weights that native regions share.
        constants: Copies of constants that plans share.
        programs: Programs, blobs and C source by region symbol and operand shapes; those that are there already are
            used, and new ones are added.
        reference: Whether regions run on the numpy kernels, too, for comparison.
        by_definition: Whether these compute quantised layers by their definition in float32, not in integers.
        specialize: Whether regions with dynamic dimensions are built anew for each set of sizes, whatever their target.
        devices: The devices that regions run on, and what to do when they fail.
        callables: Callables and device programs, which are not saved, by region symbol and operand shapes.
        natives: What runs the programs, by region symbol and operand shapes.
        answers: By the same, which nodes cannot be compiled, where that took a search.
        per_shape: The regions that are built for each set of sizes, by symbol.
    """

    targets: Mapping[str, Target]
    pool: Pool
    weights: Weights = field(default_factory=Weights)
    constants: Constants = field(default_factory=Constants)
    programs: Programs = field(default_factory=dict)
    reference: bool = False
    by_definition: bool = False
    specialize: bool = False
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    callables: dict[tuple[str, Shapes], Any] = field(default_factory=dict)
    natives: dict[tuple[str, Shapes], NativeRegion] = field(default_factory=dict)
    answers: dict[tuple[str, Shapes], Decline] = field(default_factory=dict)
    per_shape: list[tuple[str, PerShape]] = field(default_factory=list, init=False)
    _values: int = field(default=0, init=False)
    """Peak bytes of the values of the graphs that are being lowered, outer ones included."""
    _contexts: int = field(default=0, init=False)
    """Bytes that the native regions lowered so far keep for their runs."""

    def restarted(self) -> Lowering:
        """Return a lowering for a graph that has changed; it keeps the regions compiled so far."""
        return dataclasses.replace(self)

    def forget(self, region: Node) -> None:
        """Drop the code of a region, because another region may get its symbol."""
        for known in (self.programs, self.callables, self.natives, self.answers):
            for key in [key for key in known if key[0] == region.op]:
                del known[key]

    def plan(self, graph: Graph, rounding: Rounding = "float") -> Plan:
        """Return the plan of a graph; nested bodies become plans of their own.

        Args:
            graph: The graph.
            rounding: How the sums of quantised layers on the host become 8-bit numbers.

        Raises:
            TargetError: If a code generator fails.
            UnsupportedError: If no tier knows an operator.
            MemoryLimitError: If values of known size exceed the memory budget.
        """
        with assuming(graph.bounds):
            return self._plan(graph, rounding)

    def _plan(self, graph: Graph, rounding: Rounding) -> Plan:
        layers: Layers = {}
        if not self.by_definition and any(n.op == "DequantizeLinear" for n in graph.nodes):
            graph, layers = quantized_layers.in_integers(graph, rounding)
        slots = _Slots(graph, self.constants)
        nodes = graph.nodes
        last_use = _last_uses(graph, nodes)
        peak = _check_memory(graph, nodes, last_use, self._values + self._contexts)
        self._values += peak
        steps = []
        for index, node in enumerate(nodes):
            check_time(current(), node.label)
            frees = tuple(slots.of[v] for v in last_use.get(index, ()))
            steps.append(self._step(node, slots, frees, rounding, layers.get(node)))
        self._values -= peak
        plan = Plan(
            input_specs(graph),
            specs(graph.output_names, graph.outputs),
            tuple(steps),
            tuple(slots.initial),
            tuple(slots.of[v] for v in graph.inputs),
            tuple(slots.of[v] for v in graph.outputs),
        )
        return device_plan.plan_of(plan) if self.devices.in_use else plan

    def _step(self, node: Node, slots: _Slots, frees: tuple[int, ...], rounding: Rounding, layer: Layer | None) -> Step:
        reads = tuple(ABSENT if v is None else slots.of[v] for v in node.inputs)
        writes = tuple(slots.of[v] if v.name else DISCARD for v in node.outputs)
        if layer is not None:
            core, compute = layer
            return Step(
                core.label, core.qualified_op, "numpy", lambda operands: (compute(*operands),), reads, writes, frees,
                node.sources, silent=True,
            )  # fmt: skip
        run, tier, bodies = self._computation(node, rounding)
        label = node.op if node.is_region else node.label
        rebuild = functools.partial(_with_bodies, node) if bodies else None
        silent = isinstance(run, NativeRegion) or has_trait(node, "silent")
        known = OPS.of(node.op, node.domain)
        make_objects = None if known is None or known.objects is None else known.objects(node)
        return Step(
            label, node.qualified_op, tier, run, reads, writes, frees, node.sources, bodies, rebuild, silent,
            make_objects,
        )  # fmt: skip

    def _computation(self, node: Node, rounding: Rounding) -> tuple[Run, str, tuple[Plan, ...]]:
        if node.is_region and not self.reference:
            return self.region(node), node.target or "", ()
        if node.is_region:
            rounding = self.rounding_of(node)
        bodies = tuple(self.plan(body, rounding) for body in node.bodies.values())
        if node.is_call:
            return bodies[0].run, "numpy", bodies
        return *_on_the_host(node, bodies), bodies

    def rounding_of(self, region: Node) -> Rounding:
        """Return how the target of a region requantises sums, which is how the reference does."""
        target = self.targets.get(region.target or "")
        return "float" if target is None else target.requantize

    def region(self, node: Node) -> Run:
        """Return the computation of a region.

        If its sizes are dynamic, the computation serves all of them, or builds the region anew for each set of sizes
        if the target needs to know them.

        Raises:
            TargetError: If the code generator fails.
        """
        target = self.targets.get(node.target or "")  # a saved program may do without its target
        if target is not None and not target.generates and not any(symbol == node.op for symbol, _ in self.programs):
            target.build(node)  # raises now rather than in the first run
        needs_sizes = target is not None and target.static_shapes
        if not is_static(node) and (needs_sizes or (self.specialize and _follows_from_sizes(node))):
            run = PerShape(lambda shapes: self._built_at_run(_with_shapes(node, shapes, target), shapes))
            self.per_shape.append((node.op, run))
            buckets = () if target is None else target.buckets
            batch = independent_rows.batch_of(node.body) if buckets else None
            on_devices = target is not None and target.has_devices
            if batch is not None:
                devices = self.devices.set_of(target) if target is not None and on_devices else None
                return Bucketed(run, buckets, [batch in (v.shape or ()) for v in node.body.inputs], devices)
            return self._on_device(run, node) if on_devices else run
        return self._built(node, tuple([(v.shape if v is not None else None) or () for v in node.inputs]))

    def _built_at_run(self, node: Node, shapes: Shapes) -> Run:
        try:
            return self._built(node, shapes, keep=False)
        except Decline as declined:
            if self._target(node).falls_back:
                decline.log(declined.where, declined.reason)
                return self._reference(node)
            raise TargetError(
                f"the code generator declined the sizes of a run: {declined.reason}", where=declined.where,
                found=", ".join(map(str, shapes)), hint="Refuse such a region while the model is compiled: see"
                " Target.region_check.",
            ) from declined  # fmt: skip

    def _built(self, node: Node, shapes: Shapes, keep: bool = True) -> Run:
        """Build a region; ``keep`` is off for one of many sets of sizes, which a bounded cache holds."""
        key = node.op, shapes
        if key in self.answers:
            raise self.answers[key]
        try:
            return self._ready(node, key, keep)
        except Exception as error:
            target = self.targets.get(node.target or "")
            if target is None or not target.falls_back:
                raise
            if not isinstance(error, Decline) and (decline.are_errors() or not decline.is_failure(error)):
                raise
            declined = decline.declined_for(node.body, error, functools.partial(self._attempt, node))
            declined.region, declined.where = node, f"{target.name}, region {node.op}"
            if keep:
                self.answers[key] = declined
            raise declined from error

    def _attempt(self, region: Node, body: Graph) -> Exception | None:
        """Build another region in place of one, and return what that raises."""
        holder = Graph(region.op, infer=body.infer, opsets=body.opsets)
        operands = [holder.add_input(v.name, v.type) for v in body.inputs]
        node = holder.add(
            region.op, operands, domain=region.domain, version=region.version, outputs=list(body.output_names),
            types=[v.type for v in body.outputs], bodies={"body": body}, target=region.target,
        )  # fmt: skip
        lowering = Lowering(self.targets, self.pool, constants=self.constants)
        try:
            lowering._ready(node, (node.op, ()), keep=False)
        except Exception as error:
            return error
        return None

    def _ready(self, node: Node, key: tuple[str, Shapes], keep: bool) -> Run:
        if key in self.natives:
            return self._again(self.natives[key])
        known: Mapping[Any, Any] = self.programs if key in self.programs else self.callables
        made: Any = known[key] if key in known else self._made(node, keep)
        if isinstance(made, Program):
            made = settled(made, self.constants)
        elif not isinstance(made, c_source.CSource):
            return self._called(made, node, key, keep)
        if keep:
            self.programs[key] = made
        run = self._generated(made, node, keep)
        if keep and isinstance(run, NativeRegion):
            self.natives[key] = run
        return run

    def _again(self, region: NativeRegion) -> NativeRegion:
        """Return a region that has been built already, for a run in which other values are alive beside it."""
        region.native.stand_beside(self._values + self._contexts)
        self._contexts += region.native.context_bytes
        return region

    def _called(self, made: Any, node: Node, key: tuple[str, Shapes], keep: bool) -> Run:
        """Return what runs a region whose code is a blob, a device program or a callable."""
        where = f"{node.target}, region {node.op}"
        if isinstance(made, blob_region.Blob):
            if keep:
                self.programs[key] = made
            owned = {name: self.constants.own(array) for name, array in made.arrays.items()}
            call = blobs.load(dataclasses.replace(made, arrays=owned), self._target(node), node)
            if isinstance(call, device_interface.DeviceProgram):
                return self._on_device(call, node, made)
            return blob_region.BlobRegion(made, CallableRegion(call, where, *_interface(node.body)))
        if isinstance(made, device_interface.DeviceProgram) or callable(made):
            if keep:
                self.callables[key] = made
            if isinstance(made, device_interface.DeviceProgram):
                return self._on_device(made, node)
            return CallableRegion(made, where, *_interface(node.body))
        raise TargetError(
            "the code generator returned something that cannot run",
            where=where,
            expected="a Program, a CSource, a Blob, a DeviceProgram or a callable",
            found=type(made).__name__,
        )

    def _on_device(
        self, made: device_interface.DeviceProgram | PerShape, node: Node, blob: blob_region.Blob | None = None
    ) -> device_region.DeviceRegion:
        """Return a region that runs on the devices of its target.

        Raises:
            TargetError: If the target has no devices.
            Decline: If the size of an operand or result does not follow from the operands' shapes.
        """
        target, (inputs, outputs) = self._target(node), _interface(node.body)
        if not target.has_devices:
            raise TargetError(
                "the code generator returned a DeviceProgram, and the target has no devices",
                where=f"{target.name}, region {node.op}", hint=f"Add a function under @{target.name}.device.",
            )  # fmt: skip
        unknown = [
            str(spec)
            for spec in (*inputs, *outputs)
            if not device_region.follows_from(spec, device_region.places_of(inputs))
        ]
        if unknown:
            declined = Decline(
                f"memory of a device is planned before a run, and the sizes of {unknown[0]} are not known by then"
            )
            declined.region, declined.where = node, f"{target.name}, region {node.op}"
            raise declined
        sources = tuple(dict.fromkeys(s for n in (node, *node.operators()) for s in n.sources))
        faults = self.devices.policy_for(node.op, target.name, sources)
        reference = functools.partial(self._reference, node)
        return device_region.DeviceRegion(
            made,
            node.op,
            sources,
            inputs,
            outputs,
            self.devices.set_of(target),
            faults,
            reference,
            device_plan.alone,
            blob,
        )

    def _reference(self, node: Node) -> Run:
        """Return what computes a region on the numpy kernels."""
        return Lowering(self.targets, self.pool, constants=self.constants, reference=True)._computation(node, "float")[
            0
        ]

    def _made(self, node: Node, keep: bool) -> Any:
        """Call the code generator of the target, unless the cache of blobs has its result for this region."""
        reserve_bytes(sum(_value_bytes(v) for v in node.outputs), f"region {node.op}", "its results")
        constants = constants_of(node.body)
        check_files(constants)
        target = self._target(node)
        if not target.programs:  # its code may read constants while it runs
            for value in constants:
                value.const = None if value.const is None else self.constants.own(value.const)
        asked = target if keep else target.for_plan(self.pool.threads)
        made = asked.build(node) if target.version is None else blobs.build(asked, node)
        return made if isinstance(made, Program) else blobs.stamped(made, asked)

    def _generated(self, made: Program | c_source.CSource, node: Node, keep: bool) -> Run:
        if isinstance(made, Program):
            beside = self._values + self._contexts
            what = "the values alive there and its arena"
            reserve_bytes(beside + made.arena_bytes, f"region {node.op}", what)
            region = NativeRegion(made, self.pool, self.weights, beside)
            self._contexts += region.native.context_bytes if keep else 0
            return region
        body = node.body
        counted = following_rows(body)
        if counted:
            raise _depends_on_data(node, next(iter(counted)), "C source writes arrays of known sizes, and ")
        if not is_static(node):
            raise TargetError(
                "C source writes arrays of known sizes",
                where=f"{node.target}, region {node.op}",
                expected="a region whose dimensions are all numbers",
                found=", ".join(str(v.type) for v in (*body.inputs, *body.outputs) if v.static_shape is None),
                hint="Describe the target with static_shapes=True: its regions are then built for each set of sizes.",
            )
        return c_region.CRegion(made, *_interface(body), c_region.Origin(node.target or "", node.op, str(body)))

    def _target(self, node: Node) -> Target:
        target = self.targets.get(node.target or "")
        if target is None:
            raise TargetError(
                f'the region {node.op} needs the target "{node.target}"',
                expected=f"one of {', '.join(self.targets) or 'none'}",
                hint="Pass the target object when compiling or loading.",
            )
        return target


class _Slots:
    """Assign a slot to every value of a graph; those of constants hold them from the start."""

    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.initial: list[Any] = [None] * FIRST_FREE
        self.of: dict[Value, int] = {}
        for value in graph.inputs:
            self._add(value, None)
        for value in graph.constants:
            self._add(value, None if value.const is None else constants.own(value.const))
        for node in graph.nodes:
            for value in node.used_outputs():
                self._add(value, None)

    def _add(self, value: Value, start: Any) -> None:
        self.of[value] = len(self.initial)
        self.initial.append(start)


def _last_uses(graph: Graph, nodes: Sequence[Node]) -> dict[int, list[Value]]:
    """Return, by index of a step, the values that it is the last to use."""
    place = {node: index for index, node in enumerate(nodes)}
    dying: dict[int, list[Value]] = {}
    for value in graph.values.values():
        if not value.is_const and not graph.is_output(value):
            touching = value.users if value.producer is None else (value.producer, *value.users)
            if touching:
                dying.setdefault(max(place[node] for node in touching), []).append(value)
    return dying


def constants_of(graph: Graph) -> list[Value]:
    """Return the constants of a graph and of all bodies below it."""
    graphs = [graph]
    for each in graphs:  # which grows meanwhile
        graphs.extend([body for node in each.nodes if node.bodies for body in node.bodies.values()])
    return [value for each in graphs for value in each.constants]


def _value_bytes(value: Value) -> int:
    """Return the bytes of a value in memory, where elements below one byte take a whole one; 0 if they are unknown."""
    shape = value.static_shape
    if shape is None:
        return 0
    return math.prod(shape) * (8 if value.dtype in ("?", "string") else max(bits(value.dtype) // 8, 1))


def _check_memory(graph: Graph, nodes: Sequence[Node], dying: Mapping[int, Sequence[Value]], beside: int) -> int:
    """Return the most bytes that values of known size need at one step; refuse what the budget in force does not allow.

    Args:
        graph: The graph; its constants exist already and do not count.
        nodes: Its nodes in the order of execution.
        dying: By index of a node, the values that it is the last to use.
        beside: Bytes that a run needs for other purposes at the same time.

    Raises:
        MemoryLimitError: If a step needs more; the message names the step with the peak.
    """
    alive = sum(map(_value_bytes, graph.inputs))
    peak, culprit = 0, None
    for index, node in enumerate(nodes):
        alive += sum(map(_value_bytes, node.used_outputs()))
        if alive > peak:
            peak, culprit = alive, node
        alive -= sum(map(_value_bytes, dying.get(index, ())))
    if culprit is not None:
        results = ", ".join(f"{v.name}: {v.type}" for v in culprit.used_outputs()[:4])
        where = f"node {culprit.label} ({culprit.qualified_op})"
        reserve_bytes(peak + beside, where, f"the values alive there, with {results}")
    return peak


def _on_the_host(node: Node, plans: Sequence[Plan]) -> tuple[Run, str]:
    """Return the computation of a host node, whose bodies have become ``plans``, and its tier."""
    kernel, tier = bind(node, {key: _as_function(plan) for key, plan in zip(node.bodies, plans, strict=True)})
    return (lambda operands: kernel(*operands)), tier


def _with_bodies(node: Node, plans: Sequence[Plan]) -> Run:
    return plans[0].run if node.is_call else _on_the_host(node, plans)[0]


def _as_function(plan: Plan) -> Callable[..., tuple[Any, ...]]:
    return lambda *operands: tuple(plan.run(operands))


def static_shapes(values: Sequence[Value | None]) -> Shapes | None:
    """Return the shapes of ``values`` if every one is a tensor of known shape, else None."""
    shapes = []
    for value in values:
        shape = None if value is None else value.static_shape
        if shape is None:
            return None
        shapes.append(shape)
    return tuple(shapes)


def _with_shapes(node: Node, shapes: Shapes, target: Target | None = None) -> Node:
    """Return a copy of a region node, alone in a graph of its own, for concrete operand shapes.

    The composites of the target are tried again, because their checks now know the sizes.
    """
    holder = Graph(node.op, infer=node.body.infer, opsets=node.body.opsets)
    body = node.body.clone()
    types: list[Type] = []
    for value, shape in zip(node.inputs, shapes, strict=True):
        assert value is not None
        types.append(TensorType(value.dtype, shape))
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
    counted = following_rows(body)
    unknown = [v for v in _inside(body) if v not in counted and v.static_shape is None]
    if unknown and not any(is_opaque(inner) for _, inner in body.walk()):
        raise _depends_on_data(node, unknown[0])
    if target is not None:
        _merge_again(body, target)
    return copy


def _merge_again(body: Graph, target: Target) -> None:
    """Try the composites of a target on the single nodes that it has claimed."""
    if not composites_for(target, body):
        return
    for node in body.nodes:
        if not node.is_composite:
            node.target = None
    merge_for(target, body, {}, [])
    for node in body.nodes:
        node.target = target.name


def _depends_on_data(node: Node, value: Value, why: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"{why}a shape inside the region depends on data",
        where=f"{node.target}, region {node.op}",
        found=f'"{value.name}": {value.type}',
        hint="Let the target refuse the node that computes it.",
    )


def _follows_from_sizes(node: Node) -> bool:
    """Tell whether all sizes in a region follow from those of its operands, apart from row counts known at run time."""
    return not data_dependent.data_dependent(node.body, node.body.nodes, following_rows(node.body))


def is_static(node: Node) -> bool:
    """Tell whether all shapes of a region and in it are known, apart from row counts known at run time."""
    counted = following_rows(node.body)
    inside = [value for value in _inside(node.body) if value not in counted]
    return static_shapes([*node.inputs, *node.body.inputs, *inside]) is not None


def _inside(body: Graph) -> list[Value]:
    return [value for node in body.nodes for value in node.used_outputs()]


def _interface(body: Graph) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the specs of a region's inputs and outputs."""
    return specs([v.name for v in body.inputs], body.inputs), specs(body.output_names, body.outputs)


def input_specs(graph: Graph) -> tuple[TensorSpec, ...]:
    """Return the specs of a graph's inputs, with the reasons for sizes that its nodes have decided."""
    plain = specs([v.name for v in graph.inputs], graph.inputs)
    settled = graph.settled
    return tuple([dataclasses.replace(spec, reason=settled.get(spec.name, "")) for spec in plain])


def specs(names: Sequence[str], values: Sequence[Value]) -> tuple[TensorSpec, ...]:
    """Return the specs of graph inputs or outputs, as the runtime describes them."""
    result = []
    for name, value in zip(names, values, strict=True):
        if isinstance(value.type, TensorType):
            result.append(TensorSpec(name, value.type.dtype, value.type.shape))
        else:
            result.append(TensorSpec(name, str(value.type), None))
    return tuple(result)
