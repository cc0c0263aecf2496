"""Moving nodes between a graph and the bodies of its nodes: outline, inline, clone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tinycomp.ir.graph import Attr, Graph, Node, Value
from tinycomp.ir.node import connect, disconnect
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
    inside = set(nodes)
    members = stable_order(inside)
    body = Graph(op, infer=graph.infer, opsets=graph.opsets)
    wanted = _parameters(members, inside, params, bind_constants)
    results = [v for n in members for v in n.outputs if graph.is_output(v) or not inside.issuperset(v.users)]
    mapping: dict[Value, Value] = {v: body.add_input(v.name, v.type) for v in wanted}
    mapping |= {v: Value(v.name, v.type, v.producer) for v in results}
    _lift_out(graph, members, inside)
    for node in members:
        _settle(node, body, mapping)
    body._order = members
    body.set_outputs([mapping[v] for v in results])
    for value in wanted:
        graph._values.setdefault(value.name, value)
    node = Node(op, domain, 1, tuple(wanted))
    node.outputs = tuple(results)
    node.bodies = {"body": body}
    node.attrs = dict(attrs or {})
    node.target = target
    node.sources = tuple(dict.fromkeys([s for n in members for s in n.sources]))
    node.position = members[-1].position
    node.serial = next(graph._serial)
    for value in results:
        value.producer = node
    graph._insert(node)
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


def _lift_out(graph: Graph, members: list[Node], inside: set[Node]) -> None:
    """Take ``members`` out of the graph but leave the values that others still read, and what they read themselves."""
    for node in members:
        del graph._members[node]
        for value in dict.fromkeys(node.inputs):
            if value is not None and value.producer not in inside:
                del value.users[node]
                if value.is_const and not graph.use_count(value):
                    graph._values.pop(value.name, None)
        for value in node.outputs:
            graph._values.pop(value.name, None)
    graph._edited()


def _settle(node: Node, body: Graph, mapping: dict[Value, Value]) -> None:
    """Put a node that was lifted out into ``body``; ``mapping`` has the stand-ins of what it shares with the graph."""
    operands = []
    for value in node.inputs:
        if value is not None and value.is_const and value not in mapping:
            mapping[value] = _copy_const(value, body)
        inner = value if value is None else mapping.get(value, value)
        if inner is not None and inner is not value:
            assert value is not None
            connect(inner, node)
            value.users.pop(node, None)
        operands.append(inner)
    node.inputs = tuple(operands)
    node.outputs = tuple([mapping.get(v, v) for v in node.outputs])
    node.serial = next(body._serial)
    body._members[node] = None
    for value in node.outputs:
        if value.name:
            body._declare(value)


def _copy_node(node: Node, into: Graph, mapping: dict[Value, Value], names: Mapping[str, str] | None = None) -> Node:
    """Copy one node; operands come from ``mapping``, constants are copied on first use."""
    operands: list[Value | None] = []
    for value in node.inputs:
        if value is not None and value not in mapping:
            assert value.const is not None, f"{value!r} is not available in graph {into.name}"
            mapping[value] = _copy_const(value, into)
        operands.append(None if value is None else mapping[value])
    copy = _like(node, tuple(operands))
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
    return into._declare(Value(into.fresh(value.name or "const"), value.type, const=value.const))


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
        disconnect(operand, node)
    del graph._members[node]
    graph._edited()
    return copies


def clone(graph: Graph) -> Graph:
    """See :meth:`tinycomp.ir.graph.Graph.clone`."""
    copy = Graph(graph.name, infer=graph.infer, opsets=graph.opsets)
    copy.metadata = dict(graph.metadata)
    copy.defaults = dict(graph.defaults)
    copy.remarks = list(graph.remarks)
    mapping = {value: Value(value.name, value.type, None, value.const) for value in graph.values.values()}
    copy.inputs = [mapping[value] for value in graph.inputs]
    copy._order = [_twin(node, copy, mapping) for node in graph.nodes]
    copy._members = dict.fromkeys(copy._order)
    copy._values = {value.name: value for value in mapping.values() if value.name}
    copy.set_outputs([mapping[v] for v in graph.outputs], graph.output_names)
    return copy


def _twin(node: Node, into: Graph, mapping: dict[Value, Value]) -> Node:
    """Return a node's copy for a graph that has all its values, under the same names."""
    twin = _like(node, tuple([None if v is None else mapping[v] for v in node.inputs]))
    twin.serial = next(into._serial)
    twin.outputs = tuple([mapping[v] if v.name else Value("", v.type) for v in node.outputs])
    for value in twin.outputs:
        value.producer = twin
    for operand in twin.inputs:
        connect(operand, twin)
    return twin


def _like(node: Node, operands: tuple[Value | None, ...]) -> Node:
    """Return a copy of a node with other operands and no results."""
    copy = Node(node.op, node.domain, node.version, operands)
    copy.attrs = dict(node.attrs)
    if node.bodies:
        copy.bodies = {key: clone(body) for key, body in node.bodies.items()}
    copy.captures = node.captures
    copy.target = node.target
    copy.region = node.region
    copy.sources = node.sources
    copy.position = node.position
    return copy
