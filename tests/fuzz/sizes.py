"""Valid models in which one number is far too large: a dimension, an attribute, a constant that is a size or a count.

What a model costs follows from its text and its data, not from the numbers that it declares: compiling takes neither
long nor much memory, and a run is refused or does what the data are worth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import onnx
from onnx import numpy_helper

from tests.fuzz import importer
from tests.fuzz.corpus import small_models
from tests.fuzz.harness import Damage

LARGE = (10**6, 2**20 + 1, 2**28, 2**31 - 1, 2**31, 2**40, 2**62)
_SECONDS = 20.0


def base(rng: random.Random) -> bytes:
    """Return a valid model of few nodes."""
    return rng.choice(small_models())


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Return the model with a number or two that are large, and sometimes with a dimension of nothing."""
    model = onnx.ModelProto.FromString(data)
    _forget_sizes(model)
    for _ in range(rng.choice((1, 1, 1, 2))):
        places = [*_places(model)]
        if places:
            rng.choice(places)(rng.choice(LARGE))
    if rng.random() < 0.3:
        dims = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
        if dims:
            rng.choice(dims).dim_value = 0
    return model.SerializeToString()


def _forget_sizes(model: onnx.ModelProto) -> None:
    """Take away the declared shapes of results, which no longer fit."""
    for value in (*model.graph.output, *model.graph.value_info):
        value.type.tensor_type.ClearField("shape")


def _places(model: onnx.ModelProto) -> Iterator[Callable[[int], None]]:
    """Yield functions that set a number of the model, each another one."""
    graphs = [model.graph]
    for graph in graphs:
        for value in graph.input:
            yield from (partial(_set_dim, dim) for dim in value.type.tensor_type.shape.dim)
        yield from _elements(graph.initializer)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    graphs.append(attribute.g)
                elif attribute.type == onnx.AttributeProto.INT:
                    yield partial(setattr, attribute, "i")
                yield from (partial(attribute.ints.__setitem__, place) for place in range(len(attribute.ints)))
                yield from _elements([attribute.t] if attribute.HasField("t") else [])


def _set_dim(dim: onnx.TensorShapeProto.Dimension, number: int) -> None:
    dim.dim_value = number


def _elements(tensors: list[onnx.TensorProto]) -> Iterator[Callable[[int], None]]:
    """Yield what sets an element of the constants that may be sizes."""
    for tensor in tensors:
        if tensor.data_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            count = numpy_helper.to_array(tensor).size
            yield from (partial(_set_element, tensor, place) for place in range(min(count, 8)))


def _set_element(tensor: onnx.TensorProto, place: int, number: int) -> None:
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[place] = min(number, 2**31 - 1) if array.itemsize == 4 else number
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


DAMAGE = Damage("sizes", ".onnx", base, mutate, importer.run)
HARNESS = DAMAGE.harness(_SECONDS)
