"""``op``, with which a replacement is written: ``op.Conv(x, w, group=1)`` inserts a node and returns its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinycomp.errors import PatternError
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import UNKNOWN_DTYPE, numpy_dtype, tensor

_OWN_OPS = frozenset({"Relayout", "StopFusion"})


class Emitter:
    """Inserts nodes in the place of others; types are inferred at once.

    Args:
        graph: Where to insert.
        at: The node whose place in the order the new ones take.
        sources: Source names of the new nodes.
        domain: Operator domain of what attribute access inserts.
    """

    def __init__(self, graph: Graph, at: Node, sources: tuple[str, ...], domain: str = "") -> None:
        self.graph = graph
        self.added: list[Node] = []
        self._at = at
        self._sources = sources
        self._domain = domain

    def __getitem__(self, domain: str) -> Emitter:
        """Return an emitter for the operators of ``domain``."""
        other = Emitter(self.graph, self._at, self._sources, domain)
        other.added = self.added
        return other

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[:1].isupper() and not self._domain:
            raise AttributeError(name)
        return lambda *operands, **attrs: self.emit(name, *operands, **attrs)

    def const(self, value: Any, dtype: str = "float32") -> Value:
        """Add a constant: an array, or a number or list of ``dtype``."""
        array = value if isinstance(value, np.ndarray) else np.asarray(value, numpy_dtype(dtype))
        return self.graph.add_const(array)

    def emit(self, name: str, /, *operands: Any, outputs: int = 1, version: int | None = None, **attrs: Any) -> Any:
        """Insert a node.

        Args:
            name: Operator name.
            operands: Values, None for an absent one, or plain numbers, which become constants of the dtype of the first
                value.
            outputs: How many results.
            version: Since-version of the operator; by default the one in force in the graph's opset.
            attrs: Attributes; None leaves one out.

        Returns:
            The result, or a tuple of them when ``outputs`` is not 1.

        Raises:
            TypeInferenceError: If the operands do not fit the operator.
        """
        domain = self._domain or (TINYCOMP if name in _OWN_OPS else "")
        given = {k: v for k, v in attrs.items() if v is not None}
        node = self.graph.add(
            name,
            self._values(name, operands),
            given,
            domain=domain,
            version=version,
            outputs=outputs,
            at=self._at,
            sources=self._sources,
        )
        self.added.append(node)
        return node.output if outputs == 1 else node.outputs

    def _values(self, name: str, operands: tuple[Any, ...]) -> list[Value | None]:
        dtypes = [tensor(v.type).dtype for v in operands if isinstance(v, Value)]
        dtype = next((d for d in dtypes if d != UNKNOWN_DTYPE), "float32")
        found = []
        for item in operands:
            if item is None or isinstance(item, Value):
                found.append(item)
            elif isinstance(item, (bool, int, float, list, np.ndarray, np.generic)):
                found.append(self.const(np.asarray(item) if isinstance(item, np.generic) else item, dtype))
            else:
                raise PatternError(
                    f"an operand of {name} is not a value", expected="a value, None or a number", found=repr(item)
                )
        return found

    def undo(self) -> None:
        """Erase everything inserted."""
        for node in reversed(self.added):
            operands = [v for v in node.inputs if v is not None]
            self.graph.erase(node)
            for value in dict.fromkeys(operands):
                if value.is_const and not self.graph.use_count(value):
                    self.graph.erase_unused(value)
        self.added.clear()
