"""What runs where, and why: the answer to ``module.report()``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinycomp.remark import Remark
from tinycomp.runtime.files import write_file

if TYPE_CHECKING:
    from rich.console import RenderableType

Position = tuple[int, ...]
"""Where a step stands: its index in the plan, then the index of a body and of a step in it for each level below."""


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
        integer_macs: Those of :attr:`macs` that multiply 8-bit integers.
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
    integer_macs: int = 0


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
    """

    model: str
    targets: tuple[str, ...]
    regions: tuple[RegionRow, ...]
    hosts: tuple[HostRow, ...]
    notes: tuple[str, ...] = field(default=())
    reasons: Mapping[str, tuple[Remark, ...]] = field(default_factory=dict)
    layers: tuple[LayerRow, ...] = ()
    conversions: tuple[ConversionRow, ...] = ()

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

    def with_arenas(self, arenas: Mapping[Position, tuple[int, int]]) -> Report:
        """Return the report with the arenas of regions and their lower bounds, in bytes by position."""
        rows = ((row, *arenas.get(row.position, (0, 0))) for row in self.regions)
        regions = tuple(dataclasses.replace(row, arena=size, arena_bound=bound) for row, size, bound in rows)
        return dataclasses.replace(self, regions=regions)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form with the totals."""
        reasons = {source: tuple(r.to_dict() for r in remarks) for source, remarks in self.reasons.items()}
        hosts = tuple(host.to_dict() for host in self.hosts)
        return {**dataclasses.asdict(self), "hosts": hosts, "reasons": reasons, "totals": self.totals}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The inverse of :meth:`to_dict`."""
        return cls(
            data["model"],
            tuple(data["targets"]),
            tuple(RegionRow(**{**r, **_tuples(r)}) for r in data["regions"]),
            tuple(_host_row(h) for h in data["hosts"]),
            tuple(data["notes"]),
            {source: tuple(Remark.from_dict(r) for r in reasons) for source, reasons in data["reasons"].items()},
            tuple(LayerRow(**{**row, "sources": tuple(row["sources"])}) for row in data["layers"]),
            tuple(ConversionRow(**{**row, "sources": tuple(row["sources"])}) for row in data.get("conversions", ())),
        )

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def save_html(self, path: str | PathLike[str]) -> None:
        """Write the report as one self-contained HTML page.

        Raises:
            WriteError: If there is no space or permission.
        """
        from tinycomp.runtime.report_text import report_html

        write_file(Path(path), report_html(self).encode())

    def __rich__(self) -> RenderableType:
        """Return what rich prints."""
        from tinycomp.runtime.report_text import drawn

        return drawn(self)

    def __str__(self) -> str:
        from tinycomp.runtime.report_text import report_text

        return report_text(self)


def _host_row(data: Mapping[str, Any]) -> HostRow:
    reasons = tuple(Remark.from_dict(r) for r in data["reasons"])
    return HostRow(**{**data, **_tuples(data), "reasons": reasons})


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that JSON has made lists of."""
    return {"sources": tuple(data["sources"]), "position": tuple(data["position"])}


def _total(offloaded: float, host: float) -> dict[str, float]:
    whole = offloaded + host
    return {"offloaded": offloaded, "host": host, "share": offloaded / whole if whole else 1.0}
