"""Operator records: what is true of an operator on every machine, in one place.

A family file (``ops/conv.py``, ``ops/reduction.py``, …) makes one :class:`OpFamily` and adds its kernels with a
decorator; the function's signature mirrors the operator: positional parameters are the ONNX inputs in order
(an absent optional input arrives as ``None``), keyword-only parameters are the ONNX attributes with ONNX's defaults::

    FAMILY = OpFamily("activation")

    @FAMILY.op("LeakyRelu", traits={"elementwise"})
    def leaky_relu(x, *, alpha=0.01): ...

    FAMILY.infer("LeakyRelu")(same_as_first)

The file and its operators are listed in :mod:`tinycomp.index`, by which it is found when one of them is asked for.

Kernels never change their inputs and return one array, or a tuple of them, with exactly the dtypes that ONNX asks for.
A kernel that behaves differently from some opset on is registered once per behaviour, with ``since=``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from tinycomp.errors import ModelError, did_you_mean
from tinycomp.ir.graph import Node
from tinycomp.ir.types import Type
from tinycomp.ops.rule import Rule, Sizes
from tinycomp.records import dataclass, field
from tinycomp.symbolic import Size

FLOATS = frozenset({"float16", "float32", "float64"})
NUMBERS = FLOATS | {"int32", "int64"}
ANY_NUMBER = 1 << 30
"""More operands than any node has."""

Kernel = Callable[..., Any]
BodyRule = Callable[[Node], tuple[list[Type], list[Type]]]
MacCount = Callable[[Node], Size]
RowBound = Callable[[Node], Size | None]
ObjectRule = Callable[[Node], "Callable[[Any], Any] | None"]
"""Gives the function that makes a node's result: see :meth:`OpFamily.objects`."""
ContentsRule = Callable[[Node, Sequence[Type], "OpRecord | None"], Sequence[Sizes | None]]
"""Gives the elements of a node's results from the types of these: see :mod:`tinycomp.ops.contents`."""
_K = TypeVar("_K", bound=Kernel)
_R = TypeVar("_R", bound=Rule)

TRAITS = MappingProxyType(
    {
        "elementwise": "output element i depends on (broadcast) input elements i only; works on any memory layout",
        "commutative": "operands may stand in any order",
        "cheap": "pure and cheap enough to be computed twice, so that each consumer may own a copy",
        "movement": "copies elements without computing",
        "silent": "computes nothing that numpy would warn of, so that no run need ask it for silence",
        "structural": "no computation at inference; never cuts a region (Identity, Dropout, StopFusion)",
        "random": "two runs may differ; never folded or merged with an equal node",
        "output_count": "the kernel takes the number of wanted outputs as the keyword `outputs`",
        "inexact_definition": "ONNX's function body overflows or cancels where the operator need not; never expanded",
        "bodies": "attributes hold graphs, which the kernel receives as callables, with the keyword `captures`",
        "view": "gives the elements of its first operand in their order under another shape",
        "product": "multiplies its first operand, data, by its second one, weights, and may add a third one",
        "integer_product": "multiplies integers less their zero points, and gives integers",
        "selection": "gives elements of its first operand alone, in any order, some perhaps not or several times",
        "strided": "its kernel gives a view, which takes no memory, however often it repeats an element",
        "quantization": "rounds to integers of some scale, or scales them back",
        "window": "a window slides over the spatial axes of its first operand; has pads and auto_pad",
        "pool": "gives one number for windows, or for all of the space, of each channel",
        "mean": "gives means of its first operand's elements",
        "reduction": "gives one number for all elements along axes, which may go or stay",
        "along_axis": "computes each line along the attribute `axis` by itself",
        "per_image": "computes each element of the first axis, the batch, by itself",
        "function": "a function of one number, applied to each element of its first operand",
        "clamp": "limits numbers from below or above, so that a layer before it can do so",
        "handle": "takes apart or puts together sequences and optionals, and touches no element",
        "checked": "sizes of results that data decide may be declared: whoever computes them compares",
        "control_flow": "runs its bodies as often as its operands say",
        "stacking": "stacks what its body returns in each run",
        "measure": "tells sizes of its operand, and reads none of its elements",
    }
)


@dataclass(frozen=True)
class OpRecord:
    """What tinycomp knows about one operator from one opset version on.

    Attributes:
        name: Operator name, such as ``Conv``.
        domain: Operator domain; ``""`` is ONNX's own.
        since: First operator version that this record describes.
        kernel: The numpy kernel, or None where ``onnx.reference`` serves.
        body_rule: Types of the inputs (captured ones left out) and of the results of each body, where all bodies of a
            node have the same and none changes the types of the node's results; control flow has rules of its own.
        macs: Multiply-accumulate operations of a node; None means zero.
        traits: Names out of :data:`TRAITS`.
        family: The family file the record comes from.
        row_bound: Where the size of one dimension of the results depends on data: the most that it may be, or None
            where sizes are not known that it follows from.
        row_axis: Which dimension that is.
        passed: The attributes that the kernel takes in one dictionary, beside those that it names.
    """

    name: str
    domain: str = ""
    since: int = 1
    kernel: Kernel | None = None
    macs: MacCount | None = None
    traits: frozenset[str] = frozenset()
    family: str = ""
    body_rule: BodyRule | None = None
    row_bound: RowBound | None = None
    row_axis: int = 0
    passed: frozenset[str] = frozenset()

    def bind(self, attrs: Mapping[str, Any], outputs: int = 1, where: str = "") -> Kernel:
        """Return the kernel with its attributes filled in, as a function of the input arrays.

        Raises:
            ModelError: If an attribute is not one of this operator's.
        """
        assert self.kernel is not None, self.name
        known = _keywords(self.kernel, self.passed)
        for name in attrs:
            if known is not None and name not in known:
                raise ModelError(
                    f'operator {self.name} has no attribute "{name}"',
                    where=where,
                    expected=f"one of {sorted(known)}",
                    hint=did_you_mean(name, known),
                )
        extra = {"outputs": outputs} if "output_count" in self.traits else {}
        return functools.partial(self.kernel, **attrs, **extra)


@functools.cache
def _keywords(kernel: Kernel, passed: frozenset[str]) -> frozenset[str] | None:
    """Return the attributes that a kernel knows by name; None for one that takes all, and reads them itself."""
    parameters = inspect.signature(kernel).parameters.values()
    if not passed and any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return passed.union(p.name for p in parameters if p.kind is p.KEYWORD_ONLY) - {"outputs"}


@dataclass
class Operator:
    """What a family says of one operator.

    Attributes:
        records: One per version from which on it behaves differently, the newest first.
        objects: What makes its result where that is a Python object.
        infer: Its rule; see :mod:`tinycomp.ops.rule`.
        sizing: The operands whose elements say how large results are, which part is taken, or along which axes.
        contents: What follows from sizes about the elements of its results.
        traits: Names out of :data:`TRAITS` that hold for all versions.
        zero_points: Of an operator that multiplies integers, the operands that hold them, and where their zero points
            stand.
    """

    records: list[OpRecord] = field(default_factory=list)
    objects: ObjectRule | None = None
    infer: Rule | None = None
    sizing: tuple[int, ...] = ()
    contents: ContentsRule | None = None
    traits: frozenset[str] = frozenset()
    zero_points: Mapping[int, int] = field(default_factory=dict)


class OpFamily:
    """What one family file says of its operators, filled by its decorators while the file is imported.

    Args:
        name: The name of the file.

    Attributes:
        operators: By domain and name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.operators: dict[tuple[str, str], Operator] = {}

    def _of(self, name: str, domain: str = "") -> Operator:
        return self.operators.setdefault((domain, name), Operator())

    def op(
        self,
        *names: str,
        domain: str = "",
        since: int = 1,
        traits: Iterable[str] = (),
        macs: MacCount | None = None,
        body_rule: BodyRule | None = None,
        row_bound: RowBound | None = None,
        row_axis: int = 0,
        passed: frozenset[str] = frozenset(),
    ) -> Callable[[_K], _K]:
        """Register the decorated function as the numpy kernel of ``names``."""
        chosen = frozenset(traits)
        assert chosen <= TRAITS.keys(), chosen - TRAITS.keys()

        def register(kernel: _K) -> _K:
            for name in names:
                records = self._of(name, domain).records
                assert all(record.since != since for record in records), f"{name} is registered twice"
                records.append(OpRecord(name, domain, since, kernel, macs, chosen, self.name, body_rule, row_bound,
                                        row_axis, passed))  # fmt: skip
                records.sort(key=lambda record: -record.since)
            return kernel

        return register

    def trait(self, trait: str, *names: str, domain: str = "") -> None:
        """State that a trait holds for all versions of ``names``; the index lists them by it."""
        assert trait in TRAITS, trait
        for name in names:
            self._of(name, domain).traits |= {trait}

    def zero_points(self, name: str, points: Mapping[int, int]) -> None:
        """State which operands of an operator hold the integers that it multiplies, and where their zero points are."""
        self._of(name).zero_points = points

    def infer(
        self, *names: str, domain: str = "", sizing: tuple[int, ...] = (), contents: ContentsRule | None = None
    ) -> Callable[[_R], _R]:
        """Register the decorated function as the rule of all versions of ``names``: see :mod:`tinycomp.ops.rule`.

        Args:
            names: Operators.
            domain: Their domain.
            sizing: The operands whose elements say how large results are, which part is taken, or along which axes.
            contents: What follows from sizes about the elements of results: see :mod:`tinycomp.ops.contents`.
        """

        def register(rule: _R) -> _R:
            for name in names:
                operator = self._of(name, domain)
                assert operator.infer is None, f"{name} has two rules"
                operator.infer, operator.sizing, operator.contents = rule, sizing, contents
            return rule

        return register

    def objects(self, *names: str, domain: str = "") -> Callable[[ObjectRule], ObjectRule]:
        """Register the decorated function as what finds a shorter way to results of ``names`` that are Python objects.

        For nodes whose only result they are, it returns a function of the only operand that is no constant, an array
        in contiguous memory. That makes the same objects as the kernel, new in every call, or returns None, and the
        kernel says what is wrong.
        """

        def register(rule: ObjectRule) -> ObjectRule:
            for name in names:
                self._of(name, domain).objects = rule
            return rule

        return register


class OpTable:
    """Answer questions about operators.

    Attributes:
        operators: What the families say, by domain and name; see :class:`tinycomp.lazy.LazyTable`.
    """

    def __init__(self, operators: Mapping[tuple[str, str], Operator]) -> None:
        self.operators = operators

    def of(self, name: str, domain: str = "") -> Operator | None:
        """Return what is said of an operator, or None."""
        return self.operators.get((domain, name))

    def find(self, name: str, domain: str = "", version: int = 1 << 30) -> OpRecord | None:
        """Return the record in force at ``version``, or None."""
        operator = self.of(name, domain)
        for record in () if operator is None else operator.records:
            if record.since <= version:
                return record
        return None

    def all(self) -> list[OpRecord]:
        """Return every record, sorted by domain, name and version; that imports all families."""
        return [record for key in sorted(self.operators) for record in reversed(self.operators[key].records)]


def heads(names: str) -> list[tuple[str, str]]:
    """Return domains and names of the operators in a text such as ``"Conv com.vendor::Op"``."""
    parts = (name.rpartition("::") for name in names.split())
    return [(domain, name) for domain, _, name in parts]
