"""Values that PyTorch refuses where ONNX has a result: integers divided by 0, indices below 0, unknown classes.

The operators of an exported graph that are known for it get a condition before them, and the graph one more result:
whether one of these holds. A call where one does runs in PyTorch, which raises its own error, or knows better.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from tinycomp.errors import UnsupportedError
from tinycomp.pytorch.effects import argument_of
from tinycomp.pytorch.exporting import FALLBACK, emitted

_aten = torch.ops.aten
_DIVISIONS = ("floor_divide", "remainder", "fmod", "div", "divide")
_INDICES = {
    **dict.fromkeys(("embedding", "embedding_bag"), "indices"),
    **dict.fromkeys(("index_select", "index_add", "index_copy", "index_fill", "index_reduce", "gather"), "index"),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), "index"),
    **dict.fromkeys(("nll_loss", "nll_loss_nd", "nll_loss2d", "cross_entropy_loss"), "target"),
    "one_hot": "self",
}
"""Which argument of an operator may not be below 0."""
_OF_SOMETHING = ("max", "min", "argmax", "argmin", "amax", "amin", "aminmax")


def refuse_nothing(program: torch.export.ExportedProgram) -> None:
    """Refuse the largest of no elements, for which PyTorch has an error.

    Raises:
        UnsupportedError: If there is one.
    """
    for node in program.graph.nodes:
        given = argument_of(node, "self") if _name(node) in _OF_SOMETHING else None
        if given is not None and 0 in given.meta["val"].shape and argument_of(node, "dim") is None:
            raise UnsupportedError(
                "there are no elements to choose one of", where="torch.compile", found=str(node.target), hint=FALLBACK
            )


def with_doubts(program: torch.export.ExportedProgram) -> bool:
    """Add the result that tells whether PyTorch may have refused the values; tell whether there is one."""
    graph = program.graph
    (output,) = (node for node in graph.nodes if node.op == "output")
    found = None
    for node in [*graph.nodes]:
        with graph.inserting_before(node):
            for elements in _doubts(node):
                doubt = emitted(graph, _aten.any.default, elements)
                found = doubt if found is None else emitted(graph, _aten.logical_or.default, found, doubt)
    if found is None:
        return False
    output.args = ((*output.args[0], found),)
    program.graph_signature.output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(found.name), None))
    structure = torch.utils._pytree.tree_structure(tuple(output.args[0]))
    program.module_call_graph[0].signature.out_spec = structure
    program.graph_module.recompile()
    return True


def _doubts(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yield which elements an operator may not like."""
    name, graph = _name(node), node.graph
    if name in _DIVISIONS and _is_whole(node):
        divisor = argument_of(node, "other")
        if isinstance(divisor, torch.fx.Node) or divisor == 0:
            whole = divisor if isinstance(divisor, torch.fx.Node) else emitted(graph, _aten.full.default, [1], 0)
            yield emitted(graph, _aten.eq.Scalar, whole, 0)
    index = argument_of(node, _INDICES.get(name, ""))
    if isinstance(index, torch.fx.Node) and not index.meta["val"].is_floating_point():
        below = emitted(graph, _aten.lt.Scalar, index, 0)
        ignored = argument_of(node, "ignore_index")
        if ignored is not None and ignored < 0:
            below = emitted(graph, _aten.logical_and.default, below, emitted(graph, _aten.ne.Scalar, index, ignored))
        yield below
        if name == "one_hot":
            yield emitted(graph, _aten.ge.Scalar, index, argument_of(node, "num_classes"))


def _name(node: torch.fx.Node) -> str:
    """Return the name of an operator, in place or not."""
    return node.target._opname.removesuffix("_") if isinstance(node.target, torch._ops.OpOverload) else ""


def _is_whole(node: torch.fx.Node) -> bool:
    """Tell whether the results of an operator are whole numbers."""
    dtype = node.meta["val"].dtype
    return not (dtype.is_floating_point or dtype.is_complex)
