"""What runs where, and why: the answer to ``module.report()``, as data, as text and as a page.

Text and page are drawn by rich, which is imported only when somebody looks.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinycomp.arguments import checked
from tinycomp.errors import ModelError
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.runtime.forms import built
from tinycomp.runtime.plan import Position
from tinycomp.runtime.rows import (
    ArenaRow,
    CompositeRow,
    ConversionRow,
    CopyRow,
    DeviceRow,
    HostRow,
    LayerRow,
    LayoutRow,
    RegionRow,
    ViolationRow,
)
from tinycomp.runtime.tables import drawn, milliseconds, si, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tinycomp.runtime.accuracy import Accuracy
    from tinycomp.runtime.advice import AdviceList
    from tinycomp.runtime.diagram import Diagram
    from tinycomp.runtime.picture.view import View
    from tinycomp.runtime.profile import Profile

Adviser = Callable[[Any, int, float], "AdviceList"]


@dataclass(frozen=True)
class Report:
    """The partition of a model, with totals.

    Attributes:
        model: Name of the model.
        targets: Targets in priority order.
        regions: Offloaded regions in order of execution.
        hosts: Nodes left to the host in order of execution.
        notes: What else the reader should know (symbolic sizes, memory, …).
        reasons: Every refusal by source name, near misses first; also of nodes that another target took.
        layers: The algorithms of the convolutions in native regions, in order of execution.
        conversions: Where quantised and real numbers meet, in order of execution.
        layouts: Where layouts meet, likewise; these conversions are no nodes of the model and are not in ``hosts``.
        copies: What every run copies between host and devices, in order of execution.
        devices: What the devices that are open have done for the module, when the report was asked for.
        violation_rows: What :meth:`violations` returns.
        adviser: Looks for advice on a model (None for the one that was kept), within so many trials and seconds; None
            where nothing is known of the model.
        diagram: Describes the partitioned graph for pictures; None where nothing but the rows is known.
        profile: The profile that the times come from, if there was one.
        accuracy: The layers beside those of a float model, if they have been compared: for the page.
    """

    model: str
    targets: tuple[str, ...]
    regions: tuple[RegionRow, ...]
    hosts: tuple[HostRow, ...]
    notes: tuple[str, ...] = field(default=())
    reasons: Mapping[str, tuple[Remark, ...]] = field(default_factory=dict)
    layers: tuple[LayerRow, ...] = ()
    conversions: tuple[ConversionRow, ...] = ()
    layouts: tuple[LayoutRow, ...] = ()
    copies: tuple[CopyRow, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    violation_rows: tuple[ViolationRow, ...] = ()
    adviser: Adviser | None = field(default=None, repr=False, compare=False)
    diagram: Callable[[], Diagram] | None = field(default=None, repr=False, compare=False)
    profile: Profile | None = field(default=None, repr=False, compare=False)
    accuracy: Accuracy | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what holds the model."""
        return {**self.__dict__, "adviser": None, "diagram": None}

    @checked(least={"trials": 0, "seconds": 0})
    def advice(self, model: Any = None, *, trials: int = 200, seconds: float = 60.0) -> AdviceList:
        """Return the small changes that would give the model fewer regions, or a target more of its work.

        Each has been tried: the model has been partitioned anew with it. The smallest comes first.

        Args:
            model: What was compiled. A module keeps it unless its weights are large and not in a file.
            trials: Most partitions to try.
            seconds: Time after which no further one is tried. :attr:`AdviceList.cut` tells whether a limit was reached.

        Raises:
            ModelError: If the model was not kept and is not given, or the report is that of a loaded module, or of one
                that was compiled with other passes.
        """
        if self.adviser is None:
            raise ModelError(
                "there is no model to try changes on", where=f"report of {self.model or 'a model'}",
                expected="the report of a module that was compiled with the default passes",
                hint="Compile the model again, and ask the report of that module.",
            )  # fmt: skip
        return self.adviser(model, trials, seconds)

    @property
    def totals(self) -> dict[str, Any]:
        """Nodes, MACs and, after a profile, seconds (offloaded, on the host, the offloaded share); bytes of arenas."""
        nodes = (sum(r.nodes for r in self.regions), len(self.hosts))
        macs = (sum(r.macs for r in self.regions), sum(h.macs for h in self.hosts))
        result: dict[str, Any] = {"nodes": _total(*nodes), "macs": _total(*macs)}
        integer = sum(r.integer_macs for r in self.regions)
        if integer:
            result["integer_macs"] = {"macs": integer, "share": integer / sum(macs)}
        rows: Sequence[RegionRow | HostRow] = [*self.regions, *self.hosts]
        if rows and all(r.seconds is not None for r in rows):
            times = (sum(r.seconds or 0 for r in self.regions), sum(h.seconds or 0 for h in self.hosts))
            result["seconds"] = _total(*times)
        if any(r.arena for r in self.regions):
            result["arena"] = {
                "bytes": sum(r.arena for r in self.regions),
                "bound": sum(r.arena_bound for r in self.regions),
            }
        if self.copies:
            result["copies"] = {"count": len(self.copies), "bytes": sum(row.bytes for row in self.copies)}
        return result

    @checked()
    def why(self, node: str) -> list[HostRow]:
        """Return the host nodes whose source name is ``node`` (an empty list: it was offloaded or does not exist)."""
        return [h for h in self.hosts if node == h.name or node in h.sources]

    @checked()
    def where(self, node: str) -> str | None:
        """Return the region symbol or ``"host"`` for a source name, or None if no node has that name."""
        for region in self.regions:
            if node in region.sources:
                return region.symbol
        return "host" if self.why(node) else None

    @checked()
    def composite(self, node: str) -> CompositeRow | None:
        """Return the composite that took a source name, or None if none did; of several, the first."""
        members = (member for region in self.regions for member in region.members)
        return next((member for member in members if node in member.sources), None)

    @checked()
    def how(self, node: str) -> list[LayerRow]:
        """Return the algorithms that compute a source name; empty if its kernels leave no choice."""
        return [layer for layer in self.layers if node in layer.sources]

    def violations(self) -> list[ViolationRow]:
        """Return what quantised layers do that the quantisation rules of a target do not allow, and what would mend it.

        Layers in float, and what another target's rules allow, are none.
        """
        return [*self.violation_rows]

    def with_seconds(self, seconds: Mapping[Position, float]) -> Report:
        """Return the report with times by position."""
        return dataclasses.replace(
            self,
            regions=tuple(dataclasses.replace(r, seconds=seconds.get(r.position)) for r in self.regions),
            hosts=tuple(dataclasses.replace(h, seconds=seconds.get(h.position)) for h in self.hosts),
        )

    def with_arenas(self, arenas: Mapping[Position, ArenaRow]) -> Report:
        """Return the report with the arenas of regions by position."""
        regions = []
        for row in self.regions:
            arena = arenas.get(row.position, ArenaRow(0, 0))
            regions.append(
                dataclasses.replace(
                    row, arena=arena.bytes, arena_bound=arena.bound, calls=arena.calls, buffers=arena.buffers,
                    peak=arena.peak,
                )
            )  # fmt: skip
        return dataclasses.replace(self, regions=tuple(regions))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form with the totals."""
        reasons = {source: tuple(r.to_dict() for r in remarks) for source, remarks in self.reasons.items()}
        hosts = tuple(host.to_dict() for host in self.hosts)
        fields = dataclasses.asdict(dataclasses.replace(self, adviser=None, diagram=None, profile=None, accuracy=None))
        for name in ("adviser", "diagram", "profile", "accuracy"):
            del fields[name]
        return {**fields, "hosts": hosts, "reasons": reasons, "totals": self.totals}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Rebuild what :meth:`to_dict` returned."""
        report: Report = built(cls, data)
        return report

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @checked()
    def save_html(self, path: str | PathLike[str], against: Report | None = None) -> None:
        """Write the report as one self-contained HTML page, a picture of the graph with tables beside it.

        Args:
            path: The file.
            against: Another report, to be shown side by side with this one.

        Raises:
            WriteError: If there is no space or permission.
        """
        from tinycomp.runtime.files import write_file  # imported here: few reports become pages
        from tinycomp.runtime.picture.page import page

        views = [report.view() for report in (self, against) if report is not None]
        write_file(Path(path), page(views).encode())

    @checked()
    def save_model_explorer(self, folder: str | PathLike[str]) -> list[Path]:
        """Write the graph for Model Explorer (https://github.com/google-ai-edge/model-explorer), with overlays.

        Args:
            folder: Where to; it is made if it is not there.

        Returns:
            The files, the graph first, then the overlays of target, reasons and time for it and for the ONNX model.

        Raises:
            WriteError: If there is no space or permission.
        """
        from tinycomp.runtime.files import folder_named
        from tinycomp.runtime.picture.model_explorer import write_model_explorer

        return write_model_explorer(self.view(), folder_named(folder))

    def view(self) -> View:
        """Return what pictures show: the graph, what is known of its nodes, and the calls of a run."""
        from tinycomp.runtime.picture.view import make_view

        diagram = self.diagram() if self.diagram else None
        return make_view(self.to_dict(), _headline(self), diagram, self.profile, self.accuracy)

    def _repr_html_(self) -> str:
        """Return what notebooks show: the steps as a strip, their figures, and why nodes stayed on the host."""
        from tinycomp.runtime.picture.notebook import report_html

        return report_html(self.to_dict(), _headline(self))

    def __rich__(self) -> RenderableType:
        """Return what rich prints."""
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [Text(_headline(self), style="bold")]
        if self.regions:
            parts.append(_region_table(self.regions))
        for row in self.regions:
            parts += [Text(_figure_line(row))] if row.figures else []
            parts += [_figure_table(row)] if row.layer_figures else []
        if self.hosts:
            parts.append(_host_table(self.hosts))
        if self.conversions:
            parts.append(_conversion_table(self.conversions))
        if self.violation_rows:
            parts.append(violation_table(self.violation_rows))
        if self.layouts:
            parts.append(_layout_table(self.layouts))
        if self.copies:
            parts.append(_copy_table(self.copies))
        if self.devices:
            parts.append(_device_table(self.devices))
        lines = [f"Convolutions: {_counts(Counter(row.algorithm for row in self.layers))}."] if self.layers else []
        if "arena" in self.totals:
            lines.append(_arena_line(**self.totals["arena"]))
        return Group(*parts, *map(Text, (*lines, *self.notes)))

    def __str__(self) -> str:
        return drawn(self, _WIDTH)


def _total(offloaded: float, host: float) -> dict[str, float]:
    whole = offloaded + host
    return {"offloaded": offloaded, "host": host, "share": offloaded / whole if whole else 1.0}


_WIDTH = 110
_REASONS_SHOWN = 2


def _headline(report: Report) -> str:
    totals = report.totals
    nodes, macs = totals["nodes"], totals["macs"]
    text = (
        f"{report.model or 'model'}: {len(report.regions)} region(s) on {', '.join(report.targets) or 'no target'}; "
        f"{nodes['offloaded']} of {nodes['offloaded'] + nodes['host']} nodes"
    )
    if macs["offloaded"] + macs["host"]:
        text += f", {macs['share']:.1%} of MACs"
    if "integer_macs" in totals:
        text += f" ({totals['integer_macs']['share']:.1%} in 8-bit integers)"
    if "seconds" in totals:
        text += f", {totals['seconds']['share']:.1%} of the time"
    return text


def _arena_line(bytes: int, bound: int) -> str:  # noqa: A002 - as in the totals
    bounded = f", of which {si(bound, 'B')} are in use at once" if bound else ""
    return f"Intermediate values inside regions take {si(bytes, 'B')}{bounded}."


def _region_table(rows: Sequence[RegionRow]) -> Table:
    names = ("region", "target", "holds")
    cells = (
        (
            row.symbol, row.target, _counts({**row.composites, **row.singles}), str(row.nodes), si(row.macs),
            si(row.bytes_in, "B"), si(row.bytes_out, "B"), milliseconds(row.seconds),
        )
        for row in rows
    )  # fmt: skip
    return table("Regions", names, ("nodes", "MACs", "in", "out", "time"), cells)


def _figure_line(row: RegionRow) -> str:
    figures = ", ".join(f"{name} {si(value)}" for name, value in row.figures.items() if value)
    return f"The compiler of {row.target} estimates for {row.symbol}: {figures}."


def _figure_table(row: RegionRow) -> Table:
    """Return what the target's compiler estimates, one line for every layer."""
    names = tuple(dict.fromkeys(name for figures in row.layer_figures.values() for name in figures))
    cells = ((layer, *(si(figures.get(n, 0)) for n in names)) for layer, figures in row.layer_figures.items())
    return table(f"Layers of {row.symbol}", ("layer",), names, cells)


def _counts(counts: Mapping[str, int]) -> str:
    """Return how often there is each, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda i: (-i[1], i[0])))


def _host_table(rows: Sequence[HostRow]) -> Table:
    # Long names and long reasons share what the other columns leave.
    ratios = {"node": 2, "why": 3}
    cells = ((r.name, r.op, r.tier, _why(r.reasons), si(r.macs), milliseconds(r.seconds)) for r in rows)
    return table("On the host", ("node", "operator", "tier", "why"), ("MACs", "time"), cells, ratios)


def _why(reasons: Sequence[Remark]) -> str:
    texts = list(dict.fromkeys(map(str, reasons)))  # several targets may have one reason
    more = len(texts) - _REASONS_SHOWN
    return "\n".join([*texts[:_REASONS_SHOWN], *([f"… and {more} more"] if more > 0 else [])])


def _conversion_table(rows: Sequence[ConversionRow]) -> Table:
    names = ("conversion", "in", "from", "to")
    cells = ((", ".join(r.sources), r.place, r.source, r.result, si(r.elements)) for r in rows)
    return table("Between quantised and real numbers", names, ("elements",), cells)


def violation_table(rows: Sequence[ViolationRow]) -> Table:
    """Return the table of what does not obey."""
    ratios = {"layer": 2, "what is wrong": 3, "what mends it": 2}
    cells = ((row.layer, row.op, row.target, row.reason, row.remedy) for row in rows)
    return table(
        "Against the rules of quantisation", ("layer", "operator", "target", *list(ratios)[1:]), (), cells, ratios
    )


def _layout_table(rows: Sequence[LayoutRow]) -> Table:
    names = ("value", "conversion", "layout")
    return table("Between layouts", names, ("bytes",), ((r.value, r.kind, r.layout, si(r.bytes)) for r in rows))


def _copy_table(rows: Sequence[CopyRow]) -> Table:
    title = f"Copies of a run: {len(rows)}, {si(sum(row.bytes for row in rows), 'B')}"
    cells = ((row.value, row.source, row.destination, row.region, si(row.bytes, "B")) for row in rows)
    return table(title, ("value", "from", "to", "for region"), ("bytes",), cells)


def _device_table(rows: Sequence[DeviceRow]) -> Table:
    figures = ("requests", "regions", "faults", "retries", "on numpy", "copies in", "out", "across")
    cells = (
        (
            row.device, row.target, *map(str, (row.requests, row.runs, row.faults, row.retries, row.fallbacks)),
            si(row.bytes_in, "B"), si(row.bytes_out, "B"), si(row.bytes_across, "B"),
        )
        for row in rows
    )  # fmt: skip
    return table("Devices, so far", ("device", "target"), figures, cells)
