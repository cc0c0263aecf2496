"""From a model to a module. :func:`compile_anew` reads top to bottom: import, optimise, partition, lower, package.

What only some options need (checks, dumps, tuning logs) and what saves a module is imported where it is used: that is a
third of the package, and most programs compile without it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tinycomp.driver.declined import declined_names, replace_declined
from tinycomp.driver.devices import DeviceOptions
from tinycomp.driver.lowering import Lowered, Lowering, constants_of, specs
from tinycomp.driver.pipeline import Observer, Pipeline, optimisation_passes, parse_passes, partitioning_passes
from tinycomp.errors import (
    FallbackError,
    ModelError,
    OptionError,
    PlacementError,
    TargetError,
    TinycompWarning,
    did_you_mean,
)
from tinycomp.frontend import ModelSource, Shapes, bounds_of, checked_shapes, fixed_symbols
from tinycomp.frontend.naming import name_outputs_apart
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.text.literals import AbsentArray
from tinycomp.ir.types import Dim, TensorType, substitute
from tinycomp.memory.budget import check_positive, limited
from tinycomp.memory.constants import Constants, check_files, evict, is_evictable
from tinycomp.memory.interpreter import compiling
from tinycomp.memory.mapped import mappings_of
from tinycomp.ops.typing import retype, use_records
from tinycomp.passes.base import Pass
from tinycomp.passes.fold_constants import sharing_budget
from tinycomp.passes.offer_to_target import GivenBack
from tinycomp.passes.round_weights import Precision, RoundWeights
from tinycomp.passes.widen_half import multiplies_bfloat16
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_duplicable, is_structural
from tinycomp.runtime.module import Module, ModuleParts
from tinycomp.runtime.native.executor import Pool, Weights
from tinycomp.runtime.native.processor import default_threads
from tinycomp.runtime.plan import Plan
from tinycomp.runtime.regions import arenas
from tinycomp.symbolic import assuming
from tinycomp.target import Decline, Placement, Policy, Target, find_all
from tinycomp.target.options import declared, fits, saved_values
from tinycomp.target.placement import HOST, Place, Which

if TYPE_CHECKING:
    from tinycomp.driver.devices import Devices, Faults
    from tinycomp.runtime.advice import AdviceList
    from tinycomp.runtime.diagram import Diagram
    from tinycomp.runtime.report import Adviser, Report

Model = str | os.PathLike[str] | bytes | onnx.ModelProto | Graph
AnyTarget = str | Target
ALL = "*"
"""What stands for every target in a dict of policies."""


def compile_anew(
    model: Model | ModelSource,
    target: AnyTarget | Sequence[AnyTarget] = "c",
    *,
    shapes: Shapes | None = None,
    threads: int | None = None,
    strict: bool = False,
    passes: str | Sequence[Pass] | None = None,
    dump: str | os.PathLike[str] | None = None,
    verify: bool = False,
    memory_limit: int | None = None,
    policy: Policy | Mapping[str, Policy] | None = None,
    place: Mapping[Which, str] | None = None,
    options: Mapping[str, Any] | None = None,
    specialize: bool = False,
    optimize: bool = True,
    precision: Precision | None = None,
    timeout: float | None = None,
    devices: Devices = None,
    faults: Faults = None,
) -> Module:
    """Compile a model, whatever a cache may hold of it.

    Arguments, result and errors are those of :func:`tinycomp.driver.compile.compile`; the model may also be what that
    has read of one.
    """
    check_positive("memory_limit", memory_limit, "bytes")
    pool = Pool(threads if threads is not None else default_threads())
    _check_precision(precision, passes)
    if place and passes is not None:
        raise OptionError("nodes are placed by the default passes only", where="place", found="passes", hint=_NO_PASSES)
    # What is asked for: targets with options, policies and placements; the Compiler holds all of it.
    with compiling():  # the first use of a target imports it
        targets, common = steered(resolve_targets(target, options), policy, place)
        compiler = Compiler(
            targets, pool, passes, None if dump is None else Path(dump), verify, memory_limit, threads, common,
            specialize, optimize, precision or "f32", devices=DeviceOptions.read(devices, faults, targets),
        )  # fmt: skip
    with limited(memory_limit, timeout), compiling():
        source = model if isinstance(model, (Graph, ModelSource)) else ModelSource.of(model, mapped=True)
        graph = _graph_of(source, shapes)
        if precision is None and passes is None:
            compiler = compiler.fitting(graph)
        # Weights stay in the model's file as long as possible; the file must be the same in the end as it was.
        files = mappings_of(v.const for v in constants_of(graph) if v.const is not None)
        original = None if passes is not None else _Original.of(model, source, graph, shapes)
        with sharing_budget(graph):  # passes that fold constants have one budget together
            compiler.partition_in_place(graph)
            compiler.check_places(graph, strict)
            evict(constants_of(graph))  # to mapped files: code generators read each once
            lowered = compiler.lower(graph)
        for mapping in files:
            mapping.check()
        compiler.check_places(graph, strict)  # code generators may have declined regions
        return compiler.package(lowered, original)


_SAMPLES = "Sizes that are no numbers count in MACs and bytes as their upper bound, without one as 1."
_NO_PASSES = "Leave out one of the two."


_KEPT = 16_000_000
"""Most bytes of weights outside of files that a module keeps as the model has them, in case advice is asked for."""


@dataclass(frozen=True)
class _Original:
    """The model before the passes, on which advice is tried; not kept where that takes much memory.

    Attributes:
        kept: What to import once more, or the graph where the caller may change what it came from.
        shapes: Those that the caller has given.
    """

    kept: ModelSource | Graph | None
    shapes: Shapes | None

    @classmethod
    def of(
        cls, model: Model | ModelSource, source: ModelSource | Graph, graph: Graph, shapes: Shapes | None
    ) -> _Original:
        """Return what to keep of a model, of its source, and of its graph."""
        if isinstance(source, ModelSource) and not isinstance(model, onnx.ModelProto):
            return cls(source if source.nbytes <= _KEPT else None, shapes)
        return cls(graph.clone() if _is_light(graph) else None, shapes)

    def again(self, model: Model | None) -> Graph:
        """Return a copy of the model, which has to be given where it was not kept.

        Raises:
            ModelError: If it was neither kept nor given.
        """
        if model is not None:
            return _imported(model, self.shapes, mapped=True)
        if self.kept is None:
            raise ModelError(
                "the module has not kept the model, whose weights are large", where="advice",
                expected="the model once more",
                hint="Write report.advice(model), or compile it from its file.",
            )  # fmt: skip
        if isinstance(self.kept, Graph):
            return copied(self.kept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TinycompWarning)  # they have been given
            graph = _graph_of(self.kept, self.shapes)
        check_files(constants_of(graph))
        return graph


def _is_light(graph: Graph) -> bool:
    arrays = (v.const for v in constants_of(graph) if v.const is not None and is_evictable(v.const))
    return sum(array.nbytes for array in arrays) <= _KEPT


def load_graph(model: Model, shapes: Shapes | None = None) -> Graph:
    """Return a model as a graph of its own, with a symbol for every dimension that nothing names.

    Raises:
        ModelError: If the model is not valid or ``shapes`` does not fit it.
    """
    return _imported(model, shapes, mapped=False)


def _imported(model: Model, shapes: Shapes | None, mapped: bool) -> Graph:
    """Return a model as :func:`load_graph` does; ``mapped`` leaves large weights in its file for the time being."""
    return _graph_of(model if isinstance(model, Graph) else ModelSource.of(model, mapped=mapped), shapes)


def _graph_of(source: ModelSource | Graph, shapes: Shapes | None) -> Graph:
    if isinstance(source, Graph):
        graph = source.clone()
        _refuse_absent(graph)
        _own_arrays(graph)
        use_records(graph)
        name_outputs_apart(graph)
        if shapes:
            _give_shapes(graph, shapes)
    else:
        graph = source.graph(shapes)
    named = [_with_symbols(v.name, v.type) for v in graph.inputs]
    if named != [v.type for v in graph.inputs]:
        retype(graph, named)
    if shapes:
        graph.bounds.update(bounds_of(graph, shapes))
    return graph


def _refuse_absent(graph: Graph) -> None:
    absent = next((v for v in constants_of(graph) if isinstance(v.const, AbsentArray)), None)
    if absent is not None:
        raise ModelError(
            "the elements of a constant are not there", where=f'graph "{graph.name}", "{absent.name}"',
            hint="The graph of a loaded module may know types and hashes alone: take the graph from before saving.",
        )  # fmt: skip


def _own_arrays(graph: Graph) -> None:
    """Copy the arrays that a user may still write to, so that this changes no module."""
    copies: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def own(array: np.ndarray) -> np.ndarray:
        if not array.flags.writeable:
            return array
        if id(array) not in copies:
            copy = array.copy()
            copy.flags.writeable = False
            copies[id(array)] = array, copy
        return copies[id(array)][1]

    for value in constants_of(graph):
        if value.const is not None:
            value.const = own(value.const)
    graph.defaults = {name: own(array) for name, array in graph.defaults.items()}


def _give_shapes(graph: Graph, shapes: Shapes) -> None:
    declared = {v.name: v.type for v in graph.inputs}
    given = checked_shapes(declared, shapes, f'graph "{graph.name}"')
    sizes = fixed_symbols(declared, given)
    retype(graph, [given.get(name) or substitute(type_, sizes) for name, type_ in declared.items()])


def _with_symbols(name: str, type_: Any) -> Any:
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    dims: tuple[Dim, ...] = tuple(f"{name}.{i}" if d is None else d for i, d in enumerate(type_.shape))
    return dataclasses.replace(type_, shape=dims)


def resolve_targets(
    target: AnyTarget | Sequence[AnyTarget], options: Mapping[str, Any] | None = None
) -> tuple[Target, ...]:
    """Return targets in priority order from names and Target objects.

    Both arguments are those of :func:`compile_anew`.

    Raises:
        TargetError: If a name is unknown, two targets share one, one lacks what it needs on this machine, or
            ``"host"`` is one of several.
        OptionError: If options are of no target, or none that it has.
    """
    wanted = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target]
    if HOST in wanted and len(wanted) > 1:
        raise TargetError(
            f'"{HOST}" stands for no target at all', expected="it alone, or targets", found=", ".join(map(str, wanted)),
            hint="Leave it out: what no target takes runs on the host anyway.",
        )  # fmt: skip
    targets = find_all(t for t in wanted if t != HOST)
    for each in targets:
        if not isinstance(each, Target):
            raise TargetError("not a target", expected="a name or a tinycomp.Target", found=repr(each))
    names = [t.name for t in targets]
    if len(set(names)) != len(names):
        raise TargetError("two targets share a name", found=", ".join(names), hint="List every target once.")
    for each in targets:
        each.require()
    return tuple(targets if options is None else _with_options(targets, options))


def _with_options(targets: Sequence[Target], options: Mapping[str, Any]) -> Iterator[Target]:
    """Yield targets with the options given for their names."""
    names = [t.name for t in targets]
    if not isinstance(options, Mapping):
        raise OptionError(
            "not options by target", where="options", expected='a dict such as {"c": {"winograd": False}}',
            found=repr(options),
        )  # fmt: skip
    for name in options:
        if name not in names:
            raise OptionError(
                f'there are options for "{name}", which is no target of this compilation', where="options",
                expected=f"options for {', '.join(names) or 'none: everything runs on the host'}",
                hint=did_you_mean(str(name), names),
            )  # fmt: skip
    for target in targets:
        values = options.get(target.name, {})
        if target.options is not None and isinstance(values, type(target.options)):
            values = vars(values)
        if not isinstance(values, Mapping):
            raise OptionError(
                "these are no options", where=f"target {target.name}", expected="a dict of options by name",
                found=repr(values),
            )  # fmt: skip
        yield target.with_options(**values) if values else target


def in_precision(targets: Sequence[Target], precision: str) -> tuple[Target, ...]:
    """Return targets with their option ``precision`` at this value; those that have none such are left as they are."""
    options = [declared(t.options).get("precision") for t in targets]
    return tuple(
        target if option is None or not fits(precision, option.hint) else target.with_options(precision=precision)
        for target, option in zip(targets, options, strict=True)
    )


def steered(
    targets: Sequence[Target], policy: Policy | Mapping[str, Policy] | None, place: Mapping[Which, str] | None
) -> tuple[tuple[Target, ...], Policy | None]:
    """Return targets with the policies and the placement of one compilation, and the policy for all of them.

    Raises:
        OptionError: If one of these is of no target, or not what it should be.
    """
    names = [t.name for t in targets]
    common, own = (policy.get(ALL), policy) if isinstance(policy, Mapping) else (policy, {})
    for name, each in own.items():
        if name not in (*names, ALL):
            raise OptionError(
                f'there is a policy for "{name}", which is no target of this compilation', where="policy",
                expected=f"policies for {', '.join((*names, ALL))}", hint=did_you_mean(str(name), names),
            )  # fmt: skip
        if not isinstance(each, Policy):
            raise OptionError("not a policy", where=f"policy, {name}", expected="a Policy", found=repr(each))
    if common is not None and not isinstance(common, Policy):
        raise OptionError(
            "not a policy", where="policy", expected="a Policy, or a dict of policies by target", found=repr(common)
        )
    placement = Placement() if place is None else Placement.read(place, names)
    return tuple(t.under(own.get(t.name), placement) for t in targets) if own or place else tuple(targets), common


@dataclass(frozen=True)
class Compiler:
    """Turn graphs into modules: the options of :func:`compile_anew`, resolved.

    Attributes:
        targets: In priority order, ready for plans that run on the threads of the pool.
        pool: Threads of the module.
        passes: Replaces the default pipeline.
        dump: Where to write the graph after every pass.
        verify: Whether to check numbers on the way.
        memory_limit: Bytes that the values of a run may take; None for what the machine has available.
        policy: What every region must fulfil.
        specialize: Whether to build regions for each set of sizes.
        optimize: Whether the default pipeline simplifies the graph first.
        precision: What products compute with.
        threads: The number of threads that was asked for, which saved modules remember; None for the machine's.
        differences: What verification has found that passes change, of the largest result, by pass.
        weights: Packed weights, which the plans for different sizes share.
        constants: Copies of constants, likewise.
        devices: Which devices regions run on, and what is done about their faults.
    """

    targets: tuple[Target, ...]
    pool: Pool
    passes: str | Sequence[Pass] | None = None
    dump: Path | None = None
    verify: bool = False
    memory_limit: int | None = None
    threads: int | None = None
    policy: Policy | None = None
    specialize: bool = False
    optimize: bool = True
    precision: Precision = "f32"
    differences: dict[str, float] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    constants: Constants = field(default_factory=Constants)
    devices: DeviceOptions = field(default_factory=DeviceOptions)

    def __post_init__(self) -> None:
        targets = self.targets if self.precision == "f32" else in_precision(self.targets, self.precision)
        object.__setattr__(self, "targets", tuple(t.for_plan(self.pool.threads) for t in targets))

    def fitting(self, graph: Graph) -> Compiler:
        """Return the compiler whose targets round to bfloat16 what a model computes in it."""
        if not multiplies_bfloat16(graph):
            return self
        return dataclasses.replace(self, targets=in_precision(self.targets, "bf16"))

    def pipeline(self) -> list[Pass]:
        """Return the passes that will run."""
        if self.passes is None:
            first = optimisation_passes(self.targets, self.policy) if self.optimize else []
            rounding = [] if self.precision == "f32" else [RoundWeights(self.precision)]
            return [*first, *rounding, *partitioning_passes(self.targets, self.policy, optimize=self.optimize)]
        return parse_passes(self.passes) if isinstance(self.passes, str) else list(self.passes)

    def partition(self, graph: Graph) -> Graph:
        """Return the optimised graph with its regions outlined; the one given is left alone.

        Raises:
            VerifyError: If :attr:`verify` is on and a pass or a region changes the results.
        """
        partitioned = graph.clone()
        self.partition_in_place(partitioned)
        self.check_places(partitioned)
        return partitioned

    def partition_in_place(self, graph: Graph) -> None:
        """Optimise a graph and outline its regions.

        Raises:
            VerifyError: If :attr:`verify` is on and a pass or a region changes the results.
            OptionError: If no node is meant by something that places nodes.
        """
        for placement in dict.fromkeys(t.placement for t in self.targets):
            placement.check(graph)
        with assuming(graph.bounds):
            Pipeline(self.pipeline(), check=self.verify, observers=self._observers()).run(graph)
        if self.verify:
            from tinycomp.checking import check_regions

            self.lower(graph)
            self.differences.update(check_regions(graph, self.lowering(), self._reproducers()))

    def check_places(self, partitioned: Graph, strict: bool = False) -> None:
        """Make sure that nodes are where they were placed, and with ``strict`` that none is left to the host.

        Raises:
            PlacementError: If a node is elsewhere.
            FallbackError: If ``strict`` and there is a node on the host.
        """
        if any(t.placement.places for t in self.targets):
            _refuse_misplaced(self, partitioned)
        if strict:
            _refuse_fallback(self, partitioned)

    def _observers(self) -> list[Observer]:
        observers: list[Observer] = []
        if self.dump is not None:
            from tinycomp.driver.dump import Dump

            observers.append(Dump(self.dump))
        if self.verify:
            from tinycomp.checking import NumericCheck

            observers.append(NumericCheck(self.lowering(), self._reproducers(), differences=self.differences))
        return observers

    def _reproducers(self) -> Path | None:
        """Return the folder for graphs that show a difference: beside the dumps, if there are any."""
        return None if self.dump is None else self.dump / "reproducers"

    def lowering(self) -> Lowering:
        """Return a fresh lowering for these targets."""
        targets = {t.name: t.for_plan(self.pool.threads) for t in self.targets}
        return Lowering(
            targets, self.pool, self.weights, self.constants, specialize=self.specialize, devices=self.devices
        )

    def lower(self, partitioned: Graph) -> Lowered:
        """Return the plan of a partitioned graph, with what its regions became.

        A region that its code generator declines goes to the next target, and ``partitioned`` changes with that.

        Raises:
            TargetError: If a code generator fails.
            UnsupportedError: If no tier knows an operator.
            MemoryLimitError: If values of known size exceed the budget in force.
        """
        lowering = self.lowering()
        given_back = GivenBack(self.targets, self.policy or Policy())
        while True:
            try:
                return Lowered(partitioned, lowering.plan(partitioned), lowering.programs, lowering.per_shape)
            except Decline as declined:
                target = declined.region.target if declined.region is not None else None
                if target is None:
                    raise
                lowering = lowering.anew()
                replace_declined(partitioned, target, lowering, given_back)

    def package(self, lowered: Lowered, original: _Original | None = None) -> Module:
        """Return the module of a lowered graph, whose report gives advice if the model before the passes is known."""
        partitioned = lowered.graph
        inputs = specs([v.name for v in partitioned.inputs], partitioned.inputs)
        symbolic = not all(spec.is_static for spec in inputs)
        misses = functools.cache(functools.partial(_near_misses, partitioned, self.targets))
        adviser = None if original is None else functools.partial(self._advise, original, partitioned)
        report = functools.partial(self._report, lowered, misses, symbolic, adviser)
        parts = ModuleParts(
            inputs=inputs,
            outputs=specs(partitioned.output_names, partitioned.outputs),
            plan=lowered.plan,
            report=report,
            graph=functools.partial(copied, partitioned),
            pack=functools.partial(self._packed, lowered, report),
            threads=self.pool.threads,
            defaults={name: self.constants.own(array) for name, array in partitioned.defaults.items()},
            memory_limit=self.memory_limit,
            bounds=dict(partitioned.bounds),
            diagram=_diagram,
        )
        return Module(parts)

    def _packed(self, lowered: Lowered, report: Callable[[Mapping[str, int]], Report]) -> bytes:
        """Return the bytes of a saved module."""
        from tinycomp.driver.save import pack  # not before: few modules are saved

        about = {
            "targets": [t.name for t in self.targets],
            "options": {t.name: saved_values(t.options) for t in self.targets},
            "threads": self.threads,
            "passes": self.passes if isinstance(self.passes, str) else None,
            "specialize": self.specialize,
            "precision": self.precision,
            "bounds": {name: list(bounds) for name, bounds in lowered.graph.bounds.items()},
            **self.devices.to_dict(),
        }
        return pack(about, lowered, report({}))

    def _report(
        self,
        lowered: Lowered,
        misses: Callable[[], list[Remark]],
        symbolic: bool,
        adviser: Adviser | None,
        sizes: Mapping[str, int],
    ) -> Report:
        from tinycomp.driver.report import make_report  # not before: few reports are read

        names = [t.name for t in self.targets]
        known = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        note = f"For {known}." if known else _SAMPLES
        with assuming(lowered.graph.bounds):
            report = make_report(
                lowered.graph,
                lowered.graph.name,
                names,
                [*self._precision_notes(), *([note] if symbolic else [])],
                lowered.programs,
                sizes,
                misses(),
            )
        return dataclasses.replace(report.with_arenas(arenas(lowered.plan)), adviser=adviser)

    def _precision_notes(self) -> Iterator[str]:
        if self.precision != "f32":
            found = self.differences.get(RoundWeights.name)
            change = "" if found is None else f" Results of random inputs change by {found:.2g} of the largest one."
            yield f"Large weights of products are rounded to {self.precision}.{change}"
        for target in self.targets:
            if getattr(target.options, "precision", "f32") == "bf16":
                found = self.differences.get(target.name)
                change = "" if found is None else (
                    f" Results of its regions for random inputs differ by {found:.2g} of the largest one."
                )  # fmt: skip
                yield f"Factors of products may be rounded to bf16 on {target.name}.{change}"

    def _advise(
        self, original: _Original, partitioned: Graph, model: Model | None, trials: int, seconds: float
    ) -> AdviceList:
        from tinycomp.driver.advice.adviser import advise  # not before: few ask for advice
        from tinycomp.driver.advice.setup import Setup

        graph = original.again(model)
        setup = Setup(graph, self.targets, self.policy, self.optimize, load_graph, declined=declined_names(partitioned))
        return advise(setup, trials, seconds)


def _check_precision(precision: str | None, passes: object) -> None:
    known = typing.get_args(Precision)
    if precision is None:
        return
    if precision not in known:
        hint = did_you_mean(str(precision), known)
        raise OptionError(
            "there is no such precision", where="precision", expected=f"one of {', '.join(known)}",
            found=repr(precision), hint=hint,
        )  # fmt: skip
    if precision != "f32" and passes is not None:
        raise OptionError(
            "weights are rounded by the default passes only", where="precision", found="passes",
            hint=f"Put round-weights{{precision={precision}}} among the passes.",
        )  # fmt: skip


def _diagram(graph: Graph, plan: Plan, sizes: Mapping[str, int]) -> Diagram:
    from tinycomp.driver.diagram import make_diagram  # not before: few reports become pictures

    return make_diagram(graph, plan, sizes)


def _near_misses(partitioned: Graph, targets: Sequence[Target]) -> list[Remark]:
    from tinycomp.driver.near_misses import near_misses  # not before: few reports are read

    return near_misses(partitioned, targets)


def copied(graph: Graph) -> Graph:
    """Return a copy of a partitioned graph, for whoever wants to look at it; the arrays of its constants are shared.

    Raises:
        ModelError: If the file in which constants lie has changed.
    """
    check_files(constants_of(graph))
    return graph.clone()


def _refuse_misplaced(compiler: Compiler, partitioned: Graph) -> None:
    placement = compiler.targets[0].placement
    kept: set[tuple[str, ...]] = set()
    wrong: list[tuple[Node, Place, str]] = []
    for scope in open_graphs(partitioned):
        for outer in scope.nodes:
            for node in outer.operators():
                place, where = placement.of(node), outer.target or HOST
                if place is not None and place.target == where:
                    kept.add(node.sources)
                elif place is not None and not is_structural(node):
                    wrong.append((node, place, where))
    # Of a node that was copied for several users it is enough that one copy is where it belongs.
    wrong = [each for each in wrong if not (is_duplicable(each[0]) and each[0].sources in kept)]
    if wrong:
        found = [_misplaced(node, place, where, partitioned.remarks) for node, place, where in wrong]
        raise PlacementError(
            f"{len(wrong)} node(s) cannot run where they were placed",
            where=partitioned.name,
            expected=", ".join(dict.fromkeys(str(place) for _, place, _ in wrong)),
            found="; ".join(found[:10]) + (f"; and {len(found) - 10} more" if len(found) > 10 else ""),
            hint="Leave the entry out, or place the node where a target takes it.",
        )


def _misplaced(node: Node, place: Place, where: str, remarks: Sequence[Remark]) -> str:
    about = [r for r in remarks if r.target == place.target and not set(node.sources).isdisjoint(r.sources)]
    reason = max(reversed(about), key=lambda r: r.progress, default="no reason recorded")
    return f"{node.label} ({node.qualified_op}) on {'the host' if where == HOST else where}: {reason}"


def _refuse_fallback(compiler: Compiler, partitioned: Graph) -> None:
    from tinycomp.driver.report import make_report
    from tinycomp.runtime.rows import BORDER

    report = make_report(partitioned, partitioned.name, [t.name for t in compiler.targets])
    left = [h for h in report.hosts if h.tier != BORDER]
    if not left:
        return
    rows = [f"{h.name} ({h.op}): {h.reasons[0] if h.reasons else 'no reason recorded'}" for h in left]
    raise FallbackError(
        f"{len(rows)} node(s) would run on the host",
        where=partitioned.name,
        expected=f"every node on {', '.join(t.name for t in compiler.targets) or 'a target'}",
        found="; ".join(rows[:10]) + (f"; and {len(rows) - 10} more" if len(rows) > 10 else ""),
        hint="Compile without strict=True, or add a target that takes them.",
    )
