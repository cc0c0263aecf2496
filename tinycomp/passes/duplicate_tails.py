"""DuplicateTails: put what follows a conditional into both of its branches where these return values of other ranks.

PyTorch writes ``x.squeeze(0)`` of an open size as an If: one branch squeezes, the other one does not. Of what follows,
not even ranks are known, and no target could take it. In each branch they are.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%c: bool[], %x: float32[N, 1]) -> (%y) {
...   %r: float32[...] = If(%c | %x)
...     then_branch = graph @yes (%x: float32[N, 1]) -> (%s) {
...       %axes: int64[1] = const [1]
...       %s: float32[N] = Squeeze(%x, %axes)
...     }
...     else_branch = graph @no (%x: float32[N, 1]) -> ("r" = %x) {}
...   %y: float32[...] = Relu(%r)
... }''', infer=infer_node_types)
>>> DuplicateTails().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%c: bool[], %x: float32[N, 1]) -> (%y) {
  %y: float32[...] = If@16(%c | %x)
    then_branch = graph @yes (%x: float32[N, 1]) -> (%y) {
      %axes: int64[1] = const [1]
      %s: float32[N] = Squeeze@13(%x, %axes)
      %y: float32[N] = Relu@14(%s)
    }
    else_branch = graph @no (%x: float32[N, 1]) -> (%y) {
      %y: float32[N, 1] = Relu@14(%x)
    }
}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import TensorType, refine
from tinycomp.ops.agreement import conditions
from tinycomp.ops.body_types import retype
from tinycomp.passes.base import Pass
from tinycomp.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import choose_branch, excerpt
from tinycomp.rewrite.rules import open_graphs
from tinycomp.symbolic import if_zero


@dataclass(frozen=True)
class DuplicateTails(Pass):
    """Move all that depends on an If of differing ranks into its branches, and fold what is decided there.

    Attributes:
        most: The most nodes that are added to the graph. Constants are shared by both copies.

    Each further If among what follows doubles that again, unless the branch decides its condition. Where what follows
    can never work on what one branch returns, and the other one fails by itself unless it is the one to be taken, as a
    Squeeze does, it is always taken.
    """

    most: int = 1000

    def run(self, graph: Graph) -> bool:
        """Duplicate tails until no rank is lost, or ``most`` nodes have been added; the first If comes first."""
        left, done = self.most, set[Node]()
        if next(_candidates(graph, done), None) is None:
            return False
        changed = EliminateCommonSubexpressions().run(graph)  # a condition that is computed twice is one
        while found := next(_candidates(graph, done), None):
            where, node = found
            done.add(node)
            tail = _tail(where, node)
            size = sum(map(_size, tail))
            if not tail or size > left:
                continue
            branches = _with_tail(where, node, tail)
            if len(branches) == len(node.bodies):
                _replace(where, node, tail, branches)
                left -= size
            elif len(branches) == 1 and _demands(node, *branches):
                choose_branch(where, node, "then_branch" in branches)
                _refine(graph)
            else:
                continue
            if FoldConstants().run(graph):
                _refine(graph)
            changed = True
        return changed


def _refine(graph: Graph) -> None:
    """Infer all types again, with what is known of branches by now."""
    for each in reversed(list(open_graphs(graph))):
        for node in each.nodes:
            for value, inferred in zip(node.outputs, each.infer(node), strict=False):
                value.type = refine(value.type, inferred)


def _candidates(graph: Graph, done: set[Node]) -> Iterator[tuple[Graph, Node]]:
    """Yield every conditional of which a result has a rank in a branch and none behind it, with its graph."""
    for each in open_graphs(graph):
        for node in each.nodes:
            if node.op == "If" and not node.domain and node.target is None and node not in done:
                branches = [body.outputs for body in node.bodies.values()]
                if any(_loses_rank(*values) for values in zip(node.outputs, *branches, strict=True)):
                    yield each, node


def _loses_rank(result: Value, *branches: Value) -> bool:
    lost = result.name and isinstance(result.type, TensorType) and result.rank is None
    return bool(lost) and any(value.rank is not None for value in branches)


def _tail(graph: Graph, node: Node) -> list[Node]:
    """Return what depends on a node, producers first; nothing if a target has claimed any of it."""
    made = set(node.outputs)
    tail: list[Node] = []
    for each in graph.nodes:
        if not made.isdisjoint(each.inputs):
            tail.append(each)
            made.update(each.outputs)
    return [] if any(each.target is not None for each in tail) else tail


def _size(node: Node) -> int:
    return 1 + sum(1 for body in node.bodies.values() for _ in body.walk())


def _with_tail(graph: Graph, node: Node, tail: Sequence[Node]) -> dict[str, Graph]:
    """Return copies of the branches of a conditional with its tail, without those on whose results it can never work.

    What the tail reads besides is passed to them after what they captured already.
    """
    copied = excerpt(graph, tail)
    around, added = _read(node, tail)
    captured = [v for v in node.inputs[1:] if v is not None]
    bodies = {}
    for key, branch in node.bodies.items():
        body = branch.clone()
        known = dict(zip(captured, body.inputs, strict=True)) | dict(zip(node.outputs, body.outputs, strict=True))
        known |= {value: body.add_input(body.fresh(value.name), value.type) for value in added}
        call = body.add(
            "tail", [known[v] for v in around], domain=f"{TINYCOMP}.tail", version=1,
            outputs=[body.fresh(name) for name in copied.output_names],
            types=[v.type for v in copied.outputs], bodies={"body": copied.clone()}, at=node,
        )  # fmt: skip
        kept = [result for value, result in zip(node.outputs, body.outputs, strict=True) if graph.is_output(value)]
        body.set_outputs([*kept, *call.outputs])
        body.inline(call)
        with suppress(TypeInferenceError):
            retype(body, [v.type for v in (*captured, *added)])
            bodies[key] = body
    return bodies


def _read(node: Node, tail: Sequence[Node]) -> tuple[list[Value], list[Value]]:
    """Return what a tail reads that is not computed in it, and what of this the conditional does not know yet."""
    inside = {value for each in tail for value in each.outputs}
    read = [v for v in dict.fromkeys(v for each in tail for v in each.inputs) if v is not None and not v.is_const]
    around = [v for v in read if v not in inside]
    return around, [v for v in around if v not in node.outputs and v not in node.inputs[1:]]


def _demands(node: Node, key: str) -> bool:
    """Tell whether a branch fails by itself if sizes say that the other one is to be taken."""
    truth = node.operand(0).contents
    wanted = 1 if key == "then_branch" else 0
    for inner in node.bodies[key].nodes if truth else ():
        for must_be_zero, _ in conditions(inner):
            fits = [if_zero(v, 1, 0) if wanted else 1 - if_zero(v, 1, 0) for v in (must_be_zero, -must_be_zero)]
            if truth in [(each,) for each in fits]:
                return True
    return False


def _replace(graph: Graph, node: Node, tail: Sequence[Node], bodies: Mapping[str, Graph]) -> None:
    """Replace a conditional and its tail by a conditional with these branches."""
    inside = {*tail}
    leaving = [v for each in tail for v in each.used_outputs() if graph.is_output(v) or not inside.issuperset(v.users)]
    olds = [*[value for value in node.outputs if graph.is_output(value)], *leaving]
    operands = [*node.inputs, *_read(node, tail)[1]]
    new = graph.add(
        "If", operands, node.attrs, version=node.version, outputs=len(olds), bodies=bodies, captures=len(operands) - 1,
        sources=node.sources, at=node,
    )  # fmt: skip
    for old, value in zip(olds, new.outputs, strict=True):
        graph.replace_uses(old, value)
    for each in (*reversed(tail), node):
        graph.erase(each)
    for old, value in zip(olds, new.outputs, strict=True):
        graph.rename(value, old.name)
