"""Random graphs through the partitioning passes, against brute force and host execution.

Run as ``python -m benchmarks partition-fuzz --count 20000``. Each graph has up to 12 nodes, one to three targets, and
any of: nodes with several results, diamonds, branches that capture values, barriers, constants, values that are read
twice, dead nodes. Checked are, for the graph and each of its branches: the contraction of all regions has no cycle,
regions hang together and have one target, their number is the least possible, and the results are those of the host,
bit by bit.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from tinycomp.driver.lowering import Lowering
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.ir import Graph, Node, TensorType, Value
from tinycomp.ir.types import tensor
from tinycomp.ir.verify import verify
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.passes.merge_regions import BARRIERS, MergeRegions
from tinycomp.passes.partition_graph import PartitionGraph
from tinycomp.passes.place_by_cost import PlaceByCost
from tinycomp.rewrite import P, Pattern, ValuePattern, open_graphs
from tinycomp.runtime.native.executor import Pool
from tinycomp.target import Cost, Link, Target

MOST_NODES = 12
MOST_PLACED = 10
"""Most nodes of a graph of which every placement is tried."""
UNARY = ("Relu", "Neg", "Tanh", "Identity", "Dropout")
BINARY = ("Add", "Mul", "Sub", "Max")
CHAINED = ("Tanh", "Sigmoid", "Erf")
"""Operators too dear to be copied for a second composite."""
OPS = (*UNARY, *BINARY, "Split", "If")
WIDE = TensorType("float32", (2, 4))


class MismatchError(AssertionError):
    """What a random graph has shown to be wrong; the text holds the seed and the graph."""


# Graphs ---------------------------------------------------------------------------------------------------------------


def random_graph(rng: random.Random, unary: Sequence[str] = UNARY, most: int = MOST_NODES) -> Graph:
    """Return a graph of up to ``most`` nodes, those in branches not counted."""
    graph = Graph(opsets={"": 17}, infer=infer_node_types)
    pool = [graph.add_input(f"x{i}", WIDE) for i in range(rng.randint(1, 2))]
    condition = graph.add_input("condition", TensorType("bool", ()))
    if rng.random() < 0.5:
        pool.append(graph.add_const(np.full((2, 4), 0.5, np.float32), "c"))
    _fill(rng, graph, pool, rng.randint(1, most), condition, unary)
    produced = [v for v in pool if v.producer is not None]
    results = rng.choices(produced, k=rng.randint(1, 3))
    graph.set_outputs(results, [f"out{i}" for i in range(len(results))])
    return graph


def _fill(
    rng: random.Random,
    graph: Graph,
    pool: list[Value],
    count: int,
    condition: Value | None,
    unary: Sequence[str] = UNARY,
) -> None:
    """Add ``count`` nodes that read near values rather than far ones, so that chains and diamonds arise."""
    reach = rng.choice([2, 4, 100])
    for number in range(count):
        near = pool[-reach:]
        kind = rng.random()
        halves = [v for v in near if v.type == WIDE]
        if kind < 0.08 and halves:
            added = graph.add("Split", [rng.choice(halves)], {"axis": 0}, outputs=2)
        elif kind < 0.15 and condition is not None:
            added = _conditional(rng, graph, near, condition)
        elif kind < 0.25:
            added = graph.add("StopFusion", [rng.choice(near)], domain="tinycomp")
        elif kind < 0.55:
            added = graph.add(rng.choice(unary), [rng.choice(near)])
        else:
            added = graph.add(rng.choice(BINARY), rng.choices(near, k=2))
        added.sources = (f"n{number}",)
        pool += added.outputs


def _conditional(rng: random.Random, graph: Graph, near: list[Value], condition: Value) -> Node:
    captured = list(dict.fromkeys(rng.choices(near, k=rng.randint(1, 2))))
    bodies = {}
    for key in ("then_branch", "else_branch"):
        body = Graph(key, opsets=graph.opsets, infer=graph.infer)
        inner = [body.add_input(f"i{i}", v.type) for i, v in enumerate(captured)]
        _fill(rng, body, inner, rng.randint(1, 5), None)
        body.set_outputs([_widened(body, inner[-1])])
        bodies[key] = body
    return graph.add("If", [condition, *captured], bodies=bodies, captures=len(captured))


def _widened(body: Graph, value: Value) -> Value:
    """Both branches must have results of one shape."""
    zero = body.add_const(np.zeros((2, 4), np.float32), "zero")
    return body.add("Add", [value, zero], sources=["widen"]).output


def random_targets(rng: random.Random, ops: Sequence[str] = OPS) -> list[Target]:
    """Return one to three targets that accept some of the operators each."""
    targets = []
    for name in ("p", "q", "r")[: rng.randint(1, 3)]:
        target = Target(name, claims_structural=rng.random() < 0.8, bind_constants=rng.random() < 0.5)
        target.accept(*rng.sample(ops, rng.randint(1, len(ops) - 1)))
        targets.append(target)
    return targets


# The oracle -----------------------------------------------------------------------------------------------------------


def least_regions(nodes: list[Node]) -> int:
    """Return the least number of regions for nodes that are annotated, by brute force."""
    return fewest(_needs(nodes), [n.target for n in nodes])


def fewest(needs: list[int], targets: Sequence[Hashable]) -> int:
    """Return the least number of regions, by trying every order in which regions could run.

    A grouping has no cycle if and only if its groups can run one after the other. What has run is a set of nodes; host
    nodes run as soon as they can and cost nothing, a region is a connected set of nodes of one target whose operands
    are there, and costs one. So the answer is a shortest path from the empty set to the full one.

    Args:
        needs: Per node, a bit set of the nodes whose results it reads.
        targets: Per node, its target; None is the host.
    """
    groups = _connected_sets(needs, targets)
    hosts = [(1 << i, needs[i]) for i, target in enumerate(targets) if target is None]
    full = (1 << len(needs)) - 1
    reached = {_run_hosts(0, hosts)}
    seen = set(reached)
    cost = 0
    while full not in reached:
        cost += 1
        following = {
            _run_hosts(done | group, hosts)
            for done in reached
            for group, outside in groups
            if not group & done and not outside & ~done
        }
        reached = following - seen
        seen |= reached
    return cost


def _needs(nodes: list[Node]) -> list[int]:
    number = {node: i for i, node in enumerate(nodes)}
    producers = ({v.producer for v in n.inputs if v is not None and v.producer is not None} for n in nodes)
    return [sum(1 << number[p] for p in found) for found in producers]


def _run_hosts(done: int, hosts: list[tuple[int, int]]) -> int:
    before = -1
    while before != done:
        before = done
        for bit, needed in hosts:
            if not needed & ~done:
                done |= bit
    return done


def _connected_sets(needs: list[int], targets: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return every set of nodes of one target that data flow connects, with what it needs from outside."""
    near = [0] * len(needs)
    for user, needed in enumerate(needs):
        for producer in range(len(needs)):
            if needed >> producer & 1 and targets[user] == targets[producer] is not None:
                near[user] |= 1 << producer
                near[producer] |= 1 << user
    found: dict[int, int] = {1 << i: needs[i] for i, target in enumerate(targets) if target is not None}
    waiting = list(found)
    for group in waiting:
        around = 0
        for i in range(len(needs)):
            if group >> i & 1:
                around |= near[i]
        for i in range(len(needs)):
            larger = group | 1 << i
            if around >> i & 1 and larger not in found:
                found[larger] = (found[group] | needs[i]) & ~larger
                waiting.append(larger)
    return list(found.items())


# One graph ------------------------------------------------------------------------------------------------------------


def check(seed: int) -> Counter[str]:
    """Partition one random graph and check all that the passes promise.

    Returns:
        What the graph held, for statistics.

    Raises:
        MismatchError: If something is wrong.
    """
    rng = random.Random(seed)
    graph, targets, barriers = random_graph(rng), random_targets(rng), rng.choice(BARRIERS)
    text, original = str(graph), graph.clone()
    facts: Counter[str] = Counter(graphs=1, nodes=len(graph))
    try:
        verify(graph)
        AnnotateTarget(targets).run(graph)
        MergeRegions(barriers=barriers).run(graph)
        for scope in open_graphs(graph):
            facts += _check_regions(scope)
        PartitionGraph(targets).run(graph)
        verify(graph)
        _check_results(original, graph, seed)
    except Exception as error:
        raise MismatchError(f"seed {seed}, barriers {barriers}: {error}\n{text}") from error
    return facts


def check_priorities(seed: int) -> None:
    """Offer one random graph to one to three targets with composites and rules, and compare with a plain reading.

    Each composite is a chain of two or three operators; of its parts only the last may be read outside.

    Raises:
        MismatchError: If a node is not where the plain reading has it, or there are more regions than necessary.
    """
    rng = random.Random(seed)
    graph, targets = random_graph(rng, CHAINED), random_targets(rng, (*CHAINED, *BINARY, "Split", "If"))
    chains = {t.name: [tuple(rng.choices(CHAINED, k=rng.randint(2, 3))) for _ in range(2)] for t in targets}
    for target in targets:
        for number, chain in enumerate(chains[target.name]):
            target.composite(_chain(chain), name=f"chain{number}")
        target.claims_structural = False
    EliminateDeadCode().run(graph)
    text, wanted = str(graph), _claimed_plainly(graph, targets, chains)
    try:
        *claiming, merging = partitioning_passes(targets)[:-1]
        for step in claiming:
            if not isinstance(step, (FoldConstants, EliminateDeadCode)):
                step.run(graph)
        found = {name: n.target for n in graph.nodes for inner in _parts(n) for name in inner.sources}
        assert found == wanted, f"{found} instead of {wanted}"
        merging.run(graph)
        for scope in open_graphs(graph):
            _check_regions(scope)
    except Exception as error:
        raise MismatchError(f"seed {seed}, chains {chains}: {error}\n{text}") from error


def _parts(node: Node) -> list[Node]:
    return node.body.nodes if node.is_composite else [node]


def _chain(ops: tuple[str, ...]) -> Pattern:
    value: ValuePattern = P.any
    for op in ops:
        value = P.op(op, value)
    return Pattern("chain", [value], through=False)


def _claimed_plainly(
    graph: Graph, targets: list[Target], chains: Mapping[str, list[tuple[str, ...]]]
) -> dict[str, str | None]:
    """Return the target of every node by source name: each target's composites in order, then its rules."""
    claimed: dict[Node, str] = {}
    for target in targets:
        for chain in chains[target.name]:
            for root in reversed(graph.nodes):
                members = _chained(graph, root, chain)
                if members and claimed.keys().isdisjoint(members):
                    claimed |= dict.fromkeys(members, target.name)
        for node in graph.nodes:
            if node not in claimed and target.rules_for(node):
                claimed[node] = target.name
    return {name: claimed.get(node) for node in graph.nodes for name in node.sources}


def _chained(graph: Graph, root: Node, chain: tuple[str, ...]) -> list[Node]:
    """Return the nodes of a chain that ends at ``root``; none if there is no such chain, or a part is read outside."""
    members = [root]
    if root.op != chain[-1]:
        return []
    for op in reversed(chain[:-1]):
        value = members[-1].inputs[0]
        node = None if value is None else value.producer
        if value is None or node is None or node.op != op or graph.use_count(value) != 1:
            return []
        members.append(node)
    return members


def check_costs(seed: int) -> None:
    """Place one random graph of up to ten nodes by random costs, and compare with every placement there is.

    Raises:
        MismatchError: If a placement is cheaper than the one chosen.
    """
    rng = random.Random(seed)
    graph = random_graph(rng, CHAINED, MOST_PLACED)
    EliminateDeadCode().run(graph)
    targets = random_targets(rng, (*CHAINED, *BINARY, "Split"))[:2]
    links = [Link(rng.choice([4.0, 16.0, 1e9]), rng.choice([0.0, 1.0, 3.0])) for _ in range(3)]
    launch = rng.choice([0.0, 0.5, 2.0])
    costs = [_random_cost(rng, "host", links, 0.0)]
    for target in targets:
        target.claims_structural = False
        target.cost = _random_cost(rng, rng.choice(["host", "m", target.name]), links, launch)
        costs.append(target.cost)
    text = str(graph)
    try:
        nodes = graph.nodes
        allowed = [[0, *(i for i, t in enumerate(targets, 1) if t.rules_for(node))] for node in nodes]
        least = _least_cost(graph, allowed, costs)
        PlaceByCost(targets, host=costs[0]).run(graph)
        names = ["host", *(t.name for t in targets)]
        labels = np.array([[names.index(node.target or "host") for node in nodes]])
        found = _transfers_and_work(graph, labels, costs)[0] + _launches(nodes, labels[0], costs)
        assert found <= least * (1 + 1e-9) + 1e-12, f"{found} with {labels[0]}, {least} is enough"
    except Exception as error:
        raise MismatchError(f"seed {seed}: {error}\n{text}") from error


def _random_cost(rng: random.Random, memory: str, links: list[Link], launch: float) -> Cost:
    seconds = {op: rng.choice([0.5, 1.0, 2.0, 5.0]) for op in (*CHAINED, *OPS, "StopFusion")}
    direct = {"m": links[1]} if rng.random() < 0.3 else {}
    return Cost(lambda node: seconds[node.op], launch, memory, links[0] if memory == "m" else links[2], direct)


def _least_cost(graph: Graph, allowed: list[list[int]], costs: list[Cost]) -> float:
    """Return the cost of the cheapest placement, by trying all of them."""
    labels = np.array(list(itertools.product(*allowed)))
    base = _transfers_and_work(graph, labels, costs)
    least = np.inf
    for number in np.argsort(base):
        if base[number] >= least:
            break
        least = min(least, base[number] + _launches(graph.nodes, labels[number], costs))
    return float(least)


def _launches(nodes: list[Node], labels: np.ndarray, costs: list[Cost]) -> float:
    """Return the seconds of launching the fewest regions; a launch takes equally long on every target."""
    return costs[-1].launch * fewest(_needs(nodes), [int(label) or None for label in labels])


def _transfers_and_work(graph: Graph, labels: np.ndarray, costs: list[Cost]) -> np.ndarray:
    """Return, for every row of ``labels``, the seconds of all nodes, and one transfer per value and memory."""
    nodes = graph.nodes
    place = {node: i for i, node in enumerate(nodes)}
    memories = list(dict.fromkeys(cost.memory for cost in costs))
    first = [next(cost for cost in costs if cost.memory == memory) for memory in memories]
    memory_of = np.array([memories.index(cost.memory) for cost in costs])
    total = np.zeros(len(labels))
    for i, node in enumerate(nodes):
        total += np.array([cost.seconds(node) for cost in costs])[labels[:, i]]
    for value in [*graph.inputs, *(v for node in nodes for v in node.outputs)]:
        source = 0 * labels[:, 0] if value.producer is None else memory_of[labels[:, place[value.producer]]]
        for number, memory in enumerate(first):
            read = np.full(len(labels), number == 0 and graph.is_output(value))
            for user in value.users:
                read |= memory_of[labels[:, place[user]]] == number
            size = tensor(value.type).nbytes()
            seconds = np.array([each.transfer(memory, size) for each in first])
            total += np.where(read & (source != number), seconds[source], 0.0)
    return total


def _check_regions(graph: Graph) -> Counter[str]:
    nodes = graph.nodes
    regions: dict[int, list[Node]] = {}
    for node in nodes:
        assert (node.target is None) == (node.region is None), f"{node} has a target or a region, not both"
        if node.region is not None:
            regions.setdefault(node.region, []).append(node)
    needs = _needs(nodes)
    number = {node: i for i, node in enumerate(nodes)}
    masks = [sum(1 << number[n] for n in members) for members in regions.values()]
    allowed = dict(_connected_sets(needs, [n.target for n in nodes]))
    assert all(mask in allowed for mask in masks), "a region does not hang together, or has two targets"
    least = least_regions(nodes)
    assert len(masks) == least, f"{len(masks)} regions, {least} are enough"
    assert _can_run(nodes, needs, [(mask, allowed[mask]) for mask in masks]), "the regions wait for each other"
    hosts = sum(n.target is None for n in nodes)
    return Counter(scopes=1, regions=least, hosts=hosts, conditionals=sum(n.op == "If" for n in nodes))


def _can_run(nodes: list[Node], needs: list[int], groups: list[tuple[int, int]]) -> bool:
    steps = groups + [(1 << i, needs[i]) for i, n in enumerate(nodes) if n.target is None]
    return _run_hosts(0, steps) == (1 << len(nodes)) - 1


def _check_results(before: Graph, after: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    feeds: list[np.ndarray] = [rng.standard_normal((2, 4), dtype=np.float32) for _ in before.inputs[:-1]]
    lowering = Lowering({}, Pool(1), reference=True)
    for condition in (False, True) if any(n.op == "If" for n in before.nodes) else (True,):
        operands = [*feeds, np.array(condition)]
        pairs = zip(lowering.plan(before).run(operands), lowering.plan(after).run(operands), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs), f"results differ, condition {condition}"


def main() -> int:
    """Check graphs and say what was seen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks partition-fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="graphs (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one (default: 0)")
    options = parser.parse_args()
    started = time.perf_counter()
    facts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        try:
            facts += check(seed)
            check_priorities(seed)
            check_costs(seed)
        except MismatchError as error:
            print(error)
            return 1
    seconds = time.perf_counter() - started
    print(f"{', '.join(f'{count} {name}' for name, count in facts.items())}; all as they should be, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
