"""Turn the model argument into a graph or a module."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import tinycomp
from tinycomp.cli.exits import UsageError
from tinycomp.cli.options import chosen, given_options, shapes_of
from tinycomp.cli.session import Session
from tinycomp.data import digits_model
from tinycomp.driver.compiler import Compiler
from tinycomp.driver.dump import read_dump
from tinycomp.driver.options import CompileOptions
from tinycomp.errors import did_you_mean
from tinycomp.ir.graph import Graph
from tinycomp.runtime.module import Module

SHIPPED = ("digits", "digits-int8")
"""Names that stand for the models in :mod:`tinycomp.data`."""
SAVED = ".tcm"
TEXT = ".tir"


def model_path(name: str) -> Path:
    """Return the path that a model argument means.

    Raises:
        UsageError: If there is no such file.
    """
    if name in SHIPPED:
        return digits_model(quantized=name == "digits-int8")
    path = Path(name)
    if os.path.lexists(path):
        return path
    nearby = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    shipped = f"The models that come with tinycomp are: {', '.join(SHIPPED)}."
    hint = did_you_mean(path.name, [*nearby, *SHIPPED]) or f"Check the path. {shipped}"
    raise UsageError("there is no such file", where=name, expected="a model file", hint=hint)


def load_graph(options: Namespace) -> Graph:
    """Return the model of ``options`` as a graph, in the shapes that they give.

    Raises:
        UsageError: If the file is missing or holds a compiled module.
    """
    path = model_path(options.model)
    if path.suffix == SAVED:
        raise UsageError(
            "a saved module cannot be compiled again", where=options.model, hint="Name the .onnx file it came from."
        )
    return tinycomp.from_onnx(read_dump(path) if path.suffix == TEXT else path, shapes_of(options))


def load_module(options: Namespace, session: Session) -> Module:
    """Return a compiled model: loaded if it is a saved module, else compiled as ``options`` say.

    Raises:
        UsageError: If the file is missing, or options do not go with a saved module.
    """
    path = model_path(options.model)
    if path.suffix != SAVED:
        return compile_model(options, session)
    if given := chosen(options):
        raise UsageError(
            "a saved module has its target, shapes and kernels already", where=options.model,
            hint=f"Leave out {' and '.join(given)}, or compile the .onnx file again.",
        )  # fmt: skip
    return tinycomp.load(path, threads=options.threads)


def compile_model(options: Namespace, session: Session, graph: Graph | None = None) -> Module:
    """Return the model of ``options``, compiled as they say; ``graph`` if it is loaded already.

    With ``--cache`` it comes from there if it can.
    """
    given: dict[str, Any] = given_options(options)
    model: Any = graph
    if given.get("cache"):
        model = model_path(options.model)
        if model.suffix == TEXT:
            raise UsageError(
                "a graph in text is not kept", where=f"--cache, {options.model}", expected="an .onnx file",
                hint="Leave out --cache.",
            )  # fmt: skip
    else:
        given["shapes"] = None  # which the graph has
    with session.progress(f"compiling {options.model} for {', '.join(given['target'])}"):
        return tinycomp.compile(load_graph(options) if model is None else model, **given)


def compiler_of(options: Namespace) -> Compiler:
    """Return what compiles graphs as ``options`` say."""
    return Compiler.of(CompileOptions(**given_options(options)))
