"""Whether a model magnifies roundings: then implementations may differ, and neither is wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.peers import OPERATOR_BY_OPERATOR, RefusedError, Results, by_onnxruntime, declared, magnitude

NOISE = {"float32": 2.0**-21, "float64": 2.0**-21, "float16": 2.0**-9}
"""Relative change of every value on the way: some units in the last place."""
MARGIN = 8.0
"""How many times what the noise does may be seen between implementations."""
TRIALS = 3


def explained(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], found: Results, right: Results, names: list[str]
) -> bool:
    """Whether differences of some outputs are such as roundings of the values on the way may cause.

    Every float value is multiplied by random factors near one, and onnxruntime says what that does to the outputs;
    where it does not run the model, numpy's kernels say it, operator by operator.
    """
    run: Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Results]
    try:
        by_onnxruntime(model, feeds, optimise=False)
        run = functools.partial(by_onnxruntime, optimise=False)
    except RefusedError:
        run = OPERATOR_BY_OPERATOR.run
    every = [name for node in model.graph.node for name in node.output if name]
    try:
        values = run(declared(model, every), feeds)
        noisy = [run(_with_noise(model, values, seed), feeds) for seed in range(TRIALS)]
    except RefusedError:
        return False
    for name in names:
        moved = max(magnitude(each[name], right[name]) for each in noisy)
        if magnitude(found[name], right[name]) > MARGIN * moved:
            return False
    return True


def _with_noise(model: onnx.ModelProto, values: Results, seed: int) -> onnx.ModelProto:
    """Return a copy in which every float value is multiplied by factors near one before it is read."""
    rng = np.random.default_rng(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    for node in nodes:
        noise = []
        for index, name in enumerate(node.output):
            amount = NOISE.get(values[name].dtype.name) if name in values else None
            if amount is None:
                continue
            clean = f"{name}_clean"
            node.output[index] = clean
            factors = 1 + amount * rng.choice([-1.0, 1.0], values[name].shape)
            factor = numpy_helper.from_array(factors.astype(values[name].dtype), f"{name}_noise")
            copy.graph.initializer.append(factor)
            noise.append(helper.make_node("Mul", [clean, factor.name], [name]))
        copy.graph.node.extend([node, *noise])
    return copy
