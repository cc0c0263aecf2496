"""What runs where, and why: the answer to ``module.report()``, as data, as text and as a page.

Text and page are drawn by rich, which is imported only when somebody looks.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tinycomp.errors import ModelError
from tinycomp.remark import Remark
from tinycomp.runtime.advice import AdviceList
from tinycomp.runtime.files import write_file

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Adviser = Callable[[Any, int, float], AdviceList]
Position = tuple[int, ...]
"""Where a step stands: its index in the plan, then the index of a body and of a step in it for each level below."""


@dataclass(frozen=True)
class CompositeRow:
    """One composite of a region.

    Attributes:
        name: Its qualified name, such as ``npu.conv_relu``.
        ops: The operators in it.
        sources: Source names of the nodes behind it.
    """

    name: str
    ops: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class CallRow:
    """One kernel call of a region on the C runtime: a step of its time.

    Attributes:
        kernel: The kernel.
        sources: Source names of the nodes behind it.
    """

    kernel: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class BufferRow:
    """One buffer in the arena of a region on the C runtime.

    Attributes:
        offset: Where it lies in the arena.
        bytes: Its size.
        first: The number of the call that writes it.
        last: That of the last call that touches it.
    """

    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class ArenaRow:
    """The arena of a region on the C runtime whose sizes are numbers.

    Attributes:
        bytes: Its size.
        bound: The most bytes of it that are in use at once: no plan of the arena could be smaller.
        calls: What is called, in order.
        buffers: What lies in it, and during which calls.
    """

    bytes: int
    bound: int
    calls: tuple[CallRow, ...] = ()
    buffers: tuple[BufferRow, ...] = ()

    @property
    def peak(self) -> int | None:
        """The number of the first call at which most is in use; None if nothing is known to be."""
        change = [0] * (len(self.calls) + 1)
        for buffer in self.buffers:
            change[buffer.first] += buffer.bytes
            change[buffer.last + 1] -= buffer.bytes
        used = [*itertools.accumulate(change)]
        return used.index(max(used)) if max(used, default=0) else None


@dataclass(frozen=True)
class RegionRow:
    """One offloaded region.

    Attributes:
        symbol: Unique name of the region.
        target: The target that runs it.
        nodes: Nodes of the optimised graph inside; a composite counts with what it is made of.
        composites: How often each composite occurs.
        singles: How often each operator occurs outside composites.
        ops: How often each operator occurs, composites opened.
        macs: Multiply-accumulate operations of one run; symbolic sizes count as 1.
        bytes_in: Bytes that enter as parameters, constants excluded.
        bytes_out: Bytes that leave.
        sources: Source names of its nodes.
        position: Where it stands among the steps.
        seconds: Median time of one run, after a profile.
        arena: Bytes of the arena for its intermediate values, where it runs on the C runtime.
        arena_bound: The most bytes of it that are in use at once: no plan of the arena could be smaller.
        calls: Its kernel calls, where it runs on the C runtime and its sizes are numbers.
        buffers: What lies in the arena, and during which of the calls.
        peak: The number of the call at which most of that is in use.
        integer_macs: Those of :attr:`macs` that multiply 8-bit integers.
        members: The composites themselves, in order of execution, with the nodes that each took.
    """

    symbol: str
    target: str
    nodes: int
    composites: Mapping[str, int]
    singles: Mapping[str, int]
    ops: Mapping[str, int]
    macs: int
    bytes_in: int
    bytes_out: int
    sources: tuple[str, ...]
    position: Position = ()
    seconds: float | None = None
    arena: int = 0
    arena_bound: int = 0
    calls: tuple[CallRow, ...] = ()
    buffers: tuple[BufferRow, ...] = ()
    peak: int | None = None
    integer_macs: int = 0
    members: tuple[CompositeRow, ...] = ()


@dataclass(frozen=True)
class HostRow:
    """One node that stayed on the host.

    Attributes:
        name: Source name.
        op: Operator.
        tier: ``"numpy"`` or ``"reference"``.
        macs: Multiply-accumulate operations of one run.
        reasons: Why it stayed, near misses first.
        sources: Source names of the nodes behind it.
        position: Where it stands among the steps.
        seconds: Median time of one run, without the steps in its bodies, after a profile.
    """

    name: str
    op: str
    tier: str
    macs: int
    reasons: tuple[Remark, ...]
    sources: tuple[str, ...]
    position: Position = ()
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {**dataclasses.asdict(self), "reasons": tuple(r.to_dict() for r in self.reasons)}


@dataclass(frozen=True)
class LayerRow:
    """How one kernel call that could be computed in several ways is computed.

    Attributes:
        region: Symbol of the region.
        sources: Source names of the nodes behind it.
        kernel: The kernel.
        algorithm: What it does, such as ``direct`` or ``Winograd F(4x4, 3x3)``.
    """

    region: str
    sources: tuple[str, ...]
    kernel: str
    algorithm: str


@dataclass(frozen=True)
class ConversionRow:
    """A conversion between real and quantised numbers that is a step of its own: a border between layers of both kinds.

    Attributes:
        place: Symbol of the region, or ``"host"``.
        sources: Source names of the node.
        source: Dtype of what it reads.
        result: Dtype of what it gives.
        elements: How many numbers; symbolic sizes count as 1.
    """

    place: str
    sources: tuple[str, ...]
    source: str
    result: str
    elements: int


@dataclass(frozen=True)
class LayoutRow:
    """A conversion between row-major and the layout that a target asked for, outside of regions, where it costs time.

    Attributes:
        sources: Source names of what made the value.
        value: Name of what it reads.
        kind: ``"Pack"`` into the layout, or ``"Unpack"``.
        layout: Name of the layout.
        bytes: What it gives; symbolic sizes count as 1.
    """

    sources: tuple[str, ...]
    value: str
    kind: str
    layout: str
    bytes: int


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
        adviser: Looks for advice on a model (None for the one that was kept), within so many trials and seconds; None
            where nothing is known of the model.
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
    adviser: Adviser | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the adviser, which holds the model."""
        return {**self.__dict__, "adviser": None}

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
        return result

    def why(self, node: str) -> list[HostRow]:
        """Return the host nodes whose source name is ``node`` (an empty list: it was offloaded or does not exist)."""
        return [h for h in self.hosts if node == h.name or node in h.sources]

    def where(self, node: str) -> str | None:
        """Return the region symbol or ``"host"`` for a source name, or None if no node has that name."""
        for region in self.regions:
            if node in region.sources:
                return region.symbol
        return "host" if self.why(node) else None

    def composite(self, node: str) -> CompositeRow | None:
        """Return the composite that took a source name, or None if none did; of several, the first."""
        members = (member for region in self.regions for member in region.members)
        return next((member for member in members if node in member.sources), None)

    def how(self, node: str) -> list[LayerRow]:
        """Return the algorithms that compute a source name; empty if its kernels leave no choice."""
        return [layer for layer in self.layers if node in layer.sources]

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
        fields = dataclasses.asdict(dataclasses.replace(self, adviser=None))
        del fields["adviser"]
        return {**fields, "hosts": hosts, "reasons": reasons, "totals": self.totals}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Rebuild what :meth:`to_dict` returned."""
        return cls(
            data["model"],
            tuple(data["targets"]),
            tuple(map(_region_row, data["regions"])),
            tuple(_host_row(h) for h in data["hosts"]),
            tuple(data["notes"]),
            {source: tuple(Remark.from_dict(r) for r in reasons) for source, reasons in data["reasons"].items()},
            tuple(LayerRow(**{**row, "sources": tuple(row["sources"])}) for row in data["layers"]),
            tuple(ConversionRow(**{**row, "sources": tuple(row["sources"])}) for row in data.get("conversions", ())),
            tuple(LayoutRow(**{**row, "sources": tuple(row["sources"])}) for row in data.get("layouts", ())),
        )

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def save_html(self, path: str | PathLike[str]) -> None:
        """Write the report as one self-contained HTML page.

        Raises:
            WriteError: If there is no space or permission.
        """
        from tinycomp.console import SafeConsole

        console = SafeConsole(record=True, width=_WIDTH, file=io.StringIO())
        console.print(self)
        write_file(Path(path), console.export_html().encode())

    def __rich__(self) -> RenderableType:
        """Return what rich prints."""
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [Text(_headline(self), style="bold")]
        if self.regions:
            parts.append(_region_table(self.regions))
        if self.hosts:
            parts.append(_host_table(self.hosts))
        if self.conversions:
            parts.append(_conversion_table(self.conversions))
        if self.layouts:
            parts.append(_layout_table(self.layouts))
        lines = [f"Convolutions: {_counts(Counter(row.algorithm for row in self.layers))}."] if self.layers else []
        if "arena" in self.totals:
            lines.append(_arena_line(**self.totals["arena"]))
        return Group(*parts, *map(Text, (*lines, *self.notes)))

    def __str__(self) -> str:
        return drawn(self, _WIDTH)


def _region_row(data: Mapping[str, Any]) -> RegionRow:
    members = (CompositeRow(m["name"], tuple(m["ops"]), tuple(m["sources"])) for m in data.get("members", ()))
    calls = (CallRow(call["kernel"], tuple(call["sources"])) for call in data.get("calls", ()))
    buffers = (BufferRow(**buffer) for buffer in data.get("buffers", ()))
    own = {"members": tuple(members), "calls": tuple(calls), "buffers": tuple(buffers)}
    return RegionRow(**{**data, **_tuples(data), **own})


def _host_row(data: Mapping[str, Any]) -> HostRow:
    reasons = tuple(Remark.from_dict(r) for r in data["reasons"])
    return HostRow(**{**data, **_tuples(data), "reasons": reasons})


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that JSON has made lists of."""
    return {"sources": tuple(data["sources"]), "position": tuple(data["position"])}


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
    names = ("region", "target", "composites and operators")
    cells = (
        (
            row.symbol, row.target, _counts({**row.composites, **row.singles}), str(row.nodes), si(row.macs),
            si(row.bytes_in, "B"), si(row.bytes_out, "B"), milliseconds(row.seconds),
        )
        for row in rows
    )  # fmt: skip
    return table("Regions", names, ("nodes", "MACs", "in", "out", "time"), cells)


def _counts(counts: Mapping[str, int]) -> str:
    """Return how often there is each, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda i: (-i[1], i[0])))


def _host_table(rows: Sequence[HostRow]) -> Table:
    # Long names and long reasons share what the other columns leave.
    ratios = {"node": 2, "why": 3}
    cells = ((r.name, r.op, r.tier, _why(r.reasons), si(r.macs), milliseconds(r.seconds)) for r in rows)
    return table("On the host", ("node", "operator", "tier", "why"), ("MACs", "time"), cells, ratios)


def _why(reasons: Sequence[Remark]) -> str:
    more = len(reasons) - _REASONS_SHOWN
    return "\n".join([*map(str, reasons[:_REASONS_SHOWN]), *([f"… and {more} more"] if more > 0 else [])])


def _conversion_table(rows: Sequence[ConversionRow]) -> Table:
    names = ("conversion", "in", "from", "to")
    cells = ((", ".join(r.sources), r.place, r.source, r.result, si(r.elements)) for r in rows)
    return table("Between quantised and real numbers", names, ("elements",), cells)


def _layout_table(rows: Sequence[LayoutRow]) -> Table:
    names = ("value", "conversion", "layout", "bytes")
    return table("Between layouts", names, ("bytes",), ((r.value, r.kind, r.layout, si(r.bytes)) for r in rows))


def table(
    title: str,
    words: Iterable[str],
    figures: Iterable[str],
    rows: Iterable[Sequence[str]],
    ratios: Mapping[str, int] = MappingProxyType({}),
) -> Table:
    """Return a table as rich draws it.

    Args:
        title: What stands above it.
        words: Names of the columns whose cells are words, which may be broken.
        figures: Names of the columns behind them, whose cells are figures.
        rows: The cells of every row.
        ratios: How the columns that are named here share the room that the others leave.
    """
    from rich.table import Table
    from rich.text import Text

    result = Table(title=title, title_justify="left", expand=True)
    for name in words:
        result.add_column(name, overflow="fold", ratio=ratios.get(name))
    for name in figures:
        result.add_column(name, justify="right", no_wrap=True)
    for cells in rows:
        result.add_row(*map(Text, cells))
    return result


def drawn(what: RenderableType, width: int) -> str:
    """Return what rich prints, as plain text of at most ``width`` characters a line."""
    from tinycomp.console import SafeConsole

    console = SafeConsole(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get().rstrip()


def si(value: float, unit: str = "") -> str:
    """Return a number with an SI prefix.

    >>> si(4089184256), si(602112, "B"), si(12)
    ('4.09 G', '602 kB', '12')
    """
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:g} {unit}".rstrip()


def milliseconds(seconds: float | None) -> str:
    """Return seconds as a text in milliseconds; empty for None."""
    return "" if seconds is None else f"{seconds * 1e3:.3f} ms"
