"""One run of a plan with device regions: steps begin as soon as what they need is there.

The thread that asked runs the steps on the host. A region is submitted by whichever thread has seen to it that the last
thing was there that it needs, and never waited for by that thread: every device has a thread of its own for that
(:class:`tinycomp.runtime.device.instances.Instance`). So devices work at the same time as each other and as the host,
and results do not depend on the order: a step reads nothing but what its predecessors have finished.

A region whose faults are raised may be followed by the next of its lane at once, as the queue keeps the order; one that
may have to run again holds up its lane until it has ended, so that its operands are still there.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import DeviceFault
from tinycomp.memory.budget import Limits, check_time, current, in_time, time_is_up
from tinycomp.records import dataclass
from tinycomp.runtime.device.instances import Instance, Member, heard
from tinycomp.runtime.device.interface import Activity, Array, DeviceBuffer, as_fault
from tinycomp.runtime.device.lanes import Lanes, Placed
from tinycomp.runtime.device.region import DeviceRegion
from tinycomp.runtime.plan import Plan, Run, run_step

_faults = logging.getLogger("tinycomp.device.faults")
_copies = logging.getLogger("tinycomp.device.copies")
_requests = logging.getLogger("tinycomp.device.requests")

Job = tuple[str, int]
"""What the thread that asked has to do (``"step"``, ``"fallback"``, ``"host"``, ``"end"``), and the index of a step."""


@dataclass(frozen=True)
class Span:
    """What happened in a run, for profiles.

    Attributes:
        track: Name of the device, or ``"host"``.
        step: Index of the step.
        name: What it was, such as ``"run"``, ``"copy in"``, or what the device calls it.
        start: When it began, on the clock of :func:`time.perf_counter`.
        end: When it ended.
        bytes: Bytes that were moved.
        sources: Source names of the nodes, if the device knows them.
        reported: Whether the device has told so itself.
    """

    track: str
    step: int
    name: str
    start: float
    end: float
    bytes: int = 0
    sources: tuple[str, ...] = ()
    reported: bool = False


class Request:
    """A run.

    Args:
        plan: What to run.
        lanes: Which of its steps run on which device.
        feeds: One array or buffer per input.
        outputs: Buffers for results, by index of the output.
        record: Whether to keep spans.
    """

    def __init__(
        self,
        plan: Plan,
        lanes: Lanes,
        feeds: Sequence[Any],
        outputs: Mapping[int, DeviceBuffer],
        record: bool = False,
    ) -> None:
        self._steps, self._lanes = plan.steps, lanes
        self._feeds = feeds
        self._given: dict[int, DeviceBuffer] = {
            slot: feed for slot, feed in zip(plan.input_slots, feeds, strict=True) if _is_buffer(feed)
        }
        self._outputs = {plan.output_slots[index]: buffer for index, buffer in outputs.items()}
        self._copied = [
            (plan.output_slots[i], b) for i, b in outputs.items() if self._outputs[plan.output_slots[i]] is not b
        ]
        """Buffers for a result that is listed twice, beside the one that a region may write to."""
        self._wanted = {slot for index, slot in enumerate(plan.output_slots) if index not in outputs}
        self._wanted.update(slot for slot, _ in self._copied)
        self.slots = list(plan.slots)
        for slot, feed in zip(plan.input_slots, feeds, strict=True):
            self.slots[slot] = feed
        self.spans: list[Span] | None = [] if record else None
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self.is_over = False
        self._left = len(self._steps)
        self._needs = [*self._lanes.needs]
        self._uses = {slot: len(readers) for slot, readers in self._lanes.readers.items()}
        self._attempts: dict[int, int] = {}
        self._places: dict[tuple[int, int], DeviceBuffer] = {}
        """Where values lie on devices, by key and number of the lane."""
        self._heads = [0] * len(self._lanes.lanes)
        self._entered: list[Member] = []
        """Devices on which the request is counted."""
        self._held: set[int] = set()
        """Lanes whose last region may have to run again."""

    def run(self) -> list[Any]:
        """Run all steps and return the values in all slots; those that only a device has had are None.

        Raises:
            DeviceFault: If a region fails, and its policy has no remedy.
            ExecutionError: If a step on the host fails, or the time is up.
            MemoryLimitError: If a device has not the memory.
        """
        limits, lanes = current(), self._lanes
        check_time(limits)
        self._limits = limits
        self._placed: Placed = lanes.placed(lanes.sizes(self._feeds))
        arenas: dict[int, DeviceBuffer] = {}
        try:
            self._members = self._chosen()
            self._leaving = frozenset(filter(self._leaves, lanes.types))
            for index, run in self._placed.runs.items():
                if isinstance(run, DeviceRegion):
                    run.loaded(self._members[lanes.lane_of[index]].instance)
            self._bring_constants()
            users = {member.instance.number: member for member in self._members}
            self._instances = [member.instance for member in users.values()]
            for member in users.values():
                member.count(requests=1)
            for number in sorted(users):
                size = sum(
                    self._placed.bytes[lane] for lane, m in enumerate(self._members) if m.instance.number == number
                )
                arenas[number] = users[number].instance.acquire(size, limits)
            self._arenas = self._divided(arenas)
            self._fetch_given()
            with np.errstate(all="ignore"), limits.cancellation.ending(self._cancel):
                self._drive(limits)
            self._deliver()
            return self.slots
        except TimeoutError as error:
            check_time(limits, "copying from or to a device")
            raise as_fault(error, "copy") from error
        finally:
            with self._lock:
                self.is_over = True
            for member in self._entered:
                member.instance.leave()
            for number, arena in arenas.items():
                users[number].instance.give_back(arena)

    def _chosen(self) -> list[Member]:
        """Return the device of every lane."""
        members: list[Member | None] = [None] * len(self._lanes.lanes)
        known = [*self._given.values(), *self._outputs.values()]

        def affinity(member: Member) -> int:
            return sum(buffer.nbytes for buffer in known if buffer.device is member.device)

        for devices in dict.fromkeys(lane.devices for lane in self._lanes.lanes):
            numbers = [n for n, lane in enumerate(self._lanes.lanes) if lane.devices is devices]
            chosen = devices.choose(len(numbers), affinity)
            self._entered += dict.fromkeys(chosen)
            for number, member in zip(numbers, chosen, strict=True):
                members[number] = member
        _requests.debug("a request runs on %s", ", ".join(m.device.name for m in members if m is not None))
        return [member for member in members if member is not None]

    def _divided(self, arenas: Mapping[int, DeviceBuffer]) -> list[tuple[DeviceBuffer, int]]:
        """Return the memory of every lane: of which buffer, and from where."""
        ends: dict[int, int] = {}
        parts = []
        for lane, member in enumerate(self._members):
            number = member.instance.number
            start = ends.get(number, 0)
            ends[number] = start + self._placed.bytes[lane]
            parts.append((arenas[number], start))
        return parts

    def _leaves(self, key: int) -> bool:
        """Tell whether what a region makes is copied to the host: for a step or the caller there, or another device."""
        lanes = self._lanes
        producer = lanes.producer.get(key)
        if producer not in lanes.regions:
            return False
        lane = lanes.lane_of[producer]
        device = self._members[lane].device
        target = self._outputs.get(key)
        if key in lanes.read_on_host or key in self._wanted or (target is not None and target.device is not device):
            return True
        others = {lanes.lane_of[i] for i in lanes.readers.get(key, ()) if i in lanes.regions} - {lane}
        return any(not _reaches(self._members[other], device) for other in others)

    def _bring_constants(self) -> None:
        """Copy constants that regions read to their devices, where they stay for all runs."""
        lanes = self._lanes
        for number, lane in enumerate(lanes.lanes):
            member = self._members[number]
            for slot in lane.constants:
                place = slot, member.instance.number
                if place not in lanes.resident:
                    with in_time(lanes.bringing, self._limits, "another run brings the constants to a device"):
                        if place not in lanes.resident:
                            reader = next(i for i in lane.steps if slot in self._steps[i].reads)
                            self._bring(slot, member, lanes.regions[reader])

    def _bring(self, slot: int, member: Member, region: DeviceRegion) -> None:
        """Copy a constant to a device; the region that reads it first misses it if that fails."""
        array = _contiguous(self.slots[slot])
        buffer = member.instance.room_for(array)
        for left in reversed(range(region.faults.retries + 1)):
            try:
                member.instance.wait(member.device.copy(array, buffer), self.patience(region))
            except Exception as error:
                check_time(self._limits, "bringing a constant to a device")
                member.count(faults=1)
                fault = located(as_fault(error, "copy in"), region, member.device.name)
                _faults.warning(
                    "%s; %s", fault, "a constant is copied again" if left else "a constant is missing there"
                )
            else:
                self._lanes.resident[slot, member.instance.number] = member.instance, buffer
                member.count(copies_in=1, bytes_in=array.nbytes)
                return

    def _fetch_given(self) -> None:
        """Bring inputs that lie on devices to the host where something there, or an unreachable device, reads them."""
        lanes = self._lanes
        for buffer in (*self._given.values(), *self._outputs.values()):
            Instance.of(buffer.device)  # which waits no longer than the run may take
        for slot, buffer in self._given.items():
            users = [self._members[lanes.lane_of[i]] for i in lanes.readers.get(slot, ()) if i in lanes.regions]
            elsewhere = any(not _reaches(member, buffer.device) for member in users)
            if slot in lanes.read_on_host or slot in self._wanted or slot in self._outputs or elsewhere:
                self.slots[slot] = buffer.numpy(self._limits.remaining)

    def _deliver(self) -> None:
        """Write the results for which there are buffers that no region could write to."""
        for slot, buffer in self._outputs.items():
            producer = self._lanes.producer.get(slot)
            lane = None if producer is None else self._lanes.lane_of.get(producer)
            if lane is None or self._places.get((slot, lane)) is not buffer:
                buffer.write(self.slots[slot], self._limits.remaining)
        for slot, buffer in self._copied:
            buffer.write(self.slots[slot], self._limits.remaining)

    # On the thread that asked ----------------------------------------------------------------------------------------

    def _drive(self, limits: Limits) -> None:
        with self._lock:
            for index, needs in enumerate(self._needs):
                if not needs and index not in self._lanes.regions:
                    self._jobs.put(("step", index))
            self._advance()
            if not self._left:
                self._jobs.put(_END)
        while True:
            what, index = heard(self._jobs, limits, self._instances)
            if self._error is not None:
                raise self._error
            if what == "end":
                return
            step = self._steps[index]
            check_time(limits, f"before node {step.label} ({step.op})")
            started = time.perf_counter()
            results = run_step(step, self.slots) if what == "step" else self._on_numpy(index, what == "fallback")
            self.record(Span("host", index, "run", started, time.perf_counter()))
            with self._lock:
                if self.is_over:
                    continue  # a device has failed meanwhile
                for slot, result in zip(step.writes, results, strict=False):
                    self.slots[slot] = result
                self._done(index)

    def _on_numpy(self, index: int, fallback: bool) -> Sequence[Any]:
        """Run a region on the host: as its code generator wanted for these sizes, or because its device has failed."""
        run: Run = self._placed.runs[index]
        lane = self._lanes.lane_of[index]
        operands = [self._fetched(slot, lane, index) for slot in self._steps[index].reads]
        if not fallback:
            return run(operands)
        assert isinstance(run, DeviceRegion), index
        results: Sequence[Any] = run.reference(operands)
        self._members[lane].count(fallbacks=1)
        return results

    def _fetched(self, slot: int, lane: int, index: int) -> Any:
        """Return a value on the host for a step, from a device if need be: that of the lane, or where it was made."""
        value = self.slots[slot]
        if value is not None and not _is_buffer(value):
            return value
        producer = self._lanes.lane_of.get(self._lanes.producer.get(slot, -1), lane)
        place: DeviceBuffer = self._places.get((slot, lane)) or self._places.get((slot, producer)) or value
        array, region = np.empty(place.shape, place.dtype), self._lanes.regions[index]
        for left in reversed(range(region.faults.retries + 1)):
            try:
                Instance.of(place.device).wait(place.device.copy(place, array), self.patience(region))
                break
            except Exception as error:
                check_time(self._limits, "copying from a device")
                fault = located(as_fault(error, "copy out"), region, place.device.name)
                if not left:
                    raise fault from error
                _faults.warning("%s; the copy to the host is tried again", _short(fault))
        return array

    # On any thread, with the lock held -------------------------------------------------------------------------------

    def _done(self, index: int) -> None:
        """Go on after a step whose results are there."""
        lanes = self._lanes
        for slot in dict.fromkeys(self._steps[index].reads):
            self._uses[slot] -= 1
            if not self._uses[slot] and slot not in lanes.outputs and slot not in lanes.constants:
                self.slots[slot] = None
        self._held.discard(lanes.lane_of.get(index, -1))
        self._left -= 1
        for after in lanes.after[index]:
            self._needs[after] -= 1
            if not self._needs[after] and after not in lanes.regions:
                self._jobs.put(("step", after))
        self._advance()
        if not self._left:
            self._jobs.put(_END)

    def _advance(self) -> None:
        """Submit what can begin."""
        for number, lane in enumerate(self._lanes.lanes):
            while self._heads[number] < len(lane.steps) and number not in self._held and not self.is_over:
                index = lane.steps[self._heads[number]]
                if self._needs[index]:
                    break
                self._heads[number] += 1
                run = self._placed.runs[index]
                if not isinstance(run, DeviceRegion):
                    self._held.add(number)
                    self._jobs.put(("host", index))
                    continue
                if run.faults.recovers:
                    self._held.add(number)
                self._submit(index, run)

    def _submit(self, index: int, region: DeviceRegion) -> None:
        """Have a device run a region, with the copies before and behind it."""
        lane, step = self._lanes.lane_of[index], self._steps[index]
        member = self._members[lane]
        task = _Task(self, index, region, member)
        try:
            member.instance.check_open()
            operands = [self._on_device(task, slot, lane) for slot in step.reads]
            results = [self._place(key, lane) for key in self._lanes.keys[index]]
            task.add("run", member.device.submit(region.loaded(member.instance), operands, results))
            for key, buffer in zip(self._lanes.keys[index], results, strict=True):
                if key in self._leaving:
                    array = np.empty(buffer.shape, buffer.dtype)
                    task.results[key] = array
                    task.add("copy out", member.device.copy(buffer, array), array.nbytes)
        except Exception as error:
            task.error = error
        try:
            member.instance.watch(task.finish)
        except DeviceFault as fault:
            self._fail(located(fault, region, member.device.name))

    def _place(self, key: int, lane: int) -> DeviceBuffer:
        """Return where a value lies on the device of a lane: where the caller wants it, or in the lane's memory."""
        place = self._places.get((key, lane))
        if place is None:
            wanted = self._outputs.get(key)
            if wanted is not None and wanted.device is self._members[lane].device and self._lanes.lane_makes(lane, key):
                place = wanted
            else:
                shape, dtype = self._placed.types[key]
                memory, start = self._arenas[lane]
                place = memory.part(start + self._placed.offsets[lane][key], shape, dtype)
            self._places[key, lane] = place
        return place

    def _on_device(self, task: _Task, slot: int, lane: int) -> DeviceBuffer:
        """Return a value on the device of a lane, copied there the cheapest way if it is not there yet."""
        known = self._places.get((slot, lane))
        if known is not None:
            return known
        if slot in self._lanes.constants:
            return self._constant(task, slot)
        device = task.member.device
        task.entered.append(slot)
        elsewhere: list[DeviceBuffer] = [self._given[slot]] if slot in self._given else []
        producer = self._lanes.producer.get(slot, -1)
        if producer in self._lanes.regions:
            made = self._places.get((slot, self._lanes.lane_of[producer]))
            elsewhere += [] if made is None else [made]
        for buffer in elsewhere:
            if buffer.device is device:
                self._places[slot, lane] = buffer
                return buffer
        for buffer in elsewhere:
            if device.reaches(buffer.device):
                place = self._place(slot, lane)
                task.add("copy across", device.copy(buffer, place), place.nbytes)
                _copies.debug("%s: %d bytes from %s", device.name, place.nbytes, buffer.device.name)
                return place
        array = _contiguous(self.slots[slot])
        adopted = device.adopted(array)
        if adopted is not None:
            self._places[slot, lane] = adopted
            return adopted
        place = self._place(slot, lane)
        task.add("copy in", device.copy(array, place), place.nbytes)
        _copies.debug("%s: %d bytes from the host", device.name, place.nbytes)
        return place

    def _constant(self, task: _Task, slot: int) -> DeviceBuffer:
        """Return a constant on a device."""
        known = self._lanes.resident.get((slot, task.member.instance.number))
        if known is None:
            raise DeviceFault("a constant could not be copied to the device", command="copy in")
        return known[1]

    # On the thread that waits for a device ---------------------------------------------------------------------------

    def finished(self, task: _Task, fault: DeviceFault | None) -> None:
        """Go on after a region has ended, or failed; once its time is up, the thread that asked says so."""
        with self._lock:
            if self.is_over or (fault is not None and self._limits.remaining == 0):
                return
            try:
                if fault is None:
                    for key, array in task.results.items():
                        self.slots[key] = array
                    self._done(task.index)
                else:
                    self._failed(task, fault)
            except BaseException as error:
                self._fail(error)

    def _failed(self, task: _Task, fault: DeviceFault) -> None:
        lane, policy = self._lanes.lane_of[task.index], task.region.faults
        for key in (*task.entered, *self._lanes.keys[task.index]):
            self._places.pop((key, lane), None)
        attempt = self._attempts[task.index] = self._attempts.get(task.index, 0) + 1
        if attempt <= policy.retries:
            _faults.warning("%s; the region is run again, %d of %d times", _short(fault), attempt, policy.retries)
            task.member.count(retries=1)
            self._submit(task.index, task.region)
        elif policy.fallback:
            _faults.warning("%s; the region runs on the numpy kernels instead", _short(fault))
            self._jobs.put(("fallback", task.index))
        else:
            _faults.error("%s", fault)
            self._fail(fault)

    def _cancel(self) -> None:
        """End the run, without the lock: it may be held by a vendor's call that does not return."""
        names = ", ".join(each.device.name for each in self._instances)
        self._fail(time_is_up(self._limits, f"waiting for {names}"))

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self.is_over = True
        self._jobs.put(_END)

    def patience(self, region: DeviceRegion) -> float | None:
        """Return the seconds that a command of a region may take: as its policy says, and no more than the run has."""
        seconds = region.faults.timeout, self._limits.remaining
        return min((each for each in seconds if each is not None), default=None)

    def record(self, span: Span) -> None:
        """Keep a span, if they are wanted."""
        if self.spans is not None:
            self.spans.append(span)


_END: Job = ("end", 0)


class _Task:
    """The commands of one region: copies to its device, the region, and copies to the host."""

    def __init__(self, request: Request, index: int, region: DeviceRegion, member: Member) -> None:
        self.index = index
        self.region = region
        self.member = member
        self.entered: list[int] = []
        """Slots that have been brought to the device for it."""
        self.results: dict[int, Array] = {}
        self.error: Exception | None = None
        self._request = request
        self._commands: list[tuple[str, Any, int, float]] = []

    def add(self, name: str, event: Any, size: int = 0) -> None:
        """Add a command that has been submitted."""
        self._commands.append((name, event, size, time.perf_counter()))

    def finish(self) -> None:
        """Wait for the commands, and tell the request."""
        name = self.member.device.name
        fault = None if self.error is None else located(as_fault(self.error, "submit"), self.region, name)
        counts = {"runs": 0, "copies_in": 0, "copies_out": 0, "copies_across": 0}
        counts |= {"bytes_in": 0, "bytes_out": 0, "bytes_across": 0}
        free = 0.0
        request = self._request
        for command, event, size, submitted in self._commands:
            try:
                self._report(
                    self.member.instance.awaited(event, request.patience(self.region), lambda: not request.is_over)
                )
            except BaseException as error:  # an exit, too, is a fault: other requests need this thread
                fault = fault or located(as_fault(error, command), self.region, name)
                if isinstance(error, TimeoutError):
                    break
                continue
            ended = time.perf_counter()
            self._request.record(Span(name, self.index, command, max(submitted, free), ended, size))
            free = ended
            if command == "run":
                counts["runs"] += 1
            else:
                counts[command.replace("copy", "copies").replace(" ", "_")] += 1
                counts[command.replace("copy", "bytes").replace(" ", "_")] += size
        self.member.count(faults=int(fault is not None), **counts)
        self._request.finished(self, fault)

    def _report(self, activities: Sequence[Activity]) -> None:
        for each in activities:
            self._request.record(
                Span(
                    self.member.device.name, self.index, each.name, each.start, each.end, each.bytes, each.sources, True
                )
            )


def located(fault: DeviceFault, region: DeviceRegion, device: str) -> DeviceFault:
    """Return a fault that says where it happened."""
    sources = fault.sources or region.sources
    shown = ", ".join(sources[:_SHOWN]) + (f" and {len(sources) - _SHOWN} more" if len(sources) > _SHOWN else "")
    return DeviceFault(
        fault.message, command=fault.command, region=region.symbol, sources=sources,
        where=f"{device}, region {region.symbol}, command {fault.command or 'run'}", expected=fault.expected,
        found="; ".join(filter(None, (fault.found, shown and f"nodes {shown}"))),
        hint=fault.hint or "Choose what is done about faults with faults=FaultPolicy(retries=…, fallback=True).",
    )  # fmt: skip


def _short(fault: DeviceFault) -> str:
    return f"{fault.where}: {fault.message}"


_SHOWN = 4
"""How many nodes the text of a fault names."""


def _is_buffer(value: Any) -> bool:
    return isinstance(value, DeviceBuffer)


def _contiguous(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(np.shape(array))


def _reaches(member: Member, device: Any) -> bool:
    """Tell whether a device can read the buffers of another one, or is the same."""
    return member.device is device or member.device.reaches(device)
