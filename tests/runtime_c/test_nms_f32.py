"""Non-maximum suppression, box by box against its definition; positions as coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import check_work
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

ONE = np.float32(1)


def random_boxes(rng: np.random.Generator, batch: int, count: int) -> np.ndarray:
    """Opposite corners in any order on a coarse grid, so that many overlaps are equal, with some strange ones."""
    boxes = rng.integers(0, 12, (batch, count, 4)).astype(np.float32)
    strange = rng.random((batch, count)) < 0.1
    boxes[strange] = rng.choice(np.array([0, np.nan, np.inf, -np.inf, 5], "f4"), (int(strange.sum()), 4))
    return boxes


def random_scores(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Few different scores, both zeros and NaN among them."""
    return rng.choice(np.array([0.0, -0.0, 0.25, 0.5, 0.75, 1, -1, -np.inf, np.inf, np.nan], "f4"), shape)


def overlaps(boxes: np.ndarray, center: int) -> np.ndarray:
    """The share of the union that every two of the boxes (n, 4) have in common, as (n, n)."""
    first, second = boxes[:, :2], boxes[:, 2:]
    low, high = np.minimum(first, second), np.maximum(first, second)
    if center:
        low, high = first - second / 2, first + second / 2
    sides = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    common = np.where((sides > 0).all(-1), sides[..., 0] * sides[..., 1], np.float32(0))
    area = (high - low)[:, 0] * (high - low)[:, 1]
    union = area[:, None] + area - common
    return np.where((common > 0) & (union > 0), common / union, np.float32(0))


@np.errstate(all="ignore")
def expected(boxes, scores, most, iou, least, center) -> list[list[int]]:
    """The positions kept of every class of every image."""
    kept = []
    for image, of_image in enumerate(scores):
        suppressed = overlaps(boxes[image], center) > np.float32(iou)
        for label, row in enumerate(of_image):
            candidates = [i for i in range(len(row)) if least is None or row[i] > least]
            candidates.sort(key=lambda i, row=row: (np.isnan(row[i]), -row[i] if row[i] == row[i] else 0, i))
            best: list[int] = []
            for i in candidates:
                if len(best) < most and not suppressed[i, best].any():
                    best.append(i)
            kept.append([(image * len(of_image) + label) * len(row) + i for i in best])
    return kept


def run(boxes, scores, most, iou, least, isa, pool=None, center=0, room=None):
    """Return positions and counts, whatever the number of threads."""
    batch, classes, count = scores.shape
    room = count if room is None else room
    given = [
        boxes,
        scores,
        *(None if x is None else np.array([x], t) for x, t in ((most, "i8"), (iou, "f4"), (least, "f4"))),
    ]
    feeds = [x for x in given if x is not None]
    places = iter(range(len(feeds)))
    operands = [ABSENT if x is None else Operand("input", next(places)) for x in given]
    shapes = (batch * classes, room), (batch * classes,)
    outputs = tuple(BufferSpec(n, "int64", s) for n, s in zip(("positions", "counts"), shapes, strict=True))
    params = {"batch": batch, "classes": classes, "boxes": count, "room": room, "center": center}
    call = Instruction("nms_f32", (Operand("output", 0), Operand("output", 1), *operands), params, ("node",))
    specs = tuple(BufferSpec(f"x{i}", x.dtype.name, x.shape) for i, x in enumerate(feeds))
    program = Program("test", specs, outputs, (), 0, (call,))
    check_work(program)
    found = []
    for threads in (None, pool) if pool is not None else (None,):
        results = [np.full(s, -7, np.int64) for s in shapes]
        runner(program, threads, isa).run(feeds, results)
        found.append([list(row[:n]) for row, n in zip(*results, strict=True)])
    assert all(other == found[0] for other in found[1:]), "threads change the result"
    return found[0]


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 40), (1, 2, 300), (3, 1, 17)], ids=str)
def test_definition(shape, center, isa, pool, rng):
    boxes, scores = random_boxes(rng, shape[0], shape[2]), random_scores(rng, *shape)
    for most, iou, least in [(shape[2], 0.0, None), (5, 0.3, 0.25), (shape[2], 1.0, -1.0), (1, 0.5, None)]:
        wanted = expected(boxes, scores, most, iou, least, center)
        assert run(boxes, scores, most, iou, least, isa, pool, center) == wanted, (most, iou, least)


def test_many_are_kept(isa, pool, rng):
    corner = rng.uniform(0, 30, (1, 700, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.5, 2, (1, 700, 2))], -1).astype(np.float32)
    scores = rng.random((1, 4, 700)).astype(np.float32)
    found = run(boxes, scores, 700, 0.4, 0.1, isa, pool)
    assert found == expected(boxes, scores, 700, 0.4, np.float32(0.1), 0)
    assert min(map(len, found)) > 100


def test_an_overlap_at_the_threshold_is_none(isa):
    """Of two unit squares that share a half, a third of the union is common: the float next to it decides."""
    boxes = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5]]], "f4")
    scores = np.array([[[0.5, 0.4]]], "f4")
    third = ONE / np.float32(3)
    assert run(boxes, scores, 2, third, None, isa) == [[0, 1]]
    assert run(boxes, scores, 2, np.nextafter(third, np.float32(0)), None, isa) == [[0]]


def test_limits(isa):
    boxes, scores = np.zeros((1, 3, 4), "f4"), np.ones((1, 2, 3), "f4")
    assert run(boxes, scores, None, None, None, isa) == [[], []]
    assert run(boxes, scores, 0, 0.5, None, isa) == [[], []]
    assert run(boxes, scores, -5, 0.5, None, isa) == [[], []]
    assert run(boxes, scores, 2, 0.5, None, isa) == [[0, 1], [3, 4]]
    assert run(boxes, scores, 1 << 62, 0.5, None, isa, room=2) == [[0, 1], [3, 4]]
    assert run(boxes, scores, 3, 0.5, 1.0, isa) == [[], []]
    assert run(boxes[:, :0], scores[:, :, :0], 3, 0.5, None, isa) == [[], []]
    assert run(boxes[:0], scores[:0], 3, 0.5, None, isa) == []


@pytest.mark.parametrize("iou", [-0.1, 1.5, np.nan])
def test_a_threshold_out_of_range_fails(iou, isa):
    with pytest.raises(ExecutionError, match="iou_threshold is not between 0 and 1"):
        run(np.zeros((1, 3, 4), "f4"), np.ones((1, 2, 3), "f4"), 2, iou, None, isa)


@pytest.mark.parametrize("segments", [0, 1, 50])
@pytest.mark.parametrize("shape", [(7,), (3, 4, 5)], ids=str)
def test_coordinates(shape, segments, isa, pool, rng):
    room = 9
    positions = rng.integers(0, np.prod(shape), (segments, room))
    counts = rng.integers(0, room + 1, segments)
    flat = np.concatenate([np.zeros(0, int), *(row[:n] for row, n in zip(positions, counts, strict=True))])
    rank = len(shape)
    sizes = dict(zip((f"size{i}" for i in range(8)), (1,) * (8 - rank) + shape, strict=True))
    params = {"segments": segments, "room": room, "rank": rank, **sizes}
    operands = (Operand("output", 0), Operand("output", 1), Operand("input", 0), Operand("input", 1))
    outputs = (BufferSpec("y", "int64", (segments * room, rank)), BufferSpec("count", "int64", ()))
    specs = (BufferSpec("positions", "int64", positions.shape), BufferSpec("counts", "int64", counts.shape))
    program = Program("test", specs, outputs, (), 0, (Instruction("coordinates", operands, params, ("node",)),))
    check_work(program)
    for threads in (None, pool):
        y, count = np.full(outputs[0].shape, -7), np.array(-7)
        runner(program, threads, isa).run([positions, counts], [y, count])
        assert count == len(flat)
        np.testing.assert_array_equal(y[: len(flat)], np.stack(np.unravel_index(flat, shape), -1))
        assert (y[len(flat) :] == -7).all()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"room": 4}, "there is room for more boxes than there are"),
        ({"center": 2}, "center must be 0 or 1"),
        ({"boxes": 1 << 40, "room": 0}, "more boxes than positions of 32 bits"),
        ({"classes": -1}, "a size is negative"),
    ],
)
def test_bad_parameters(changes, text):
    params = {"batch": 1, "classes": 2, "boxes": 3, "room": 3, "center": 0, **changes}
    places = (Operand("output", 0), Operand("output", 1), Operand("input", 0), Operand("input", 1), *[ABSENT] * 3)
    outputs = (BufferSpec("positions", "int64", (2, 3)), BufferSpec("counts", "int64", (2,)))
    inputs = (BufferSpec("boxes", "float32", (1, 3, 4)), BufferSpec("scores", "float32", (1, 2, 3)))
    with pytest.raises(TargetError, match=text):
        NativeProgram(Program("test", inputs, outputs, (), 0, (Instruction("nms_f32", places, params),)))
