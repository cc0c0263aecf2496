"""NonMaxSuppression, the last step of object detectors."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.ir.infer import operator_types
from tinycomp.ir.types import TensorType, Type, tensor
from tinycomp.ops.numeric import Array, scalar_int
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("detection")
_BLOCK = 64
"""So many boxes are compared at a time: as many as a word has bits."""


def _edges(boxes: Array, center: bool) -> Array:
    """Return the low, then the high edges of boxes (n, 4) in both directions, as (4, n).

    The boxes are given by opposite corners in any order, or by centre and size.
    """
    first, second = boxes.T[:2], boxes.T[2:]
    if center:
        return np.concatenate([first - second / 2, first + second / 2])
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)])


def _area(edges: Array) -> Array:
    return np.asarray((edges[2] - edges[0]) * (edges[3] - edges[1]))


def _overlaps(edges: Array, others: Array, threshold: float) -> Array:
    """Return whether each of n boxes overlaps each of m others by more than ``threshold`` of their union, as (n, m)."""
    column = edges[..., None]
    sides = [np.minimum(column[i + 2], others[i + 2]) - np.maximum(column[i], others[i]) for i in (0, 1)]
    common = np.maximum(sides[0], 0) * np.maximum(sides[1], 0)
    union = _area(column) + _area(others) - common
    return np.asarray((common > 0) & (union > 0) & (common / union > threshold))


def _bits(rows: Array) -> list[int]:
    """Rows of up to a block of booleans as whole numbers whose bit j is column j."""
    whole = np.zeros((len(rows), _BLOCK), bool)
    whole[:, : rows.shape[1]] = rows
    bits: list[int] = np.packbits(whole, axis=1, bitorder="little").view("<u8").reshape(-1).tolist()
    return bits


def _suppress(edges: Array, group: Array, limit: int, threshold: float) -> list[int]:
    """Greedily keep up to ``limit`` boxes of each group that overlap no kept one of theirs by more than ``threshold``.

    The boxes come by group, the best of each first. A block of them at a time, of one or more groups, is compared with
    what is kept of its first group and with itself, so that the loop over single boxes only combines bits.
    """
    kept: list[int] = []
    first = 0  # of what is kept, the first one of the last group
    groups, ends = group.tolist(), np.searchsorted(group, group, side="right")
    start = 0
    while start < len(groups):
        part = slice(start, start + _BLOCK)
        same = group[part, None] == group[part]
        overlapping = _bits(same & _overlaps(edges[:, part], edges[:, part], threshold))
        alive = (1 << len(overlapping)) - 1
        if first < len(kept) and groups[kept[first]] == groups[start]:
            before = kept[first:]
            found = _overlaps(edges[:, before], edges[:, part], threshold).any(axis=0)
            alive &= ~_bits((found & same[0])[None])[0]
        stop = start + _BLOCK
        while alive:
            bit = (alive & -alive).bit_length() - 1
            best = start + bit
            if first < len(kept) and groups[kept[first]] != groups[best]:
                first = len(kept)
            kept.append(best)
            alive &= ~(overlapping[bit] | 1 << bit)
            if len(kept) - first == limit:
                end = int(ends[best])
                alive &= -1 << max(end - start, 0)
                stop = max(stop, end)
        start = stop
    return kept


def most_of_a_class(node: Node) -> int | None:
    """The most boxes that a NonMaxSuppression keeps of one class in one image; None if their number is not known."""
    boxes = (tensor(node.inputs[1].type).shape or (None,))[-1] if node.inputs[1] is not None else None
    if not isinstance(boxes, int):
        return None
    limit = node.inputs[2] if len(node.inputs) > 2 else None
    if limit is None:
        return 0
    return boxes if limit.const is None else min(max(scalar_int(limit.const), 0), boxes)


def _most_boxes(node: Node) -> int | None:
    most, scores = most_of_a_class(node), node.inputs[1]
    shape = None if scores is None else tensor(scores.type).static_shape
    return None if most is None or shape is None else shape[0] * shape[1] * most


def _triples(node: Node) -> list[Type]:
    """The types of the results: the inference of onnx gives those of the first version no shape."""
    operator_types(node)  # refuses operands that do not fit
    return [TensorType("int64", (None, 3))]


@FAMILY.op("NonMaxSuppression", type_rule=_triples, row_bound=_most_boxes)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Triples (batch, class, box) of the boxes kept, by class and falling score.

    Raises:
        ExecutionError: If the threshold does not lie in [0, 1].
    """
    limit = 0 if max_output_boxes_per_class is None else scalar_int(max_output_boxes_per_class)
    threshold = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
    if not 0 <= threshold <= 1:
        raise ExecutionError("bad iou_threshold", where="NonMaxSuppression", expected="[0, 1]", found=str(threshold))
    if limit <= 0 or not scores.size:
        return np.zeros((0, 3), np.int64)
    flat = scores.reshape(-1)
    chosen = np.arange(flat.size)
    if score_threshold is not None:
        chosen = np.flatnonzero(flat > score_threshold.reshape(-1)[0])
    chosen = chosen[np.lexsort((-flat[chosen], chosen // scores.shape[2]))]
    group, box = np.divmod(chosen, scores.shape[2])
    batch, label = np.divmod(group, scores.shape[1])
    kept = _suppress(_edges(boxes[batch, box], bool(center_point_box)), group, limit, threshold)
    return np.stack([batch[kept], label[kept], box[kept]], axis=1).astype(np.int64, copy=False)
