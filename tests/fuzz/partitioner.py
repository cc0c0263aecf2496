"""Random graphs and targets through the partitioning passes; the generator and its oracle belong to the benchmarks."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from benchmarks.partition_fuzz import check, random_graph
from tests.fuzz.harness import Harness


def save(seed: int, folder: Path, stem: str) -> None:
    """Write the graph as text."""
    (folder / f"{stem}.tir").write_text(str(random_graph(random.Random(seed))), encoding="utf-8")


def _check(seed: int) -> Counter[str]:
    return check(seed)


HARNESS = Harness("partitioner", _check, save)
