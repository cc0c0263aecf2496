"""Plans with regions on devices."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tinycomp.lazy import cached_property
from tinycomp.memory.budget import current, in_time
from tinycomp.memory.system import after_fork_in_child
from tinycomp.records import dataclass
from tinycomp.runtime.device.interface import DeviceBuffer
from tinycomp.runtime.device.lanes import Lanes
from tinycomp.runtime.device.region import DeviceRegion
from tinycomp.runtime.device.request import Request, Span
from tinycomp.runtime.plan import FIRST_FREE, Plan, Run, Step
from tinycomp.runtime.rows import CopyRow

NO_BUFFERS: Mapping[int, DeviceBuffer] = {}


@dataclass(frozen=True)
class DevicePlan(Plan):
    """A plan some of whose regions run on devices: independent steps at the same time, values where they are needed."""

    on_devices: ClassVar[bool] = True

    @cached_property
    def lanes(self) -> Lanes:
        """Return which steps run on which device one after the other."""
        return Lanes(self.inputs, self.steps, self.slots, self.input_slots, self.output_slots)

    @property
    def copies(self) -> tuple[CopyRow, ...]:
        """Return what every run copies between the host and devices, in order."""
        return self.lanes.copies({})

    def run(self, feeds: Sequence[Any], outputs: Mapping[int, DeviceBuffer] = NO_BUFFERS) -> list[Any]:
        """Run all steps.

        Args:
            feeds: One per input, already checked: an array, or a buffer on a device.
            outputs: Buffers on devices for results, by index of the output.

        Returns:
            The results; the buffers for those that have one.

        Raises:
            DeviceFault: If a region fails, and its policy has no remedy.
            ExecutionError: If a step on the host fails, or the time of :func:`tinycomp.memory.budget.limited` is up.
            MemoryLimitError: If a device has not the memory, or a value would be larger than the budget allows.
        """
        return self._run(Request(self, self.lanes, feeds, outputs), feeds, outputs)

    def traced(self, feeds: Sequence[Any]) -> list[Span]:
        """Run all steps, and return when and where what happened."""
        request = Request(self, self.lanes, feeds, NO_BUFFERS, record=True)
        self._run(request, feeds, NO_BUFFERS)
        return request.spans or []

    def _run(self, request: Request, feeds: Sequence[Any], outputs: Mapping[int, DeviceBuffer]) -> list[Any]:
        if self.lanes.nests:
            with in_time(_nesting.lock, current(), "another run holds memory of the devices"):
                slots = request.run()
        else:
            slots = request.run()
        results = self.results(slots, feeds)
        for index, buffer in outputs.items():
            results[index] = buffer
        return results


class _Nesting:
    """Lets one request at a time use devices in steps on the host, too, while it holds memory of them.

    Others give back what they hold without asking for more, so that none waits in a circle.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def reset(self) -> None:
        """Open the lock in a forked child, where who holds it is not there."""
        self.lock = threading.RLock()


_nesting = _Nesting()
after_fork_in_child(_nesting.reset)


def alone(region: DeviceRegion) -> Run:
    """Return what runs a region by itself, with operands and results on the host."""
    first = FIRST_FREE + len(region.inputs)
    reads, writes = range(FIRST_FREE, first), range(first, first + len(region.outputs))
    step = Step(
        region.symbol, region.symbol, region.devices.target, region, tuple(reads), tuple(writes),
        sources=region.sources,
    )  # fmt: skip
    slots = (None,) * (first + len(region.outputs))
    return DevicePlan(region.inputs, region.outputs, (step,), slots, tuple(reads), tuple(writes)).run


def plan_of(plan: Plan) -> Plan:
    """Return a plan that may use devices, if it has regions for them."""
    if not any(isinstance(step.run, DeviceRegion) for step in plan.steps):
        return plan
    return DevicePlan(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)})
