"""Names in a GraphProto: what defines them, what reads them, and an order in which every read comes after its write.

Repeated fields are read by slices, which takes half as long as iterating over them: protobuf's iterators end with an
error that is formatted each time.
"""

from __future__ import annotations

import heapq
import itertools
import warnings
from collections.abc import Collection, Sequence

from tinycomp.errors import ModelError, TinycompWarning, UnsupportedError, did_you_mean
from tinycomp.frontend.loading import check_text, check_texts
from tinycomp.ir.graph import Graph
from tinycomp.ir.messages import GraphProto, NodeProto

MAX_NESTING = 64


def node_label(node: NodeProto) -> str:
    """Return the name that messages and reports use for a node: its own, or that of its first result."""
    return node.name or next((o for o in node.output if o), node.op_type)


def bodies_of(node: NodeProto) -> list[GraphProto]:
    """Return the graphs that a node holds as attributes."""
    return [attribute.g for attribute in node.attribute[:] if attribute.HasField("g")]


def check_nesting(nodes: Sequence[NodeProto], where: str) -> None:
    """Refuse graphs within graphs beyond :data:`MAX_NESTING` levels, without recursion.

    Raises:
        UnsupportedError: If the limit is passed.
    """
    stack = [(node, 1) for node in nodes[:]]
    while stack:
        node, depth = stack.pop()
        for attribute in node.attribute[:]:
            if attribute.HasField("g"):
                if depth > MAX_NESTING:
                    raise too_deep(where)
                stack.extend((inner, depth + 1) for inner in attribute.g.node)


def too_deep(where: str) -> UnsupportedError:
    """Return the error for graphs or function calls that are nested too deeply."""
    return UnsupportedError(
        "graphs and function calls are nested too deeply",
        where=where,
        expected=f"up to {MAX_NESTING} levels",
        found=f"more than {MAX_NESTING}",
    )


def defined_names(graph: GraphProto, where: str) -> set[str]:
    """Return every name that a graph defines.

    Raises:
        ModelError: If a name is defined twice, or is not UTF-8. (An initializer may repeat the name of an input.)
    """
    inputs = unique([v.name for v in graph.input], set(), "input", where)
    stored = [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]
    constants = unique(stored, set(), "initializer", where)
    return unique(produced_names(graph.node), inputs | constants, "result", where)


def produced_names(nodes: Sequence[NodeProto]) -> list[str]:
    """Return the names of all results that are not skipped."""
    return [name for node in nodes for name in node.output[:] if name]


def unique(names: Sequence[str], known: set[str], what: str, where: str) -> set[str]:
    """Return ``known`` and ``names`` together.

    Raises:
        ModelError: If a name comes twice, or is not UTF-8.
    """
    seen = set(known)
    check_texts(names, where)
    for name in names:
        if name in seen:
            raise ModelError(f'the value name "{name}" is defined twice', where=where, found=f"a second {what}")
        seen.add(name)
    return seen


def name_outputs_apart(graph: Graph) -> None:
    """Give each output of a graph a name of its own: ONNX lists a value twice under one name.

    The first of them keeps the name, the others are ``y_1``, ``y_2``, … after it.
    """
    if len(set(graph.output_names)) == len(graph.output_names):
        return
    taken = {*graph.values, *graph.output_names}
    names: dict[str, None] = {}
    for name in graph.output_names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        chosen = name if name not in names else next(each for each in numbered if each not in taken)
        names[chosen] = None
        taken.add(chosen)
    graph.set_outputs(graph.outputs, list(names))


def free_names(graph: GraphProto) -> dict[str, None]:
    """Return the names that a graph reads but does not define, in order of first use."""
    defined = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    defined.update(s.values.name for s in graph.sparse_initializer)
    defined.update(produced_names(graph.node))
    read = dict.fromkeys(name for node in graph.node for name in reads(node))
    read.update(dict.fromkeys(v.name for v in graph.output))
    return {name: None for name in read if name and name not in defined}


def reads(node: NodeProto) -> list[str]:
    """Return the names that a node reads, its bodies included."""
    names = list(filter(None, node.input[:]))
    for attribute in node.attribute[:]:
        if attribute.HasField("g"):
            names += free_names(attribute.g)
    return names


def sorted_nodes(nodes: Sequence[NodeProto], known: Collection[str], where: str) -> Sequence[NodeProto]:
    """Return the nodes in an order in which every value is made before it is read; warn if that is a new order.

    ``known`` holds the names that exist before the first node.

    Raises:
        ModelError: If a value is never made, or the nodes form a cycle.
    """
    every = [reads(node) for node in nodes]
    seen = set(known)
    in_order = True
    for node, names in zip(nodes, every, strict=True):
        in_order = in_order and seen.issuperset(names)
        seen.update(node.output[:])
    _check_all_made(nodes, every, seen, where)
    if in_order:
        return nodes
    order = _sorted(nodes, every, where)
    warnings.warn(f"{where}: the nodes are not in topological order; they have been sorted", TinycompWarning, 2)
    return order


def _check_all_made(
    nodes: Sequence[NodeProto], every: Sequence[Sequence[str]], made: Collection[str], where: str
) -> None:
    for node, names in zip(nodes, every, strict=True):
        for name in names:
            if name not in made:
                check_text(name, where)
                raise ModelError(
                    f'reads the value "{name}", which is never produced',
                    where=f"node {node_label(node)} ({node.op_type})",
                    hint=did_you_mean(name, [n for n in made if isinstance(n, str) and n]),
                )


def _sorted(nodes: Sequence[NodeProto], every: Sequence[Sequence[str]], where: str) -> list[NodeProto]:
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{producer[name] for name in names if name in producer} for names in every]
    users: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(needs):
        for source in sources:
            users[source].append(index)
    waiting = [len(sources) for sources in needs]
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[NodeProto] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for user in users[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        raise ModelError(f"the graph has a cycle: {_cycle(nodes, needs, waiting)}", where=where)
    return order


def _cycle(nodes: Sequence[NodeProto], needs: Sequence[set[int]], waiting: Sequence[int]) -> str:
    """Walk backwards among the nodes that could not be ordered until one repeats."""
    index = next(i for i, count in enumerate(waiting) if count)
    path: list[int] = []
    place: dict[int, int] = {}
    while index not in place:
        place[index] = len(path)
        path.append(index)
        index = min(i for i in needs[index] if waiting[i])
    loop = [*path[place[index] :], index]
    names = [node_label(nodes[i]) for i in reversed(loop)]
    return " -> ".join(names if len(names) <= 12 else [*names[:6], "…", *names[-5:]])
