"""Properties of this machine: instruction sets, vectors, caches, threads, and the peak of a core."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinycomp.errors import UnsupportedError
from tinycomp.memory.system import usable_processors
from tinycomp.records import asdict, dataclass
from tinycomp.runtime.native.library import c_strings, ffi, lib, raise_error


def available_isas() -> tuple[str, ...]:
    """Return the instruction sets that this machine runs, best last, for example ``("scalar", "avx2", "avx512")``."""
    return c_strings(lib.tc_isa_name)


def packs_weights(isa: str) -> bool:
    """Return whether weights can be packed here for an instruction set, be it that this machine runs it or not."""
    return bool(lib.tc_isa_packs(isa.encode()))


def default_isa() -> str:
    """Return the instruction set that programs use by default: ``TINYCOMP_ISA`` if it is set, else the best.

    Raises:
        UnsupportedError: If the environment asks for one that this machine does not run.
    """
    name = lib.tc_isa_default()
    if name == ffi.NULL:
        wanted = os.environ.get("TINYCOMP_ISA", "")
        raise UnsupportedError(
            f'this machine cannot run the instruction set "{wanted}"',
            where="TINYCOMP_ISA",
            expected=f"one of {', '.join(available_isas())}",
        )
    return str(ffi.string(name).decode())


class IsaShape(NamedTuple):
    """What products of matrices look like on an instruction set.

    Attributes:
        lanes: Floats of a vector.
        panel: Columns of a panel of packed weights.
        pairs: Whether one instruction multiplies vectors of pairs of bfloat16.
    """

    lanes: int
    panel: int
    pairs: bool = False


def isa_shape(isa: str) -> IsaShape:
    """Return the vectors and panels of an instruction set of this machine.

    Raises:
        UnsupportedError: If this machine does not run it.
    """
    shape = ffi.new("tc_isa_shape *")
    if not lib.tc_isa_describe(isa.encode(), shape):
        raise UnsupportedError(f'no instruction set "{isa}" here', expected=f"one of {', '.join(available_isas())}")
    return IsaShape(shape.lanes, shape.panel, bool(shape.pairs))


def cache_bytes(level: int) -> int:
    """Return the bytes of a cache of level 1 (data), 2 or 3; a common size where the system does not tell."""
    return int(lib.tc_cache_bytes(level))


def cpu_features() -> tuple[str, ...]:
    """Return the processor features that matter to the runtime and that this machine has."""
    return c_strings(lib.tc_cpu_feature)


def default_threads() -> int:
    """Return how many threads this process may use: its CPU affinity, cut to the cgroup's quota if there is one."""
    affinity = usable_processors()
    quota = _cgroup_quota()
    return max(1, min(affinity, int(np.ceil(quota)) if quota is not None else affinity))


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the processors that cgroup v2 or v1 grants, or None where there is no limit."""
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text().split()
            return None if quota == "max" else int(quota) / int(period)
        quota = (root / "cpu" / "cpu.cfs_quota_us").read_text()
        period = (root / "cpu" / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


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
        """Rebuild what :meth:`to_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: If a part is missing or of the wrong kind.
        """
        return cls(str(data["cpu"]), int(data["l1"]), int(data["l2"]), int(data["l3"]))


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    return Machine(_cpu_name(Path("/proc/cpuinfo")), cache_bytes(1), cache_bytes(2), cache_bytes(3))


def _cpu_name(cpuinfo: Path) -> str:
    """Return the processor's model name as Linux states it; on other systems, the name that Python knows."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    stated = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    names = {key.strip(): value.strip() for key, value in stated.items()}
    return names.get("model name") or platform.processor() or platform.machine()


@functools.cache
def peak_flops(isa: str) -> float:
    """Return the floating-point operations per second of one core: independent multiply-adds and nothing else.

    It takes some milliseconds, once per process and instruction set. An instruction set without vectors has the speed
    that the compiler's own vectors give it.

    Args:
        isa: One of :func:`tinycomp.runtime.native.processor.available_isas`.

    Raises:
        UnsupportedError: If this machine does not run the instruction set.
    """
    return _measured(lib.tc_peak_flops, isa)


@functools.cache
def peak_int8(isa: str) -> float:
    """Return the operations per second of one core on 8-bit numbers: exact products, added up in 32 bits.

    Otherwise as :func:`peak_flops`.
    """
    return _measured(lib.tc_peak_int8, isa)


@functools.cache
def peak_read(isa: str, threads: int, nbytes: int) -> float:
    """Return the bytes per second that threads read together, of ``nbytes`` of memory again and again.

    What lies in a cache is read faster than what does not: measure with as much as the work in question reads.

    Args:
        isa: One of :func:`tinycomp.runtime.native.processor.available_isas`.
        threads: How many, from 1 to 1024.
        nbytes: More than 0.

    Raises:
        UnsupportedError: If this machine does not run the instruction set.
        TargetError: If a number cannot be what it is.
    """
    return _measured(lib.tc_peak_read, isa, threads, nbytes)


def _measured(measure: Callable[..., int], isa: str, *sizes: int) -> float:
    error, rate = ffi.new("tc_error *"), ffi.new("double *")
    if measure(isa.encode(), *sizes, rate, error):
        raise_error(error, "peak of the machine")
    return float(rate[0])
