"""Checks of a partitioned graph: nodes run where the caller placed them and, if asked for, none runs on the host."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.errors import FallbackError, PlacementError
from tinycomp.ir.graph import Graph, Node
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_duplicable, is_structural
from tinycomp.target import Target
from tinycomp.target.placement import HOST, Place


def refuse_misplaced(targets: Sequence[Target], partitioned: Graph) -> None:
    """Raise if a node runs elsewhere than the placement of the targets says.

    Raises:
        PlacementError: If there is one; the message says for each what kept it away.
    """
    placement = targets[0].placement
    kept: set[tuple[str, ...]] = set()
    wrong: list[tuple[Node, Place, str]] = []
    for scope in open_graphs(partitioned):
        for outer in scope.nodes:
            for node in outer.operators():
                place, where = placement.of(node), outer.target or HOST
                if place is not None and place.target == where:
                    kept.add(node.sources)
                elif place is not None and not is_structural(node):
                    wrong.append((node, place, where))
    # Cheap nodes are copied for their users: it is enough that one copy runs where it was placed.
    wrong = [each for each in wrong if not (is_duplicable(each[0]) and each[0].sources in kept)]
    if wrong:
        found = [_misplaced(node, place, where, partitioned.remarks) for node, place, where in wrong]
        raise PlacementError(
            f"{len(wrong)} node(s) cannot run where they were placed",
            where=partitioned.name,
            expected=", ".join(dict.fromkeys(str(place) for _, place, _ in wrong)),
            found="; ".join(found[:10]) + (f"; and {len(found) - 10} more" if len(found) > 10 else ""),
            hint="Leave the entry out, or place the node where a target takes it.",
        )


def _misplaced(node: Node, place: Place, where: str, remarks: Sequence[Remark]) -> str:
    about = [r for r in remarks if r.target == place.target and not set(node.sources).isdisjoint(r.sources)]
    reason = max(reversed(about), key=lambda r: r.progress, default="no reason recorded")
    return f"{node.label} ({node.qualified_op}) on {'the host' if where == HOST else where}: {reason}"


def refuse_fallback(targets: Sequence[Target], partitioned: Graph) -> None:
    """Raise if a node runs on the host that does more than pack or unpack sequences and optionals at the border.

    Raises:
        FallbackError: If there is one; the message says for each why no target takes it.
    """
    from tinycomp.driver.report import make_report  # imported here, because few programs are strict
    from tinycomp.runtime.rows import BORDER

    report = make_report(partitioned, partitioned.name, [t.name for t in targets])
    left = [h for h in report.hosts if h.tier != BORDER]
    if not left:
        return
    rows = [f"{h.name} ({h.op}): {h.reasons[0] if h.reasons else 'no reason recorded'}" for h in left]
    raise FallbackError(
        f"{len(rows)} node(s) would run on the host",
        where=partitioned.name,
        expected=f"every node on {', '.join(t.name for t in targets) or 'a target'}",
        found="; ".join(rows[:10]) + (f"; and {len(rows) - 10} more" if len(rows) > 10 else ""),
        hint="Compile without strict=True, or add a target that takes them.",
    )
