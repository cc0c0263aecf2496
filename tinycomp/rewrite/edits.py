"""Small edits of graphs that passes and rules share: of nodes, of their results, and of the bodies that they hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.schemas import since_version
from tinycomp.ir.types import refine


def version_of(graph: Graph, op: str) -> int:
    """Return the version of ONNX's ``op`` that a node added to ``graph`` gets."""
    return since_version(op, "", graph.opsets.get(""))


def joined_sources(*nodes: Node) -> tuple[str, ...]:
    """Return the source names of ``nodes``, each once, in order."""
    return tuple(dict.fromkeys(source for node in nodes for source in node.sources))


def bypass(graph: Graph, node: Node, value: Value) -> bool:
    """Let all readers of the first result of ``node`` read ``value`` instead, which equals it.

    Returns:
        True, for rules to return.
    """
    value.type = refine(node.output.type, value.type)
    graph.replace_uses(node.output, value)
    return True


def take_over(graph: Graph, old: Node, new: Node) -> bool:
    """Replace ``old`` by ``new``, which takes over uses, names and known types, and erase ``old``.

    Returns:
        True, for rules to return.
    """
    return replace_results(graph, old, new.outputs)


def replace_results(graph: Graph, old: Node, new: Sequence[Value], refines: bool = True) -> bool:
    """Do as :func:`take_over`, with a value of any node in the place of each result.

    Args:
        graph: The graph.
        old: The node to erase.
        new: A value for each of its results.
        refines: Whether the types of the results hold for these values.
    """
    names = [value.name for value in old.outputs]
    for before, after in zip(old.outputs, new, strict=True):
        if before.name:
            after.type = refine(before.type, after.type) if refines else after.type
            graph.replace_uses(before, after)
    graph.erase(old)
    for name, after in zip(names, new, strict=True):
        if name and after.name != name:
            graph.rename(after, name)
    return True


def replace_by_constant(graph: Graph, value: Value, array: np.ndarray) -> Value:
    """Let all readers of ``value`` read a constant instead; the caller erases the producer."""
    constant = graph.add_const(array, value.name)
    graph.replace_uses(value, constant)
    return constant


def bind_constant_captures(graph: Graph, node: Node) -> bool:
    """Move constants that the bodies of ``node`` capture into those that read them; return whether there were any.

    The arrays are shared, so nothing grows.
    """
    constants = {index: v.const for index, v in enumerate(_captured(node)) if v is not None and v.const is not None}
    for body in node.bodies.values() if constants else ():
        formals = body.inputs[-node.captures :]
        for index, array in constants.items():
            if body.use_count(formals[index]):
                body.replace_uses(formals[index], body.add_const(array, formals[index].name))
    return _drop_captures(graph, node, constants)


def drop_unused_captures(graph: Graph, node: Node) -> bool:
    """Remove captured operands that no body of ``node`` reads; return whether there were any."""
    bodies = node.bodies.values()
    unused = [i for i in range(-len(_captured(node)), 0) if not any(body.use_count(body.inputs[i]) for body in bodies)]
    return _drop_captures(graph, node, [node.captures + i for i in unused])


def _captured(node: Node) -> tuple[Value | None, ...]:
    """Return the operands that bodies of the node capture; for a call, all its operands."""
    return () if node.is_call else node.inputs[len(node.inputs) - node.captures :]


def _drop_captures(graph: Graph, node: Node, dropped: Collection[int]) -> bool:
    """Rebuild ``node`` without captures whose parameters are not read; return whether there were any."""
    if not dropped:
        return False
    for body in node.bodies.values():
        for index, formal in enumerate(body.inputs[-node.captures :]):
            if index in dropped:
                body.remove_input(formal)
    kept = [value for index, value in enumerate(_captured(node)) if index not in dropped]
    bodies, node.bodies = node.bodies, {}
    rebuilt = graph.add(
        node.op,
        [*node.inputs[: len(node.inputs) - node.captures], *kept],
        node.attrs,
        domain=node.domain,
        version=node.version,
        outputs=[v.name and graph.fresh(v.name) for v in node.outputs],
        types=[v.type for v in node.outputs],
        bodies=bodies,
        captures=len(kept),
        at=node,
    )
    return take_over(graph, node, rebuilt)


def choose_branch(graph: Graph, node: Node, condition: bool) -> list[Node]:
    """Replace an If whose condition is known by the nodes of the chosen branch, and return them in order."""
    branch = node.bodies["then_branch" if condition else "else_branch"]
    call = graph.add(
        branch.name,
        node.inputs[1:],
        domain=f"{TINYCOMP}.branch",
        version=1,
        outputs=[v.name and graph.fresh(v.name) for v in node.outputs],
        types=[v.type for v in branch.outputs],
        bodies={"body": branch},
        at=node,
    )
    node.bodies = {}
    take_over(graph, node, call)
    return graph.inline(call)


def excerpt(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """Return a copy of some nodes, producers first, as a graph of their own with the values around as its interface."""
    copy = Graph("excerpt", infer=graph.infer, opsets=graph.opsets)
    copies: dict[Value, Value] = {}
    for value in dict.fromkeys(v for node in nodes for v in node.inputs if v is not None):
        if value.producer not in nodes:
            const, name = value.const, copy.fresh(value.name)
            copies[value] = copy.add_input(name, value.type) if const is None else copy.add_const(const, name)
    for node in nodes:
        twin = copy.add(
            node.op, [None if v is None else copies[v] for v in node.inputs], node.attrs, domain=node.domain,
            version=node.version, outputs=[v.name and copy.fresh(v.name) for v in node.outputs],
            types=[v.type for v in node.outputs], bodies={name: body.clone() for name, body in node.bodies.items()},
            captures=node.captures, sources=node.sources,
        )  # fmt: skip
        copies.update(zip(node.outputs, twin.outputs, strict=True))
    inside = set(nodes)
    leaving = (v for n in nodes for v in n.used_outputs() if graph.is_output(v) or not inside.issuperset(v.users))
    copy.set_outputs([copies[v] for v in leaving])
    return copy
