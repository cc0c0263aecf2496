from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tests.runtime_c.quantized import activations
from tinycomp.errors import TargetError

OPS = {"add": (0, np.add), "sub": (1, np.subtract), "mul": (2, np.multiply)}
# of y, a and b, all of rank 3
SHAPES = {
    "equal": ((4, 7, 33), (4, 7, 33), (4, 7, 33)),
    "long": ((1, 1, 5000), (1, 1, 5000), (1, 1, 5000)),
    "channels": ((2, 9, 20), (2, 9, 20), (1, 1, 20)),
    "scalar": ((2, 9, 20), (1, 1, 1), (2, 9, 20)),
    "pixels": ((2, 9, 20), (2, 9, 20), (2, 9, 1)),
    "both": ((3, 5, 17), (3, 1, 17), (1, 5, 1)),
    "empty": ((0, 5, 17), (0, 5, 17), (1, 5, 17)),
}
SCALES = {"usual": (0.031, 0.0172, 0.027), "ties": (0.25, 0.5, 0.5), "coarse": (0.9, 0.003, 0.004)}
ZEROS = {"a_zero_point": 128, "b_zero_point": 3, "y_zero_point": 77}


def strides_of(name, shape, memory):
    """Strides of an operand that lies in an array of this shape, repeated where it has size 1 and y does not."""
    steps = [int(np.prod(memory[i + 1 :])) for i in range(3)]
    strides = [0] * 5 + [0 if size == 1 else step for size, step in zip(shape, steps, strict=True)]
    return {f"{name}_stride{i}": stride for i, stride in enumerate(strides)}


def binary_params(op, scales, shapes, memories=None):
    y, a, b = memories or shapes
    sizes = {f"size{i}": size for i, size in enumerate([1] * 5 + list(shapes[0]))}
    strides = strides_of("y", shapes[0], y) | strides_of("a", shapes[1], a) | strides_of("b", shapes[2], b)
    named = dict(zip(("a_scale", "b_scale", "y_scale"), scales, strict=True))
    return {"op": OPS[op][0], "low": 5, "high": 250} | ZEROS | named | sizes | strides


def expected(op, scales, a, b):
    u, v = (
        (x.astype(np.float32) - np.float32(zero)) * np.float32(scale)
        for x, zero, scale in ((a, 128, scales[0]), (b, 3, scales[1]))
    )
    return np.clip(np.rint(OPS[op][1](u, v) / np.float32(scales[2])) + 77, 5, 250).astype(np.uint8)


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("op", OPS)
def test_binary_is_exact(op, shapes, scales, isa, pool, rng):
    a, b = (activations(rng, *shape) for shape in shapes[1:])
    y = run_single("qbinary", [a, b], binary_params(op, scales, shapes), ("uint8", shapes[0]), isa, pool)
    np.testing.assert_array_equal(y, expected(op, scales, a, b))


@pytest.mark.parametrize("op", OPS)
def test_every_pair_of_numbers(op, isa, pool):
    a, b = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    shape, scales = (1, 256, 256), SCALES["usual"]
    operands = [np.ascontiguousarray(x).reshape(shape) for x in (a, b)]
    y = run_single("qbinary", operands, binary_params(op, scales, (shape,) * 3), ("uint8", shape), isa, pool)
    np.testing.assert_array_equal(y, expected(op, scales, *operands))


def test_slices(isa, pool, rng):
    shape, memories, scales = (2, 9, 20), ((2, 9, 31), (2, 9, 25), (2, 9, 20)), SCALES["usual"]
    a, b = activations(rng, *memories[1]), activations(rng, *memories[2])
    params = binary_params("add", scales, (shape,) * 3, memories)
    y = run_single("qbinary", [a, b], params, ("uint8", memories[0]), isa, pool)
    np.testing.assert_array_equal(y[..., :20], expected("add", scales, a[..., :20], b))
    np.testing.assert_array_equal(y[..., 20:], 77)


def test_every_other_element(isa, pool, rng):
    shape, scales = (1, 5, 40), SCALES["usual"]
    a, b = activations(rng, 1, 5, 80), activations(rng, *shape)
    params = binary_params("sub", scales, (shape,) * 3) | {"a_stride6": 80, "a_stride7": 2}
    params |= {"y_stride6": 80, "y_stride7": 2}
    y = run_single("qbinary", [a, b], params, ("uint8", (1, 5, 80)), isa, pool)
    np.testing.assert_array_equal(y[..., ::2], expected("sub", scales, a[..., ::2], b))
    np.testing.assert_array_equal(y[..., 1::2], 77)


def test_other_operations_are_refused(rng):
    a = activations(rng, 1, 2, 3)
    params = binary_params("add", SCALES["usual"], ((1, 2, 3),) * 3) | {"op": 3}
    with pytest.raises(TargetError, match="8-bit numbers have no operation 3"):
        run_single("qbinary", [a, a], params, ("uint8", (1, 2, 3)), "scalar")
