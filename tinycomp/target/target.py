"""The description of one target: composites, operator rules, a code generator, and options."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, get_args, overload

import numpy as np

from tinycomp.errors import MemoryLimitError, TargetError, TinycompError
from tinycomp.ir.graph import Graph, Node
from tinycomp.lazy import LazyModule
from tinycomp.ops.signatures import unknown_operator
from tinycomp.rewrite import Composite, Match, Remark, reject
from tinycomp.rewrite.composites import CompositeGroup
from tinycomp.rewrite.pattern import Head
from tinycomp.target.options import changed, defaults_of
from tinycomp.target.placement import Placement
from tinycomp.target.policy import Policy

if TYPE_CHECKING:
    from tinycomp.target import quantization
    from tinycomp.target.cost import Cost
    from tinycomp.target.quantization import QuantizationRule
    from tinycomp.target.region import Region, Split
else:
    quantization = LazyModule("tinycomp.target.quantization")

Predicate = Callable[..., Any]
"""Answers True or None for yes, ``reject("reason")`` or False for no; may have the options as a second parameter."""
Codegen = Callable[..., Any]
"""Takes a region, and if it has a second parameter the options of the target."""
RegionCheck = Callable[..., Any]
"""Answers about a :class:`Region` like a predicate, or with :func:`split`; may have the options as second parameter."""
Verdict = Literal["use", "rebuild", "refuse"]
"""What is to be done with a blob of some version: load it, ask the code generator for another, or give up."""


class Legalizing(Protocol):
    """Rewrite a layer that a target refuses: a pass of :mod:`tinycomp.passes.legalize`."""

    name: ClassVar[str]

    def starts_at(self, node: Node) -> bool:
        """Tell whether a node is one that the pass may start at."""

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite the layer of one operator; return whether that was possible."""


_CONVERSIONS = frozenset({("", "DequantizeLinear"), ("", "QuantizeLinear")})
_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R", bound="QuantizationRule | Callable[..., QuantizationRule]")


class Decline(TinycompError):  # noqa: N818 - what a code generator does, not what went wrong
    """Raised by a code generator that cannot do a region: it goes to the next target, and in the end to the host.

    Args:
        reason: Why not, as one clause for the reader.

    Attributes:
        reason: The same.
        region: The region, once the code generator has been left.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.region: Node | None = None
        super().__init__(
            f"the code generator declined a region: {reason}",
            hint="Refuse such a region while the model is compiled: see Target.region_check.",
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the reason; the region stays behind."""
        return Decline, (self.reason,)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Say how far a region's results may be from the reference when they are compared.

    Attributes:
        rtol: Relative to the reference.
        atol: Absolute; for integers the number of steps.
    """

    rtol: float = 1e-3
    atol: float = 1e-5


@dataclass(frozen=True, slots=True)
class OpRule:
    """Hold one operator rule of a target.

    Attributes:
        name: Name for reports, such as ``npu.Add``.
        predicate: Decides about one node; None accepts every one.
        options: What the predicate is given beside the node; None for nothing.
    """

    name: str
    predicate: Predicate | None = None
    options: Any = None

    def refusal(self, node: Node) -> str | None:
        """Return why the rule does not accept ``node``, or None if it does.

        Raises:
            TargetError: If the predicate fails or answers something that is neither yes nor no.
        """
        if self.predicate is None:
            return None
        try:
            answer = self.predicate(node) if self.options is None else self.predicate(node, self.options)
        except Exception as error:
            raise TargetError(
                f"the operator rule failed: {type(error).__name__}: {error}",
                where=f"{self.name} at {node.label}",
                hint='A rule answers True, or reject("reason"); types may be symbolic or unknown, operands None.',
            ) from error
        return answer_reason(answer, f"{self.name} at {node.label}")


def answer_reason(answer: Any, where: str) -> str | None:
    """Return the reason of a predicate's "no", or None for a "yes" (True or None).

    Raises:
        TargetError: If the answer is neither.
    """
    if answer is None:
        return None
    if isinstance(answer, (bool, np.bool_)):
        if answer:
            return None
        return "the rule gives no reason"
    reason = getattr(answer, "reason", None)
    if isinstance(reason, str):
        return reason
    raise TargetError(
        "a predicate gave an answer that is neither yes nor no",
        where=where,
        expected='True, None, False or reject("reason")',
        found=repr(answer),
    )


def _listed(rule: QuantizationRule) -> str:
    return " or ".join(rule.activations) or "none that are quantised"


def _takes_options(predicate: Predicate | None) -> bool:
    """Tell whether a predicate has a second parameter that must be given."""
    code: types.CodeType | None = getattr(predicate, "__code__", None)
    if code is None or code.co_argcount < 2:  # most have one: this is asked for every rule
        return False
    defaults: Sized = getattr(predicate, "__defaults__", None) or ()
    return code.co_argcount - inspect.ismethod(predicate) - len(defaults) > 1


def _sensible(answer: Split, region: Region, where: str) -> Split:
    """Return a split that has something on both sides.

    Raises:
        TargetError: If it asks for another.
    """
    inside = set(region.nodes)
    for value in answer.values or (None,):
        if value is None or value.producer not in inside or inside.isdisjoint(value.users):
            raise TargetError(
                "a region cannot be split there", where=where, expected="values between two nodes of the region",
                found="none" if value is None else f'"{value.name}"',
            )  # fmt: skip
    return answer


class Target:
    """Describe what can run somewhere else, and how to make it run there.

    Args:
        name: Name for options, reports and symbols.
        bind_constants: Whether constants become part of a region's body; otherwise they become parameters.
        claims_structural: Whether Identity, StopFusion and the like between two nodes of the target join them.
        tolerance: For comparisons of its regions with the reference.
        policy: Which regions are worth having.
        description: One line for ``tinycomp targets``.
        requires: Raises a TargetError if something that the code generator needs is missing on this machine; asked
            before anything is compiled.
        programs: Whether the code generator returns Programs, which tell what a run reads of the constants. Only then
            may constants lie in the model's file, at any address, while a region is built.
        static_shapes: Whether the code generator needs to know every size: where dimensions are symbolic, a region is
            then built for each set of sizes that comes, and the last 16 are kept.
        buckets: Numbers of rows, such as ``(1, 8, 32)``, that regions are built for where they compute row by row:
            missing rows are made up, and more than the largest number are run in parts. Other regions are built for
            each set of sizes, as with ``static_shapes``.
        canonical: Whether the target takes the forms that simplification makes wherever it takes others: then nothing
            is kept for it as the model has it.
        options: A frozen dataclass whose fields are the target's options, see :mod:`tinycomp.target.options`.
        legalize: Passes of :mod:`tinycomp.passes.legalize`, such as ``DecomposeStrides(3)``: each says a layer in other
            operators, which is done where the target refuses the layer and takes those.
        cost: What work on the target costs. If all targets of a compilation have a cost, the cheapest placement decides
            between them and the host; otherwise their order does.
        version: Of the code generator. Blobs that it returns are then kept in the user's cache, so that the same
            region is compiled once, and modules may be, too; raise it with every change of what the code generator
            returns.

    Attributes:
        options: The options in force; None if the target declares none.
        placement: Where the user of a compilation wants nodes; see :meth:`under`.
        widens_half: Whether the target is offered float16 and bfloat16 as float32, with conversions around, as
            :class:`tinycomp.passes.widen_half.WidenHalf` does it; False unless it is set.

    Example:
        >>> from tinycomp.rewrite import reject
        >>> npu = Target("npu")
        >>> @npu.op("Add", "Mul")
        ... def _(node):
        ...     return node.inputs[0].type.rank == 4 or reject("only rank 4")
        >>> npu.accept("Relu")
        >>> sorted(rule.name for rules in npu.rules.values() for rule in rules)
        ['npu.Add', 'npu.Mul', 'npu.Relu']
    """

    def __init__(
        self,
        name: str,
        *,
        bind_constants: bool = True,
        claims_structural: bool = True,
        tolerance: Tolerance | None = None,
        policy: Policy | None = None,
        description: str = "",
        requires: Callable[[], object] | None = None,
        programs: bool = False,
        options: Any = None,
        static_shapes: bool = False,
        canonical: bool = False,
        legalize: Sequence[Legalizing] = (),
        buckets: Sequence[int] = (),
        cost: Cost | None = None,
        version: str | None = None,
    ) -> None:
        if not name or name == "host":
            raise TargetError(
                "a target needs a name of its own", expected='a text other than "" and "host"', found=name
            )
        self.name = name
        self.bind_constants = bind_constants
        self.claims_structural = claims_structural
        self._tolerance = tolerance or Tolerance()
        self.policy = policy or Policy()
        self.placement = Placement()
        self.description = description
        self.programs = programs
        if not all(type(size) is int and size > 0 for size in buckets):
            raise TargetError(
                "not numbers of rows",
                where=f"target {name}, buckets",
                expected="numbers above 0, such as (1, 8)",
                found=repr(buckets),
            )
        self.buckets = tuple(sorted(set(buckets)))
        self.static_shapes = static_shapes or bool(buckets)
        self.canonical = canonical
        self.legalize = tuple(legalize)
        self.widens_half = False
        self.cost = cost
        self._requires = requires
        self.options = None if options is None else defaults_of(options, f"target {name}")
        self._composites: list[Composite | CompositeGroup] = []
        self.rules: dict[tuple[str, str], list[OpRule]] = {}
        self._quantization: dict[str, QuantizationRule | Callable[..., QuantizationRule]] = {}
        self._region_checks: list[RegionCheck] = []
        self._codegen: Codegen | None = None
        self.version = version
        self._layouts: Callable[..., str | None] | None = None
        self._loader: Codegen | None = None
        self._opener: Codegen | None = None
        self._compatibility: Callable[[str], Verdict] | None = None

    # Describing ----------------------------------------------------------------------------------------------------

    @overload
    def composite(self, function: Callable[..., Any]) -> Composite: ...
    @overload
    def composite(self, *, name: str | None = None) -> Callable[[Callable[..., Any]], Composite]: ...

    def composite(self, function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
        """Add a composite from a traced pattern function; earlier ones win.

        Its ``check`` adds predicates, which may have the options as a second parameter.

        Raises:
            PatternError: If the function is not a pattern.
            TargetError: If the target has a composite of that name.
        """

        def register(traced: Callable[..., Any]) -> Composite:
            made = Composite.trace(traced, target=self.name, name=name)
            if any(made.name in _names(each) for each in self._composites):
                raise TargetError(f'the target has two composites "{made.name}"', where=f"target {self.name}")
            self._composites.append(made)
            return made

        return register if function is None else register(function)

    def op(self, *ops: str) -> Callable[[_F], _F]:
        """Make the decorated predicate decide about operators such as ``"Add"`` or ``"com.vendor::Op"``.

        Several rules for one operator are tried in order; ``"*"`` is every operator of its domain without a rule.
        """

        def register(predicate: _F) -> _F:
            self._add_rules(ops, predicate)
            return predicate

        return register

    def accept(self, *ops: str) -> None:
        """Accept every node of these operators."""
        self._add_rules(ops, None)

    def _add_rules(self, ops: tuple[str, ...], predicate: Predicate | None) -> None:
        options = self.options if _takes_options(predicate) else None
        for domain, name in self._named(ops, "op"):
            op = f"{domain}::{name}" if domain else name
            self.rules.setdefault((domain, name), []).append(OpRule(f"{self.name}.{op}", predicate, options))

    def _named(self, ops: tuple[str, ...], method: str) -> list[tuple[str, str]]:
        """Return domains and names of operators that a rule is for."""
        if not ops or not all(isinstance(op, str) and op for op in ops):
            raise TargetError(
                "an operator rule names no operator",
                where=f"target {self.name}",
                found=repr(ops),
                hint=f'Write @{self.name}.{method}("Add"), with the brackets.',
            )
        found = []
        for op in ops:
            domain, _, name = op.rpartition("::")
            hint = None if name == "*" else unknown_operator(name, domain)
            if hint is not None:
                raise TargetError(f'there is no operator "{op}"', where=f"target {self.name}", hint=hint)
            found.append((domain, name))
        return found

    def quantization(self, *ops: str) -> Callable[[_R], _R]:
        """Let the decorated function say how layers of these operators are quantised.

        It returns a :class:`QuantizationRule`, and may take the options of the target; a rule itself can be given in
        its place. :func:`tinycomp.quantize` obeys the rules of ``target=``; a match of a composite with a layer that
        does not is refused, as is an operator on stored numbers of other dtypes; ``report.violations()`` names such
        layers. Operators without a rule stay in float if there are rules at all.
        """

        def register(rule: _R) -> _R:
            for domain, name in self._named(ops, "quantization"):
                if name == "*":
                    raise TargetError(
                        "a quantisation rule is for operators by name", where=f"target {self.name}", found=repr(ops)
                    )
                self._quantization[f"{domain}::{name}" if domain else name] = rule
            return rule

        return register

    def codegen(self, function: _F) -> _F:
        """Make the decorated function the code generator, which turns a region into something that runs.

        It returns a program, C source, a blob, or a callable. With a second parameter it is also given the options of
        the target.
        """
        self._codegen = function
        return function

    def loader(self, function: _F) -> _F:
        """Make the decorated function load blobs: it returns what to call with one array per operand of the region.

        A function with a second parameter is also given the options of the target.
        """
        self._loader = function
        return function

    def layouts(self, function: _F) -> _F:
        """Make the decorated function say in which layout a node wants its data and gives its results.

        It is given a node of a region, an operator or a composite, and perhaps the options, and answers a name such as
        ``"NCHW8c"`` or ``"NHWC16"`` (:mod:`tinycomp.ir.blocked`), or None for row-major. Values that enter or leave a
        region are then handed over in that layout, between regions without conversion.
        """
        self._layouts = function
        return function

    def device(self, function: _F) -> _F:
        """Make the decorated function open devices: it is given an index from 0 on, and returns a ``tinycomp.Device``.

        Regions for which the code generator returns a ``DeviceProgram`` run there. The function is called for every
        device that a module is to use, when it first runs. With a second parameter it is given the options of the
        target, too.
        """
        self._opener = function
        return function

    def compatibility(self, function: _F) -> _F:
        """Make the decorated function say what to do with a blob of a version: "use", "rebuild" or "refuse" it."""
        self._compatibility = function
        return function

    def region_check(self, function: _F) -> _F:
        """Let the decorated function look at every finished :class:`Region` of the target, before it is cut out.

        It answers True or None for yes, ``reject("why")`` for no, or ``split(value, reason="why")`` to have the region
        split at a value. A region that is refused goes to the next target, and in the end to the host. Several checks
        are asked in order; one with a second parameter is also given the options of the target.
        """
        self._region_checks.append(function)
        return function

    def with_options(self, **values: Any) -> Target:
        """Return a copy of the target with other options; what is added to one of the two is not added to the other.

        Raises:
            OptionError: If there is no such option, or it does not take the value.
        """
        chosen = changed(self.options, values, f"target {self.name}")
        made = self._configured(chosen)
        made._composites = [*self._composites]
        made._region_checks = [*self._region_checks]
        made._quantization = {**self._quantization}
        made.rules = {
            key: [rule if rule.options is None else dataclasses.replace(rule, options=chosen) for rule in rules]
            for key, rules in self.rules.items()
        }
        return made

    @property
    def tolerance(self) -> Tolerance:
        """Return what its regions may differ by from the reference, as the options say, if they do."""
        return getattr(self.options, "tolerance", None) or self._tolerance

    def under(self, policy: Policy | None, placement: Placement) -> Target:
        """Return the target for one compilation: with another policy, if one is given, and what the user places."""
        made = self._configured(self.options)
        made.policy, made.placement = policy or self.policy, placement
        return made

    def for_plan(self, threads: int) -> Target:
        """Return the target as its code generator is to be asked for the regions of one plan on so many threads.

        Raises:
            TinycompError: If the options name something, such as a file, that cannot be used.
        """
        for_plan = getattr(self.options, "for_plan", None)
        return self if for_plan is None else self._configured(for_plan(threads))

    def _configured(self, options: Any) -> Target:
        made = copy.copy(self)
        made.options = options
        return made

    # Asking --------------------------------------------------------------------------------------------------------

    @property
    def composites(self) -> list[Composite]:
        """Return the composites in the order in which they are tried; their checks know the options in force."""
        return [self._knowing(composite) for entry in self._composites for composite in _described(entry)]

    @composites.setter
    def composites(self, composites: list[Composite]) -> None:
        self._composites = [*composites]

    def _knowing(self, composite: Composite) -> Composite:
        """Return a composite whose checks are given the options, if they want them, and know the quantisation rules."""
        wanted = self.options is not None and any(map(_takes_options, composite.checks))
        if not wanted and not self._quantization:
            return composite
        checks = [self._bound(check) for check in composite.checks] if wanted else composite.checks
        return dataclasses.replace(composite, checks=[*checks, *([self._obeys] if self._quantization else [])])

    def _obeys(self, match: Match) -> bool | Remark:
        found = next(quantization.violations_among(match.matched[::-1], self.quantization_rule, match.matched), None)
        return found is None or reject(found[1].reason)

    def _bound(self, check: Predicate) -> Predicate:
        if not _takes_options(check):
            return check

        @functools.wraps(check)
        def with_options(match: Match) -> Any:
            return check(match, self.options)

        return with_options

    @property
    def quantization_rules(self) -> dict[str, QuantizationRule]:
        """Return how operators are to be quantised, by their names, with the options in force.

        Raises:
            TargetError: If what was given for an operator is no rule.
        """
        return {op: self._rule_of(op) for op in self._quantization}

    def quantization_rule(self, node: Node) -> QuantizationRule | None:
        """Return how layers of a node's operator are to be quantised; None if nothing is said of it."""
        return self._rule_of(node.qualified_op) if node.qualified_op in self._quantization else None

    def _rule_of(self, op: str) -> QuantizationRule:
        given = self._quantization[op]
        rule = given
        if not isinstance(given, quantization.QuantizationRule):
            rule = given(self.options) if inspect.signature(given).parameters else given()
        if not isinstance(rule, quantization.QuantizationRule):
            raise TargetError(
                "this is no quantisation rule", where=f"target {self.name}, {op}", expected="a QuantizationRule",
                found=repr(rule),
            )  # fmt: skip
        return rule

    def rules_for(self, node: Node) -> list[OpRule]:
        """Return the operator rules that decide about ``node``, in order."""
        found = self.rules.get((node.domain, node.op)) or self.rules.get((node.domain, "*"), [])
        wanted = self.quantization_rule(node) if found and self._quantization else None
        first = node.inputs[0] if node.inputs else None
        if wanted is None or first is None or first.dtype in (*quantization.REAL, *wanted.activations):
            return found
        answer = reject(f"{first.dtype} is not among the numbers that it computes {node.op} of: {_listed(wanted)}")
        return [OpRule(found[0].name, lambda node: answer)]

    def excluded(self, graph: Graph, policy: Policy) -> dict[Node, str]:
        """Return the nodes of ``graph`` that the target may not have, and why.

        Args:
            graph: The graph.
            policy: What counts beside the target's own policy.
        """
        return self.policy.excluded(graph) | policy.excluded(graph) | self.placement.excluded(graph, self.name)

    @property
    def reads_quantized(self) -> bool:
        """Tell whether a rule or composite mentions numbers that are quantised."""
        groups = [entry for entry in self._composites if isinstance(entry, CompositeGroup)]
        needed = frozenset[Head]().union(*(either for group in groups for either in group.needs))
        if self._quantization or _CONVERSIONS & needed:
            return True
        return any(_CONVERSIONS & each.pattern.operators for entry in self._composites for each in _described(entry))

    @property
    def generates(self) -> bool:
        """Tell whether the target has a code generator."""
        return self._codegen is not None

    @property
    def checks_regions(self) -> bool:
        """Tell whether the target has region checks."""
        return bool(self._region_checks)

    def judge(self, region: Region) -> str | Split | None:
        """Return why the region checks refuse a region, where one wants it split, or None for neither.

        Raises:
            TargetError: If a check fails, or its answer is none of these.
        """
        from tinycomp.target.region import Split  # not before: few targets have checks

        where = f"region check of {self.name} at {region.label}"
        for check in self._region_checks:
            try:
                answer = check(region, self.options) if _takes_options(check) else check(region)
            except Exception as error:
                raise TargetError(f"the check failed: {type(error).__name__}: {error}", where=where) from error
            if isinstance(answer, Split):
                return _sensible(answer, region, where)
            reason = answer_reason(answer, where)
            if reason is not None:
                return reason
        return None

    def require(self) -> None:
        """Make sure that what the code generator needs is there.

        Raises:
            TargetError: If it is not; the message says what to install.
        """
        if self._requires is not None:
            self._requires()

    def build(self, region: Node) -> Any:
        """Return what the code generator makes of ``region``.

        Raises:
            TargetError: If there is no code generator, or it fails.
            Decline: If it wants the region to go elsewhere.
        """
        if self._codegen is None:
            raise TargetError(
                "the target has no code generator",
                where=f"target {self.name}",
                hint=f"Add one with @{self.name}.codegen.",
            )
        try:
            return self._asked(self._codegen, region)
        except Decline as declined:
            declined.region = region
            declined.where = f"{self.name}, region {region.op}"
            raise
        except TargetError:
            raise
        except MemoryError as error:
            raise MemoryLimitError(
                f"there is not the memory to generate code: {error}",
                where=f"{self.name}, region {region.op}",
                hint="Raise the limit of the process (ulimit -v), or compile where more memory is free.",
            ) from error
        except Exception as error:
            raise TargetError(
                f"the code generator failed: {type(error).__name__}: {error}", where=f"{self.name}, region {region.op}"
            ) from error

    @property
    def has_layouts(self) -> bool:
        """Tell whether the target asks for layouts."""
        return self._layouts is not None

    def layout(self, node: Node) -> str | None:
        """Return the layout that a node wants; None for row-major.

        Raises:
            TargetError: If the function that knows fails.
        """
        if self._layouts is None:
            return None
        try:
            answer: str | None = self._asked(self._layouts, node)
        except Exception as error:
            raise TargetError(
                f"the choice of a layout failed: {type(error).__name__}: {error}", where=f"{self.name} at {node.label}"
            ) from error
        return answer

    @property
    def has_devices(self) -> bool:
        """Tell whether the target has devices."""
        return self._opener is not None

    def open_device(self, index: int) -> Any:
        """Return the device of an index, open.

        Raises:
            TargetError: If the target has no devices.
        """
        if self._opener is None:
            raise TargetError(
                "the target has no devices", where=f"target {self.name}", hint=f"Add a @{self.name}.device function."
            )
        return self._asked(self._opener, index)

    def load(self, blob: Any) -> Any:
        """Return what the loader makes of a :class:`tinycomp.runtime.blob.Blob`: what runs the region.

        Raises:
            TargetError: If there is no loader, or it fails.
        """
        if self._loader is None:
            raise TargetError(
                "the target cannot load blobs", where=f"target {self.name}", hint=f"Add a @{self.name}.loader."
            )
        try:
            return self._asked(self._loader, blob)
        except TargetError:
            raise
        except Exception as error:
            raise TargetError(
                f"the blob does not load: {type(error).__name__}: {error}", where=f"target {self.name}"
            ) from error

    def compatible(self, version: str) -> Verdict:
        """Return what to do with a blob of this version.

        Without a function that knows, blobs of the target's own version are used, of any version if it has none, and
        others made anew.

        Raises:
            TargetError: If the function fails, or answers something else.
        """
        if self._compatibility is None:
            return "use" if self._loader is not None and self.version in (None, version) else "rebuild"
        where = f"target {self.name}, blobs of version {version}"
        try:
            answer = self._compatibility(version)
        except Exception as error:
            raise TargetError(
                f"the check of the version failed: {type(error).__name__}: {error}", where=where
            ) from error
        if answer not in get_args(Verdict):
            raise TargetError(
                "the check of the version gives no answer", where=where, expected="use, rebuild or refuse",
                found=repr(answer),
            )  # fmt: skip
        return answer

    def _asked(self, function: Codegen, about: Any) -> Any:
        """Return the answer of a function that may want the options."""
        takes_options = len(inspect.signature(function).parameters) > 1
        return function(about, self.options) if takes_options else function(about)

    def __repr__(self) -> str:
        return f"<Target {self.name}>"


# Composites that are described on demand ----------------------------------------------------------------------------


def _names(entry: Composite | CompositeGroup) -> tuple[str, ...]:
    return entry.names if isinstance(entry, CompositeGroup) else (entry.name,)


def _described(entry: Composite | CompositeGroup) -> Sequence[Composite]:
    return entry.composites if isinstance(entry, CompositeGroup) else (entry,)


def add_on_demand(target: Target, names: str, needs: Sequence[Sequence[Head]], add: Callable[[Target], object]) -> None:
    """Let ``add`` add composites to ``target`` once there is a graph that they may match in.

    Args:
        target: The target; the composites come behind those that it has.
        names: What they are called, in their order, separated by spaces.
        needs: Every match of each of them holds one operator out of every set.
        add: Adds them to the target that it is given, which has nothing else.
    """

    def describe() -> Sequence[Composite]:
        apart = Target(target.name)
        add(apart)
        return apart.composites

    target._composites.append(CompositeGroup(names.split(), needs, describe))


def composites_for(target: Target, graph: Graph) -> list[Composite]:
    """Return the composites of a target that may match in a graph, in the order in which they are tried."""
    held = {(node.domain, node.op) for node in graph.nodes}
    entries = (e for e in target._composites if not isinstance(e, CompositeGroup) or e.may_match(held))
    return [target._knowing(composite) for entry in entries for composite in _described(entry)]
