"""DuplicateTails: put what follows a conditional into both of its branches where these return values of other ranks.

PyTorch writes ``x.squeeze(0)`` of an open size as an If: one branch squeezes, the other one does not. Of what follows,
not even ranks are known, and no target could take it. In each branch they are.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%c: bool[], %x: float32[1, N]) -> (%y) {
...   %r: float32[*] = If(%c, %x) {captures = 1} from ["r"]
...     then_branch = graph @then (%a: float32[1, N]) -> (%s) {
...       %axes: int64[1] = const [0]
...       %s: float32[N] = Squeeze(%a, %axes) from ["s"]
...     }
...     else_branch = graph @else (%b: float32[1, N]) -> (%b) { }
...   %y: float32[*] = Relu(%r) from ["y"]
... }''', infer=infer_node_types)
>>> DuplicateTails().run(graph)
True
>>> print(graph)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value, links_among, reachable
from tinycomp.ir.types import TensorType
from tinycomp.ops.body_types import retype
from tinycomp.passes.base import Pass
from tinycomp.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.rewrite.edits import excerpt
from tinycomp.rewrite.rules import open_graphs


@dataclass(frozen=True)
class DuplicateTails(Pass):
    """Move all that depends on an If of differing ranks into its branches, and fold what is decided there.

    Attributes:
        most: The most nodes that are added to the graph. Constants are shared by both copies.

    Each further If among what follows doubles that again, unless the branch decides its condition.
    """

    most: int = 1000

    def run(self, graph: Graph) -> bool:
        """Duplicate tails until no rank is lost, or ``most`` nodes have been added; the first If comes first."""
        left, refused = self.most, set[Node]()
        if next(_candidates(graph, refused), None) is None:
            return False
        changed = EliminateCommonSubexpressions().run(graph)  # a condition that is computed twice is one
        while found := next(_candidates(graph, refused), None):
            where, node = found
            tail = _tail(where, node)
            size = sum(map(_size, tail))
            if not tail or size > left or not _duplicate(where, node, tail):
                refused.add(node)
                continue
            left -= size
            FoldConstants().run(graph)
            changed = True
        return changed


def _candidates(graph: Graph, refused: set[Node]) -> Iterator[tuple[Graph, Node]]:
    """Yield every conditional of which a result has a rank in a branch and none behind it, with its graph."""
    for each in open_graphs(graph):
        for node in each.nodes:
            if node.op == "If" and not node.domain and node.target is None and node not in refused:
                branches = [body.outputs for body in node.bodies.values()]
                if any(_loses_rank(*values) for values in zip(node.outputs, *branches, strict=True)):
                    yield each, node


def _loses_rank(result: Value, *branches: Value) -> bool:
    lost = result.name and isinstance(result.type, TensorType) and result.rank is None
    return bool(lost) and any(value.rank is not None for value in branches)


def _tail(graph: Graph, node: Node) -> list[Node]:
    """Return what depends on a node, producers first; nothing if a target has claimed any of it."""
    behind = reachable(links_among(graph.nodes), [node]) - {node}
    return [] if any(each.target is not None for each in behind) else [each for each in graph.nodes if each in behind]


def _size(node: Node) -> int:
    return 1 + sum(1 for body in node.bodies.values() for _ in body.walk())


def _duplicate(graph: Graph, node: Node, tail: Sequence[Node]) -> bool:
    """Move a tail into the branches of a conditional; return whether it works on what the branches return."""
    copied = excerpt(graph, tail)
    read = [v for v in dict.fromkeys(v for each in tail for v in each.inputs) if v is not None and not v.is_const]
    around = [v for v in read if v.producer not in {*tail}]
    captured = [v for v in node.inputs[1:] if v is not None]
    added = [v for v in around if v not in node.outputs and v not in captured]
    kept = [place for place, value in enumerate(node.outputs) if graph.is_output(value)]
    bodies = {}
    for key, branch in node.bodies.items():
        body = bodies[key] = branch.clone()
        known = dict(zip(captured, body.inputs, strict=True)) | dict(zip(node.outputs, body.outputs, strict=True))
        known |= {value: body.add_input(body.fresh(value.name), value.type) for value in added}
        call = body.add(
            "tail", [known[v] for v in around], domain=f"{TINYCOMP}.tail", version=1, outputs=len(copied.outputs),
            types=[v.type for v in copied.outputs], bodies={"body": copied.clone()}, at=node,
        )  # fmt: skip
        body.set_outputs([*[body.outputs[place] for place in kept], *call.outputs])
        body.inline(call)
        try:
            retype(body, [v.type for v in (*captured, *added)])
        except TypeInferenceError:
            return False
    inside = {*tail}
    leaving = [v for each in tail for v in each.used_outputs() if graph.is_output(v) or not inside.issuperset(v.users)]
    olds = [*[node.outputs[place] for place in kept], *leaving]
    new = graph.add(
        "If", [node.inputs[0], *captured, *added], node.attrs, version=node.version, outputs=len(olds), bodies=bodies,
        captures=len(captured) + len(added), sources=node.sources, at=node,
    )  # fmt: skip
    for old, value in zip(olds, new.outputs, strict=True):
        graph.replace_uses(old, value)
    for each in (*reversed(tail), node):
        graph.erase(each)
    for old, value in zip(olds, new.outputs, strict=True):
        graph.rename(value, old.name)
    return True
