"""``tinycomp verify``."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

import tinycomp
from tinycomp.checking import Difference, RegionCheck, compare, compare_regions
from tinycomp.checking.reproduce import reproduce_region
from tinycomp.cli.exits import FAILED, OK, UsageError
from tinycomp.cli.feeds import CalibrationFiles, feeds_of
from tinycomp.cli.models import compile_model, compiler_of, load_graph
from tinycomp.cli.options import (
    add_compilation,
    add_feeds,
    add_model,
    amount,
    finite,
    given_options,
)
from tinycomp.cli.peer import PeerError, Runner, available, onnxruntime_runner
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable
from tinycomp.ir.graph import Graph
from tinycomp.quantization.accuracy import compare_layers
from tinycomp.runtime.accuracy import SLACK, Accuracy
from tinycomp.runtime.module import Module
from tinycomp.target import Tolerance

_EXAMPLE = """\
tinycomp verify model.onnx -t c
tinycomp verify model.onnx -t npu_sim -t c --regions --input feeds.npz
tinycomp verify digits --rtol 1e-5 --atol 1e-6
tinycomp verify digits-int8 -t c --layers digits --data digits --html layers.html"""
_NUMPY = "numpy"


def _configure(parser: ArgumentParser) -> None:
    add_model(parser)
    add_compilation(parser)
    add_feeds(parser, default="made up if none is given")
    parser.add_argument(
        "--against", choices=("onnxruntime", _NUMPY),
        help="the reference (default: onnxruntime if it is installed and runs the model, else the numpy kernels)",
    )  # fmt: skip
    parser.add_argument("--regions", action="store_true", help="compare every region too, by its target's tolerance")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="DIR",
        help="with --regions: write the smallest part of the first region that differs there, as ONNX with inputs",
    )
    layers = parser.add_argument_group("layers", "for example: --layers float.onnx --data images/")
    layers.add_argument(
        "--layers", metavar="MODEL", help="compare every layer of a quantised model with the float model it was made of"
    )
    layers.add_argument(
        "--data", action="append", default=[], metavar="PATH",
        help="inputs for it: a folder of .npy or .npz files, or one such file; "
        '"digits" for the images that come with tinycomp (default: those of the comparison)',
    )  # fmt: skip
    layers.add_argument(
        "--slack", type=finite, default=SLACK, metavar="DB",
        help=f"how much worse than rounding alone a layer may be before it departs (default: {SLACK:g} dB)",
    )  # fmt: skip
    layers.add_argument("--html", type=Path, metavar="FILE", help="write them with the report, as a web page")
    parser.add_argument(
        "--rtol", type=amount, default=1e-3, metavar="X",
        help="allowed difference, relative to the largest magnitude of the reference (default: 1e-3)",
    )  # fmt: skip
    parser.add_argument("--atol", type=amount, default=1e-5, metavar="X", help="added to it (default: 1e-5)")


def _run(options: Namespace, session: Session) -> int:
    if options.save is not None and not options.regions:
        raise UsageError(
            "only a region that differs is saved", where="--save", expected="--regions along with it",
            hint="Add --regions.",
        )  # fmt: skip
    for name in ("data", "html"):
        if getattr(options, name) and options.layers is None:
            raise UsageError("there are no layers without a float model", where=f"--{name}", hint="Add --layers MODEL.")
    graph = load_graph(options)
    module = compile_model(options, session, graph)
    feeds = feeds_of(options, module.inputs, module.defaults, default_seed=0)
    tolerance = Tolerance(options.rtol, options.atol)
    with session.progress("comparing"):
        reference, wanted = _reference(options, session, graph, module, feeds)
        results = module.run(feeds)
        outputs = [compare(name, results[name], wanted[name], tolerance) for name in results]
        regions = _regions(options, graph, module, feeds) if options.regions else []
    accuracy = None if options.layers is None else _layers(options, session, graph, module, feeds)
    saved = _save(options, regions)
    good = all(d.within for d in outputs) and all(r.within for r in regions)
    good = good and (accuracy is None or accuracy.first_on_target is None)
    _show(session, options, reference, outputs, regions)
    if saved is not None:
        session.show(f"Wrote the smallest graph that shows it to {saved}, and its inputs beside it.")
    if accuracy is not None:
        session.show(accuracy)
    if options.html is not None:
        dataclasses.replace(module.report(), accuracy=accuracy).save_html(options.html)
        session.show(f"Wrote {options.html}.")
    session.result(
        {
            "ok": good,
            "reference": reference,
            "outputs": [asdict(d) for d in outputs],
            "regions": [
                {
                    "symbol": r.symbol,
                    "target": r.target,
                    "within": r.within,
                    "reached": r.reached,
                    "values": [asdict(d) for d in r.differences],
                    "layers": [asdict(d) for d in r.layers],
                }
                for r in regions
            ],
            "first_difference": _first(outputs, regions),
            "saved": saved,
            "layers": None if accuracy is None else accuracy.to_dict(),
        }
    )
    return OK if good else FAILED


def _reference(
    options: Namespace, session: Session, graph: Graph, module: Module, feeds: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Run the model where it is to be compared with; return who ran it, and its results."""
    if options.against != _NUMPY and (options.against or available()):
        try:
            runner: Runner = onnxruntime_runner(options, module.threads, literally=True)
            return "onnxruntime", runner(feeds)
        except PeerError as error:
            if options.against:
                raise
            session.note(f"{error.message}: {error.found}; comparing with the numpy kernels instead")
    # No passes: what is compared with must not share the optimiser's faults.
    plain = tinycomp.compile(graph, [], passes=[])
    return "the numpy kernels", plain.run(feeds)


def _regions(options: Namespace, graph: Graph, module: Module, feeds: Mapping[str, Any]) -> list[RegionCheck]:
    """Compare every region with the numpy kernels, in the sizes that the inputs have."""
    shapes = {name: np.shape(value) for name, value in feeds.items() if isinstance(value, np.ndarray)}
    compiler = compiler_of(options)
    partitioned = compiler.partition(tinycomp.from_onnx(graph, shapes))
    compiler.lower(partitioned)  # code generators may decline regions
    return compare_regions(partitioned, compiler.lowering(), {**module.defaults, **feeds})


def _layers(options: Namespace, session: Session, graph: Graph, module: Module, feeds: Mapping[str, Any]) -> Accuracy:
    """Compare the layers with those of the float model, on the data that are given for it or else on the inputs."""
    data = CalibrationFiles(options.data, module.inputs) if options.data else [feeds]
    return compare_layers(
        load_graph(Namespace(**{**vars(options), "model": options.layers, "shapes": []})), graph, data,
        slack=options.slack, progress=False if session.as_json else None, **{**given_options(options), "shapes": None},
    )  # fmt: skip


def _save(options: Namespace, regions: Sequence[RegionCheck]) -> Path | None:
    """Write the smallest part of the first region that differs, if that is asked for; return the model's path."""
    wrong = next((r for r in regions if not r.within), None)
    if wrong is None or options.save is None:
        return None
    return reproduce_region(wrong.node, wrong.operands, compiler_of(options).lowering()).write(
        options.save, wrong.symbol
    )


def _first(outputs: Sequence[Difference], regions: Sequence[RegionCheck]) -> str | None:
    """Name the first thing that differs in order of execution; regions come before the results they lead to."""
    for region in regions:
        if not region.within:
            first = next((d for d in region.layers if not d.within), None)
            return f"region {region.symbol}" + (f', layer "{first.name}"' if first is not None else "")
    return next((f"output {d.name}" for d in outputs if not d.within), None)


def _show(
    session: Session, options: Namespace, reference: str, outputs: Sequence[Difference], regions: Sequence[RegionCheck]
) -> None:
    session.show(_table(f"Results next to {reference}", [("", d) for d in outputs]))
    if options.regions:
        rows = [row for r in regions for row in _rows(r)]
        shown = _table("Regions next to the numpy kernels", rows) if rows else "No region was compared."
        session.show(shown, *(_doubt(r) for r in regions if not r.reached))
    first = _first(outputs, regions)
    if first is None:
        session.show("Everything is within the tolerance.")
        return
    hint = "" if options.regions else " Add --regions to see where it starts."
    session.show(f"The first to differ is {first}.{hint}")


def _rows(region: RegionCheck) -> Iterator[tuple[str, Difference]]:
    """Yield what there is to say of a region: its nodes that differ, and its results."""
    where = f"{region.symbol} ({region.target})"
    yield from ((f"{where}, alone", d) for d in region.layers if not d.within)
    yield from ((where, dataclasses.replace(d, within=d.within or region.adds_up)) for d in region.differences)


def _doubt(region: RegionCheck) -> str:
    """Say what a check is worth whose region the inputs did not lead to."""
    how = "compared on made-up operands" if region.differences else "not compared, its shapes are not known"
    return f"These inputs do not reach the region {region.symbol}: {how}."


def _table(title: str, rows: Sequence[tuple[str, Difference]]) -> FoldingTable:
    table = FoldingTable(title=title, title_justify="left")
    for name in (*(["region"] if any(where for where, _ in rows) else []), "value"):
        table.add_column(name, overflow="fold")
    table.add_column("largest difference", justify="right")
    table.add_column("relative", justify="right")
    table.add_column("")
    for where, row in rows:
        mark = Text("ok", style="green") if row.within else Text("differs", style="bold red")
        cells = [*([where] if where else []), row.name]
        table.add_row(*map(Text, cells), f"{row.largest:.3g}", f"{row.relative:.3g}", mark)
    return table


COMMAND = Command(_EXAMPLE, _configure, _run)
