"""The ways in which declarations are changed; each changes a model in place and leaves what it computes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import MappingProxyType

import onnx

Way = Callable[[onnx.ModelProto], None]
PLACEHOLDERS = ("?", "-1", "None", "")
"""What exporters write where a dimension has no name."""


def _tensors(type_: onnx.TypeProto) -> Iterator[onnx.TypeProto.Tensor]:
    """Yield the tensor that a type is, or that it is a sequence or an optional of."""
    while type_.WhichOneof("value") in ("sequence_type", "optional_type"):
        type_ = getattr(type_, type_.WhichOneof("value")).elem_type
    if type_.WhichOneof("value") == "tensor_type":
        yield type_.tensor_type


def _shapes(values: list[onnx.ValueInfoProto]) -> Iterator[tuple[str, onnx.TensorShapeProto]]:
    for value in values:
        for tensor in _tensors(value.type):
            if tensor.HasField("shape"):
                yield value.name, tensor.shape


def _open_inputs(model: onnx.ModelProto) -> None:
    for name, shape in _shapes(model.graph.input):
        for axis, dim in enumerate(shape.dim):
            dim.dim_param = f"{name}_{axis}"


def _forget(values: list[onnx.ValueInfoProto]) -> None:
    for value in values:
        for tensor in _tensors(value.type):
            tensor.ClearField("shape")


def _with_inner_values(model: onnx.ModelProto) -> None:
    """Declare the values between nodes, as onnx infers them."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # onnx has no inference for everything
        return
    del model.graph.value_info[:]
    model.graph.value_info.extend(inferred.graph.value_info)


def as_they_are(model: onnx.ModelProto) -> None:
    """Change nothing."""


def own_symbols(model: onnx.ModelProto) -> None:
    """Make every input dimension a symbol of its own."""
    _open_inputs(model)
    _forget(model.graph.output)


def sizes(model: onnx.ModelProto) -> None:
    """Name every dimension by its size, so that equal sizes are one symbol."""
    for _, shape in _shapes([*model.graph.input, *model.graph.output]):
        for dim in shape.dim:
            if dim.HasField("dim_value"):
                dim.dim_param = f"size{dim.dim_value}"


def true_outputs(model: onnx.ModelProto) -> None:
    """Make every input dimension a symbol, and leave the outputs declared as they are."""
    _open_inputs(model)


def first_one(model: onnx.ModelProto) -> None:
    """Open the inputs, and declare outputs with a first dimension of 1: a model that was exported for a batch of 1."""
    _open_inputs(model)
    for _, shape in _shapes(model.graph.output):
        for dim in shape.dim[:1]:
            dim.dim_value = 1


def question_marks(model: onnx.ModelProto) -> None:
    """Call every dimension "?"."""
    for _, shape in _shapes([*model.graph.input, *model.graph.output]):
        for dim in shape.dim:
            dim.dim_param = "?"


def placeholders(model: onnx.ModelProto) -> None:
    """Call the dimensions what exporters write where there is no name, each kind at several places."""
    texts = itertools.cycle(PLACEHOLDERS)
    for _, shape in _shapes([*model.graph.input, *model.graph.output]):
        for dim in shape.dim:
            dim.dim_param = next(texts)


def no_output_shapes(model: onnx.ModelProto) -> None:
    """Leave the shapes of outputs out."""
    _forget(model.graph.output)


def no_output_types(model: onnx.ModelProto) -> None:
    """Leave the types of outputs out."""
    for value in model.graph.output:
        value.ClearField("type")


def _stale(model: onnx.ModelProto) -> None:
    _with_inner_values(model)
    for _, shape in _shapes([*model.graph.value_info, *model.graph.output]):
        for dim in shape.dim:
            dim.dim_value += 1


def stale(model: onnx.ModelProto) -> None:
    """Declare every dimension of outputs and of inner values one too large."""
    _stale(model)


def stale_open(model: onnx.ModelProto) -> None:
    """Declare every dimension of outputs and of inner values one too large, and open the inputs."""
    _stale(model)
    _open_inputs(model)


def stale_ranks(model: onnx.ModelProto) -> None:
    """Declare outputs and inner values with a dimension too many, and open the inputs."""
    _with_inner_values(model)
    for _, shape in _shapes([*model.graph.value_info, *model.graph.output]):
        shape.dim.add().dim_value = 2
    _open_inputs(model)


def symbol_of_an_input(model: onnx.ModelProto) -> None:
    """Open the inputs, and declare every dimension of outputs as the first dimension of the first input."""
    _open_inputs(model)
    names = [dim.dim_param for _, shape in _shapes(model.graph.input) for dim in shape.dim]
    for _, shape in _shapes(model.graph.output):
        for dim in shape.dim if names else ():
            dim.dim_param = names[0]


def no_ranks(model: onnx.ModelProto) -> None:
    """Leave the shapes of inputs and outputs out."""
    _forget(model.graph.input)
    _forget(model.graph.output)


WAYS: MappingProxyType[str, Way] = MappingProxyType({
    way.__name__.replace("_", "-"): way
    for way in (
        as_they_are, own_symbols, sizes, true_outputs, first_one, question_marks, placeholders, no_output_shapes,
        no_output_types, stale, stale_open, stale_ranks, symbol_of_an_input, no_ranks,
    )
})  # fmt: skip
"""By name."""
TARGETS: MappingProxyType[str, list[str]] = MappingProxyType({"c": ["c"], "host": []})
"""What the models are compiled for, by name."""
