"""The names that are visible while one graph is imported, and what all graphs of one import share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from tinycomp.errors import ModelError, did_you_mean
from tinycomp.frontend.functions import FunctionTable
from tinycomp.frontend.naming import MAX_NESTING, node_label, too_deep
from tinycomp.ir.graph import Graph, Value
from tinycomp.ir.proto_tensor import ReadExternal
from tinycomp.ir.types import Type


@dataclass(frozen=True)
class Context:
    """What an import knows while it is inside one graph or function.

    Attributes:
        ir_version: IR version of the model.
        opsets: Opset imports in force: the model's, or the function's.
        functions: The model-local functions.
        read_external: Fetches external tensor data; None where the model has no folder.
        sizes: Sizes of symbolic dimensions that the caller has fixed.
        environment: Attributes of the function call, None outside functions.
        prefix: Label of the function call, put before the names of nodes.
        depth: How many bodies and calls enclose this graph.
        reshaped: Whether the caller has replaced shapes of inputs, so that declared shapes may be out of date.
        labels: The labels given to nodes so far, with how many nodes asked for each.
    """

    ir_version: int
    opsets: Mapping[str, int]
    functions: FunctionTable
    read_external: ReadExternal | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, onnx.AttributeProto] | None = None
    prefix: str = ""
    depth: int = 0
    reshaped: bool = False
    labels: dict[str, int] = field(default_factory=dict)

    def label(self, node: onnx.NodeProto) -> str:
        """Return a name for a node that no other node of the model has: names may repeat, in other graphs even must."""
        wanted = found = self.prefix + node_label(node)
        while found in self.labels:
            self.labels[wanted] += 1
            found = f"{wanted}#{self.labels[wanted]}"
        self.labels[found] = 1
        return found

    def deeper(self, where: str, **changes: object) -> Context:
        """Return the context of a body or function body.

        Raises:
            UnsupportedError: If the nesting limit is passed.
        """
        if self.depth >= MAX_NESTING:
            raise too_deep(where)
        return replace(self, depth=self.depth + 1, **changes)  # type: ignore[arg-type]


class Scope:
    """Names of one graph under construction. Constants enter the graph when they are first read.

    Args:
        graph: The graph.
        reserved: Names that the graph's own nodes will define; captured values must not take them.
        declared: Types that the model states, by name.
    """

    def __init__(self, graph: Graph, reserved: Iterable[str] = (), declared: Mapping[str, Type] | None = None) -> None:
        self.graph = graph
        self.declared = dict(declared or {})
        self.reserved = set(reserved)
        self._values: dict[str, Value | None] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def known(self) -> set[str]:
        """Return the names defined so far."""
        return {*self._values, *self._arrays}

    def define(self, name: str, value: Value | None) -> None:
        """Bind a name to a value of the graph, or to None for an absent optional input of a function."""
        self._values[name] = value

    def define_constant(self, name: str, array: np.ndarray) -> None:
        """Bind a name to a constant."""
        self._arrays[name] = array

    def array(self, name: str) -> np.ndarray | None:
        """Return the array of a name that stands for a constant, else None."""
        return self._arrays.get(name)

    def lookup(self, name: str, where: str) -> Value | None:
        """Return the value of a name; None for the empty name and for absent optional inputs.

        Raises:
            ModelError: If nothing has that name.
        """
        if not name:
            return None
        if name not in self._values:
            if name not in self._arrays:
                raise ModelError(
                    f'reads the value "{name}", which is never produced',
                    where=where,
                    hint=did_you_mean(name, self.known()),
                )
            self._values[name] = self.graph.add_const(self._arrays[name], self.free_name(name))
        return self._values[name]

    def free_name(self, name: str) -> str:
        """Return ``name`` if no other value of the graph has or will have it, else a name near it."""
        if name not in self.graph.values and (name not in self.reserved or name in self._arrays):
            return name
        candidate = name
        while candidate in self.reserved or candidate in self.graph.values:
            candidate = self.graph.fresh(f"{candidate}_outer")
        return candidate
