"""Compile time beside onnxruntime's session creation: models, chains, fan-outs; per phase, with the growth's exponent.

``python -m benchmarks compile-time`` runs both in turn in this process, one thread each, and prints Markdown tables:
seconds of the processor, and for the chains and fan-outs the time per node of every phase. A size of a chain is a
number of nodes; with ``--json`` the figures of every phase are written to a file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import onnx
from onnx import TensorProto, helper

import tinycomp
from benchmarks import corpus, page
from benchmarks.machine import describe, machine
from tinycomp.driver.compiler import Compiler
from tinycomp.driver.models import load_graph
from tinycomp.driver.targets import resolve_targets
from tinycomp.ir.graph import Graph
from tinycomp.memory.interpreter import importing
from tinycomp.runtime.native.executor import Pool

MODELS = ("resnet50", "bert_base", "mobilenet_v2", "gpt2_small", "whisper_encoder")
SIZES = (100, 1_000, 10_000, 100_000)


def model_of(nodes: list[onnx.NodeProto], result: str) -> bytes:
    """The bytes of a model from ``x`` to ``result``, float32 ``[1, 8]`` both."""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", result)]
    graph = helper.make_graph(nodes, "generated", types[:1], types[1:])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()


def chain(size: int) -> bytes:
    """Additions of the input and Relus in turn, one after another."""
    nodes = [
        helper.make_node("Relu", [f"v{i - 1}"], [f"v{i}"])
        if i % 2
        else helper.make_node("Add", [f"v{i - 1}" if i else "x", "x"], [f"v{i}"])
        for i in range(size)
    ]
    return model_of(nodes, f"v{size - 1}")


def fan_out(size: int) -> bytes:
    """Many readers of one value, added up two by two."""
    leaves = [helper.make_node("LeakyRelu", ["x"], [f"v{i}"], alpha=0.5 + i / size) for i in range(size // 2)]
    nodes, open_ = list(leaves), [f"v{i}" for i in range(size // 2)]
    while len(open_) > 1:
        pairs = list(zip(open_[::2], open_[1::2], strict=False))
        made = [f"s{len(nodes) + i}" for i in range(len(pairs))]
        nodes += [helper.make_node("Add", pair, [name]) for pair, name in zip(pairs, made, strict=True)]
        open_ = made + open_[2 * len(pairs) :]
    return model_of(nodes, open_[0])


GRAPHS: Mapping[str, Callable[[int], bytes]] = {"chain": chain, "fan-out": fan_out}


def session_seconds(model: str | bytes) -> float:
    """Seconds of the processor in which onnxruntime makes a session, one thread."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    start = time.process_time()
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return time.process_time() - start


def compile_seconds(model: str | bytes) -> float:
    """Seconds of the processor in which tinycomp compiles, one thread."""
    start = time.process_time()
    tinycomp.compile(model, threads=1)
    return time.process_time() - start


def phase_seconds(model: str | Path | bytes) -> dict[str, float]:
    """Seconds of the import, of every pass, of code generation, of packing, and of what is left.

    Args:
        model: A path, or the bytes of a file.
    """
    with importing():
        return _phase_seconds(model)


def _phase_seconds(model: str | Path | bytes) -> dict[str, float]:
    marks = [("", time.process_time())]
    graph = load_graph(model)
    marks.append(("import", time.process_time()))
    compiler = Compiler(resolve_targets("c"), Pool(1))

    def observe(number: int, name: str, graph: Graph) -> None:
        marks.append((name if number else "clone", time.process_time()))

    partitioned = tinycomp.Pipeline(compiler.pipeline(), observers=[observe])(graph)
    compiler.package(compiler.lower(partitioned))
    marks.append(("lowering", time.process_time()))
    phases: defaultdict[str, float] = defaultdict(float)
    for (_, before), (name, after) in itertools.pairwise(marks):
        phases[name] += after - before
    return dict(phases)


def measure(model: str | bytes, runs: int) -> dict[str, object]:
    """Medians and minima over ``runs`` of both, in turn, and the phases of one more."""
    columns = list(zip(*((session_seconds(model), compile_seconds(model)) for _ in range(runs)), strict=True))
    peer, ours = map(statistics.median, columns)
    least = dict(zip(("onnxruntime", "tinycomp"), map(min, columns), strict=True))
    figures = {"onnxruntime": peer, "tinycomp": ours, "ratio": ours / peer, "minima": least}
    return {**figures, "phases": phase_seconds(model)}


def exponent(sizes: Iterable[int], seconds: Iterable[float]) -> float:
    """The slope of a straight line through the points in logarithms: 1 is linear growth."""
    points = [(math.log(n), math.log(s)) for n, s in zip(sizes, seconds, strict=True)]
    x, y = (statistics.mean(column) for column in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def phases_per_node(kind: str, rows: Mapping[str, Mapping[str, object]], sizes: Iterable[int]) -> str:
    """A Markdown table of the time that every phase takes per node of generated graphs, in microseconds."""
    columns = {size: dict(rows[f"{kind} {size}"]["phases"]) for size in sizes}  # type: ignore[call-overload]
    phases = sorted({name for found in columns.values() for name in found}, key=lambda name: -max(
        found.get(name, 0) / size for size, found in columns.items()
    ))  # fmt: skip
    lines = [[name, *(f"{1e6 * found.get(name, 0) / size:.1f}" for size, found in columns.items())] for name in phases]
    lines.append(["all", *(f"{1e6 * sum(found.values()) / size:.1f}" for size, found in columns.items())])
    return page.table([f"{kind}, us per node", *(f"{size:,} nodes" for size in columns)], lines, 1)


def _file(model: str) -> str:
    return model if Path(model).suffix == ".onnx" else str(corpus.path(model))


def _row(name: str, found: Mapping[str, object]) -> str:
    phases = dict(found["phases"])  # type: ignore[call-overload]
    slowest = sorted(phases, key=phases.__getitem__, reverse=True)[:4]
    where = ", ".join(f"{phase} {1e3 * phases[phase]:.0f}" for phase in slowest)
    least = dict(found["minima"])  # type: ignore[call-overload]
    times = " | ".join(f"{found[engine]:.3f} ({seconds:.3f})" for engine, seconds in least.items())
    return f"| {name} | {times} | {found['ratio']:.2f} ({least['tinycomp'] / least['onnxruntime']:.2f}) | {where} |"


def main(arguments: Iterable[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compile-time", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"models of the corpus, or ONNX files; by default {' '.join(MODELS)}")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, help="nodes of the generated graphs")
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(None if arguments is None else list(arguments))
    facts = machine()
    print(describe(facts))
    print("\n| model | onnxruntime s | tinycomp s | ratio | slowest phases, ms |\n|---|--:|--:|--:|---|")
    rows: dict[str, dict[str, object]] = {}
    jobs = [(Path(name).stem, _file(name)) for name in options.models or MODELS]
    for model in (chain(10), *(file for _, file in jobs)):  # imports what they use
        compile_seconds(model)
    made = [(f"{kind} {size}", make(size)) for kind, make in GRAPHS.items() for size in options.sizes]
    for name, model in [*jobs, *made]:
        rows[name] = measure(model, options.runs)
        print(_row(name, rows[name]), flush=True)
    ratios = [float(str(rows[name]["ratio"])) for name, _ in jobs]
    if ratios:
        print(
            f"\ngeometric mean of the models' ratios: {statistics.geometric_mean(ratios):.2f}, most {max(ratios):.2f}"
        )
    for kind in GRAPHS if len(options.sizes) > 1 else ():
        seconds = [float(str(rows[f"{kind} {size}"]["tinycomp"])) for size in options.sizes]
        print(f"\n{phases_per_node(kind, rows, options.sizes)}")
        print(f"\n{kind}: time grows with the nodes to the power of {exponent(options.sizes, seconds):.2f}")
    if options.json:
        options.json.write_text(json.dumps({"machine": facts, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
