"""Sampling images at arbitrary places: GridSample and AffineGrid.

Coordinates in a grid run from -1 to 1 and are listed innermost axis first, as in computer vision.
"""

from __future__ import annotations

import itertools

import numpy as np

from tinycomp.ir.graph import TINYCOMP
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, compute_dtype, is_float, prod, quiet, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results

FAMILY = OpFamily("sampling")

# Early opsets call the modes by their names for two axes.
_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC_A = -0.75


def reflect(x: Array, low: float, high: float) -> Array:
    """Fold coordinates into [low, high] by reflecting at both ends as often as needed."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    distance = np.mod(x - low, 2 * span)
    return np.asarray(low + np.where(distance > span, 2 * span - distance, distance))


def _place(coordinate: Array, size: int, mode: str, padding: str, aligned: bool) -> Array:
    """Return input coordinates of one axis from grid coordinates, moved inside as the padding mode says."""
    x = (coordinate + 1) / 2 * (size - 1) if aligned else ((coordinate + 1) * size - 1) / 2
    if mode == "nearest":
        x = np.rint(x)
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    outside = (x < low) | (x > high)
    # A cubic reads its taps around the true place and clamps each of them, as PyTorch and onnxruntime do.
    if padding == "border" and mode != "cubic":
        x = np.where(outside, np.clip(x, 0, size - 1), x)
    elif padding == "reflection":
        x = np.where(outside, reflect(x, low, high), x)
    return np.asarray(x)


def _taps(x: Array, mode: str) -> list[tuple[Array, Array]]:
    """Return the cells that one axis reads and their weights: one, two or four."""
    base = np.floor(x)
    t = x - base
    if mode == "nearest":
        return [(x, np.ones_like(x))]
    if mode == "linear":
        return [(base, 1 - t), (base + 1, t)]
    return [(base + i, _keys_weight(np.abs(t - i))) for i in range(-1, 3)]


def _keys_weight(d: Array) -> Array:
    a = _CUBIC_A
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.where(d <= 1, near, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a)


def _inside(cell: Array, size: int, padding: str, aligned: bool) -> tuple[Array, Array]:
    """Return valid cell numbers for one axis, and a mask of the cells that exist (others count as zero)."""
    if padding == "reflection":
        cell = reflect(cell, *((0.0, size - 1.0) if aligned else (-0.5, size - 0.5)))
    # NaN and huge coordinates must not reach the conversion to integers.
    exists = (cell >= 0) & (cell <= size - 1)
    index = np.clip(np.nan_to_num(cell), 0, size - 1).astype(np.int64)
    return index, exists if padding == "zeros" else np.ones_like(exists)


@FAMILY.op("GridSample")
@quiet
def grid_sample(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """Interpolate ``x`` (N, C, d1…dr) at the places of ``grid`` (N, D1…Dr, r), giving (N, C, D1…Dr)."""
    rank = x.ndim - 2
    places = grid.reshape(len(grid), -1, rank).astype(compute_dtype(grid.dtype), copy=False)
    how, aligned = _MODES[mode], bool(align_corners)
    at = [_place(places[..., -1 - i], size, how, padding_mode, aligned) for i, size in enumerate(x.shape[2:])]
    y = sample(x, at, how, padding_mode, aligned)
    return y.reshape(*x.shape[:2], *grid.shape[1:-1])


def _sampled(facts: Facts) -> Results:
    """Return the type of a result that has an element of each channel for every place."""
    facts.require_rank_from(0, 3, "the input")
    facts.require_rank_from(1, 3, "the grid")
    rank, dtype = facts.rank(0) or facts.rank(1), facts.dtype(0)
    if rank is None:
        return [facts.tensor(dtype, None)]
    x, grid = facts.dims(0, rank), facts.dims(1, rank)
    facts.require_equal(grid[-1], rank - 2, "the grid has a wrong number of coordinates")
    batch = facts.require_equal(grid[0], x[0], "grid and input differ in batch")
    return [facts.tensor(dtype, (batch, x[1], *grid[1:-1]))]


@FAMILY.infer("GridSample")
def _grid_sample(facts: Facts) -> Results:
    facts.require_one_of("mode", tuple(_MODES))
    facts.require_one_of("padding_mode", _PADDINGS)
    return _sampled(facts)


FAMILY.infer("SampleCells", domain=TINYCOMP)(_sampled)


@FAMILY.op("SampleCells", domain=TINYCOMP)
@quiet
def sample_cells(x: Array, places: Array) -> Array:
    """Interpolate ``x`` (N, C, d1…dr) between cells at ``places`` (N, D1…Dr, r), innermost axis first; outside is 0."""
    rank = x.ndim - 2
    flat = places.reshape(len(places), -1, rank)
    y = sample(x, [flat[..., -1 - i] for i in range(rank)], "linear")
    return y.reshape(*x.shape[:2], *places.shape[1:-1])


def sample(x: Array, places: list[Array], mode: str, padding: str = "zeros", aligned: bool = False) -> Array:
    """Interpolate at input coordinates.

    Args:
        x: Values (N, C, d1…dr).
        places: A coordinate (N, P) per axis; cell i of an axis lies at i.
        mode: ``nearest`` (whole coordinates), ``linear`` or ``cubic``.
        padding: What cells outside hold: ``zeros``, ``border`` or ``reflection``.
        aligned: Whether reflection happens at the outer cells' centres rather than their edges.

    Returns:
        (N, C, P) in the type of ``x``.
    """
    sizes = x.shape[2:]
    flat = x.reshape(*x.shape[:2], prod(sizes))
    per_axis = []
    for at, size in zip(places, sizes, strict=True):
        per_axis.append([(*_inside(cell, size, padding, aligned), weight) for cell, weight in _taps(at, mode)])
    nearest = mode == "nearest"
    keeps = nearest or is_float(x.dtype)
    wide = flat if nearest else flat.astype(compute_dtype(x.dtype) if keeps else np.float64, copy=False)
    total: Array = np.zeros((*x.shape[:2], places[0].shape[1]), dtype=wide.dtype)
    for taps in itertools.product(*per_axis):
        index = np.zeros(places[0].shape, dtype=np.int64)
        exists, weight = np.ones_like(index, dtype=bool), np.ones(index.shape)
        for (cell, real, share), size in zip(taps, sizes, strict=True):
            index, exists, weight = index * size + cell, exists & real, weight * share
        values = np.take_along_axis(wide, index[:, None], axis=2)
        if nearest:
            return np.where(exists[:, None], values, np.zeros(1, dtype=x.dtype))
        total += values * np.where(exists, weight, 0).astype(wide.dtype)[:, None]
    return total.astype(x.dtype)


def _axis_centres(size: int, aligned: bool) -> Array:
    if aligned:
        return np.linspace(-1, 1, size) if size > 1 else np.zeros(size)
    return (2 * np.arange(size) + 1) / max(size, 1) - 1


@FAMILY.op("AffineGrid")
@widened
def affine_grid(theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """Return the grid (N, D1…Dr, r) of an affine map ``theta`` (N, r, r + 1) for outputs of ``size`` (N, C, D1…Dr)."""
    sizes = [int(n) for n in size[2:]]
    rank = len(sizes)
    reserve((len(theta), *sizes, rank + 1), 8, "AffineGrid")
    axes = np.meshgrid(*(_axis_centres(n, bool(align_corners)) for n in sizes), indexing="ij")
    homogeneous = np.stack([*reversed(axes), np.ones(sizes)], axis=-1).reshape(1, -1, rank + 1)
    grid = np.matmul(homogeneous.astype(theta.dtype), theta.swapaxes(1, 2))
    return np.asarray(grid.reshape(len(theta), *sizes, rank))


@FAMILY.infer("AffineGrid", sizing=(1,))
def _affine_grid(facts: Facts) -> Results:
    batch, rows, columns = facts.dims(0, 3)
    facts.require_rank(1, 1, "size")
    size, dtype = facts.elements(1), facts.dtype(0)
    rank = rows if isinstance(rows, int) else None if size is None else len(size) - 2
    if rank is None:
        return [facts.tensor(dtype, None)]
    facts.require(rank > 0, "the grid has no axis", expected="1 or more", found=rank)
    facts.require_vector(1, rank + 2, "size")
    facts.require_equal(rows, rank, "theta does not fit size")
    facts.require_equal(columns, rank + 1, "theta does not fit size")
    size = size or (None,) * (rank + 2)
    for each in size:
        facts.require_at_least(each, 0, "a size is negative")
    return [facts.tensor(dtype, (facts.require_equal(batch, size[0], "theta does not fit size"), *size[2:], rank))]
