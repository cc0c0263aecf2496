"""Graphs without calls: what functions, composites and regions do in their place."""

from __future__ import annotations

from collections import deque

from tinycomp.frontend.extension import is_extension_call
from tinycomp.ir.graph import Graph, Node


def inline_call(graph: Graph, node: Node) -> list[Node]:
    """Replace a call by the contents of its body, in which an operand that it leaves out is absent as well.

    Returns:
        The new nodes.
    """
    for formal, actual in zip(node.body.inputs, node.inputs, strict=True):
        for user in list(formal.users) if actual is None else ():
            for index, value in enumerate(user.inputs):
                if value is formal:
                    node.body.set_input(user, index, None)
    return graph.inline(node)


def without_calls(graph: Graph) -> Graph:
    """Return a copy of a graph with every composite, region and function inlined, in bodies too.

    Operators of com.microsoft stay, which are calls of their definitions here.
    """
    flat = graph.clone()
    scopes = [flat]
    for scope in scopes:
        waiting = deque(scope.nodes)
        while waiting:
            node = waiting.popleft()
            if node.is_composite:
                waiting += scope.inline(node)
            elif node.is_call and not is_extension_call(node):
                waiting += inline_call(scope, node)
            elif not node.is_call:
                scopes += node.bodies.values()
    return flat
