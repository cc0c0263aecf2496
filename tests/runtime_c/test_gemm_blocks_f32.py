"""Rows quantised in blocks at run time, times codes in blocks: exact sums of products, and scales in float."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, Weight, run_single
from tests.runtime_c.quantized import TYPES
from tinycomp.errors import TargetError

F32, F16, U8 = 0, 2, TYPES["uint8"]
SHAPES = [
    (1, 1, 1),
    (1, 100, 64),
    (2, 33, 257),
    (3, 70, 96),
    (5, 65, 31),
    (13, 16, 48),
    (200, 48, 130),
    (0, 4, 3),
    (4, 0, 3),
    (4, 5, 0),
]


def quantised(x, block):
    """Bytes [m, blocks, block] and scales [m, blocks], as the kernel makes them."""
    blocks = np.pad(x, ((0, 0), (0, -x.shape[1] % block))).reshape(len(x), -(-x.shape[1] // block), block)
    most = np.abs(blocks).max(axis=2, initial=0)
    with np.errstate(divide="ignore"):
        inverse = np.where(most > 1e-36, np.float32(127) / most, 0).astype(np.float32)
    return np.rint(blocks * inverse[..., None]).astype(np.int64), most / np.float32(127)


def packed(numbers, bits):
    """Numbers [..., n] several to a byte, the first one in the lowest bits."""
    per = 8 // bits
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % per)])
    apart = padded.reshape(*numbers.shape[:-1], padded.shape[-1] // per, per).astype(np.uint32) << np.arange(
        0, 8, bits, dtype=np.uint32
    )
    return apart.sum(axis=-1).astype(np.uint8)


def blocks_params(m, k, block, bits, **others):
    depth = -(-k // block) * block
    return {"m": m, "k": k, "ldx": k, "block": block, "pitch": depth, "middle": 1 << (bits - 1)} | others


def quantise(x, block, bits, isa, pool):
    """Bytes and figures, each a call of its own whose other result is of no interest."""
    m, k = x.shape
    blocks = -(-k // block)
    return run_both(x, blocks_params(m, k, block, bits), (m, blocks * block), (m, 3, blocks), isa, pool)


def run_both(x, params, bytes_shape, figures_shape, isa, pool):
    from tests.runtime_c.emulated import runner
    from tinycomp.runtime.native.program import BufferSpec, Instruction, Operand, Program

    places = (Operand("output", 0), Operand("output", 1), Operand("input", 0))
    outputs = (BufferSpec("bytes", "int8", bytes_shape), BufferSpec("figures", "float32", figures_shape))
    call = Instruction("quantize_blocks_f32", places, params, source=("node",))
    program = Program("test", (BufferSpec("x", "float32", x.shape),), outputs, (), 0, (call,))
    results = [np.full(bytes_shape, 77, np.int8), np.full(figures_shape, 77, np.float32)]
    runner(program, pool, isa).run([np.ascontiguousarray(x)], results)
    return results


@pytest.mark.parametrize("shape", [(1, 32), (3, 100), (4, 256), (0, 5), (2, 0), (17, 31)], ids=str)
@pytest.mark.parametrize("block", [16, 32, 256])
def test_rows_become_bytes(shape, block, isa, pool, rng):
    x = rng.standard_normal(shape, np.float32)
    x[:1, :40] = 0
    found, figures = quantise(x, block, 4, isa, pool)
    expected, scales = quantised(x, block)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    np.testing.assert_array_equal(figures[:, 0], scales)
    np.testing.assert_array_equal(figures[:, 1].view(np.int32), -8 * expected.sum(axis=2))
    np.testing.assert_array_equal(figures[:, 2], expected.sum(axis=2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_block_alone(bad, isa, pool):
    x = np.ones((2, 64), np.float32)
    x[1, 5] = bad
    _, figures = quantise(x, 32, 4, isa, pool)
    np.testing.assert_array_equal(np.isnan(figures[:, 0]), [[False, False], [True, False]])


def test_tiny_numbers_are_zero(isa, pool):
    found, figures = quantise(np.full((1, 16), 1e-40, np.float32), 16, 4, isa, pool)
    assert not found.any()
    assert np.isfinite(figures[:, 0]).all()


class Case:
    """A product and its operands; ``zeros`` is None, "packed" or "float"."""

    def __init__(self, rng, m, n, k, bits, block, zeros, scale_dtype) -> None:
        self.bits, self.block = bits, block
        self.sizes = (m, n, k)
        blocks = self.blocks = -(-k // block)
        self.x = rng.standard_normal((m, k), np.float32)
        self.codes = rng.integers(0, 2**bits, (n, blocks, block))
        self.scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(scale_dtype)
        self.zeros = np.full((n, blocks), 2.0 ** (bits - 1))
        self.stored = None
        if zeros == "packed":
            self.zeros = rng.integers(0, 2**bits, (n, blocks))
            self.stored = packed(self.zeros, bits)
        elif zeros == "float":
            self.zeros = self.stored = rng.uniform(0, 2**bits, (n, blocks)).astype(np.float32)
        self.bias = rng.standard_normal(n, np.float32)

    def exact(self):
        """The same arithmetic with the sums in double precision, and the magnitude of what is added up."""
        steps, scales = quantised(self.x, self.block)
        weights = (self.codes - self.zeros[..., None]) * self.scales[..., None].astype(np.float64)
        values = steps * scales[..., None].astype(np.float64)
        flat = [v.reshape(len(v), self.blocks * self.block) for v in (values, weights)]
        return flat[0] @ flat[1].T + self.bias, np.abs(flat[0]) @ np.abs(flat[1]).T + 1

    def run(self, isa, pool, **others):
        m, n, k = self.sizes
        found, figures = quantise(self.x, self.block, self.bits, isa, pool)
        params = {
            "m": m, "n": n, "k": k, "pitch": self.blocks * self.block, "ldc": n, "bits": self.bits,
            "block": self.block, "scale_type": F16 if self.scales.dtype == np.float16 else F32,
            "zero_type": -1 if self.stored is None else F32 if self.stored.dtype == np.float32 else U8,
        } | NO_ACTIVATION | others  # fmt: skip
        zeros = None if self.stored is None else Weight(self.stored)
        codes = Weight(packed(self.codes, self.bits))
        operands = [found, figures, codes, Weight(self.scales), zeros, Weight(self.bias)]
        return run_single("gemm_blocks_f32", operands, params, ("float32", (m, params["ldc"])), isa, pool)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_equals_the_same_arithmetic_in_double_precision(bits, block, shape, isa, pool, rng):
    for zeros in (None, "packed", "float"):
        case = Case(rng, *shape, bits, block, zeros, np.float16 if zeros == "packed" else np.float32)
        expected, magnitude = case.exact()
        error = np.abs(case.run(isa, pool, activation=1) - np.maximum(expected, 0)) / magnitude
        assert error.max(initial=0) < 2e-6


@pytest.mark.parametrize("rows", range(1, 30))
def test_any_number_of_rows(rows, isa, pool, rng):
    case = Case(rng, rows, 83, 64, 4, 32, None, np.float16)
    expected, magnitude = case.exact()
    assert (np.abs(case.run(isa, pool) - expected) / magnitude).max() < 2e-6


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_largest_numbers_are_exact(bits, isa, pool, rng):
    case = Case(rng, 3, 17, 256, bits, 256, "packed", np.float16)
    case.x[:] = np.where(np.arange(256) % 5 < 3, 127, -127)
    case.x[0] = 127
    case.codes[:] = 2**bits - 1
    case.codes[1] = 0
    case.zeros[:] = 0
    case.stored = packed(case.zeros, bits)
    case.scales[:] = 1
    case.bias[:] = 0
    np.testing.assert_array_equal(case.run(isa, pool), case.exact()[0])


@pytest.mark.parametrize("m", [2, 29])
def test_between_gaps_and_with_an_activation(m, isa, pool, rng):
    case = Case(rng, m, 37, 50, 4, 16, None, np.float32)
    y = case.run(isa, pool, ldc=40, activation=6)
    before, _ = case.exact()
    np.testing.assert_allclose(y[:, :37], before / (1 + np.exp(-before)), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(y[:, 37:], 77)


def test_instruction_sets_agree_to_the_bit_where_scales_are_powers_of_two(isa, pool, rng):
    case = Case(rng, 5, 40, 96, 4, 32, "packed", np.float16)
    case.x = rng.integers(-127, 128, case.x.shape).astype(np.float32)
    case.x[:, ::32] = 127
    case.scales[:] = 0.25
    case.bias[:] = 1
    np.testing.assert_array_equal(case.run(isa, pool), case.exact()[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 3}, "no codes have 3 bits"),
        ({"block": 24}, "a block of 24 is no multiple of 16 up to 256"),
        ({"block": 512}, "a block of 512 is no multiple of 16 up to 256"),
        ({"scale_type": 5}, "no scales are of type 5"),
        ({"zero_type": 4}, "no zero points are of type 4"),
        ({"zero_type": 5}, "zero points are there or not, as their type says"),
        ({"pitch": 31}, "a row stride is shorter than its row"),
        ({"ldc": 4}, "a row stride is shorter than its row"),
    ],
    ids=str,
)
def test_impossible_products_are_refused(wrong, message, rng):
    with pytest.raises(TargetError, match=message):
        Case(rng, 2, 5, 32, 4, 16, None, np.float32).run("scalar", None, **wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"block": 8}, "a block of 8 is no multiple of 16 up to 256"),
        ({"middle": 129}, "codes have no middle of 129"),
        ({"ldx": 31}, "a row stride is shorter than its row"),
        ({"pitch": 31}, "a row stride is shorter than its row"),
    ],
    ids=str,
)
def test_impossible_blocks_are_refused(wrong, message, rng):
    x = rng.standard_normal((2, 32), np.float32)
    with pytest.raises(TargetError, match=message):
        run_both(x, blocks_params(2, 32, 16, 4) | wrong, (2, 32), (2, 3, 2), "scalar", None)
