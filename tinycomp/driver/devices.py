"""The devices of a module, and the policies for their faults: ``devices=`` and ``faults=``."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinycomp.errors import OptionError, did_you_mean, shown
from tinycomp.lazy import LazyModule
from tinycomp.records import dataclass, field
from tinycomp.target import Target

if TYPE_CHECKING:
    from tinycomp.runtime.device import instances, interface
    from tinycomp.runtime.device.interface import Device, FaultPolicy

    Picks = int | Device | Sequence[int | Device]
    """How many devices, or which: by index, or open ones."""
    Devices = Picks | Mapping[str, Picks] | None
    """The same for the only target with devices, or by name of the target."""
    Faults = FaultPolicy | Mapping[str, FaultPolicy] | None
    """What is done about faults: of all regions, or by symbol of a region, source name, target, or a glob for these."""
else:
    instances = LazyModule("tinycomp.runtime.device.instances")
    interface = LazyModule("tinycomp.runtime.device.interface")


@dataclass
class DeviceOptions:
    """The choices of one compilation, and the devices of each target.

    Attributes:
        picks: Devices by target.
        faults: What is done about faults; the first name that fits a region counts.
    """

    picks: Mapping[str, Sequence[int | Device]] = field(default_factory=dict)
    faults: Mapping[str, FaultPolicy] = field(default_factory=dict)
    _sets: dict[str, instances.DeviceSet] = field(default_factory=dict)

    @classmethod
    def read(cls, devices: Devices, faults: Faults, targets: Sequence[Target]) -> DeviceOptions:
        """Return the options that a caller has given.

        Raises:
            OptionError: If one is not what it should be, or of no target with devices.
        """
        return cls(_picks(devices, [t.name for t in targets if t.has_devices]), _policies(faults))

    def set_of(self, target: Target) -> instances.DeviceSet:
        """Return the devices of a target."""
        if target.name not in self._sets:
            picks = self.picks.get(target.name, (0,))
            self._sets[target.name] = instances.DeviceSet(target.name, target.open_device, picks)
        return self._sets[target.name]

    @property
    def in_use(self) -> bool:
        """Tell whether anything has asked for the devices of a target."""
        return bool(self._sets)

    def policy_for(self, symbol: str, target: str, sources: Sequence[str]) -> FaultPolicy | None:
        """Return the fault policy of a region, if the options give one."""
        names = (symbol, target, *sources)
        for pattern, policy in self.faults.items():
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return policy
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the options for a saved module, where a list of open devices becomes their number."""
        picks = {
            name: [index if isinstance(pick, interface.Device) else pick for index, pick in enumerate(each)]
            for name, each in self.picks.items()
        }
        return {"devices": picks, "faults": {name: dataclasses.asdict(policy) for name, policy in self.faults.items()}}


def _picks(devices: Devices, names: Sequence[str]) -> dict[str, Sequence[int | Device]]:
    if devices is None:
        return {}
    if not isinstance(devices, Mapping):
        if len(names) != 1:
            found = f"{len(names)} targets with devices" + (f": {', '.join(names)}" if names else "")
            raise OptionError(
                "it is not said whose devices these are", where="devices",
                expected="one target with devices, or a dict of devices by target", found=found,
            )  # fmt: skip
        devices = {names[0]: devices}
    for name in devices:
        if name not in names:
            raise OptionError(
                f'there are devices for "{name}", which is not a target of this module with devices', where="devices",
                expected=", ".join(names) or "none: no target has devices", hint=did_you_mean(str(name), names),
            )  # fmt: skip
    return {name: _listed(picks, f"devices of {name}") for name, picks in devices.items()}


_MOST = 1 << 16
"""More devices than anything has."""


def _listed(picks: Picks, where: str) -> Sequence[int | Device]:
    listed: Any = [picks] if isinstance(picks, interface.Device) else picks
    if isinstance(picks, int) and _is_index(picks) and picks < _MOST:
        listed = [*range(picks)]
    if isinstance(listed, (list, tuple)) and all(
        isinstance(pick, interface.Device) or _is_index(pick) for pick in listed
    ):
        different = {pick if _is_index(pick) else id(pick) for pick in listed}
        if 0 < len(listed) == len(different):
            return tuple(listed)
    raise OptionError(
        "not a choice of devices", where=where, expected="a number of them from 1 on, or different indices or devices",
        found=shown(picks),
    )  # fmt: skip


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _policies(faults: Faults) -> dict[str, FaultPolicy]:
    if faults is None:
        return {}
    named = {"*": faults} if isinstance(faults, interface.FaultPolicy) else faults
    if not isinstance(named, Mapping) or not all(
        isinstance(name, str) and isinstance(policy, interface.FaultPolicy) for name, policy in named.items()
    ):
        raise OptionError(
            "not a policy for faults", where="faults",
            expected="a FaultPolicy, or a dict of them by region, node or target", found=shown(faults),
        )  # fmt: skip
    return dict(named)


def from_saved(about: Mapping[str, Any], targets: Sequence[Target], devices: Devices, faults: Faults) -> DeviceOptions:
    """Return the options of a saved module; those that are given now come before them.

    Raises:
        ArtifactError: If the description is damaged.
        OptionError: If an option that is given is not what it should be.
    """
    from tinycomp.runtime.validate import check_devices  # imported here: only saved modules need it

    given = DeviceOptions.read(devices, faults, targets)
    picks, policies = about.get("devices", {}), about.get("faults", {})
    check_devices(picks, policies)
    saved = {
        name: interface.FaultPolicy(policy["retries"], policy["fallback"], policy["timeout"])
        for name, policy in policies.items()
        if name not in given.faults
    }
    return DeviceOptions(
        {**{name: tuple(each) for name, each in picks.items()}, **given.picks}, {**given.faults, **saved}
    )
