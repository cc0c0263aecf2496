"""Results of a captured graph that are views in PyTorch, of an argument or of each other, as views."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from tinycomp.errors import UnsupportedError
from tinycomp.pytorch.effects import refuse_kind
from tinycomp.pytorch.exporting import FALLBACK

_DETACHING = ("detach", torch.detach, torch.Tensor.detach)
"""What cuts a view off from gradients; once detached, a view of what inference mode has made may be written to."""


class Results:
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
        for owner in filter(None, owners):
            refuse_kind(owner.meta["example_value"], f"result {owner.name}")
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
                    found=", ".join(sorted(map(str, lost))), hint=FALLBACK,
                )  # fmt: skip
        nodes, made = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
        nodes.graph_copy(graph.graph, made)
        nodes.output(tuple(made[node] for node in self.made))
        self.making = torch.fx.GraphModule(graph, nodes)

    def all(self, arguments: Sequence[Any], made: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Return the results of a call from its arguments, and what was made of them."""
        # PyTorch's exporter promotes types, and does not take that back.
        values = [
            *arguments,
            *(t.to(node.meta["example_value"].dtype) for node, t in zip(self.made, made, strict=True)),
        ]
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
                "a result is a view that conjugates or negates", where=f"result {node.name}", hint=FALLBACK
            )
        self.name, self.owner, self._dtype = node.name, place, value.dtype
        detaching = any(each.target in _DETACHING for each in _line(node))
        self._detached = detaching or (whole.requires_grad and not value.requires_grad)
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
        view = owner.as_strided(_numbers(self._shape, sizes), _numbers(self._strides, sizes), start)
        return view.detach() if self._detached else view


def _owner(result: Any) -> torch.fx.Node:
    """Return the node that has made the memory of a result, or the argument that it lies in.

    Raises:
        UnsupportedError: If the result is not a tensor.
    """
    line = [*_line(result)]
    if not line:
        found = result.meta.get("example_value") if isinstance(result, torch.fx.Node) else result
        raise UnsupportedError("a result is not a tensor", where="the graph", found=str(found), hint=FALLBACK)
    return line[-1]


def _line(result: Any) -> Iterator[torch.fx.Node]:
    """Yield a result and the tensors that it is a view of, up to the one that has the memory."""
    storage, node = None, result
    while isinstance(node, torch.fx.Node):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            storage = _storage(value)
            yield node
        elif storage is None:
            break
        node = next((each for each in node.all_input_nodes if storage in _storages(each)), None)


def _storages(node: torch.fx.Node) -> list[int]:
    value = node.meta.get("example_value")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [_storage(each) for each in values if isinstance(each, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise UnsupportedError("the graph differentiates or maps by itself", where="torch.func", hint=FALLBACK)
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
