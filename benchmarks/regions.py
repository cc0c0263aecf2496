"""How many regions models are cut into, against the fewest possible, and what stays on the host.

Run as ``python -m benchmarks regions``; ``--write`` puts the table into ``docs/partitioning.md``. Models of the corpus
that are not in its cache are exported, or left out without PyTorch.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx.backend.test

import tinycomp
from benchmarks import corpus, page
from tinycomp.data import digits_model
from tinycomp.driver.pipeline import optimisation_passes, partitioning_passes
from tinycomp.driver.report import make_report
from tinycomp.errors import TargetError
from tinycomp.passes.base import Pass
from tinycomp.passes.merge_regions import MergeRegions, find_regions
from tinycomp.passes.search.regions import RegionSearch
from tinycomp.rewrite import open_graphs
from tinycomp.target import Target, find

PAGE = page.Page("regions", "partitioning.md")
CORPUS = ("resnet50", "mobilenet_v2", "bert", "unet", "ssd_nms")
TARGETS = ("c", "npu_sim")


@dataclass(frozen=True)
class Row:
    """One model on one target.

    Attributes:
        model: Its name.
        nodes: Nodes after optimisation, those in bodies and composites included.
        target: The target.
        regions: Regions found.
        bound: What their number cannot undercut, given what the target claims.
        hosts: Nodes on the host.
        share: Share of MACs in regions.
    """

    model: str
    nodes: int
    target: str
    regions: int
    bound: int
    hosts: int
    share: float

    @property
    def cell(self) -> str:
        """The number of regions, what it cannot undercut if that is less, the host nodes and the share of MACs."""
        proven = self.bound == self.regions
        parts = [str(self.regions) if proven else f"{self.regions} (at least {self.bound})"]
        if self.hosts:
            parts += [f"{self.hosts} host", percent(self.share)]
        return ", ".join(parts)


@dataclass(frozen=True)
class Measure(Pass):
    """Adds up lower bounds where :class:`MergeRegions` is about to run; changes nothing."""

    bounds: list[int]

    def run(self, graph: tinycomp.Graph) -> bool:
        """Search every open graph."""
        search = RegionSearch()
        for scope in open_graphs(graph):
            find_regions(scope, search)
        self.bounds.append(search.bound)
        return False


def measure(name: str, model: Path, target: Target) -> Row:
    """Partition a model for one target."""
    bounds: list[int] = []
    passes: list[Pass] = [*optimisation_passes()]
    for each in partitioning_passes([target]):
        passes += [Measure(bounds), each] if isinstance(each, MergeRegions) else [each]
    graph = tinycomp.Pipeline(passes)(tinycomp.from_onnx(model))
    report = make_report(graph, name, [target.name])
    totals = report.totals
    nodes = totals["nodes"]["offloaded"] + totals["nodes"]["host"]
    return Row(name, nodes, target.name, len(report.regions), bounds[0], len(report.hosts), totals["macs"]["share"])


def models() -> Iterator[tuple[str, Path]]:
    """The models at hand: corpus, shipped, and the light ones of the onnx package."""
    for name in CORPUS:
        try:
            yield name, corpus.path(name)
        except ModuleNotFoundError as error:
            print(f"without {name}: {error}", file=sys.stderr)
    yield "digits", digits_model()
    yield "digits, int8", digits_model(quantized=True)
    light = Path(onnx.backend.test.__file__).parent / "data" / "light"
    for path in sorted(light.glob("light_*.onnx")):
        yield f"{path.stem.removeprefix('light_')} (light)", path


def targets(names: Sequence[str]) -> list[Target]:
    """The targets of these names that can be found; whether they could run here does not matter."""
    found = []
    for name in names:
        try:
            found.append(find(name))
        except TargetError as error:
            print(f"without {name}: {error}", file=sys.stderr)
    return found


def table(rows: Sequence[Row]) -> str:
    """Return one line per model and one column per target as Markdown; see :attr:`Row.cell`."""
    models: dict[str, dict[str, Row]] = {}
    for row in rows:
        models.setdefault(row.model, {})[row.target] = row
    names = list(dict.fromkeys(row.target for row in rows))
    cells = ([model, *(found[n].cell if n in found else "" for n in names)] for model, found in models.items())
    return page.table(["model", *names], cells, left=len(names) + 1)


def percent(share: float) -> str:
    """A share in percent, rounded down: 100 % is all."""
    return f"{math.floor(share * 1000) / 10:.1f} %"


def main() -> int:
    """Print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks regions", description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="name", help="default: c npu_sim")
    PAGE.add_option(parser)
    options = parser.parse_args()
    rows = []
    chosen = targets(options.targets)
    for name, path in models():
        for target in chosen:
            rows.append(measure(name, path, target))
            print(f"{rows[-1]}", file=sys.stderr, flush=True)
    PAGE.publish(table(rows), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
