"""Barriers between layers: they say where fusion should stop, not where a region has to end.

Some quantisers put a ``StopFusion`` behind every layer. Here a loop of two lines puts one between every two layers of
an int8 model (MobileNet-v1, where the model folder has it, else the digits classifier that ships with tinycomp), and
the simulated NPU gets the same regions as without them. Barriers that are meant to cut do so on request.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

import tinycomp
from tinycomp.data import digits_model
from tinycomp.driver.pipeline import optimisation_passes, partitioning_passes
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.target import find

NPU = find("npu_sim")
LAYERS = {"QuantizeLinear", "MaxPool"}
"""What ends a layer: where values are rounded, and poolings, which move between integers."""
FOLDER = Path(os.environ.get("TINYCOMP_MODELS", Path(__file__).parents[2] / "shared" / "models"))


def model():
    """Return the path of an int8 model of many layers."""
    mobilenet = FOLDER / "vww_mobilenet_int8.onnx"
    return mobilenet if mobilenet.exists() else digits_model(quantized=True)


def with_barriers(graph):
    """Return the graph with a barrier behind every layer, and their number."""
    graph = tinycomp.Pipeline(optimisation_passes())(graph)
    layers = [node for node in graph.nodes if node.op in LAYERS]
    for node in layers:
        graph.insert("StopFusion", node.output, domain="tinycomp")
    return graph, len(layers)


def passes(barriers):
    """Return the default passes, with another meaning of barriers."""
    found = [*optimisation_passes(), *partitioning_passes([NPU])]
    return [dataclasses.replace(p, barriers=barriers) if isinstance(p, MergeRegions) else p for p in found]


def summary(module):
    """Return the number of layers in every region, composites and operators counted, barriers not."""
    return [
        sum(row.composites.values()) + sum(n for op, n in row.singles.items() if "StopFusion" not in op)
        for row in module.report().regions
    ]


def main():
    """Compare regions and results without barriers, with them, and with binding ones."""
    path = model()
    graph, barriers = with_barriers(tinycomp.from_onnx(path))
    plain = tinycomp.compile(path, target=NPU)
    transparent = tinycomp.compile(graph, target=NPU)
    binding = tinycomp.compile(graph, target=NPU, passes=passes("binding"))

    assert summary(transparent) == summary(plain), "a barrier changes nothing unless it is asked to"
    assert max(summary(transparent)) > 5
    assert max(summary(binding)) == 1, "every layer is a region of its own"
    assert sum(summary(binding)) == sum(summary(plain))

    spec = plain.inputs[0]
    shape = [size if isinstance(size, int) else 1 for size in spec.shape]
    values = np.random.default_rng(0).normal(size=shape) * (50 if spec.dtype == "int8" else 1)
    found = [module(values.astype(spec.dtype)) for module in (plain, transparent, binding)]
    assert all(np.array_equal(found[0], other) for other in found[1:])

    print(f"{path.stem}: {barriers} barriers")
    for name, module in (("without barriers", plain), ("with barriers", transparent), ("binding", binding)):
        print(f"  {name:17} {len(summary(module)):3} region(s), up to {max(summary(module))} layers in one")


if __name__ == "__main__":
    main()
