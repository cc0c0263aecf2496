"""Policies: which regions are worth offloading, by sizes, counts, costs and exclusions.

A policy never takes a region apart: it accepts the whole region, or gives all of it back with a reason.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from tinycomp.arguments import checked_fields
from tinycomp.errors import OptionError, TargetError, did_you_mean, shown
from tinycomp.ir.graph import Graph, Node, Value, reachable
from tinycomp.ir.types import TensorType, tensor
from tinycomp.ops import OPS
from tinycomp.records import dataclass, fields
from tinycomp.rewrite.traits import is_structural
from tinycomp.symbolic import Size, sample, size, substitute

_N = TypeVar("_N", int, float)


@checked_fields(TargetError)
@dataclass(frozen=True, slots=True)
class TransferCost:
    """The cost of reaching the target, and the gain there.

    Attributes:
        bandwidth: Bytes per second between host and target.
        launch: Seconds to start one region.
        host_speed: Multiply-accumulates per second on the host.
        target_speed: The same on the target.
    """

    bandwidth: float
    launch: float = 0.0
    host_speed: float = 1e9
    target_speed: float = 1e12

    def __post_init__(self) -> None:
        if min(self.bandwidth, self.host_speed, self.target_speed) <= 0 or self.launch < 0:
            raise TargetError("a transfer cost needs speeds above zero", where="TransferCost", found=shown(self))

    def loss(self, macs: int, transferred: int) -> float:
        """Return how many seconds offloading costs in total; negative if it saves time."""
        saved = macs / self.host_speed - macs / self.target_speed
        return transferred / self.bandwidth + self.launch - saved


@checked_fields()
@dataclass(frozen=True, slots=True)
class Policy:
    """Conditions on the regions of a target.

    Attributes:
        min_nodes: The fewest nodes of a region; operators inside a composite count, structural ones do not.
        min_macs: The fewest multiply-accumulates; a dimension of unknown size counts as its upper bound, or as 1 if it
            has none.
        max_regions: The most regions of the target in one graph (each body is a graph of its own); the largest stay.
        transfer: Costs, for regions that must save more time than transfers take; None for no such condition.
        exclude: Source names and operators (globs such as ``"decoder/*"`` or ``"Softmax"``) that stay on the host.
        host_after: Source names (globs); everything that depends on one of these nodes stays on the host.
    """

    min_nodes: int = 1
    min_macs: int = 0
    max_regions: int | None = None
    transfer: TransferCost | None = None
    exclude: tuple[str, ...] = ()
    host_after: tuple[str, ...] = ()

    def excluded(self, graph: Graph) -> dict[Node, str]:
        """Return the nodes of ``graph`` that must stay on the host, in its order, with the reason."""
        if not (self.exclude or self.host_after):
            return {}
        nodes = graph.nodes
        reasons: dict[Node, str] = {}
        for glob in self.host_after:
            named = [node for node in nodes if match((glob,), node.sources)]
            behind = reachable(graph.connectivity, (user for node in named for user in graph.successors(node)))
            reasons |= dict.fromkeys(behind - reasons.keys(), f"host_after: depends on {glob}")
        for node in nodes:
            excluding = match(self.exclude, (*node.sources, *operators(node)))
            if excluding is not None:
                reasons.setdefault(node, f"excluded by {excluding}")
        return {node: reasons[node] for node in nodes if node in reasons}

    def refusal(self, graph: Graph, region: Sequence[Node]) -> tuple[str, str] | None:
        """Return rule and reason why ``region`` is not worth offloading by itself, or None."""
        size = sum(1 for _ in itertools.islice((op for n in region for op in operators(n)), max(self.min_nodes, 0)))
        if size < self.min_nodes:
            return "min_nodes", f"the region has {size} node(s), fewer than {self.min_nodes}"
        work = macs(region) if self.min_macs or self.transfer is not None else 0
        if work < self.min_macs:
            return "min_macs", f"the region has {work} MACs, fewer than {self.min_macs}"
        if self.transfer is not None:
            volume = transferred_bytes(graph, region)
            loss = self.transfer.loss(work, volume)
            if loss > 0:
                return "transfer", f"moving {volume} bytes costs {loss * 1e6:.3g} us more than the target saves"
        return None

    def surplus(self, regions: Sequence[Sequence[Node]]) -> list[int]:
        """Return the indices of the regions that exceed :attr:`max_regions`: the ones with the least work."""
        if self.max_regions is None or len(regions) <= self.max_regions:
            return []
        by_work = sorted(range(len(regions)), key=lambda i: (-macs(regions[i]), -len(regions[i]), i))
        return sorted(by_work[self.max_regions :])


_COSTS = tuple(field.name for field in fields(TransferCost))
_GLOBS = ("exclude", "host_after")
_KEYS = tuple(field.name for field in fields(Policy) if field.name != "transfer") + _COSTS


def read_policy(text: str, where: str) -> Policy:
    """Return the policy that a text such as ``min_nodes=2,exclude=Softmax+head/*`` describes.

    Several globs are joined by ``+``; the fields of a :class:`TransferCost` are given like those of the policy.

    Raises:
        OptionError: If the text is not of that form, or does not describe a policy.
    """
    policy: dict[str, Any] = {}
    costs: dict[str, float] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        name = key.strip().replace("-", "_")
        if not equals:
            raise OptionError("cannot read a policy", where=where, expected="FIELD=VALUE", found=part or "nothing")
        if name not in _KEYS:
            raise OptionError(
                f'a policy has no "{name}"', where=where, expected=f"one of {', '.join(_KEYS)}",
                hint=did_you_mean(name, _KEYS),
            )  # fmt: skip
        if name in _GLOBS:
            policy[name] = tuple(value.strip().split("+"))
        elif name in _COSTS:
            costs[name] = _number(float, value, f"{where}, {name}")
        else:
            policy[name] = _number(int, value, f"{where}, {name}")
    if costs and "bandwidth" not in costs:
        raise OptionError("a cost of transfers needs a bandwidth", where=where, expected="bandwidth=…", found=text)
    return Policy(**policy, transfer=TransferCost(**costs) if costs else None)


def _number(kind: type[_N], text: str, where: str) -> _N:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise OptionError("not a number", where=where, expected=what, found=text) from None


def match(globs: Iterable[str], texts: Sequence[str]) -> str | None:
    """Return the first of ``globs`` that one of ``texts`` matches, or None."""
    return next((g for g in globs if any(fnmatch.fnmatchcase(t, g) for t in texts)), None)


def operators(node: Node) -> list[str]:
    """Return the operators that ``node`` stands for, without those that compute nothing."""
    return [n.op for n in node.operators() if not is_structural(n)]


def macs(nodes: Iterable[Node], sizes: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the multiply-accumulates of ``nodes``, bodies of composites included.

    Args:
        nodes: The nodes.
        sizes: Sizes by symbol; other symbols count as in :func:`tinycomp.symbolic.sample`: as their upper bound, or as
            1 if they have none, also where an image of 1 is smaller than a window and nothing can be computed.
    """
    found = symbolic_macs(nodes)
    return max(found if isinstance(found, int) else sample(substitute(found, sizes)), 0)


def symbolic_macs(nodes: Iterable[Node]) -> Size:
    """Return the multiply-accumulates of ``nodes`` as an expression over sizes."""
    total: Size = 0
    for node in itertools.chain.from_iterable(n.operators() for n in nodes):
        record = OPS.find(node.op, node.domain, node.version)
        total += record.macs(node) if record is not None and record.macs is not None else 0
    return total


def transferred_bytes(graph: Graph, region: Sequence[Node]) -> int:
    """Return the bytes that cross the region's border at run time; constants stay on the target."""
    inside = set(region)
    crossing: dict[Value, None] = {}
    for node in region:
        outside = (v for v in node.inputs if v is not None and not v.is_const and v.producer not in inside)
        crossing |= dict.fromkeys(outside)
        crossing |= dict.fromkeys(v for v in node.outputs if graph.is_output(v) or not inside.issuperset(v.users))
    return sum(map(sample_bytes, crossing))


def sample_bytes(value: Value, sizes: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the bytes of a value, counting symbols as :func:`macs` does and unknown sizes as 1."""
    type_ = tensor(value.type)
    dims = tuple(1 if dim is None else max(sample(substitute(size(dim), sizes)), 0) for dim in type_.shape or ())
    return TensorType(type_.dtype, dims).nbytes()
