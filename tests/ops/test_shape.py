"""Dropout: its masks, and in training; other operators on shapes are in ``cases/shape.py``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import run_ours, sample


@pytest.mark.parametrize("version", [7, 10, 12, 13, 22])
def test_dropout_at_inference(version):
    x = sample("float32", (3, 4))
    mask = run_ours("Dropout", [x], {}, version, outputs=2)[1]
    assert mask.dtype == (np.float32 if version == 7 else np.bool_)
    assert mask.all()


def test_dropout_in_training():
    x = np.ones(4000, np.float32)
    y, mask = run_ours("Dropout", [x, np.array(0.25, "f"), np.array(True)], {"seed": 3}, outputs=2)
    assert mask.dtype == np.bool_
    assert abs(mask.mean() - 0.75) < 0.03
    np.testing.assert_allclose(y, np.where(mask, 4 / 3, 0), rtol=1e-6)
    assert not run_ours("Dropout", [x, np.array(1.0, "f"), np.array(True)], {})[0].any()
