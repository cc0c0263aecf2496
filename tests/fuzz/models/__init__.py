"""Random models that are valid ONNX and well conditioned, so that all right implementations agree on their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.harness import generators
from tests.fuzz.models import control, elementwise, linear, movement, quantised, reductions, windows
from tests.fuzz.models.build import CODES, Builder, Value

OLDEST, NEWEST = 13, 26
"""Opsets that models have; the newest is that of the oldest onnxruntime that is at hand everywhere."""
FAMILIES = {
    **elementwise.FAMILIES, **linear.FAMILIES, **windows.FAMILIES, **movement.FAMILIES, **reductions.FAMILIES,
    **quantised.FAMILIES, **control.FAMILIES,
}  # fmt: skip
"""What adds a few nodes, with how often it is taken."""
THEMES: dict[str, dict[Callable[[Builder], object], float]] = {
    "anything": FAMILIES,
    "images": {
        **windows.FAMILIES, **quantised.FAMILIES, elementwise.unary: 3, elementwise.arithmetic: 4, movement.concat: 2,
        movement.split: 1, movement.pad: 1, movement.transpose: 1, movement.slice_: 1, reductions.reduce: 1,
        reductions.instance_norm: 1, reductions.softmax: 1, movement.reshape: 0.5,
    },
    "sequences": {
        **linear.FAMILIES, **reductions.FAMILIES, elementwise.unary: 3, elementwise.arithmetic: 5, movement.reshape: 3,
        movement.transpose: 3, movement.split: 1, movement.slice_: 1, movement.concat: 1, movement.gather: 1,
        elementwise.where: 0.5,
    },
}  # fmt: skip
"""What kinds of models are made: of all operators, or of those that stand together in real networks."""
_RANKS = {"anything": (1, 2, 2, 3, 3, 4, 4, 4, 4, 5), "images": (4,), "sequences": (3, 3, 3, 2, 4)}
SIZES = (*range(1, 12), 15, 16, 17, 24, 31, 32, 33, 40)


@dataclass(frozen=True)
class Sample:
    """A model with its inputs.

    Attributes:
        model: The model.
        feeds: Arrays by input name.
        families: What it was made of.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    families: tuple[str, ...]


def random_model(seed: int) -> Sample:
    """Return the model of a seed: 1 to 30 nodes, one to three inputs, one to four outputs."""
    rng, arrays = generators("models", seed)
    b = Builder(rng, arrays, rng.randint(OLDEST, NEWEST))
    theme = rng.choice(("anything", "anything", "images", "sequences"))
    dtypes = ("float32",) * 12 + ("float64", "float16", "int64", "int32", "bool", "uint8") * (theme == "anything")
    for _ in range(rng.choice((1, 1, 2, 3))):
        b.input(rng.choice(dtypes), _shape(b, rng.choice(_RANKS[theme])))
    wanted = rng.choice((1, 2, 3, 5, 8, 12, 20, 30))
    families = THEMES[theme]
    chosen = rng.choices(list(families), list(families.values()), k=2 * wanted + 4)
    used = []
    for family in chosen:
        if len(b.nodes) >= wanted:
            break
        if b.attempt(family):
            used.append(family.__name__)
    if not b.nodes:
        smallest = min(b.inputs, key=lambda v: v.size)
        b.add("Identity", [smallest], bound=smallest.bound, step=smallest.step)
    return Sample(_finished(b), b.feeds, tuple(used))


def _shape(b: Builder, rank: int) -> list[int]:
    batch = b.rng.choice((1, 1, 2, 3))
    if rank == 1:
        return [b.rng.choice(SIZES)]
    if rank == 2:
        return [b.rng.choice((1, 2, 5, 17)), b.rng.choice(SIZES)]
    if rank == 3:
        return [batch, b.rng.choice(SIZES), b.rng.choice(SIZES)]
    spatial = [b.rng.randint(1, 12 if rank == 4 else 6) for _ in range(rank - 2)]
    return [batch, b.rng.choice(SIZES), *spatial]


def _finished(b: Builder) -> onnx.ModelProto:
    used = {name for node in _all_nodes(b.nodes) for name in node.input}
    produced = {name for node in b.nodes for name in node.output}
    ends = [v for v in b.values if v.name in produced and v.name not in used]
    inner = [v for v in b.values if v.name in produced and v.name in used]
    outputs = ends[-4:] + (b.rng.sample(inner, min(len(inner), 1)) if b.rng.random() < 0.3 else [])
    symbolic = b.rng.random() < 0.2
    inputs = [_info(v, symbolic) for v in b.inputs if v.name in used or v in outputs]
    for name in [v.name for v in b.inputs if v.name not in used]:
        del b.feeds[name]
    imports = [helper.make_opsetid("", b.opset)]
    return helper.make_model(b.graph("g", outputs, inputs), opset_imports=imports, ir_version=10)


def _all_nodes(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    found = list(nodes)
    for node in found:
        found += [inner for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for inner in a.g.node]
    return found


def _info(v: Value, symbolic: bool) -> onnx.ValueInfoProto:
    """Return the declaration of an input; sizes of a batch that are equal have the same symbol."""
    shape = [f"N{v.shape[0]}", *v.shape[1:]] if symbolic and v.rank else v.shape
    return helper.make_tensor_value_info(v.name, CODES[v.dtype], shape)
