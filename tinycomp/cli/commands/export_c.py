"""``tinycomp export-c``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, get_args

import tinycomp
from tinycomp.cli.exits import FAILED, OK, UsageError
from tinycomp.cli.models import load_graph
from tinycomp.cli.options import add_model, add_options, positive, targets_of
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable
from tinycomp.errors import visible
from tinycomp.export_c import PROCESSORS, Project, to_c, to_c_within
from tinycomp.export_c.processors import processor_named
from tinycomp.export_c.project import Weights
from tinycomp.export_c.trial import Trial, run_trial
from tinycomp.ir.graph import Graph

_EXAMPLE = """\
tinycomp export-c digits-int8 -o digits
tinycomp export-c model.onnx --shape image=1,3,224,224 --cpu x86-64-v3 --name classify -o project
tinycomp export-c digits-int8 --cpu cortex-m4 --run
tinycomp export-c digits-int8 -t ethos_u -t c:requantize=fixed_point --cpu cortex-m55 -o npu"""


def _configure(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "shapes")
    parser.add_argument(
        "-t", "--target", action="append", metavar="NAME[:OPTION=VALUE,…]",
        help="target, with options as in ethos_u:accelerator=ethos-u55-128; several times in order of priority: c, "
        "those that generate C, and ethos_u (default: c)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write the project")
    parser.add_argument(
        "--cpu",
        default="generic",
        choices=("host", *PROCESSORS),
        metavar="CPU",
        help=f"what it is for: host, {', '.join(PROCESSORS)} (default: generic)",
    )
    parser.add_argument(
        "--memory", type=_memory, default="fast", metavar="fast|least|BYTES",
        help="plan the memory of a run for speed, for the fewest bytes, or for so many (default: fast)",
    )  # fmt: skip
    parser.add_argument(
        "--weights", default="array", choices=get_args(Weights),
        help="hold weights in C, in a file that the assembler includes, or where every run is told (default: array)",
    )  # fmt: skip
    parser.add_argument("--name", default="model", help="in front of all that the project exports (default: model)")
    parser.add_argument(
        "--run", dest="trial", action="store_true",
        help="build the project, run its test, here or in qemu, and show what it took",
    )  # fmt: skip


def _run(options: Namespace, session: Session) -> int:
    if options.output is None and not options.trial:
        raise UsageError("there is nothing to do", expected="-o DIR, --run, or both", hint="Name a folder to write to.")
    graph = load_graph(options)
    shapes = _fixed(graph, session)

    def build(memory: str | int) -> tinycomp.Module:
        chosen = {"c": {"memory": memory, **processor_named(options.cpu).options}}
        return tinycomp.compile(graph, targets_of(options), shapes=shapes, threads=1, options=chosen)

    with session.progress(f"compiling {options.model}"):
        rest = {"name": options.name, "weights": options.weights}
        if isinstance(options.memory, int):
            project = to_c_within(build, options.memory, options.cpu, **rest)
        else:
            project = to_c(build(options.memory), options.cpu, **rest)
    if options.output is not None:
        project.write(options.output)
        session.show(f"Wrote {len(project.files) + len(project.binaries)} files to {options.output}.")
    trial = None
    if options.trial:
        with session.progress("building and running"):
            trial = run_trial(project)
    session.show(*_table(project, trial))
    result: dict[str, Any] = project.to_dict()
    if trial is not None:
        result["trial"] = trial.to_dict()
    session.result(result)
    return OK if trial is None or trial.passed else FAILED


def _memory(text: str) -> str | int:
    return text if text in ("fast", "least") else positive(text)


def _fixed(graph: Graph, session: Session) -> dict[str, tuple[int | str | None, ...]] | None:
    """Return shapes in which every size without bounds is 1, which is said; None if there is none."""
    shapes: dict[str, tuple[int | str | None, ...]] = {}
    bounded = {name for name, (_, most) in graph.bounds.items() if most is not None}
    for value in graph.inputs:
        dims = value.shape or ()
        if not all(isinstance(dim, int) or dim in bounded for dim in dims):
            shapes[value.name] = tuple(dim if isinstance(dim, int) or dim in bounded else 1 for dim in dims)
            wanted = "x".join(map(str, shapes[value.name]))
            session.show(f"{visible(value.name)} is {wanted} in the project; --shape gives it another shape.")
    return shapes or None


def _table(project: Project, trial: Trial | None) -> list[FoldingTable | str]:
    table = FoldingTable("", "bytes", title=f"{project.name} for {project.processor.description}", title_justify="left")
    table.columns[1].justify = "right"
    table.add_row("memory of a run", f"{project.memory_bytes:,}")
    table.add_row("weights and constants", f"{project.weights_bytes:,}")
    lines: list[FoldingTable | str] = [table]
    if (peak := project.memory.peak) is not None:
        which = visible(", ".join(peak.sources)) or "the model"
        lines.append(f"Most memory is in use in step {peak.step}, {peak.kernel} for {which}: {peak.nbytes:,} bytes.")
    if trial is None:
        return lines
    if trial.code_bytes is not None:
        table.add_row("code", f"{trial.code_bytes:,}")
    if trial.stack_bytes is not None:
        table.add_row("stack", f"{trial.stack_bytes:,}")
    if trial.code_bytes is not None:
        table.add_row("flash, with code and weights", f"{trial.code_bytes + project.weights_bytes:,}")
    if trial.instructions is not None:
        lines.append(f"{trial.instructions / 1e6:,.3f} million instructions")
    lines.append("All results are as expected." if trial.passed else f"Results differ: {visible(trial.output.strip())}")
    return lines


COMMAND = Command(_EXAMPLE, _configure, _run)
