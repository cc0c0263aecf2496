"""Regular expressions as deterministic automata over the bytes of UTF-8, which read every byte of a text once.

The expressions are those of RE2 without flags and classes by name. A set of characters is sequences of ranges of bytes
(Thompson, "Regular expression search algorithm", 1968; Cox, "Regular expression matching in the wild", 2010), and the
automaton of sets of states is made ahead of all texts. What looks around, such as a word boundary, is passed once the
next byte is known.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from tinycomp.ops.numeric import Array
from tinycomp.records import dataclass

_MOST_DEPTH = 50
_MOST_PARTS, _MOST_STATES = 4000, 2000
"""States of the automaton before and after it becomes deterministic: what is larger is declined."""
_LAST = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]
_DIGITS: _Ranges = ((48, 57),)
_WORDS: _Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: _Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_HEX = re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,6})\})")
_GROUP = re.compile(r"\((?:\?:|\?P?<\w+>)?(?!\?)")


class _DeclinedError(Exception):
    """The expression is none that becomes an automaton here."""


@dataclass(frozen=True)
class _Set:
    """Stand for one character out of ranges."""

    ranges: _Ranges


@dataclass(frozen=True)
class _All:
    """Stand for parts one behind the other."""

    parts: tuple[_Tree, ...]


@dataclass(frozen=True)
class _Any:
    """Stand for one of several parts."""

    parts: tuple[_Tree, ...]


@dataclass(frozen=True)
class _Repeat:
    """Stand for a part so many times; without an end if the most is None."""

    part: _Tree
    least: int
    most: int | None


@dataclass(frozen=True)
class _Look:
    """Stand for a place: the beginning ``^``, the end ``$``, a word boundary ``b``, or none ``B``."""

    kind: str


_Tree = _Set | _All | _Any | _Repeat | _Look
_LOOKS = {"^": "^", "$": "$", r"\A": "^", r"\z": "$", r"\b": "b", r"\B": "B"}
_WORD, _OTHER, _EDGE = "word", "other", "edge"
"""What may lie on one side of a place: a byte of a word, another byte, or the edge of the text."""


@dataclass(frozen=True)
class Automaton:
    """Tell which texts match an expression.

    Attributes:
        classes: The class of every byte, [256].
        steps: The next state by state and class, -1 where nothing can match any more.
        accepts: Whether what has been read so far matches, by state; the first one is where it begins.
        looks_around: Whether the expression has places, so that what matches depends on what is around it.
    """

    classes: Array
    steps: Array
    accepts: Array
    looks_around: bool

    @property
    def gives_up(self) -> bool:
        """Whether there is a number of bytes after which a search has found a match or must begin elsewhere.

        A search for the next match then takes time that is linear in the text.
        """
        waiting = np.flatnonzero(~self.accepts).tolist()
        behind = {s: {int(n) for n in self.steps[s] if n >= 0 and not self.accepts[n]} for s in waiting}
        entries = dict.fromkeys(waiting, 0)
        for following in behind.values():
            for state in following:
                entries[state] += 1
        free = [state for state, count in entries.items() if not count]
        for state in free:
            for following_state in behind[state]:
                entries[following_state] -= 1
                if not entries[following_state]:
                    free.append(following_state)
        return len(free) == len(waiting)

    def matches(self, text: str) -> bool:
        """Tell whether a text matches from end to end."""
        state = 0
        for byte in text.encode("utf-8", "surrogatepass"):
            state = int(self.steps[state, self.classes[byte]])
            if state < 0:
                return False
        return bool(self.accepts[state])


@functools.lru_cache(maxsize=64)
def automaton(pattern: str) -> Automaton | None:
    r"""Return the automaton of an expression; None if that is too large, or a part of the expression is not known.

    >>> automaton("[a-z]+(ab|é)?").matches("mé"), automaton(r".*\bé").matches("é"), automaton(r"\pL") is None
    (True, False, True)
    """
    try:
        return _deterministic(_Parts(_Reader(pattern).tree()))
    except _DeclinedError:
        return None


class _Reader:
    """Read an expression."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0

    def tree(self) -> _Tree:
        tree = self._choice(0)
        if self._at < len(self._text):
            raise _DeclinedError
        return tree

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self, depth: int) -> _Tree:
        if depth > _MOST_DEPTH:
            raise _DeclinedError
        parts = [self._sequence(depth)]
        while self._next() == "|":
            self._at += 1
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _sequence(self, depth: int) -> _Tree:
        parts = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(self._one(depth)))
        return _All(tuple(parts))

    def _repeated(self, part: _Tree) -> _Tree:
        counted = _REPEAT.match(self._text, self._at)
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._next())
        if simple is None and counted is None:
            return part
        if isinstance(part, _Look):
            raise _DeclinedError
        if simple is not None:
            (least, most), self._at = simple, self._at + 1
        else:
            assert counted is not None
            least, self._at = int(counted[1]), counted.end()
            most = least if not counted[2] else int(counted[3]) if counted[3] else None
            if most is not None and most < least:
                raise _DeclinedError
        if self._next() == "?":  # as few as possible, which is the same where the longest match counts
            self._at += 1
        if self._next() in ("*", "+", "?") or _REPEAT.match(self._text, self._at):
            raise _DeclinedError
        return _Repeat(part, least, most)

    def _one(self, depth: int) -> _Tree:
        letter = self._next()
        if letter == "(":
            group = _GROUP.match(self._text, self._at)
            if group is None:
                raise _DeclinedError
            self._at = group.end()
            inside = self._choice(depth + 1)
            if self._next() != ")":
                raise _DeclinedError
            self._at += 1
            return inside
        look = next((mark for mark in _LOOKS if self._text.startswith(mark, self._at)), None)
        if look is not None:
            self._at += len(look)
            return _Look(_LOOKS[look])
        self._at += 1
        if letter == ".":
            return _Set(_others(((10, 10),)))
        if letter == "[":
            return _Set(self._class())
        if letter == "\\":
            return _Set(self._escape())
        if letter in "*+?":
            raise _DeclinedError
        return _Set(((ord(letter), ord(letter)),))

    def _escape(self) -> _Ranges:
        """Return what stands behind a backslash."""
        letter, number = self._next(), _HEX.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            code = int(number[1] or number[2], 16)
            if code > _LAST:
                raise _DeclinedError
            return ((code, code),)
        self._at += 1
        if letter.lower() in _CLASSES:
            ranges = _CLASSES[letter.lower()]
            return ranges if letter.islower() else _others(ranges)
        if letter in _CONTROLS:
            return ((_CONTROLS[letter],) * 2,)
        if not letter or letter.isalnum() or ord(letter) >= 0x80:
            raise _DeclinedError
        return ((ord(letter), ord(letter)),)

    def _class(self) -> _Ranges:
        inverted = self._next() == "^"
        self._at += inverted
        ranges: list[tuple[int, int]] = []
        start = self._at
        while self._next() != "]" or self._at == start:
            first = self._member()
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._member()
                single = len(first) == len(last) == 1 and first[0][0] == first[0][1] and last[0][0] == last[0][1]
                if not single or first[0][0] > last[0][0]:
                    raise _DeclinedError
                first = ((first[0][0], last[0][0]),)
            ranges += first
        self._at += 1
        return _others(tuple(ranges)) if inverted else tuple(ranges)

    def _member(self) -> _Ranges:
        letter = self._next()
        if not letter or self._text.startswith("[:", self._at):
            raise _DeclinedError
        self._at += 1
        return self._escape() if letter == "\\" else ((ord(letter), ord(letter)),)


def _others(ranges: _Ranges) -> _Ranges:
    """Return the characters that are in no range."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, _LAST)) if start <= _LAST else tuple(found)


def _byte_ranges(low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """Yield sequences of ranges of bytes that together are the characters from ``low`` to ``high``."""
    waiting = [(low, high)]
    while waiting:
        low, high = waiting.pop()
        cut = next((last for last in (0x7F, 0x7FF, 0xFFFF) if low <= last < high), None)
        for bits in (6, 12, 18) if cut is None and high > 0x7F else ():
            mask = (1 << bits) - 1
            if cut is None and low | mask < high | mask:
                if low & mask:
                    cut = low | mask
                elif high & mask != mask:
                    cut = (high & ~mask) - 1
        if cut is not None:
            waiting += [(cut + 1, high), (low, cut)]
            continue
        ends = (chr(end).encode("utf-8", "surrogatepass") for end in (low, high))
        yield [*zip(*ends, strict=True)]


class _Parts:
    """Hold the states of an expression that may be in several at once: state 0 begins, state 1 accepts."""

    def __init__(self, tree: _Tree) -> None:
        self.free: list[list[int]] = [[], []]
        self.bytes: list[list[tuple[int, int, int]]] = [[], []]
        self.looks: list[list[tuple[str, int]]] = [[], []]
        self._join(tree, 0, 1)

    def _new(self) -> int:
        if len(self.free) >= _MOST_PARTS:
            raise _DeclinedError
        self.free.append([])
        self.bytes.append([])
        self.looks.append([])
        return len(self.free) - 1

    def _join(self, tree: _Tree, start: int, end: int) -> None:
        """Let what matches a part of the expression lead from one state to another."""
        if isinstance(tree, _Set):
            for sequence in (s for low, high in tree.ranges for s in _byte_ranges(low, high)):
                at = start
                for place, (low, high) in enumerate(sequence):
                    to = end if place == len(sequence) - 1 else self._new()
                    self.bytes[at].append((low, high, to))
                    at = to
        elif isinstance(tree, _Any):
            for part in tree.parts:
                self._join(part, start, end)
        elif isinstance(tree, _Look):
            self.looks[start].append((tree.kind, end))
        elif isinstance(tree, _All):
            self._chain(tree.parts, start, end)
        else:
            self._repeat(tree, start, end)

    def _chain(self, parts: Sequence[_Tree], start: int, end: int) -> None:
        at = start
        for part in parts:
            to = self._new()
            self._join(part, at, to)
            at = to
        self.free[at].append(end)

    def _repeat(self, tree: _Repeat, start: int, end: int) -> None:
        at = start
        for _ in range(tree.least):
            to = self._new()
            self._join(tree.part, at, to)
            at = to
        if tree.most is None:
            around = self._new()
            self.free[at].append(around)
            again = self._new()
            self._join(tree.part, around, again)
            self.free[again].append(around)
            self.free[around].append(end)
            return
        for _ in range(tree.most - tree.least):
            self.free[at].append(end)
            to = self._new()
            self._join(tree.part, at, to)
            at = to
        self.free[at].append(end)


def _deterministic(parts: _Parts) -> Automaton:
    """Return the automaton whose states are sets of states, with what lies before a place if something looks around."""
    looks = any(parts.looks)
    cuts = {0} | {cut for steps in parts.bytes for low, high, _ in steps for cut in (low, high + 1)}
    cuts |= {cut for low, high in _WORDS for cut in (low, high + 1)} if looks else set()
    starts = sorted(cuts - {256})
    classes = (np.searchsorted(starts, np.arange(256), side="right") - 1).astype(np.int32)
    numbers: dict[tuple[frozenset[int], str], int] = {}
    waiting: list[tuple[frozenset[int], str]] = []

    def number(states: set[int], before: str) -> int:
        state = frozenset(states), before if looks else _EDGE
        if state not in numbers:
            if len(numbers) >= _MOST_STATES:
                raise _DeclinedError
            numbers[state] = len(numbers)
            waiting.append(state)
        return numbers[state]

    number({0}, _EDGE)
    rows, accepts = [], []
    for states, before in waiting:
        row = []
        for start in starts:
            after = _WORD if any(low <= start <= high for low, high in _WORDS) else _OTHER
            steps = [step for state in _closed(parts, states, before, after) for step in parts.bytes[state]]
            reached = {to for low, high, to in steps if low <= start <= high}
            row.append(number(reached, after) if reached else -1)
        rows.append(row)
        accepts.append(1 in _closed(parts, states, before, _EDGE))
    ends = np.array(accepts, bool)
    return Automaton(classes, _alive(np.array(rows, np.int32), ends), ends, looks)


def _closed(parts: _Parts, states: frozenset[int], before: str, after: str) -> list[int]:
    """Return the states that can be reached without reading anything, at a place between two sides."""
    boundary = (before == _WORD) != (after == _WORD)
    holds = {"^": before == _EDGE, "$": after == _EDGE, "b": boundary, "B": not boundary}
    reached, seen = [*states], {*states}
    for state in reached:
        for following in (*parts.free[state], *[to for kind, to in parts.looks[state] if holds[kind]]):
            if following not in seen:
                seen.add(following)
                reached.append(following)
    return reached


def _alive(steps: Array, accepts: Array) -> Array:
    """Return the steps without those after which nothing matches."""
    alive, before = accepts.copy(), -1
    while before != int(alive.sum()):
        before = int(alive.sum())
        alive |= (alive[steps] & (steps >= 0)).any(axis=1)
    return np.where((steps >= 0) & alive[steps], steps, -1).astype(np.int32)
