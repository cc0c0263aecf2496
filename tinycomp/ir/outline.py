"""Moving nodes between a graph and the bodies of its nodes: outline, inline, clone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tinycomp.ir.graph import Attr, Graph, Node, Value
from tinycomp.ir.order import stable_order


def outline(
    graph: Graph,
    nodes: Iterable[Node],
    op: str,
    domain: str,
    target: str | None,
    params: Sequence[Value] | None,
    bind_constants: bool,
    attrs: Mapping[str, Attr] | None,
) -> Node:
    """See :meth:`tinycomp.ir.graph.Graph.outline`."""
    members = stable_order(graph.connectivity, set(nodes))
    inside = set(members)
    body = Graph(op, infer=graph.infer, opsets=graph.opsets)
    wanted = _parameters(members, inside, params, bind_constants)
    mapping: dict[Value, Value] = {v: body.add_input(v.name, v.type) for v in wanted}
    for node in members:
        _copy_node(node, body, mapping)
    results = [v for n in members for v in n.outputs if graph.is_output(v) or any(u not in inside for u in v.users)]
    body.set_outputs([mapping[v] for v in results])
    _lift_out(graph, members)
    for value in wanted:
        graph._values.setdefault(value.name, value)
    node = Node(op, domain, 1, tuple(wanted))
    node.outputs = tuple(results)
    node.bodies = {"body": body}
    node.attrs = dict(attrs or {})
    node.target = target
    node.sources = tuple(dict.fromkeys(s for n in members for s in n.sources))
    node.position = members[-1].position
    node.serial = next(graph._serial)
    graph._insert(node)
    for value in results:
        value.producer = node
        for user, slots in value.users.items():
            graph._link(node, user, slots)
    return node


def _parameters(
    members: list[Node], inside: set[Node], params: Sequence[Value] | None, bind_constants: bool
) -> list[Value]:
    wanted = dict.fromkeys(params or ())
    for node in members:
        for value in node.inputs:
            if value is None or value.producer in inside:
                continue
            if not (value.is_const and bind_constants):
                wanted.setdefault(value)
    return list(wanted)


def _lift_out(graph: Graph, members: list[Node]) -> None:
    """Take ``members`` out of the graph but leave the values that others still read."""
    for node in members:
        for value in node.inputs:
            graph._disconnect(value, node)
            if value is not None and value.is_const and not graph.use_count(value):
                graph._values.pop(value.name, None)
    for node in members:
        graph._nx.remove_node(node)
        for value in node.outputs:
            graph._values.pop(value.name, None)
    graph._order = None


def _copy_node(node: Node, into: Graph, mapping: dict[Value, Value], names: Mapping[str, str] | None = None) -> Node:
    """Copy one node; operands come from ``mapping``, constants are copied on first use."""
    operands: list[Value | None] = []
    for value in node.inputs:
        if value is not None and value not in mapping:
            assert value.const is not None, f"{value!r} is not available in graph {into.name}"
            mapping[value] = _copy_const(value, into)
        operands.append(None if value is None else mapping[value])
    copy = Node(node.op, node.domain, node.version, tuple(operands))
    copy.attrs = dict(node.attrs)
    copy.bodies = {key: clone(body) for key, body in node.bodies.items()}
    copy.captures = node.captures
    copy.target = node.target
    copy.region = node.region
    copy.sources = node.sources
    copy.position = node.position
    copy.serial = next(into._serial)
    outputs = []
    for value in node.outputs:
        name = value.name and into.fresh((names or {}).get(value.name, value.name))
        outputs.append(Value(name, value.type, copy))
        mapping[value] = outputs[-1]
    copy.outputs = tuple(outputs)
    into._insert(copy)
    return copy


def _copy_const(value: Value, into: Graph) -> Value:
    held = into.values.get(value.name)
    if held is not None and held.const is value.const:
        return held
    assert value.const is not None
    copy = into.add_const(value.const, value.name)
    copy.type = value.type
    return copy


def inline(graph: Graph, node: Node) -> list[Node]:
    """See :meth:`tinycomp.ir.graph.Graph.inline`."""
    body = node.body
    mapping = {formal: actual for formal, actual in zip(body.inputs, node.inputs, strict=True) if actual is not None}
    outer_names = {b.name: v.name for b, v in zip(body.outputs, node.outputs, strict=True) if v.name and b.producer}
    for value in node.used_outputs():
        del graph._values[value.name]
    copies = []
    for inner in body.nodes:
        copy = _copy_node(inner, graph, mapping, outer_names)
        copy.sources = copy.sources or node.sources
        if not (node.is_composite or node.is_region):
            copy.position = node.position
        copies.append(copy)
    for value, result in zip(node.outputs, body.outputs, strict=True):
        if result not in mapping:
            mapping[result] = _copy_const(result, graph)
        graph.replace_uses(value, mapping[result])
    for operand in node.inputs:
        graph._disconnect(operand, node)
    graph._nx.remove_node(node)
    graph._order = None
    return copies


def clone(graph: Graph) -> Graph:
    """See :meth:`tinycomp.ir.graph.Graph.clone`."""
    copy = Graph(graph.name, infer=graph.infer, opsets=graph.opsets)
    copy.metadata = dict(graph.metadata)
    copy.defaults = dict(graph.defaults)
    copy.remarks = list(graph.remarks)
    mapping: dict[Value, Value] = {v: copy.add_input(v.name, v.type) for v in graph.inputs}
    for value in graph.constants:
        mapping[value] = _copy_const(value, copy)
    for node in graph.nodes:
        _copy_node(node, copy, mapping)
    copy.set_outputs([mapping[v] for v in graph.outputs], graph.output_names)
    return copy
