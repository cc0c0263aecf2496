"""PyTorch models: ``torch.compile(model, backend="tinycomp")``, and graphs made with ``torch.export``.

PyTorch finds the backend by the entry-point group ``torch_dynamo_backends``. It gets what TorchDynamo has captured as
one graph, exports that with ``torch.export`` and PyTorch's own ONNX exporter (which needs the package ``onnxscript``),
and compiles it. Sizes that TorchDynamo has found to change stay open, so that one module serves them all. Tensors go
in and come out without being copied, if they are contiguous and on the CPU.

It is for inference: a graph whose result needs gradients is refused. Parameters and buffers become constants of the
module; a call with others, or with some that have been written to since, compiles them anew. Those that the graph
itself writes to, such as a cache of keys and values, are arguments and results of the module, which writes back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import ml_dtypes
import numpy as np
import torch

from tinycomp.driver.compile import compile as compile_graph
from tinycomp.driver.models import load_graph
from tinycomp.errors import FeedError, OptionError, TinycompError, TinycompWarning, UnsupportedError
from tinycomp.ir.graph import Graph
from tinycomp.runtime.module import Module

_LOG = logging.getLogger(__name__)
_FALLBACK = 'Write that part of the model with other operators, or let it run in PyTorch: options={"fallback": True}.'
_MOST_MODULES = 8
"""How many sets of parameters one captured graph keeps modules for."""
_HALVES = {torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16))}
"""Types that PyTorch hands to numpy only as others of the same size."""


def from_torch(
    model: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Sequence[Any] | torch.Tensor = (),
    *,
    dynamic_shapes: Any = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Graph:
    """Return a PyTorch model as a graph for :func:`tinycomp.compile`.

    Args:
        model: The model, which is exported in evaluation mode, or what ``torch.export.export`` returned.
        example_inputs: Its positional arguments, tensors of typical sizes; of a single one, that tensor.
        dynamic_shapes: Which of their dimensions may have other sizes, as ``torch.export.export`` takes it. A name of
            ``torch.export.Dim`` becomes the name of the size.
        kwargs: Its arguments by name.

    Raises:
        UnsupportedError: If PyTorch cannot export the model, or has no ONNX form of an operator, or if the model writes
            to its arguments or buffers, which a graph cannot.
        ModelError: If what it exported is not valid.

    Example:
        >>> import torch, tinycomp
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        >>> graph = tinycomp.from_torch(model, torch.zeros(2, 4), dynamic_shapes=({0: torch.export.Dim("batch")},))
        >>> tinycomp.compile(graph)(torch.ones(5, 4)).shape
        (5, 3)
    """
    if isinstance(model, torch.export.ExportedProgram):
        return load_graph(_to_onnx(_pure(model), dynamic_shapes))
    arguments = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    training = model.training
    try:
        program = _exported(model.eval(), arguments, dict(kwargs or {}), dynamic_shapes)
        return load_graph(_to_onnx(_pure(program), dynamic_shapes))
    finally:
        model.train(training)


@dataclass(frozen=True)
class Options:
    """Hold what ``torch.compile(…, options=…)`` may say to this backend.

    Attributes:
        target: As for :func:`tinycomp.compile`.
        fallback: Whether a graph that cannot be compiled runs in PyTorch, with a warning; else that is an error.
        threads: Threads of a run; by default as many as PyTorch uses.
        precision: As for :func:`tinycomp.compile`.
        strict: Likewise: whether a node left to the host is an error.
        verify: Likewise.
    """

    target: Any = "c"
    fallback: bool = False
    threads: int | None = None
    precision: Literal["f32", "bf16", "f16"] = "f32"
    strict: bool = False
    verify: bool = False


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Return what runs a graph that TorchDynamo has captured; PyTorch calls it for ``backend="tinycomp"``.

    Args:
        graph: The captured graph.
        example_inputs: Its arguments, sizes among them.
        options: The fields of :class:`Options` by name.

    Raises:
        OptionError: If there is no such option.
        UnsupportedError: If the graph cannot be compiled.
    """
    known = {field.name for field in dataclasses.fields(Options)}
    for name in options or {}:
        if name not in known:
            raise OptionError(f'there is no option "{name}"', where="options", expected=", ".join(sorted(known)))
    chosen = Options(**(options or {}))
    try:
        return _Compiled(graph, example_inputs, chosen)
    except TinycompError as error:
        if not chosen.fallback:
            raise
        warnings.warn(f"a part of the model runs in PyTorch: {error}", TinycompWarning, stacklevel=2)
        return cast("Callable[..., Any]", graph.forward)


class _Compiled:
    """A captured graph, compiled for the parameters that it is called with.

    Args:
        graph: The graph.
        examples: Its arguments.
        options: How to compile.
    """

    def __init__(self, graph: torch.fx.GraphModule, examples: Sequence[Any], options: Options) -> None:
        self._graph, self._options = graph, options
        self._arguments = [node for node in graph.graph.nodes if node.op == "placeholder"]
        kinds = [_kind(node, value) for node, value in zip(self._arguments, examples, strict=True)]
        self._fixed = [i for i, kind in enumerate(kinds) if kind == "constant"]
        self._tensors = [i for i, kind in enumerate(kinds) if kind == "tensor"]
        self._sizes = {i: self._source_of(i) for i, kind in enumerate(kinds) if kind == "size"}
        self._written: list[int] = []
        self._none = _places_of_none(graph)
        self._modules: dict[tuple[int, ...], tuple[list[torch.Tensor], list[int], Module]] = {}
        self._module(examples)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """Run on tensors and return tensors, as the graph does."""
        module = self._module(arguments)
        _refuse_overlaps(arguments, self._written)
        results = module(*[_to_numpy(arguments[i]) for i in self._tensors])
        tensors = [_to_torch(r) for r in (results if isinstance(results, tuple) else (results,))]
        if self._written:
            tensors, news = tensors[: -len(self._written)], tensors[-len(self._written) :]
            with torch.no_grad():
                for i, new in zip(self._written, news, strict=True):
                    arguments[i].copy_(new)
        for place in self._none:
            tensors.insert(place, None)
        return tuple(tensors)

    def _source_of(self, argument: int) -> tuple[int, int]:
        """Return the argument, and its dimension, that a size is read off."""
        size = self._arguments[argument].meta["example_value"]
        for index in self._tensors:
            value = self._arguments[index].meta["example_value"]
            for axis, dim in enumerate(value.shape):
                if isinstance(dim, torch.SymInt) and dim.node.expr == size.node.expr:
                    return index, axis
        raise UnsupportedError(
            "a number that changes is not a size of a tensor", where=f"argument {self._arguments[argument].name}",
            expected="tensors, their sizes, and parameters", found=str(size), hint=_FALLBACK,
        )  # fmt: skip

    def _module(self, arguments: Sequence[Any]) -> Module:
        """Return the module for the parameters among the arguments, as they are now."""
        fixed = [arguments[i] for i in self._fixed]
        known = self._modules.get(tuple(map(id, fixed)))
        if known is not None and known[1] == [_version(tensor) for tensor in fixed]:
            return known[2]
        if len(self._modules) >= _MOST_MODULES:
            self._modules.pop(next(iter(self._modules)))
        module = self._compile(arguments)
        fixed = [arguments[i] for i in self._fixed]  # those that the graph writes to are no longer among them
        self._modules[tuple(map(id, fixed))] = fixed, [_version(tensor) for tensor in fixed], module
        return module

    def _compile(self, arguments: Sequence[Any]) -> Module:
        if torch.is_grad_enabled() and any(arguments[i].requires_grad for i in (*self._tensors, *self._fixed)):
            raise UnsupportedError(
                "the result needs gradients, which tinycomp does not compute", where="torch.compile",
                hint="Call the model under torch.no_grad() or torch.inference_mode().",
            )  # fmt: skip
        # TorchDynamo is in the middle of its own tracing, whose sizes this one must not take for its own.
        with torch.no_grad(), torch._guards.tracing(None):
            model = _to_onnx(self._exported(arguments))
        options = self._options
        threads = torch.get_num_threads() if options.threads is None else options.threads
        return compile_graph(
            load_graph(model), target=options.target, threads=threads, precision=options.precision,
            strict=options.strict, verify=options.verify,
        )  # fmt: skip

    def _exported(self, arguments: Sequence[Any]) -> torch.export.ExportedProgram:
        """Return the graph as a function without side effects; find out what it writes to."""
        program = self._as_it_stands(arguments)
        names = [f"tensors_{place}" for place in range(len(self._tensors))] + [f"fixed{i}" for i in self._fixed]
        indices = dict(zip(names, (*self._tensors, *self._fixed), strict=True))
        written = sorted(indices[name] for name in _perhaps_written(program))
        if not written:
            return program
        _refuse_overlaps(arguments, written)
        self._written = written
        self._fixed = [i for i in self._fixed if i not in written]
        self._tensors = sorted({*self._tensors, *written})
        return self._as_it_stands(arguments)

    def _as_it_stands(self, arguments: Sequence[Any]) -> torch.export.ExportedProgram:
        fixed = {i: arguments[i].detach() for i in self._fixed}
        closed = _Closed(self._graph, self._tensors, fixed, self._sizes, self._none, self._written)
        dynamic = tuple(_dynamic(self._arguments[i].meta["example_value"]) for i in self._tensors)
        return _exported(closed, tuple(arguments[i] for i in self._tensors), {}, (dynamic,))


class _Closed(torch.nn.Module):  # type: ignore[misc]  # known to mypy as Any
    """A captured graph as a function of its tensors alone: parameters are bound, sizes read off the tensors.

    What the graph writes to is copied before, and the copies are results behind its own.
    """

    def __init__(
        self, graph: torch.fx.GraphModule, tensors: Sequence[int], fixed: Mapping[int, torch.Tensor],
        sizes: Mapping[int, tuple[int, int]], none: Sequence[int], written: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__()
        self._inner, self._places, self._sizes, self._none = graph, [*tensors], dict(sizes), frozenset(none)
        for index, tensor in fixed.items():
            self.register_buffer(f"fixed{index}", tensor, persistent=False)
        self._fixed, self._written = [*fixed], [*written]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the graph."""
        arguments: dict[int, Any] = dict(zip(self._places, tensors, strict=True))
        arguments |= {i: getattr(self, f"fixed{i}") for i in self._fixed}
        arguments |= {i: arguments[source].shape[axis] for i, (source, axis) in self._sizes.items()}
        arguments |= {i: arguments[i].clone() for i in self._written}
        results = self._inner(*[arguments[i] for i in range(len(arguments))])
        return (*(r for i, r in enumerate(results) if i not in self._none), *(arguments[i] for i in self._written))


def _kind(node: torch.fx.Node, value: Any) -> str:
    """Return what an argument is: ``constant``, ``tensor`` or ``size``.

    Raises:
        UnsupportedError: If it is something else.
    """
    if isinstance(value, torch.Tensor):
        described = node.meta.get("tensor_dict") or {}
        lasting = isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in described
        return "constant" if lasting else "tensor"
    if isinstance(value, (int, torch.SymInt)):
        return "size"
    raise UnsupportedError(
        "an argument is not a tensor", where=f"argument {node.name}", expected="tensors, their sizes, and parameters",
        found=type(value).__name__, hint=_FALLBACK,
    )  # fmt: skip


def _places_of_none(graph: torch.fx.GraphModule) -> list[int]:
    """Return which results of a graph are None; all others must be tensors."""
    (results,) = next(node for node in graph.graph.nodes if node.op == "output").args
    for result in results:
        value = result.meta.get("example_value") if isinstance(result, torch.fx.Node) else result
        if value is not None and not isinstance(value, torch.Tensor):
            raise UnsupportedError("a result is not a tensor", where="the graph", found=str(value), hint=_FALLBACK)
    return [i for i, result in enumerate(results) if result is None]


def _dynamic(value: torch.Tensor) -> dict[int, Any]:
    """Return the dimensions of an argument that TorchDynamo has found to change."""
    return {axis: torch.export.Dim.AUTO for axis, dim in enumerate(value.shape) if isinstance(dim, torch.SymInt)}


def _version(tensor: torch.Tensor) -> int:
    """Return a number that changes where a tensor is written to; tensors of inference mode do not count."""
    return -1 if tensor.is_inference() else tensor._version


def _pure(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program that writes to nothing but its results.

    Raises:
        UnsupportedError: If it does.
    """
    if names := _written_names(program):
        raise UnsupportedError(
            "the model writes to its arguments or buffers, which a graph cannot", where="torch.export",
            found=", ".join(names), hint="Make what it writes an argument and a result of the model.",
        )  # fmt: skip
    return program


def _perhaps_written(program: torch.export.ExportedProgram) -> set[str]:
    """Return the buffers and arguments that a program may write to, by their names in its signature.

    Those that it makes views or copies of, as with ``Tensor.to``, count as written to if these are.
    """
    roots = (_root(node) for node in _places_of_writes(program.graph))
    buffers = program.graph_signature.inputs_to_buffers
    return {buffers.get(root.name, root.name) for root in roots if root.op == "placeholder"}


def _written_names(program: torch.export.ExportedProgram) -> list[str]:
    """Return the buffers and arguments that a program writes to, by their names in its signature."""
    signature = program.graph_signature
    if _perhaps_written(program):
        with _quiet():
            signature = program.run_decompositions({}).graph_signature  # in which nothing is written in place
    return [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]


def _places_of_writes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield the operands that the operators of an exported graph write to."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
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


def _refuse_overlaps(arguments: Sequence[Any], written: Sequence[int]) -> None:
    """Refuse arguments that lie in memory which another one of them is written to.

    Raises:
        UnsupportedError: If there are any.
    """
    ranges = {i: _memory_of(value) for i, value in enumerate(arguments) if isinstance(value, torch.Tensor)}
    for i, j in itertools.product(written, ranges):
        if i != j and ranges[i][0] < ranges[j][1] and ranges[j][0] < ranges[i][1]:
            raise UnsupportedError(
                "arguments share memory, and the graph writes to one of them", where="torch.compile",
                found=f"arguments {i} and {j}", hint="Hand over a clone() of one of them.",
            )  # fmt: skip


def _memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where the elements of a tensor begin and end."""
    steps = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    start = tensor.data_ptr()
    return start, start + (0 if 0 in tensor.shape else (sum(steps) + 1) * tensor.element_size())


def _exported(
    model: torch.nn.Module, arguments: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    try:
        program = torch.export.export(model, arguments, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        raise UnsupportedError(
            "PyTorch cannot export the model", where="torch.export", found=_first_line(error), hint=_FALLBACK
        ) from error
    return program


def _to_onnx(program: torch.export.ExportedProgram, dynamic_shapes: Any = None) -> Any:
    """Return an exported program as an ONNX model, whose sizes have the names that ``dynamic_shapes`` gives."""
    try:
        with _quiet():
            made = torch.onnx.export(program, (), dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes)
    except ImportError as error:
        raise UnsupportedError(
            "PyTorch's ONNX exporter lacks a package", where="torch.onnx", found=str(error),
            hint="Install it: pip install onnxscript.",
        ) from error  # fmt: skip
    except Exception as error:
        raise UnsupportedError(
            "PyTorch has no ONNX form of the model", where="torch.onnx", found=_reason(error), hint=_FALLBACK
        ) from error
    assert made is not None
    return made.model_proto


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
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


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _reason(error: BaseException) -> str:
    """Return the innermost reason of an error of PyTorch's exporter, which names the operator."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)


def _to_numpy(tensor: torch.Tensor) -> Any:
    """Return an array over the memory of a tensor.

    Raises:
        FeedError: If it lies on another device.
    """
    if tensor.device.type != "cpu":
        raise FeedError(
            "a tensor is not on the CPU", expected="cpu", found=str(tensor.device), hint="Call .cpu() first."
        )
    plain = tensor.detach() if tensor.requires_grad else tensor
    half = _HALVES.get(plain.dtype)
    return plain.numpy() if half is None else plain.contiguous().view(half[0]).numpy().view(half[1])


def _to_torch(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a tensor over the memory of an array."""
    for kind, (_, dtype) in _HALVES.items():
        if array.dtype == dtype:
            return torch.from_numpy(array.view(np.int16)).view(kind)
    return torch.from_numpy(array)
