"""Where a user wants nodes to run, whatever the targets would do by themselves.

A placement is written as a dict: what names nodes (a source name, an operator, a glob for either, or a predicate on the
node), and the target that they belong on, or ``"host"``. Of several entries for one node the first counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tinycomp.errors import OptionError, did_you_mean, shown
from tinycomp.ir.graph import Graph, Node
from tinycomp.records import dataclass
from tinycomp.target.policy import match, operators

HOST = "host"
"""The name of no target at all: everything runs on the numpy kernels."""
Which = str | Callable[[Node], object]
"""A source name, an operator, a glob for either, or a predicate."""
_EXAMPLE = 'a dict such as {"encoder/*": "npu", "Softmax": "host"}'


@dataclass(frozen=True)
class Place:
    """Say where nodes belong.

    Attributes:
        which: The nodes.
        target: Name of a target, or ``"host"``.
    """

    which: Which
    target: str

    def holds(self, node: Node) -> bool:
        """Tell whether the node is one of them."""
        if callable(self.which):
            return bool(self.which(node))
        return match((self.which,), (*node.sources, *operators(node))) is not None

    def __str__(self) -> str:
        which = getattr(self.which, "__name__", "a predicate") if callable(self.which) else f'"{self.which}"'
        return f"{which}: {self.target}"


@dataclass(frozen=True)
class Placement:
    """Hold where nodes belong; of several places for one node the first counts.

    Attributes:
        places: The places, in the order in which they are asked.
    """

    places: tuple[Place, ...] = ()

    @classmethod
    def read(cls, place: Mapping[Which, str], targets: Iterable[str]) -> Placement:
        """Return what a dict says.

        Raises:
            OptionError: If it is no such dict, or names another target.
        """
        known = [*targets, HOST]
        if not isinstance(place, Mapping):
            raise OptionError("not a placement", where="place", expected=_EXAMPLE, found=shown(place))
        for which, target in place.items():
            if not isinstance(which, str) and not callable(which):
                raise OptionError(
                    "this names no nodes", where="place", expected="a name, an operator, a glob, or a predicate",
                    found=shown(which),
                )  # fmt: skip
            if target not in known:
                raise OptionError(
                    f'"{target}" is not a target of this compilation', where=f"place, {Place(which, target)}",
                    expected=f"one of {', '.join(known)}", hint=did_you_mean(str(target), known),
                )  # fmt: skip
        return cls(tuple(Place(which, target) for which, target in place.items()))

    def of(self, node: Node) -> Place | None:
        """Return where ``node`` belongs; None if that is left to the targets."""
        return next((place for place in self.places if place.holds(node)), None)

    def excluded(self, graph: Graph, target: str) -> dict[Node, str]:
        """Return the nodes of ``graph`` that belong elsewhere than on ``target``, and why."""
        if not self.places:
            return {}
        found = ((node, self.of(node)) for node in graph.nodes)
        return {node: f"placed by {place}" for node, place in found if place is not None and place.target != target}

    def check(self, graph: Graph) -> None:
        """Make sure that every place has nodes in a model, before anything is optimised away.

        Raises:
            OptionError: If one has none.
        """
        nodes = [node for _, node in graph.walk()]
        for place in self.places:
            if not any(map(place.holds, nodes)):
                names = dict.fromkeys(name for node in nodes for name in (*node.sources, node.op))
                hint = did_you_mean(place.which, names) if isinstance(place.which, str) else ""
                raise OptionError(
                    "no node of the model is meant", where=f"place, {place}",
                    expected="names of nodes, operators, globs for them, or a predicate that some node fulfils",
                    hint=hint,
                )  # fmt: skip
