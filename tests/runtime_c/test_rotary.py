from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tinycomp.errors import ExecutionError, TargetError

POSITIONS = ("each", "shared", "following", "absent")


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, size: int, interleaved: int) -> np.ndarray:
    """Of x[batch, heads, rows, :] by angles [batch, rows, size / 2], or as wide as twice that."""
    y = x.copy()
    first, second = (
        (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(size // 2), slice(size // 2, size))
    )
    (c1, s1), (c2, s2) = (
        (t[:, None, :, : size // 2] for t in (cos, sin)),
        (t[:, None, :, -size // 2 :] for t in (cos, sin)),
    )
    y[..., first] = c1 * x[..., first] - s1 * x[..., second]
    y[..., second] = s2 * x[..., first] + c2 * x[..., second]
    return y


# batch, heads, rows, size, turned
SIZES = [(2, 3, 5, 12, 8), (1, 1, 1, 2, 2), (1, 4, 33, 64, 64), (2, 2, 3, 70, 70), (0, 2, 3, 4, 4), (2, 0, 3, 4, 4)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("form", [(0, False), (0, True), (1, False)], ids=["halves", "two tables", "neighbours"])
@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize("heads_last", [False, True])
def test_rotary_equals_numpy(size, form, kind, heads_last, isa, pool, rng):
    batch, heads, rows, width, count = size
    interleaved, wide = form
    table = count if wide else count // 2
    x = rng.standard_normal((batch, heads, rows, width), np.float32)
    params = {
        "batch": batch, "heads": heads, "rows": rows, "size": width, "turned": count, "interleaved": interleaved,
        "y_batch": heads * rows * width, "y_head": rows * width, "y_row": width, "table_row": table,
        "table_half": count // 2 if wide else 0, "table_batch": 0, "table_rows": 0, "position_batch": 0,
        "position_step": 0,
    }  # fmt: skip
    stored = np.ascontiguousarray(x.swapaxes(1, 2)) if heads_last else x
    steps = stored.strides if stored.size else (heads * rows * width * 4, rows * width * 4, width * 4, 4)
    order = (0, 2, 1) if heads_last and stored.size else (0, 1, 2)
    params |= {f"x_{name}": steps[axis] // 4 for name, axis in zip(("batch", "head", "row"), order, strict=True)}
    if kind == "absent":
        cos, sin = (rng.standard_normal((batch, rows, table), np.float32) for _ in range(2))
        params["table_batch"], given, at = rows * table, None, (cos, sin)
    else:
        cos, sin = (rng.standard_normal((40, table), np.float32) for _ in range(2))
        params["table_rows"] = 40
        if kind == "following":
            given, params["position_step"] = np.array([6]), 1
            places = np.broadcast_to(6 + np.arange(rows), (batch, rows))
        elif kind == "shared":
            given = rng.integers(-40, 40, rows)
            places = np.broadcast_to(given, (batch, rows))
        else:
            given = places = rng.integers(0, 40, (batch, rows))
            params["position_batch"] = rows
        at = cos[places], sin[places]
    y = run_single("rotary_f32", [stored, cos, sin, given], params, ("float32", x.shape), isa, pool)
    np.testing.assert_allclose(y, turned(x, *at, count, interleaved), rtol=1e-6, atol=1e-6)


PARAMS = {
    "batch": 1, "heads": 1, "rows": 2, "size": 4, "turned": 4, "interleaved": 0, "y_batch": 8, "y_head": 8, "y_row": 4,
    "x_batch": 8, "x_head": 8, "x_row": 4, "table_batch": 0, "table_row": 2, "table_half": 0, "table_rows": 3,
    "position_batch": 2, "position_step": 0,
}  # fmt: skip
X, TABLE = np.ones((1, 1, 2, 4), np.float32), np.ones((3, 2), np.float32)


@pytest.mark.parametrize(("positions", "step"), [([0, 3], 0), ([-4, 0], 0), ([2, 0], 1)])
def test_positions_outside_the_tables(positions, step, isa):
    operands, params = [X, TABLE, TABLE, np.array(positions)], PARAMS | {"position_step": step}
    with pytest.raises(ExecutionError, match="a position lies outside the tables of angles"):
        run_single("rotary_f32", operands, params, ("float32", X.shape), isa)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"turned": 6}, "6 of 4 features cannot be turned in pairs"),
        ({"turned": 3}, "3 of 4 features"),
        ({"interleaved": 2}, "interleaved must be 0 or 1"),
        ({"interleaved": 1, "table_half": 2}, "table_half is out of range"),
        ({"position_step": 2}, "position_step must be 0 or 1"),
        ({"table_rows": 4}, "the program reaches past the end"),
    ],
)
def test_parameters_are_checked(changed, text, isa):
    with pytest.raises(TargetError, match=text):
        run_single("rotary_f32", [X, TABLE, TABLE, np.array([0, 1])], PARAMS | changed, ("float32", X.shape), isa)
