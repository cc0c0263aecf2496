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

import contextlib
import dataclasses
import functools
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
    modes = [(part, part.training) for part in model.modules()]
    try:
        program = _exported(model.eval(), arguments, dict(kwargs or {}), dynamic_shapes)
        return load_graph(_to_onnx(_pure(program), dynamic_shapes))
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
        self._results = _Results(graph, self._arguments)
        self._modules: dict[tuple[int, ...], tuple[list[torch.Tensor], _Contents, Module]] = {}
        if self._results.made:
            self._module(examples)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """Run on tensors and return tensors, as the graph does."""
        if not self._results.made:  # it makes views, or writes to its arguments
            return cast("tuple[Any, ...]", self._graph(*arguments))
        try:
            module = self._module(arguments)
            _refuse_overlaps(arguments, self._written)
        except TinycompError as error:
            _fall_back(error, self._options)
            return cast("tuple[Any, ...]", self._graph(*arguments))
        results = module(*[_to_numpy(arguments[i]) for i in self._tensors])
        tensors = [_to_torch(r) for r in (results if isinstance(results, tuple) else (results,))]
        made = len(self._results.made)
        with torch.no_grad():
            for i, new in zip(self._written, tensors[made:], strict=True):
                arguments[i].copy_(new)
            return self._results.all(arguments, tensors[:made])

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
        closed = _Closed(self._results.making, self._tensors, fixed, self._sizes, self._written)
        dynamic = tuple(_dynamic(self._arguments[i].meta["example_value"]) for i in self._tensors)
        program = _exported(closed, tuple(arguments[i] for i in self._tensors), {}, (dynamic,))
        _refuse_effects(program)
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
    start, end = _memory_of(tensor)
    first = tensor.storage_offset() * tensor.element_size()
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return memoryview(whole[first : first + end - start].numpy())


class _Results:
    """The results of a captured graph: what it makes, and views of that and of its arguments.

    Args:
        graph: The graph.
        arguments: Its arguments.

    Attributes:
        made: The nodes that make the memory of results.
        making: The graph with these as its results.
    """

    def __init__(self, graph: torch.fx.GraphModule, arguments: Sequence[torch.fx.Node]) -> None:
        (results,) = next(node for node in graph.graph.nodes if node.op == "output").args
        owners = [None if result is None else _owner(result) for result in results]
        self.made = [*dict.fromkeys(node for node in owners if node is not None and node.op != "placeholder")]
        places = {node: place for place, node in enumerate((*arguments, *self.made))}
        self._places: list[int | _View | None] = []
        for node, owner in zip(results, owners, strict=True):
            if owner is None or node in places:
                self._places.append(places.get(node))
            else:
                self._places.append(_View(node, owner, places[owner]))
        self._symbols = _symbols(arguments)
        for view in self._places:
            if isinstance(view, _View) and (lost := view.symbols - {*self._symbols}):
                raise UnsupportedError(
                    "the place of a result does not follow from sizes of arguments", where=f"result {view.name}",
                    found=", ".join(sorted(map(str, lost))), hint=_FALLBACK,
                )  # fmt: skip
        nodes, made = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
        nodes.graph_copy(graph.graph, made)
        nodes.output(tuple(made[node] for node in self.made))
        self.making = torch.fx.GraphModule(graph, nodes)

    def all(self, arguments: Sequence[Any], made: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Return the results of a call from its arguments, and what was made of them."""
        values = [*arguments, *made]
        views = [view for view in self._places if isinstance(view, _View)]
        sizes = {s: at(arguments) for s, at in self._symbols.items()} if any(view.symbols for view in views) else {}
        for view in views:
            if view.owner >= len(arguments):  # eager code has it in this order
                values[view.owner] = view.laid_out(values[view.owner], sizes)
        values.append(None)
        return tuple(
            place.of(values[place.owner], sizes) if isinstance(place, _View) else values[-1 if place is None else place]
            for place in self._places
        )


class _View:
    """A result that lies in the memory of another tensor, which PyTorch does not copy either.

    Args:
        node: The result.
        owner: What has the memory.
        place: Which of the arguments that is, or after them of what the graph makes.
    """

    def __init__(self, node: torch.fx.Node, owner: torch.fx.Node, place: int) -> None:
        value, whole = node.meta["example_value"], owner.meta["example_value"]
        if value.is_conj() or value.is_neg():
            raise UnsupportedError(
                "a result is a view that conjugates or negates", where=f"result {node.name}", hint=_FALLBACK
            )
        self.name, self.owner, self._dtype = node.name, place, value.dtype
        self._shape, self._strides = _expressions(value.shape), _expressions(value.stride())
        offset = value.storage_offset() * value.element_size() - whole.storage_offset() * whole.element_size()
        self._offset = _expressions([offset])
        self._layout = _expressions(whole.shape), _expressions(whole.stride())
        told = (*self._shape, *self._strides, *self._offset, *self._layout[0], *self._layout[1])
        self.symbols = {symbol for each in told for symbol in getattr(each, "free_symbols", ())}

    def laid_out(self, owner: torch.Tensor, sizes: Mapping[Any, int]) -> torch.Tensor:
        """Return what was made, in the order of its elements that PyTorch chooses."""
        shape, strides = (_numbers(each, sizes) for each in self._layout)
        return (
            owner if owner.stride() == strides else torch.empty_strided(shape, strides, dtype=owner.dtype).copy_(owner)
        )

    def of(self, owner: torch.Tensor, sizes: Mapping[Any, int]) -> torch.Tensor:
        """Return the view."""
        (offset,) = _numbers(self._offset, sizes)
        start = (owner.storage_offset() * owner.element_size() + offset) // self._dtype.itemsize
        if owner.dtype != self._dtype:
            owner = torch.empty(0, dtype=self._dtype).set_(owner.untyped_storage())
        return owner.as_strided(_numbers(self._shape, sizes), _numbers(self._strides, sizes), start)


def _owner(result: Any) -> torch.fx.Node:
    """Return the node that has made the memory of a result, or the argument that it lies in.

    Raises:
        UnsupportedError: If the result is not a tensor.
    """
    found, node = None, result
    while isinstance(node, torch.fx.Node):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            found, storage = node, _storage(value)
        elif found is None:
            break
        node = next((each for each in node.all_input_nodes if storage in _storages(each)), None)
    if found is None:
        found_instead = result.meta.get("example_value") if isinstance(result, torch.fx.Node) else result
        raise UnsupportedError("a result is not a tensor", where="the graph", found=str(found_instead), hint=_FALLBACK)
    return found


def _storages(node: torch.fx.Node) -> list[int]:
    value = node.meta.get("example_value")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [_storage(each) for each in values if isinstance(each, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return cast("int", tensor.untyped_storage()._cdata)


def _expressions(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Return sizes as numbers, or as formulas of SymPy over symbols of TorchDynamo's."""
    return tuple(each.node.expr if isinstance(each, torch.SymInt) else each for each in sizes)


def _numbers(expressions: Sequence[Any], sizes: Mapping[Any, int]) -> tuple[int, ...]:
    return tuple(each if isinstance(each, int) else int(each.subs(sizes)) for each in expressions)


def _symbols(arguments: Sequence[torch.fx.Node]) -> dict[Any, Callable[[Sequence[Any]], int]]:
    """Return what reads each symbol of TorchDynamo's off the arguments."""
    found: dict[Any, Callable[[Sequence[Any]], int]] = {}
    for i, value in enumerate(node.meta["example_value"] for node in arguments):
        if isinstance(value, torch.Tensor):
            for axis, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
                of_size, of_stride = _expressions([size, stride])
                found.setdefault(of_size, functools.partial(_size_of, i, axis))
                found.setdefault(of_stride, functools.partial(_stride_of, i, axis))
        elif isinstance(value, torch.SymInt):
            found.setdefault(value.node.expr, operator.itemgetter(i))
    return {each: at for each, at in found.items() if getattr(each, "is_Symbol", False)}


def _size_of(argument: int, axis: int, arguments: Sequence[Any]) -> int:
    return cast("int", arguments[argument].shape[axis])


def _stride_of(argument: int, axis: int, arguments: Sequence[Any]) -> int:
    return cast("int", arguments[argument].stride(axis))


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
        described = node.meta.get("tensor_dict") or {}
        lasting = isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in described
        return "constant" if lasting else "tensor"
    if isinstance(value, (int, torch.SymInt)):
        return "size"
    raise UnsupportedError(
        "an argument is not a tensor", where=f"argument {node.name}", expected="tensors, their sizes, and parameters",
        found=type(value).__name__, hint=_FALLBACK,
    )  # fmt: skip


def _dynamic(value: torch.Tensor) -> dict[int, Any]:
    """Return the dimensions of an argument that TorchDynamo has found to change."""
    return {axis: torch.export.Dim.AUTO for axis, dim in enumerate(value.shape) if isinstance(dim, torch.SymInt)}


def _refuse_effects(program: torch.export.ExportedProgram) -> None:
    """Refuse what a captured graph does beside computing results and writing elements.

    Raises:
        UnsupportedError: If it takes random numbers, which are those of PyTorch's generator, or changes the shape of
            an argument.
    """
    for node in program.graph.nodes:
        tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
        chance = (_argument(node, name) for name in ("train", "training", "dropout", "dropout_p", "p"))
        if torch.Tag.nondeterministic_seeded in tags and all(each is None or each for each in chance):
            raise UnsupportedError(
                "random numbers of PyTorch's generator", where="torch.compile", found=str(node.target),
                hint=f"Call model.eval(), if it is a dropout. {_FALLBACK}",
            )  # fmt: skip
        if torch.Tag.inplace_view in tags and _root(node).op == "placeholder":
            raise UnsupportedError(
                "the shape of an argument is changed in place", where="torch.compile", found=str(node.target),
                hint=_FALLBACK,
            )  # fmt: skip


def _refuse_training(program: torch.export.ExportedProgram) -> None:
    """Refuse normalisations that renew their running statistics, which the schemas of operators do not tell.

    Raises:
        UnsupportedError: If there is one.
    """
    for node in program.graph.nodes:
        renews = _argument(node, "training") or _argument(node, "use_input_stats")
        if renews and _argument(node, "running_mean") is not None:
            raise UnsupportedError(
                "a normalisation in training mode renews its running statistics", where="torch.export",
                found=str(node.target), hint=f"Call model.eval(). {_FALLBACK}",
            )  # fmt: skip


def _argument(node: torch.fx.Node, name: str) -> Any:
    """Return an argument of an operator by its name in the schema; None if it has none."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    places = [argument.name for argument in node.target._schema.arguments]
    if name not in places:
        return None
    place = places.index(name)
    default = node.target._schema.arguments[place].default_value
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)


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
    _refuse_training(program)
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
