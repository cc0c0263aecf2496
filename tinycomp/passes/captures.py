"""Edits of nodes that hold graphs: what their bodies capture, and conditionals that are decided early."""

from __future__ import annotations

from collections.abc import Container

from tinycomp.ir.graph import TINYCOMP, Graph, Node
from tinycomp.passes.edits import take_over


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
