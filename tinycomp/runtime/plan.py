"""Plans: flat lists of steps, the form of a graph that runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tinycomp.errors import ExecutionError, MemoryLimitError, TinycompError
from tinycomp.lazy import cached_property
from tinycomp.memory.budget import ENLARGE, check_time, current
from tinycomp.records import dataclass
from tinycomp.runtime.spec import TensorSpec

Position = tuple[int, ...]
"""The place of a step: its index in the plan, then, for each level below, the index of a body and of a step in it."""

Run = Callable[[Sequence[Any]], Sequence[Any]]
"""Computes results from operands; both are arrays (or lists, dicts, None for the other kinds of ONNX values)."""

ABSENT = 0
"""The slot that always holds None, for absent optional operands."""
DISCARD = 1
"""The slot for results that nobody reads."""
FIRST_FREE = 2


@dataclass(frozen=True)
class Step:
    """Hold one computation of a plan.

    Attributes:
        label: Name for messages and profiles.
        op: Operator, or region symbol.
        tier: ``"c"`` or another target's name for a region, else ``"numpy"`` or ``"reference"``.
        run: The computation.
        reads: Slots of the operands.
        writes: Slots of the results.
        frees: Slots whose values are not needed after this step.
        sources: Source names of the nodes that the step comes from.
        bodies: The plans of the bodies that ``run`` calls, for control flow.
        rebuild: Returns ``run`` with other plans for the bodies, so that a profile can time what is in them.
        silent: Whether ``run`` computes nothing that numpy would warn about.
        make_objects: A faster ``run`` for steps that make Python objects: it takes the only operand that is not a
            constant and returns the only result, or None if ``run`` must do it.
    """

    label: str
    op: str
    tier: str
    run: Run
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    bodies: tuple[Plan, ...] = ()
    rebuild: Callable[[Sequence[Plan]], Run] | None = None
    silent: bool = False
    make_objects: Callable[[Any], Any] | None = None

    def keep(self, results: Sequence[Any], slots: list[Any]) -> None:
        """Put the results into their slots, and empty the slots that are not needed any more."""
        for slot, result in zip(self.writes, results, strict=False):
            slots[slot] = result
        for slot in self.frees:
            slots[slot] = None


@dataclass(frozen=True)
class Plan:
    """Hold steps in order, and the slots that they work on. It has no state of a run, so many threads may share it.

    Attributes:
        inputs: The inputs of :meth:`run`, in order.
        outputs: The outputs, in order.
        steps: The steps.
        slots: The initial values of all slots: constants in theirs, None elsewhere.
        input_slots: The slot of each input.
        output_slots: The slot of each output.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    steps: tuple[Step, ...]
    slots: tuple[Any, ...]
    input_slots: tuple[int, ...]
    output_slots: tuple[int, ...]

    on_devices: ClassVar[bool] = False
    """Whether steps run on devices, so that inputs and outputs may be buffers there."""

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Run all steps.

        There is one feed per input, already checked.

        Raises:
            ExecutionError: If a step fails, or the timeout of :func:`tinycomp.memory.budget.limited` is over; the
                message names the step.
            MemoryLimitError: If a value would be larger than the budget allows.
        """
        limits = current()
        check_time(limits)
        slots = list(self.slots)
        for slot, feed in zip(self.input_slots, feeds, strict=True):
            slots[slot] = feed
        with np.errstate(all="ignore"):
            for step in self.steps:
                if limits.may_end:
                    check_time(limits, f"before node {step.label} ({step.op})")
                step.keep(run_step(step, slots), slots)
        return self.results(slots, feeds)

    def results(self, slots: Sequence[Any], feeds: Sequence[Any]) -> list[Any]:
        """Return the outputs from their slots after a run, as arrays that the caller may write to."""
        values = [slots[slot] for slot in self.output_slots]
        known = {*map(id, values), *map(id, feeds)}
        if len(known) < len(values) + len(feeds) or not self._constants.isdisjoint(known):
            known = {*self._constants, *map(id, feeds)}
            return [_own(value, known) for value in values]
        return [value.copy() if type(value) is np.ndarray and value.base is not None else value for value in values]

    @cached_property
    def _constants(self) -> frozenset[int]:
        """The identities of the values that are in the slots at the start of every run."""
        return frozenset(map(id, self.slots))


def device_sets(plan: Plan) -> tuple[Any, ...]:
    """Return the devices that a plan and the bodies in it use (``DeviceSet``), each set once."""
    found: dict[Any, None] = {}
    plans = [plan]
    while plans:
        for step in plans.pop().steps:
            devices = getattr(step.run, "devices", None)
            if devices is not None:
                found[devices] = None
            plans.extend(step.bodies)
    return tuple(found)


def run_step(step: Step, slots: Sequence[Any]) -> Sequence[Any]:
    """Run a step on the values in slots.

    Raises:
        ExecutionError: If it fails; the message names the step.
        MemoryLimitError: If there is not enough memory.
    """
    try:
        return step.run([slots[i] for i in step.reads])
    except (TinycompError, KeyboardInterrupt):
        raise
    except MemoryError as error:
        raise MemoryLimitError(
            "the system refused the memory", where=_place(step), found=str(error) or "MemoryError", hint=ENLARGE
        ) from error
    except Exception as error:
        operands = ", ".join(_describe(slots[i]) for i in step.reads)
        raise ExecutionError(
            f"{type(error).__name__}: {error}",
            where=_place(step),
            found=f"operands ({operands})",
            hint="Check the operands' values and shapes against the operator's definition.",
        ) from error


def _place(step: Step) -> str:
    return f"node {step.label} ({step.op}, {step.tier} tier)"


def _own(value: Any, shared: set[int]) -> Any:
    """Copy a result that is a constant, a feed, an earlier result or a view, because the caller may write to it."""
    if isinstance(value, np.ndarray) and (value.base is not None or id(value) in shared):
        return value.copy()
    shared.add(id(value))
    return value


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    return "absent" if value is None else type(value).__name__
