"""Small edits that the optimisation passes share: of nodes, of their results, and of the bodies that they hold."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.proto import since_version
from tinycomp.ir.types import Type, refine


def version_of(graph: Graph, op: str) -> int:
    """Return the version of ONNX's ``op`` that a node added to ``graph`` gets."""
    return since_version(op, "", graph.opsets.get(""))


def joined_sources(*nodes: Node) -> tuple[str, ...]:
    """Return the source names of ``nodes``, each once, in order."""
    return tuple(dict.fromkeys(source for node in nodes for source in node.sources))


def bypass(graph: Graph, node: Node, value: Value) -> bool:
    """Let everyone who reads the first result of ``node`` read ``value`` instead, which equals it.

    Returns:
        True, for rules to return.
    """
    value.type = refine(node.output.type, value.type)
    graph.replace_uses(node.output, value)
    return True


def take_over(graph: Graph, old: Node, new: Node) -> bool:
    """Let ``new`` stand in the place of ``old``: uses, names and what is known of the types go over; erase ``old``.

    Returns:
        True, for rules to return.
    """
    names = [value.name for value in old.outputs]
    for before, after in zip(old.outputs, new.outputs, strict=True):
        if before.name:
            after.type = refine(before.type, after.type)
            graph.replace_uses(before, after)
    graph.erase(old)
    for name, after in zip(names, new.outputs, strict=True):
        if name and after.name != name:
            graph.rename(after, name)
    return True


def absorb_node(graph: Graph, node: Node, host: Node) -> None:
    """Let ``host`` give the result of ``node``, whose work it does from now on, in the place of ``node``; erase that.

    Args:
        graph: The graph.
        node: A node with one result, of the type that the result of ``host`` has.
        host: The node before it, whose result nobody else reads.
    """
    host.sources = joined_sources(host, node)
    host.position = node.position
    bypass(graph, node, host.output)
    name = node.output.name
    graph.erase(node)
    graph.rename(host.output, name)


def replace(
    graph: Graph,
    node: Node,
    op: str,
    inputs: Iterable[Value | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    merged: Sequence[Node] = (),
    version: int | None = None,
) -> bool:
    """Replace a node of ONNX's domain with one result by another.

    Args:
        graph: The graph.
        node: The node to replace.
        op: Operator of the new node.
        inputs: Its operands.
        attrs: Its attributes.
        merged: Further nodes whose work the new node does; their source names come first.
        version: Its version; by default the one in force in the graph's opset.

    Returns:
        True, for rules to return.
    """
    sources = joined_sources(*merged, node)
    names = [graph.fresh(node.output.name)]
    new = graph.add(op, inputs, attrs, version=version, outputs=names, at=node, sources=sources)
    return take_over(graph, node, new)


def replace_by_constant(graph: Graph, value: Value, array: np.ndarray) -> Value:
    """Let everyone who reads ``value`` read a constant instead; the producer is left for its caller to erase."""
    constant = graph.add_const(array, value.name)
    graph.replace_uses(value, constant)
    return constant


def erase_dead(graph: Graph, node: Node) -> None:
    """Erase a node that nobody reads, then the producers and constants that this leaves unread."""
    waiting = [node]
    while waiting:
        dead = waiting.pop()
        if dead not in graph or any(graph.use_count(value) for value in dead.outputs):
            continue
        operands = dict.fromkeys(value for value in dead.inputs if value is not None)
        graph.erase(dead)
        for value in operands:
            if value.producer is not None:
                waiting.append(value.producer)
            elif value.is_const and not graph.use_count(value):
                graph.erase_unused(value)


def retype(graph: Graph, node: Node) -> bool:
    """Infer the types of a node's results anew, keeping what was known already; return whether any is new."""
    changed = False
    for value, found in zip(node.outputs, graph.infer(node), strict=False):
        better: Type = refine(value.type, found)
        changed |= better != value.type
        value.type = better
    return changed


def stored(result: object) -> np.ndarray | None:
    """Return a kernel's result as an array fit for a constant, or None where it is not an array.

    A view is copied where it would keep a larger array alive or is not row-major.
    """
    if not isinstance(result, (np.ndarray, np.generic)):
        return None
    array = np.asarray(result, order="C")
    base = array.base
    if isinstance(base, np.ndarray) and base.nbytes > array.nbytes:
        return array.copy()
    return array


def has_captures(node: Node) -> bool:
    """Whether bodies of the node capture outer values; a call hands all its operands on instead."""
    return not node.is_call and node.captures > 0


def bind_constant_captures(graph: Graph, node: Node) -> bool:
    """Move captured constants into the bodies that read them; return whether there were any.

    The arrays are shared, so nothing grows.
    """
    if not has_captures(node):
        return False
    captured = node.inputs[-node.captures :]
    known = [index for index, value in enumerate(captured) if value is not None and value.is_const]
    for body in node.bodies.values():
        formals = body.inputs[-node.captures :]
        for index in known:
            value, formal = captured[index], formals[index]
            if value is not None and value.const is not None and body.use_count(formal):
                body.replace_uses(formal, body.add_const(value.const, formal.name))
    _without_captures(graph, node, known)
    return bool(known)


def drop_unused_captures(graph: Graph, node: Node) -> bool:
    """Remove captured operands that no body reads; return whether there were any."""
    if not has_captures(node):
        return False
    formals = [body.inputs[-node.captures :] for body in node.bodies.values()]
    used = [any(body.use_count(f[i]) for body, f in zip(node.bodies.values(), formals, strict=True))
            for i in range(node.captures)]  # fmt: skip
    unused = [index for index, is_used in enumerate(used) if not is_used]
    _without_captures(graph, node, unused)
    return bool(unused)


def _without_captures(graph: Graph, node: Node, dropped: Container[int]) -> None:
    """Rebuild ``node`` without some captures, whose formals nobody reads."""
    first = len(node.inputs) - node.captures
    kept = [i for i in range(node.captures) if i not in dropped]
    if len(kept) == node.captures:
        return
    for body in node.bodies.values():
        for index, formal in enumerate(body.inputs[-node.captures :]):
            if index in dropped:
                body.remove_input(formal)
    bodies, node.bodies = node.bodies, {}
    rebuilt = graph.add(
        node.op,
        [*node.inputs[:first], *(node.inputs[first + i] for i in kept)],
        node.attrs,
        domain=node.domain,
        version=node.version,
        outputs=[v.name and graph.fresh(v.name) for v in node.outputs],
        types=[v.type for v in node.outputs],
        bodies=bodies,
        captures=len(kept),
        at=node,
    )
    take_over(graph, node, rebuilt)


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
