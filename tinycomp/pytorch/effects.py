"""What an exported graph does beside computing results: writes, random numbers, statistics, and shared memory."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tinycomp.errors import UnsupportedError
from tinycomp.pytorch.exporting import FALLBACK, quiet

_KINDS: Mapping[str, Callable[[torch.Tensor], bool]] = {
    "complex numbers": lambda tensor: tensor.is_complex(),
    "elements that are not strided": lambda tensor: tensor.layout != torch.strided or tensor.is_nested,
    "quantised elements": lambda tensor: tensor.is_quantized,
    "floats of 8 bits": lambda tensor: tensor.is_floating_point() and tensor.element_size() < 2,
    "a device": lambda tensor: tensor.device.type != "cpu",
}


def refuse_kind(tensor: torch.Tensor, where: str) -> None:
    """Refuse a tensor that no array of real numbers in the memory of the host can stand for.

    Raises:
        UnsupportedError: If it is one.
    """
    for kind, is_so in _KINDS.items():
        if is_so(tensor):
            raise UnsupportedError(
                f"a tensor has {kind}", where=where, expected="real numbers in strided memory of the CPU",
                found=f"{tensor.dtype}, {tensor.layout}, {tensor.device}", hint=FALLBACK,
            )  # fmt: skip


def refuse_effects(program: torch.export.ExportedProgram) -> None:
    """Refuse what a captured graph does beside computing results and writing elements.

    Raises:
        UnsupportedError: If it takes random numbers, which are those of PyTorch's generator, changes the shape of an
            argument, or does with types or shared memory what eager code refuses.
    """
    for node in program.graph.nodes:
        tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
        chance = (argument_of(node, name) for name in ("train", "training", "dropout", "dropout_p", "p"))
        if torch.Tag.nondeterministic_seeded in tags and all(each is None or each for each in chance):
            raise UnsupportedError(
                "random numbers of PyTorch's generator", where="torch.compile", found=str(node.target),
                hint=f"Call model.eval(), if it is a dropout. {FALLBACK}",
            )  # fmt: skip
        if torch.Tag.inplace_view in tags and _root(node).op == "placeholder":
            raise UnsupportedError(
                "the shape of an argument is changed in place", where="torch.compile", found=str(node.target),
                hint=FALLBACK,
            )  # fmt: skip
        if torch.Tag.pointwise in tags:
            _refuse_types(node)
        if node.target is torch.ops.aten.copy_.default or {torch.Tag.pointwise, torch.Tag.inplace} <= {*tags}:
            _refuse_partly_itself(node)


def _refuse_types(node: torch.fx.Node) -> None:
    """Refuse an operator that eager code refuses for the types of its operands, as it tells for those without elements.

    Tracing does not look at that: results that the elements in place cannot hold, differences of booleans.
    """
    arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: _without_elements(each.meta["val"]))
    try:
        node.target(*arguments, **named)
    except RuntimeError as error:
        raise UnsupportedError(
            "eager code refuses an operator for the types of its operands", where="torch.compile",
            found=f"{node.target}, {str(error).partition(chr(10))[0]}", hint="Convert the tensor first.",
        ) from error  # fmt: skip


def _without_elements(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.ones([0] * min(value.dim(), 1), dtype=value.dtype)
    return 2.0 if isinstance(value, torch.SymFloat) else 2


def _refuse_partly_itself(node: torch.fx.Node) -> None:
    """Refuse to write to elements from others of which some are the same, as eager code does where it can tell."""
    target, *others = (each.meta["val"] for each in node.all_input_nodes)
    for other in others:
        if isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == target.untyped_storage()._cdata:
            one, two = (_dense_range(each) for each in (target, other))
            if one and two and one != two and one[0] < two[1] and two[0] < one[1]:
                raise UnsupportedError(
                    "elements are written from others, some of which are the same", where="torch.compile",
                    found=str(node.target), hint="Write a clone() of the others.",
                )  # fmt: skip


def _dense_range(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return where elements without gaps between them lie in their storage; None for others, or if that is open."""
    if not all(isinstance(each, int) for each in (*tensor.shape, *tensor.stride(), tensor.storage_offset())):
        return None
    steps = sorted((step, size) for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1)
    if any(step != math.prod(size for _, size in steps[:place]) for place, (step, _) in enumerate(steps)):
        return None
    start = tensor.storage_offset() * tensor.element_size()
    return start, start + tensor.numel() * tensor.element_size()


def refuse_training(program: torch.export.ExportedProgram) -> None:
    """Refuse normalisations that renew their running statistics, which the schemas of operators do not tell.

    Raises:
        UnsupportedError: If there is one.
    """
    for node in program.graph.nodes:
        renews = argument_of(node, "training") or argument_of(node, "use_input_stats")
        if renews and argument_of(node, "running_mean") is not None:
            raise UnsupportedError(
                "a normalisation in training mode renews its running statistics", where="torch.export",
                found=str(node.target), hint=f"Call model.eval(). {FALLBACK}",
            )  # fmt: skip


def argument_of(node: torch.fx.Node, name: str) -> Any:
    """Return an argument of an operator by its name in the schema; None if it has none."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    places = [argument.name for argument in node.target._schema.arguments]
    if name not in places:
        return None
    place = places.index(name)
    default = node.target._schema.arguments[place].default_value
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)


def pure(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program that writes to nothing but its results.

    Raises:
        UnsupportedError: If it does.
    """
    if names := _written_names(program):
        raise UnsupportedError(
            "the model writes to its arguments or buffers, which a graph cannot", where="torch.export",
            found=", ".join(names), hint="Make what it writes an argument and a result of the model.",
        )  # fmt: skip
    refuse_training(program)
    return program


def perhaps_written(program: torch.export.ExportedProgram) -> set[str]:
    """Return the buffers and arguments that a program may write to, by their names in its signature.

    Those that it makes views or copies of, as with ``Tensor.to``, count as written to if these are.
    """
    roots = (_root(node) for node in _places_of_writes(program.graph))
    buffers = program.graph_signature.inputs_to_buffers
    return {buffers.get(root.name, root.name) for root in roots if root.op == "placeholder"}


def _written_names(program: torch.export.ExportedProgram) -> list[str]:
    """Return the buffers and arguments that a program writes to, by their names in its signature."""
    signature = program.graph_signature
    if perhaps_written(program):
        with quiet():
            signature = program.run_decompositions({}).graph_signature  # in which nothing is written in place
    return [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]


def writes(program: torch.export.ExportedProgram) -> bool:
    """Tell whether operators of a program write in place."""
    return any(True for _ in _places_of_writes(program.graph))


def _places_of_writes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield the operands that the operators of an exported graph write to."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            for argument in node.target._schema.arguments:
                if argument.alias_info is not None and argument.alias_info.is_write:
                    value = argument_of(node, argument.name)
                    values = value if isinstance(value, (list, tuple)) else [value]
                    yield from (each for each in values if isinstance(each, torch.fx.Node))


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """Return the value whose memory a value may lie in, as the schemas of operators have it."""
    while node.op == "call_function":
        if isinstance(node.target, torch._ops.OpOverload):
            pairs = zip(node.target._schema.arguments, node.args, strict=False)
            source = next((value for argument, value in pairs if argument.alias_info is not None), None)
        else:
            source = node.args[0] if node.target is operator.getitem else None
        if not isinstance(source, torch.fx.Node):
            break
        node = source
    return node


def refuse_overlaps(arguments: Sequence[Any], written: Sequence[int]) -> None:
    """Refuse arguments that lie in memory which another one of them is written to, or itself in another element.

    Raises:
        UnsupportedError: If there are any.
    """
    for i in written:
        end = 0
        for stride, size in sorted(zip(arguments[i].stride(), arguments[i].shape, strict=True)):
            if size > 1 and stride <= end:
                raise UnsupportedError(
                    "elements of an argument share memory, and the graph writes to them", where="torch.compile",
                    found=f"argument {i} with strides {arguments[i].stride()}", hint="Hand over a clone() of it.",
                )  # fmt: skip
            end += (size - 1) * stride
    ranges = {i: memory_of(value) for i, value in enumerate(arguments) if isinstance(value, torch.Tensor)}
    for i, j in itertools.product(written, ranges):
        if i != j and ranges[i][0] < ranges[j][1] and ranges[j][0] < ranges[i][1]:
            raise UnsupportedError(
                "arguments share memory, and the graph writes to one of them", where="torch.compile",
                found=f"arguments {i} and {j}", hint="Hand over a clone() of one of them.",
            )  # fmt: skip


def memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where the elements of a tensor begin and end."""
    steps = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    start = tensor.data_ptr()
    return start, start + (0 if 0 in tensor.shape else (sum(steps) + 1) * tensor.element_size())
