"""Saving modules that need the compiler again when they are loaded: host nodes, callables, C source, symbolic sizes.

C source is saved, but loading asks the target for it again: what a file says is compiled and run only on request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinycomp.driver.constant_placement import check_files
from tinycomp.driver.lowering import Shapes
from tinycomp.errors import ArtifactError, OptionError, TargetError, TinycompError
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.artifact import (
    module_parts,
    native_plan_to_dict,
    pool_for,
    program_from_dict,
    program_to_dict,
)
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.plan import Plan
from tinycomp.runtime.report import Report
from tinycomp.target import Target, find
from tinycomp.target.options import checked_requantize, checked_winograd

if TYPE_CHECKING:
    from tinycomp.driver.compiler import Compiler

_Option = TypeVar("_Option")


def pack(
    compiler: Compiler,
    graph: Graph,
    partitioned: Graph,
    plan: Plan,
    report: Callable[[], Report],
    programs: Mapping[tuple[str, Shapes], Program | CSource],
) -> bytes:
    """Return the bytes of a saved module.

    Args:
        compiler: The options it was compiled with.
        graph: The model before the passes; kept only if it has symbolic sizes.
        partitioned: The model after the passes; kept with its constants only if something runs on the host.
        plan: Its plan.
        report: Tells what runs where.
        programs: The programs and C source of its regions by symbol and operand shapes.
    """
    from tinycomp.driver.compiler import has_symbols
    from tinycomp.driver.lowering import specs

    check_files(partitioned)
    archive = Archive()
    symbolic = has_symbols(graph)
    native = None if symbolic else native_plan_to_dict(plan, archive)
    archive.manifest = {
        "tinycomp": _version(),
        "targets": [t.name for t in compiler.targets],
        "inputs": [s.to_dict() for s in specs([v.name for v in graph.inputs], graph.inputs)],
        "outputs": [s.to_dict() for s in plan.outputs],
        "defaults": {name: archive.store(array) for name, array in graph.defaults.items()},
        "report": report().to_dict(),
        "plan": native,
        "threads": compiler.threads,
        "winograd": compiler.winograd,
        "requantize": compiler.requantize,
        "passes": compiler.passes if isinstance(compiler.passes, str) else None,
    }
    archive.texts["graph.tir"] = str(partitioned)
    if native is None:
        archive.texts["partitioned.tir"] = _text_with_constants(partitioned, archive)
        archive.manifest["programs"] = [
            {"symbol": symbol, "shapes": shapes, **_generated_to_dict(generated, archive)}
            for (symbol, shapes), generated in programs.items()
        ]
    if symbolic and compiler.policy is None and (compiler.passes is None or isinstance(compiler.passes, str)):
        # Pass objects and policies cannot be written down: a loaded module then uses the plan for all sizes.
        archive.texts["source.tir"] = _text_with_constants(graph, archive)
    return archive.to_bytes()


def _text_with_constants(graph: Graph, archive: Archive) -> str:
    """Print a graph and store its large constants under the hashes that the text names."""
    constants: dict[str, Any] = {}
    text = print_graph(graph, constants=constants)
    keys = archive.manifest.setdefault("constants", {})
    keys.update({content_hash: archive.store(array) for content_hash, array in constants.items()})
    return text


def _generated_to_dict(generated: Program | CSource, archive: Archive) -> dict[str, Any]:
    if isinstance(generated, Program):
        return {"program": program_to_dict(generated, archive)}
    return {"source": {**generated.to_dict(), "constants": [archive.store(c) for c in generated.constants]}}


def _generated_from_dict(entry: Mapping[str, Any], archive: Archive) -> Program | CSource:
    if "program" in entry:
        return program_from_dict(entry["program"], archive)
    source = entry["source"]
    return CSource.from_dict(source, [archive.array(key) for key in source["constants"]])


def restore(
    archive: Archive, data: NDArray[np.uint8], targets: Sequence[Target], threads: int | None, *, trusted: bool = False
) -> Module:
    """Return the module of an archive that :func:`pack` made.

    Args:
        archive: The contents of the file.
        data: The file itself.
        targets: Targets that are not installed under their names.
        threads: Threads that a run may use.
        trusted: Whether to compile the C source in the archive instead of asking the target for it.

    Raises:
        ArtifactError: If the archive is damaged.
        TargetError: If a target is missing.
    """
    from tinycomp.driver.compiler import Compiler

    about = archive.manifest
    # Whoever fills in sizes needs the target; without, the source in the archive may be all that is needed.
    wanted = _find_targets(_target_names(about), targets, optional=trusted and "source.tir" not in archive.texts)
    passes = about.get("passes")
    compiler = Compiler(
        wanted, pool_for(archive, threads), passes=passes if isinstance(passes, str) else None,
        winograd=_option(about, "winograd", "auto", checked_winograd),
        requantize=_option(about, "requantize", "float", checked_requantize),
    )  # fmt: skip
    try:
        constants = {h: archive.array(key) for h, key in about["constants"].items()}
        programs = {
            (entry["symbol"], tuple(map(tuple, entry["shapes"]))): _generated_from_dict(entry, archive)
            for entry in about["programs"]
            if trusted or "program" in entry
        }
        partitioned = parse_graph(archive.texts["partitioned.tir"], constants=constants, infer=infer_node_types)
        source = archive.texts.get("source.tir")
        graph = None if source is None else parse_graph(source, constants=constants, infer=infer_node_types)
    except TinycompError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError("the description is damaged", found=f"{type(error).__name__}: {error}") from error
    lowering = compiler.lowering()
    lowering.programs.update(programs)
    parts = module_parts(archive, data, lowering.plan(partitioned), compiler.pool.threads)
    if graph is not None:
        parts = dataclasses.replace(parts, specialise=functools.partial(compiler.specialise, graph, partitioned))
    return Module(parts)


def _option(about: Mapping[str, Any], name: str, default: str, check: Callable[[Any], _Option]) -> _Option:
    """Return an option of the compilation that the archive remembers."""
    try:
        return check(about.get(name, default))
    except OptionError as error:
        raise ArtifactError("the description is damaged", found=f"{name}: {error.found}") from None


def _target_names(about: Mapping[str, Any]) -> list[str]:
    names = about.get("targets", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ArtifactError("the description is damaged", found=f"targets: {names!r}")
    return names


def _find_targets(names: Sequence[str], given: Sequence[Target], optional: bool) -> tuple[Target, ...]:
    """Return the targets of these names; ``optional`` leaves out those that are not there."""
    found = {t.name: t for t in given}
    for name in names:
        if name not in found:
            with contextlib.suppress(*[TargetError] if optional else []):
                found[name] = find(name)
    return tuple(found[name] for name in names if name in found)


@functools.lru_cache(maxsize=1)
def _version() -> str:
    """The version that goes into the file; a checkout that is not installed has none."""
    try:
        return version("tinycomp")
    except PackageNotFoundError:
        return ""
