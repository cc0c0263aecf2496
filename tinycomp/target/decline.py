"""What a code generator cannot compile goes to the next target: the answer, and all nodes that it is about.

A code generator notes on its exceptions which nodes it was compiling (:func:`blame`). Where it does not, the shortest
beginning of the region that fails names the node at its end. What is left of the region without the nodes found is
tried again until it compiles, so that a region is declined only once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from tinycomp.errors import ModelError, TargetError, TinycompError, VerifyError
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import without_contents
from tinycomp.remark import Remark, reject

VARIABLE = "TINYCOMP_LOWERING_ERRORS"
"""The environment variable that, set to anything but 0, makes failures of our own rules and lowerings errors."""
_NOTE = "tinycomp_nodes"
_MOST_ATTEMPTS = 64
"""A region with which as many attempts fail is given back as a whole."""


class Decline(TinycompError):  # noqa: N818 - not an error of the user's, but an answer of a code generator
    """Raised by a code generator that cannot compile a region, which then goes to the next target or to the host.

    Args:
        reason: The reason, as one clause for the report.
        places: Where the nodes that it cannot compile stand in the region's body, if the target keeps the others.

    Attributes:
        reason: The reason.
        places: The places; empty if it declines the whole region.
        region: The region; set where the exception leaves the code generator.
        is_failure: Whether the code generator should have been able to compile it.
    """

    def __init__(self, reason: str, places: Sequence[int] = ()) -> None:
        self.reason = reason
        self.places = tuple(places)
        self.region: Node | None = None
        self.is_failure = False
        super().__init__(
            f"the code generator declined a region: {reason}",
            hint="Refuse such a region while the model is compiled: see Target.region_check.",
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the reason and the places without the region."""
        return Decline, (self.reason, self.places)


def are_errors() -> bool:
    """Tell whether failures of our own lowerings are errors: in tests they are, for a user a node goes to the host."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def blame(error: Exception, *nodes: Node) -> None:
    """Note on an exception what was being compiled: nodes of a body before the one that the body belongs to."""
    error.__dict__.setdefault(_NOTE, []).append(nodes)


def is_failure(error: Exception) -> bool:
    """Tell whether an error is a fault of the code generator, rather than of an option, a limit or a file."""
    root = _root(error)
    ours = (TargetError, ModelError, VerifyError)
    return not isinstance(root, MemoryError) and (isinstance(root, ours) or not isinstance(root, TinycompError))


def log(where: str, reason: str) -> None:
    """Warn that nodes will run elsewhere than they should."""
    import logging  # imported here, because few programs need it

    logging.getLogger("tinycomp.lowering").warning(
        "%s: %s. The nodes concerned are left to other targets or the host; please report this.", where, reason
    )


def refused(error: Exception, where: str) -> Remark:
    """Return the refusal of a check that fails, or raise the error again where failures are errors."""
    if are_errors():
        raise error
    reason = f"its check failed: {type(error).__name__}: {error}"
    log(where, reason)
    return reject(reason)


def declined_for(body: Graph, error: Exception, attempt: Callable[[Graph], Exception | None]) -> Decline:
    """Return the answer that declines all nodes of a region that cannot be compiled, with the reason of the first.

    Args:
        body: The graph of the region.
        error: What compiling it has raised.
        attempt: Compiles a graph, which may be changed, and returns what that raises; None if it succeeds.
    """
    root = _root(error)
    said = root.reason if isinstance(root, Decline) else f"{type(root).__name__}: {root}"
    inner = next(iter(_blamed(error)), ())
    reason = said if isinstance(root, Decline) else f"its lowering failed at {_named(inner)}{said}"
    places = {value.name: place for place, node in enumerate(body.nodes) for value in node.used_outputs()}
    declined = Decline(reason, sorted(_places(body.clone(), error, attempt, places)))
    declined.is_failure = not isinstance(root, Decline)
    return declined


def _places(
    left: Graph, error: Exception | None, attempt: Callable[[Graph], Exception | None], places: dict[str, int]
) -> set[int]:
    found: set[int] = set()
    attempts = 0

    def attempted(graph: Graph) -> Exception | None:
        nonlocal attempts
        attempts += 1
        return attempt(graph) if graph.outputs else None

    while error is not None:
        guilty = _named_in(left, error) or _shortest(left, attempted)
        if not guilty or attempts > _MOST_ATTEMPTS:
            return set()
        found |= {places[value.name] for node in guilty for value in node.used_outputs()}
        _cut(left, guilty)
        error = attempted(left.clone())
    return found


def _blamed(error: BaseException) -> list[tuple[Node, ...]]:
    """Return the nodes that are named on an exception, those in bodies first."""
    return [nodes for each in reversed([*_chain(error)]) for nodes in each.__dict__.get(_NOTE, ())]


def _named_in(graph: Graph, error: Exception) -> list[Node]:
    """Return the nodes of a graph that an exception names, which has seen a copy of them."""
    root = _root(error)
    if isinstance(root, Decline) and root.places:
        return [graph.nodes[place] for place in root.places]
    blamed = _blamed(error)
    names = {value.name for node in (blamed[-1] if blamed else ()) for value in node.used_outputs()}
    sources = {source for node in (blamed[-1] if blamed else ()) for source in node.sources}
    named = [node for node in graph.nodes if not names.isdisjoint([v.name for v in node.used_outputs()])]
    named = named or [node for node in graph.nodes if not sources.isdisjoint(node.sources)]
    return named if len(named) == 1 else []  # one of several that run as one


def _shortest(graph: Graph, attempt: Callable[[Graph], Exception | None]) -> list[Node]:
    """Return the last node of a short beginning of the graph that fails, where the part before it does not."""
    nodes = graph.nodes
    good, bad = 0, len(nodes)
    while bad - good > 1:
        middle = (good + bad) // 2
        part = graph.clone()
        _cut(part, part.nodes[middle:])
        if attempt(part) is None:
            good = middle
        else:
            bad = middle
    return nodes[good:bad]


def _cut(graph: Graph, nodes: list[Node]) -> None:
    """Erase nodes: what they read becomes results of the graph, and what others read of them its inputs."""
    cut = set(nodes)
    wanted = dict.fromkeys([*graph.outputs, *[v for node in nodes for v in node.inputs if v is not None]])
    graph.set_outputs([v for v in wanted if v.producer is not None and v.producer not in cut])
    for node in reversed(nodes):
        for value in node.used_outputs():
            if value.users:
                graph.replace_uses(value, graph.add_input(graph.fresh(value.name), without_contents(value.type)))
        graph.erase(node)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what caused it, the last effect first."""
    while error is not None:
        yield error
        error = error.__cause__


def _root(error: BaseException) -> BaseException:
    """Return the answer of the code generator if there is one, else what made it fail."""
    *_, root = _chain(error)
    return next((each for each in _chain(error) if isinstance(each, Decline)), root)


def _named(nodes: tuple[Node, ...]) -> str:
    return "" if not nodes else f"{' + '.join(node.label for node in nodes)} ({nodes[-1].qualified_op}): "
