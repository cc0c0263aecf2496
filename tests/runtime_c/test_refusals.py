"""What kernels refuse: valid calls with one or two things changed, and how often each message answers.

A check that is left out, or lets more pass, changes a count of ``kernels.json``. After a wanted change,
``python -m tests.runtime_c.test_refusals`` writes the counts anew.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime_c.element import BINARY, CAST, COMPARE, LOGICAL, UNARY, WHERE, encode, step
from tests.runtime_c.known import CALLS, FILE, KERNELS
from tinycomp.errors import TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.native.program import ABSENT, Instruction, Operand, Program

VALUES = (0, 1, -1, 2, 3, 4, 7, 8, 16, 64, 65, 255, 2**16, 2**31, -(2**31), 2**40, 2**47, 2**62, 2**63 - 1, -(2**63))
SEVERAL = 400
"""Calls of each kernel with two changed parameters, with some small ones, and with a parameter and an operand."""
CONTENTS = (0, 1, -(2**62))
"""What constants are full of."""
ROOM = 1 << 16
"""Bytes of every buffer, more than a valid call needs."""


def edits(call: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[Operand]]]:
    """Yield parameters and operands of a call with one change, and of some with two, the same ones every time."""
    fields = kernel_named(call["kernel"]).fields
    signature = kernel_named(call["kernel"]).signature
    usual = [Operand("constant" if letter in "wpWP" else "arena") for letter in signature]
    operands = [ABSENT if i in call["absent"] else operand for i, operand in enumerate(usual)]
    yield call["params"], operands
    for i, operand in enumerate(usual):
        for other in (ABSENT, operand, Operand("constant"), Operand("arena", 0, 3), Operand("arena", 0, ROOM - 8)):
            yield call["params"], [*operands[:i], other, *operands[i + 1 :]]
    changes = [(name, kind(value)) for name, kind in fields.items() for value in VALUES]
    changes += [(name, value) for name, kind in fields.items() if kind is float for value in (np.nan, np.inf, -np.inf)]
    for name, value in changes:
        yield call["params"] | {name: value}, operands
    rng = random.Random(call["kernel"])
    small = [(name, kind(value)) for name, kind in fields.items() for value in range(14)]
    for _ in range(SEVERAL):
        yield call["params"] | dict(rng.sample(changes, 2)), rng.choice((operands, usual))
        yield call["params"] | dict(rng.sample(small, rng.choice((2, 3)))), rng.choice((operands, usual))
        place = rng.randrange(len(operands))
        other = rng.choice((ABSENT, usual[place]))
        yield call["params"] | dict([rng.choice(small)]), [*operands[:place], other, *operands[place + 1 :]]


def refusal(kernel: str, params: dict[str, Any], operands: list[Operand], constant: np.ndarray) -> str:
    """Return the message that a call is refused with; nothing if all checks pass. The call does not run.

    How much memory there is depends on the machine, and is no check.
    """
    program = Program("edited", (), (), (constant,), ROOM, (Instruction(kernel, tuple(operands), params),))
    try:
        NativeProgram(program, None, "scalar")
    except TargetError as error:
        message = error.message.replace(f"instruction 0 ({kernel})", "").removeprefix(": ").removeprefix(", ")
        return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", message)
    except MemoryError:
        return ""
    return ""


def refusals(call: dict[str, Any]) -> dict[str, int]:
    """Return how often each message, with # for numbers, answers the edits of a call, whatever constants hold."""
    if call["kernel"] == "elementwise":
        return element_refusals()
    found: Counter[str] = Counter()
    contents = CONTENTS if set("wpWP") & set(kernel_named(call["kernel"]).signature) else CONTENTS[:1]
    for constant in (np.full(ROOM // 8, content, np.int64) for content in contents):
        found.update(refusal(call["kernel"], params, operands, constant) for params, operands in edits(call))
    return dict(sorted(found.items()))


def element_refusals() -> dict[str, int]:
    """Likewise for ``elementwise``: words of a program with steps of each kind are exchanged."""
    x, y = np.zeros((4, 5), np.float32), np.zeros((4, 5), np.int8)
    single, small, truth = "float32", "int8", "bool"
    steps = [
        step(UNARY, 1, single, 0), step(BINARY, 0, single, 3, 2),
        step(CAST, 0, small, 1), step(COMPARE, 0, single, 4, 5),
        step(LOGICAL, 0, truth, 6, 6), step(WHERE, 0, single, 7, 3, 5), step(CAST, 4, single, 8),
    ]  # fmt: skip
    program = encode([x, y], [(single, 2.0)], steps)
    usual = [
        Operand("arena"),
        ABSENT,
        ABSENT,
        ABSENT,
        Operand("constant"),
        Operand("arena", 0, 256),
        Operand("arena", 0, 512),
    ]
    operands = usual + [ABSENT] * (len(kernel_named("elementwise").signature) - len(usual))
    found = Counter([refusal("elementwise", {"words": program.size}, operands, program)])
    assert found == {"": 1}, found
    for place, value in itertools.product(range(program.size), VALUES):
        other = program.copy()
        other[place] = value
        found[refusal("elementwise", {"words": program.size}, operands, other)] += 1
    for words in (program.size - 1, program.size + 1, 0, -1, 2**62):
        found[refusal("elementwise", {"words": words}, operands, program)] += 1
    twice = encode([x, y], [(single, 2.0)], steps)
    twice[3] = 2
    for first, second in ((3, 4), (4, 4), (3, 2)):
        outputs = np.array([*twice[:-1], first, second], np.int64)
        changed = [Operand("arena"), Operand("arena", 0, 1024), *operands[2:]]
        found[refusal("elementwise", {"words": outputs.size}, changed, outputs)] += 1
    for i, other in itertools.product(range(len(operands)), (ABSENT, Operand("arena"), Operand("arena", 0, ROOM - 8))):
        changed = [*operands[:i], other, *operands[i + 1 :]]
        found[refusal("elementwise", {"words": program.size}, changed, program)] += 1
    return dict(sorted(found.items()))


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: row["kernel"])
def test_each_check_answers_as_often_as_before(row: dict[str, Any]) -> None:
    assert refusals(row) == row["refusals"]


@pytest.mark.parametrize(
    ("kernel", "params", "absent", "message"),
    [
        ("conv2d_winograd_f32", {"channels": 4, "x_pixel_stride": 4, "groups": 2}, (), "only #x# windows"),
        ("pad", {"before7": -(2**63), "after7": -8}, (), "dimension # of # elements is padded"),
        ("pad", {"before7": -8, "after7": -(2**63)}, (), "dimension # of # elements is padded"),
        (
            "qconv2d_winograd",
            dict.fromkeys(("height", "width", "out_height", "out_width", "out_channels", "y_pixel_stride"), 1)
            | {"channels": 1828, "x_pixel_stride": 1828},
            (),
            "only int# weights and up to # channels",
        ),
        (
            "resize_taps",
            {"size": 1, "output": 1, "antialias": 1, "scale": 1e-30},
            (),
            "# cells are read on either side",
        ),
        ("resize2d_f32", {"line_taps": 2}, (4, 5), "several taps need weights"),
        ("resize2d_f32", {"column_taps": 2}, (4, 5), "several taps need weights"),
    ],
)
def test_checks_that_need_several_changes(
    kernel: str, params: dict[str, float], absent: tuple[int, ...], message: str
) -> None:
    call = next(call for call in CALLS if call["kernel"] == kernel)
    _, operands = next(edits(call))
    changed = [ABSENT if i in absent else operand for i, operand in enumerate(operands)]
    room = np.zeros(ROOM // 8, np.int64)
    assert not refusal(kernel, call["params"], operands, room)
    assert refusal(kernel, call["params"] | params, changed, room).startswith(message)


if __name__ == "__main__":
    rows = (json.dumps(row | {"refusals": refusals(row)}) for row in KERNELS)
    FILE.write_text("[\n" + ",\n".join(rows) + "\n]\n")
