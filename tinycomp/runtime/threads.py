"""How many threads a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np


def default_threads() -> int:
    """Return how many threads this process may use: its CPU affinity, cut to the cgroup's quota if there is one."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
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
