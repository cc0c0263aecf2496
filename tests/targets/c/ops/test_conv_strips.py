"""Chains of convolutions that are computed strip by strip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.ops.spatial import Window
from tinycomp.targets.c.codegen.strips import Compute, Move
from tinycomp.targets.c.ops import conv_strips
from tinycomp.targets.c.ops.conv_strips import X, best_schedule, in_strips, part_of, read_of


def extent(kernel: int, dilation: int) -> int:
    return (kernel - 1) * dilation + 1


@st.composite
def chains(draw: st.DrawFn) -> list[Window[int]]:
    """Return the geometries of up to five convolutions, one after the other."""
    size, windows = draw(st.integers(1, 40)), []
    for _ in range(draw(st.integers(1, 5))):
        kernel, stride, dilation = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
        before, after = (draw(st.integers(0, extent(kernel, dilation) - 1)) for _ in range(2))
        output = (size + before + after - extent(kernel, dilation)) // stride + 1
        if output < 1:
            break
        windows.append(Window((size, 3), (kernel, 1), (stride, 1), (dilation, 1), (before, 0), (after, 0), (output, 3)))
        size = output
    return windows or [Window((size, 3), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), (size, 3))]


def computed(window: Window[int], x: np.ndarray) -> np.ndarray:
    """Return sums of weighted lines; those of padding are 0."""
    lines = []
    for line in range(window.output[0]):
        taps = [line * window.strides[0] - window.before[0] + t * window.dilations[0] for t in range(window.kernel[0])]
        lines.append(sum((t + 2) * x[at] for t, at in enumerate(taps) if 0 <= at < len(x)))
    return np.array(lines, np.int64)


@settings(max_examples=300, deadline=None)
@given(chains(), st.integers(1, 12))
def test_every_line_is_computed_once_from_lines_that_are_there(windows: list[Window[int]], lines: int) -> None:
    x = np.arange(1, windows[0].sizes[0] + 1)
    wanted = [x]
    for window in windows:
        wanted.append(computed(window, wanted[-1]) % 9973)
    plan = in_strips(windows, lines)
    rooms = [np.full(room, -1) for room in plan.rooms]
    result, done = np.full(windows[-1].output[0], -1), [0] * len(windows)
    for step in plan.steps:
        if isinstance(step, Move):
            assert step.source >= step.count > 0, "the copy does not overlap itself"
            rooms[step.link][: step.count] = rooms[step.link][step.source : step.source + step.count]
            continue
        operand = rooms[step.link - 1] if step.link else x
        reads = read_of(windows[step.link]).of(step.lines)
        at, reads_at = step.lines.start - step.first, reads.start - step.firsts.get(X, 0)
        read = operand[reads_at : reads_at + len(reads)]
        np.testing.assert_array_equal(read, wanted[step.link][reads.start : reads.stop])
        written = computed(part_of(windows[step.link], step), read) % 9973
        assert step.lines.start == done[step.link], "in order, and once"
        done[step.link] = step.lines.stop
        (result if step.link == len(windows) - 1 else rooms[step.link])[at : at + len(written)] = written
    assert done[-1] == windows[-1].output[0]
    np.testing.assert_array_equal(result, wanted[-1])


def test_strips_are_as_wide_as_the_cache_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    half = 1 << 20
    monkeypatch.setattr(conv_strips, "cache", lambda: 2 * half)
    same = Window((64, 64), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (64, 64))
    whole = best_schedule([same, same], [half // 64])
    assert [type(step) for step in whole.steps] == [Compute, Compute]
    narrow = best_schedule([same, same], [half // 12])
    assert narrow.rooms == in_strips([same, same], 8).rooms == [10, 0]
    assert best_schedule([same, same], [half // 6], threads=2) == narrow
    least = best_schedule([same, same], [half])
    assert least.rooms == in_strips([same, same], conv_strips.FEWEST_LINES).rooms


def network(layers: list[dict[str, Any]], channels: int, size: int, batch: int) -> Any:
    """Return a model of convolutions in a row; one with ``"add"`` adds an operand of the result's shape."""
    rng = np.random.default_rng(0)
    nodes, constants, inputs, value = [], {}, {"x": (batch, channels, size, size)}, "x"
    for number, layer in enumerate(layers):
        groups = layer.get("group", 1)
        weights = rng.standard_normal((layer["out"], channels // groups, *layer["kernel_shape"])).astype(np.float32)
        bias = rng.standard_normal(layer["out"]).astype(np.float32)
        constants |= {f"w{number}": weights / 4, f"b{number}": bias}
        attrs = {key: held for key, held in layer.items() if key not in ("out", "add", "op")}
        nodes.append(helper.make_node("Conv", [value, f"w{number}", f"b{number}"], [f"c{number}"], **attrs))
        value = f"c{number}"
        if "add" in layer:
            inputs["r"] = (batch, layer["out"], *layer["add"])
            nodes.append(helper.make_node("Add", [value, "r"], [f"a{number}"]))
            value = f"a{number}"
        nodes.append(helper.make_node(layer.get("op", "LeakyRelu"), [value], [f"v{number}"]))
        value, channels = f"v{number}", layer["out"]
    feeds = {name: np.empty(shape, np.float32) for name, shape in inputs.items()}
    return make_model(nodes, feeds, constants, [value])


def depthwise(channels: int, **attrs: Any) -> dict[str, Any]:
    return {"out": channels, "group": channels, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], **attrs}


def pointwise(out: int, **attrs: Any) -> dict[str, Any]:
    return {"out": out, "kernel_shape": [1, 1], **attrs}


STEM = {"out": 8, "kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
NETWORKS: dict[str, tuple[list[dict[str, Any]], int, int, int]] = {
    "a mobile network begins so": ([STEM, depthwise(8), pointwise(12), depthwise(12, strides=[2, 2])], 3, 61, 1),
    "two images": ([pointwise(20), depthwise(20)], 5, 23, 2),
    "a residual": ([pointwise(20), depthwise(20), pointwise(5, add=(30, 30), op="Sigmoid")], 5, 30, 2),
    "wide windows": ([depthwise(16, kernel_shape=[5, 5], pads=[2, 2, 2, 2]), pointwise(7)], 16, 40, 1),
    "dilated": ([pointwise(16), depthwise(16, dilations=[2, 2], pads=[2, 2, 2, 2])], 4, 33, 1),
    "without padding": ([depthwise(8, pads=[0, 0, 0, 0]), pointwise(9), depthwise(9, pads=[0, 1, 0, 1])], 8, 37, 1),
    "steps of three": ([pointwise(16), depthwise(16, strides=[3, 3])], 4, 50, 1),
}


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_strips, "cache", lambda: 1 << 14)
    monkeypatch.setattr(conv_strips, "LARGE_OF_SEVERAL", conv_strips.LARGE)


def feeds_of(module: tinycomp.Module) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {each.name: rng.standard_normal(each.shape).astype(np.float32) for each in module.inputs}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_whole_images_to_the_bit(name: str, threads: int, request: pytest.FixtureRequest) -> None:
    model = network(*NETWORKS[name])
    whole = tinycomp.compile(model, threads=threads, strict=True)
    request.getfixturevalue("small_caches")
    strips = tinycomp.compile(model, threads=threads, strict=True)
    feeds = feeds_of(whole)
    (found,), (wanted,) = strips.run(feeds).values(), whole.run(feeds).values()
    np.testing.assert_array_equal(found, wanted)
    calls = [len(list(module.profile(feeds).rows)) for module in (whole, strips)]
    assert calls[1] > calls[0], "there are strips"
    assert strips.report().regions[0].macs == whole.report().regions[0].macs


ALONE: dict[str, tuple[list[dict[str, Any]], int, int, int]] = {
    "nothing is depthwise": ([pointwise(20), pointwise(9)], 5, 23, 1),
    "dense windows, whose algorithm depends on sizes": (
        [{"out": 8, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, depthwise(8)], 4, 23, 1,
    ),
    "padding wider than the window": ([pointwise(8), depthwise(8, pads=[3, 3, 3, 3])], 4, 23, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_what_is_no_chain(name: str, small_caches: None) -> None:
    module = tinycomp.compile(network(*ALONE[name]), threads=1, strict=True)
    feeds = feeds_of(module)
    convolutions = [row for row in module.profile(feeds).rows if "conv" in row.kernel]
    assert len(convolutions) == len(ALONE[name][0])


@pytest.mark.parametrize(
    ("held", "threads", "strips"),
    [(1 << 18, 1, True), (1 << 17, 2, False), (1 << 15, 2, True), (1 << 20, 1, False), (0, 1, False)],
)
def test_images_that_the_caches_hold_are_whole(
    held: int, threads: int, strips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv_strips, "cache", lambda: held)
    module = tinycomp.compile(network([pointwise(20), depthwise(20)], 5, 60, 1), threads=threads)
    convolutions = [row for row in module.profile(feeds_of(module)).rows if "conv" in row.kernel]
    assert (len(convolutions) > 2) == strips


@pytest.mark.parametrize(("held", "used"), [(512 << 10, 0), (1 << 20, 1 << 20), (2 << 20, 2 << 20)])
def test_small_caches_gain_nothing_by_strips(held: int, used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_strips, "cache_bytes", lambda level: held)
    assert conv_strips.cache() == used
