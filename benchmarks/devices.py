"""What devices gain and cost: overlap, pipelining, and the time of a request beside its work.

``python -m benchmarks devices`` simulates devices whose regions take so many milliseconds each and prints how long runs
take against what they would take one after the other; then what a request costs when its region takes no time at all.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import tinycomp
from benchmarks import output, page
from benchmarks.machine import describe
from tinycomp.target_api import Array, Graph, Node, Region, Split, Target, TensorType, split
from tinycomp.targets.device_sim import Behaviour, simulated

REQUESTS = 4
STREAM = 24


def unit(name: str, op: str, function: Callable[[Array], Array], seconds: float) -> Target:
    """A target for one operator, each node a region of its own, on devices that take so many seconds for it."""
    target = Target(name)
    target.accept(op)

    @target.codegen
    def build(region: Node) -> Callable[[Array], Array]:
        return function

    @target.region_check
    def one(region: Region) -> bool | Split:
        return len(region.nodes) == 1 or split(region.nodes[0].output, reason="one node each")

    return simulated(target, Behaviour(seconds=seconds))


def units(seconds: float) -> list[Target]:
    """Two targets."""
    return [unit("npu", "Neg", np.negative, seconds), unit("dsp", "Abs", np.abs, seconds)]


def model(kind: str) -> Graph:
    """A model of regions: two ``"side by side"``, two ``"in a row"``, a ``"chain"`` of four, or ``"one"``."""
    graph = Graph(kind, opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (64, 64)))
    if kind == "side by side":
        graph.set_outputs([graph.add("Neg", [x]).output, graph.add("Abs", [x]).output], ["y", "z"])
        return graph
    for op in {"in a row": ["Neg", "Abs"], "chain": ["Neg"] * 4, "one": ["Neg"]}[kind]:
        x = graph.add(op, [x]).output
    graph.set_outputs([x], ["y"])
    return graph


def timed(work: Callable[[], object], rounds: int) -> float:
    """Median seconds of some rounds, after one."""
    work()
    samples = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples)


def measured(milliseconds: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for every case."""
    seconds, x = milliseconds / 1e3, np.ones((64, 64), np.float32)
    feeds = {"x": x}

    def row(case: str, work: Callable[[], object], serial: float) -> dict[str, Any]:
        return {"case": case, "seconds": timed(work, rounds), "serial": serial}

    with tinycomp.compile(model("side by side"), units(seconds)) as module:
        yield row("two independent regions on two devices", lambda: module.run(feeds), 2 * seconds)
    with tinycomp.compile(model("chain"), units(seconds)) as module:
        copies = len(module.plan.copies)
        yield row(f"a chain of four regions on one device, {copies} copies", lambda: module.run(feeds), 4 * seconds)
    with tinycomp.compile(model("one"), units(seconds), devices={"npu": 2}) as module:
        yield row(
            f"{REQUESTS} requests over two devices of a target",
            lambda: list(tinycomp.pipeline_requests(module, [feeds] * REQUESTS, in_flight=REQUESTS)),
            REQUESTS * seconds,
        )
    with tinycomp.compile(model("in a row"), units(seconds)) as module:
        yield row(
            f"{STREAM} requests through two devices, {REQUESTS} in flight",
            lambda: list(tinycomp.pipeline_requests(module, [feeds] * STREAM, in_flight=REQUESTS)),
            STREAM * 2 * seconds,
        )
    with tinycomp.compile(model("one"), units(0.0)) as module:
        yield row("a region that takes no time", lambda: [module.run(feeds) for _ in range(200)], 0.0) | {"runs": 200}


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    cells = (
        (
            row["case"], f"{row['seconds'] / row.get('runs', 1) * 1e3:.2f}",
            f"{row['serial'] * 1e3:.0f}" if row["serial"] else "",
            f"{row['serial'] / row['seconds']:.2f}" if row["serial"] else "",
        )
        for row in rows
    )  # fmt: skip
    return page.table(["case", "ms", "one after the other, ms", "times as fast"], cells)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Time runs on simulated devices.")
    parser.add_argument("--milliseconds", type=float, default=100.0, help="what a region takes (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each case (%(default)s)")
    output.add_option(parser)
    options = parser.parse_args(given)
    effort = {"milliseconds": options.milliseconds, "rounds": options.rounds}
    rows = list(measured(**effort))
    found = output.record("devices", output.command_line("devices", given), effort, rows)
    print(f"{describe(found['machine'])}\n\n{table(rows)}")
    output.save(options.output, found, table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
