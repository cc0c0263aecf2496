"""RNN, GRU and LSTM: directions, activations, and operands that fit the batch and the hidden size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinycomp.errors import did_you_mean
from tinycomp.ops.facts import Facts
from tinycomp.ops.recurrent import ACTIVATION_NAMES

_GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
_DIRECTIONS: Mapping[str, int] = {"forward": 1, "reverse": 1, "bidirectional": 2}


def _check(facts: Facts) -> None:
    direction = facts.attr("direction", "forward")
    if direction not in _DIRECTIONS:
        facts.fail("unknown direction", expected=f"one of {', '.join(_DIRECTIONS)}", found=repr(direction),
                   hint=did_you_mean(str(direction), _DIRECTIONS))  # fmt: skip
    for name in facts.attr("activations") or ():
        if str(name).lower() not in ACTIVATION_NAMES:
            facts.fail("unknown activation", expected=f"one of {', '.join(ACTIVATION_NAMES)}", found=repr(name),
                       hint=did_you_mean(str(name).lower(), ACTIVATION_NAMES))  # fmt: skip
    _check_shapes(facts, _DIRECTIONS[direction], _GATES[facts.node.op])


def _check_shapes(facts: Facts, directions: int, gates: int) -> None:
    hidden = facts.attr("hidden_size") or facts.dim(2, 2)
    if hidden is not None and hidden < 1:
        facts.fail("hidden_size is out of range", expected="1 or more", found=hidden)
    for (index, what), sizes in _wanted_shapes(facts, directions, gates, hidden).items():
        rank = facts.rank(index)
        if rank is not None and rank != len(sizes):
            facts.fail(f"{what} has the wrong rank", expected=str(len(sizes)), found=rank)
        for axis, size in enumerate(sizes):
            facts.require_size(index, axis, size, what)


def _wanted_shapes(
    facts: Facts, directions: int, gates: int, hidden: int | None
) -> dict[tuple[int, str], tuple[int | None, ...]]:
    """Return the shape of every operand but X, by its place and what it is; None for sizes that are not known."""
    rows = None if hidden is None else gates * hidden
    batch = facts.dim(0, 0 if facts.attr("layout", 0) else 1)
    state = (batch, directions, hidden) if facts.attr("layout", 0) else (directions, batch, hidden)
    return {
        (1, "the weight W"): (directions, rows, facts.dim(0, 2)),
        (2, "the recurrence weight R"): (directions, rows, hidden),
        (3, "the bias B"): (directions, None if rows is None else 2 * rows),
        (4, "the sequence lengths"): (batch,),
        (5, "the initial hidden state"): state,
        (6, "the initial cell state"): state,
        (7, "the peepholes"): (directions, None if hidden is None else 3 * hidden),
    }


CHECKS: dict[str, Callable[[Facts], None]] = dict.fromkeys(_GATES, _check)
