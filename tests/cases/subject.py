"""What a way meets: a model, what it is given, and the results that are right."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

import tinycomp
from tests.backend.known_failures import EITHER, FAILS
from tests.cases.case import Case
from tests.declarations.measure import Case as NodeTest
from tests.declarations.measure import node_tests as every_node_test
from tinycomp.errors import TinycompError
from tinycomp.index import FAMILIES

FILES = (
    "activation", "attention", "cast", "control_flow", "conv", "creation", "detection", "elementwise", "indexing",
    "matmul", "maps", "movement", "norm", "pool", "quantize", "recurrent", "reduction", "resize", "sequence", "shape",
    "text", "trees",
)  # fmt: skip
"""The files of rows, each with a function ``rows``."""


class Subject(NamedTuple):
    """A model of one operator.

    Attributes:
        op: The operator, with its domain where that is not ONNX's own.
        name: What tells it from the others.
        model: The model; constants are initializers.
        feeds: What a run is given, by name.
        wanted: The results in order; empty if it is refused.
        rtol: What results may differ by, relatively.
        atol: What they may differ by, absolutely.
        of_largest: Allows differences of that share of the largest result.
        witness: Who says what is right.
        host: A part of the reason why the C target leaves it to the host.
        refused: A pattern that the error must match.
    """

    op: str
    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    wanted: Sequence[Any]
    rtol: float = 1e-5
    atol: float = 1e-6
    of_largest: float = 0.0
    witness: str = "onnx"
    host: str | None = None
    refused: str = ""


@functools.cache
def rows() -> tuple[Case, ...]:
    """Return the rows of all files."""
    return tuple(row for name in FILES for row in importlib.import_module(f"tests.cases.{name}").rows())


@functools.cache
def node_tests() -> tuple[NodeTest, ...]:
    """Return ONNX's node tests whose results are defined to the last bit that they compare."""
    return tuple(test for test in every_node_test() if test.name not in FAILS and test.name not in EITHER)


def operators() -> dict[str, str]:
    """Return the family by operator."""
    return {name: family for family, names in FAMILIES.items() for name in names.split()}


def qualified(op: str, domain: str) -> str:
    """Return the name of an operator as the families have it."""
    return f"{domain}::{op}" if domain not in ("", "ai.onnx") else op


def count() -> int:
    """Return how many subjects there are: rows, and ONNX's own node tests behind them."""
    return len(rows()) + len(node_tests())


def operator_of(index: int) -> str:
    """Return the operator of a subject; a test of several nodes is one of the operator that it is named after."""
    if index < len(rows()):
        return qualified(rows()[index].op, rows()[index].domain)
    test = node_tests()[index - len(rows())]
    nodes = test.model.graph.node
    return qualified(nodes[0].op_type, nodes[0].domain) if len(nodes) == 1 else _named(test.name)


def name_of(index: int) -> str:
    """Return the name of a subject."""
    return str(rows()[index]) if index < len(rows()) else node_tests()[index - len(rows())].name


@functools.cache
def _named(name: str) -> str:
    words = name.removeprefix("test_").split("_")
    known = {op.rpartition("::")[2].lower(): op for op in operators()}
    for end in range(len(words), 0, -1):
        if "".join(words[:end]) in known:
            return known["".join(words[:end])]
    return "others"


@functools.lru_cache(maxsize=2)
def subject(index: int) -> Subject:
    """Return a subject by its number.

    Raises:
        RuntimeError: If no witness can run a row.
    """
    if index < len(rows()):
        return of_case(rows()[index])
    test = node_tests()[index - len(rows())]
    names = [i.name for i in test.model.graph.input]
    feeds = dict(zip(names, test.feeds, strict=False))
    return Subject(operator_of(index), test.name, test.model, feeds, test.wanted, test.rtol, test.atol)


def of_case(case: Case) -> Subject:
    """Return a row as a subject.

    Raises:
        RuntimeError: If no witness can run it.
    """
    model = case.model()
    wanted, witness = ([], "") if case.refused else _witnessed(case, model)
    return Subject(
        qualified(case.op, case.domain), str(case), model, case.feeds, wanted, case.rtol, case.atol, case.of_largest,
        witness, case.host, case.refused,
    )  # fmt: skip


def _witnessed(case: Case, model: onnx.ModelProto) -> tuple[list[Any], str]:
    found: list[str] = []
    for name, use, run in (
        ("onnxruntime", case.onnxruntime, by_onnxruntime),
        ("onnx.reference", case.reference, by_reference),
    ):
        if use:
            try:
                return run(model, case.feeds), name
            except Exception as error:  # a witness may fail in any way: then it is none
                found.append(f"{name}: {error}")
    try:
        return [*tinycomp.compile(model, [], passes=[], threads=1).run(case.feeds).values()], "numpy"
    except TinycompError as error:
        raise RuntimeError(f"{case}: no witness runs it: {'; '.join([*found, str(error)])}") from error


@functools.cache
def _options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a model in onnxruntime, whatever it raises."""
    session = ort.InferenceSession(model.SerializeToString(), _options(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def by_reference(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a model in onnx's reference, whatever it raises."""
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, dict(feeds)))
