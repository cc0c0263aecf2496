"""Normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import floats


def normalisations() -> Iterator[Case]:
    for shape in ((2, 3, 4, 5), (1, 6, 7), (3, 8), (5,), (1, 1, 1, 1)):
        for axis in {-1, 0, len(shape) // 2}:
            tail = shape[axis:]
            scale, bias = floats(*tail, seed=1), floats(*tail, seed=2)
            for bound in (True, False):
                operands: list[Any] = [floats(*shape), Const(scale) if bound else scale, Const(bias) if bound else bias]
                yield Case("LayerNormalization", operands, {"axis": axis}, rtol=1e-4, atol=1e-5)
            yield Case(
                "LayerNormalization", [floats(*shape), scale], {"axis": axis, "epsilon": 0.1}, rtol=1e-4, atol=1e-5
            )
            yield Case("RMSNormalization", [floats(*shape), scale], {"axis": axis}, opset=23, rtol=1e-4, atol=1e-5)
    for shape in ((2, 6, 4, 5), (1, 4, 9), (1, 2, 1, 1), (2, 4, 3, 2, 5)):
        scale, bias = floats(shape[1], seed=1), floats(shape[1], seed=2)
        yield Case("InstanceNormalization", [floats(*shape), Const(scale), Const(bias)], rtol=1e-4, atol=1e-4)
        yield Case("InstanceNormalization", [floats(*shape), scale, bias], {"epsilon": 0.1}, rtol=1e-4, atol=1e-4)
        for groups in {1, 2, shape[1]}:
            yield Case(
                "GroupNormalization",
                [floats(*shape), Const(scale), Const(bias)],
                {"num_groups": groups},
                rtol=1e-4,
                atol=1e-4,
            )
        mean, variance = floats(shape[1], seed=3), floats(shape[1], seed=4, low=0.5)
        statistics = [Const(scale), Const(bias), Const(mean), Const(variance)]
        for opset in (7, 9, 14, 15):
            yield Case("BatchNormalization", [floats(*shape), *statistics], opset=opset, rtol=1e-4, atol=1e-5)
        yield Case(
            "BatchNormalization", [floats(*shape), *statistics], {"epsilon": 0.1, "momentum": 0.5}, rtol=1e-4, atol=1e-5
        )
    statistics = [Const(floats(5, seed=i, low=0.5)) for i in range(4)]
    for batch in (7, 0):
        yield Case("BatchNormalization", [floats(batch, 5), *statistics], rtol=1e-4, atol=1e-5)
    statistics = [Const(each.array.astype(np.float64)) for each in statistics]
    yield Case("BatchNormalization", [floats(7, 5, 3).astype(np.float64), *statistics])


def edges() -> Iterator[Case]:
    """Older versions, the other normalisations, several results, and what does not fit."""
    x = floats(2, 6, 4, 5)
    per_group = [floats(3, seed=1), floats(3, seed=2)]
    yield Case("GroupNormalization", [x, *map(Const, per_group)], {"num_groups": 3}, 18, rtol=1e-4, atol=1e-4,
               onnxruntime=False)  # fmt: skip
    yield Case("GroupNormalization", [x, *per_group], {"num_groups": 3}, 18, rtol=1e-4, atol=1e-4, onnxruntime=False)
    yield Case("GroupNormalization", [x, floats(6), floats(6)], {"num_groups": 4}, refused="GroupNormalization")
    statistics = [Const(floats(6, 4, 5, seed=i, low=0.5)) for i in range(4)]
    yield Case("BatchNormalization", [x, *statistics], {"spatial": 0}, 7, rtol=1e-4, atol=1e-4)
    few = [Const(floats(5, seed=i, low=0.5)) for i in range(4)]
    yield Case("BatchNormalization", [x, *few], refused="BatchNormalization")
    running = [floats(6, seed=i, low=0.5) for i in range(4)]
    yield Case("BatchNormalization", [x, *running], rtol=1e-4, atol=1e-4)
    yield Case("BatchNormalization", [x, *running], {"training_mode": 1, "momentum": 0.7}, 15, 3, rtol=1e-3, atol=1e-4)
    for p in (1, 2):
        for axis in (0, 1, -1):
            yield Case("LpNormalization", [x], {"p": p, "axis": axis}, 22, rtol=1e-4)
    yield Case("MeanVarianceNormalization", [x], rtol=1e-4, atol=1e-4)
    yield Case("MeanVarianceNormalization", [x], {"axes": [1, -1]}, rtol=1e-4, atol=1e-4, onnxruntime=False)
    scale = floats(5, seed=1)
    yield Case("LayerNormalization", [x, scale], outputs=3, rtol=1e-4, atol=1e-4)
    yield Case("LayerNormalization", [x, scale, scale], outputs=3, left_out=[1], rtol=1e-4, atol=1e-4)
    yield Case("LayerNormalization", [x, floats(4)], refused="LayerNormalization")
    yield Case("InstanceNormalization", [x, floats(5), floats(5)], refused="InstanceNormalization")


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "LayerNormalization",
        [floats(2, 4), Const(floats(1))],
        of_largest=1e-05,
        host="not of the normalised shape (4,)",
    )
    yield Case(
        "InstanceNormalization",
        [floats(1, 2, 3, 4, 5)[..., None], Const(floats(2)), Const(floats(2))],
        of_largest=1e-05,
        host="operand 0 has rank 6",
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from normalisations()
    yield from edges()
    yield from declined()
