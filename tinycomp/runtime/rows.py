"""The rows of a report: what it says of a region, of a node left on the host, of a layer, a copy or a device."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.runtime.plan import Position


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
        figures: What the target's compiler estimates of the region, by name.
        layer_figures: The same of its layers, by their names.
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
    figures: Mapping[str, float] = field(default_factory=dict)
    layer_figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


BORDER = "border"
"""The tier of nodes between a caller's containers and tensors, which no target could run."""


@dataclass(frozen=True)
class HostRow:
    """One node that stayed on the host.

    Attributes:
        name: Source name.
        op: Operator.
        tier: ``"numpy"`` or ``"reference"``; or ``"border"`` for one that only takes apart a sequence or an optional
            that a caller hands in, or puts together one that a caller gets.
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
class ViolationRow:
    """What a quantised layer does that a target's quantisation rules do not allow.

    Attributes:
        target: The target.
        layer: Name of the layer's operator.
        op: The operator.
        sources: Source names of the node.
        reason: What was expected and what was found.
        remedy: What would mend it.
    """

    target: str
    layer: str
    op: str
    sources: tuple[str, ...]
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.layer} ({self.op}) on {self.target}: {self.reason}; {self.remedy}"


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
class CopyRow:
    """A copy between the host and a device, or between two devices, that every run makes.

    Attributes:
        value: Name of what is copied.
        source: ``"host"``, or the target whose device made it.
        destination: ``"host"``, or the target whose device needs it.
        region: Symbol of the region that it is copied for: the one that reads it, or made it for the host.
        bytes: Bytes; sizes that are not known count as 1.
    """

    value: str
    source: str
    destination: str
    region: str
    bytes: int


@dataclass(frozen=True)
class DeviceRow:
    """What a module has had a device do so far.

    Attributes:
        device: Name of the device.
        target: The target that it belongs to.
        requests: Runs of the module that used it.
        runs: Regions that it has run.
        faults: Commands that failed or did not end in time.
        retries: Regions that were run again.
        fallbacks: Regions that ran on the numpy kernels instead.
        copies_in: Copies from the host.
        bytes_in: Their bytes.
        copies_out: Copies to the host.
        bytes_out: Their bytes.
        copies_across: Copies from other devices, directly.
        bytes_across: Their bytes.
    """

    device: str
    target: str
    requests: int = 0
    runs: int = 0
    faults: int = 0
    retries: int = 0
    fallbacks: int = 0
    copies_in: int = 0
    bytes_in: int = 0
    copies_out: int = 0
    bytes_out: int = 0
    copies_across: int = 0
    bytes_across: int = 0
