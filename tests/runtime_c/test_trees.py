"""Walks through trees against the walk in numpy, on every instruction set; damaged tables; classes of scores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.runtime_c.helpers import Weight, run_single
from tinycomp.errors import TargetError
from tinycomp.ops.trees import AGGREGATES, TRANSFORMS, Ensemble, finished, transformed

F32 = np.float32
TRACKS = 1 << 30


def ensemble(seed: int, *, trees: int, outputs: int, features: int, depth: int, aggregate: str = "SUM") -> Ensemble:
    """Random trees, some of them a leaf alone."""
    rng = np.random.default_rng(seed)
    rows: list[list[int]] = []
    roots, depths, leaves = [], [], 0

    def grow(left: int) -> tuple[int, int]:
        nonlocal leaves
        at = len(rows)
        rows.append([])
        if left == 0 or rng.random() < 0.2:
            rows[at] = [0, at, at, leaves]
            leaves += 1
            return at, 0
        (yes, first), (no, second) = grow(left - 1), grow(left - 1)
        rows[at] = [int(rng.integers(features)), yes, no, -1]
        return at, 1 + max(first, second)

    for _ in range(trees):
        root, reach = grow(depth)
        roots.append(root)
        depths.append(reach)
    table = np.array(rows, np.int32)
    return Ensemble(
        table[:, 0], (rng.integers(-3, 4, len(rows)) / 2).astype(F32), table[:, 1:3], rng.random(len(rows)) < 0.3,
        table[:, 3], rng.standard_normal((leaves, outputs)).astype(F32), np.array(roots, np.int32),
        np.array(depths, np.int32), aggregate, "NONE", rng.standard_normal(outputs).astype(F32),
    )  # fmt: skip


def walk(
    e: Ensemble, x: np.ndarray, isa: str, pool=None, *, nodes: np.ndarray | None = None, **changes: int
) -> np.ndarray:
    feature = np.where(e.missing & (e.leaf < 0), e.feature | TRACKS, e.feature)
    thresholds = e.threshold.view(np.int32).reshape(len(feature), -1)
    table = np.concatenate([feature[:, None], thresholds, e.children], 1).astype(np.int32)
    params = {
        "rows": len(x), "features": x.shape[1], "outputs": e.outputs, "nodes": len(e.feature), "leaves": len(e.weights),
        "trees": len(e.roots), "aggregate": AGGREGATES.index(e.aggregate), "tracks": 1,
        "small": len(e.feature),
    } | changes  # fmt: skip
    roots = np.stack([e.roots, e.depths, e.columns])
    operands = [x, *map(Weight, (table if nodes is None else nodes, e.leaf, roots, e.weights, e.base))]
    kind = e.threshold.dtype.name
    return run_single(f"tree_ensemble_f{kind[-2:]}", operands, params, (kind, (len(x), e.outputs)), isa, pool)


def wide(e: Ensemble) -> Ensemble:
    """The same trees in double, where thresholds and weights are no numbers of float32."""
    changes = {name: getattr(e, name).astype(np.float64) + 1e-12 for name in ("threshold", "weights", "base")}
    return dataclasses.replace(e, **changes)


def data(rows: int, features: int) -> np.ndarray:
    rng = np.random.default_rng(rows)
    x = (rng.integers(-4, 5, (rows, features)) / 2).astype(F32)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 65, 200])
@pytest.mark.parametrize(
    ("trees", "outputs", "depth"), [(1, 1, 0), (1, 1, 4), (7, 1, 6), (20, 3, 9), (9, 1, 14), (8, 10, 3)]
)
def test_walks(rows: int, trees: int, outputs: int, depth: int, isa: str, pool) -> None:
    made = ensemble(trees + depth, trees=trees, outputs=outputs, features=5, depth=depth)
    x = data(rows, 5)
    np.testing.assert_allclose(walk(made, x, isa, pool), made.scores(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 8, 70])
@pytest.mark.parametrize(("trees", "outputs", "depth"), [(1, 1, 0), (7, 1, 6), (20, 3, 9)])
def test_walks_in_double(rows: int, trees: int, outputs: int, depth: int, isa: str, pool) -> None:
    made = wide(ensemble(trees + depth, trees=trees, outputs=outputs, features=5, depth=depth))
    x = data(rows, 5) + np.random.default_rng(0).choice([0.0, 2e-12], (rows, 5))
    np.testing.assert_allclose(walk(made, x, isa, pool), made.scores(x), rtol=1e-14, atol=1e-14)


def test_thresholds_in_double_that_no_float_tells_apart(isa: str) -> None:
    """Many thresholds of one column, so that it is searched in many steps, and rows that are on them and beside."""
    made = wide(ensemble(1, trees=40, outputs=1, features=2, depth=5))
    made.threshold[:] = 1 + np.random.default_rng(1).integers(0, 300, len(made.threshold)) * 2.0**-52
    x = 1 + np.random.default_rng(2).integers(-2, 303, (100, 2)) * 2.0**-52
    x[::11, 0] = np.nan
    np.testing.assert_array_equal(walk(made, x, isa), walk(made, x, isa, small=0))
    np.testing.assert_allclose(walk(made, x, isa), made.scores(x), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_missing_values_at_strange_thresholds(dtype: str, isa: str) -> None:
    """Both signs of zero, the least and the greatest numbers, infinities, and NaN, which no number is at most."""
    real = np.dtype(dtype).type
    least = np.nextafter(real(0), real(1))
    strange = [0.0, -0.0, least, -least, np.finfo(real).max, np.finfo(real).min, np.inf, -np.inf, np.nan]
    for threshold in strange:
        for missing in (False, True):
            made = Ensemble(
                np.zeros(3, np.int32), np.array([threshold, 0, 0], real), np.array([[1, 2], [1, 1], [2, 2]], np.int32),
                np.array([missing, False, False]), np.array([-1, 0, 1], np.int32), np.array([[1.0], [2.0]], real),
                np.zeros(1, np.int32), np.ones(1, np.int32), "SUM", "NONE", np.zeros(1, real),
            )  # fmt: skip
            for x in (np.array(strange, real)[:, None], np.array(2 * strange, real)[:, None]):  # many are no walk
                np.testing.assert_array_equal(walk(made, x, isa), made.scores(x), f"{threshold} {missing}")


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("rows", [3, 20])
def test_trees_that_speak_of_one_output(rows: int, aggregate: str, isa: str) -> None:
    made = ensemble(7, trees=9, outputs=3, features=3, depth=4, aggregate=aggregate)
    owner = np.searchsorted(made.roots, np.flatnonzero(made.leaf >= 0), side="right") - 1
    others = np.arange(3) != (owner % 3)[:, None]
    made.weights[others & (owner < 8)[:, None]] = 0
    assert made.columns.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, -1]
    x = data(rows, 3)
    np.testing.assert_allclose(walk(made, x, isa), made.scores(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates(aggregate: str, isa: str) -> None:
    made = ensemble(3, trees=6, outputs=2, features=3, depth=4, aggregate=aggregate)
    x = data(20, 3)
    np.testing.assert_allclose(walk(made, x, isa), made.scores(x), rtol=1e-5, atol=1e-6)


def equal_to(values: list[float], missing: int, real: type = F32) -> Ensemble:
    """A chain of tests for equality, each of which is two nodes; those up to ``missing`` are passed by NaN."""
    count = len(values)
    places = 2 * np.arange(count)
    table, threshold = np.zeros((3 * count + 1, 2), np.int32), np.zeros(3 * count + 1, real)
    leaf, feature = np.full(len(table), -1, np.int32), np.zeros(len(table), np.int32)
    for i, (at, value) in enumerate(zip(places, values, strict=True)):
        other, yes = at + 2, 2 * count + 1 + i
        table[at], table[at + 1], table[yes] = (at + 1, other), (other, yes), yes
        threshold[at], threshold[at + 1] = value, np.nextafter(real(value), real(-np.inf))
        leaf[yes], feature[at], feature[at + 1] = i, i % 2, i % 2
    table[2 * count], leaf[2 * count] = 2 * count, count
    weights = np.arange(count + 1, dtype=real)[:, None] + 1
    return Ensemble(
        feature, threshold, table, np.arange(len(table)) % 2 + np.arange(len(table)) < 2 * missing, leaf, weights,
        np.zeros(1, np.int32), np.array([2 * count], np.int32), "SUM", "NONE", np.zeros(1, real),
    )  # fmt: skip


@pytest.mark.parametrize(("count", "real"), [*[(n, F32) for n in (1, 2, 3, 31, 32, 40, 63, 64)], (40, np.float64)])
def test_tests_for_equality(count: int, real: type, isa: str) -> None:
    """As many leaves as one word has and one more, as two have and more; the table is none of a tree."""
    made = equal_to([(i - count // 2) / 2 for i in range(count)], missing=1, real=real)
    x = np.concatenate([data(200, 2), np.repeat(np.arange(-40, 40)[:, None] / 2, 2, 1).astype(F32)]).astype(real)
    x[0], x[1] = np.inf, -np.inf
    expected = made.scores(x)
    assert len(np.unique(expected)) > min(count, 5)
    np.testing.assert_array_equal(walk(made, x, isa), expected)


@pytest.mark.parametrize("small", [0, 1, 100])
def test_trees_for_which_there_is_no_room_are_walked(small: int, isa: str) -> None:
    made = ensemble(3, trees=30, outputs=2, features=3, depth=5)
    x = data(70, 3)
    np.testing.assert_array_equal(walk(made, x, isa, small=small), walk(made, x, isa))


def test_a_damaged_table_is_walked_in_bounds(isa: str) -> None:
    made = ensemble(5, trees=4, outputs=2, features=3, depth=5)
    x, rng = data(30, 3), np.random.default_rng(0)
    for _ in range(30):
        nodes = rng.integers(-(2**31), 2**31, (len(made.feature), 4)).astype(np.int32)
        small = rng.random(nodes.shape) < 0.7
        nodes[small] = rng.integers(0, len(made.feature), int(small.sum()))
        assert walk(made, x, isa, nodes=nodes).shape == (30, 2)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"aggregate": 4}, "there is no aggregate 4"),
        ({"features": 0}, "0 columns"),
        ({"small": -1}, "-1 of"),
        ({"small": 10**6}, "1000000 of"),
        ({"rows": 1000}, "reaches past the end"),
        ({"leaves": 10**6}, "ends at byte"),
    ],
)
def test_refused(changes: dict[str, int], text: str, isa: str) -> None:
    made = ensemble(5, trees=4, outputs=2, features=3, depth=5)
    with pytest.raises(TargetError, match=text):
        walk(made, data(3, 3), isa, **changes)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms(transform: str, classes: int, dtype: str, isa: str, pool) -> None:
    rng = np.random.default_rng(classes)
    x = (rng.random((100, classes)) if transform == "PROBIT" else rng.standard_normal((100, classes))).astype(dtype)
    x[::9, 0] = 0.25
    params = {"rows": 100, "classes": classes, "transform": TRANSFORMS.index(transform), "only": -1}
    params |= {"positive": 0, "mirrored": 0, "wide": int(x.dtype == np.float64)}
    actual = run_single("class_scores_f32", [None, x, None], params, ("float32", x.shape), isa, pool)
    tolerance = 1e-4 if transform == "PROBIT" else 1e-6  # it takes the difference of numbers that are nearly equal
    np.testing.assert_allclose(actual, transformed(x.astype(F32), transform), rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [0, 1])
def test_one_class_speaks_for_both(transform: str, positive: int, isa: str) -> None:
    made = ensemble(0, trees=1, outputs=2, features=1, depth=0)
    fields = {**vars(made), "transform": transform, "only": 0, "mirrored": True, "positive": bool(positive)}
    x = np.random.default_rng(0).standard_normal((50, 2)).astype(F32)
    params = {
        "rows": 50,
        "classes": 2,
        "transform": TRANSFORMS.index(transform),
        "only": 0,
        "positive": positive,
        "wide": 0,
    }
    actual = run_single("class_scores_f32", [None, x, None], params | {"mirrored": 1}, ("float32", x.shape), isa)
    np.testing.assert_allclose(actual, finished(Ensemble(**fields), x)[1], rtol=1e-5, atol=1e-6)
