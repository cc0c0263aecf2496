"""Operator records: what is true of an operator on every machine, in one place.

A family file (``ops/conv.py``, ``ops/reduction.py``, …) makes one :class:`OpFamily` and adds its kernels with a
decorator; the function's signature mirrors the operator: positional parameters are the ONNX inputs in order
(an absent optional input arrives as ``None``), keyword-only parameters are the ONNX attributes with ONNX's defaults::

    FAMILY = OpFamily("activation")

    @FAMILY.op("LeakyRelu", traits={"elementwise"})
    def leaky_relu(x, *, alpha=0.01): ...

Kernels never change their inputs and return one array, or a tuple of them, with exactly the dtypes that ONNX asks for.
A kernel that behaves differently from some opset on is registered once per behaviour, with ``since=``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

from tinycomp.errors import ModelError, did_you_mean
from tinycomp.ir.graph import Node
from tinycomp.ir.types import Dim

if TYPE_CHECKING:
    from tinycomp.ir.types import Type


Kernel = Callable[..., Any]
TypeRule = Callable[["Node"], "list[Type]"]
BodyRule = Callable[["Node"], "tuple[list[Type], list[Type]]"]
MacCount = Callable[["Node"], int]
RowBound = Callable[["Node"], "int | None"]
_K = TypeVar("_K", bound=Kernel)

TRAITS = MappingProxyType(
    {
        "elementwise": "output element i depends on (broadcast) input elements i only; works on any memory layout",
        "commutative": "the first two operands may be swapped",
        "cheap": "pure and cheap enough to be computed twice, so that each consumer may own a copy",
        "movement": "copies elements without computing",
        "structural": "no computation at inference; never cuts a region (Identity, Dropout, StopFusion)",
        "random": "two runs may differ; never folded or merged with an equal node",
        "output_count": "the kernel takes the number of wanted outputs as the keyword `outputs`",
        "inexact_definition": "ONNX's function body overflows or cancels where the operator need not; never expanded",
        "bodies": "attributes hold graphs, which the kernel receives as callables, with the keyword `captures`",
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
        type_rule: Output types from a node, where onnx's own inference is not enough.
        body_rule: Types of the inputs (captured ones left out) and of the results of each body, where all bodies of a
            node have the same and none changes the types of the node's results; control flow has rules of its own.
        macs: Multiply-accumulate operations of a node; None means zero.
        traits: Names out of :data:`TRAITS`.
        family: The family file the record comes from.
        row_bound: Where the size of the results' first dimension depends on data: the most that it may be, or None
            where sizes are not known that it follows from.
    """

    name: str
    domain: str = ""
    since: int = 1
    kernel: Kernel | None = None
    type_rule: TypeRule | None = None
    macs: MacCount | None = None
    traits: frozenset[str] = frozenset()
    family: str = ""
    body_rule: BodyRule | None = None
    row_bound: RowBound | None = None

    def bind(self, attrs: Mapping[str, Any], outputs: int = 1, where: str = "") -> Kernel:
        """Return the kernel with its attributes filled in, as a function of the input arrays.

        Raises:
            ModelError: If an attribute is not one of this operator's.
        """
        assert self.kernel is not None, self.name
        known = _keywords(self.kernel)
        for name in attrs:
            if name not in known:
                raise ModelError(
                    f'operator {self.name} has no attribute "{name}"',
                    where=where,
                    expected=f"one of {sorted(known)}",
                    hint=did_you_mean(name, known),
                )
        extra = {"outputs": outputs} if "output_count" in self.traits else {}
        return functools.partial(self.kernel, **attrs, **extra)


@functools.cache
def _keywords(kernel: Kernel) -> frozenset[str]:
    parameters = inspect.signature(kernel).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY) - {"outputs"}


@dataclass
class OpFamily:
    """The records of one family file, filled by its decorators while the file is imported."""

    name: str
    records: list[OpRecord] = field(default_factory=list)

    def op(
        self,
        *names: str,
        domain: str = "",
        since: int = 1,
        traits: Iterable[str] = (),
        macs: MacCount | None = None,
        type_rule: TypeRule | None = None,
        body_rule: BodyRule | None = None,
        row_bound: RowBound | None = None,
    ) -> Callable[[_K], _K]:
        """Register the decorated function as the numpy kernel of ``names``."""
        chosen = frozenset(traits)
        assert chosen <= TRAITS.keys(), chosen - TRAITS.keys()

        def register(kernel: _K) -> _K:
            self.records += [
                OpRecord(name, domain, since, kernel, type_rule, macs, chosen, self.name, body_rule, row_bound)
                for name in names
            ]
            return kernel

        return register

    def declare(
        self,
        *names: str,
        domain: str = "",
        since: int = 1,
        traits: Iterable[str] = (),
        macs: MacCount | None = None,
        type_rule: TypeRule | None = None,
    ) -> None:
        """Record facts about operators whose kernel is the reference's."""
        chosen = frozenset(traits)
        assert chosen <= TRAITS.keys(), chosen - TRAITS.keys()
        self.records += [OpRecord(name, domain, since, None, type_rule, macs, chosen, self.name) for name in names]


class OpTable:
    """An immutable index of records by domain, name and version."""

    def __init__(self, families: Iterable[OpFamily]) -> None:
        index: dict[tuple[str, str], list[OpRecord]] = {}
        for family in families:
            for record in family.records:
                index.setdefault((record.domain, record.name), []).append(record)
        for records in index.values():
            records.sort(key=lambda r: r.since, reverse=True)
            assert len({r.since for r in records}) == len(records), f"{records[0].name} is registered twice"
        self._index = index

    def find(self, name: str, domain: str = "", version: int = 1 << 30) -> OpRecord | None:
        """Return the record in force at ``version``, or None."""
        for record in self._index.get((domain, name), ()):
            if record.since <= version:
                return record
        return None

    def all(self) -> list[OpRecord]:
        """Return every record, sorted by domain, name and version."""
        return [record for key in sorted(self._index) for record in reversed(self._index[key])]


Shape = tuple[Dim, ...]
Operand = tuple[str, Shape]
"""The dtype and dimensions of a dense tensor that lies row by row."""
FLOATS = frozenset({"float16", "float32", "float64"})
NUMBERS = FLOATS | {"int32", "int64"}
ANY_NUMBER = 1 << 30
"""More operands than any node has."""


class PlainTypeRule(NamedTuple):
    """How the type of a result follows from the operands; the least number of them is there, others may be absent."""

    type_of_result: Callable[[Node, Sequence[Operand]], Operand | None]
    least: int = 1
    most: int = 1
    since: int = 1
    dtypes: frozenset[str] | None = FLOATS
    """What the operands may be, all of one dtype; None where the rule itself sees to the dtypes."""


def is_known(dim: Dim) -> TypeGuard[int]:
    """Whether a dimension is a number."""
    return isinstance(dim, int)


def fit(a: Dim, b: Dim) -> bool:
    """Whether two dimensions may be equal."""
    return a == b or not (is_known(a) and is_known(b))
