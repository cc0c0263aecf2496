"""MergeRegions: group claimed nodes into as few regions as possible, without a cycle between regions.

Contracting all edges within one target gives the coarsest quotient graph. Its strongly connected components with a
single vertex are regions of every best grouping, and most models need no more. A larger component is a tangle, which
:mod:`tinycomp.passes.search.regions` solves.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING

from tinycomp.errors import TinycompError, did_you_mean
from tinycomp.ir.graph import Graph, Node, Value, reachable, tangles
from tinycomp.ir.types import TensorType, Type
from tinycomp.lazy import LazyModule
from tinycomp.ops.body_types import CONTROL_FLOW
from tinycomp.ops.elements import element_sources
from tinycomp.ops.rows import following_rows
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.base import Pass
from tinycomp.passes.offer_to_target import GivenBack
from tinycomp.passes.search.regions import HOST, Problem, RegionSearch
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_barrier, is_structural
from tinycomp.target import Policy, Target, find_all

if TYPE_CHECKING:
    import networkx as nx

    from tinycomp.analysis import data_dependent
    from tinycomp.target import Split
else:
    data_dependent = LazyModule("tinycomp.analysis.data_dependent")
    nx = LazyModule("networkx")

MINIMUM = "minimum"
"""The rule in the remark that the number of regions may not be minimal."""
BARRIERS = ("transparent", "binding", "identity")
REGION_CHECK = "region_check"
"""The rule, after the target's name, in remarks on regions that a target's own check refused or split."""
STATIC_SHAPES = "static_shapes"
"""The rule in remarks on nodes whose sizes depend on data, where their target needs to know every size."""
MOST = 100
"""Most borders explained per graph; more of them make a report no better, and each costs a walk over the graph."""
_MORE = f"only the first {MOST} borders between regions are explained"

Dependency = tuple[Node, Node]
"""A node, and one that reads its results."""


@dataclass(frozen=True)
class MergeRegions(Pass):
    """Number the nodes of every region: the fewest regions such that the graph of regions and host nodes is acyclic.

    The regions of all targets are found at the same time; host nodes stay single. Regions grow along data edges only
    and never cross the border of a body; composites are atoms. :mod:`tinycomp.passes.search.regions` explains how the
    minimum is found and where it becomes an approximation. A policy or a check of a target may refuse a region; its
    nodes are then offered to the targets that come later in the list, and the regions are found again. A check may also
    ask for a region to be split.

    Before and after (``Softmax`` is the host's; the join would depend on itself if all three were one region)::

        %a = Conv(%x, %w) target "npu"     ->  %a = Conv(%x, %w) target "npu" region 0
        %b = Softmax(%a)                   ->  %b = Softmax(%a)
        %c = Relu(%a) target "npu"         ->  %c = Relu(%a) target "npu" region 1
        %d = Add(%b, %c) target "npu"      ->  %d = Add(%b, %c) target "npu" region 1

    Attributes:
        barriers: Which nodes separate regions: none (``"transparent"``), StopFusion (``"binding"``), or every
            structural node (``"identity"``).
        policy: The conditions on every region.
        targets: Targets (or names) in priority order; their own policies and checks count as well.
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
        """Number the regions of ``graph`` and of its open bodies; numbers of an earlier run are dropped.

        Raises:
            TargetError: If a target is unknown, or one of its checks or rules fails.
        """
        return self.merge(graph, GivenBack(find_all(self.targets), self.policy))

    def merge(self, graph: Graph, given_back: GivenBack) -> bool:
        """Do as :meth:`run` does, given the nodes that targets have given back already."""
        before = {n: (n.target, n.region) for scope in open_graphs(graph) for n in scope.nodes}
        checks = _RegionChecks(given_back.targets)
        while True:
            remarks: list[Remark] = []
            found = [(scope, self._regions(scope, checks, given_back, remarks)) for scope in open_graphs(graph)]
            if not given_back.offer(graph):
                break
            graph.remarks += [r for r in remarks if _gives_back(r.rule)]
        graph.remarks += remarks
        numbers = itertools.count()
        for scope, regions in found:
            for node in scope.nodes:
                node.region = None
            for nodes, number in zip(regions, numbers, strict=False):
                for node in nodes:
                    node.region = number
        return before != {n: (n.target, n.region) for scope in open_graphs(graph) for n in scope.nodes}

    def _regions(
        self, graph: Graph, checks: _RegionChecks, given_back: GivenBack, remarks: list[Remark]
    ) -> list[list[Node]]:
        """Return the regions of one scope that policies and checks accept; the nodes of the others are given back."""
        targets = given_back.targets
        self._bind_barriers(graph, remarks)
        borders = dynamic_dimension_borders(graph, {t.name: t for t in targets})
        splits: dict[Dependency, str] = {}
        while True:
            search = RegionSearch()
            regions = find_regions(graph, search, borders | splits.keys())
            if _without_data_dependent(graph, regions, given_back, remarks):
                continue
            kept, refused = apply_policy(graph, regions, self.policy, targets)
            wanted = checks.splits(graph, kept)
            if not wanted:
                break
            splits |= wanted
        _admit_doubt(graph, search, remarks)
        explain_borders(graph, regions, remarks, borders, splits)
        rejected = [(region, _check_of(region), reason) for region in kept for reason in checks.refusals(graph, region)]
        for region, rule, reason in (*refused, *rejected):
            sources = tuple(dict.fromkeys(s for n in region for s in n.sources))
            remarks.append(Remark(self.name, sources, region[0].target or "", rule, reason))
            given_back.add(graph, region, region[0].target)
        gone = {id(region) for region, _, _ in rejected}
        return [region for region in kept if id(region) not in gone]

    def _bind_barriers(self, graph: Graph, remarks: list[Remark]) -> None:
        if self.barriers == "transparent":
            return
        for node in graph.nodes:
            if node.target is not None and (is_barrier(node) or (self.barriers == "identity" and is_structural(node))):
                reason = f"{node.op} cuts regions here"
                remarks.append(Remark(self.name, node.sources, node.target, f"barriers={self.barriers}", reason))
                node.target = None


def _without_data_dependent(
    graph: Graph, regions: Sequence[Sequence[Node]], given_back: GivenBack, remarks: list[Remark]
) -> bool:
    """Take nodes with data-dependent sizes from targets that need to know every size; tell whether there were any."""
    particular = {t.name: t for t in given_back.targets if t.static_shapes}
    found = False
    for region in regions if particular else ():
        target = particular.get(region[0].target or "")
        if target is None:
            continue
        bounded = following_rows(graph) if target.programs else ()
        for node, reason in data_dependent.data_dependent(graph, region, bounded):
            found = True
            why = f"{reason}, and {target.name} needs to know every size"
            remarks.append(Remark(MergeRegions.name, node.sources, target.name, f"{target.name}.{STATIC_SHAPES}", why))
            given_back.add(graph, [node], target.name)
    return found


def _admit_doubt(graph: Graph, search: RegionSearch, remarks: list[Remark]) -> None:
    """Add a remark about the whole graph if the search could not prove its answer minimal."""
    if not search.proven:
        most = f"{search.found} were found, and fewer than {search.bound} are impossible"
        reason = f'the number of regions of graph "{graph.name}" may not be minimal: {most}'
        remarks.append(Remark(MergeRegions.name, (), "", MINIMUM, reason))


def find_regions(
    graph: Graph, search: RegionSearch | None = None, borders: Set[Dependency] = frozenset()
) -> list[list[Node]]:
    """Return the regions of ``graph`` in the order of their first nodes, without changing anything.

    No region holds one of the dependencies in ``borders``; ``search`` counts what it does.
    """
    search = search or RegionSearch()
    place = {node: i for i, node in enumerate(graph.nodes)}
    links = _links(graph, borders)
    if borders:
        dependencies = _dependencies(graph, borders)
        certain, tangled = _certain_regions(dependencies, dependencies.edges, links)
    else:
        certain, tangled = _certain_regions(place, graph.edges, links)
    search.accept(len(certain))
    if tangled:
        vertices = sorted(tangled, key=lambda v: place[v] if isinstance(v, Node) else len(place) + v)
        groups = search.minimum(problem_of(vertices, _dependencies(graph, borders), links))
        certain += [[vertices[i] for i in group] for group in groups]
    regions = [sorted((v for v in region if isinstance(v, Node)), key=place.__getitem__) for region in certain]
    return sorted(regions, key=lambda region: place[region[0]])


Vertex = Node | int
"""A node, or the number of a border between two nodes."""


def dependencies_and_links(
    graph: Graph, borders: Set[Dependency] = frozenset()
) -> tuple[nx.DiGraph[Vertex], list[Dependency]]:
    """Return the dependencies as a digraph, and those that may lie in a region: they link nodes of one target."""
    return _dependencies(graph, borders), _links(graph, borders)


def _links(graph: Graph, borders: Set[Dependency]) -> list[Dependency]:
    target = {node: _color(node) for node in graph.nodes}
    return [
        (node, user) for node, user in graph.edges
        if target[node] == target[user] is not None and (node, user) not in borders
    ]  # fmt: skip


def _dependencies(graph: Graph, borders: Set[Dependency]) -> nx.DiGraph[Vertex]:
    """Return the dependencies as a digraph.

    A border becomes a vertex of its own between the two nodes. No region may hold it, so that a region with both nodes
    would depend on itself.
    """
    dependencies: nx.DiGraph[Vertex] = graph.connectivity  # type: ignore[assignment]  # a view with wider vertices
    if borders:
        dependencies = dependencies.copy()
        place = {node: i for i, node in enumerate(graph.nodes)}
        ordered = sorted(borders, key=lambda border: (place[border[0]], place[border[1]]))
        for number, (node, user) in enumerate(ordered):
            nx.add_path(dependencies, [node, number, user])
    return dependencies


def _certain_regions(
    vertices: Collection[Vertex], edges: Iterable[tuple[Vertex, Vertex]], links: Iterable[Dependency]
) -> tuple[list[list[Vertex]], list[Vertex]]:
    """Return the regions that every best grouping has, and the vertices of all tangles.

    A cycle of any finer grouping maps to a closed walk of the quotient by the components of links, so the strongly
    connected components of that quotient are independent problems.
    """
    groups = _linked(vertices, links)
    first = {vertex: group[0] for vertex, group in groups.items()}
    tangled_groups = set(itertools.chain.from_iterable(tangles(edges, first)))
    tangled = [vertex for vertex in vertices if first[vertex] in tangled_groups] if tangled_groups else []
    heads = (vertex for vertex in vertices if first[vertex] is vertex and vertex not in tangled_groups)
    return [groups[head] for head in heads if _color(head) is not None], tangled


def _linked(vertices: Iterable[Vertex], links: Iterable[Dependency]) -> dict[Vertex, list[Vertex]]:
    """Return, by vertex, all vertices that links join to it, including itself; smaller groups join the larger one.

    ``nx.utils.UnionFind`` takes six times as long, which counts in graphs of 100,000 nodes.
    """
    groups = {vertex: [vertex] for vertex in vertices}
    for node, user in links:
        larger, smaller = groups[node], groups[user]
        if larger is smaller:
            continue
        if len(larger) < len(smaller):
            larger, smaller = smaller, larger
        larger += smaller
        groups |= dict.fromkeys(smaller, larger)
    return groups


def _color(vertex: Vertex) -> str | None:
    """Return the target that may hold a vertex in a region; None for the host, borders, and regions already cut out."""
    return vertex.target if isinstance(vertex, Node) and not vertex.is_region else None


def problem_of(vertices: Sequence[Vertex], dependencies: nx.DiGraph[Vertex], links: Iterable[Dependency]) -> Problem:
    """Return the part of the dependency structure that ``vertices`` induce as the integers of the exact search."""
    number = {vertex: i for i, vertex in enumerate(vertices)}
    colors = [_color(vertex) for vertex in vertices]
    names = {name: i for i, name in enumerate(dict.fromkeys(filter(None, colors)), HOST + 1)}
    linked: list[set[int]] = [set() for _ in vertices]
    for node, user in links:
        if node in number and user in number:
            linked[number[node]].add(number[user])
            linked[number[user]].add(number[node])
    return Problem(
        [HOST if color is None else names[color] for color in colors],
        [{number[user] for user in dependencies.successors(vertex) if user in number} for vertex in vertices],
        linked,
        [[i] for i in range(len(vertices))],
    )


def explain_borders(
    graph: Graph,
    regions: Sequence[Sequence[Node]],
    remarks: list[Remark],
    unknown: Set[Dependency] = frozenset(),
    splits: Mapping[Dependency, str] = MappingProxyType({}),
) -> None:
    """Add a remark for every pair of regions of one target between which data flows directly.

    Args:
        graph: The graph.
        regions: Its regions.
        remarks: Where to add the remarks.
        unknown: Dependencies that no region may hold, because only a run shows the sizes of the results.
        splits: Dependencies that no region may hold, because a target asked for a split, with its reasons.
    """
    label = {node: i for i, region in enumerate(regions) for node in region}
    crossing = [
        (node, user) for node, user in graph.edges
        if node.target == user.target and node in label and user in label and label[node] != label[user]
    ]  # fmt: skip
    place = {node: i for i, node in enumerate(graph.nodes)} if crossing else {}
    crossing.sort(key=lambda edge: (place[edge[0]], place[edge[1]]))
    seen: set[tuple[int, int]] = set()
    for node, user in crossing:
        pair = label[node], label[user]
        if pair in seen:
            continue
        seen.add(pair)
        if len(seen) > MOST:
            remarks.append(Remark("merge-regions", (), node.target or "", "acyclic", _MORE))
            return
        sources = (*node.sources, *user.sources)
        parts = set(regions[pair[0]]), set(regions[pair[1]])
        rule, reason = (
            _unmeasured(unknown, *parts) or _asked(splits, *parts) or ("acyclic", _reason(graph, place, *parts))
        )
        remarks.append(Remark("merge-regions", sources, node.target or "", rule, reason))


def _unmeasured(unknown: Set[Dependency], first: set[Node], second: set[Node]) -> tuple[str, str] | None:
    """Return the rule and reason if the second region needs sizes that only a run of the first one shows."""
    waiting = sorted((node.label, user.label) for node, user in unknown if node in first and user in second)
    if not waiting:
        return None
    node, user = waiting[0]
    return "dynamic-dimension", f"the sizes of the results of {node} depend on data, and {user} needs to know them"


def _asked(splits: Mapping[Dependency, str], first: set[Node], second: set[Node]) -> tuple[str, str] | None:
    """Return the rule and reason if a target has asked for a border between the regions."""
    reasons = (reason for (node, user), reason in splits.items() if node in first and user in second)
    return next(((_check_of(first), reason) for reason in reasons), None)


def _check_of(region: Iterable[Node]) -> str:
    return f"{next(iter(region)).target}.{REGION_CHECK}"


def _gives_back(rule: str) -> bool:
    return rule.startswith("policy.") or rule.endswith((REGION_CHECK, STATIC_SHAPES))


def _reason(graph: Graph, place: dict[Node, int], first: set[Node], second: set[Node]) -> str:
    between = _between(graph, place, first, second)
    if between is None:
        return "joining the two regions was not tried: the graph is too large to try everything"
    return f"joining {_name(first, place)} and {_name(second, place)} would close a cycle through {between.label}"


def _name(region: set[Node], place: dict[Node, int]) -> str:
    return f"the region of {min(region, key=place.__getitem__).label}"


def _between(graph: Graph, place: dict[Node, int], first: set[Node], second: set[Node]) -> Node | None:
    """Return a node outside both sets on a path from ``first`` to ``second``, preferably one of the host."""
    last = max(place[n] for n in second)
    links = graph.connectivity
    onward = nx.subgraph_view(links, filter_node=lambda n: place[n] <= last and n not in first and n not in second)
    ahead = reachable(onward, (user for node in first for user in links.successors(node)))
    backward = nx.subgraph_view(links.reverse(copy=False), filter_node=ahead.__contains__)
    path = reachable(backward, (node for user in second for node in links.predecessors(user)))
    return min(path, key=lambda n: (n.target is not None, place[n]), default=None)


Refused = tuple[list[Node], str, str]
"""A region, the rule that refuses it, and the reason."""


def apply_policy(
    graph: Graph, regions: Sequence[list[Node]], policy: Policy, targets: Sequence[Target]
) -> tuple[list[list[Node]], list[Refused]]:
    """Return the regions that ``policy`` and the policies of ``targets`` accept, and those that they refuse.

    Limits on the number of regions apply per target.
    """
    own = {t.name: t.policy for t in targets}
    kept: list[list[Node]] = []
    refused: list[Refused] = []
    for region in regions:
        refusal = next(filter(None, (p.refusal(graph, region) for p in _policies(region, policy, own))), None)
        if refusal is None:
            kept.append(region)
        else:
            refused.append((region, f"policy.{refusal[0]}", refusal[1]))
    by_target: dict[str | None, list[list[Node]]] = {}
    for region in kept:
        by_target.setdefault(region[0].target, []).append(region)
    surplus = {
        id(peers[index])
        for peers in by_target.values()
        for limit in _policies(peers[0], policy, own)
        for index in limit.surplus(peers)
    }
    why = "other regions have more work, and their number is limited"
    refused += [(region, "policy.max_regions", why) for region in kept if id(region) in surplus]
    return [region for region in kept if id(region) not in surplus], refused


def _policies(region: list[Node], policy: Policy, own: dict[str, Policy]) -> list[Policy]:
    name = region[0].target
    return [policy, own[name]] if name in own else [policy]


class _RegionChecks:
    """The checks of all targets, each asked once about a region."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = {t.name: t for t in targets if t.checks_regions}
        self._answers: dict[frozenset[Node], str | Split | None] = {}

    def _answer(self, graph: Graph, nodes: Sequence[Node]) -> str | Split | None:
        target = self._targets.get(nodes[0].target or "")
        if target is None:
            return None
        from tinycomp.target.region import Region  # imported here: few targets have checks

        key = frozenset(nodes)
        if key not in self._answers:
            self._answers[key] = target.judge(Region.of(graph, nodes))
        return self._answers[key]

    def refusals(self, graph: Graph, nodes: Sequence[Node]) -> list[str]:
        """Return the reason of the check that refuses a region, if one does."""
        answer = self._answer(graph, nodes)
        return [answer] if isinstance(answer, str) else []

    def splits(self, graph: Graph, regions: Sequence[Sequence[Node]]) -> dict[Dependency, str]:
        """Return the dependencies at which regions are to be split, with the reasons."""
        wanted: dict[Dependency, str] = {}
        for nodes in regions:
            answer = self._answer(graph, nodes)
            if answer is not None and not isinstance(answer, str):
                inside = set(nodes)
                ends = [(_producer(value), user) for value in answer.values for user in value.users if user in inside]
                wanted |= dict.fromkeys(ends, answer.reason)
        return wanted


def dynamic_dimension_borders(graph: Graph, targets: Mapping[str, Target]) -> set[Dependency]:
    """Return the dependencies that must be borders between regions of targets that generate programs.

    A program knows the sizes of all that it computes, but for results of control flow: their sizes are known when it
    has ended. Elements that sizes follow from are read when it begins.

    Args:
        graph: A graph whose nodes are claimed.
        targets: The targets by name; of others nothing is known, so nothing may follow there.
    """
    borders: set[Dependency] = set()
    for node in graph.nodes:
        target = targets.get(node.target or "")
        free = node.target is None or (target is not None and not target.programs)
        if not free and node.bodies and node.op in CONTROL_FLOW and not node.domain:
            unknown = [v for v, t in zip(node.outputs, infer_node_types(node), strict=False) if _is_unknown(t)]
            borders |= {(node, user) for v in unknown for user in v.users if user.target == node.target}
    by_programs = {name for name, target in targets.items() if target.programs}
    for value in element_sources([node for node in graph.nodes if node.target in by_programs]):
        producer = value.producer
        if producer is not None and producer.target in by_programs:
            borders |= {(producer, user) for user in value.users if user.target == producer.target}
    return borders


def _is_unknown(type_: Type) -> bool:
    return not isinstance(type_, TensorType) or type_.shape is None or None in type_.shape


def _producer(value: Value) -> Node:
    assert value.producer is not None, value
    return value.producer
