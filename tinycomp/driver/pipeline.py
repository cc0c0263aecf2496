"""Pipelines: the default passes in order, how they run with checks and dumps between them, and their text form."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import itertools
import re
import time
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tinycomp.passes
from tinycomp.arguments import checked, fits
from tinycomp.errors import PatternError, TinycompError, did_you_mean, shown
from tinycomp.index import named
from tinycomp.ir.graph import Graph
from tinycomp.lazy import LazyModule
from tinycomp.memory.budget import check_time, current
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.base import Pass
from tinycomp.passes.duplicate_tails import DuplicateTails
from tinycomp.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.passes.inline_functions import InlineFunctions
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.passes.offer_to_target import OfferToTarget
from tinycomp.passes.partition_graph import PartitionGraph
from tinycomp.passes.simplify import Simplify
from tinycomp.passes.widen_half import WidenHalf
from tinycomp.records import dataclass
from tinycomp.target import Policy, Target, find
from tinycomp.target.options import readings_of

if TYPE_CHECKING:
    from tinycomp.ir import verify
    from tinycomp.passes import assign_border_layouts, check_quantization, keep_forms, legalize, place_by_cost
else:  # only some targets need these
    assign_border_layouts, check_quantization, keep_forms, legalize, place_by_cost = (
        LazyModule(f"tinycomp.passes.{name}")
        for name in ("assign_border_layouts", "check_quantization", "keep_forms", "legalize", "place_by_cost")
    )
    verify = LazyModule("tinycomp.ir.verify")

Observer = Callable[[int, str, Graph], None]
"""A function that is called after each pass with its number, its name and the graph."""


_AS_TEXT = 'Use tinycomp.driver.pipeline.parse_passes to read a text such as "simplify,fold-constants".'


@dataclass(frozen=True)
class Timing:
    """Record how long a pass took.

    Attributes:
        name: The pass.
        seconds: Its wall time.
        changed: Whether it changed anything.
        nodes: How many nodes the graph had afterwards.
    """

    name: str
    seconds: float
    changed: bool
    nodes: int


class Pipeline:
    """Run passes one after the other.

    Args:
        passes: What to run.
        check: Whether to verify the graph after every pass.
        observers: Called after every pass, and once before the first with number 0 and the name ``input``.

    Raises:
        PatternError: If one of the passes is not a pass.

    Example:
        >>> from tinycomp.ir.text.parser import parse_graph
        >>> from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
        >>> graph = parse_graph('graph @main opset {"" = 17} (%x: float32[2]) -> (%x) { %y = Relu(%x) }')
        >>> len(Pipeline([EliminateDeadCode()])(graph))
        0
    """

    @checked("passes", error=PatternError)
    def __init__(self, passes: Iterable[Pass], *, check: bool = False, observers: Sequence[Observer] = ()) -> None:
        self.passes: tuple[Any, ...] = tuple(passes) if fits(passes, Iterable) else (passes,)
        for each in self.passes:
            if not isinstance(each, Pass):
                raise PatternError("not a pass", expected="a list of passes", found=shown(each), hint=_AS_TEXT)
        self.check = check
        self.observers = tuple(observers)
        self.timings: list[Timing] = []

    def __call__(self, graph: Graph) -> Graph:
        """Return a transformed copy of the graph.

        Raises:
            VerifyError: If ``check`` is on and a pass breaks the graph; the message names the pass.
        """
        graph = graph.clone()
        self.run(graph)
        return graph

    def run(self, graph: Graph) -> None:
        """Transform a graph in place.

        Raises:
            VerifyError: If ``check`` is on and a pass breaks the graph; the message names the pass.
            ExecutionError: If the timeout is over.
        """
        self.timings = []
        self._after(0, "input", graph)
        for number, entry in enumerate(self.passes, 1):
            check_time(current(), f"pass {entry.name}")
            started = time.perf_counter()
            changed = entry.run(graph)
            self.timings.append(Timing(entry.name, time.perf_counter() - started, changed, len(graph)))
            self._after(number, entry.name, graph)

    def _after(self, number: int, name: str, graph: Graph) -> None:
        if self.check:
            try:
                verify.verify(graph)
            except TinycompError as error:
                error.add_note(f"The graph was well-formed before the pass {name}.")
                raise
        for observe in self.observers:
            observe(number, name, graph)


@functools.cache
def pass_types() -> Mapping[str, type[Pass]]:
    """Return every pass class that a file of ``tinycomp.passes`` defines, by its command-line name."""
    import pkgutil  # imported here, because only passes that are named by the user are looked up

    for info in pkgutil.walk_packages(tinycomp.passes.__path__, f"{tinycomp.passes.__name__}."):
        importlib.import_module(info.name)
    kinds = {}
    waiting = list(Pass.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if kind.__module__.startswith(f"{tinycomp.passes.__name__}.") and not inspect.isabstract(kind):
            kinds[kind.name] = kind
    return dict(sorted(kinds.items()))


_ITEM = r"\s*(?P<name>[a-z][a-z0-9-]*)\s*(\{(?P<options>[^{}]*)\})?\s*(,|$)"


def parse_passes(text: str) -> list[Pass]:
    """Return the passes that a text such as ``"simplify,merge-composite{target=npu}"`` names.

    Options are ``field=value`` pairs separated by spaces; a value is a number, ``true``, ``false``, ``none``, a name,
    or several joined by ``+``; fields called ``target`` or ``targets`` take target names.

    Raises:
        PatternError: If a pass or option is unknown, or the text is not of this form.
    """
    passes = []
    at = 0
    while at < len(text):
        item = re.compile(_ITEM).match(text, at)
        if item is None:
            raise PatternError(
                "cannot read the list of passes",
                where=text[at:],
                expected="name or name{option=value …}, separated by commas",
            )
        passes.append(_make_pass(item["name"], item["options"] or ""))
        at = item.end()
    return passes


def _make_pass(name: str, options: str) -> Pass:
    kinds = pass_types()
    if name not in kinds:
        hint = did_you_mean(name, kinds) or f"There are: {', '.join(kinds)}."
        raise PatternError(f'there is no pass "{name}"', hint=hint)
    kind = kinds[name]
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    values: dict[str, Any] = {}
    for option in options.split():
        key, _, value = option.partition("=")
        field = key.replace("-", "_")
        if field not in fields:
            known = [f.replace("_", "-") for f in fields]
            hint = did_you_mean(key, known) or f"It has: {', '.join(known) or 'none'}."
            raise PatternError(f'the pass {name} has no option "{key}"', hint=hint)
        values[field] = _option_value(kind, field, value)
    missing = [f.replace("_", "-") for f, field in fields.items() if f not in values and not _has_default(field)]
    if missing:
        example = " ".join(f"{option}=…" for option in missing)
        raise PatternError(
            f"the pass {name} lacks an option", expected=f"{name}{{{example}}}", found=options.strip() or "none"
        )
    return kind(**values)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _option_value(kind: type[Pass], field: str, text: str) -> Any:
    """Return the value that a text gives to an option."""
    hint = typing.get_type_hints(kind)[field]
    if field == "target":
        value: Any = find(text)
    elif field == "targets":
        value = tuple(find(name) for name in text.split("+"))
    elif "+" in text:
        value = tuple(next(readings_of(part)) for part in text.split("+"))
    else:
        value = next(readings_of(text))
    if not fits(value, hint):
        raise PatternError(
            f'the pass {kind.name} cannot take "{text}" as {field.replace("_", "-")}',
            expected=f"a value of type {getattr(hint, '__name__', hint)}",
            hint="Options other than numbers, words and targets can be given in Python only.",
        )
    return value


def optimisation_passes(targets: Sequence[Target] = (), policy: Policy | None = None) -> list[Pass]:
    """Return the passes that make a graph smaller whatever the target; quantised weights stay quantised.

    Args:
        targets: Functions that one of these takes whole are not inlined. A form that one of them takes, and would not
            take simplified, is kept, unless costs decide between targets. Half precision is computed in float32 if all
            of them want it.
        policy: The conditions on every region, whatever its target.
    """
    return [
        InlineFunctions(tuple(targets)),
        *([WidenHalf()] if targets and all(target.widens_half for target in targets) else []),
        FoldConstants(),
        *([DuplicateTails()] if targets else []),
        *_keeping(targets, policy or Policy()),
        Simplify(),
        FoldConstants(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    ]


def _keeping(targets: Sequence[Target], policy: Policy) -> list[Pass]:
    if _have_costs(targets) or all(target.canonical for target in targets) or not any(map(keep_forms.wishes, targets)):
        return []
    return [Simplify(hiding=False), keep_forms.KeepForms(tuple(targets), policy)]


def _have_costs(targets: Sequence[Target]) -> bool:
    return bool(targets) and all(target.cost is not None for target in targets)


def partitioning_passes(
    targets: Sequence[Target], policy: Policy | None = None, *, optimize: bool = True
) -> list[Pass]:
    """Return the passes that give every node to a target or to the host.

    One target after the other claims nodes: its legalising passes rewrite the layers that it refuses, where that helps,
    then its composites and operator rules are tried. Constants that none has claimed are folded in the end, dequantised
    weights included; but if no target has rules for products, the weights of quantised layers stay, which the host
    computes in integers. Half precision that the earlier targets left is computed in float32 if the last one wants
    that. If all targets have a cost, the cheapest placement decides instead of their order.

    Args:
        targets: The targets in priority order; each may have a policy of its own as well.
        policy: The conditions on every region, whatever its target.
        optimize: Whether nodes may be folded, or replaced by the definition of their operator; without it, the graph is
            partitioned as it stands.
    """
    policy = policy or Policy()
    merging_regions: list[Pass] = [
        MergeRegions(policy=policy, targets=tuple(targets)), PartitionGraph(targets=tuple(targets)),
    ]  # fmt: skip
    if any(target.has_layouts for target in targets):
        merging_regions.append(assign_border_layouts.AssignBorderLayouts(tuple(targets)))
    has_rules = any(target.quantization_rules for target in targets)
    checking: list[Pass] = [check_quantization.CheckQuantization(tuple(targets))] if has_rules else []
    last = tuple(targets[-1:])
    # Where rules of operators take products in float32, weights are constants for them; else what no composite takes
    # stays as it is stored, for the quantised layers that the host computes.
    takes_products = any(("", op) in target.rules for target in targets for op in named("product"))
    folding: list[Pass] = [FoldConstants(keep_quantized=False, keep_layers=not takes_products)]
    if _have_costs(targets):
        cleaning = [*folding, EliminateDeadCode()] if optimize else []
        return [*checking, place_by_cost.PlaceByCost(tuple(targets), policy), *cleaning, *merging_regions]
    if not optimize:
        claiming = ((MergeComposite(each, policy), AnnotateTarget((each,), policy)) for each in targets)
        return [*checking, *itertools.chain.from_iterable(claiming), *merging_regions]
    offering = ([*_legalising(target, policy), OfferToTarget(target, policy)] for target in targets[:-1])
    return [
        *checking,
        *itertools.chain.from_iterable(offering),
        *([WidenHalf()] if len(targets) > 1 and last[0].widens_half else []),
        *itertools.chain.from_iterable(_legalising(target, policy) for target in last),
        *(OfferToTarget(target, policy, bounded=False) for target in last),
        *folding,
        EliminateDeadCode(),
        *merging_regions,
    ]


def _legalising(target: Target, policy: Policy) -> list[Pass]:
    return [legalize.Legalize(target, policy)] if target.legalize else []
