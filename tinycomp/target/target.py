"""Targets: composites, operator rules, a code generator and options, as one description."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Sequence, Sized
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, get_args, overload

import numpy as np

from tinycomp.arguments import checked, checked_fields
from tinycomp.errors import MemoryLimitError, TargetError, shown
from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node
from tinycomp.lazy import LazyModule
from tinycomp.ops.signatures import unknown_operator
from tinycomp.quantized import Rounding
from tinycomp.records import dataclass
from tinycomp.rewrite import Composite, Match, Remark, reject
from tinycomp.rewrite.composites import CompositeGroup
from tinycomp.rewrite.pattern import Head
from tinycomp.target.decline import Decline, are_errors, refused
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
"""Returns True or None for yes, ``reject("reason")`` or False for no; may take the options as a second parameter."""
Codegen = Callable[..., Any]
"""Takes a region and, if it has a second parameter, the options of the target."""
RegionCheck = Callable[..., Any]
"""Returns for a :class:`Region` what a predicate returns, or a :func:`split`; may take the options as well."""
Verdict = Literal["use", "rebuild", "refuse"]
"""How to treat a blob of some version: load it, let the code generator make another, or raise an error."""


class Legalizing(Protocol):
    """Rewrite a layer that a target refuses: a pass of :mod:`tinycomp.passes.legalize`."""

    name: ClassVar[str]

    def starts_at(self, node: Node) -> bool:
        """Tell whether the pass may start at a node."""

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite the layer of one operator; return whether that was possible."""


_CONVERSIONS = frozenset([("", name) for name in named("quantization")])
_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R", bound="QuantizationRule | Callable[..., QuantizationRule]")


@checked_fields(least={"rtol": 0, "atol": 0, "steps": 0})
@dataclass(frozen=True, slots=True)
class Tolerance:
    """Limit how far a region's results may differ from the reference.

    Attributes:
        rtol: The relative difference.
        atol: The absolute difference; for integers, the number of steps.
        steps: How many steps the stored results of one quantised layer may differ, given equal data.
    """

    rtol: float = 1e-3
    atol: float = 1e-5
    steps: int = 1


@dataclass(frozen=True, slots=True)
class OpRule:
    """Hold one operator rule of a target.

    Attributes:
        name: Name for reports, such as ``npu.Add``.
        predicate: Decides about one node; None accepts every node.
        options: The options to pass to the predicate; None if it does not take them.
        falls_back: Whether the rule does not accept nodes for which the predicate fails.
    """

    name: str
    predicate: Predicate | None = None
    options: Any = None
    falls_back: bool = False

    def refusal(self, node: Node) -> str | None:
        """Return why the rule does not accept ``node``, or None if it does.

        Raises:
            TargetError: If the predicate fails, or its answer is neither yes nor no.
        """
        if self.predicate is None:
            return None
        try:
            answer = self.predicate(node) if self.options is None else self.predicate(node, self.options)
        except Exception as error:
            if self.falls_back and not are_errors():
                return refused(error, f"{self.name} at {node.label}").reason
            raise TargetError(
                f"the operator rule failed: {type(error).__name__}: {error}",
                where=f"{self.name} at {node.label}",
                hint='A rule returns True or reject("reason"); types may be symbolic or unknown, operands None.',
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
        found=shown(answer),
    )


def _listed(rule: QuantizationRule) -> str:
    return " or ".join(rule.activations) or "real numbers"


def _takes_options(predicate: Predicate | None) -> bool:
    """Tell whether a predicate has a second parameter without a default."""
    code: types.CodeType | None = getattr(predicate, "__code__", None)
    if code is None or code.co_argcount < 2:  # the usual case first, because this runs for every rule
        return False
    defaults: Sized = getattr(predicate, "__defaults__", None) or ()
    return code.co_argcount - inspect.ismethod(predicate) - len(defaults) > 1


def _falling_back(check: Predicate, name: str) -> Predicate:
    """Return a check that refuses the matches for which ``check`` fails."""

    @functools.wraps(check)
    def checked(match: Match) -> Any:
        try:
            return check(match)
        except Exception as error:
            return refused(error, f"{name} at {match.root.label}")

    return checked


def _checked_split(answer: Split, region: Region, where: str) -> Split:
    """Return a split of which both sides have nodes.

    Raises:
        TargetError: If a side would be empty.
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
    """Describe which nodes can run on some backend, and how code is generated for them.

    Args:
        name: Name for options, reports and symbols.
        bind_constants: Whether constants become part of a region's body; otherwise they become parameters.
        claims_structural: Whether Identity, StopFusion and the like are claimed if they lie between two nodes of the
            target.
        tolerance: The tolerance for comparisons of its regions with the reference.
        policy: The conditions that make a region worth offloading.
        description: One line for ``tinycomp targets``.
        requires: A function that raises a TargetError if the code generator lacks something on this machine; it is
            called before anything is compiled.
        programs: Whether the code generator returns Programs, which say what a run reads of the constants. Only then
            may constants lie in the model's file, at any address, while a region is built.
        static_shapes: Whether the code generator needs to know every size. A region with symbolic dimensions is then
            built for each set of sizes at run time, and the last 16 are kept.
        buckets: Numbers of rows, such as ``(1, 8, 32)``, for which regions are built that compute row by row. Missing
            rows are padded, and more rows than the largest number run in parts. Other regions are built for each set
            of sizes, as with ``static_shapes``.
        canonical: Whether the target takes the simplified form of everything that it takes; then no original form is
            kept for it.
        options: A frozen dataclass whose fields are the target's options, see :mod:`tinycomp.target.options`.
        legalize: Passes of :mod:`tinycomp.passes.legalize`, such as ``DecomposeStrides(3)``. Each expresses a layer in
            other operators, if the target refuses the layer and takes these.
        requantize: How the integer sums of quantised layers become 8-bit numbers: by a float32 factor (``"float"``), or
            by TFLite's 31-bit multiplier and shift (``"fixed_point"``). The reference rounds alike.
        cost: The cost of work on the target. If all targets of a compilation have a cost, the cheapest placement
            decides between them and the host; otherwise their order does.
        version: The version of the code generator. If it is given, blobs are kept in the user's cache, so that the
            same region is compiled only once, and modules can be kept as well; change it whenever the code generator
            returns something else.

    Attributes:
        options: The options in force; None if the target declares none.
        placement: Where the user of a compilation wants nodes to run; see :meth:`under`.
        widens_half: Whether float16 and bfloat16 are offered to the target as float32 between conversions, see
            :class:`tinycomp.passes.widen_half.WidenHalf`; False by default.
        falls_back: Whether nodes that its rules or its code generator fail at go to the next target, with a warning;
            False by default: the compilation fails. See :mod:`tinycomp.target.decline`.

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

    @checked("options", error=TargetError)
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
        requantize: Rounding = "float",
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
                found=shown(buckets),
            )
        self.buckets = tuple(sorted(set(buckets)))
        self.static_shapes = static_shapes or bool(buckets)
        self.canonical = canonical
        self.legalize = tuple(legalize)
        self.widens_half = False
        self.falls_back = False
        self.cost = cost
        if requantize not in get_args(Rounding):
            raise TargetError(
                "not a way to requantise sums", where=f"target {name}, requantize",
                expected=" or ".join(get_args(Rounding)), found=shown(requantize),
            )  # fmt: skip
        self._requantize: Rounding = requantize
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
        """Let the decorated predicate decide about operators such as ``"Add"`` or ``"com.vendor::Op"``.

        Several rules for one operator are tried in order; ``"*"`` means all operators of a domain without rules.
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
            rule = OpRule(f"{self.name}.{op}", predicate, options, self.falls_back)
            self.rules.setdefault((domain, name), []).append(rule)

    def _named(self, ops: tuple[str, ...], method: str) -> list[tuple[str, str]]:
        """Return the domains and names of the operators that a rule is for."""
        if not ops or not all(isinstance(op, str) and op for op in ops):
            raise TargetError(
                "an operator rule names no operator",
                where=f"target {self.name}",
                found=shown(ops),
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

        It returns a :class:`QuantizationRule`, and may take the options of the target; a rule can also be given
        directly. :func:`tinycomp.quantize` follows the rules of ``target=``. A match of a composite is refused if one
        of its layers breaks a rule, and an operator is refused on stored numbers of other dtypes;
        ``report.violations()`` names such layers. If there are rules at all, operators without one stay in float.
        """

        def register(rule: _R) -> _R:
            for domain, name in self._named(ops, "quantization"):
                if name == "*":
                    raise TargetError(
                        "a quantisation rule needs the names of its operators", where=f"target {self.name}",
                        expected='names such as "Conv"', found=shown(ops),
                    )  # fmt: skip
                self._quantization[f"{domain}::{name}" if domain else name] = rule
            return rule

        return register

    def codegen(self, function: _F) -> _F:
        """Make the decorated function the code generator, which turns a region into code.

        It returns a program, C source, a blob, a device program, or a callable. If it has a second parameter, it also
        gets the options of the target.
        """
        self._codegen = function
        return function

    def loader(self, function: _F) -> _F:
        """Let the decorated function load blobs: it returns a function of one array per operand of the region.

        If it has a second parameter, it also gets the options of the target.
        """
        self._loader = function
        return function

    def layouts(self, function: _F) -> _F:
        """Let the decorated function choose the layout of a node's data and results.

        It gets a node of a region, an operator or a composite, and the options if it has a second parameter. It returns
        a name such as ``"NCHW8c"`` or ``"NHWC16"`` (:mod:`tinycomp.ir.blocked`), or None for row-major. Values enter
        and leave regions in that layout, and pass between regions without conversion.
        """
        self._layouts = function
        return function

    def device(self, function: _F) -> _F:
        """Let the decorated function open devices: it gets an index from 0 on, and returns a ``tinycomp.Device``.

        Regions for which the code generator returns a ``DeviceProgram`` run there. The function is called for every
        device of a module when the module first runs. If it has a second parameter, it also gets the options of the
        target.
        """
        self._opener = function
        return function

    def compatibility(self, function: _F) -> _F:
        """Let the decorated function decide about a blob by its version: "use", "rebuild" or "refuse" it."""
        self._compatibility = function
        return function

    def region_check(self, function: _F) -> _F:
        """Let the decorated function check every finished :class:`Region` of the target before it is outlined.

        It returns True or None for yes, ``reject("why")`` for no, or ``split(value, reason="why")`` to have the region
        split at a value. The nodes of a refused region go to the next target, and in the end to the host. Several
        checks are asked in order; one with a second parameter also gets the options of the target.
        """
        self._region_checks.append(function)
        return function

    def with_options(self, **values: Any) -> Target:
        """Return an independent copy of the target with other options.

        Raises:
            OptionError: If an option does not exist or does not take the value.
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
    def requantize(self) -> Rounding:
        """Return how sums of quantised layers become 8-bit numbers, which the options may set."""
        return getattr(self.options, "requantize", None) or self._requantize

    @property
    def tolerance(self) -> Tolerance:
        """Return the tolerance of comparisons with the reference, which the options may set."""
        return getattr(self.options, "tolerance", None) or self._tolerance

    def under(self, policy: Policy | None, placement: Placement) -> Target:
        """Return the target for one compilation, with the user's placement and, if given, another policy."""
        made = self._configured(self.options)
        made.policy, made.placement = policy or self.policy, placement
        return made

    def for_plan(self, threads: int) -> Target:
        """Return the target with its options prepared for the regions of one plan that runs on so many threads.

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
        """Return the composites in the order in which they are tried, with checks bound to the options in force."""
        return [self._knowing(composite) for entry in self._composites for composite in _described(entry)]

    @composites.setter
    def composites(self, composites: list[Composite]) -> None:
        self._composites = [*composites]

    def _knowing(self, composite: Composite) -> Composite:
        """Return a composite with its checks bound to the options, and with a check of the quantisation rules."""
        wanted = self.options is not None and any(map(_takes_options, composite.checks))
        if not wanted and not self._quantization and not self.falls_back:
            return composite
        checks = [self._bound(check) for check in composite.checks] if wanted else composite.checks
        if self.falls_back:
            checks = [_falling_back(check, composite.qualified_name) for check in checks]
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
        """Return the quantisation rules by operator, with the options in force.

        Raises:
            TargetError: If something else than a rule was given for an operator.
        """
        return {op: self._rule_of(op) for op in self._quantization}

    def quantization_rule(self, node: Node) -> QuantizationRule | None:
        """Return the quantisation rule of a node's operator, or None if there is none."""
        return self._rule_of(node.qualified_op) if node.qualified_op in self._quantization else None

    def _rule_of(self, op: str) -> QuantizationRule:
        given = self._quantization[op]
        rule = given
        if not isinstance(given, quantization.QuantizationRule):
            rule = given(self.options) if inspect.signature(given).parameters else given()
        if not isinstance(rule, quantization.QuantizationRule):
            raise TargetError(
                "not a quantisation rule", where=f"target {self.name}, {op}", expected="a QuantizationRule",
                found=shown(rule),
            )  # fmt: skip
        return rule

    def rules_for(self, node: Node) -> list[OpRule]:
        """Return the operator rules that decide about ``node``, in order."""
        found = self.rules.get((node.domain, node.op)) or self.rules.get((node.domain, "*"), [])
        wanted = self.quantization_rule(node) if found and self._quantization else None
        first = node.inputs[0] if node.inputs else None
        if wanted is None or first is None or first.dtype in (*quantization.REAL, *wanted.activations):
            return found
        answer = reject(f"it does not compute {node.op} of {first.dtype}, only of {_listed(wanted)}")
        return [OpRule(found[0].name, lambda node: answer)]

    def excluded(self, graph: Graph, policy: Policy) -> dict[Node, str]:
        """Return the nodes of ``graph`` that the target may not have, with the reasons.

        Args:
            graph: The graph.
            policy: A policy that applies beside the target's own.
        """
        return self.policy.excluded(graph) | policy.excluded(graph) | self.placement.excluded(graph, self.name)

    @property
    def reads_quantized(self) -> bool:
        """Tell whether a rule or composite mentions quantised numbers."""
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
        """Return the reason if a region check refuses a region, the split if one asks for it, or None.

        Raises:
            TargetError: If a check fails, or its answer is none of these.
        """
        from tinycomp.target.region import Split  # imported here, because few targets have checks

        where = f"region check of {self.name} at {region.label}"
        for check in self._region_checks:
            try:
                answer = check(region, self.options) if _takes_options(check) else check(region)
            except Exception as error:
                raise TargetError(f"the check failed: {type(error).__name__}: {error}", where=where) from error
            if isinstance(answer, Split):
                return _checked_split(answer, region, where)
            reason = answer_reason(answer, where)
            if reason is not None:
                return reason
        return None

    def require(self) -> None:
        """Make sure that the code generator can work on this machine.

        Raises:
            TargetError: If it cannot; the message says what to install.
        """
        if self._requires is not None:
            self._requires()

    def build(self, region: Node) -> Any:
        """Call the code generator for a region.

        Raises:
            TargetError: If there is no code generator, or it fails.
            Decline: If it declines the region.
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
                f"there is not enough memory to generate code: {error}",
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
            TargetError: If the target's function fails.
        """
        if self._layouts is None:
            return None
        try:
            answer: str | None = self._asked(self._layouts, node)
        except Exception as error:
            raise TargetError(
                f"choosing a layout failed: {type(error).__name__}: {error}", where=f"{self.name} at {node.label}"
            ) from error
        return answer

    @property
    def has_devices(self) -> bool:
        """Tell whether the target has devices."""
        return self._opener is not None

    def open_device(self, index: int) -> Any:
        """Open the device with an index.

        Raises:
            TargetError: If the target has no devices.
        """
        if self._opener is None:
            raise TargetError(
                "the target has no devices", where=f"target {self.name}", hint=f"Add a @{self.name}.device function."
            )
        return self._asked(self._opener, index)

    def load(self, blob: Any) -> Any:
        """Call the loader for a :class:`tinycomp.runtime.blob.Blob`; return what runs the region.

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

        If the target has no function for that, blobs of its own version are used, or of any version if it has none, and
        others are rebuilt.

        Raises:
            TargetError: If the function fails, or returns something else.
        """
        if self._compatibility is None:
            return "use" if self._loader is not None and self.version in (None, version) else "rebuild"
        where = f"target {self.name}, blobs of version {version}"
        try:
            answer = self._compatibility(version)
        except Exception as error:
            raise TargetError(
                f"the compatibility function failed: {type(error).__name__}: {error}", where=where
            ) from error
        if answer not in get_args(Verdict):
            raise TargetError(
                "the compatibility function gives no answer", where=where, expected="use, rebuild or refuse",
                found=shown(answer),
            )  # fmt: skip
        return answer

    def _asked(self, function: Codegen, about: Any) -> Any:
        """Call a function, with the options if it has a second parameter."""
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
    """Let ``add`` add composites to ``target`` as soon as a graph comes in which they may match.

    Args:
        target: The target; the composites come after those that it has.
        names: The names of the composites in order, separated by spaces.
        needs: Sets of operators; every match of each composite holds an operator of every set.
        add: A function that adds the composites to the target passed to it, which is empty.
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
