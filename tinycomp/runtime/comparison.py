"""Two reports side by side: totals, and the nodes of the model that run elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tinycomp.records import dataclass
from tinycomp.runtime.report import Report
from tinycomp.runtime.tables import drawn, milliseconds, si, table

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH = 110
_SHOWN = 20
"""The most nodes that the table lists."""
_HOST = "host"
_ABSENT = "absent"


@dataclass(frozen=True)
class Moved:
    """A node of the model that two reports have in different places.

    Attributes:
        node: Its source name.
        a: Where the first report has it: a target, ``"host"``, or ``"absent"`` where optimisation has removed it.
        b: Where the second one has it.
    """

    node: str
    a: str
    b: str


@dataclass(frozen=True)
class Comparison:
    """What sets two reports apart.

    Attributes:
        a: The first.
        b: The second.
        moved: The nodes that run elsewhere, in the order of the first; those that only one of them has come last.
    """

    a: Report
    b: Report
    moved: tuple[Moved, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form: the models and totals of both, and the nodes that run elsewhere."""
        sides = {name: {"model": r.model, "totals": r.totals} for name, r in (("a", self.a), ("b", self.b))}
        return {**sides, "moved": [dataclasses.asdict(each) for each in self.moved]}

    def __rich__(self) -> RenderableType:
        """Return what rich prints."""
        from rich.console import Group
        from rich.text import Text

        sides = [_figures(self.a), _figures(self.b)]
        rows = [(name, sides[0].get(name, ""), sides[1].get(name, "")) for name in {**sides[0], **sides[1]}]
        parts: list[RenderableType] = [table("Side by side", ("",), ("A", "B"), rows)]
        if self.moved:
            cells = [(each.node, each.a, each.b) for each in self.moved[:_SHOWN]]
            parts.append(table("Nodes that run elsewhere", ("node", "A", "B"), (), cells))
            if len(self.moved) > _SHOWN:
                parts.append(Text(f"… and {len(self.moved) - _SHOWN} more"))
        else:
            parts.append(Text("Every node runs in the same place."))
        return Group(*parts)

    def __str__(self) -> str:
        return drawn(self, _WIDTH)


def compare(a: Report, b: Report) -> Comparison:
    """Return what sets two reports of one model apart."""
    places = [_places(report) for report in (a, b)]
    moved = []
    for node in {**places[0], **places[1]}:
        where = [side.get(node, _ABSENT) for side in places]
        if where[0] != where[1]:
            moved.append(Moved(node, *where))
    return Comparison(a, b, tuple(sorted(moved, key=lambda each: _ABSENT in (each.a, each.b))))


def _places(report: Report) -> Mapping[str, str]:
    """Return where each source name runs; on several places for one that became several nodes."""
    found: dict[str, dict[str, None]] = {}
    rows = [(region.target, region.sources) for region in report.regions]
    for place, sources in (*rows, *((_HOST, host.sources) for host in report.hosts)):
        for source in sources:
            found.setdefault(source, {})[place] = None
    return {source: ", ".join(sorted(places)) for source, places in found.items()}


def _figures(report: Report) -> dict[str, str]:
    """Return what the table says of one report."""
    totals = report.totals
    figures = {
        "model": report.model,
        "targets": ", ".join(report.targets),
        "regions": str(len(report.regions)),
        "nodes offloaded": _of(totals["nodes"], str),
        "MACs offloaded": _of(totals["macs"], si),
    }
    if "integer_macs" in totals:
        figures["8-bit integer MACs"] = f"{totals['integer_macs']['share']:.1%}"
    if "arena" in totals:
        figures["arenas"] = si(totals["arena"]["bytes"], "B")
    if "seconds" in totals:
        figures["time of a run"] = milliseconds(totals["seconds"]["offloaded"] + totals["seconds"]["host"])
    return figures


def _of(total: Mapping[str, Any], text: Callable[[Any], str]) -> str:
    return f"{text(total['offloaded'])} of {text(total['offloaded'] + total['host'])}"
