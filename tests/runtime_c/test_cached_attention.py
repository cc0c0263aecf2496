from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import check_work, run_single
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

CHUNK = 512


def strides(name: str, array: np.ndarray, count: int = 3) -> dict[str, int]:
    """Name the element strides of an array [batch, head, row, …]."""
    steps = [step // array.itemsize for step in array.strides[:count]]
    return {f"{name}_{axis}": step for axis, step in zip(("batch", "head", "row", "column"), steps, strict=False)}


# ---- new rows into a cache ----


def append_params(y, past, x, **more):
    return {
        "batch": x.shape[0], "heads": x.shape[1], "rows": x.shape[2], "columns": x.shape[3], "capacity": y[2],
        "past_rows": 0 if past is None else past.shape[2],
        **strides("y", np.empty(y, np.float32)), **strides("past", np.empty(y, np.float32) if past is None else past),
        **strides("x", x), "append": 1, "length_bytes": 4, "length_more": 1, "rotated": 0, "interleaved": 0,
        "cache_rows": 0, "position_batch": 0, **more,
    }  # fmt: skip


def appended(y, past, x, first):
    result = np.zeros(y, np.float32)
    if past is not None:
        result[:, :, : past.shape[2]] = past
    for batch, start in enumerate(first):
        result[batch, :, start : start + x.shape[2]] = x[batch]
    return result


# rows of the past, new rows, rows of the present, lengths less one or None
APPENDED = [(0, 3, 3, None), (5, 2, 7, None), (8, 1, 8, (3, 7)), (8, 3, 9, (8, 4)), (2600, 1, 2600, (2599, 4)),
            (0, 4, 6, (3, 4)), (3, 0, 3, None)]  # fmt: skip


@pytest.mark.parametrize("case", APPENDED, ids=str)
def test_rows_are_appended(case, isa, pool, rng):
    before, rows, capacity, lengths = case
    x = rng.standard_normal((2, 3, rows, 5), np.float32)
    past = rng.standard_normal((2, 3, before, 5), np.float32) if before else None
    y = (2, 3, capacity, 5)
    given = None if lengths is None else np.array(lengths, np.int32)
    first = [before] * 2 if lengths is None else [n + 1 - rows for n in lengths]
    operands = [past, x, given, None, None, None, None]
    result = run_single("cache_append_f32", operands, append_params(y, past, x), ("float32", y), isa, pool)
    np.testing.assert_array_equal(result, appended(y, past, x, first))


def test_the_first_run_begins_at_0_whatever_the_lengths(isa, pool, rng):
    x = rng.standard_normal((2, 1, 4, 3), np.float32)
    operands = [None, x, np.array([1, 3], np.int32), np.array([4], np.int32), None, None, None]
    result = run_single("cache_append_f32", operands, append_params(x.shape, None, x), ("float32", x.shape), isa, pool)
    np.testing.assert_array_equal(result, x)


def rotated(x, positions, cos, sin, count, interleaved):
    half = count // 2
    at = (slice(0, count, 2), slice(1, count, 2)) if interleaved else (slice(half), slice(half, count))
    c, s = cos[positions][:, None].astype(np.float64), sin[positions][:, None].astype(np.float64)
    y = x.astype(np.float64)
    y[..., at[0]] = c * x[..., at[0]] - s * x[..., at[1]]
    y[..., at[1]] = s * x[..., at[0]] + c * x[..., at[1]]
    return y


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("columns", "count"), [(8, 8), (80, 64), (6, 2), (46, 46)])
@pytest.mark.parametrize("given", [False, True])
def test_rows_are_rotated(columns, count, interleaved, given, isa, pool, rng):
    x = rng.standard_normal((2, 3, 4, columns), np.float32)
    cos, sin = (rng.standard_normal((20, count // 2), np.float32) for _ in range(2))
    positions = rng.integers(0, 20, (2, 4)) if given else np.array([[5, 6, 7, 8], [0, 1, 2, 3]])
    params = append_params(x.shape, None, x, append=0, rotated=count, interleaved=interleaved, cache_rows=20)
    params["position_batch"] = 4
    operands = [None, x, np.array([8, 3], np.int32), None, positions if given else None, cos, sin]
    result = run_single("cache_append_f32", operands, params, ("float32", x.shape), isa, pool)
    np.testing.assert_allclose(result, rotated(x, positions, cos, sin, count, interleaved), 1e-5, 1e-6)


REFUSED_APPENDS = {
    "an odd number": ({"rotated": 3}, "the rotated features must be an even number"),
    "no angles": ({"rotated": 4}, "a rotation needs cos and sin caches"),
    "less room than past": ({"past_rows": 9}, "the present has room for 8 rows, but the past has 9"),
    "lengths of 2 bytes": ({"length_bytes": 2}, "lengths must have 4 or 8 bytes"),
    "results apart": ({"append": 0}, "the result must have as many rows as are new"),
}


@pytest.mark.parametrize("name", REFUSED_APPENDS)
def test_appends_that_are_refused(name, native_isa, rng):
    more, message = REFUSED_APPENDS[name]
    x = rng.standard_normal((1, 1, 2, 4), np.float32)
    params = append_params((1, 1, 8, 4), None, x, **more)
    with pytest.raises(TargetError, match=message):
        run_single("cache_append_f32", [None, x, *[None] * 5], params, ("float32", (1, 1, 8, 4)), native_isa)


@pytest.mark.parametrize(
    ("length", "message"),
    [(8, "the cache is full"), (2**31 - 1, "the cache is full"), (-1, "shorter than its new rows"),
     (-(2**31), "shorter than its new rows")],
)  # fmt: skip
def test_lengths_beyond_the_buffer(length, message, native_isa, rng):
    x = rng.standard_normal((1, 1, 2, 4), np.float32)
    operands = [None, x, np.array([length], np.int32), *[None] * 4]
    params = append_params((1, 1, 8, 4), None, x)
    with pytest.raises(ExecutionError, match=message):
        run_single("cache_append_f32", operands, params, ("float32", (1, 1, 8, 4)), native_isa)


@pytest.mark.parametrize("position", [-1, 20])
def test_positions_outside_the_angles(position, native_isa, rng):
    x, angles = rng.standard_normal((1, 1, 1, 4), np.float32), np.ones((20, 2), np.float32)
    params = append_params(x.shape, None, x, rotated=4, cache_rows=20, position_batch=1)
    operands = [None, x, None, None, np.array([[position]]), angles, angles]
    with pytest.raises(ExecutionError, match="a position lies behind the end of the cos and sin caches"):
        run_single("cache_append_f32", operands, params, ("float32", x.shape), native_isa)


# ---- attention ----


def attend(q, k, v, isa, pool, *, mask=None, mask_shape=None, lengths=None, longest=None, sink=None, **more):
    """Run attention and what combines its parts with one thread and with two, and return y."""
    batch, heads, rows, depth = q.shape
    group, keys = heads // k.shape[1] if k.shape[1] else 1, k.shape[2]
    y = np.empty((*q.shape[:3], v.shape[3]), np.float32)
    full = None if mask is None else np.broadcast_to(mask, (*q.shape[:3], mask.shape[-1]))
    sizes = {"batch": batch, "heads": heads, "group": group, "rows": rows, "keys": keys, "value_depth": v.shape[3]}
    params = {
        **sizes, "depth": depth, **strides("y", y), **strides("q", q), **strides("k", k), **strides("v", v),
        **(dict.fromkeys((f"mask_{n}" for n in ("batch", "head", "row", "column")), 0) if full is None
           else strides("mask", full, 4)),
        "mask_columns": 0 if full is None else full.shape[3], "mask_bytes": 4 if mask is None else mask.itemsize,
        "length_bytes": 4 if lengths is None else lengths.itemsize, "length_more": 0, "past": 0, "causal": 0,
        "left": -1, "right": -1, "scale": 0.125, "softcap": 0.0, **more,
    }  # fmt: skip
    specs, places, feeds = [], [], []
    for array in (q, k, v, mask, lengths, longest, sink):
        places.append(ABSENT if array is None else Operand("input", len(specs)))
        if array is not None:
            specs.append(BufferSpec(f"x{len(specs)}", array.dtype.name, array.shape))
            feeds.append(np.ascontiguousarray(array))
    out, partial = Operand("output", 0), Operand("arena")
    calls = (
        Instruction("cached_attention_f32", (out, partial, *places), params, ("node",)),
        Instruction("attention_combine_f32", (out, partial, places[-1]), {**sizes, **strides("y", y)}, ("node",)),
    )
    room = 4 * batch * heads * rows * -(-keys // CHUNK) * (v.shape[3] + 2)
    program = Program("test", tuple(specs), (BufferSpec("y", "float32", y.shape),), (), room, calls)
    results = []
    for threads in (None, pool):
        result = np.full(y.shape, 77, np.float32)
        runner(program, threads, isa).run(feeds, [result])
        results.append(result)
    if room == 0 or keys <= CHUNK:  # else it moves more than there is in operands: the parts
        check_work(program)
    np.testing.assert_array_equal(results[0].view(np.int32), results[1].view(np.int32), "threads change the bits")
    return results[0]


def expected(q, k, v, *, mask=None, lengths=None, longest=None, sink=None, past=0, causal=0, left=-1, right=-1,
             scale=0.125, softcap=0.0, length_more=0):  # fmt: skip
    batch, heads, rows, _ = q.shape
    k, v = (np.repeat(x, heads // x.shape[1], 1).astype(np.float64) for x in (k, v))
    keys = k.shape[2]
    scores = scale * (q.astype(np.float64) @ k.swapaxes(2, 3))
    if softcap > 0:
        scores = softcap * np.tanh(scores / softcap)
    total = np.full(batch, keys) if lengths is None else lengths + length_more
    first = np.full(batch, past) if lengths is None else total - rows
    if longest is not None and int(longest) == rows:
        first = np.zeros(batch, np.int64)
    ahead = np.arange(keys) - (np.arange(rows)[:, None] + first.reshape(-1, 1, 1, 1))
    hidden = np.broadcast_to(np.arange(keys) >= total.reshape(-1, 1, 1, 1), scores.shape)
    hidden = hidden | (ahead > 0 if causal else False) | (-ahead > left if left >= 0 else False)
    hidden = hidden | (ahead > right if right >= 0 else False)
    if mask is not None:
        width = mask.shape[-1]
        hidden = hidden | (np.arange(keys) >= width)
        if mask.dtype == bool:
            hidden[..., :width] |= ~mask
        else:
            scores[..., :width] += mask
    scores = np.where(hidden, -np.inf, scores)
    wall = np.full((1, heads, 1, 1), -np.inf) if sink is None else sink.astype(np.float64).reshape(1, -1, 1, 1)
    most = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), wall)
    most = np.where(np.isneginf(most), 0, most)
    e = np.exp(scores - most)
    share = e.sum(-1, keepdims=True) + np.exp(wall - most)
    return (e / np.where(share == 0, 1, share)) @ v


def draw(size, rng):
    batch, heads, group, rows, keys, depth, value_depth = size
    q = rng.standard_normal((batch, heads, rows, depth), np.float32)
    k = rng.standard_normal((batch, heads // group, keys, depth), np.float32)
    return q, k, rng.standard_normal((batch, heads // group, keys, value_depth), np.float32)


# batch, heads, group, rows, keys, depth, value_depth: few queries, then many
SIZES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 4, 2, 1, 33, 8, 5),
    (1, 8, 4, 4, 700, 20, 130),
    (1, 3, 1, 5, 1025, 33, 16),
    (1, 8, 8, 1, 512, 64, 64),
    (1, 6, 3, 2, 1300, 7, 40),
    (2, 4, 2, 9, 33, 8, 5),
    (1, 3, 1, 197, 197, 64, 64),
    (1, 4, 4, 50, 700, 32, 72),
    (1, 6, 3, 400, 257, 16, 16),
    (1, 40, 20, 1, 30, 4, 4),
    (1, 2, 1, 0, 4, 4, 4),
    (1, 2, 1, 2, 0, 4, 4),
    (1, 2, 1, 30, 0, 4, 4),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("mask", [None, "full", "row", "truths", "short"])
def test_attention_equals_numpy(size, mask, isa, pool, rng):
    q, k, v = draw(size, rng)
    rows, keys = size[3], size[4]
    stored = {
        None: None,
        "full": rng.standard_normal((*q.shape[:3], keys), np.float32),
        "row": rng.standard_normal((1, 1, rows, 1), np.float32) + np.zeros((1, 1, 1, keys), np.float32),
        "truths": rng.random((size[0], 1, rows, keys)) < 0.7,
        "short": rng.standard_normal((1, 1, 1, keys // 2), np.float32),
    }[mask]
    result = attend(q, k, v, isa, pool, mask=stored)
    np.testing.assert_allclose(result, expected(q, k, v, mask=stored), rtol=2e-5, atol=2e-6)


RULES = {
    "causal": {"causal": 1, "past": 500},
    "causal from before": {"causal": 1, "past": -3},
    "left window": {"causal": 1, "past": 690, "left": 7},
    "both windows": {"past": 300, "left": 260, "right": 3},
    "soft cap": {"softcap": 0.8, "causal": 1, "past": 690},
    "negative scale": {"scale": -0.3},
    "sink": {"sink": np.float32([0.5, -3.0, 4.0, 100.0])},
    "sink that is all": {"sink": np.float32([0.5, -3.0, 4.0, -np.inf]), "causal": 1, "past": -40},
}


@pytest.mark.parametrize("rows", [1, 5, 60])
@pytest.mark.parametrize("name", RULES)
def test_rules(name, rows, isa, pool, rng):
    q, k, v = draw((1, 4, 2, rows, 700, 24, 24), rng)
    result = attend(q, k, v, isa, pool, **RULES[name])
    np.testing.assert_allclose(result, expected(q, k, v, **RULES[name]), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_every_sequence_has_its_length(rows, dtype, isa, pool, rng):
    q, k, v = draw((4, 4, 2, rows, 1100, 16, 16), rng)
    lengths = np.array([1100, 600, 40, 41], dtype)
    k[1, :, 600:] = np.nan
    v[2, :, 41:] = np.nan
    result = attend(q, k, v, isa, pool, lengths=lengths, causal=1)
    wanted = expected(q, np.nan_to_num(k), np.nan_to_num(v), lengths=lengths, causal=1)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("length", [-5, 0, 2**40])
def test_lengths_that_make_no_sense_read_nothing_outside(length, native_isa, pool, rng):
    q, k, v = draw((1, 2, 1, 2, 20, 8, 8), rng)
    result = attend(q, k, v, native_isa, pool, lengths=np.array([length]))
    assert np.isfinite(result).all()


def test_the_room_in_a_cache_changes_no_bit(isa, pool, rng):
    q, k, v = draw((1, 4, 4, 1, 600, 16, 16), rng)
    short = attend(q, k, v, isa, pool, lengths=np.array([600]), causal=1)
    k, v = (np.concatenate([x, np.ones((1, 1, 1500, 16), np.float32)], 2) for x in (k, v))
    np.testing.assert_array_equal(attend(q, k, v, isa, pool, lengths=np.array([600]), causal=1), short)


def test_nan_spreads_over_its_row_alone(isa, pool, rng):
    for rows in (4, 20):
        q, k, v = draw((1, 1, 1, rows, 600, 8, 8), rng)
        q[0, 0, 3, 2] = np.nan
        result = attend(q, k, v, isa, pool)
        assert np.isnan(result[0, 0, 3]).all()
        assert np.isfinite(np.delete(result, 3, 2)).all()


def test_few_queries_and_many_keys_need_room_for_parts(rng):
    q, k, v = draw((1, 1, 1, 1, 513, 4, 4), rng)
    params = {name: kind(0) for name, kind in kernel_named("cached_attention_f32").fields.items()}
    params |= {"batch": 1, "heads": 1, "group": 1, "rows": 1, "keys": 513, "depth": 4, "value_depth": 4, "scale": 1.0}
    params |= {"k_row": 4, "v_row": 4, "length_bytes": 4, "mask_bytes": 4, "left": -1, "right": -1}
    places = (Operand("output", 0), ABSENT, *(Operand("input", i) for i in range(3)), *[ABSENT] * 4)
    specs = tuple(BufferSpec(n, "float32", x.shape) for n, x in zip("qkv", (q, k, v), strict=True))
    call = Instruction("cached_attention_f32", places, params)
    with pytest.raises(TargetError, match="few queries and many keys need partial sums"):
        NativeProgram(Program("test", specs, (BufferSpec("y", "float32", q.shape),), (), 0, (call,)))
