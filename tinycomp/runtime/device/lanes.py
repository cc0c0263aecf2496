"""Which steps of a plan run on which device one after the other, what is copied, and where values lie there.

Regions of one target that pass values to each other, directly or through others, make a *lane*: they run on one device,
in the order of the plan, and what they pass stays there. Different lanes may run at the same time, on different devices
of the target where it has several. A value that a lane needs from elsewhere is copied once, before its first region
there; what the host or another lane needs is copied behind the region that makes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from tinycomp.lazy import cached_property
from tinycomp.memory.locks import Lock
from tinycomp.memory.planner import ALIGNMENT, Lifetime, plan_arena
from tinycomp.records import dataclass
from tinycomp.runtime.device.instances import DeviceSet, Instance
from tinycomp.runtime.device.interface import DeviceBuffer
from tinycomp.runtime.device.region import DeviceRegion, Shape, follows_from, places_of, shape_of
from tinycomp.runtime.plan import DISCARD, Run, Step, device_sets
from tinycomp.runtime.regions import SPECIALISATIONS, BoundedCache
from tinycomp.runtime.rows import CopyRow
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import sample, size, substitute

HOST = "host"


@dataclass(frozen=True)
class Lane:
    """Regions that run on one device, one after the other.

    Attributes:
        devices: The devices that it may run on.
        steps: The steps of the plan, in order.
        reads: Slots of what comes from elsewhere, constants apart.
        constants: Slots of constants.
        makes: Keys of what its regions make: the slot, or a negative number for a result that nobody reads.
    """

    devices: DeviceSet
    steps: tuple[int, ...]
    reads: tuple[int, ...]
    constants: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True)
class Placed:
    """Where things lie for sizes of a run.

    Attributes:
        runs: What computes each step of a lane.
        types: Shape and dtype of what lies on devices, by key.
        offsets: Where it lies in the memory of each lane, by key.
        bytes: How much memory each lane needs.
    """

    runs: Mapping[int, Run]
    types: Mapping[int, tuple[Shape, np.dtype[Any]]]
    offsets: tuple[Mapping[int, int], ...]
    bytes: tuple[int, ...]


class Lanes:
    """The lanes of a plan, and what its steps need of each other.

    Args:
        inputs: What the plan takes.
        steps: Its steps.
        slots: The values that every run starts with.
        input_slots: Where each input goes.
        output_slots: Where each output is found.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        steps: Sequence[Step],
        slots: Sequence[Any],
        input_slots: Sequence[int],
        output_slots: Sequence[int],
    ) -> None:
        self._names = places_of(inputs)
        self.steps = tuple(steps)
        self.constants = frozenset(slot for slot, value in enumerate(slots) if value is not None)
        self.regions = {i: step.run for i, step in enumerate(steps) if self._is_planned(step.run)}
        self.keys = {i: _keys(i, steps[i].writes) for i in self.regions}
        self.producer = {slot: i for i, step in enumerate(steps) for slot in step.writes if slot != DISCARD}
        self.before = [{self.producer[s] for s in step.reads if s in self.producer} for step in steps]
        self.readers: dict[int, list[int]] = {}
        for index, step in enumerate(steps):
            for slot in dict.fromkeys(step.reads):
                self.readers.setdefault(slot, []).append(index)
        self.lanes = tuple(self._lanes())
        self.lane_of = {step: number for number, lane in enumerate(self.lanes) for step in lane.steps}
        self.needs = [0] * len(steps)
        """How many steps each one waits for, beside those of its own lane, which has an order."""
        self.after: list[list[int]] = [[] for _ in steps]
        for index, before in enumerate(self.before):
            for other in before:
                if index not in self.lane_of or self.lane_of[index] != self.lane_of.get(other):
                    self.needs[index] += 1
                    self.after[other].append(index)
        read_on_host = {s for i, step in enumerate(steps) if i not in self.regions for s in step.reads}
        self.read_on_host = frozenset(read_on_host)
        self.outputs = frozenset(output_slots)
        self.types = self._types(inputs, input_slots)
        self.resident: dict[tuple[int, int], tuple[Instance, DeviceBuffer]] = {}
        """Constants that have been brought to devices, by slot and number of the device."""
        self.bringing = Lock()
        """Held while constants are."""
        self._placed: BoundedCache[tuple[int, ...], Placed] = BoundedCache(SPECIALISATIONS)

    def _is_planned(self, run: Run) -> TypeGuard[DeviceRegion]:
        """Tell whether a step is a region whose operands and results have sizes that are known when a run begins."""
        return isinstance(run, DeviceRegion) and all(follows_from(s, self._names) for s in (*run.inputs, *run.outputs))

    def _lanes(self) -> Iterable[Lane]:
        """Yield the lanes: components of the regions of one target along the values that they pass."""
        leader = {index: index for index in self.regions}

        def find(index: int) -> int:
            while leader[index] != index:
                leader[index] = leader[leader[index]]
                index = leader[index]
            return index

        for index, region in self.regions.items():
            for other in self.before[index]:
                if other in self.regions and self.regions[other].devices is region.devices:
                    leader[find(index)] = find(other)
        groups: dict[int, list[int]] = {}
        for index in self.regions:
            groups.setdefault(find(index), []).append(index)
        for members in groups.values():
            makes = [key for index in members for key in self.keys[index]]
            read = dict.fromkeys(slot for index in members for slot in self.steps[index].reads)
            from_elsewhere = [slot for slot in read if slot not in makes]
            yield Lane(
                self.regions[members[0]].devices,
                tuple(members),
                tuple(slot for slot in from_elsewhere if slot not in self.constants),
                tuple(slot for slot in from_elsewhere if slot in self.constants),
                tuple(makes),
            )

    def _types(self, inputs: Sequence[TensorSpec], input_slots: Sequence[int]) -> dict[int, TensorSpec]:
        """Return what lies on devices, by key; inputs have the names of the model."""
        types: dict[int, TensorSpec] = {}
        for index, region in self.regions.items():
            types.update(zip(self.keys[index], region.outputs, strict=True))
        for index, region in self.regions.items():
            for slot, spec in zip(self.steps[index].reads, region.inputs, strict=True):
                types.setdefault(slot, spec)
        for slot, spec in zip(input_slots, inputs, strict=True):
            if slot in types:
                types[slot] = spec
        return types

    def lane_makes(self, lane: int, key: int) -> bool:
        """Tell whether a value is made in a lane."""
        return self.lane_of.get(self.producer.get(key, -1)) == lane

    @cached_property
    def nests(self) -> bool:
        """Tell whether a step on the host may use devices, too: in its bodies, or as a region by itself."""
        return any(
            i not in self.regions
            and (getattr(step.run, "devices", None) is not None or any(map(device_sets, step.bodies)))
            for i, step in enumerate(self.steps)
        )

    def sizes(self, feeds: Sequence[Any]) -> dict[str, int]:
        """Return the sizes of a run by name."""
        return {name: int(np.shape(feeds[index])[axis]) for name, (index, axis) in self._names.items()}

    def placed(self, sizes: Mapping[str, int]) -> Placed:
        """Return where things lie for sizes of a run; regions that are built for them are."""
        return self._placed.get(tuple(sizes.values()), lambda: self._place(sizes))

    def _place(self, sizes: Mapping[str, int]) -> Placed:
        types: dict[int, tuple[Shape, np.dtype[Any]]] = {}
        for key, spec in self.types.items():
            shape, dtype = shape_of(spec, sizes), spec.numpy_dtype
            assert shape is not None, spec
            assert dtype is not None, spec
            types[key] = shape, dtype
        runs = {i: r.at(tuple(types[s][0] for s in self.steps[i].reads)) for i, r in self.regions.items()}
        offsets, totals = [], []
        for lane in self.lanes:
            lives = self._lives(lane, {key: _bytes(*types[key]) for key in (*lane.reads, *lane.makes)})
            unit = max(ALIGNMENT, *(m.device.memories[0].alignment for m in lane.devices.members()))
            arena = plan_arena(
                [Lifetime(-(-life.size // unit) * unit, life.first, life.last) for life in lives.values()]
            )
            offsets.append(dict(zip(lives, arena.offsets, strict=True)))
            totals.append(-(-arena.size // unit) * unit)
        return Placed(runs, types, tuple(offsets), tuple(totals))

    def _lives(self, lane: Lane, sizes: Mapping[int, int]) -> dict[int, Lifetime]:
        """Return when what lies on the device of a lane is needed there, in places of its steps."""
        place = {step: number for number, step in enumerate(lane.steps)}
        lives = {}
        for slot in lane.reads:
            used = [place[i] for i in self.readers[slot] if i in place]
            lives[slot] = Lifetime(sizes[slot], min(used), max(used))
        for index in lane.steps:
            for key in self.keys[index]:
                readers = self.readers.get(key, [])
                used = [place[i] for i in readers if i in place]
                last = max(used, default=place[index])
                if any(i in self.regions and i not in place for i in readers):  # another device may read it at any time
                    last = len(lane.steps)
                lives[key] = Lifetime(sizes[key], place[index], last)
        return lives

    def copies(self, sizes: Mapping[str, int]) -> tuple[CopyRow, ...]:
        """Return what every run copies, in the order of the plan; sizes that are not known count as 1."""
        rows = []
        seen: set[tuple[int, int]] = set()
        for index, region in self.regions.items():
            number, target = self.lane_of[index], region.devices.target
            lane = self.lanes[number]
            for slot in dict.fromkeys(self.steps[index].reads):
                if slot in lane.reads and (slot, number) not in seen:
                    seen.add((slot, number))
                    producer = self.producer.get(slot)
                    made = self.regions.get(-1 if producer is None else producer)
                    source = HOST if made is None else made.devices.target
                    rows.append(
                        CopyRow(self._name(slot), source, target, self.steps[index].label, self._size(slot, sizes))
                    )
            rows += [
                CopyRow(self._name(key), target, HOST, self.steps[index].label, self._size(key, sizes))
                for key in self.keys[index]
                if key in self.read_on_host or key in self.outputs
            ]
        return tuple(rows)

    def _name(self, key: int) -> str:
        return self.types[key].name

    def _size(self, key: int, sizes: Mapping[str, int]) -> int:
        spec = self.types[key]
        dims = [sample(substitute(size(dim), sizes)) for dim in spec.shape or () if dim is not None]
        return _bytes(tuple(dims), np.dtype(spec.numpy_dtype))


def _keys(index: int, writes: Sequence[int]) -> tuple[int, ...]:
    """Return a key for every result of a step: its slot, or a negative number for one that is skipped."""
    return tuple(slot if slot != DISCARD else -1 - n - (index << 16) for n, slot in enumerate(writes))


def _bytes(shape: Shape, dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize
