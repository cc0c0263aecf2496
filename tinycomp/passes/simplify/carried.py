"""Rules on what loops and branches hand on unchanged: what a loop carries so may as well be captured."""

from __future__ import annotations

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType
from tinycomp.rewrite import rule

_UNBATCHED_SCAN = 9
"""From this version on, a Scan hands its operands to its body as they are."""


@rule("Loop", "Scan")
def capture_unchanged(graph: Graph, node: Node) -> bool:
    """Let a loop capture the values that its body returns as it got them; after the loop they are what they were."""
    if node.op == "Scan" and node.version < _UNBATCHED_SCAN:
        return False
    body = node.body
    first = 2 if node.op == "Loop" else 0
    skipped = 1 if node.op == "Loop" else 0
    own = len(node.inputs) - node.captures
    count = own - first - int(node.attrs.get("num_scan_inputs", 0))
    unchanged = [
        place for place in range(count)
        if _source(body.outputs[skipped + place]) is body.inputs[first + place]
        and isinstance(node.operand(first + place).type, TensorType)
    ]  # fmt: skip
    if not unchanged:
        return False
    moved = [first + place for place in unchanged]
    for place in unchanged:
        if place < len(node.outputs) and node.outputs[place].name:
            graph.replace_uses(node.outputs[place], node.operand(first + place))
    kept = [value for place, value in enumerate(node.outputs) if place not in unchanged]
    if not any(value.name for value in kept):
        return True  # nobody needs the loop any more
    formals = body.inputs
    dropped = {skipped + place for place in unchanged}
    results = [pair for i, pair in enumerate(zip(body.outputs, body.output_names, strict=True)) if i not in dropped]
    body.inputs = [*[v for i, v in enumerate(formals) if i not in moved], *[formals[i] for i in moved]]
    body.set_outputs([value for value, _ in results], [name for _, name in results])
    bodies, node.bodies = node.bodies, {}
    new = graph.add(
        node.op, [*[v for i, v in enumerate(node.inputs) if i not in moved], *[node.inputs[i] for i in moved]],
        node.attrs, version=node.version, outputs=[value.name and graph.fresh(value.name) for value in kept],
        bodies=bodies, captures=node.captures + len(moved), sources=node.sources, at=node,
    )  # fmt: skip
    names = [value.name for value in kept]
    for old, value in zip(kept, new.outputs, strict=True):
        if old.name:
            graph.replace_uses(old, value)
    graph.erase(node)
    for name, value in zip(names, new.outputs, strict=True):
        if name:
            graph.rename(value, name)
    return True


@rule("If")
def hand_on_captured(graph: Graph, node: Node) -> bool:
    """Read a value itself where both branches return it as it is."""
    changed = False
    for place, value in enumerate(node.outputs):
        returned = [(body.inputs, _source(body.outputs[place])) for body in node.bodies.values()]
        found = {formals.index(source) if source in formals else -1 for formals, source in returned}
        if len(found) == 1 and min(found) >= 0 and graph.use_count(value):
            graph.replace_uses(value, node.operand(1 + min(found)))
            changed = True
    return changed


def _source(value: Value) -> Value:
    """Return what a value is a copy of."""
    while value.producer is not None and value.producer.op == "Identity" and not value.producer.domain:
        value = value.producer.operand(0)
    return value


RULES = (capture_unchanged, hand_on_captured)
