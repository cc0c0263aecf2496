"""Targets that generate C for one operator, and what tests look at in the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.cache import CCache
from tinycomp.runtime.csource.compiler import CCompiler
from tinycomp.runtime.csource.source import CSource
from tinycomp.target import Target

SIGNATURE = "const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch"
C_TYPES = {"float32": "float", "float64": "double", "int32": "int", "int8": "signed char"}


def graph_of(statements: str, params: str = "%x: float32[2, 3]", result: str = "y") -> Graph:
    """Return the graph with these statements and one result."""
    text = f'graph @main opset {{"" = 17}} ({params}) -> (%{result}) {{\n{statements}\n}}'
    return parse_graph(text, infer=infer_node_types)


def function_of(*statements: str) -> CSource:
    """Return C source whose function has these statements and returns 0."""
    lines = "".join(f"  {line}\n" for line in statements)
    return CSource(f"static int f({SIGNATURE}) {{\n{lines}  return 0;\n}}\n", "f")


def loop_over(result: Node, expression: str) -> CSource:
    """Return C source that computes ``expression`` from ``x[i]`` and ``c[i % count]`` for every element."""
    type_ = result.output.type
    kind = C_TYPES[type_.dtype]
    constants = [v.const for v in result.inputs if v.is_const]
    count = constants[0].size if constants else 1
    text = (
        f"static int f({SIGNATURE}) {{\n  const {kind} *x = inputs[0], *c = constants[0]; {kind} *y = outputs[0];\n"
        f"  for (long i = 0; i < {type_.size()}; ++i) y[i] = {expression.replace('COUNT', str(count))};\n"
        "  return 0;\n}\n"
    )
    return CSource(text, "f", tuple(constants))


def target_of(op: str, generate: Callable[[Node], CSource], name: str = "gen") -> Target:
    """Return a target that takes ``op`` and generates C for regions of one node."""
    target = Target(name, static_shapes=True)
    target.accept(op)
    target.codegen(lambda region: generate(region.body.nodes[0]))
    return target


def times(factor: str = "c[i % COUNT]") -> Target:
    """Return a target that multiplies."""
    return target_of("Mul", lambda node: loop_over(node, f"x[i] * {factor}"))


def doubling() -> Graph:
    """Return a model that multiplies by two."""
    return graph_of("%two: float32[] = const 2.0\n%y = Mul(%x, %two)")


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CCache:
    """An empty cache that is in use."""
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "kept"))
    return CCache()


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which regions the C compiler has been called for."""
    seen: list[str] = []
    build = CCompiler.build

    def counted(self: CCompiler, source: CSource, folder: Path, where: str) -> Path:
        seen.append(where)
        return build(self, source, folder, where)

    monkeypatch.setattr(CCompiler, "build", counted)
    return seen


def files(cache: CCache) -> list[Path]:
    """Return what is in the folder."""
    return sorted(cache.folder.iterdir()) if cache.folder.exists() else []
