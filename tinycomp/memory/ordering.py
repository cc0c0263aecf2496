"""In which order steps run so that the fewest bytes are alive at a time.

The order is exact where the steps that can have run together are few enough to look at all of them, as in networks with
some branches: a set of steps is reached in the order of the most bytes that were alive on the way (Liberis and Lane,
"Neural networks on microcontrollers: saving memory at inference via operator reordering", 2019).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tinycomp.records import dataclass

STATES = 20_000
"""Sets of steps that are looked at, at most; where there are more, steps keep their order."""


@dataclass(frozen=True, slots=True)
class Use:
    """The buffers that a step uses.

    Attributes:
        reads: Numbers of the buffers that it reads.
        writes: Numbers of those that it writes.
        over: Pairs of a buffer that is written and one that is read, in whose memory it may lie if nothing else is to
            read that.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    over: tuple[tuple[int, int], ...] = ()


def order_of_steps(steps: Sequence[Use], sizes: Sequence[int], states: int = STATES) -> list[int]:
    """Return the steps in an order in which the most bytes alive at a time are as few as can be.

    Of buffers that several steps touch, one of which writes, the steps keep their order.

    Args:
        steps: What each step touches.
        sizes: The bytes of each buffer; it is alive from the first step that touches it to the last.
        states: How many sets of steps are looked at, at most.

    >>> a, b, c, d = ({i} for i in range(4))
    >>> wide = [Use(frozenset(), frozenset(a)), Use(frozenset(a), frozenset(b)), Use(frozenset(a), frozenset(c)),
    ...         Use(frozenset(c), frozenset(d)), Use(frozenset(b | d), frozenset())]
    >>> order_of_steps(wide, [8, 2, 16, 1])
    [0, 2, 3, 1, 4]
    """
    before = _before(steps)
    users = [0] * len(sizes)
    for index, step in enumerate(steps):
        for buffer in step.reads | step.writes:
            users[buffer] |= 1 << index
    whole = (1 << len(steps)) - 1
    best: dict[int, int] = {0: 0}
    came: dict[int, tuple[int, int]] = {}
    waiting: list[tuple[int, int, int]] = [(0, 0, 0)]  # the peak so far, steps left, the set of steps
    closed = set[int]()
    while waiting:
        peak, _, done = heapq.heappop(waiting)
        if done in closed:
            continue
        if done == whole:
            return _path(came, whole)
        closed.add(done)
        if len(closed) > states:
            break
        alive = sum(size for size, by in zip(sizes, users, strict=True) if by & done and by & ~done)
        for index, step in enumerate(steps):
            if done >> index & 1 or before[index] & ~done:
                continue
            new = sum(sizes[b] for b in step.reads | step.writes if not users[b] & done)
            new -= max(
                (sizes[w] for w, r in step.over if _ends(users[r], done, index) and sizes[w] <= sizes[r]), default=0
            )
            after = done | 1 << index
            reached = max(peak, alive + new)
            if reached < best.get(after, reached + 1):
                best[after], came[after] = reached, (done, index)
                heapq.heappush(waiting, (reached, (whole & ~after).bit_count(), after))
    return list(range(len(steps)))


def _ends(users: int, done: int, index: int) -> bool:
    return not users & ~done & ~(1 << index)


def _before(steps: Sequence[Use]) -> list[int]:
    """Return for each step the set of those that it must run after."""
    before = [0] * len(steps)
    writers: dict[int, int] = {}
    readers: dict[int, int] = {}
    for index, step in enumerate(steps):
        for buffer in step.reads | step.writes:
            before[index] |= writers.get(buffer, 0)
        for buffer in step.writes:
            before[index] |= readers.get(buffer, 0)
        for buffer in step.writes:
            writers[buffer] = writers.get(buffer, 0) | 1 << index
        for buffer in step.reads:
            readers[buffer] = readers.get(buffer, 0) | 1 << index
    return before


def _path(came: dict[int, tuple[int, int]], whole: int) -> list[int]:
    order = []
    while whole:
        whole, index = came[whole]
        order.append(index)
    return order[::-1]
