"""What identifies a machine where the speed of kernels is concerned."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinycomp.runtime.processor import cache_bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor as a tuning log names it.

    Attributes:
        cpu: Its model name.
        l1: Bytes of the first-level data cache.
        l2: Bytes of the second-level cache.
        l3: Bytes of the third-level cache.
    """

    cpu: str
    l1: int
    l2: int
    l3: int

    def __str__(self) -> str:
        """Return for example ``Xeon (48 KB L1, 2048 KB L2, 36608 KB L3)``."""
        return f"{self.cpu} ({self.l1 >> 10} KB L1, {self.l2 >> 10} KB L2, {self.l3 >> 10} KB L3)"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Machine:
        """The inverse of :meth:`to_dict`.

        Raises:
            KeyError, TypeError, ValueError: If a part is missing or of the wrong kind.
        """
        return cls(str(data["cpu"]), int(data["l1"]), int(data["l2"]), int(data["l3"]))


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    return Machine(_cpu_name(Path("/proc/cpuinfo")), cache_bytes(1), cache_bytes(2), cache_bytes(3))


def _cpu_name(cpuinfo: Path) -> str:
    """The processor's model name as Linux states it, elsewhere what Python knows of it."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    stated = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    names = {key.strip(): value.strip() for key, value in stated.items()}
    return names.get("model name") or platform.processor() or platform.machine()
