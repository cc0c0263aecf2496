"""Sizes that only a run knows: what is known of them, and what kernels need at most, whatever they are.

The kernels are asked in every run what they need; how much that is at most is found out here, by asking them at many
sizes, all of them if they are few.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tinycomp.errors import UnsupportedError
from tinycomp.export_c.weights import Numbers
from tinycomp.records import dataclass
from tinycomp.runtime.native.library import ANY_BYTES, ffi, lib
from tinycomp.runtime.native.program import Program
from tinycomp.symbolic import Expression, Size, assuming, bounds, evaluate

_ASKED = 4096
"""Combinations of sizes at which kernels are asked what they need."""
_MANY = 8
"""Symbols of a size of which not all extremes are combined."""
_MOST = 1 << 40
"""Bytes that no buffer has."""

Dims = tuple[Size, ...]


@dataclass
class Ranges:
    """The sizes of a model and what is known of them.

    Attributes:
        given: Those that a run is given, by name: the least and the most that they may be.
        found: Those that a run finds out, likewise.
    """

    given: dict[str, tuple[int, int]]
    found: dict[str, tuple[int, int]]

    def most(self, size: Size, what: str, where: str) -> int:
        """Return the most that a size may be.

        Raises:
            UnsupportedError: If there is no bound; it says of what.
        """
        if isinstance(size, int):
            return size
        with assuming({**self.given, **self.found}):
            _, high = bounds(size)
        if high is not None and size.symbols <= self.given.keys():
            high = min(high, self._greatest(size, high))
        if high is None or high > _MOST:
            raise UnsupportedError(
                f"{what} has no bound", where=where, expected="sizes that are at most so large", found=f"{size} bytes",
                hint="Bound the sizes of the inputs, such as --shape ids=1..512.",
            )  # fmt: skip
        return max(high, 0)

    def _greatest(self, size: Expression, high: int) -> int:
        """Return the greatest value of a size that is no more than ``high``, which may be less exact."""
        ranges = {name: range(least, most + 1) for name, (least, most) in self.given.items() if name in size.symbols}
        ends = {name: (each[0], each[-1]) for name, each in ranges.items()}
        if len(ends) < _MANY and max(_values(size, ends), default=high) == high:
            return high
        return max(_values(size, ranges), default=high) if _combinations(ranges) <= _ASKED else high

    def samples(self) -> Iterator[dict[str, int]]:
        """Yield sizes of the inputs: all combinations if they are few, else the extremes and some in between."""
        ranges = {name: range(least, most + 1) for name, (least, most) in self.given.items()}
        if _combinations(ranges) <= _ASKED:
            return _combined(ranges)
        draw = random.Random(0)
        ends = itertools.islice(_combined({name: (each[0], each[-1]) for name, each in ranges.items()}), _ASKED // 2)
        drawn = ({name: draw.choice(each) for name, each in ranges.items()} for _ in range(_ASKED // 2))
        return itertools.chain(ends, drawn)


def _combinations(choices: Mapping[str, Sequence[int]]) -> int:
    return math.prod(map(len, choices.values()))


def _combined(choices: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    return (dict(zip(choices, chosen, strict=True)) for chosen in itertools.product(*choices.values()))


def _values(size: Expression, choices: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """Yield the values that a size has; where a divisor is 0, it has none."""
    for chosen in _combined(choices):
        with contextlib.suppress(ZeroDivisionError):
            yield evaluate(size, chosen)


@dataclass
class Needs:
    """What the kernels of a program need that its plan does not say.

    Attributes:
        cleared: The ranges that a run clears first: an output, or -1 for the arena, where it begins and where it ends,
            which is None where that depends on sizes.
        scratch: The most bytes that an instruction needs while it runs, by number, where that depends on sizes.
        packs_anew: The instructions whose state is not the same at all sizes.
    """

    cleared: Sequence[tuple[int, int, int | None]]
    scratch: Sequence[int] = ()
    packs_anew: frozenset[int] = frozenset()


def needs_of(native: Any, program: Program, samples: Iterator[Mapping[str, int]], where: str) -> Needs:
    """Return what the kernels of a program need, which are asked at many sizes where it serves several.

    Args:
        native: What the C runtime calls the program.
        program: The program.
        samples: Sizes by symbol.
        where: How errors call it.

    Raises:
        UnsupportedError: If it works for none of the sizes.
    """
    if not program.is_symbolic:
        return Needs([*_cleared(lib.tc_program_cleared, native)])
    count = len(program.instructions)
    scratch, packs_anew, cleared, answered = [0] * count, set[int](), set[int](), False
    plan, common = ffi.new("tc_step_plan *"), ffi.new("tc_step_plan *")
    error, out = ffi.new("tc_error *"), ffi.new("tc_context **")
    if lib.tc_context_create(native, 1, out, error):
        raise UnsupportedError("the region cannot be planned", where=where, found=_message(error))
    context = ffi.gc(out[0], lib.tc_context_destroy)
    for sizes in samples:
        if lib.tc_context_resize(context, [sizes[name] for name in program.symbols], ANY_BYTES, error):
            continue  # it does not work for these, which a run finds out, too
        answered = True
        for number in range(count):
            lib.tc_context_plan(context, number, plan)
            lib.tc_program_plan(native, number, common)
            scratch[number] = max(scratch[number], plan.scratch_bytes)
            if not common.fixed or plan.state != common.state:
                packs_anew.add(number)
        cleared |= {buffer for buffer, _, _ in _cleared(lib.tc_context_cleared, context)} - program.grown
    if not answered:
        raise UnsupportedError("the model works for no sizes within its bounds", where=where, found=_message(error))
    return Needs([(buffer, 0, None) for buffer in sorted(cleared)], scratch, frozenset(packs_anew))


def _cleared(ask: Callable[..., int], handle: Any) -> Iterator[tuple[int, int, int]]:
    buffer, begin, end = ffi.new("int32_t *"), ffi.new("int64_t *"), ffi.new("int64_t *")
    number = 0
    while ask(handle, number, buffer, begin, end):
        yield buffer[0], begin[0], end[0]
        number += 1


def _message(error: Any) -> str:
    return str(ffi.string(error.message).decode("utf-8", "replace"))


def numbers_of(program: Any, instruction: int) -> Iterator[Numbers]:
    """Yield the numbers in the state of an instruction of a program in the C runtime."""
    found, index = ffi.new("tc_numbers *"), 0
    while lib.tc_program_numbers(program, instruction, index, found):
        yield found.offset, found.count, found.size, found.times, found.step
        index += 1


def work_of(program: Any, instruction: int) -> int:
    """Return the operations of an instruction of a program in the C runtime, and the bytes that it moves."""
    work = ffi.new("tc_work *")
    lib.tc_program_work(program, instruction, work)
    return int(work.done + work.read + work.written)
