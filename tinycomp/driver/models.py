"""Models as graphs: every form that a caller may have a model in becomes a graph that the compilation owns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tinycomp.arguments import is_model_proto
from tinycomp.driver.lowering import constants_of
from tinycomp.errors import ModelError, TinycompWarning
from tinycomp.frontend import ModelSource, Shapes, bounds_of, checked_shapes, fixed_symbols, with_symbols
from tinycomp.frontend.naming import name_outputs_apart
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import UNKNOWN, Type, refine, same, substitute
from tinycomp.lazy import LazyModule
from tinycomp.memory.constants import check_files, is_evictable
from tinycomp.ops.agreement import settle_sizes
from tinycomp.ops.body_types import retype
from tinycomp.ops.typing import use_records
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import replace_results
from tinycomp.rewrite.traits import has_trait

if TYPE_CHECKING:
    import onnx

    from tinycomp.ir.text import literals
else:
    literals = LazyModule("tinycomp.ir.text.literals")

Model: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | Graph"


def load_graph(model: Model, shapes: Shapes | None = None) -> Graph:
    """Return a new graph of a model, with a symbol for every dimension of an input that has no name.

    Raises:
        ModelError: If the model is not valid or ``shapes`` does not fit it.
    """
    return _imported(model, shapes, mapped=False)


def _imported(model: Model, shapes: Shapes | None, mapped: bool) -> Graph:
    """Return a model as :func:`load_graph` does; with ``mapped``, large weights stay in its file for now."""
    return graph_of(model if isinstance(model, Graph) else ModelSource.of(model, mapped=mapped), shapes)


def graph_of(source: ModelSource | Graph, shapes: Shapes | None) -> Graph:
    """Return what :func:`load_graph` does, for a model whose form is known already.

    Raises:
        ModelError: If the model is not valid or ``shapes`` does not fit it.
    """
    if isinstance(source, Graph):
        graph = source.clone()
        _refuse_absent(graph)
        _own_arrays(graph)
        use_records(graph)
        name_outputs_apart(graph)
        if shapes is not None:
            _give_shapes(graph, shapes)
    else:
        graph = source.graph(shapes)
    named = [with_symbols(v.name, v.type) for v in graph.inputs]
    if named != [v.type for v in graph.inputs]:
        retype(graph, named)
    if shapes:
        graph.bounds.update(bounds_of(graph, shapes))
    return graph


def bind_defaults(graph: Graph) -> None:
    """Make constants of the inputs that may be left out, and infer again what follows from their values."""
    changed: set[Value] = set()
    for name, array in graph.defaults.copy().items():
        value = graph.values[name]
        constant = graph.add_const(array, name)
        graph.replace_uses(value, constant)
        graph.remove_input(value)
        graph.rename(constant, name)
        changed.add(constant)
    _infer_behind(graph, changed, refine)


def is_assuming(graph: Graph) -> bool:
    """Tell whether nodes rely on sizes that only the model declares."""
    return any(_is_declared(node) for node in graph.nodes)


def settle(graph: Graph) -> None:
    """Give the inputs the sizes that nodes want, unless it is only for what the model declares that they want them."""
    if all(value.static_shape is not None for value in graph.inputs):
        return
    certain = graph
    if is_assuming(graph):
        certain = graph.clone()
        forget_declared(certain)
    settle_sizes(graph, certain)


def forget_declared(graph: Graph) -> None:
    """Rely on no size that only the model declares: what is known of values behind them is what then follows."""
    changed: set[Value] = set()
    for node in [node for node in graph.nodes if _is_declared(node)]:
        found = node.operand(0)
        changed.add(found)
        replace_results(graph, node, [found], refines=False)
        if found.producer is not None and has_trait(found.producer, "checked"):
            for value, type_ in zip(found.producer.outputs, graph.infer(found.producer), strict=False):
                value.type = type_
    _infer_behind(graph, changed, lambda before, after: before if after == UNKNOWN else after)


def _is_declared(node: Node) -> bool:
    return (node.domain, node.op) == (TINYCOMP, "Declared")


def _infer_behind(graph: Graph, changed: set[Value], combine: Callable[[Type, Type], Type]) -> None:
    """Infer again what follows from values whose types have changed, and combine the types before and after."""
    for node in graph.nodes if changed else ():
        if changed.isdisjoint(node.inputs):
            continue
        for value, inferred in zip(node.outputs, graph.infer(node), strict=False):
            type_ = combine(value.type, inferred)
            if not same(type_, value.type):
                changed.add(value)
            value.type = type_


def _refuse_absent(graph: Graph) -> None:
    absent = next((v for v in constants_of(graph) if isinstance(v.const, literals.AbsentArray)), None)
    if absent is not None:
        raise ModelError(
            "the elements of a constant are missing", where=f'graph "{graph.name}", "{absent.name}"',
            hint="The graph of a loaded module may hold only types and hashes: use the graph from before saving.",
        )  # fmt: skip


def _own_arrays(graph: Graph) -> None:
    """Copy the arrays that a user may still write to, so that writing does not change the module."""
    copies: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def own(array: np.ndarray) -> np.ndarray:
        if not array.flags.writeable:
            return array
        if id(array) not in copies:
            copy = array.copy()
            copy.flags.writeable = False
            copies[id(array)] = array, copy
        return copies[id(array)][1]

    for value in constants_of(graph):
        if value.const is not None:
            value.const = own(value.const)
    graph.defaults = {name: own(array) for name, array in graph.defaults.items()}


def _give_shapes(graph: Graph, shapes: Shapes) -> None:
    declared = {v.name: v.type for v in graph.inputs}
    given = checked_shapes(declared, shapes, f'graph "{graph.name}"')
    sizes = fixed_symbols(declared, given)
    retype(graph, [given.get(name) or substitute(type_, sizes) for name, type_ in declared.items()])


def copied(graph: Graph) -> Graph:
    """Return a copy of a partitioned graph for the user; it shares the arrays of constants.

    Raises:
        ModelError: If the file that holds constants has changed.
    """
    check_files(constants_of(graph))
    return graph.clone()


_MOST_KEPT = 16_000_000
"""Most bytes of original weights that a module keeps in memory in case the user asks for advice."""


@dataclass(frozen=True)
class Original:
    """Keep a model as it was before the passes, which advice is tried on; large models are not kept.

    Attributes:
        kept: The source to import again, or a graph where the caller may change the source; None for a large model.
        shapes: The shapes that the caller gave.
    """

    kept: ModelSource | Graph | None
    shapes: Shapes | None

    @classmethod
    def of(
        cls, model: Model | ModelSource, source: ModelSource | Graph, graph: Graph, shapes: Shapes | None
    ) -> Original:
        """Return what to keep of a model, given its source and the graph made of it."""
        if isinstance(source, ModelSource) and not is_model_proto(model):
            return cls(source if source.nbytes <= _MOST_KEPT else None, shapes)
        return cls(graph.clone() if _is_light(graph) else None, shapes)

    def again(self, model: Model | None) -> Graph:
        """Return a new graph of the model, which the caller must give if it was not kept.

        Raises:
            ModelError: If it was neither kept nor given.
        """
        if model is not None:
            return _imported(model, self.shapes, mapped=True)
        if self.kept is None:
            raise ModelError(
                "the module has not kept the model, because its weights are large", where="advice",
                expected="the model as an argument",
                hint="Write report.advice(model), or compile the model from its file.",
            )  # fmt: skip
        if isinstance(self.kept, Graph):
            return copied(self.kept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TinycompWarning)  # the first import has given them
            graph = graph_of(self.kept, self.shapes)
        check_files(constants_of(graph))
        return graph


def _is_light(graph: Graph) -> bool:
    arrays = (v.const for v in constants_of(graph) if v.const is not None and is_evictable(v.const))
    return sum(array.nbytes for array in arrays) <= _MOST_KEPT
