"""Make up inputs, and say how far two results are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import VerifyError
from tinycomp.ir.graph import Graph, Value
from tinycomp.ir.types import Dim, TensorType, Type
from tinycomp.memory.budget import reserve
from tinycomp.ops.agreement import fitting_sizes
from tinycomp.ops.body_types import retype
from tinycomp.ops.elements import element_sources, with_elements
from tinycomp.records import dataclass
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Expression, assuming, dimension, evaluate, size, symbol
from tinycomp.target import Tolerance

SYMBOL_SIZE = 2
"""The size that checks give to a symbolic dimension of which the model demands nothing."""

HALF_STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The step between numbers of half precision, as a share of them."""


def fitting_feeds(graph: Graph, seed: int = 0, start: int = SYMBOL_SIZE) -> dict[str, np.ndarray]:
    """Return random values for the inputs of a graph, in sizes that its nodes' conditions allow.

    Elements that decide sizes are chosen like sizes; all others are those of :func:`random_feeds`.

    Args:
        graph: The graph, whose bounds are kept.
        seed: What the values follow from.
        start: The size of what nothing is demanded of.

    Raises:
        VerifyError: If an input is not a tensor of known rank.
        MemoryLimitError: If an input is larger than the budget allows.
    """
    named = graph.clone()
    retype(named, [_named(value) for value in named.inputs])
    sources = element_sources(named.nodes)
    retype(named, [with_elements(v) if v in sources else v.type for v in named.inputs])
    with assuming(graph.bounds):
        sizes = fitting_sizes(named, start)
    specs = [TensorSpec(v.name, v.dtype, _in_sizes(v.shape, sizes)) for v in named.inputs]
    feeds = random_feeds(specs, seed)
    for value in named.inputs:
        for place, element in enumerate(value.contents or ()):
            if isinstance(element, Expression) and element.name in sizes:
                feeds[value.name].reshape(-1)[place] = sizes[element.name]
    return feeds


def _named(value: Value) -> Type:
    """Return the type of an input with a name for every dimension of which nothing is known."""
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    dims = [dimension(symbol(f"{value.name}.{i}")) if dim is None else dim for i, dim in enumerate(type_.shape)]
    return TensorType(type_.dtype, tuple(dims), type_.layout)


def _in_sizes(shape: Sequence[Dim] | None, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    return None if shape is None else tuple([evaluate(size(dim), sizes) for dim in shape if dim is not None])


def random_feeds(inputs: Sequence[TensorSpec], seed: int = 0) -> dict[str, np.ndarray]:
    """Return random values for inputs: floats from the standard normal distribution, small non-negative integers.

    Every symbolic dimension has size :data:`SYMBOL_SIZE`.

    Raises:
        VerifyError: If an input is not a tensor of known rank.
        MemoryLimitError: If an input is larger than the budget allows.
    """
    rng = np.random.default_rng(seed)
    feeds = {}
    for spec in inputs:
        dtype = spec.numpy_dtype
        if spec.shape is None or dtype is None or dtype.kind == "O":
            raise VerifyError("cannot make up values for this input", where=str(spec), hint="Pass feeds of your own.")
        shape = [d if isinstance(d, int) else SYMBOL_SIZE for d in spec.shape]
        # They are drawn as 64-bit numbers; numpy takes no large sizes, not even beside one of 0.
        reserve([max(size, 1) for size in shape], 8, f'input "{spec.name}"')
        if dtype.kind == "b":
            feeds[spec.name] = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            feeds[spec.name] = rng.integers(0, 2 if dtype.itemsize > 1 else 100, shape).astype(dtype)
        else:
            feeds[spec.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


@dataclass(frozen=True)
class Difference:
    """How far two results of one value are apart.

    Attributes:
        name: The value.
        largest: Largest absolute difference; infinite where only one is a number.
        relative: The same over the largest magnitude of the reference.
        within: Whether the tolerance allows it.
    """

    name: str
    largest: float
    relative: float
    within: bool


def compare(name: str, result: Any, reference: Any, tolerance: Tolerance, steps: float | None = None) -> Difference:
    """Compare two values: floats against ``atol + rtol * largest reference``, integers against ``steps``.

    By default integers may be ``atol`` apart, or one: what a float was rounded to may be on either side.

    Half precision may differ by a step at the largest, which is what rounding makes of any difference. Sequences and
    maps have the same length and keys, and are compared element by element; texts must be equal.
    """
    if isinstance(result, list) and isinstance(reference, list) and len(result) == len(reference):
        parts = [compare(name, a, b, tolerance, steps) for a, b in zip(result, reference, strict=True)]
        return Difference(
            name,
            max((p.largest for p in parts), default=0.0),
            max((p.relative for p in parts), default=0.0),
            all(p.within for p in parts),
        )
    if isinstance(result, dict) and isinstance(reference, dict) and result.keys() == reference.keys():
        values = [np.array([each[key] for key in reference]) for each in (result, reference)]
        return compare(name, values[0], values[1], tolerance)
    if not isinstance(result, np.ndarray) or not isinstance(reference, np.ndarray):
        return _equal(name, not isinstance(result, np.ndarray | list | dict) and bool(result == reference))
    if result.shape != reference.shape or result.dtype != reference.dtype:
        return _equal(name, False)
    if result.dtype.kind in "OUS":
        return _equal(name, bool((result == reference).all()))
    a, b = result.astype(np.float64), reference.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    largest = float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    exact = result.dtype.kind in "iub"
    rtol = max(tolerance.rtol, HALF_STEP.get(result.dtype.name, 0.0))
    whole = max(tolerance.atol, 1.0) if steps is None else steps
    allowed = whole if exact else tolerance.atol + rtol * scale
    return Difference(name, largest, largest / scale if scale else largest, largest <= allowed)


def _equal(name: str, same: bool) -> Difference:
    apart = 0.0 if same else np.inf
    return Difference(name, apart, apart, same)
