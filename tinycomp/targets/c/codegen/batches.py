"""Batches of any number of dimensions, as the two that kernels of products walk.

Neighbouring dimensions become one where every operand walks them as one. An operand that does not, because it is
repeated along some of them or lies otherwise, is copied: into the division of the dimensions that copies least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinycomp.ir.graph import Node, Value
from tinycomp.records import dataclass, replace
from tinycomp.symbolic import Size, product, typical
from tinycomp.targets.c.codegen.emitter import Emitter, View, merged_dims
from tinycomp.targets.c.codegen.placement import emit_copy

Pair = tuple[Size, Size]


@dataclass(frozen=True)
class Walk:
    """How an operand is walked, in elements.

    Attributes:
        place: Where it begins.
        steps: Its strides over the dimensions of the batch, 0 where it is repeated.
        sizes: The sizes of what it has for each of them.
        strides: Their strides.
        width: Bytes of an element; 0 for one that must stay where it is.
    """

    place: View | Value
    steps: Sequence[Size]
    sizes: Sequence[Size] = ()
    strides: Sequence[Size] = ()
    width: int = 0


def in_two(emit: Emitter, node: Node, batch: Sequence[Size], walks: Sequence[Walk]) -> tuple[Pair, list[Walk]]:
    """Return the sizes of two dimensions that stand for a batch, and how operands are walked over them.

    Copies are emitted for operands that need one.
    """
    split = min(range(len(batch) + 1), key=lambda at: sum(_copied(batch, walk, at) for walk in walks))
    places = [walk if _is_even(batch, walk, split) else _moved(emit, node, batch, walk, split) for walk in walks]
    return (
        (product(batch[:split]), product(batch[split:])),
        [replace(walk, steps=[_step(batch, walk, part) for part in _parts(batch, split)]) for walk in places],
    )


def _parts(batch: Sequence[Size], split: int) -> tuple[slice, slice]:
    return slice(0, split), slice(split, len(batch))


def _step(batch: Sequence[Size], walk: Walk, part: slice) -> Size:
    merged = merged_dims(batch[part], walk.steps[part])
    return merged[0][1] if merged else 0


def _is_even(batch: Sequence[Size], walk: Walk, split: int) -> bool:
    return all(len(merged_dims(batch[part], walk.steps[part])) <= 1 for part in _parts(batch, split))


def _kept(batch: Sequence[Size], walk: Walk, split: int) -> list[Size]:
    """Return the batch of a copy: 1 along the dimensions of a part in which the operand is always the same."""
    kept: list[Size] = []
    for part in _parts(batch, split):
        kept += batch[part] if any(step != 0 for step in walk.steps[part]) else [1] * len(batch[part])
    return kept


def _copied(batch: Sequence[Size], walk: Walk, split: int) -> float:
    """Return how many elements a division costs to copy."""
    if _is_even(batch, walk, split):
        return 0
    return typical(product([*_kept(batch, walk, split), *walk.sizes])) if walk.width else math.inf


def _moved(emit: Emitter, node: Node, batch: Sequence[Size], walk: Walk, split: int) -> Walk:
    kept = _kept(batch, walk, split)
    shape = [*kept, *walk.sizes]
    to = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    target = emit.scratch(product(shape) * walk.width)
    source = walk.place if isinstance(walk.place, View) else emit.view(walk.place)
    emit_copy(emit, node, target, source, shape, to, [*walk.steps, *walk.strides], walk.width)
    steps = [0 if own == 1 else step for own, step in zip(kept, to, strict=False)]
    return Walk(target, steps, walk.sizes, to[len(kept) :], walk.width)
