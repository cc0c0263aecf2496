"""NonMaxSuppression, the last step of object detectors."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ops.numeric import Array, scalar_int
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("detection")
_BLOCK = 64


def _corners(boxes: Array, center: bool) -> tuple[Array, Array]:
    """Return the low and high corners of boxes (n, 4), given by opposite corners in any order or by centre and size."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if center:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def _overlaps(low: Array, high: Array, others_low: Array, others_high: Array, threshold: float) -> Array:
    """Return whether each of n boxes overlaps each of m others by more than ``threshold`` of their union, as (n, m)."""
    sides = np.minimum(high[:, None], others_high) - np.maximum(low[:, None], others_low)
    np.maximum(sides, 0, out=sides)
    common = sides[..., 0] * sides[..., 1]
    union = np.prod(high - low, -1)[:, None] + np.prod(others_high - others_low, -1) - common
    return np.asarray((common > 0) & (union > 0) & (common > threshold * union))


def _suppress(low: Array, high: Array, order: Array, limit: int, threshold: float) -> list[int]:
    """Greedily keep boxes, best first, that overlap no kept one by more than ``threshold``.

    A block of boxes at a time is compared with all kept boxes and with itself, so that the loop over single boxes only
    combines rows of booleans.
    """
    kept: list[int] = []
    for start in range(0, order.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        alive = np.logical_not(np.any(_overlaps(low[part], high[part], low[kept], high[kept], threshold), axis=1))
        within = _overlaps(low[part], high[part], low[part], high[part], threshold)
        for i in range(alive.size):
            if alive[i]:
                kept.append(start + i)
                alive[i + 1 :] &= ~within[i, i + 1 :]
                if len(kept) == limit:
                    return [int(j) for j in order[kept]]
    return [int(j) for j in order[kept]]


@FAMILY.op("NonMaxSuppression")
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
    found: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0] if limit > 0 else 0):
        low, high = _corners(boxes[batch], bool(center_point_box))
        for label in range(scores.shape[1]):
            score = scores[batch, label]
            chosen = np.arange(score.size)
            if score_threshold is not None:
                chosen = np.flatnonzero(score > score_threshold.reshape(-1)[0])
            order = chosen[np.argsort(-score[chosen], kind="stable")]
            found += [(batch, label, i) for i in _suppress(low[order], high[order], order, limit, threshold)]
    return np.array(found, np.int64).reshape(-1, 3)
