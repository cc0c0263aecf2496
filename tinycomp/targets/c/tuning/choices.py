"""Choosing how to compute a call: several kernels or forms of one may do, and the fastest that is allowed is taken.

Lowering emits products and convolutions in one neutral form. :func:`choose` then looks at every such call as a
:class:`Problem` with its candidates (:mod:`candidates`), and gives it the parameters of the one that takes the least
time, measured (:mod:`tinycomp.driver.tune`) or else estimated (:mod:`cost`). The shapes of blocks are only ever
chosen by measuring; otherwise they stay the kernel's own choice, made on the machine where it runs.

A program says which candidates were taken, so one that was compiled elsewhere runs, if not always as fast.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tinycomp.records import dataclass, field
from tinycomp.runtime.native.processor import cache_bytes, default_isa, isa_shape
from tinycomp.runtime.native.program import Instruction, Program
from tinycomp.symbolic import expected_sizes, expecting
from tinycomp.targets.c.options import Settings
from tinycomp.targets.c.tuning import cost
from tinycomp.targets.c.tuning.candidates import Candidate, Problem, problem_of

SHAPE_GAIN = 0.03
"""The share of the time that blocks of another shape must save before the kernel's own choice is overruled."""


def choose(program: Program, settings: Settings, on: cost.Processor | None = None) -> Program:
    """Return a program whose calls have the parameters of the best candidates.

    Where convolutions compete for the memory that transformed weights may take, those that gain most per byte get it.

    The program is for the processor ``on``, by default the one at hand.
    """
    instructions = [
        call
        if call.control is None
        else dataclasses.replace(call, control=dataclasses.replace(
            call.control, bodies=tuple([choose(body, settings, on) for body in call.control.bodies])
        ))
        for call in program.instructions
    ]  # fmt: skip
    program = dataclasses.replace(program, instructions=tuple(instructions))
    on = on or cost.Processor(isa_shape(default_isa()), cache_bytes(2))
    with expecting(expected_sizes(spec.shape for spec in program.inputs)):
        sites = _sites(program, rounding=settings.rounds and on.shape.pairs)
    if not sites:
        return program
    for site in sites:
        site.weigh(settings, on)
    _spend(sites, settings)
    calls = list(program.instructions)
    for site in sites:
        chosen = site.options[site.taken][0]
        for index in site.calls:
            call = calls[index]
            params = {**call.params, **chosen.params}
            calls[index] = Instruction(chosen.kernel, call.operands, params, call.source, call.macs)
    return dataclasses.replace(program, instructions=tuple(calls))


class _Upgrade(NamedTuple):
    """A faster option of a site, in the order in which memory is spent.

    Attributes:
        loss: Seconds lost per byte: the less, the sooner.
        site: The number of the site.
        since: The option that it replaces.
        option: What takes its place.
        bytes: What the weights grow by.
    """

    loss: float
    site: int
    since: int
    option: int
    bytes: int


@dataclass
class _Site:
    """Calls with the same weights that solve the same problem, and their candidates.

    Attributes:
        problem: The problem.
        calls: Indices of the calls.
        options: Candidates with their seconds, in the order of their weights' size; each is faster than the one before.
        taken: The option that was chosen.
    """

    problem: Problem
    calls: list[int] = field(default_factory=list)
    options: Sequence[tuple[Candidate, float]] = ()
    taken: int = 0

    def weigh(self, settings: Settings, on: cost.Processor) -> None:
        """Find the options and how long each takes."""
        timed = _measured(self.problem, settings, on) or [
            (candidate, self.problem.seconds(candidate, on))
            for candidate in _allowed(self.problem.candidates(on.shape.lanes), settings)
        ]
        self.options = _frontier(timed)

    def upgrades(self, number: int) -> Iterator[_Upgrade]:
        """Yield the steps to candidates that are faster than the current one; ``number`` is that of the site."""
        candidate, seconds = self.options[self.taken]
        for index in range(self.taken + 1, len(self.options)):
            better, faster = self.options[index]
            more = better.weight_bytes - candidate.weight_bytes
            yield _Upgrade((faster - seconds) * len(self.calls) / more, number, self.taken, index, more)


def _sites(program: Program, rounding: bool) -> list[_Site]:
    sites: dict[object, _Site] = {}
    for index, call in enumerate(program.instructions):
        problem = problem_of(call, rounding)
        if problem is not None:
            key = (problem.family, *problem.sizes.items(), problem.adjacent, call.operands[2])
            sites.setdefault(key, _Site(problem)).calls.append(index)
    return list(sites.values())


def _allowed(candidates: Iterable[Candidate], settings: Settings) -> list[Candidate]:
    """Leave out what ``winograd`` and ``memory`` forbid."""
    all_ = list(candidates)
    if settings.memory != "fast":  # larger weights and more room while they are used; integers are exact either way
        all_ = [c for c in all_ if c.kernel != "qconv2d_winograd"] or all_
    if settings.winograd is False:
        return [c for c in all_ if not c.is_winograd]
    forced = [c for c in all_ if c.is_winograd] if settings.winograd is True else []
    return forced or all_


def _measured(problem: Problem, settings: Settings, on: cost.Processor) -> list[tuple[Candidate, float]]:
    """Return the candidates that were measured; other shapes of blocks must gain more than noise does."""
    seconds = settings.measured.get(problem.key) if settings.measured else None
    if not seconds:
        return []
    known = [c for c in problem.candidates(on.shape.lanes, shaped=True) if c.name in seconds]
    return [(c, seconds[c.name] * (1 + SHAPE_GAIN * c.is_shaped)) for c in _allowed(known, settings)]


def _frontier(timed: Iterable[tuple[Candidate, float]]) -> list[tuple[Candidate, float]]:
    """Keep the candidates that no smaller one beats."""
    kept: list[tuple[Candidate, float]] = []
    for candidate, seconds in sorted(timed, key=lambda item: (item[0].weight_bytes, item[1])):
        if not kept or seconds < kept[-1][1]:
            kept.append((candidate, seconds))
    return kept


def _spend(sites: Sequence[_Site], settings: Settings) -> None:
    """Let every site take the best option; where Winograd is up to us, the best that its weights are allowed."""
    if settings.winograd is True:
        for site in sites:
            site.taken = len(site.options) - 1
        return
    waiting = [upgrade for number, site in enumerate(sites) for upgrade in site.upgrades(number)]
    heapq.heapify(waiting)
    while waiting:
        upgrade = heapq.heappop(waiting)
        site = sites[upgrade.site]
        if upgrade.since == site.taken and settings.allowance.take(upgrade.bytes):
            site.taken = upgrade.option
            for further in site.upgrades(upgrade.site):
                heapq.heappush(waiting, further)
