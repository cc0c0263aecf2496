"""The cost of work on a target, and of moving values to and from its memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tinycomp.errors import TargetError, shown
from tinycomp.ir.graph import Node
from tinycomp.ir.types import tensor
from tinycomp.records import dataclass, field
from tinycomp.target.policy import macs, sample_bytes
from tinycomp.target.region import Region

HOST_MEMORY = "host"
"""The memory of the host, where the inputs of a model come from and its results go."""


@dataclass(frozen=True)
class Link:
    """A way between two memories.

    Attributes:
        bandwidth: Bytes per second.
        latency: Seconds per value that is moved.
    """

    bandwidth: float = math.inf
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0 or self.latency < 0:
            raise TargetError(
                "a link has a bandwidth above zero and a latency of zero or more", where="Link", found=shown(self)
            )

    def seconds(self, size: int) -> float:
        """Return how long it takes to move a value of ``size`` bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Cost:
    """What it costs to compute on a target.

    Attributes:
        seconds: Says how long a node takes; composites are nodes with a body, and dimensions may be symbols.
        launch: Seconds to start one region.
        memory: Name of the memory that it computes in: that of other targets with the same name, or ``"host"``.
        link: The way between this memory and the host's.
        links: Ways to memories of other targets, by their names; without one, values go through the host's memory.
        region: Says how long a whole :class:`~tinycomp.target.Region` takes, its launch left out, where that is not
            what its nodes take one by one: where values that stay inside are not moved, or time is spent per region. It
            is asked before composites are made. ``seconds`` then is what the search is guided by.
    """

    seconds: Callable[[Node], float]
    launch: float = 0.0
    memory: str = HOST_MEMORY
    link: Link = field(default_factory=Link)
    links: Mapping[str, Link] = field(default_factory=lambda: MappingProxyType({}))
    region: Callable[[Region], float] | None = None

    def of(self, node: Node, where: str) -> float:
        """Return the seconds of a node.

        Raises:
            TargetError: If the function fails, or gives something that is not a number of zero or more.
        """
        return _told(lambda: self.seconds(node), f"{where} at {node.label}")

    def of_region(self, region: Region, where: str) -> float:
        """Return the seconds of a region, by :attr:`region`.

        Raises:
            TargetError: If the function fails, or gives something that is not a number of zero or more.
        """
        assert self.region is not None, where
        judge = self.region
        return _told(lambda: judge(region), f"{where} at {region.label}")

    def transfer(self, other: Cost, size: int) -> float:
        """Return how long it takes to move a value of ``size`` bytes from this memory to that of ``other``."""
        if self.memory == other.memory:
            return 0.0
        direct = self.links.get(other.memory) or other.links.get(self.memory)
        if direct is not None:
            return direct.seconds(size)
        return sum(each.link.seconds(size) for each in (self, other) if each.memory != HOST_MEMORY)


def _told(answer: Callable[[], float], where: str) -> float:
    """Return the answer of a target's function, a number of seconds."""
    try:
        seconds = float(answer())
    except Exception as error:
        raise TargetError(
            f"the cost cannot be told: {type(error).__name__}: {error}", where=where,
            hint="Types may be symbolic or unknown; count unknown sizes as 1.",
        ) from error  # fmt: skip
    if not 0 <= seconds < math.inf:
        raise TargetError("not a cost", where=where, expected="seconds, zero or more", found=str(seconds))
    return seconds


def roofline(macs_per_second: float, bytes_per_second: float, overhead: float = 0.0) -> Callable[[Node], float]:
    """Return an estimate for :class:`Cost`: what is longer, computing or moving operands and results.

    Args:
        macs_per_second: Multiply-accumulates per second.
        bytes_per_second: Bytes per second between the target and its own memory.
        overhead: Seconds per node.
    """

    def seconds(node: Node) -> float:
        values = [v for v in (*node.inputs, *node.used_outputs()) if v is not None]
        moved = sum(tensor(v.type).nbytes() for v in values)
        return overhead + max(macs([node]) / macs_per_second, moved / bytes_per_second)

    return seconds


def fused_roofline(macs_per_second: float, bytes_per_second: float, overhead: float = 0.0) -> Callable[[Region], float]:
    """Return an estimate for :attr:`Cost.region`: as :func:`roofline`, but values inside a region are not moved."""

    def seconds(region: Region) -> float:
        moved = region.constant_bytes + sum(map(sample_bytes, (*region.inputs, *region.outputs)))
        return overhead * len(region.nodes) + max(region.macs / macs_per_second, moved / bytes_per_second)

    return seconds


HOST_COST = Cost(roofline(2e9, 2e9, 1e-5))
"""A rough guess for the numpy kernels."""
