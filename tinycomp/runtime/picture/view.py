"""What pictures show: the nodes of a diagram joined with what the report and the profile know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinycomp.records import dataclass
from tinycomp.runtime.accuracy import Accuracy, by_source
from tinycomp.runtime.diagram import Diagram, DiagramNode
from tinycomp.runtime.plan import Position
from tinycomp.runtime.profile import REGION, Profile, ProfileRow

_HOLDERS = ("body", "control", "region")
Reason = Mapping[str, Any]
"""A remark in the form that it has in JSON."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of one node of a diagram.

    Attributes:
        tier: Who runs it on the host: ``"numpy"`` or ``"reference"``; empty for what a target runs.
        seconds: Median time of one run, after a profile: of a step as measured, of a node in a native region its share
            of the kernel calls that compute it, of other nodes None.
        reasons: Why other targets did not take it, by target in order of priority, near misses first.
        calls: Numbers of the kernel calls that compute it.
        arena: Bytes of the arena of a region.
    """

    tier: str
    seconds: float | None
    reasons: tuple[Reason, ...]
    calls: tuple[int, ...]
    arena: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel call, or a step that makes none; times are there after a profile.

    Attributes:
        step: Region symbol or host node name.
        target: Who runs it, as in the profile.
        kernel: Kernel or operator.
        algorithm: Which one, where there are several.
        nodes: Numbers of the nodes that it computes.
        seconds: Median time of one run.
        gflops: Billions of floating-point operations per second.
        share_of_peak: Share of what all threads could do.
        bytes: Bytes that it reads and writes.
    """

    step: str
    target: str
    kernel: str
    algorithm: str
    nodes: tuple[int, ...]
    seconds: float | None = None
    gflops: float = 0.0
    share_of_peak: float = 0.0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A report with its graph.

    Attributes:
        report: The report as :meth:`tinycomp.runtime.report.Report.to_dict` has it.
        headline: It in one line.
        diagram: The graph.
        facts: What is known of each node.
        calls: The calls of a run in order.
        profile: The profile, if there was one.
        accuracy: The layers beside those of a float model, if they have been compared.
        layers: Which of them each node belongs to, by number; -1 for none.
    """

    report: Mapping[str, Any]
    headline: str
    diagram: Diagram
    facts: tuple[NodeFacts, ...]
    calls: tuple[Call, ...]
    profile: Profile | None = None
    accuracy: Accuracy | None = None
    layers: tuple[int, ...] = ()


def make_view(
    report: Mapping[str, Any],
    headline: str,
    diagram: Diagram | None,
    profile: Profile | None,
    accuracy: Accuracy | None = None,
) -> View:
    """Join a report with its graph and its profile.

    Args:
        report: The report as data.
        headline: It in one line.
        diagram: The graph; None for one that shows the rows of the report without what flows between them.
        profile: The profile that the times come from.
        accuracy: The layers beside those of a float model.
    """
    if diagram is None:
        diagram = _of_rows(report)
    owners = _regions_of(diagram)
    calls = _calls(diagram, profile, owners)
    calls_of: list[list[int]] = [[] for _ in diagram.nodes]
    for number, call in enumerate(calls):
        for computed in call.nodes:
            calls_of[computed].append(number)
    rows = {tuple(row["position"]): row for row in (*report["regions"], *report["hosts"])}
    seconds = _seconds(diagram, calls, rows)
    facts = []
    for number, node in enumerate(diagram.nodes):
        row = rows.get(node.position, {}) if node.position is not None else {}
        reasons = _reasons(node, report)
        facts.append(
            NodeFacts(row.get("tier", ""), seconds[number], reasons, tuple(calls_of[number]), row.get("arena", 0))
        )
    numbers = by_source(accuracy)
    layers = [-1 if node.kind in _HOLDERS else _layer(node, numbers) for node in diagram.nodes]
    return View(report, headline, diagram, tuple(facts), tuple(calls), profile, accuracy, tuple(layers))


def _layer(node: DiagramNode, numbers: Mapping[str, int]) -> int:
    """Return the last layer that a node has a part of; -1 for none."""
    return max((numbers.get(name, -1) for name in node.sources), default=-1)


def _of_rows(report: Mapping[str, Any]) -> Diagram:
    """Return the steps of a report in their order, and the composites in its regions."""
    nodes: list[DiagramNode] = []
    for row in sorted((*report["regions"], *report["hosts"]), key=lambda row: tuple(row["position"])):
        is_region = "symbol" in row
        op, label = (row["symbol"], row["symbol"]) if is_region else (row["op"], row["name"])
        kind, target = ("region", row["target"]) if is_region else ("operator", "")
        parent, position = len(nodes), tuple(row["position"])
        sources = tuple(row["sources"])
        nodes.append(DiagramNode(kind, op, label, target, sources, None, (), (), macs=row["macs"], position=position))
        for member in row.get("members", ()):
            sources = tuple(member["sources"])
            nodes.append(
                DiagramNode("composite", member["name"], "…".join(sources[:1]), target, sources, parent, (), ())
            )
    return Diagram((), tuple(nodes), (), ())


def _regions_of(diagram: Diagram) -> list[str]:
    """Return the symbol of the region that each node belongs to; empty for what belongs to none."""
    owners: list[str] = []
    for node in diagram.nodes:
        outer = owners[node.parent] if node.parent is not None else ""
        owners.append(node.op if node.kind == "region" else outer)
    return owners


def _calls(diagram: Diagram, profile: Profile | None, owners: Sequence[str]) -> list[Call]:
    """Return the calls of a profile, or else those that the programs of native regions list."""
    computed = _Computed(diagram, owners)
    if profile is not None:
        return [_profiled(row, computed) for row in profile.rows]
    return [
        Call(call.region, "", call.kernel, call.algorithm, computed.by(call.region, call.sources))
        for arena in diagram.arenas
        for call in arena.calls
    ]


def _profiled(row: ProfileRow, computed: _Computed) -> Call:
    sources = () if row.kernel.startswith(REGION) else row.sources
    return Call(
        row.step, row.tier, row.kernel.removeprefix(REGION), row.algorithm,
        computed.by(row.step, sources, row.kernel), row.seconds, row.gflops, row.share_of_peak, row.bytes,
    )  # fmt: skip


class _Computed:
    """Tells which innermost nodes a call computes."""

    def __init__(self, diagram: Diagram, owners: Sequence[str]) -> None:
        holders = {node.parent for node in diagram.nodes}
        self._inside: dict[tuple[str, str], dict[int, None]] = {}
        self._regions: dict[str, int] = {}
        self._hosts: dict[tuple[str, str], list[int]] = {}
        for number, node in enumerate(diagram.nodes):
            if node.kind == "region":
                self._regions[node.op] = number
            elif not owners[number]:
                self._hosts.setdefault((node.label, node.op), []).append(number)
            if owners[number] and number not in holders:
                for source in node.sources:
                    self._inside.setdefault((owners[number], source), {})[number] = None

    def by(self, step: str, sources: Sequence[str], op: str = "") -> tuple[int, ...]:
        """Return the nodes of a step with these source names; the region itself where none of its nodes is named."""
        if step not in self._regions:
            return tuple(self._hosts.get((step, op), ())[:1])
        found = dict.fromkeys(number for source in sources for number in self._inside.get((step, source), ()))
        return tuple(found) or (self._regions[step],)


def _seconds(diagram: Diagram, calls: Sequence[Call], rows: Mapping[Position, Mapping[str, Any]]) -> list[float | None]:
    """Return the time of each node."""
    seconds: list[float | None] = [None] * len(diagram.nodes)
    for call in calls:
        if call.seconds is None:
            continue
        work = [diagram.nodes[number].macs for number in call.nodes]
        whole = sum(work)
        for number, macs in zip(call.nodes, work, strict=True):
            share = macs / whole if whole else 1 / len(work)
            seconds[number] = (seconds[number] or 0.0) + call.seconds * share
    for number in reversed(range(len(diagram.nodes))):
        node = diagram.nodes[number]
        row = rows.get(node.position) if node.position is not None else None
        if row is not None:
            seconds[number] = row.get("seconds")
        elif node.parent is not None and seconds[number] is not None and diagram.nodes[node.parent].kind != "region":
            seconds[node.parent] = (seconds[node.parent] or 0.0) + (seconds[number] or 0.0)
    return seconds


def _reasons(node: DiagramNode, report: Mapping[str, Any]) -> tuple[Reason, ...]:
    """Return the reasons for a node's sources without repetition, in the order in which targets are asked."""
    found: dict[tuple[Any, ...], Reason] = {}
    if node.kind in ("region", "body"):
        return ()
    for source in node.sources:
        for reason in report["reasons"].get(source, ()):
            found.setdefault(tuple(reason.values()), reason)
    order = {target: place for place, target in enumerate(report["targets"])}
    return tuple(sorted(found.values(), key=lambda reason: order.get(reason["target"], len(order))))
