"""What an exported project does when it runs: actions on places in memory, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tinycomp.export_c.memory import MemoryMap
from tinycomp.records import dataclass, fields, replace
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Size


@dataclass(frozen=True)
class Place:
    """Where an operand lies.

    Attributes:
        base: ``"input"``, ``"output"``, ``"arena"``, ``"weights"`` or ``"absent"``; while memory is not planned,
            ``"buffer"``.
        index: Which input, output or buffer.
        offset: In bytes.
    """

    base: str
    index: int = 0
    offset: Size = 0

    def at(self, offset: Size) -> Place:
        """Return the place so many bytes further on."""
        return replace(self, offset=self.offset + offset)


ABSENT = Place("absent")


@dataclass(frozen=True)
class Sized:
    """What a call has that depends on the sizes of a run: the kernel is asked in every run what it needs.

    Attributes:
        spaces: What each operand lies in: ``"input"``, ``"output"``, ``"constant"``, ``"arena"`` or ``"none"``.
        nbytes: Likewise how many bytes there are.
        state: Where it packs what depends on sizes; absent if nothing does.
        state_bytes: How many bytes that may be.
        scratch_bytes: How many bytes it may need while it runs.
    """

    spaces: tuple[str, ...]
    nbytes: tuple[Size, ...]
    state: Place
    state_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Attributes:
        kernel: Its name.
        params: Every field of its parameter struct: a number, or a size.
        operands: One place per letter of its signature.
        state: Where its packed weights begin among the weights; None if it has none.
        units: How many units of work there are, if that does not depend on sizes.
        scratch: Where the memory lies that it needs while it runs.
        sources: Names of the model's nodes that it computes.
        sized: What depends on the sizes of a run; None if nothing does.
    """

    kernel: str
    params: Mapping[str, Any]
    operands: tuple[Place, ...]
    state: int | None
    units: int
    scratch: Place
    sources: tuple[str, ...]
    sized: Sized | None = None


@dataclass(frozen=True)
class Word:
    """An int64 that follows from sizes."""

    place: Place
    value: Size


@dataclass(frozen=True)
class Find:
    """A size that the call before has found out.

    Attributes:
        symbol: What it is called in sizes.
        place: Where it stands, an int64.
        most: It is no more than that.
    """

    symbol: str
    place: Place
    most: Size


@dataclass(frozen=True)
class Condition:
    """What sizes must fulfil.

    Attributes:
        value: A number that must be 0.
        text: What is wrong where it is not, and at which node.
        is_shown: Whether it follows from the sizes of the inputs alone.
    """

    value: Size
    text: str
    is_shown: bool


@dataclass(frozen=True)
class Fill:
    """Bytes that are set to a value: to 0 what nothing is certain to write before it is read."""

    place: Place
    nbytes: Size
    value: int = 0


@dataclass(frozen=True)
class Copy:
    """Bytes that are wanted somewhere else as well, such as a result that is an input or a constant."""

    to: Place
    source: Place
    nbytes: Size


@dataclass(frozen=True)
class Source:
    """A call of a function that another target's code generator has written.

    Attributes:
        number: Which of the sources.
        inputs: Its operands.
        outputs: Its results.
        constants: Where its constants begin among the weights.
        scratch: Where the memory lies that it needs while it runs.
        sources: Names of the model's nodes that it computes.
    """

    number: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    constants: tuple[Place, ...]
    scratch: Place
    sources: tuple[str, ...]


@dataclass(frozen=True)
class If:
    """One of two sequences.

    Attributes:
        condition: A byte that chooses the first if it is not 0.
        bodies: Both.
        sources: Names of the model's nodes.
    """

    condition: Place
    bodies: tuple[tuple[Action, ...], tuple[Action, ...]]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """A sequence that is repeated.

    Attributes:
        limit: Where the most trips stand, an int64; absent for any number.
        condition: A byte that is 0 if there shall be no trip; absent if there shall be.
        trip: Where every trip finds its number.
        goes_on: A byte that every trip makes 0 if it is the last one.
        body: One trip.
        rows: Of every trip: a value, and where that of the first one is kept; others follow it.
        trips: The number of trips that there must be for the rows to fill their results; None if there are no rows.
        sources: Names of the model's nodes.
    """

    limit: Place
    condition: Place
    trip: Place
    goes_on: Place
    body: tuple[Action, ...]
    rows: tuple[Copy, ...]
    trips: int | None
    sources: tuple[str, ...]


Action = Call | Word | Find | Condition | Fill | Copy | Source | If | Loop


def placed(value: Any, memory: MemoryMap) -> Any:
    """Return actions, or parts of them, with offsets in the arena for places in buffers."""
    if isinstance(value, Place):
        return Place("arena", 0, memory.offset(value.index) + value.offset) if value.base == "buffer" else value
    if isinstance(value, tuple):
        return tuple([placed(each, memory) for each in value])
    if isinstance(value, Action | Sized):
        return replace(value, **{each.name: placed(getattr(value, each.name), memory) for each in fields(value)})
    return value


def _calls_in(actions: Iterable[Action]) -> Iterator[Call]:
    """Yield all calls of kernels in some actions and in what these repeat or choose between."""
    waiting = [*actions][::-1]
    while waiting:
        action = waiting.pop()
        if isinstance(action, Call):
            yield action
        elif isinstance(action, If):
            waiting += [*action.bodies[0], *action.bodies[1]][::-1]
        elif isinstance(action, Loop):
            waiting += action.body[::-1]


@dataclass(frozen=True)
class Calls:
    """Everything that a project does.

    Attributes:
        inputs: What the model takes, in order.
        outputs: What it gives.
        sizes: The sizes that a run chooses, by name: the least and the most that they may be.
        found: The sizes that a run finds out.
        shapes: The dimensions of inputs, and those of outputs.
        most_bytes: How many bytes inputs and outputs have at most.
        steps: What is done, in order.
        weights: Packed weights and constants, which calls find by their offset.
        sources: What other targets' code generators have written.
        memory: What lies where in the memory of a run, and when.
        work: Operations and bytes moved of each kernel, roughly.
        cache: What kernels take the second-level cache to hold, in bytes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: Mapping[str, tuple[int, int]]
    found: tuple[str, ...]
    shapes: tuple[tuple[tuple[Size, ...], ...], tuple[tuple[Size, ...], ...]]
    most_bytes: tuple[tuple[int, ...], tuple[int, ...]]
    steps: tuple[Action, ...]
    weights: bytes
    sources: tuple[CSource, ...]
    memory: MemoryMap
    work: Mapping[str, float]
    cache: int

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of kernels, in order."""
        return tuple(_calls_in(self.steps))

    @property
    def is_sized(self) -> bool:
        """Whether some calls depend on the sizes of a run."""
        return any(call.sized is not None for call in self.calls)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that are called, each once, in the order of their first calls."""
        return tuple(dict.fromkeys(call.kernel for call in self.calls))
