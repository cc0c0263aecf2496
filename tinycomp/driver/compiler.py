"""Compile a model into a module: :func:`compile_uncached` reads top to bottom, from import to packaging.

Modules that only some options need (checks, dumps, tuning logs) and those that save a module are imported where they
are used. They make up a third of the package, and most programs never need them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tinycomp.driver.devices import DeviceOptions
from tinycomp.driver.lowering import Lowered, Lowering, constants_of, input_specs, specs
from tinycomp.driver.models import (
    Model,
    Original,
    bind_defaults,
    copied,
    forget_declared,
    graph_of,
    is_assuming,
    load_graph,
    settle,
)
from tinycomp.driver.options import CompileOptions
from tinycomp.driver.pipeline import Observer, Pipeline, optimisation_passes, parse_passes, partitioning_passes
from tinycomp.driver.targets import in_precision, resolve_targets, steered
from tinycomp.frontend import ModelSource
from tinycomp.ir.graph import Graph
from tinycomp.lazy import LazyModule
from tinycomp.memory.budget import limited
from tinycomp.memory.constants import Constants, check_files, evict
from tinycomp.memory.interpreter import compiling
from tinycomp.memory.mapped import mappings_of
from tinycomp.ops.agreement import fitting_sizes
from tinycomp.passes.base import Pass
from tinycomp.passes.fold_constants import sharing_budget
from tinycomp.passes.offer_to_target import GivenBack
from tinycomp.passes.widen_half import multiplies_bfloat16
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.runtime.assumptions import module_of
from tinycomp.runtime.module import Module, ModuleParts
from tinycomp.runtime.native.executor import Pool, Weights
from tinycomp.runtime.plan import Plan
from tinycomp.runtime.regions import arenas
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import assuming, remembering, sampling
from tinycomp.target import Decline, Policy, Target
from tinycomp.target.options import saved_values

if TYPE_CHECKING:
    from tinycomp.checking import NumericCheck
    from tinycomp.driver import check_places, declined
    from tinycomp.passes import round_weights
    from tinycomp.passes.round_weights import Precision
    from tinycomp.runtime import files
    from tinycomp.runtime.advice import AdviceList
    from tinycomp.runtime.diagram import Diagram
    from tinycomp.runtime.report import Adviser, Report
else:
    check_places, declined = LazyModule("tinycomp.driver.check_places"), LazyModule("tinycomp.driver.declined")
    files, round_weights = LazyModule("tinycomp.runtime.files"), LazyModule("tinycomp.passes.round_weights")

_SAMPLES = "MACs and bytes count a dynamic dimension as its upper bound, or else as the least size that fits, mostly 1."


def compile_uncached(model: Model | ModelSource, options: CompileOptions) -> Module:
    """Compile a model without looking into the cache of modules.

    Result and errors are those of :func:`tinycomp.driver.compile.compile`; the model may also be a source that has been
    read already.
    """
    compiler = Compiler.of(options)
    with limited(options.memory_limit, options.timeout), compiling(), remembering():
        source = model if isinstance(model, (Graph, ModelSource)) else ModelSource.of(model, mapped=True)
        graph = graph_of(source, options.shapes)
        if options.precision is None and options.passes is None:
            compiler = compiler.in_precision_of(graph)
        # Weights stay in the model's file as long as possible, so the file must not change until compiling ends.
        files = mappings_of(v.const for v in constants_of(graph) if v.const is not None)
        original = None if options.passes is not None else Original.of(model, source, graph, options.shapes)
        del source  # what nobody keeps of the model takes no memory while it is compiled
        module = compiler.compile(graph, original, options.strict)
        for mapping in files:
            mapping.check()
        return module


@dataclass(frozen=True)
class Compiler:
    """Turn graphs into modules.

    Attributes:
        targets: The targets in priority order, set up for the threads of the pool.
        pool: Threads of the module.
        options: What else the caller has said.
        policy: The conditions on every region, whatever its target.
        differences: By how much a pass or a target changes results, relative to the largest one, as ``verify`` found.
        weights: Packed weights, which the plans for different sizes share.
        constants: Copies of constants, which they share as well.
        devices: The devices that regions run on, and what to do when they fail.
        assumes: Whether inputs that may be left out are constants, instead of values of the run.
    """

    targets: tuple[Target, ...]
    pool: Pool
    options: CompileOptions = field(default_factory=CompileOptions)
    policy: Policy | None = None
    differences: dict[str, float] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    constants: Constants = field(default_factory=Constants)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    assumes: bool = True

    @classmethod
    def of(cls, options: CompileOptions) -> Compiler:
        """Return what compiles as options say.

        Raises:
            TinycompError: If there is no such target or device, or an option of theirs does not take its value.
        """
        pool = Pool(options.threads)
        with compiling():  # the first use of a target imports it
            targets, policy = steered(resolve_targets(options.target, options.options), options.policy, options.place)
            devices = DeviceOptions.read(options.devices, options.faults, targets)
        return cls(targets, pool, options, policy, devices=devices)

    def __post_init__(self) -> None:
        targets = self.targets if self._precision == "f32" else in_precision(self.targets, self._precision)
        object.__setattr__(self, "targets", tuple(t.for_plan(self.pool.threads) for t in targets))

    @property
    def _precision(self) -> Precision:
        return self.options.precision or "f32"

    @property
    def _dump(self) -> Path | None:
        return None if self.options.dump is None else files.folder_named(self.options.dump)

    def compile(self, graph: Graph, original: Original | None = None, strict: bool = False) -> Module:
        """Return the module of a graph, which is changed; see :meth:`package`.

        Raises:
            TinycompError: If a pass, a code generator or a check fails.
        """
        general = graph.clone() if self.assumes and (graph.defaults or is_assuming(graph)) else None
        with sharing_budget(graph):  # the passes that fold constants share one budget
            self.partition_in_place(graph)
            self.check_places(graph, strict)
            evict(constants_of(graph))  # to mapped files, because code generators read each constant once
            lowered = self.lower(graph)
        self.check_places(graph, strict)  # once more, because code generators may have declined regions
        return self.package(lowered, original, general)

    def _general(self, graph: Graph) -> Module:
        """Return the module of a graph that assumes nothing of what the model says beside its operators."""
        options = dataclasses.replace(self.options, dump=None, verify=False)
        compiler = dataclasses.replace(self, assumes=False, options=options)
        with limited(options.memory_limit), compiling():
            check_files(constants_of(graph))
            graph = graph.clone()
            forget_declared(graph)
            return compiler.compile(graph)

    def in_precision_of(self, graph: Graph) -> Compiler:
        """Return a compiler whose targets compute in bfloat16 if the model itself does, else this one."""
        if not multiplies_bfloat16(graph):
            return self
        return dataclasses.replace(self, targets=in_precision(self.targets, "bf16"))

    def pipeline(self) -> list[Pass]:
        """Return the passes that will run."""
        passes, optimize = self.options.passes, self.options.optimize
        if passes is None:
            first = optimisation_passes(self.targets, self.policy) if optimize else []
            rounding = [] if self._precision == "f32" else [round_weights.RoundWeights(self._precision)]
            return [*first, *rounding, *partitioning_passes(self.targets, self.policy, optimize=optimize)]
        return parse_passes(passes) if isinstance(passes, str) else list(passes)

    def partition(self, graph: Graph) -> Graph:
        """Return an optimised copy of the graph with its regions outlined.

        Raises:
            VerifyError: If ``verify`` is on and a pass or a region changes the results.
        """
        partitioned = graph.clone()
        self.partition_in_place(partitioned)
        self.check_places(partitioned)
        return partitioned

    def partition_in_place(self, graph: Graph) -> None:
        """Optimise a graph and outline its regions.

        Raises:
            VerifyError: If ``verify`` is on and a pass or a region changes the results.
            OptionError: If a key of ``place`` fits no node.
        """
        settle(graph)
        if self.assumes:
            bind_defaults(graph)
        for placement in dict.fromkeys(t.placement for t in self.targets):
            placement.check(graph)
        check = self._numeric_check()
        with assuming(graph.bounds), sampling(lambda: fitting_sizes(graph)):
            Pipeline(self.pipeline(), check=check is not None, observers=self._observers(check)).run(graph)
        if check is not None:
            from tinycomp.checking import check_regions

            self.lower(graph)
            if check.feeds is not None:
                self.differences.update(check_regions(graph, self.lowering(), check.feeds, self._reproducers()))

    def check_places(self, partitioned: Graph, strict: bool = False) -> None:
        """Make sure that every node runs where it was placed and, with ``strict``, that none runs on the host.

        Raises:
            PlacementError: If a node runs elsewhere.
            FallbackError: If ``strict`` is on and a node runs on the host.
        """
        if any(t.placement.places for t in self.targets):
            check_places.refuse_misplaced(self.targets, partitioned)
        if strict:
            check_places.refuse_fallback(self.targets, partitioned)

    def _numeric_check(self) -> NumericCheck | None:
        verify = self.options.verify
        if verify is False:
            return None
        from tinycomp.checking import NumericCheck  # imported here, because few compiles are verified

        given = {} if verify is True else verify
        return NumericCheck(self.lowering(), self._reproducers(), differences=self.differences, given=given)

    def _observers(self, check: NumericCheck | None) -> list[Observer]:
        observers: list[Observer] = []
        if self._dump is not None:
            from tinycomp.driver.dump import Dump

            observers.append(Dump(self._dump))
        if check is not None:
            observers.append(check)
        return observers

    def _reproducers(self) -> Path | None:
        """Return the folder for graphs that reproduce a difference; it lies in that of the dumps, if there is one."""
        return None if self._dump is None else self._dump / "reproducers"

    def lowering(self) -> Lowering:
        """Return a fresh lowering for these targets."""
        targets = {t.name: t.for_plan(self.pool.threads) for t in self.targets}
        return Lowering(
            targets, self.pool, self.weights, self.constants, specialize=self.options.specialize, devices=self.devices
        )

    def lower(self, partitioned: Graph) -> Lowered:
        """Return the plan of a partitioned graph, with the programs of its regions.

        The nodes of a region that its code generator declines go to the next target, which changes ``partitioned``.

        Raises:
            TargetError: If a code generator fails.
            UnsupportedError: If no tier knows an operator.
            MemoryLimitError: If values of known size exceed the memory budget.
        """
        lowering = self.lowering()
        given_back = GivenBack(self.targets, self.policy or Policy())
        while True:
            try:
                return Lowered(partitioned, lowering.plan(partitioned), lowering.programs, lowering.per_shape)
            except Decline as refused:
                target = refused.region.target if refused.region is not None else None
                if target is None:
                    raise
                declined.replace_declined(partitioned, target, lowering.restarted(), given_back)
                lowering = lowering.restarted()

    def package(self, lowered: Lowered, original: Original | None = None, general: Graph | None = None) -> Module:
        """Return the module of a lowered graph.

        Args:
            lowered: The graph and what lowering made of it.
            original: The model, for advice.
            general: The model before the passes, if something of it was assumed that a run may refute.
        """
        partitioned = lowered.graph
        inputs = input_specs(partitioned)
        symbolic = not all(spec.is_static for spec in inputs)
        misses = functools.cache(functools.partial(_near_misses, partitioned, self.targets))
        adviser = None if original is None else functools.partial(self._advise, original, partitioned)
        report = functools.partial(self._report, lowered, misses, symbolic, adviser)
        interface: tuple[TensorSpec, ...] = ()
        make_general: Callable[[], Module] | None = None
        if general is not None:
            known = {spec.name: spec for spec in inputs}
            interface = tuple(known.get(v.name) or specs([v.name], [v])[0] for v in general.inputs)
            make_general = functools.cache(functools.partial(self._general, general))
        parts = ModuleParts(
            inputs=inputs,
            outputs=specs(partitioned.output_names, partitioned.outputs),
            plan=lowered.plan,
            report=report,
            graph=functools.partial(copied, partitioned),
            pack=functools.partial(self._packed, lowered, report, interface, make_general),
            threads=self.pool.threads,
            defaults={name: self.constants.own(array) for name, array in (general or partitioned).defaults.items()},
            memory_limit=self.options.memory_limit,
            bounds=dict(partitioned.bounds),
            diagram=_diagram,
            interface=interface,
            general=make_general,
        )
        return module_of(parts)

    def _packed(
        self,
        lowered: Lowered,
        report: Callable[[Mapping[str, int]], Report],
        interface: Sequence[TensorSpec],
        general: Callable[[], Module] | None,
    ) -> bytes:
        """Return the bytes of a saved module."""
        from tinycomp.driver.save import pack  # imported here, because few modules are saved

        about = {
            "targets": [t.name for t in self.targets],
            "options": {t.name: saved_values(t.options) for t in self.targets},
            "threads": self.options.threads,
            "passes": self.options.passes if isinstance(self.options.passes, str) else None,
            "specialize": self.options.specialize,
            "precision": self._precision,
            "bounds": {name: list(bounds) for name, bounds in lowered.graph.bounds.items()},
            **self.devices.to_dict(),
        }
        with compiling():
            return pack(about, lowered, report({}), interface, None if general is None else general().to_bytes())

    def _report(
        self,
        lowered: Lowered,
        misses: Callable[[], list[Remark]],
        symbolic: bool,
        adviser: Adviser | None,
        sizes: Mapping[str, int],
    ) -> Report:
        from tinycomp.driver.report import make_report  # imported here, because few reports are read

        names = [t.name for t in self.targets]
        known = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        note = f"For {known}." if known else _SAMPLES
        with assuming(lowered.graph.bounds), sampling(lambda: fitting_sizes(lowered.graph)):
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
        if self._precision != "f32":
            found = self.differences.get(round_weights.RoundWeights.name)
            change = "" if found is None else f" Results of random inputs change by {found:.2g} of the largest one."
            yield f"Large weights of products are rounded to {self._precision}.{change}"
        for target in self.targets:
            if getattr(target.options, "precision", "f32") == "bf16":
                found = self.differences.get(target.name)
                change = "" if found is None else (
                    f" Results of its regions for random inputs differ by {found:.2g} of the largest one."
                )  # fmt: skip
                yield f"Factors of products may be rounded to bf16 on {target.name}.{change}"

    def _advise(
        self, original: Original, partitioned: Graph, model: Model | None, trials: int, seconds: float
    ) -> AdviceList:
        from tinycomp.driver.advice.adviser import advise  # imported here, because few users ask for advice
        from tinycomp.driver.advice.setup import Setup

        graph = original.again(model)
        names = declined.declined_names(partitioned)
        setup = Setup(graph, self.targets, self.policy, self.options.optimize, load_graph, declined=names)
        return advise(setup, trials, seconds)


def _diagram(graph: Graph, plan: Plan, sizes: Mapping[str, int]) -> Diagram:
    from tinycomp.driver.diagram import make_diagram  # imported here, because few reports become pictures

    return make_diagram(graph, plan, sizes)


def _near_misses(partitioned: Graph, targets: Sequence[Target]) -> list[Remark]:
    from tinycomp.driver.near_misses import near_misses  # imported here, because few reports are read

    return near_misses(partitioned, targets)
