"""Einstein sums: what an equation says, and the order in which operands are best contracted."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from tinycomp.errors import ExecutionError

_TERM = r"[A-Za-z]*(\.\.\.[A-Za-z]*)?"
Labels = list[str]


def split_equation(equation: str, operands: int) -> tuple[list[str], str]:
    """Split an equation into its input terms and its output term, which is made explicit.

    Raises:
        ExecutionError: If the equation is malformed or has another number of terms than ``operands``.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != operands:
        raise ExecutionError(
            f'the equation "{equation}" has {len(terms)} input terms', where="Einsum", expected=str(operands)
        )
    for term in [*terms, right]:
        if not re.fullmatch(_TERM, term):
            raise ExecutionError(
                f'malformed term "{term}" in "{equation}"', where="Einsum", expected="letters and at most one ellipsis"
            )
    used = "".join(terms).replace(".", "")
    if not arrow:
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(used) if used.count(c) == 1))
    for letter in right.replace(".", ""):
        if letter not in used or right.count(letter) > 1:
            raise ExecutionError(
                f'bad output label "{letter}" in "{equation}"',
                where="Einsum",
                expected="each output label once, and in some input",
            )
    return terms, right


def labels_of(term: str, rank: int) -> Labels:
    """Return one label per axis; axes under the ellipsis are numbered from the right, as broadcasting aligns them."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(str(i) for i in range(hidden, 0, -1)), *after]


def output_labels(right: str, terms: Sequence[Labels]) -> Labels:
    """Return one label per axis of the result."""
    hidden = max((int(label) for term in terms for label in term if label.isdigit()), default=0)
    before, dots, after = right.partition("...")
    return [*before, *(str(i) for i in range(hidden if dots else 0, 0, -1)), *after]


def label_sizes(terms: Sequence[Labels], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Return the size of every label of shapes that fit; axes under the ellipsis broadcast."""
    sizes: dict[str, int] = {}
    for label, size in itertools.chain.from_iterable(map(zip, terms, shapes)):
        if sizes.get(label, 1) == 1:
            sizes[label] = size
    return sizes


_MOST_SEARCHED = 8
"""So many operands have 4^8 pairs of subsets, of which each is looked at once."""


def contraction_order(terms: Sequence[Labels], output: Labels, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return which pairs of operands to contract, one after the other, so that the fewest products are formed.

    All orders are compared where there are up to eight operands (dynamic programming over subsets, as in Pfeifer,
    Haegeman, Verstraete, "Faster identification of optimal contraction sequences", 2014); beyond, the cheapest pair is
    always next.

    Returns:
        Pairs of numbers of operands; the result of the first pair has the number ``len(terms)``, and so on.

    >>> contraction_order([["i", "j"], ["j", "k"], ["k"]], ["i"], {"i": 8, "j": 9, "k": 7})
    [(1, 2), (0, 3)]
    """
    count = len(terms)
    sets = [frozenset(term) for term in terms]
    if count > _MOST_SEARCHED:
        return _greedy(sets, frozenset(output), sizes)

    def left(members: int) -> frozenset[str]:
        inside = frozenset().union(*(sets[i] for i in range(count) if members >> i & 1))
        outside = frozenset(output).union(*(sets[i] for i in range(count) if not members >> i & 1))
        return inside & outside

    kept = {members: left(members) for members in range(1, 1 << count)}
    best: dict[int, tuple[float, int]] = {1 << i: (0.0, 0) for i in range(count)}
    for members in sorted(kept, key=int.bit_count):
        if members in best:
            continue
        choices = []
        for part in _halves(members):
            other = members ^ part
            cost = math.prod(float(sizes[label]) for label in kept[part] | kept[other])
            choices.append((best[part][0] + best[other][0] + cost, part))
        best[members] = min(choices)
    return _sequence(best, count)


def _halves(members: int) -> Iterator[int]:
    """Yield the proper subsets that hold the lowest member, which name each division in two once."""
    lowest = members & -members
    rest = part = members ^ lowest
    while part:
        part = (part - 1) & rest
        yield part | lowest


def _sequence(best: Mapping[int, tuple[float, int]], count: int) -> list[tuple[int, int]]:
    """Return the pairs of the best divisions, those of parts first."""
    pending, divisions = [(1 << count) - 1], []
    while pending:
        members = pending.pop()
        if members.bit_count() > 1:
            part = best[members][1]
            divisions.append((members, part))
            pending += [part, members ^ part]
    number = {1 << i: i for i in range(count)}
    pairs = []
    for members, part in reversed(divisions):
        first, second = sorted((number[part], number[members ^ part]))
        pairs.append((first, second))
        number[members] = count + len(pairs) - 1
    return pairs


def _greedy(sets: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]) -> list[tuple[int, int]]:
    there, pairs = dict(enumerate(sets)), []
    while len(there) > 1:
        i, j = min(
            itertools.combinations(there, 2),
            key=lambda pair: math.prod(float(sizes[label]) for label in there[pair[0]] | there[pair[1]]),
        )
        both = there.pop(i) | there.pop(j)
        pairs.append((i, j))
        there[len(sets) + len(pairs) - 1] = both & output.union(*there.values())
    return pairs
