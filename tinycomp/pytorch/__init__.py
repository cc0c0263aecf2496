"""PyTorch models: ``torch.compile(model, backend="tinycomp")``, and graphs made with ``torch.export``.

PyTorch finds the backend by the entry-point group ``torch_dynamo_backends``. It gets what TorchDynamo has captured as
one graph, exports that with ``torch.export`` and PyTorch's own ONNX exporter (which needs the package ``onnxscript``),
and compiles it. Sizes that TorchDynamo has found to change stay open, so that one module serves them all. Tensors go
in and come out without being copied, if they are contiguous and on the CPU.

It is for inference: a graph whose result needs gradients is refused. Parameters and buffers become constants of the
module; a call with others, or with some that have been written to since, compiles them anew. Those that the graph
itself writes to, such as a cache of keys and values, are arguments and results of the module, which writes back.
Results that are views in PyTorch, of an argument or of each other, are views here.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import ml_dtypes
import numpy as np
import torch

from tinycomp.arguments import checked
from tinycomp.driver.compile import compile as compile_graph
from tinycomp.driver.models import load_graph
from tinycomp.errors import OptionError, TinycompError, TinycompWarning, UnsupportedError
from tinycomp.ir.graph import Graph
from tinycomp.pytorch.doubts import refuse_nothing, with_doubts
from tinycomp.pytorch.effects import (
    memory_of,
    perhaps_written,
    pure,
    refuse_effects,
    refuse_kind,
    refuse_overlaps,
    refuse_training,
    writes,
)
from tinycomp.pytorch.exporting import FALLBACK, exported, to_onnx, without_writes
from tinycomp.pytorch.results import Results
from tinycomp.records import dataclass
from tinycomp.runtime.module import Module

_MOST_MODULES = 8
"""How many sets of parameters one captured graph keeps modules for."""
_HALVES = {torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16))}
"""Types that PyTorch hands to numpy only as others of the same size."""


@checked()
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
        return load_graph(to_onnx(pure(model), dynamic_shapes))
    arguments = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    modes = [(part, part.training) for part in model.modules()]
    try:
        program = exported(model.eval(), arguments, dict(kwargs or {}), dynamic_shapes)
        return load_graph(to_onnx(pure(program), dynamic_shapes))
    finally:
        for part, mode in modes:  # each its own: frozen layers stay as they were
            part.training = mode


@dataclass(frozen=True)
class Options:
    """Hold what ``torch.compile(…, options=…)`` may say to this backend.

    Attributes:
        target: As for :func:`tinycomp.compile`.
        fallback: Whether a graph that cannot be compiled runs in PyTorch, with a warning; else that is an error.
        frozen: Whether parameters and buffers are written to only where PyTorch counts it. By default every call
            compares them with copies, as writes through ``.data``, numpy and in inference mode are not counted.
        threads: Threads of a run; by default as many as PyTorch uses.
        precision: As for :func:`tinycomp.compile`.
        strict: Likewise: whether a node left to the host is an error.
        verify: Likewise.
    """

    target: Any = "c"
    fallback: bool = False
    frozen: bool = False
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
        _fall_back(error, chosen)
        return cast("Callable[..., Any]", graph.forward)


def _fall_back(error: TinycompError, options: Options) -> None:
    if not options.fallback:
        raise error
    warnings.warn(f"a part of the model runs in PyTorch: {error}", TinycompWarning, stacklevel=3)


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
        self._may_doubt = False
        self._results = Results(graph, self._arguments)
        self._modules: dict[tuple[int, ...], tuple[list[torch.Tensor], _Contents, Module]] = {}
        if self._results.made:
            self._module(examples)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """Run on tensors and return tensors, as the graph does."""
        if not self._results.made or self._may_not_write(arguments):  # it makes views, or writes to its arguments
            return cast("tuple[Any, ...]", self._graph(*arguments))
        try:
            module = self._module(arguments)
            refuse_overlaps(arguments, self._written)
        except TinycompError as error:
            _fall_back(error, self._options)
            return cast("tuple[Any, ...]", self._graph(*arguments))
        results = module(*[_to_numpy(arguments[i]) for i in self._tensors])
        tensors = [_to_torch(r) for r in (results if isinstance(results, tuple) else (results,))]
        if self._may_doubt and tensors.pop():
            return cast("tuple[Any, ...]", self._graph(*arguments))
        made = len(self._results.made)
        with torch.no_grad():
            for i, new in zip(self._written, tensors[made:], strict=True):
                arguments[i].copy_(new)
            return self._results.all(arguments, tensors[:made])

    def _may_not_write(self, arguments: Sequence[Any]) -> bool:
        """Tell whether there is an argument that is written to only if it is no copy by now, as PyTorch knows."""
        return not torch.is_inference_mode_enabled() and any(arguments[i].is_inference() for i in self._written)

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
            expected="tensors, their sizes, and parameters", found=str(size), hint=FALLBACK,
        )  # fmt: skip

    def _module(self, arguments: Sequence[Any]) -> Module:
        """Return the module for the parameters among the arguments, as they are now."""
        fixed = [arguments[i] for i in self._fixed]
        known = self._modules.get(tuple(map(id, fixed)))
        if known is not None and known[1].are_in(fixed):
            return known[2]
        if len(self._modules) >= _MOST_MODULES:
            self._modules.pop(next(iter(self._modules)))
        module = self._compile(arguments)
        fixed = [arguments[i] for i in self._fixed]  # those that the graph writes to are no longer among them
        self._modules[tuple(map(id, fixed))] = fixed, _Contents(fixed, self._options.frozen), module
        return module

    def _compile(self, arguments: Sequence[Any]) -> Module:
        if torch.is_grad_enabled() and any(arguments[i].requires_grad for i in (*self._tensors, *self._fixed)):
            raise UnsupportedError(
                "the result needs gradients, which tinycomp does not compute", where="torch.compile",
                hint="Call the model under torch.no_grad() or torch.inference_mode().",
            )  # fmt: skip
        if torch.is_autocast_enabled("cpu"):
            raise UnsupportedError(
                "autocast chooses other types than the graph has", where="torch.compile",
                hint='Leave autocast out, or let tinycomp choose: options={"precision": "bf16"}.',
            )  # fmt: skip
        # TorchDynamo is in the middle of its own tracing, whose sizes this one must not take for its own.
        with torch.no_grad(), torch._guards.tracing(None):
            program = self._exported(arguments)
            refuse_nothing(program)
            self._may_doubt = with_doubts(program)
            model = to_onnx(without_writes(program) if writes(program) else program)
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
        written = sorted(indices[name] for name in perhaps_written(program))
        if not written:
            return program
        refuse_overlaps(arguments, written)
        self._written = written
        self._fixed = [i for i in self._fixed if i not in written]
        self._tensors = sorted({*self._tensors, *written})
        return self._as_it_stands(arguments)

    def _as_it_stands(self, arguments: Sequence[Any]) -> torch.export.ExportedProgram:
        fixed = {i: arguments[i].detach() for i in self._fixed}
        closed = _Closed(self._results.making, self._tensors, fixed, self._sizes, self._written)
        dynamic = tuple(_dynamic(self._arguments[i].meta["example_value"]) for i in self._tensors)
        program = exported(closed, tuple(arguments[i] for i in self._tensors), {}, (dynamic,) if dynamic else None)
        refuse_effects(program)
        refuse_training(program)
        return program


class _Contents:
    """What the parameters of a module have held when it was compiled.

    Args:
        tensors: The parameters.
        frozen: Whether those are trusted that PyTorch has not counted a write to.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], frozen: bool) -> None:
        self._versions = [_version(tensor) for tensor in tensors]
        self._bytes = [] if frozen else [bytearray(_bytes_of(tensor)) for tensor in tensors]

    def are_in(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Tell whether the parameters hold them still."""
        if self._versions != [_version(tensor) for tensor in tensors]:
            return False
        return all(known == _bytes_of(tensor) for known, tensor in zip(self._bytes, tensors, strict=False))


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    """Return numbers that change where PyTorch counts a write to a tensor, which it does not for all."""
    return tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory from the first element of a tensor to its last."""
    start, end = memory_of(tensor)
    first = tensor.storage_offset() * tensor.element_size()
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return memoryview(whole[first : first + end - start].numpy())


class _Closed(torch.nn.Module):  # type: ignore[misc]  # known to mypy as Any
    """A captured graph as a function of its tensors alone: parameters are bound, sizes read off the tensors.

    What the graph writes to is copied before, and the copies are results behind its own.
    """

    def __init__(
        self, graph: torch.fx.GraphModule, tensors: Sequence[int], fixed: Mapping[int, torch.Tensor],
        sizes: Mapping[int, tuple[int, int]], written: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__()
        self._inner, self._places, self._sizes = graph, [*tensors], dict(sizes)
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
        return (*results, *(arguments[i] for i in self._written))


def _kind(node: torch.fx.Node, value: Any) -> str:
    """Return what an argument is: ``constant``, ``tensor`` or ``size``.

    Raises:
        UnsupportedError: If it is something else.
    """
    if isinstance(value, torch.Tensor):
        refuse_kind(value, f"argument {node.name}")
        described = node.meta.get("tensor_dict") or {}
        lasting = isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in described
        return "constant" if lasting else "tensor"
    if isinstance(value, (int, torch.SymInt)):
        return "size"
    raise UnsupportedError(
        "an argument is not a tensor", where=f"argument {node.name}", expected="tensors, their sizes, and parameters",
        found=type(value).__name__, hint=FALLBACK,
    )  # fmt: skip


def _dynamic(value: torch.Tensor) -> dict[int, Any]:
    """Return the dimensions of an argument that TorchDynamo has found to change."""
    return {axis: torch.export.Dim.AUTO for axis, dim in enumerate(value.shape) if isinstance(dim, torch.SymInt)}


def _to_numpy(tensor: torch.Tensor) -> Any:
    """Return an array over the memory of a tensor."""
    plain = (tensor.detach() if tensor.requires_grad else tensor).resolve_neg()
    half = _HALVES.get(plain.dtype)
    return plain.numpy() if half is None else plain.contiguous().view(half[0]).numpy().view(half[1])


def _to_torch(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a tensor over the memory of an array."""
    for kind, (_, dtype) in _HALVES.items():
        if array.dtype == dtype:
            return torch.from_numpy(array.view(np.int16)).view(kind)
    return torch.from_numpy(array)
