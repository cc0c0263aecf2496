"""The four ways to choose a range."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantization.networks import Network
from tinycomp.quantization.calibration import choose_range, divergence, observer, squared_error, told_apart
from tinycomp.quantization.encoding import Encoding
from tinycomp.quantization.options import METHODS

ASYMMETRIC, SYMMETRIC = Encoding("uint8", symmetric=False), Encoding("int8", symmetric=True)
RNG = np.random.default_rng(0)
NORMAL = RNG.standard_normal(100_000).astype(np.float32)
DATA = {
    "normal": NORMAL,
    "positive": np.maximum(NORMAL, 0),
    "heavy tails": (RNG.standard_t(3, 100_000)).astype(np.float32),
    "outlier": np.append(np.tile(NORMAL, 20), np.float32(100)),
    "lopsided": np.float32(0.3) * NORMAL + np.maximum(np.float32(2) * NORMAL, 0),
    "seventeen levels": RNG.integers(0, 17, 5000).astype(np.float32) / 16,
}


def chosen(name: str, method: str, encoding: Encoding, percentile: float = 99.9) -> tuple[float, float]:
    seen = observer(method)
    for part in np.array_split(DATA[name], 7):
        seen.add(part)
    return choose_range(seen, method, encoding, percentile)


def error(name: str, limits: tuple[float, float], encoding: Encoding) -> float:
    affine = encoding.affine(*limits)
    return float(((affine.dequantize(affine.quantize(DATA[name])) - DATA[name]) ** 2).mean())


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("encoding", [ASYMMETRIC, SYMMETRIC], ids=str)
def test_a_range_lies_within_what_was_seen_and_holds_zero(name, method, encoding):
    low, high = chosen(name, method, encoding)
    assert min(DATA[name].min(), 0) <= low <= 0 <= high <= DATA[name].max()
    assert low < high


@pytest.mark.parametrize("name", DATA)
def test_minmax_is_everything(name):
    assert chosen(name, "minmax", ASYMMETRIC) == (min(DATA[name].min(), 0), DATA[name].max())


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("encoding", [ASYMMETRIC, SYMMETRIC], ids=str)
def test_mse_is_never_worse_than_the_others(name, encoding):
    found = {method: error(name, chosen(name, method, encoding), encoding) for method in METHODS}
    assert found["mse"] <= min(found.values()) * 1.02


@pytest.mark.parametrize("method", ["percentile", "entropy", "mse"])
def test_a_lone_outlier_is_cut_off(method):
    low, high = chosen("outlier", method, ASYMMETRIC)
    assert high < 70
    assert low < -2.5


@pytest.mark.parametrize("method", ["entropy", "mse"])
def test_few_levels_are_kept_as_they_are(method):
    assert chosen("seventeen levels", method, ASYMMETRIC) == (0.0, 1.0)


def test_a_percentile_holds_that_many():
    low, high = chosen("normal", "percentile", ASYMMETRIC, 99)
    assert ((low <= NORMAL) & (high >= NORMAL)).mean() == pytest.approx(0.99, abs=1e-3)
    assert (low, high) == pytest.approx((-2.576, 2.576), abs=0.05)
    low, high = chosen("normal", "percentile", SYMMETRIC, 99)
    assert (low, high) == pytest.approx((-2.576, 2.576), abs=0.05)
    low, high = chosen("positive", "percentile", ASYMMETRIC, 99)
    assert (low, high) == pytest.approx((0, 2.326), abs=0.05)


def test_all_per_cent_are_everything():
    for name in DATA:
        assert chosen(name, "percentile", ASYMMETRIC, 100) == chosen(name, "minmax", ASYMMETRIC)


def test_costs_agree_with_what_they_stand_for():
    seen = observer("mse")
    seen.add(NORMAL)
    cost = squared_error(seen, ASYMMETRIC)
    for limits in ((-3.0, 3.0), (-2.0, 4.0)):
        assert cost(*limits) / NORMAL.size == pytest.approx(error("normal", limits, ASYMMETRIC), rel=0.02)
    kullback = divergence(seen, ASYMMETRIC)
    assert kullback(seen.low, seen.high) < kullback(-1.0, 1.0)
    assert kullback(seen.low, seen.high) >= 0


@pytest.mark.parametrize("method", METHODS)
def test_a_value_that_is_always_zero_has_a_scale(method):
    seen = observer(method)
    seen.add(np.zeros(9, np.float32))
    assert ASYMMETRIC.affine(*choose_range(seen, method, ASYMMETRIC, 99.9)).scale == 1


@pytest.mark.parametrize(
    ("readers", "part"),
    [
        (["HardSwish"], (-3, 9)),
        (["HardSigmoid"], (-2.5, 2.5)),
        (["HardSwish", "HardSigmoid"], (-3, 9)),
        (["Relu"], (0, 9)),
        (["HardSwish", "Tanh"], (-8, 9)),
        ([], (-8, 9)),
        (["HardSigmoid", "Mul"], (-2.5, 9)),
        (["Mul"], (-8, 9)),
    ],
)
def test_what_readers_do_not_tell_apart_takes_no_steps(readers, part):
    net = Network(1, 2)
    other = net.const(1, 2)
    for op in readers:
        other = net.op(op, net.x, *([other] if op == "Mul" else []))
    assert told_apart(net.x, (-8, 9)) == part
