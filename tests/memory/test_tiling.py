"""Tiles: piece by piece equals the whole, every tile fits into the budget, halos and zeros."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinycomp.errors import MemoryLimitError, OptionError
from tinycomp.memory.tiling import Convolution, axis_tiles, tile_convolution, tile_matmul
from tinycomp.ops.conv import convolve
from tinycomp.ops.spatial import make_window


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    rank = draw(st.integers(1, 2))
    group = draw(st.sampled_from([1, 1, 2, 3]))

    def axes(low: int, high: int, times: int = 1) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(times * rank))

    kernel, dilations, pads = axes(1, 3), axes(1, 2), axes(0, 3, 2)
    sizes = axes(1, 9)
    whole = Convolution(
        group * draw(st.integers(1, 5)), group * draw(st.integers(1, 6)), sizes, kernel, axes(1, 3), dilations, pads,
        group,
    )  # fmt: skip
    assume(all(whole.outputs))
    return whole


def convolution(x: np.ndarray, w: np.ndarray, whole: Convolution, pads: list[int], group: int) -> np.ndarray:
    window = make_window(
        "Conv", x.shape[2:], w.shape[2:], strides=[*whole.strides], dilations=[*whole.dilations], pads=pads
    )
    return convolve(x, w, window, group)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(convolutions(), st.floats(0, 1), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_tile_by_tile_equals_the_whole(whole: Convolution, share: float, multiple: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (2, whole.channels, *whole.sizes)).astype(np.float64)
    w = rng.integers(-9, 9, (whole.filters, whole.channels // whole.group, *whole.kernel)).astype(np.float64)
    expected = convolution(x, w, whole, [*whole.pads], whole.group)
    assert expected.shape[2:] == whole.outputs
    large = tile_convolution(whole, 10**9, data_bytes=8, weight_bytes=8, result_bytes=8)
    # Where strides leave data out, several tiles may read less than one.
    dense = all(s <= span for s, span in zip(whole.strides, whole.spans([1] * len(whole.sizes)), strict=True))
    assert large.count == 1 or not dense
    budget = int(share * large.nbytes)
    try:
        tiling = tile_convolution(whole, budget, data_bytes=8, weight_bytes=8, result_bytes=8, multiple=multiple)
    except MemoryLimitError:
        return
    assert tiling.nbytes <= budget
    found, written = np.zeros_like(expected), np.zeros(expected.shape, int)
    for tile in tiling.tiles():
        data = x[(slice(None), tile.channels, *tile.inputs)]
        padded = np.pad(data, [(0, 0), (0, 0), *tile.pads])
        weights = w[tile.filters, tile.terms]
        part = convolution(padded, weights, whole, [0] * 2 * len(whole.sizes), tile.group)
        assert padded.nbytes // 2 + weights.nbytes + part.nbytes // 2 <= tiling.nbytes
        assert tile.adds == written[(slice(None), tile.filters, *tile.outputs)].any()
        found[(slice(None), tile.filters, *tile.outputs)] += part
        written[(slice(None), tile.filters, *tile.outputs)] += 1
    np.testing.assert_array_equal(found, expected)
    assert written.min() == written.max()


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.tuples(*[st.integers(1, 40)] * 3), st.integers(20, 4000), st.integers(1, 8))
def test_products_tile_by_tile_equal_the_whole(sizes: tuple[int, int, int], budget: int, multiple: int) -> None:
    rows, columns, terms = sizes
    a, b = np.arange(rows * terms).reshape(rows, terms), np.arange(terms * columns).reshape(terms, columns)
    try:
        tiling = tile_matmul(*sizes, budget, result_bytes=4, multiple=multiple)
    except MemoryLimitError:
        return
    found = np.zeros((rows, columns), int)
    tiles = [*tiling.tiles()]
    for tile in tiles:
        left, right = a[tile.rows, tile.terms], b[tile.terms, tile.columns]
        assert left.size + right.size + 4 * left.shape[0] * right.shape[1] <= tiling.nbytes <= budget
        assert tile.adds == bool(tile.terms.start)
        found[tile.rows, tile.columns] += left @ right
    assert len(tiles) == tiling.count
    np.testing.assert_array_equal(found, a @ b)


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_tiles_of_an_axis_cover_its_results_once(size: int, tile: int, kernel: int, stride: int, dilation: int) -> None:
    pads = (kernel, kernel - 1)
    tiles = axis_tiles(size, tile, kernel=kernel, stride=stride, dilation=dilation, pads=pads)
    total = (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1
    assert [i for t in tiles for i in range(t.outputs.start, t.outputs.stop)] == [*range(max(total, 0))]
    for t in tiles:
        needed = (t.outputs.stop - t.outputs.start - 1) * stride + (kernel - 1) * dilation + 1
        assert t.inputs.stop - t.inputs.start + sum(t.pads) == needed
        assert 0 <= t.inputs.start <= t.inputs.stop <= size
        assert min(t.pads) >= 0


def test_channels_are_cut_where_one_result_needs_too_many() -> None:
    whole = Convolution(512, 16, (1, 1), (3, 3), pads=(1, 1, 1, 1))
    tiling = tile_convolution(whole, 20_000, result_bytes=4, multiple=16)
    assert (tiling.channels, tiling.filters) == (128, 16)
    assert [tile.adds for tile in tiling.tiles()] == [False, True, True, True]


def test_filters_are_a_multiple_where_there_are_as_many() -> None:
    tiling = tile_convolution(Convolution(8, 40, (8, 8), (3, 3)), 4000, multiple=16)
    assert tiling.filters in (16, 32)


def test_fewer_bytes_move_with_a_larger_budget() -> None:
    whole = Convolution(64, 128, (56, 56), (3, 3), pads=(1, 1, 1, 1))
    traffics = [tile_convolution(whole, kilobytes << 10).traffic for kilobytes in (16, 32, 64, 128, 256, 512, 1024)]
    assert traffics == sorted(traffics, reverse=True)
    assert traffics[-1] == 64 * 58 * 58 + 64 * 128 * 9 + 128 * 56 * 56
    assert prod(whole.outputs) == 56 * 56


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(MemoryLimitError, match=r"no tile of the convolution fits; expected at most 10 bytes; found 1"):
        tile_convolution(Convolution(4, 4, (8, 8), (3, 3)), 10)
    with pytest.raises(MemoryLimitError, match=r"no tile of the matrix product fits; expected at most 2 "):
        tile_matmul(4, 4, 4, 2)
    with pytest.raises(OptionError, match="Convolution: not a convolution; found Convolution"):
        Convolution(3, 4, (8,), (3,), group=2)
    with pytest.raises(OptionError, match="not a convolution"):
        Convolution(4, 4, (8,), (3, 3))
