"""Search for the cheapest placement: which target runs which node, with transfers and launches.

A node has *options*: an option is a target with the nodes that it computes as one atom, and its seconds. A placement
chooses options that hold every node once. It costs the seconds of the options, for every value and every memory other
than that of its producer in which it is read one transfer, and for every region a launch; regions are counted by
:mod:`tinycomp.passes.search.regions`, which knows that they must not wait for each other.

* Problems of up to :data:`EXACT` nodes are searched exactly: nodes are decided in their order, and a branch ends where
  what it costs already, with the cheapest option for every node to come, is no less than the best placement known.
* Others go through a sweep over the nodes that keeps the cheapest beginnings: two beginnings with the same options at
  the nodes whose values are still to be read differ in nothing that follows, so only the cheaper one is kept. On a
  chain of nodes that is exact. Elsewhere the :data:`BEAM` cheapest are kept, and a launch is counted where no operand
  comes from the same target, which is too often only where regions meet.

The answer is never worse than any of the placements that the caller starts from.

Where a target says what whole regions take, their seconds take the place of those of its options. The sweep cannot know
that, so its answer and the caller's are improved by single options, and by other targets for whole regions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import itemgetter

from tinycomp.lazy import cached_property
from tinycomp.passes.search.regions import HOST, Problem, RegionSearch
from tinycomp.records import dataclass

EXACT = 12
"""Most nodes of a problem that is searched exactly."""
STEPS = 50_000
"""Branchings after which the exact search gives up."""
BEAM = 64
"""Partial placements that the sweep keeps."""
IMPROVEMENTS = 50_000
"""Most nodes, over all placements tried, in the attempt to improve one."""

RegionSeconds = Callable[[tuple[int, ...]], float]
"""Says how long a region of these nodes takes, its launch left out."""


@dataclass(frozen=True)
class Option:
    """One way to compute some nodes.

    Attributes:
        target: The target; 0 is the host.
        members: The nodes that are computed as one.
        seconds: How long that takes.
    """

    target: int
    members: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class Flow:
    """One value.

    Attributes:
        producer: The node that makes it; None for what is in the host's memory from the start.
        users: The nodes that read it.
        leaves: Whether it must be in the host's memory in the end.
        seconds: By the memory where it is made and the memory where it is read, how long a transfer takes.
    """

    producer: int | None
    users: tuple[int, ...]
    leaves: bool
    seconds: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Nodes in their order, with their options, and what flows between them.

    Attributes:
        count: Number of nodes.
        options: Every option; each node has one that holds it alone.
        flows: Every value.
        launches: By target, the seconds that starting a region takes; 0 for the host.
        memories: By target, the number of its memory; 0 is the host's, and that of target 0.
        wholes: By target, what says how long its regions take; None, or nothing, where its options add up.
    """

    count: int
    options: tuple[Option, ...]
    flows: tuple[Flow, ...]
    launches: tuple[float, ...]
    memories: tuple[int, ...]
    wholes: tuple[RegionSeconds | None, ...] = ()

    @cached_property
    def options_of(self) -> list[list[int]]:
        """The options of each node, cheapest share first."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        order = sorted(range(len(self.options)), key=lambda i: self.options[i].seconds / len(self.options[i].members))
        for number in order:
            for node in self.options[number].members:
                found[node].append(number)
        return found

    @cached_property
    def read_by(self) -> list[list[int]]:
        """The flows that each node reads."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        for number, flow in enumerate(self.flows):
            for user in flow.users:
                found[user].append(number)
        return found

    @cached_property
    def made_by(self) -> list[list[Flow]]:
        """The flows that each node makes."""
        found: list[list[Flow]] = [[] for _ in range(self.count)]
        for flow in self.flows:
            if flow.producer is not None:
                found[flow.producer].append(flow)
        return found

    @cached_property
    def shares(self) -> list[float]:
        """A lower bound of the seconds of each node, wherever it runs: a share of its cheapest option."""
        return [min(self.least(i) / len(self.options[i].members) for i in found) for found in self.options_of]

    @cached_property
    def counts_regions(self) -> bool:
        """Whether the cost of a placement depends on its regions."""
        return any(self.launches) or self.judges_regions

    @cached_property
    def judges_regions(self) -> bool:
        """Whether a target estimates whole regions."""
        return any(whole is not None for whole in self.wholes)

    def whole(self, target: int) -> RegionSeconds | None:
        """Return the function that estimates the regions of a target."""
        return self.wholes[target] if self.wholes else None

    def least(self, number: int) -> float:
        """Return the seconds that an option adds at least: none that is known where whole regions are judged."""
        option = self.options[number]
        return option.seconds if self.whole(option.target) is None else 0.0

    def memory(self, option: int) -> int:
        """Return the memory in which an option computes."""
        return self.memories[self.options[option].target]

    def compute_and_transfer(self, choice: Sequence[int]) -> tuple[float, float]:
        """Return the seconds of all options of a placement, or of its regions, and of all transfers."""
        regions = self.regions(choice) if self.judges_regions else []
        return self._compute(choice, regions), sum(self._transfer(flow, choice) for flow in self.flows)

    def _compute(self, choice: Sequence[int], regions: Iterable[Sequence[int]]) -> float:
        seconds = sum(self.least(number) for number in dict.fromkeys(choice))
        for group in regions:
            whole = self.whole(self.options[choice[group[0]]].target)
            seconds += 0.0 if whole is None else whole(tuple(sorted(group)))
        return seconds

    def _transfer(self, flow: Flow, choice: Sequence[int]) -> float:
        source = self.memory(choice[flow.producer]) if flow.producer is not None else 0
        readers = {self.memory(choice[user]) for user in flow.users} | ({0} if flow.leaves else set())
        return sum(flow.seconds[source][memory] for memory in readers - {source})

    def difference(self, choice: Sequence[int], number: int) -> float:
        """Return how much longer computing and moving would take with one option taken, see :meth:`taking`.

        Launches are left out where regions are not judged as wholes.
        """
        after = self.taking(choice, number)
        if self.judges_regions:
            return self.cost(after) - self.cost(choice)
        moved = [i for i, (old, new) in enumerate(zip(choice, after, strict=True)) if old != new]
        made = [flow for i in moved for flow in self.made_by[i]]
        flows = dict.fromkeys([*made, *(self.flows[other] for i in moved for other in self.read_by[i])])
        seconds = sum(self.options[other].seconds for other in {after[i] for i in moved})
        seconds -= sum(self.options[other].seconds for other in {choice[i] for i in moved})
        return seconds + sum(self._transfer(flow, after) - self._transfer(flow, choice) for flow in flows)

    def taking(self, choice: Sequence[int], number: int) -> list[int]:
        """Return a placement with one option taken.

        What the option breaks up goes to the host, whose options come first, one for each node in their order.
        """
        members = set(self.options[number].members)
        broken = {choice[i] for i in members}
        moved = {i: i for other in broken for i in self.options[other].members} | dict.fromkeys(members, number)
        return [moved.get(i, other) for i, other in enumerate(choice)]

    def launch(self, choice: Sequence[int]) -> float:
        """Return the seconds of starting the regions of a placement, as few as there can be."""
        return self._launch(choice, self.regions(choice) if any(self.launches) else [])

    def _launch(self, choice: Sequence[int], regions: Iterable[Sequence[int]]) -> float:
        return sum(self.launches[self.options[choice[group[0]]].target] for group in regions)

    def regions(self, choice: Sequence[int]) -> list[list[int]]:
        """Return the nodes of the fewest regions of a placement."""
        targets = [self.options[number].target for number in choice]
        first: dict[int, int] = {}
        atom = [first.setdefault(number, node) for node, number in enumerate(choice)]
        vertices = list(first.values())
        number = {vertex: i for i, vertex in enumerate(vertices)}
        members: list[list[int]] = [[] for _ in vertices]
        for node in range(self.count):
            members[number[atom[node]]].append(node)
        successors: list[set[int]] = [set() for _ in vertices]
        links: list[set[int]] = [set() for _ in vertices]
        for flow in self.flows:
            if flow.producer is None:
                continue
            source = number[atom[flow.producer]]
            for user in flow.users:
                sink = number[atom[user]]
                if sink != source:
                    successors[source].add(sink)
                    if targets[flow.producer] == targets[user] != HOST:
                        links[source].add(sink)
                        links[sink].add(source)
        return RegionSearch().minimum(Problem([targets[v] for v in vertices], successors, links, members))

    def cost(self, choice: Sequence[int]) -> float:
        """Return the total cost of a placement."""
        return self._cost(choice, self.regions(choice) if self.counts_regions else [])

    def rough_cost(self, choice: Sequence[int]) -> float:
        """Return the cost that a placement would have if regions could wait for each other.

        It takes no search. With launches alone it is no more than :meth:`cost`; on graphs without detours it is that.
        """
        return self._cost(choice, self.linked(choice))

    def _cost(self, choice: Sequence[int], regions: Sequence[Sequence[int]]) -> float:
        transfer = sum(self._transfer(flow, choice) for flow in self.flows)
        return self._compute(choice, regions) + transfer + self._launch(choice, regions)

    def linked(self, choice: Sequence[int]) -> list[list[int]]:
        """Return the nodes of targets in groups of one target that values hold together."""
        targets = [self.options[number].target for number in choice]
        groups = [[node] for node in range(self.count)]
        first: dict[int, int] = {}
        pairs = [(first.setdefault(number, node), node) for node, number in enumerate(choice)]
        pairs += [(flow.producer, user) for flow in self.flows if flow.producer is not None for user in flow.users]
        for one, other in pairs:
            larger, smaller = groups[one], groups[other]
            if targets[one] == targets[other] and larger is not smaller:
                if len(larger) < len(smaller):
                    larger, smaller = smaller, larger
                larger += smaller
                for node in smaller:
                    groups[node] = larger
        return [group for node, group in enumerate(groups) if group[0] == node and targets[node] != HOST]


@dataclass(frozen=True)
class Cheapest:
    """The answer of the search.

    Attributes:
        choice: The option of each node.
        cost: What it costs.
        exact: Whether nothing is cheaper.
    """

    choice: tuple[int, ...]
    cost: float
    exact: bool


def cheapest(problem: PlacementProblem, starts: Iterable[Sequence[int]] = ()) -> Cheapest:
    """Return the cheapest placement that the search finds, never dearer than one of ``starts``."""
    best: tuple[int, ...] = ()
    limit = math.inf
    swept, whole = _sweep(problem)
    for start in (*starts, swept):
        cost = problem.cost(start)
        if cost < limit:
            best, limit = tuple(start), cost
    if problem.judges_regions:
        best, limit = _improved(problem, best, limit)
    if problem.count > EXACT:
        return Cheapest(best, limit, whole and _is_chain(problem) and not problem.judges_regions)
    search = _Exact(problem, best, limit)
    search.run()
    return Cheapest(search.best, search.limit, search.steps > 0)


def _improved(problem: PlacementProblem, best: tuple[int, ...], limit: float) -> tuple[tuple[int, ...], float]:
    """Return a placement that no single option makes cheaper, as far as there is time to look."""
    left = IMPROVEMENTS // problem.count
    choice: Sequence[int] = best
    cost, found = problem.rough_cost(best), True
    while found and left > 0:
        found = False
        for after in _neighbours(problem, choice):
            left -= 1
            changed = problem.rough_cost(after)
            if changed < cost:
                choice, cost, found = after, changed, True
            if found or left <= 0:
                break
    cost = problem.cost(choice)
    return (tuple(choice), cost) if cost < limit else (best, limit)


def _neighbours(problem: PlacementProblem, choice: Sequence[int]) -> Iterator[list[int]]:
    """Yield placements with a region elsewhere, then those with another option."""
    options = problem.options
    by_size = sorted(
        range(len(options)), key=lambda number: (-len(options[number].members), not options[number].target)
    )
    for group in problem.linked(choice):
        here = problem.options[choice[group[0]]].target
        for target in set(range(len(problem.launches))) - {here}:
            after, free = list(choice), set(group)
            for number in by_size:
                option = problem.options[number]
                if option.target in (target, 0) and free.issuperset(option.members):
                    free -= set(option.members)
                    for member in option.members:
                        after[member] = number
            yield after
    for number in range(len(problem.options)):
        if number not in choice:
            yield problem.taking(choice, number)


def _is_chain(problem: PlacementProblem) -> bool:
    """Tell whether every value is read by the node behind its producer only."""
    return all(
        flow.users in ((), (flow.producer + 1,)) if flow.producer is not None else len(flow.users) <= 1
        for flow in problem.flows
    )


class _Exact:
    """Branch and bound over the options of the nodes in their order."""

    def __init__(self, problem: PlacementProblem, best: tuple[int, ...], limit: float) -> None:
        self.problem = problem
        self.best = best
        self.limit = limit
        self.steps = STEPS // 10 if problem.judges_regions else STEPS  # bounds are weaker, and a judgement takes longer
        self.to_come = [0.0] * (problem.count + 1)
        for node in reversed(range(problem.count)):
            self.to_come[node] = self.to_come[node + 1] + problem.shares[node]

    def run(self) -> None:
        problem = self.problem
        stack: list[tuple[list[int], float]] = [([-1] * problem.count, 0.0)]
        while stack and self.steps > 0:
            self.steps -= 1
            choice, spent = stack.pop()
            if spent >= self.limit:
                continue
            node = next((i for i, number in enumerate(choice) if number < 0), problem.count)
            if node == problem.count:
                self._judge(choice)
                continue
            for number in reversed(problem.options_of[node]):
                members = problem.options[number].members
                if all(choice[member] < 0 for member in members):
                    following = choice.copy()
                    for member in members:
                        following[member] = number
                    bound = self._bound(following)
                    if bound < self.limit:
                        stack.append((following, bound))

    def _bound(self, choice: list[int]) -> float:
        """Return a lower bound of the cost of all placements with these options."""
        problem = self.problem
        decided = sum(problem.least(number) for number in dict.fromkeys(choice) if number >= 0)
        open_ = sum(share for share, number in zip(problem.shares, choice, strict=True) if number < 0)
        transfer = 0.0
        for flow in problem.flows:
            if flow.producer is not None and choice[flow.producer] < 0:
                continue
            source = problem.memory(choice[flow.producer]) if flow.producer is not None else 0
            readers = {problem.memory(choice[user]) for user in flow.users if choice[user] >= 0}
            readers |= {0} if flow.leaves else set()
            transfer += sum(flow.seconds[source][memory] for memory in readers - {source})
        launched = {problem.options[number].target for number in choice if number >= 0}
        return (decided + open_ + transfer + sum(problem.launches[target] for target in launched)) * (1 - 1e-12)

    def _judge(self, choice: list[int]) -> None:
        cost = self.problem.cost(choice)
        if cost < self.limit:
            self.best, self.limit = tuple(choice), cost


def _sweep(problem: PlacementProblem) -> tuple[tuple[int, ...], bool]:
    """Return a placement found by one sweep over the nodes, and whether no partial placement had to be dropped."""
    alive: list[int] = []
    last = [0] * problem.count
    for flow in problem.flows:
        if flow.producer is not None:
            last[flow.producer] = max((last[flow.producer], *flow.users))
    beginnings = [(0.0, [-1] * problem.count)]
    whole, reach = True, 0
    for node in range(problem.count):
        reach = max(reach, *(max(problem.options[number].members) for number in problem.options_of[node]))
        alive = [i for i in alive if last[i] > node] + ([node] if last[node] > node else [])
        read_later = itemgetter(*alive) if alive else bool
        following: dict[Hashable, tuple[float, list[int]]] = {}
        for spent, choice in beginnings:
            for number in [choice[node]] if choice[node] >= 0 else problem.options_of[node]:
                extended = _extended(problem, choice, node, number)
                if extended is None:
                    continue
                cost = spent + _added(problem, choice, extended, node)
                key = read_later(extended), tuple(extended[node + 1 : reach + 1])
                if key not in following or cost < following[key][0]:
                    following[key] = (cost, extended)
        whole &= len(following) <= BEAM
        beginnings = sorted(following.values(), key=itemgetter(0))[:BEAM]
    return tuple(beginnings[0][1]), whole


def _extended(problem: PlacementProblem, choice: list[int], node: int, number: int) -> list[int] | None:
    """Return the options with one more for all of its nodes; None if one of these has another."""
    members = problem.options[number].members
    if choice[node] == number:
        return choice
    if any(choice[member] >= 0 for member in members):
        return None
    extended = choice.copy()
    for member in members:
        extended[member] = number
    return extended


def _added(problem: PlacementProblem, before: list[int], choice: list[int], node: int) -> float:
    """Return the cost that deciding about one node adds: its option, transfers of operands, a launch."""
    option = problem.options[choice[node]]
    target, memory = option.target, problem.memories[option.target]
    added = 0.0 if before[node] >= 0 else option.seconds
    joins = before[node] >= 0
    for number in problem.read_by[node]:
        flow = problem.flows[number]
        source = problem.memory(choice[flow.producer]) if flow.producer is not None else 0
        joins |= flow.producer is not None and problem.options[choice[flow.producer]].target == target
        earlier = {source, *(problem.memory(choice[user]) for user in flow.users if user < node)}
        if memory not in earlier | ({0} if flow.leaves else set()):
            added += flow.seconds[source][memory]
    added += sum(flow.seconds[memory][0] for flow in problem.made_by[node] if flow.leaves and memory)
    return added + (0.0 if joins else problem.launches[target])
