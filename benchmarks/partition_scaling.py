"""How the time of the region search grows with the graph: a table and the fitted exponent.

Run as ``python -m benchmarks.partition_scaling``. The graphs are one large tangle (every vertex depends on two recent
ones, 30 % are the host's, two targets), which is the worst case: models split into small independent problems.
"""

from __future__ import annotations

import math
import random
import time

from tinycomp.passes.search.regions import Problem, RegionSearch

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)


def tangle(size: int, seed: int = 0) -> Problem:
    """Return a graph of ``size`` vertices in which nearly everything depends on everything before."""
    rng = random.Random(seed)
    colors = [0 if rng.random() < 0.3 else 1 + (rng.random() < 0.3) for _ in range(size)]
    successors: list[set[int]] = [set() for _ in range(size)]
    links: list[set[int]] = [set() for _ in range(size)]
    for user in range(1, size):
        for _ in range(2):
            vertex = max(0, user - rng.randint(1, 30))
            successors[vertex].add(user)
            if colors[vertex] == colors[user] != 0:
                links[vertex].add(user)
                links[user].add(vertex)
    return Problem(colors, successors, links, [[v] for v in range(size)])


def main() -> None:
    """Print the table."""
    times = []
    for size in SIZES:
        problem = tangle(size)
        start = time.perf_counter()
        groups = RegionSearch().minimum(problem)
        times.append(time.perf_counter() - start)
        print(f"{size:>8} vertices {len(groups):>7} regions {times[-1]:8.2f} s")
    # Below 3,000 vertices slabs are searched again, which costs a constant factor more.
    exponent = math.log(times[-1] / times[1]) / math.log(SIZES[-1] / SIZES[1])
    print(f"exponent from {SIZES[1]} to {SIZES[-1]}: {exponent:.2f}")


if __name__ == "__main__":
    main()
