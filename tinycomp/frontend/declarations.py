"""What a model declares of its values, and how far it is believed.

What follows from the operands of a node outweighs every declaration: exporters leave behind what was true of one batch,
of a version of the model before, or of another name. A declaration counts where inference knows nothing. What other
nodes rely on is then a condition of each run: the node ``tinycomp::Declared`` compares. What nothing reads is what the
run shows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, Set

from tinycomp.errors import ModelError, TinycompWarning, TypeInferenceError
from tinycomp.frontend.naming import reads
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.messages import GraphProto, NodeProto
from tinycomp.ir.proto import type_from_proto
from tinycomp.ir.types import (
    UNKNOWN,
    Dim,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    compatible,
    inform,
    map_tensors,
    present,
    substitute,
    tensor,
    without_shape,
)
from tinycomp.lazy import cached_property
from tinycomp.ops import is_opaque, traits_of
from tinycomp.records import dataclass, field
from tinycomp.symbolic import Expression, bounds, has_elements, size


@dataclass
class Declarations:
    """How far declared types of inner values and results are believed, and what was found wrong with them.

    Attributes:
        claims: Whether sizes that only the model declares are believed.
        stale: Whether the caller has given inputs shapes that the model contradicts, so that other declared sizes are
            out of date as well.
        nodes: The nodes of the model.
        names: The names of dimensions that stand for a size already.
        ignored: What to say of each declared shape that cannot be right.
        claimed: The values of which sizes are believed on condition that each run finds them.
    """

    claims: bool = True
    stale: bool = False
    nodes: Sequence[NodeProto] = ()
    names: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)

    @classmethod
    def beside(
        cls, declared: Mapping[str, Type], given: Mapping[str, TensorType], nodes: Sequence[NodeProto]
    ) -> Declarations:
        """Return how the declarations for ``nodes`` are believed beside shapes that the caller gives for inputs."""
        return cls(stale=any(not _specialises(type_, declared[name]) for name, type_ in given.items()), nodes=nodes)

    def without_claims(self) -> Declarations:
        """Return declarations that are not believed in what only they say: they may be what does not fit the rest."""
        return Declarations(claims=False, stale=self.stale, nodes=self.nodes)

    @cached_property
    def read(self) -> frozenset[str]:
        """The names of the values that nodes read."""
        return frozenset(name for node in self.nodes for name in reads(node))

    def compare(self, value: Value, declared: Type, is_outermost: bool) -> TensorType | None:
        """Let a declaration inform the type of a value, where nothing else is known of it.

        Args:
            value: The value, whose type was inferred.
            declared: What the model declares.
            is_outermost: Whether it is a value of the model's own graph. Bodies are typed anew for every operand, so
                nothing is believed of sizes in them.

        Returns:
            The sizes that only the model declares: what reads the value may rely on them if every run compares.

        Raises:
            TypeInferenceError: If the declared kind contradicts the inferred one.
            ModelError: If the declared dtype does.
        """
        _check_kind(value, declared)
        _check_dtype(value, declared)
        if self.stale:
            declared = map_tensors(declared, _without_sizes)
        elif _contradict(declared, value.type):
            self.ignored.append(f'value "{value.name}": declared as {declared}, but it is {value.type}')
        inferred = value.type
        value.type = inform(inferred, map_tensors(declared, without_shape))
        if not isinstance(declared, TensorType) or declared.shape is None or not isinstance(value.type, TensorType):
            return None
        node = value.producer
        if node is not None and is_opaque(node):
            value.type = inform(inferred, self._said(declared, _symbols_of(node)))
        elif is_outermost and value.rank == declared.rank:
            value.type = inform(value.type, self._named(declared))
        is_checked = node is not None and "checked" in traits_of(node.op, node.domain, node.version)
        if not is_outermost or not self.claims or not (is_checked or value.name in self.read):
            return None
        said = self._said(declared, frozenset())
        if is_checked and inform(value.type, said) != value.type:
            value.type = inform(value.type, said)
            return said
        return said if inform(value.type, said) != value.type else None

    def _said(self, declared: TensorType, known: Set[str]) -> TensorType:
        """Return a declared type with numbers, new names and ``known`` ones; other names are no news."""
        dims = [dim if isinstance(dim, int) or dim in known else self._new(dim) for dim in declared.shape or ()]
        return TensorType(declared.dtype, tuple(dims))

    def _named(self, declared: TensorType) -> TensorType:
        """Return a declared type with new names only, which say nothing of a size."""
        dims = [None if isinstance(dim, int) else self._new(dim) for dim in declared.shape or ()]
        return TensorType(declared.dtype, tuple(dims))

    def _new(self, dim: Dim) -> Dim:
        """Return a name of a dimension if it stands for no size yet, else None: two sizes are not equal by a name."""
        known = size(dim) if isinstance(dim, str) else None
        if not isinstance(known, Expression) or known.name is None or known.name in self.names or has_elements(known):
            return None
        self.names.add(known.name)
        return known.name

    def warn(self) -> None:
        """Warn once of the declarations that were wrong."""
        if self.ignored:
            others = len(self.ignored) - 1
            more = f", as {'is that' if others == 1 else 'are those'} of {others} more" if others else ""
            warnings.warn(f"{self.ignored[0]}; the declaration is ignored{more}", TinycompWarning, stacklevel=2)


def declared_types(proto: GraphProto, sizes: Mapping[str, int]) -> dict[str, Type]:
    """Return the types that a graph states for inner values and results, with fixed symbols filled in."""
    types = {entry.name: type_from_proto(entry.type) for entry in (*proto.value_info[:], *proto.output[:])}
    if sizes:
        types = {name: substitute(type_, sizes) for name, type_ in types.items()}
    return {name: type_ for name, type_ in types.items() if type_ is not UNKNOWN}


def check_default(name: str, type_: Type, given: Type) -> None:
    """Refuse an initializer that does not fit the input of the same name.

    Raises:
        ModelError: If dtype or shape contradict each other.
    """
    if not compatible(type_, given):
        raise ModelError(
            "the initializer does not fit the input of the same name",
            where=f'input "{name}"',
            expected=str(type_),
            found=str(given),
        )


def _specialises(given: TensorType, declared: Type) -> bool:
    """Tell whether a given shape only says what the declared one leaves open."""
    if not isinstance(declared, TensorType) or declared.shape is None or given.shape is None:
        return True
    pairs = zip(given.shape, declared.shape, strict=True)
    return all(b is None or a == b or (isinstance(a, int) and isinstance(b, str)) for a, b in pairs)


def _without_sizes(type_: TensorType) -> TensorType:
    return TensorType(type_.dtype, None if type_.shape is None else (None,) * len(type_.shape))


def _symbols_of(node: Node) -> frozenset[str]:
    """Return the names of dimensions of a node's operands."""
    sizes = [tensor(value.type).shape or () for value in node.inputs if value is not None]
    return frozenset(dim for shape in sizes for dim in shape if isinstance(dim, str))


def symbols_of(types: Iterable[Type]) -> set[str]:
    """Return the names that the dimensions of tensors are made of."""
    dims = [size(dim) for type_ in types for dim in tensor(type_).shape or () if isinstance(dim, str)]
    return {name for dim in dims if isinstance(dim, Expression) for name in dim.symbols}


def _check_kind(value: Value, declared: Type) -> None:
    if UNKNOWN not in (declared, value.type) and type(present(declared)) is not type(present(value.type)):
        raise TypeInferenceError(
            "the declared type contradicts the inferred one",
            where=f'value "{value.name}"',
            expected=str(value.type),
            found=str(declared),
        )


def _check_dtype(value: Value, declared: Type) -> None:
    inside, found = declared, value.type
    while isinstance(inside, (SequenceType, OptionalType)) and type(inside) is type(found):
        inside, found = inside.element, found.element
    if isinstance(inside, TensorType) and isinstance(found, TensorType):
        known = {inside.dtype, found.dtype} - {"?"}
        if len(known) > 1:
            raise ModelError(
                "the declared type contradicts the inferred one",
                where=f'value "{value.name}"',
                expected=str(value.type),
                found=str(declared),
                hint="Remove the wrong entry from value_info, or export the model again.",
            )


def _contradict(declared: Type, inferred: Type) -> bool:
    """Tell whether a declared shape cannot be right: a number that differs, or that stands for any size.

    A name is a name only: it says nothing that an inferred size could contradict.
    """
    if type(declared) is type(inferred) and isinstance(declared, (SequenceType, OptionalType)):
        return _contradict(declared.element, inferred.element)  # type: ignore[union-attr]  # of the same class
    if not isinstance(declared, TensorType) or not isinstance(inferred, TensorType):
        return False
    stated, known = declared.shape, inferred.shape
    if stated is None or known is None:
        return False
    return len(stated) != len(known) or any(map(_differ, stated, known))


def _differ(stated: Dim, known: Dim) -> bool:
    if not isinstance(stated, int) or known is None or isinstance(known, int):
        return known is not None and isinstance(stated, int) and stated != known
    value = size(known)
    low, high = bounds(value)
    may_be_equal = (low is None or low <= stated) and (high is None or stated <= high)
    return (isinstance(value, Expression) and value.name is not None) or not may_be_equal
