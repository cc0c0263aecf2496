"""Dynamic quantisation and the LSTM that does it at every step, against numpy, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.quantized import TYPES
from tinycomp.ops.quantize import dynamic_quantize_linear
from tinycomp.ops.recurrent import quantized_lstm
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

SIZES = [(1, 1, 1), (6, 1, 16), (5, 2, 33), (3, 7, 70), (0, 2, 3), (2, 0, 3)]
"""Steps, batch, hidden."""
WIDTH = 9


def floats(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_steps_equal_numpy(size, direction, kind, isa, pool, rng):
    (steps, batch, hidden), ways = size, 1 + (direction == "bidirectional")
    columns, state = 4 * hidden, (ways, batch, hidden)
    # Weights of bytes have a zero point where their kernel's type is int16.
    stored = "int8" if kind == "int8" else "uint8"
    w, r = (rng.integers(np.iinfo(stored).min, np.iinfo(stored).max, (ways, d, columns), endpoint=True).astype(stored)
            for d in (WIDTH, hidden))  # fmt: skip
    points = [np.full((ways, columns), 0 if kind == "int8" else 131, stored) for _ in range(2)]
    scales = [rng.uniform(0.001, 0.01, (ways, columns)).astype(np.float32) for _ in range(2)]
    x, bias = floats(rng, steps, batch, WIDTH), floats(rng, ways, 2 * columns)
    first = [floats(rng, *state), floats(rng, *state)]
    wanted = quantized_lstm(x, w, r, scales[0], points[0], scales[1], points[1], bias, *first, direction=direction)

    data, scale, zero = dynamic_quantize_linear(x)
    whole = [v.astype(np.int32) - p[:, None] for v, p in zip((w, r), points, strict=True)]
    sums = np.einsum("sbk,wkc->sbwc", data.astype(np.int32), whole[0]).astype(np.int32)
    of_w, of_r = ([v.sum(axis=1, dtype=np.int32), s] for v, s in zip(whole, scales, strict=True))
    constants = [whole[1].astype(kind), *of_r, *of_w, bias.reshape(ways, 2, columns).sum(axis=1)]
    inputs = [sums, scale.reshape(1), zero.reshape(1), *first]
    outputs = [BufferSpec(f"y{i}", "float32", v.shape) for i, v in enumerate(wanted)]
    specs = tuple(BufferSpec(f"x{i}", v.dtype.name, v.shape) for i, v in enumerate(inputs))
    constant, given = ([Operand(kind, i) for i in range(6)] for kind in ("constant", "input"))
    operands = (
        Operand("output", 0), given[0], *constant[:3], Operand("output", 1), Operand("output", 2), given[1], given[2],
        *constant[3:6], given[3], given[4],
    )  # fmt: skip
    params = {
        "steps": steps, "batch": batch, "hidden": hidden, "directions": ways, "reverse": int(direction == "reverse"),
        "weight_type": TYPES[kind],
    }  # fmt: skip
    program = Program("test", specs, tuple(outputs), tuple(constants), 0, (Instruction("qlstm", operands, params),))
    found = [[np.full(v.shape, 77, np.float32) for v in wanted] for _ in range(2)]
    for threads, results in zip((None, pool), found, strict=True):
        runner(program, threads, isa).run(inputs, results)
    for one, other, numbers in zip(*found, wanted, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32), "threads change the bits")
        np.testing.assert_allclose(one, numbers, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("numbers", ["usual", "positive", "zeros", "huge", "with NaN", "none"])
def test_bytes_cover_the_range_as_the_operator_has_it(numbers, isa, pool, rng):
    x = rng.standard_normal(0 if numbers == "none" else 40_003).astype(np.float32)
    if numbers == "positive":
        x = np.abs(x) + 1
    elif numbers == "zeros":
        x[:] = 0
    elif numbers == "huge":
        x *= np.float32(4e37)  # the range is infinite
    elif numbers == "with NaN":
        x[12_345] = np.nan
    outputs = (BufferSpec("y", "uint8", x.shape), BufferSpec("s", "float32", (1,)), BufferSpec("z", "uint8", (1,)))
    operands = (*(Operand("output", i) for i in range(3)), Operand("input", 0))
    call = Instruction("quantize_dynamic", operands, {"count": x.size})
    program = Program("test", (BufferSpec("x", "float32", x.shape),), outputs, (), 0, (call,))
    for threads in (None, pool):
        found = [np.full(spec.shape, 77, spec.dtype) for spec in outputs]
        runner(program, threads, isa).run([x], found)
        if numbers == "with NaN":
            assert np.isnan(found[1][0])
        elif x.size:
            for ours, theirs in zip(found, dynamic_quantize_linear(x), strict=True):
                np.testing.assert_array_equal(ours, theirs.reshape(ours.shape))


def test_absent_results_and_states(isa, rng):
    """What is absent is not written, or starts with zeros."""
    r, sums = rng.integers(-9, 9, (1, 5, 20)).astype(np.int8), rng.integers(-99, 99, (3, 2, 20), np.int32)
    zeros, ones = np.zeros((1, 20), np.int32), np.full((1, 20), 0.01, np.float32)
    params = {"steps": 3, "batch": 2, "hidden": 5, "directions": 1, "reverse": 0, "weight_type": TYPES["int8"]}
    constant = [Operand("constant", i) for i in range(3)]
    step, point = np.array([0.1], np.float32), np.array([0], np.uint8)
    results = []
    for wanted in ("yhc", "h"):
        places = {name: Operand("output", wanted.index(name)) if name in wanted else ABSENT for name in "yhc"}
        operands = (
            places["y"], Operand("input", 0), *constant, places["h"], places["c"], Operand("input", 1),
            Operand("input", 2), constant[1], constant[2], ABSENT, ABSENT, ABSENT,
        )  # fmt: skip
        outputs = [BufferSpec(n, "float32", (3, 1, 2, 5) if n == "y" else (1, 2, 5)) for n in wanted]
        specs = tuple(BufferSpec(f"x{i}", v.dtype.name, v.shape) for i, v in enumerate((sums, step, point)))
        call = Instruction("qlstm", operands, params)
        program = Program("test", specs, tuple(outputs), (r, zeros, ones), 0, (call,))
        found = [np.full(s.shape, 77, np.float32) for s in outputs]
        runner(program, None, isa).run([sums, step, point], found)
        results.append(dict(zip(wanted, found, strict=True)))
    np.testing.assert_array_equal(results[0]["h"], results[1]["h"])
    np.testing.assert_array_equal(results[0]["y"][-1, 0], results[0]["h"][0])
