"""Grouping claimed nodes into as few regions as possible, without a cycle between regions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from tinycomp.errors import TinycompError, did_you_mean
from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.base import Pass
from tinycomp.passes.counted_rows import Dependency, counted_dependencies
from tinycomp.passes.policy import apply_policy
from tinycomp.passes.quotient import HOST, Problem, separate
from tinycomp.passes.region_remarks import explain_borders
from tinycomp.passes.region_search import RegionSearch
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_barrier, is_structural
from tinycomp.target import Policy, Target, find_all

MINIMUM = "minimum"
"""The rule named by the remark that a number of regions may not be minimal."""
BARRIERS = ("transparent", "binding", "identity")


@dataclass(frozen=True)
class MergeRegions(Pass):
    """Number the nodes of every region: the fewest regions such that the graph of regions and host nodes is acyclic.

    All regions of all targets are contracted at the same time; host nodes stay single. Regions grow along data edges
    only and never cross the border of a body; composites are atoms. :mod:`tinycomp.passes.region_search` says how the
    minimum is found and where it becomes an approximation.

    Before and after (``Softmax`` is the host's; the join would depend on itself if all three were one region)::

        %a = Conv(%x, %w) target "npu"     ->  %a = Conv(%x, %w) target "npu" region 0
        %b = Softmax(%a)                   ->  %b = Softmax(%a)
        %c = Relu(%a) target "npu"         ->  %c = Relu(%a) target "npu" region 1
        %d = Add(%b, %c) target "npu"      ->  %d = Add(%b, %c) target "npu" region 1

    Attributes:
        barriers: Whether StopFusion cuts regions (``"binding"``; ``"identity"``: every structural node does) or not.
        policy: What every region must fulfil.
        targets: Targets (or names) whose own policies count as well.
    """

    barriers: str = "transparent"
    policy: Policy = field(default_factory=Policy)
    targets: Sequence[Target | str] = ()

    def __post_init__(self) -> None:
        if self.barriers not in BARRIERS:
            raise TinycompError(
                "unknown option",
                where="MergeRegions(barriers=…)",
                expected=f"one of {', '.join(BARRIERS)}",
                found=self.barriers,
                hint=did_you_mean(self.barriers, BARRIERS),
            )

    def run(self, graph: Graph) -> bool:
        """Mark the nodes of ``graph`` and of its open bodies; marks of an earlier run are dropped."""
        targets = find_all(self.targets)
        changed = False
        count = 0
        for scope in open_graphs(graph):
            before = {n: (n.target, n.region) for n in scope.nodes}
            self._bind_barriers(scope, graph.remarks)
            search = RegionSearch()
            borders = counted_dependencies(scope, {t.name: t for t in targets})
            regions = find_regions(scope, search, borders)
            _admit_doubt(scope, search, graph.remarks)
            explain_borders(scope, regions, graph.remarks, borders)
            regions = apply_policy(scope, regions, self.policy, targets, graph.remarks)
            for node in scope.nodes:
                node.region = None
            for number, nodes in enumerate(regions, count):
                for node in nodes:
                    node.region = number
            count += len(regions)
            changed |= before != {n: (n.target, n.region) for n in scope.nodes}
        return changed

    def _bind_barriers(self, graph: Graph, remarks: list[Remark]) -> None:
        if self.barriers == "transparent":
            return
        for node in graph.nodes:
            if node.target is not None and (is_barrier(node) or (self.barriers == "identity" and is_structural(node))):
                reason = f"{node.op} cuts regions here"
                remarks.append(Remark(self.name, node.sources, node.target, f"barriers={self.barriers}", reason))
                node.target = None


def _admit_doubt(graph: Graph, search: RegionSearch, remarks: list[Remark]) -> None:
    """Add a remark about the whole graph if the search does not know its answer to be minimal."""
    if not search.proven:
        most = f"{search.found} were found, and fewer than {search.bound} are impossible"
        reason = f'the number of regions of graph "{graph.name}" may not be minimal: {most}'
        remarks.append(Remark(MergeRegions.name, (), "", MINIMUM, reason))


def find_regions(
    graph: Graph, search: RegionSearch | None = None, borders: Set[Dependency] = frozenset()
) -> list[list[Node]]:
    """Return the regions of ``graph`` in the order of their first nodes, without changing anything.

    Args:
        graph: A graph whose nodes are claimed.
        search: Where to count what was found.
        borders: Dependencies that no region may hold.
    """
    nodes = graph.nodes
    problem = problem_of(graph, nodes)
    number = {node: i for i, node in enumerate(nodes)}
    separate(problem, sorted((number[node], number[user]) for node, user in borders))
    groups = (search or RegionSearch()).minimum(problem)
    return [[nodes[i] for i in group] for group in sorted(sorted(group) for group in groups)]


def problem_of(graph: Graph, nodes: Sequence[Node]) -> Problem:
    """Return the dependency graph of ``nodes`` as integers; regions that are cut out already count as the host's."""
    number = {node: i for i, node in enumerate(nodes)}
    names = {name: i for i, name in enumerate(dict.fromkeys(n.target for n in nodes if n.target is not None), 1)}
    colors = [HOST if n.target is None or n.is_region else names[n.target] for n in nodes]
    successors = [{number[user] for user in graph.successors(node)} for node in nodes]
    links: list[set[int]] = [set() for _ in nodes]
    for vertex, users in enumerate(successors):
        for user in users:
            if colors[vertex] == colors[user] != HOST:
                links[vertex].add(user)
                links[user].add(vertex)
    return Problem(colors, successors, links, [[i] for i in range(len(nodes))])
