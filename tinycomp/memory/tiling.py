"""Computing a layer piece by piece: tiles of convolutions and matrix products that fit into a budget of bytes.

A tile of a convolution reads more than its share of the data: neighbours overlap by what the kernel is wider than its
stride, the halo, and at the border zeros take the place of data. Where even one result needs too many channels at once,
tiles take some of them and add to what the tiles before have summed up.

Of all tiles that fit, the one is chosen with which the fewest bytes move between the memories; sizes are tried by
halves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tinycomp.errors import MemoryLimitError, OptionError, shown
from tinycomp.records import dataclass


@dataclass(frozen=True, slots=True)
class AxisTile:
    """Hold one tile along an axis of a convolution.

    Attributes:
        outputs: Its results.
        inputs: The data that they need, those of the halo included.
        pads: Zeros before and behind these data.
    """

    outputs: slice
    inputs: slice
    pads: tuple[int, int]


def axis_tiles(
    size: int, tile: int, *, kernel: int = 1, stride: int = 1, dilation: int = 1, pads: tuple[int, int] = (0, 0)
) -> list[AxisTile]:
    """Return the tiles of an axis.

    Args:
        size: Elements of the data.
        tile: Results of one tile; the last tile may have fewer.
        kernel: Elements of the kernel.
        stride: Steps between results.
        dilation: Steps between the kernel's elements.
        pads: Zeros before and behind the data.

    Example:
        >>> for tile in axis_tiles(8, 3, kernel=3, pads=(1, 1)):
        ...     print(tile.outputs, tile.inputs, tile.pads)
        slice(0, 3, None) slice(0, 4, None) (1, 0)
        slice(3, 6, None) slice(2, 7, None) (0, 0)
        slice(6, 8, None) slice(5, 8, None) (0, 1)
    """
    tiles = []
    for first, last in _pieces(_outputs(size, kernel, stride, dilation, pads), tile):
        start = first * stride - pads[0]
        span = _span(last - first, kernel, stride, dilation)
        low = min(max(start, 0), size)
        high = max(min(start + span, size), low)
        before = min(max(-start, 0), span)
        tiles.append(AxisTile(slice(first, last), slice(low, high), (before, span - before - (high - low))))
    return tiles


@dataclass(frozen=True, slots=True)
class Convolution:
    """Describe a convolution, as ONNX does, without its batch.

    Attributes:
        channels: Channels of the data.
        filters: Channels of the result.
        sizes: Sizes of the data's other axes.
        kernel: Sizes of the kernel.
        strides: Steps between results; empty for 1.
        dilations: Steps between the kernel's elements; empty for 1.
        pads: Zeros before all axes, then behind all; empty for none.
        group: Groups of channels that share no weights.

    Raises:
        OptionError: If these do not go together.
    """

    channels: int
    filters: int
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    group: int = 1

    def __post_init__(self) -> None:
        rank = len(self.sizes)
        counts = (len(self.kernel) == rank, *(len(v) in (0, rank) for v in (self.strides, self.dilations)))
        if not all((*counts, len(self.pads) in (0, 2 * rank), self.group >= 1)) or any(
            count % self.group for count in (self.channels, self.filters)
        ):
            raise OptionError("not a convolution", where="Convolution", found=shown(self))

    @property
    def outputs(self) -> tuple[int, ...]:
        """Return the sizes of the result."""
        return tuple(_outputs(size, **axis) for size, axis in zip(self.sizes, self._axes(), strict=True))

    def spans(self, outputs: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the data, zeros included, that a number of results along every axis need."""
        ones = (1,) * len(self.sizes)
        steps = outputs, self.kernel, self.strides or ones, self.dilations or ones
        return tuple(_span(*axis) for axis in zip(*steps, strict=True))

    def axis(self, number: int, tile: int) -> list[AxisTile]:
        """Return the tiles of one axis, as :func:`axis_tiles` does."""
        return axis_tiles(self.sizes[number], tile, **self._axes()[number])

    def _axes(self) -> list[dict[str, Any]]:
        rank = len(self.sizes)
        ones = (1,) * rank
        pads = self.pads or (0,) * 2 * rank
        fields = (self.kernel, self.strides or ones, self.dilations or ones, zip(pads[:rank], pads[rank:], strict=True))
        names = ("kernel", "stride", "dilation", "pads")
        return [dict(zip(names, axis, strict=True)) for axis in zip(*fields, strict=True)]


@dataclass(frozen=True, slots=True)
class ConvTile:
    """Hold one piece of a convolution.

    With data ``x``, weights ``w`` and results ``y`` of the whole, all zero at first, the piece is ``y[:, filters,
    *outputs] += conv(pad(x[:, channels, *inputs], pads), w[filters, terms], group=group)``.

    Attributes:
        filters: Channels of the result.
        channels: Channels of the data.
        terms: Second axis of the weights.
        axes: The other axes.
        group: Groups of channels in the piece.
        adds: Whether a piece before has summed up other channels for the same results.
    """

    filters: slice
    channels: slice
    terms: slice
    axes: tuple[AxisTile, ...]
    group: int
    adds: bool

    @property
    def outputs(self) -> tuple[slice, ...]:
        """Return which results along the axes."""
        return tuple(axis.outputs for axis in self.axes)

    @property
    def inputs(self) -> tuple[slice, ...]:
        """Return which data along the axes."""
        return tuple(axis.inputs for axis in self.axes)

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """Return the zeros before and behind these data along the axes."""
        return tuple(axis.pads for axis in self.axes)


@dataclass(frozen=True, slots=True)
class ConvTiling:
    """Hold how a convolution is cut.

    Attributes:
        convolution: The whole.
        filters: Channels of a tile's result.
        channels: Channels of the data that a tile sums up; all of a group where there are groups.
        outputs: Sizes of a tile's result.
        nbytes: Bytes of the largest tile: data with halo and zeros, weights, and results.
        traffic: Bytes that move in and out for all tiles.
    """

    convolution: Convolution
    filters: int
    channels: int
    outputs: tuple[int, ...]
    nbytes: int
    traffic: int

    @property
    def count(self) -> int:
        """Return the number of tiles."""
        whole = self.convolution
        pieces = prod(-(-n // t) for n, t in zip(whole.outputs, self.outputs, strict=True))
        rounds = -(-(whole.channels // whole.group) // self.channels)
        return pieces * -(-whole.filters // self.filters) * rounds

    def tiles(self) -> Iterator[ConvTile]:
        """Yield the tiles; those that sum up channels for the same results come one after another."""
        whole = self.convolution
        per_group = whole.filters // whole.group
        terms = whole.channels // whole.group
        axes = [whole.axis(number, size) for number, size in enumerate(self.outputs)]
        for first, last in _pieces(whole.filters, self.filters):
            groups = range(first // per_group, -(-last // per_group))
            for place in itertools.product(*axes):
                for start, stop in _pieces(terms, self.channels):
                    channels = (start, stop) if whole.group == 1 else (groups[0] * terms, (groups[-1] + 1) * terms)
                    yield ConvTile(
                        slice(first, last), slice(*channels), slice(start, stop), place, len(groups), start > 0
                    )


def tile_convolution(
    whole: Convolution,
    budget: int,
    *,
    data_bytes: int = 1,
    weight_bytes: int = 1,
    result_bytes: int = 1,
    multiple: int = 1,
) -> ConvTiling:
    """Cut a convolution into tiles that fit into a budget.

    Args:
        whole: The convolution.
        budget: Bytes for the data, the weights and the results of one tile together.
        data_bytes: Bytes of an element of the data.
        weight_bytes: Bytes of a weight.
        result_bytes: Bytes of a result, or of a sum where channels are cut.
        multiple: What the filters of a tile are a multiple of, where there are as many.

    Raises:
        MemoryLimitError: If not even the smallest tile fits.

    Example:
        >>> layer = Convolution(64, 128, (56, 56), (3, 3), pads=(1, 1, 1, 1))
        >>> tiling = tile_convolution(layer, 256 << 10, multiple=16)
        >>> tiling.filters, tiling.channels, tiling.outputs, tiling.count
        (128, 64, (28, 28), 4)
        >>> tiling.nbytes <= 256 << 10
        True
    """
    per_group, terms = whole.filters // whole.group, whole.channels // whole.group
    if whole.group == 1:
        filters, channels = _halves(whole.filters, multiple), _halves(terms)
    else:  # whole groups, or a part of one
        filters = [n * per_group for n in _halves(whole.group)] + [n for n in _halves(per_group) if not per_group % n]
        channels = [terms]
    kernel, written = prod(whole.kernel) * weight_bytes, whole.filters * prod(whole.outputs) * result_bytes
    axes = [[(n, -(-size // n)) for n in _halves(size)] for size in whole.outputs]
    best, least = None, 0
    for place in itertools.product(*axes):
        outputs, pieces = tuple(n for n, _ in place), prod(count for _, count in place)
        data, results = prod(whole.spans(outputs)) * data_bytes, prod(outputs) * result_bytes
        for count in filters:
            groups = -(-count // per_group)
            for summed in channels:
                read = summed * (groups * data + count * kernel)
                nbytes, rounds = read + count * results, -(-terms // summed)
                least = min(least or nbytes, nbytes)
                if nbytes <= budget:
                    moved = pieces * -(-whole.filters // count) * rounds * read + written * (2 * rounds - 1)
                    found = ConvTiling(whole, count, summed, outputs, nbytes, moved)
                    if best is None or _rank(found) < _rank(best):
                        best = found
                    break  # fewer channels move more bytes
    if best is None:
        raise _too_small("the convolution", budget, least)
    return best


def _rank(tiling: ConvTiling) -> tuple[int, int]:
    return tiling.traffic, -tiling.nbytes


@dataclass(frozen=True, slots=True)
class MatMulTile:
    """Hold one piece of a matrix product: ``y[rows, columns] += a[rows, terms] @ b[terms, columns]``.

    Attributes:
        rows: Rows of the result.
        columns: Columns of the result.
        terms: What is summed up.
        adds: Whether a piece before has summed up other terms for the same results.
    """

    rows: slice
    columns: slice
    terms: slice
    adds: bool


@dataclass(frozen=True, slots=True)
class MatMulTiling:
    """Hold how a matrix product is cut.

    Attributes:
        whole: Rows, columns and terms of the whole.
        tile: Rows, columns and terms of a tile.
        nbytes: Bytes of the largest tile: both operands and results.
        traffic: Bytes that move in and out for all tiles.
    """

    whole: tuple[int, int, int]
    tile: tuple[int, int, int]
    nbytes: int
    traffic: int

    @property
    def count(self) -> int:
        """Return the number of tiles."""
        return prod(-(-n // t) for n, t in zip(self.whole, self.tile, strict=True))

    def tiles(self) -> Iterator[MatMulTile]:
        """Yield the tiles; those that sum up terms for the same results come one after another."""
        for piece in itertools.product(*map(_pieces, self.whole, self.tile)):
            rows, columns, terms = (slice(*each) for each in piece)
            yield MatMulTile(rows, columns, terms, terms.start > 0)


def tile_matmul(
    rows: int,
    columns: int,
    terms: int,
    budget: int,
    *,
    left_bytes: int = 1,
    right_bytes: int = 1,
    result_bytes: int = 1,
    multiple: int = 1,
) -> MatMulTiling:
    """Cut a product of two matrices into tiles that fit into a budget.

    Args:
        rows: Rows of the left matrix.
        columns: Columns of the right one.
        terms: What is summed up.
        budget: Bytes for the operands and the results of one tile together.
        left_bytes: Bytes of an element of the left matrix.
        right_bytes: Bytes of an element of the right one.
        result_bytes: Bytes of a result, or of a sum where terms are cut.
        multiple: What the columns of a tile are a multiple of, where there are as many.

    Raises:
        MemoryLimitError: If not even the smallest tile fits.

    Example:
        >>> tile_matmul(512, 1024, 1024, 64 << 10, result_bytes=4, multiple=16).tile
        (64, 32, 512)
    """

    def parts(tile: tuple[int, int, int]) -> int:
        m, n, k = tile
        return m * k * left_bytes + k * n * right_bytes + m * n * result_bytes

    def traffic(tile: tuple[int, int, int]) -> int:
        m, n, k = (-(-whole // each) for whole, each in zip((rows, columns, terms), tile, strict=True))
        return (
            rows * terms * left_bytes * n
            + terms * columns * right_bytes * m
            + rows * columns * result_bytes * (2 * k - 1)
        )

    best = None
    for tile in itertools.product(_halves(rows), _halves(columns, multiple), _halves(terms)):
        if parts(tile) <= budget:
            found = MatMulTiling((rows, columns, terms), tile, parts(tile), traffic(tile))
            if best is None or (found.traffic, -found.nbytes) < (best.traffic, -best.nbytes):
                best = found
    if best is None:
        raise _too_small("the matrix product", budget, parts((1, min(multiple, columns), 1)))
    return best


def _too_small(what: str, budget: int, least: int) -> MemoryLimitError:
    return MemoryLimitError(
        f"no tile of {what} fits", expected=f"at most {budget} bytes", found=f"{least} bytes for the smallest",
        hint="Let the target refuse the layer.",
    )  # fmt: skip


def _halves(count: int, multiple: int = 1) -> list[int]:
    """Return sizes of pieces: all, a half, a quarter and so on, rounded up to a multiple where that is not more."""
    sizes: dict[int, None] = {}
    piece = max(count, 1)
    while True:
        sizes[min(-(-piece // multiple) * multiple, max(count, 1))] = None
        if piece == 1:
            return [*sizes]
        piece = -(-piece // 2)


def _pieces(count: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def _outputs(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    return max((size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1, 0)


def _span(outputs: int, kernel: int, stride: int, dilation: int) -> int:
    return (outputs - 1) * stride + (kernel - 1) * dilation + 1
