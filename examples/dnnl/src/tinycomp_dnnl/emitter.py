"""Where values lie while a region is lowered: in which layouts each exists, and the steps that make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinycomp.target_api import Array, Graph, Node, Value
from tinycomp.target_api import tensor as tensor_type
from tinycomp_dnnl.interface import DST, SRC
from tinycomp_dnnl.library import Layout, Library
from tinycomp_dnnl.primitives import Primitive, Primitives
from tinycomp_dnnl.program import Place, Program, Step, Storage, Tensor, aligned_bytes, run_once


def shape_of(value: Value) -> tuple[int, ...]:
    """Return the shape of a value, static by now; a scalar counts as a vector of one."""
    shape = tensor_type(value.type).static_shape
    assert shape is not None, value
    return shape or (1,)


class Emitter:
    """Collects the steps of a region.

    A value begins in the layout in which its primitive gives it; :meth:`form` adds others when they are asked for, so
    that a value is converted at most once to each, and not at all between primitives that agree.

    Args:
        library: Makes and executes primitives.
        graph: The body of the region.

    Attributes:
        make: The primitives.
        steps: What has been emitted.
    """

    def __init__(self, library: Library, graph: Graph) -> None:
        self.library = library
        self.make = Primitives(library)
        self.steps: list[Step] = []
        self._graph = graph
        self._forms: dict[Value, list[Tensor]] = {}
        self._holds: dict[Storage, set[Value]] = {}
        self._place = {node: index for index, node in enumerate(graph.nodes)}
        self._node = graph.nodes[0]
        for index, value in enumerate(graph.inputs):
            layout = library.plain(shape_of(value))
            self._add_form(value, Tensor(Storage(Place.INPUT, layout.size, index), layout))

    def begin(self, node: Node) -> None:
        """Say which node the next steps belong to."""
        self._node = node

    # Reading -------------------------------------------------------------------------------------------------------

    def found(self, value: Value) -> Tensor:
        """Return a value in the layout in which it first existed."""
        if value not in self._forms:
            assert value.const is not None, value
            self._add_form(value, self.constant(value.const))
        return self._forms[value][0]

    def form(self, value: Value, layout: Layout) -> Tensor:
        """Return a value in ``layout``, converting it if it does not exist in it yet."""
        source = self.found(value)
        for tensor in self._forms[value]:
            if tensor.layout == layout:
                return tensor
        made = self.converted(source, layout)
        self._add_form(value, made)
        return made

    def plain(self, value: Value) -> Tensor:
        """Return a value in row-major order."""
        return self.form(value, self.library.plain(shape_of(value)))

    def viewed(self, value: Value, shape: Sequence[int], strides: Sequence[int] | None = None) -> Tensor:
        """Return the row-major form of a value under another shape, or with its axes in another order."""
        return Tensor(self.plain(value).storage, self.library.plain(shape, strides))

    def constant(self, array: Array) -> Tensor:
        """Return a constant in row-major order."""
        data = np.ascontiguousarray(array, np.float32)
        layout = self.library.plain(data.shape or (1,))
        return Tensor(Storage(Place.CONSTANT, layout.size, data=data), layout)

    def converted(self, tensor: Tensor, layout: Layout) -> Tensor:
        """Return a copy in another layout; that of a constant is made now, any other at run time."""
        if tensor.layout == layout:
            return tensor
        primitive = self.make.reorder(tensor.layout, layout)
        if tensor.storage.place is not Place.CONSTANT:
            copy = Tensor(Storage(Place.ARENA, layout.size), layout)
            self.emit(primitive, {SRC: tensor, DST: copy})
            return copy
        copy = Tensor(Storage(Place.CONSTANT, layout.size, data=aligned_bytes(layout.size)), layout)
        run_once(self.library, primitive, {SRC: tensor, DST: copy})
        return copy

    # Writing -------------------------------------------------------------------------------------------------------

    def emit(self, primitive: Primitive, args: Mapping[int, Tensor]) -> None:
        """Add a step."""
        self.steps.append(Step(primitive, args, self._node.label))

    def fresh(self, layout: Layout) -> Tensor:
        """Return a new tensor for a result."""
        return Tensor(Storage(Place.ARENA, layout.size), layout)

    def destination(self, residual: Tensor | None, layout: Layout, operands: Sequence[Tensor]) -> Tensor:
        """Return where a primitive that adds a residual writes: over the residual if nobody needs it afterwards.

        Args:
            residual: What the destination must hold before, in ``layout``; None for anything.
            layout: Of the result.
            operands: What the primitive reads, which must not be overwritten.
        """
        if residual is None:
            return self.fresh(layout)
        if self._may_overwrite(residual, operands):
            return residual
        copy = self.fresh(layout)
        self.emit(self.make.reorder(residual.layout, layout), {SRC: residual, DST: copy})
        return copy

    def _may_overwrite(self, tensor: Tensor, operands: Sequence[Tensor]) -> bool:
        storage = tensor.storage
        if storage.place is not Place.ARENA or any(t.storage is storage for t in operands):
            return False
        return not any(self._is_needed_later(v) for v in self._holds.get(storage, ()))

    def _is_needed_later(self, value: Value) -> bool:
        now = self._place[self._node]
        return self._graph.is_output(value) or any(self._place[user] > now for user in value.users)

    def define(self, value: Value, tensor: Tensor) -> None:
        """Say where a value of the region lies; a tensor of another shape must be row-major."""
        self._add_form(value, tensor)

    def define_view(self, value: Value, tensor: Tensor) -> None:
        """Say that a value is a row-major tensor under the value's own shape."""
        self._add_form(value, Tensor(tensor.storage, self.library.plain(shape_of(value))))

    def _add_form(self, value: Value, tensor: Tensor) -> None:
        self._forms.setdefault(value, []).append(tensor)
        self._holds.setdefault(tensor.storage, set()).add(value)

    # The end -------------------------------------------------------------------------------------------------------

    def finish(self) -> Program:
        """Return the program; results that no step can write directly are copied."""
        shapes = []
        for index, value in enumerate(self._graph.outputs):
            tensor = self.plain(value)
            if tensor.storage.place is Place.ARENA:
                tensor.storage.place, tensor.storage.index = Place.OUTPUT, index
            else:
                target = Tensor(Storage(Place.OUTPUT, tensor.layout.size, index), tensor.layout)
                self.emit(self.make.reorder(tensor.layout, tensor.layout), {SRC: tensor, DST: target})
            shape = tensor_type(value.type).static_shape
            assert shape is not None, value
            shapes.append(shape)
        return Program(self.library, self.steps, shapes)
