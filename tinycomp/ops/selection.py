"""Operators whose output size depends on values: OneHot, Compress, NonZero, Unique, NonMaxSuppression."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ops.numeric import Array, compute_dtype, fix_axis, scalar_int
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("selection")


@FAMILY.op("OneHot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """``values[1]`` where a new axis of ``depth`` elements meets the index, else ``values[0]``.

    Indices out of [-depth, depth-1] give a row of ``values[0]`` only, as ONNX says.

    Raises:
        ExecutionError: If the depth is negative.
    """
    size = scalar_int(depth)
    if size < 0:
        raise ExecutionError("negative depth", where="OneHot", expected="0 or more", found=str(size))
    fixed = fix_axis(axis, indices.ndim + 1, "OneHot")
    whole = indices.astype(np.int64)
    wrapped = np.expand_dims(np.where(whole < 0, whole + size, whole), fixed)
    classes = np.arange(size).reshape((-1,) + (1,) * (indices.ndim - fixed))
    return np.where(wrapped == classes, values[1:2].reshape(()), values[0:1].reshape(()))


@FAMILY.op("Compress")
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """The slices along ``axis`` (or the elements in row-major order) whose condition holds.

    Raises:
        ExecutionError: If a condition that holds lies beyond the axis.
    """
    source = x.reshape(-1) if axis is None else x
    fixed = 0 if axis is None else fix_axis(axis, x.ndim, "Compress")
    chosen = np.flatnonzero(condition)
    if chosen.size and chosen[-1] >= source.shape[fixed]:
        raise ExecutionError(
            "index out of bounds", where="Compress", expected=f"no more than {source.shape[fixed]} conditions",
            found=str(condition.size),
        )  # fmt: skip
    return source.take(chosen, fixed)


@FAMILY.op("NonZero")
def non_zero(x: Array) -> Array:
    """The coordinates of the elements other than zero, one column per element."""
    if x.dtype == object:
        x = x.astype(np.str_) != ""
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    return np.stack(np.nonzero(wide)).astype(np.int64) if x.ndim else np.zeros((0, int(bool(wide))), np.int64)


@FAMILY.op("Unique")
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, Array, Array, Array]:  # noqa: A002
    """Distinct elements (or slices along ``axis``), the first index of each, the inverse map, and the counts."""
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    fixed = None if axis is None else fix_axis(axis, x.ndim, "Unique")
    text = x.astype(np.str_) if x.dtype == object else wide
    values, first, inverse, counts = np.unique(text, True, True, True, axis=fixed, equal_nan=False)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        first, counts, inverse = first[order], counts[order], rank[inverse]
        values = values[order] if fixed is None else values.take(order, fixed)
    return values.astype(x.dtype), first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def _corners(boxes: Array, center: bool) -> tuple[Array, Array, Array, Array]:
    """Return top, left, bottom, right of boxes (..., 4) given by opposite corners in any order, or by centre."""
    if center:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        return y - h / 2, x - w / 2, y + h / 2, x + w / 2
    y1, x1, y2, x2 = np.moveaxis(boxes, -1, 0)
    return np.minimum(y1, y2), np.minimum(x1, x2), np.maximum(y1, y2), np.maximum(x1, x2)


def _suppress(corners: tuple[Array, ...], order: Array, limit: int, threshold: float) -> list[int]:
    """Greedily keep boxes in ``order``, dropping those that overlap a kept one by more than ``threshold``."""
    top, left, bottom, right = (c[order] for c in corners)
    area = (bottom - top) * (right - left)
    alive = np.ones(order.size, np.bool_)
    kept: list[int] = []
    for i in range(order.size):  # each turn keeps one box and judges all later ones at once
        if not alive[i]:
            continue
        kept.append(int(order[i]))
        if len(kept) == limit:
            break
        high = np.maximum(0, np.minimum(bottom[i], bottom[i + 1 :]) - np.maximum(top[i], top[i + 1 :]))
        wide = np.maximum(0, np.minimum(right[i], right[i + 1 :]) - np.maximum(left[i], left[i + 1 :]))
        common = high * wide
        union = area[i] + area[i + 1 :] - common
        alive[i + 1 :] &= ~((common > 0) & (union > 0) & (common > threshold * union))
    return kept


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
        corners = _corners(boxes[batch], bool(center_point_box))
        for label in range(scores.shape[1]):
            score = scores[batch, label]
            order = np.argsort(-score, kind="stable")
            if score_threshold is not None:
                order = order[score[order] > score_threshold.reshape(-1)[0]]
            found += [(batch, label, i) for i in _suppress(corners, order, limit, threshold)]
    return np.array(found, np.int64).reshape(-1, 3)
