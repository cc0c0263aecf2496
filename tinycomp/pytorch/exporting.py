"""PyTorch's own exporters, ``torch.export`` and ``torch.onnx``, with errors that name the operator."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from tinycomp.errors import UnsupportedError

_LOG = logging.getLogger("tinycomp.pytorch")
FALLBACK = 'Write that part of the model with other operators, or let it run in PyTorch: options={"fallback": True}.'
"""What to do about what a graph cannot be."""


def exported(
    model: torch.nn.Module, arguments: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """Return a model as ``torch.export`` has it.

    Raises:
        UnsupportedError: If PyTorch cannot export it.
    """
    try:
        program = torch.export.export(model, arguments, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        raise UnsupportedError(
            "PyTorch cannot export the model", where="torch.export", found=_first_line(error), hint=FALLBACK
        ) from error
    return program


def to_onnx(program: torch.export.ExportedProgram, dynamic_shapes: Any = None) -> Any:
    """Return an exported program as an ONNX model, whose sizes have the names that ``dynamic_shapes`` gives."""
    try:
        with quiet(), _one_registry():
            made = torch.onnx.export(program, (), dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes)
    except ImportError as error:
        raise UnsupportedError(
            "PyTorch's ONNX exporter lacks a package", where="torch.onnx", found=str(error),
            hint="Install it: pip install onnxscript.",
        ) from error  # fmt: skip
    except Exception as error:
        raise UnsupportedError(
            "PyTorch has no ONNX form of the model", where="torch.onnx", found=_reason(error), hint=FALLBACK
        ) from error
    assert made is not None
    return made.model_proto


def without_writes(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program that writes nothing in place, of operators that PyTorch's exporter knows.

    It would take some operators in place apart itself, into a product and sum for which it has no form.
    """
    with quiet():
        program = program.run_decompositions({})
    graph, aten = program.graph, torch.ops.aten
    for node in [*graph.nodes]:
        if str(node.target) == "prims.fma.default":
            with graph.inserting_before(node):
                product = emitted(graph, aten.mul.Tensor, *node.args[:2])
                node.replace_all_uses_with(emitted(graph, aten.add.Tensor, product, node.args[2]))
            graph.erase_node(node)
    return program


def emitted(graph: torch.fx.Graph, target: Any, *arguments: Any) -> torch.fx.Node:
    """Return a new node of an exported graph, whose results have types."""
    node = graph.call_function(target, arguments)
    node.meta["val"] = target(*torch.fx.node.map_arg(arguments, lambda each: each.meta["val"]))
    return node


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what PyTorch's exporter prints, and its warnings about itself, in a log."""
    printed, exporter = io.StringIO(), logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)  # it warns of packages that the model does not need
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(level)
    if printed.getvalue():
        _LOG.debug("torch.onnx: %s", printed.getvalue())


@contextlib.contextmanager
def _one_registry() -> Iterator[None]:
    """Have PyTorch's exporter keep its table of operators: to make it takes longer than a small model."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:  # it is PyTorch's own affair where that is
        yield
        return
    kind, made = cast("Any", ONNXRegistry), vars(ONNXRegistry)["from_torchlib"]
    kind.from_torchlib = functools.partial(_registry, kind.from_torchlib)
    try:
        yield
    finally:
        kind.from_torchlib = made


@functools.cache
def _registry(make: Callable[..., Any], **options: Any) -> Any:
    return make(**options)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _reason(error: BaseException) -> str:
    """Return the innermost reason of an error of PyTorch's exporter, which names the operator."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)
