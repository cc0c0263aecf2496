"""The search for advice: which changes take what is in the way, and which of them gain something.

Every change is tried by partitioning a copy of the model with it. For each operator that stands between two regions of
a target, or has work that the target does not do, changes are tried from the smallest one on until the target takes the
operator. Then the changes for all operators of a border are tried together, without those that turn out not to matter.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tinycomp.driver.advice.borders import Borders, find_borders
from tinycomp.driver.advice.case import Case, abridged, by_source, form
from tinycomp.driver.advice.composites import composite_changes
from tinycomp.driver.advice.model import model_changes
from tinycomp.driver.advice.options import option_changes
from tinycomp.driver.advice.rules import ORDINARY, rule_changes
from tinycomp.driver.advice.setup import Change, Outcome, Setup, changed
from tinycomp.ir.graph import Node
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.runtime.advice import Advice, AdviceList

_Changes = tuple[Change, ...]
_NAMED = 3
"""Nodes named in the text of advice."""


class _CutError(Exception):
    """The limit of an adviser has been reached."""


def advise(setup: Setup, trials: int, seconds: float) -> AdviceList:
    """Return changes that give a model fewer regions, or a target more of its work; the smallest change first.

    Args:
        setup: What was compiled; its graph is changed.
        trials: Most partitions to try.
        seconds: Time after which no further one is tried.

    Raises:
        TinycompError: If the model cannot be partitioned as it is.
    """
    if setup.optimize:
        FoldConstants().run(setup.graph)  # as every trial would
    for _, node in setup.graph.walk():
        node.sources = node.sources or (node.label,)
    search = _Search(setup, trials, time.monotonic() + seconds, seconds)
    cut = ""
    try:
        for target in setup.targets:
            _Adviser(search, target.name).run()
    except _CutError as limit:
        cut = str(limit)
    return AdviceList(tuple(search.ranked()), search.made, cut)


@dataclass(frozen=True)
class _Gain:
    """What a change gains.

    Attributes:
        regions: Regions less, of all targets.
        macs: Multiply-accumulates more on the target.
        host: Multiply-accumulates less on the host. Padding makes more work; this does not count that.
        lost: Multiply-accumulates less on targets that come before.
    """

    regions: int = 0
    macs: int = 0
    host: int = 0
    lost: int = 0

    def __bool__(self) -> bool:
        if self.lost > 0 or self.macs < 0:
            return False
        return self.regions > 0 or self.host > 0 or (self.macs > 0 and self.regions >= 0)

    def exceeds(self, others: Iterable[_Gain]) -> bool:
        """Tell whether it is more than that of other changes one by one."""
        gains = [gain for gain in others if gain]
        return self.regions > sum(g.regions for g in gains) or self.macs > sum(g.macs for g in gains)


@dataclass
class _Search:
    """The trials that were made, and the advice that came of them."""

    setup: Setup
    limit: int
    deadline: float
    seconds: float
    made: int = 0
    befores: dict[tuple[tuple[str, int], ...], Outcome] = field(default_factory=dict)
    outcomes: dict[frozenset[Change], Outcome | None] = field(default_factory=dict)
    advice: dict[tuple[str, frozenset[Change]], tuple[int, Advice]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.partitioned = self.setup.partitioned()
        self.optimized = self.setup.optimized()

    def _before(self, after: Outcome) -> Outcome:
        """Return what the model is without changes, for the sizes that an outcome is counted for."""
        key = tuple(after.sizes.items())
        if key not in self.befores:
            self.befores[key] = Outcome.of(self.partitioned, after.sizes)
        return self.befores[key]

    def outcome(self, changes: _Changes) -> Outcome | None:
        """Return what the model becomes with changes; None if it cannot be partitioned with them.

        Raises:
            _CutError: If that would exceed a limit.
        """
        key = frozenset(changes)
        if key not in self.outcomes:
            setup = changed(self.setup, changes)
            self.outcomes[key] = None if setup is None else self._tried(setup)
        return self.outcomes[key]

    def _tried(self, setup: Setup) -> Outcome | None:
        if self.made >= self.limit:
            raise _CutError(f"{self.limit} trials are the limit")
        if time.monotonic() > self.deadline:
            raise _CutError(f"{self.seconds:g} seconds are over")
        self.made += 1
        try:
            return Outcome.of(setup.partitioned(), setup.sizes)
        except Exception:  # rules and checks may fail at what a change makes of the model: then the change is none
            return None

    def gain(self, changes: _Changes, target: str) -> _Gain:
        """Return what changes gain for a target."""
        after = self.outcome(changes)
        if after is None:
            return _Gain()
        before = self._before(after)
        names = [each.name for each in self.setup.targets]
        return _Gain(
            before.regions - after.regions,
            after.macs(target) - before.macs(target),
            before.macs(None) - after.macs(None),
            sum(before.macs(name) - after.macs(name) for name in names[: names.index(target)]),
        )

    def add(self, changes: _Changes, target: str, nodes: Sequence[Node]) -> None:
        """Keep changes as advice."""
        after = self.outcome(changes)
        if after is None:
            return
        before = self._before(after)
        setup = self.setup
        names = tuple(dict.fromkeys(source for node in nodes for source in node.sources))
        made = Advice(
            kind=" + ".join(dict.fromkeys(c.kind for c in changes)),
            target=target,
            nodes=names,
            text=_sentence(names, dict.fromkeys(c.reason for c in changes)),
            change="; ".join(c.action for c in changes),
            regions_before=before.regions,
            regions_after=after.regions,
            macs_before=before.macs(target),
            macs_after=after.macs(target),
            _arguments=lambda: _arguments(setup, changes),
        )
        self.advice[target, frozenset(changes)] = sum(c.effort for c in changes), made

    def ranked(self) -> Iterator[Advice]:
        """Yield the advice in order."""
        rows = sorted(self.advice.values(), key=lambda row: (row[0], *_worth(row[1])))
        yield from (advice for _, advice in rows)


def _worth(advice: Advice) -> tuple[int, int]:
    return advice.regions_after - advice.regions_before, advice.macs_before - advice.macs_after


def _sentence(names: Sequence[str], reasons: Iterable[str]) -> str:
    more = len(names) - _NAMED
    shown = [*map(abridged, names[:_NAMED]), *([f"{more} more"] if more > 0 else [])]
    subject = " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
    return f"{subject} {'is' if len(names) == 1 else 'are'} in the way: {'; '.join(reasons)}."


def _arguments(setup: Setup, changes: _Changes) -> dict[str, Any]:
    made = changed(setup, changes)
    assert made is not None, "the trial was possible"
    return made.arguments()


class _Adviser:
    """The search for advice on one target."""

    def __init__(self, search: _Search, target: str) -> None:
        self.search = search
        self.target = target
        names = [each.name for each in search.setup.targets]
        self.borders: Borders = find_borders(search.partitioned, target, names[names.index(target) + 1 :])
        self.remarks = by_source(search.partitioned.remarks, target)
        self.alone = {nodes[0] for nodes in self.borders.sets if len(nodes) == 1}
        self.gains: dict[frozenset[Change], _Gain] = {}

    def run(self) -> None:
        """Add advice to the search.

        Raises:
            _CutError: If a limit is reached.
        """
        alike: dict[tuple[str, str], list[Node]] = {}
        for node in self.borders.obstacles:
            alike.setdefault(self._likeness(node), []).append(node)
        promising = sorted(alike.values(), key=len, reverse=True)
        chosen = {node: change for nodes in promising for node, change in self._choose_alike(nodes).items()}
        for nodes in self.borders.sets:
            wanted = [chosen[node] for node in nodes]
            changes = tuple(dict.fromkeys(change for change in wanted if change is not None))
            if None not in wanted and len(changes) > 1:
                self._try_together(changes)

    def _choose_alike(self, nodes: Sequence[Node]) -> dict[Node, Change | None]:
        """Return changes for operators that are refused for the same reason, mostly the same one for all."""
        chosen: dict[Node, Change | None] = {}
        found: dict[Change, None] = {}
        for node in sorted(nodes, key=lambda node: node not in self.alone):
            known = next((change for change in found if self._suffices(change, node)), None)
            chosen[node] = known or self._choose(self._case(node, nodes))
            found |= {change: None for change in (chosen[node],) if change is not None}
        return chosen

    def _suffices(self, change: Change, node: Node) -> bool:
        """Tell whether a change brings an operator to the target, and removes its border if it can by itself."""
        after = self.search.outcome((change,))
        if after is None or not after.takes(self.target, node):
            return False
        return node not in self.alone or self._gain((change,)).regions > 0

    def _case(self, node: Node, alike: Sequence[Node]) -> Case:
        setup = self.search.setup
        return Case(setup, self.search.optimized, node, setup.target(self.target), self._reasons(node), alike)

    def _reasons(self, node: Node) -> list[Remark]:
        """Return the remarks on a node, the nearest misses first."""
        remarks = dict.fromkeys(r for source in node.sources for r in self.remarks.get(source, ()))
        return sorted(remarks, key=lambda remark: -remark.progress)

    def _likeness(self, node: Node) -> tuple[str, str]:
        """Return what nodes that are refused for the same reason have in common."""
        return node.qualified_op, form(next((remark.reason for remark in self._reasons(node)), ""))

    def _choose(self, case: Case) -> Change | None:
        """Return the smallest change with which the target takes an operator, by itself if it can remove a border."""
        first: Change | None = None
        for change in _changes(case):
            after = self.search.outcome((change,))
            if after is None or not after.takes(self.target, case.node):
                continue
            gain = self._gain((change,))
            if gain and (first is None or gain.exceeds([self._gain((first,))])):
                self._add((change,))
            first = first or change
            if gain.regions > 0 or case.node not in self.alone:
                return change if gain.regions > 0 else first
        return first

    def _try_together(self, changes: _Changes) -> None:
        """Add advice on several changes, without those that do not matter, if they gain more than one by one."""
        gain = self._gain(changes)
        if gain.regions <= 0 and gain.macs <= 0:
            return
        for change in changes:
            rest = tuple(c for c in changes if c is not change)
            if len(rest) > 1 and not gain.exceeds([self._gain(rest)]):
                changes, gain = rest, self._gain(rest)
        parts = [gain for made, gain in self.gains.items() if made <= frozenset(changes)]
        if gain and gain.exceeds(parts):
            self._add(changes)

    def _gain(self, changes: _Changes) -> _Gain:
        return self.search.gain(changes, self.target)

    def _add(self, changes: _Changes) -> None:
        after = self.search.outcome(changes)
        assert after is not None, "what gains something has an outcome"
        self.gains[frozenset(changes)] = self._gain(changes)
        taken = [node for node in self.borders.obstacles if after.takes(self.target, node)]
        self.search.add(changes, self.target, taken)


def _changes(case: Case) -> Iterator[Change]:
    """Yield what may bring a node to the target, the smallest change first; what takes long to find is found late."""
    yield from option_changes(case)
    yield from model_changes(case)
    rules = list(rule_changes(case))
    yield from (change for change in rules if change.effort <= ORDINARY)
    yield from composite_changes(case, operators=False)
    yield from (change for change in rules if change.effort > ORDINARY)
    yield from composite_changes(case, operators=True)
