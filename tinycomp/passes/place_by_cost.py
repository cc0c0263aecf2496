"""PlaceByCost: give every node to the target, or the host, where the whole graph is estimated to be cheapest.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> from tinycomp.target import Cost, Link, Target
>>> fast = Target("fast", cost=Cost(lambda node: 1e-6, memory="fast", link=Link(latency=5e-6)))
>>> near = Target("near", cost=Cost(lambda node: 3e-6))
>>> for target in (fast, near):
...     target.accept("Relu", "Neg", "Tanh")
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[2]) -> (%z) {
...   %a: float32[2] = Relu(%x)
...   %y: float32[2] = Neg(%a)
...   %z: float32[2] = Tanh(%y)
... }''', infer=infer_node_types)
>>> PlaceByCost((fast, near)).run(graph)
True
>>> [node.target for node in graph.nodes]
['near', 'near', 'near']
>>> print(next(r for r in graph.remarks if r.rule == ESTIMATE).reason.partition(";")[0])
graph "main" is estimated at 9 us
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tinycomp.errors import TargetError
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import tensor
from tinycomp.passes.base import Pass
from tinycomp.passes.offer_to_target import offer, offer_in
from tinycomp.passes.search.placement import Cheapest, Flow, Option, PlacementProblem, RegionSeconds, cheapest
from tinycomp.records import dataclass, field, replace
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_structural
from tinycomp.target import HOST_COST, Cost, Policy, Region, Target, find_all

ESTIMATE = "estimate"
"""The rule in the remark with the estimated cost of a whole graph."""


@dataclass(frozen=True)
class PlaceByCost(Pass):
    """Choose between targets by their costs, and let each claim the nodes chosen for it.

    What a target could take is what it claims when it is offered the graph alone.
    :mod:`tinycomp.passes.search.placement` says how the choice is made. A remark on the graph tells what it is
    estimated to cost and what the alternatives would; a remark on each node what another target that could take it
    would change.

    Before and after, where the way to ``npu`` and back takes longer than it saves::

        %a = Relu(%x)   ->  %a = Relu(%x) target "c"
        %b = Conv(%a)   ->  %b = Conv(%a) target "c"

    Attributes:
        targets: Targets (or names), all with a cost.
        policy: Which nodes no target may have; every target has a policy of its own, too.
        host: What the host costs.
    """

    targets: Sequence[Target | str]
    policy: Policy = field(default_factory=Policy)
    host: Cost = HOST_COST

    def run(self, graph: Graph) -> bool:
        """Claim in ``graph`` and its open bodies; each is a problem of its own.

        Raises:
            TargetError: If a target is unknown or has no cost, or one of its rules or its cost fails.
        """
        targets = find_all(self.targets)
        costs = [self.host, *map(_cost_of, targets)]
        changed = False
        for scope in open_graphs(graph):
            if len(scope):
                changed |= _Placing(scope, targets, costs, self.policy, graph.remarks).run()
        return changed


def _cost_of(target: Target) -> Cost:
    if target.cost is None:
        raise TargetError("the target has no cost", where=f"target {target.name}", hint="Give it one: Target(cost=…).")
    return target.cost


class _Placing:
    """The choice in one scope."""

    def __init__(
        self, graph: Graph, targets: Sequence[Target], costs: Sequence[Cost], policy: Policy, remarks: list[Remark]
    ) -> None:
        self.graph = graph
        self.targets = targets
        self.names = ["host", *(t.name for t in targets)]
        self.costs = costs
        self.policy = policy
        self.remarks = remarks
        self.nodes = [node for node in graph.nodes if node.target is None and not node.is_region]

    def run(self) -> bool:
        if not self.nodes:
            return False
        problem = self._problem()
        starts = self._starts(problem)
        answer = cheapest(problem, starts.values())
        self._explain(problem, answer, starts)
        return self._claim([problem.options[number].target for number in answer.choice])

    def _problem(self) -> PlacementProblem:
        place = {node: i for i, node in enumerate(self.nodes)}
        options = [Option(0, (i,), _seconds(self.costs[0], node, "host")) for i, node in enumerate(self.nodes)]
        for number, target in enumerate(self.targets, 1):
            options += self._options(number, target)
        memories = list(dict.fromkeys(cost.memory for cost in self.costs))
        memory = [memories.index(cost.memory) for cost in self.costs]
        of_memory = [self.costs[memory.index(number)] for number in range(len(memories))]
        flows = []
        for value in [*self.graph.inputs, *(v for n in self.graph.nodes for v in n.used_outputs())]:
            users = tuple(sorted(place[user] for user in value.users if user in place))
            leaves = self.graph.is_output(value) or any(user not in place for user in value.users)
            if users or leaves:
                size = tensor(value.type).nbytes()
                seconds = tuple(tuple(a.transfer(b, size) for b in of_memory) for a in of_memory)
                producer = place.get(value.producer) if value.producer is not None else None
                flows.append(Flow(producer, users, leaves, seconds))
        launches = (0.0, *(cost.launch for cost in self.costs[1:]))
        wholes = (None, *(self._whole(target) for target in self.targets))
        return PlacementProblem(len(self.nodes), tuple(options), tuple(flows), launches, tuple(memory), wholes)

    def _whole(self, target: Target) -> RegionSeconds | None:
        """Return the function that estimates the regions of a target, if it has one."""
        cost = _cost_of(target)
        if cost.region is None:
            return None

        @functools.cache
        def seconds(group: tuple[int, ...]) -> float:
            region = Region.of(self.graph, [self.nodes[i] for i in group])
            return cost.of_region(replace(region, target=target.name), f"cost of {target.name}")

        return seconds

    def _options(self, number: int, target: Target) -> list[Option]:
        """Return the nodes that a target claims when it is alone, and those that its operator rules accept."""
        trial = self.graph.clone()
        twins = dict(zip(trial.nodes, self.graph.nodes, strict=True))
        place = {node: i for i, node in enumerate(self.nodes)}
        made_by = {v.name: twins[node] for node in trial.nodes for v in node.used_outputs()}
        trial.remarks = []
        offer(trial, target, self.policy)
        excluded = target.excluded(self.graph, self.policy)
        seconds: dict[tuple[int, ...], float] = {}
        for node in trial.nodes:
            if node.target == target.name:
                members = tuple(sorted({place[m] for m in self._members(node, twins, made_by) if m in place}))
                seconds[members] = seconds.get(members, 0.0) + _seconds(self.costs[number], node, target.name)
        found = [Option(number, members, each) for members, each in seconds.items() if members]
        alone = {option.members[0] for option in found if len(option.members) == 1}
        for i, node in enumerate(self.nodes):
            if i in alone or node in excluded:
                continue
            rules = target.rules_for(node)
            follows = target.claims_structural and is_structural(node)
            if follows or any(rule.refusal(node) is None for rule in rules):
                found.append(Option(number, (i,), _seconds(self.costs[number], node, target.name)))
        return found

    def _members(self, node: Node, twins: dict[Node, Node], made_by: dict[str, Node]) -> list[Node]:
        """Return the nodes that a claimed node of a trial stands for, copies left out."""
        if node in twins:
            return [twins[node]]
        parts = node.body.nodes if node.is_composite else [node]
        found = [made_by[v.name] for part in parts for v in part.used_outputs() if v.name in made_by]
        if found or node.is_composite:
            return found
        return [original for original in self.nodes if original.sources == node.sources][:1]  # part of a definition

    def _starts(self, problem: PlacementProblem) -> dict[str, list[int]]:
        """Return placements by what they do: all on the host, as much as can be on one target, priorities."""
        host = list(range(problem.count))
        starts = {"everything on the host": host}
        by_target: dict[int, list[int]] = {}
        for number, option in enumerate(problem.options):
            by_target.setdefault(option.target, []).append(number)
        for target in range(1, len(self.names)):
            starts[f"what {self.names[target]} takes on it"] = self._filled(problem, host, by_target.get(target, []))
        choice = [-1] * problem.count
        for target in range(1, len(self.names)):
            choice = self._filled(problem, choice, by_target.get(target, []))
        starts["by priority"] = [number if number >= 0 else i for i, number in enumerate(choice)]
        return starts

    def _filled(self, problem: PlacementProblem, choice: list[int], options: list[int]) -> list[int]:
        """Return a placement with the largest of some options in the place of what is on the host or open."""
        filled = list(choice)
        for number in sorted(options, key=lambda number: -len(problem.options[number].members)):
            members = problem.options[number].members
            if all(filled[i] in (-1, i) for i in members):
                for i in members:
                    filled[i] = number
        return filled

    def _claim(self, chosen: list[int]) -> bool:
        claimed = False
        for number, target in enumerate(self.targets, 1):
            withheld = {
                node: f"the whole is cheaper with it on {self.names[other]}"
                for node, other in zip(self.nodes, chosen, strict=True)
                if other != number
            }
            if len(withheld) < len(self.nodes):
                claimed |= offer_in(self.graph, target, self.policy, withheld, self.remarks)
        return claimed

    def _explain(self, problem: PlacementProblem, answer: Cheapest, starts: dict[str, list[int]]) -> None:
        compute, transfer = problem.compute_and_transfer(answer.choice)
        parts = [f"estimated at {_text(answer.cost)}", f"{_text(compute)} of it work, {_text(transfer)} transfers"]
        parts += [f"{name}: {_text(problem.cost(start))}" for name, start in starts.items()]
        parts.append("nothing is cheaper" if answer.exact else f"no less than {_text(sum(problem.shares))} is possible")
        reason = f'graph "{self.graph.name}" is {"; ".join(parts)}'
        self.remarks.append(Remark(PlaceByCost.name, (), "", ESTIMATE, reason))
        for i, number in enumerate(answer.choice):
            self._alternatives(problem, answer, i, number)

    def _alternatives(self, problem: PlacementProblem, answer: Cheapest, node: int, chosen: int) -> None:
        """Record for each target that could take a node how much that would change the cost."""
        here = problem.options[chosen]
        for number in problem.options_of[node]:
            option = problem.options[number]
            if option.target in (0, here.target) or option.members[0] != node:
                continue
            more = problem.difference(answer.choice, number)
            reason = (
                f"{_text(option.seconds)} here, {_text(here.seconds)} on {self.names[here.target]}; with transfers the"
                f" whole would take {_text(abs(more))} {'more' if more >= 0 else 'less, but for launches'}"
            )
            sources = tuple(source for i in option.members for source in self.nodes[i].sources)
            self.remarks.append(Remark(PlaceByCost.name, sources, self.names[option.target], "cost", reason))


def _seconds(cost: Cost, node: Node, where: str) -> float:
    return 0.0 if is_structural(node) else cost.of(node, f"cost of {where}")


def _text(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} us"
