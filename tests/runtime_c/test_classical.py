"""Distances and the coupling of pairs against numpy, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import Weight, run_single
from tinycomp.errors import TargetError
from tinycomp.ops.distance import METRICS, distances
from tinycomp.ops.svm import pairwise_coupling

F32 = np.float32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("rows", [1, 33, 70])
@pytest.mark.parametrize(("points", "features"), [(1, 1), (16, 5), (33, 17), (100, 4)])
def test_distances(dtype: str, metric: str, rows: int, points: int, features: int, isa: str, pool) -> None:
    rng = np.random.default_rng(points)
    x, others = (rng.standard_normal((count, features)).astype(dtype) for count in (rows, points))
    x[0] = others[-1]
    params = {"rows": rows, "points": points, "features": features, "metric": METRICS.index(metric)}
    y = run_single(f"distances_f{dtype[-2:]}", [x, Weight(others)], params, (dtype, (rows, points)), isa, pool)
    rtol = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(y, distances(x, others, metric=metric), rtol=rtol, atol=rtol / 10)
    assert y[0, -1] == 0  # no difference is lost


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metric": 3}, "there is no metric 3"),
        ({"features": 0}, "2 points of 0 features"),
        ({"rows": 1000}, "reaches past the end"),
    ],
)
def test_refused_distances(changes: dict[str, int], text: str, isa: str) -> None:
    params = {"rows": 2, "points": 2, "features": 2, "metric": 0} | changes
    operands = [np.zeros((2, 2), F32), Weight(np.zeros((2, 2), F32))]
    with pytest.raises(TargetError, match=text):
        run_single("distances_f32", operands, params, ("float32", (2, 2)), isa)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("rows", [1, 16, 50])
def test_coupling(classes: int, rows: int, isa: str, pool) -> None:
    rng = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    x, (a, b) = 2 * rng.standard_normal((rows, pairs)).astype(F32), rng.standard_normal((2, pairs)).astype(F32)
    x[0] = 300  # exponentials of it are infinite
    params = {"rows": rows, "classes": classes}
    operands = [x, Weight(-abs(a)), Weight(b)]
    y = run_single("pairwise_coupling_f32", operands, params, ("float32", (rows, classes)), isa, pool)
    np.testing.assert_allclose(y, pairwise_coupling(x, prob_a=(-abs(a)).tolist(), prob_b=b.tolist()), atol=1e-6)
    np.testing.assert_allclose(y.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("classes", [1, 1 << 15])
def test_refused_coupling(classes: int, isa: str) -> None:
    x = np.zeros((1, 1), F32)
    with pytest.raises(TargetError, match=f"{classes} classes"):
        run_single(
            "pairwise_coupling_f32",
            [x, Weight(x), Weight(x)],
            {"rows": 1, "classes": classes},
            ("float32", (1, 2)),
            isa,
        )
