"""``tinycomp compile``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import tinycomp
from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.models import SAVED, compile_model, compiler_of, load_graph
from tinycomp.cli.options import add_compilation, add_model
from tinycomp.cli.session import Command, Session
from tinycomp.driver.compiler import Compiler
from tinycomp.ir.graph import Graph
from tinycomp.runtime.csource.compiler import translation_unit
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.files import write_file

_EXAMPLE = """\
tinycomp compile model.onnx -o model.tcm
tinycomp compile model.onnx -t npu_sim -t c --shape image=1,3,224,224 --verify -o model.tcm
tinycomp compile digits --emit tir
tinycomp compile model.onnx -t npu --emit ep-context -o model_ctx.onnx"""


def _configure(parser: ArgumentParser) -> None:
    add_model(parser)
    add_compilation(parser, "strict", "dump", "verify")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write the result")
    parser.add_argument(
        "--emit", choices=("tir", "onnx", "program", "ep-context", "c-sources"),
        help="instead of a module, give the partitioned graph as text or ONNX, the kernel calls of its regions, "
        "ONNX with an EPContext node for every region whose target returned a blob, or a folder with the C source of "
        "every region whose target returned that",
    )  # fmt: skip
    parser.add_argument(
        "--keep-functions", action="store_true",
        help="with --emit onnx: write regions, composites and calls as functions, which not every runtime runs",
    )  # fmt: skip
    parser.add_argument(
        "--context-files", action="store_true", help="with ep-context: write the blobs to files beside the model"
    )


def _run(options: Namespace, session: Session) -> int:
    if options.context_files and options.emit != "ep-context":
        raise UsageError("there are no contexts", where="--context-files", hint="Add --emit ep-context.")
    if options.keep_functions and options.emit != "onnx":
        raise UsageError(
            "there are no functions to keep", where="--keep-functions", expected="--emit onnx along with it"
        )
    if options.emit in ("onnx", "ep-context") and options.output is None:
        raise UsageError("ONNX is binary", where=f"--emit {options.emit}", expected="a file", hint="Add -o FILE.onnx.")
    if options.emit == "ep-context":
        return _emit_ep_context(options, session)
    if options.emit == "c-sources":
        return _emit_c_sources(options, session)
    return _emit(options, session) if options.emit else _compile(options, session)


def _compile(options: Namespace, session: Session) -> int:
    module = compile_model(options, session)
    if options.output is not None:
        module.save(options.output)
    report = module.report()
    session.show(report, _closing(options))
    session.result({"report": report.to_dict(), "output": options.output, "dump": options.dump})
    return OK


def _closing(options: Namespace) -> str:
    if options.output is None:
        return f"\nNothing is written: add -o FILE{SAVED} to save the module."
    size = options.output.stat().st_size
    return f"\nWrote {options.output} ({size:,} bytes). Run it with: tinycomp run {options.output} --random 0"


def _emit(options: Namespace, session: Session) -> int:
    compiler = compiler_of(options)
    with session.progress(f"compiling {options.model}"):
        partitioned = compiler.partition(load_graph(options))
        if options.emit == "onnx":
            write_file(options.output, _onnx(partitioned, options.keep_functions))
            session.show(f"Wrote {options.output}.")
            session.result({"emit": "onnx", "output": options.output})
            return OK
        text = str(partitioned) if options.emit == "tir" else _programs(compiler, partitioned)
    if options.output is not None:
        write_file(options.output, text.encode())
        session.show(f"Wrote {options.output}.")
    else:
        session.text(text)
    session.result({"emit": options.emit, "output": options.output, "text": text})
    return OK


def _onnx(partitioned: Graph, functions: bool) -> bytes:
    data: bytes = tinycomp.to_onnx(partitioned, functions=functions).SerializeToString()
    return data


def _emit_ep_context(options: Namespace, session: Session) -> int:
    module = compile_model(options, session)
    tinycomp.to_ep_context(module, options.output, embed=not options.context_files)
    session.show(f"Wrote {options.output}.")
    session.result({"emit": options.emit, "output": options.output})
    return OK


def _emit_c_sources(options: Namespace, session: Session) -> int:
    if options.output is None:
        raise UsageError("there may be several files", where="--emit c-sources", hint="Add -o FOLDER.")
    compiler = compiler_of(options)
    with session.progress(f"compiling {options.model}"):
        made = compiler.lower(compiler.partition(load_graph(options))).programs
    sources = {symbol: source for (symbol, _), source in made.items() if isinstance(source, CSource)}
    if not sources:
        raise UsageError(
            "there is no region with C source", where="--emit c-sources",
            hint="Choose a target that generates it; regions with open sizes are built when they run, so add --shape.",
        )  # fmt: skip
    options.output.mkdir(parents=True, exist_ok=True)
    for symbol, source in sources.items():
        write_file(options.output / f"{symbol}.c", translation_unit(source, symbol, symbol))
    session.show(f"Wrote the C source of {', '.join(sources)} to {options.output}.")
    session.result({"emit": options.emit, "output": options.output, "regions": [*sources]})
    return OK


def _programs(compiler: Compiler, partitioned: Graph) -> str:
    """Return the kernel calls of every region that became a native program."""
    programs = compiler.lower(partitioned).programs
    if not programs:
        raise UsageError(
            "there is no region with a native program", where="--emit program",
            hint="Choose a target such as c; regions with open sizes are built when they first run, so add --shape.",
        )  # fmt: skip
    return "\n\n".join(program.to_text() for program in programs.values())


COMMAND = Command(_EXAMPLE, _configure, _run)
