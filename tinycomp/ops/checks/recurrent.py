"""RNN, GRU and LSTM: directions, activations, and weights that fit the hidden size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinycomp.errors import did_you_mean
from tinycomp.ops.checks.facts import Facts
from tinycomp.ops.recurrent_activations import ACTIVATION_NAMES

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
    _check_weights(facts, _DIRECTIONS[direction], _GATES[facts.node.op])


def _check_weights(facts: Facts, directions: int, gates: int) -> None:
    hidden = facts.attr("hidden_size") or facts.dim(2, 2)
    if hidden is not None and hidden < 1:
        facts.fail("hidden_size is out of range", expected="1 or more", found=hidden)
    rows = None if hidden is None else gates * hidden
    wanted = {
        (1, "the weight W"): (directions, rows, facts.dim(0, 2)),
        (2, "the recurrence weight R"): (directions, rows, hidden),
        (3, "the bias B"): (directions, None if rows is None else 2 * rows),
    }
    for (index, what), sizes in wanted.items():
        rank = facts.rank(index)
        if rank is not None and rank != len(sizes):
            facts.fail(f"{what} has the wrong rank", expected=str(len(sizes)), found=rank)
        for axis, size in enumerate(sizes):
            facts.require_size(index, axis, size, what)


CHECKS: dict[str, Callable[[Facts], None]] = dict.fromkeys(_GATES, _check)
