"""What object detectors need: NonMaxSuppression, and the pooling of regions of interest (RoiAlign, MaxRoiPool)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, compute_dtype, quiet, scalar_int
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.symbolic import Size, minimum

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
    """Return rows of up to a block of booleans as whole numbers whose bit j is column j."""
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
            suppressed = _overlaps(edges[:, before], edges[:, part], threshold).any(axis=0)
            alive &= ~_bits((suppressed & same[0])[None])[0]
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


def most_of_a_class(node: Node) -> Size | None:
    """Return the most boxes that a NonMaxSuppression keeps of one class in one image; None if unknown."""
    shape = node.operand(1).sizes
    if not shape:
        return None
    limit = node.optional_operand(2)
    if limit is None:
        return 0
    return shape[-1] if limit.const is None else minimum(max(scalar_int(limit.const), 0), shape[-1])


def _most_boxes(node: Node) -> Size | None:
    most, shape = most_of_a_class(node), node.operand(1).sizes
    return None if most is None or shape is None else shape[0] * shape[1] * most


@FAMILY.op("NonMaxSuppression", row_bound=_most_boxes)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Return triples (batch, class, box) of the boxes kept, by class and falling score."""
    limit = 0 if max_output_boxes_per_class is None else scalar_int(max_output_boxes_per_class)
    threshold = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
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


@FAMILY.infer("NonMaxSuppression")
def _triples(facts: Facts) -> Results:
    boxes, scores = facts.dims(0, 3), facts.dims(1, 3)
    facts.require_equal(boxes[2], 4, "a box has 4 numbers")
    facts.require_equal(boxes[0], scores[0], "boxes and scores differ in batch")
    facts.require_equal(boxes[1], scores[2], "boxes and scores differ in number")
    for index, what in ((2, "max_output_boxes_per_class"), (3, "iou_threshold"), (4, "score_threshold")):
        facts.require_scalar(index, what)
    threshold = facts.const(3)
    if threshold is not None and not (0 <= (found := float(threshold.reshape(-1)[0])) <= 1):
        facts.fail("iou_threshold is not between 0 and 1", expected="[0, 1]", found=found)
    return [facts.tensor("int64", (None, 3))]


def _check_images(op: str, x: Array, batch: Array) -> None:
    if batch.size and not 0 <= int(batch.min()) <= int(batch.max()) < len(x):
        raise ExecutionError(
            f"{op}: batch index out of bounds",
            expected=f"indices in [0, {len(x) - 1}]",
            found=f"{int(batch.min())} to {int(batch.max())}",
        )


def _pooled(facts: Facts, columns: int, pooled: Sequence[int]) -> Results:
    """Return the type of a result with an image for each region, whose operand has so many columns."""
    x, regions = facts.dims(0, 4), facts.dims(1, 2)
    facts.require_equal(regions[1], columns, "a region has the wrong number of columns")
    facts.require(len(pooled) == 2 and min(pooled) > 0, "bad size of the result",
                  expected="two sizes above 0", found=list(pooled))  # fmt: skip
    return [facts.tensor(facts.first_dtype(0, 1), (regions[0], x[1], *pooled))]


def _samples(start: float, size: float, pooled: int, ratio: int, length: int) -> tuple[Array, Array, Array]:
    """Return where one axis is sampled: the pixels below and above each sample, and their weights.

    Returns:
        Pixels below (pooled * grid), pixels above, and weights (2, pooled * grid), which are 0 outside the image.
    """
    grid = ratio if ratio > 0 else max(int(np.ceil(size / pooled)), 0)
    reserve((pooled, grid), 8 * 8, "RoiAlign")
    bins = np.repeat(np.arange(pooled), grid)
    within = np.tile(np.arange(grid), pooled)
    at = start + (bins + (within + 0.5) / max(grid, 1)) * (size / pooled)
    inside = (at >= -1) & (at <= length)
    at = np.clip(at, 0, length - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, length - 1)
    above = at - low
    return low, high, np.stack([(1 - above) * inside, above * inside])


def _aligned(image: Array, box: Array, pooled: tuple[int, int], ratio: int, legacy: bool, largest: bool) -> Array:
    """Return one region (C, H, W) pooled to (C, *pooled); without samples it is 0."""
    starts, sizes = box[1::-1], box[:1:-1] - box[1::-1]
    if legacy:
        sizes = np.maximum(sizes, 1)
    axes = [
        _samples(s, n, p, ratio, length) for s, n, p, length in zip(starts, sizes, pooled, image.shape[1:], strict=True)
    ]
    (top, bottom, rows), (left, right, columns) = axes
    if not rows.size or not columns.size:
        return np.zeros((len(image), *pooled), dtype=image.dtype)
    weights = rows[:, None, :, None] * columns[None, :, None, :]
    reserve((4, len(image), top.size, left.size), image.itemsize, "RoiAlign")
    corners = [
        image[:, y[:, None], x] * weights[i, j].astype(image.dtype)
        for i, y in enumerate((top, bottom))
        for j, x in enumerate((left, right))
    ]
    # ONNX's maximum is that of the weighted corners, not of the interpolated samples.
    points: Array = np.maximum.reduce(corners) if largest else sum(corners[1:], corners[0])
    cells = points.reshape(len(image), pooled[0], -1, pooled[1], columns.shape[1] // pooled[1])
    return np.asarray(cells.max(axis=(2, 4)) if largest else cells.mean(axis=(2, 4)))


def _roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    mode: str,
    pooled: tuple[int, int],
    sampling_ratio: int,
    spatial_scale: float,
    half_pixel: bool,
) -> Array:
    _check_images("RoiAlign", x, batch_indices)
    wide = compute_dtype(x.dtype)
    reserve((len(rois), x.shape[1], *pooled), x.itemsize, "RoiAlign")
    result = np.zeros((len(rois), x.shape[1], *pooled), dtype=x.dtype)
    boxes = rois.astype(wide) * wide.type(spatial_scale) - wide.type(0.5 if half_pixel else 0)
    if x.size:
        for n, (image, box) in enumerate(zip(batch_indices, boxes, strict=True)):
            region = _aligned(x[image].astype(wide), box, pooled, sampling_ratio, not half_pixel, mode == "max")
            result[n] = region.astype(x.dtype)
    return result


_POOLING = frozenset({"mode", "output_height", "output_width", "sampling_ratio", "spatial_scale"})


@FAMILY.op("RoiAlign", passed=_POOLING)
def roi_align_10(x: Array, rois: Array, batch_indices: Array, **pooling: Any) -> Any:
    """Pool regions whose corners are pixel centres; see :func:`roi_align`."""
    return roi_align(x, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", **pooling)


@FAMILY.op("RoiAlign", since=16)
@quiet
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Pool regions of interest from bilinear samples.

    Args:
        x: Images (N, C, H, W).
        rois: Regions (R, 4): x and y of the first corner, then of the second.
        batch_indices: The image of each region (R,).
        coordinate_transformation_mode: ``half_pixel``, or ``output_half_pixel`` as in opset 10.
        mode: ``avg`` or ``max``.
        output_height: Rows of the result.
        output_width: Columns of the result.
        sampling_ratio: Samples per cell and axis; 0 for one per pixel.
        spatial_scale: From coordinates of regions to those of ``x``.

    Returns:
        (R, C, output_height, output_width).

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    half_pixel = coordinate_transformation_mode == "half_pixel"
    pooled = (output_height, output_width)
    return _roi_align(x, rois, batch_indices, mode, pooled, sampling_ratio, spatial_scale, half_pixel)


@FAMILY.infer("RoiAlign")
def _roi_aligned(facts: Facts) -> Results:
    facts.require_one_of("mode", ("avg", "max"))
    facts.require_one_of("coordinate_transformation_mode", ("half_pixel", "output_half_pixel"))
    (result,) = _pooled(facts, 4, (facts.attr("output_height", 1), facts.attr("output_width", 1)))
    facts.require_vector(2, facts.dim(1, 0), "the tensor of batch indices")
    return [result]


@FAMILY.infer("MaxRoiPool")
def _roi_pooled(facts: Facts) -> Results:
    return _pooled(facts, 5, facts.attr("pooled_shape", ()))


def _bins(first: int, last: int, pooled: int, length: int) -> list[slice]:
    """Return the pixels of each cell along one axis of a region from pixel ``first`` to ``last``."""
    size = max(last - first + 1, 1)
    edges = [(i * size // pooled, -(-(i + 1) * size // pooled)) for i in range(pooled)]
    return [slice(*(min(max(first + edge, 0), length) for edge in pair)) for pair in edges]


@FAMILY.op("MaxRoiPool")
@quiet
def max_roi_pool(x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Array:
    """Return the largest pixel in each cell of each region; 0 where a cell lies outside the image.

    Args:
        x: Images (N, C, H, W).
        rois: Regions (R, 5): index of the image, x and y of the first pixel, then of the last.
        pooled_shape: Rows and columns of the result.
        spatial_scale: From coordinates of regions to those of ``x``.

    Returns:
        (R, C, *pooled_shape).

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    wide = rois.astype(compute_dtype(rois.dtype))
    batch = wide[:, 0].astype(np.int64)
    _check_images("MaxRoiPool", x, batch)
    reserve((len(rois), x.shape[1], *pooled_shape), x.itemsize, "MaxRoiPool")
    result = np.zeros((len(rois), x.shape[1], *pooled_shape), dtype=x.dtype)
    scaled = wide[:, 1:] * wide.dtype.type(spatial_scale)
    corners = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int64)
    if not result.size:
        return result
    for n, (image, (left, top, right, bottom)) in enumerate(zip(batch, corners.tolist(), strict=True)):
        columns = _bins(left, right, pooled_shape[1], x.shape[3])
        for i, rows in enumerate(_bins(top, bottom, pooled_shape[0], x.shape[2])):
            for j, cut in enumerate(columns):
                cell = x[image, :, rows, cut]
                if cell.size:
                    result[n, :, i, j] = cell.max(axis=(1, 2))
    return result
