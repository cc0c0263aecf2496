"""What an exported project calls its inputs, outputs and sizes in C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tinycomp.export_c.actions import Calls
from tinycomp.records import dataclass
from tinycomp.runtime.csource.source import c_comment, c_identifier
from tinycomp.runtime.spec import TensorSpec, array_dtype
from tinycomp.symbolic import Expression, Size

_C_TYPES: Mapping[np.dtype[Any], str] = {
    np.dtype(bool): "uint8_t", np.dtype(np.float32): "float", np.dtype(np.float64): "double",
    np.dtype(np.float16): "uint16_t", np.dtype(ml_dtypes.bfloat16): "uint16_t",
    **{np.dtype(f"{kind}{size}"): f"{kind}{size}_t" for kind in ("int", "uint") for size in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class Port:
    """An input or output as C sees it.

    Attributes:
        name: An identifier.
        ctype: The type of its elements.
        spec: The model's name, dtype and shape.
        elements: How many there are, or may be at most.
        dims: Its dimensions.
    """

    name: str
    ctype: str
    spec: TensorSpec
    elements: int
    dims: tuple[Size, ...]

    @property
    def is_sized(self) -> bool:
        """Whether sizes of the run decide its shape."""
        return any(isinstance(dim, Expression) for dim in self.dims)


@dataclass(frozen=True)
class Names:
    """What the project calls things.

    Attributes:
        prefix: In front of every name that it exports.
        inputs: In order.
        outputs: In order.
        sizes: What sizes of a run are called, by their names in the model.
        weights: ``"array"`` in C, ``"binary"`` for a file that the assembler includes, or ``"pointer"`` for memory that
            a caller gives.
    """

    prefix: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: Mapping[str, str]
    weights: str = "array"

    @property
    def pointers(self) -> tuple[str, ...]:
        """The arguments of a run that must be there, without the memory."""
        own = ("packed_weights",) if self.weights == "pointer" else ()
        sizes = ("sizes",) if self.sizes else ()
        return (*own, *sizes, *(port.name for port in (*self.inputs, *self.outputs)))

    @property
    def arguments(self) -> tuple[str, ...]:
        """All arguments of a run, without the memory."""
        return (*self.pointers, *(("shapes",) if self.gives_shapes else ()))

    @property
    def gives_shapes(self) -> bool:
        """Whether a run says what shapes its results have."""
        return any(port.is_sized for port in self.outputs)

    @property
    def macro(self) -> str:
        """The prefix of macros."""
        return self.prefix.upper()


def names_of(calls: Calls, prefix: str, weights: str = "array") -> Names:
    """Choose an identifier for every input and output: their names where these are identifiers, and none twice."""
    taken = {"memory", "packed_weights", "sizes", "shapes"}
    inputs, outputs = (
        _ports(specs, kind, calls.shapes[side], calls.most_bytes[side], taken)
        for side, (specs, kind) in enumerate(((calls.inputs, "in"), (calls.outputs, "out")))
    )
    sizes: dict[str, str] = {}
    for name in (*calls.sizes, *calls.found):
        plain = c_identifier(name).removeprefix("v_")
        sizes[name] = plain if plain not in sizes.values() else f"{plain}_{len(sizes)}"
    return Names(prefix, inputs, outputs, {name: sizes[name] for name in calls.sizes}, weights)


def _ports(
    specs: Sequence[TensorSpec], kind: str, shapes: Sequence[tuple[Size, ...]], most: Sequence[int], taken: set[str]
) -> tuple[Port, ...]:
    ports = []
    for number, (spec, dims, nbytes) in enumerate(zip(specs, shapes, most, strict=True)):
        plain = c_identifier(spec.name).removeprefix("v_")
        name = f"{kind}_{plain}" if len(plain) < 40 else f"{kind}_{number}"
        name = f"{name}_{number}" if name in taken else name
        taken.add(name)
        dtype = array_dtype(spec.dtype)
        ports.append(Port(name, _C_TYPES.get(dtype, "uint8_t"), spec, nbytes // dtype.itemsize, dims))
    return tuple(ports)


def c_text(text: str) -> str:
    """Return text for the inside of a comment."""
    return c_comment(text).removeprefix("/*").removesuffix("*/").strip()
