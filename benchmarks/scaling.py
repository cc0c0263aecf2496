"""How time grows with depth, width, size, batch and threads, for generated models; beside the peers.

``python -m benchmarks scaling`` builds models of three families and changes one of their measures at a time, the others
staying as they are. The last column is the slope in logarithms: a time that doubles with the measure has 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks import output, page
from benchmarks.compile_time import exponent
from benchmarks.contest import Effort, contest
from benchmarks.machine import describe
from benchmarks.models import make_row
from benchmarks.peers import OURS, installed

USUAL, QUICK = Effort(rounds=3, block=0.1, pause=0.05), Effort(rounds=1, block=0.03, pause=0.02)


@dataclass(frozen=True)
class Measures:
    """What a generated model is made of.

    Attributes:
        depth: Blocks.
        width: Channels, or features.
        size: Pixels of an image's side, or tokens; without meaning for a perceptron.
        batch: Inputs at a time.
        threads: Threads of the engine.
    """

    depth: int = 4
    width: int = 64
    size: int = 32
    batch: int = 1
    threads: int = 1


class Builder:
    """Nodes and weights of a model from ``x`` to ``y``, one node after another."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._names = (f"v{i}" for i in itertools.count())

    def add(self, op: str, *operands: str, **attributes: Any) -> str:
        """A node; returns the name of its result."""
        result = next(self._names)
        self._nodes.append(helper.make_node(op, operands, [result], **attributes))
        return result

    def weight(self, *shape: int, fan_in: int) -> str:
        """A random constant that keeps the magnitude of a sum over ``fan_in`` terms."""
        return self.constant((self._rng.standard_normal(shape) * (2 / fan_in) ** 0.5).astype(np.float32))

    def constant(self, value: NDArray[Any]) -> str:
        """A constant."""
        name = next(self._names)
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def model(self, result: str, shape: Sequence[int]) -> bytes:
        """The model, float32 from ``x`` of a shape to a result."""
        self._nodes.append(helper.make_node("Identity", [result], ["y"]))
        types = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self._nodes, "generated", types, results, self._weights)
        opset = helper.make_opsetid("", 17)
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[opset], ir_version=9)
        ).SerializeToString()


def convolutional(m: Measures) -> tuple[bytes, tuple[int, ...]]:
    """Residual blocks of a 3x3 convolution, all of one size, behind a convolution of three channels."""
    build, shape = Builder(), (m.batch, 3, m.size, m.size)
    x = build.add("Relu", build.add("Conv", "x", build.weight(m.width, 3, 3, 3, fan_in=27), pads=[1] * 4))
    for _ in range(m.depth):
        w = build.weight(m.width, m.width, 3, 3, fan_in=9 * m.width)
        x = build.add("Relu", build.add("Add", x, build.add("Conv", x, w, pads=[1] * 4)))
    return build.model(x, shape), shape


def perceptron(m: Measures) -> tuple[bytes, tuple[int, ...]]:
    """Dense layers, eight times as wide as the measure says."""
    features = 8 * m.width
    build, shape, x = Builder(), (m.batch, features), "x"
    for _ in range(m.depth):
        x = build.add("Relu", build.add("MatMul", x, build.weight(features, features, fan_in=features)))
    return build.model(x, shape), shape


def transformer(m: Measures) -> tuple[bytes, tuple[int, ...]]:
    """Blocks of attention with one head and a feed-forward part, three times as wide as the measure says."""
    features = 3 * m.width
    build, shape, x = Builder(), (m.batch, m.size, features), "x"
    scale = build.constant(np.float32(features**-0.5).reshape(()))
    ones = build.constant(np.ones(features, np.float32))

    def dense(value: str, wide_in: int, wide_out: int) -> str:
        return build.add("MatMul", value, build.weight(wide_in, wide_out, fan_in=2 * wide_in))

    for _ in range(m.depth):
        normal = build.add("LayerNormalization", x, ones, axis=-1)
        q, k, v = (dense(normal, features, features) for _ in range(3))
        scores = build.add("Mul", build.add("MatMul", q, build.add("Transpose", k, perm=[0, 2, 1])), scale)
        mixed = build.add("MatMul", build.add("Softmax", scores, axis=-1), v)
        x = build.add("Add", x, dense(mixed, features, features))
        inner = build.add("Relu", dense(build.add("LayerNormalization", x, ones, axis=-1), features, 4 * features))
        x = build.add("Add", x, dense(inner, 4 * features, features))
    return build.model(x, shape), shape


FAMILIES = {"convolutional": convolutional, "perceptron": perceptron, "transformer": transformer}
DEPTHS, WIDTHS, BATCHES = (2, 4, 8, 16), (16, 32, 64, 128), (1, 2, 4, 8)
AXES: Mapping[str, Mapping[str, Sequence[int]]] = {
    "convolutional": {"depth": DEPTHS, "width": WIDTHS, "size": (16, 32, 64, 128), "batch": BATCHES},
    "perceptron": {"depth": DEPTHS, "width": WIDTHS, "batch": (1, 4, 16, 64)},
    "transformer": {"depth": DEPTHS, "width": WIDTHS, "size": (16, 64, 256, 512), "batch": BATCHES},
}


def points(cores: int) -> Iterator[tuple[str, str, Measures]]:
    """Every family, the measure that changes, and the model's measures."""
    for family, axes in AXES.items():
        for axis, values in axes.items():
            yield from ((family, axis, dataclasses.replace(Measures(), **{axis: value})) for value in values)
        for threads in sorted({1, 2, cores} & set(range(1, cores + 1))):
            yield family, "threads", dataclasses.replace(Measures(size=64), threads=threads)


def measure(family: str, axis: str, measures: Measures, engines: Sequence[str], effort: Effort) -> dict[str, Any]:
    """One row: the figures of every engine on one model, as JSON-able values."""
    model, shape = FAMILIES[family](measures)
    feeds = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        file.write_bytes(model)
        results = contest(file, feeds, engines, threads=measures.threads, effort=effort)
    row = make_row(family, results)
    return {**row, "axis": axis, "value": getattr(measures, axis), "measures": dataclasses.asdict(measures)}


def curves(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows by family and measure, in the order in which they were measured."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["model"], row["axis"]), []).append(row)
    return found


def table(rows: Iterable[dict[str, Any]], engines: Sequence[str]) -> str:
    """A line for every family and measure: its values, medians (and minima) of all engines in ms, the slope of ours."""
    lines = []
    for (family, axis), members in curves(rows).items():
        cells = [family, axis, ", ".join(str(row["value"]) for row in members)]
        cells += [", ".join(_milliseconds(row["engines"][engine]) for row in members) for engine in engines]
        lines.append([*cells, slope(members)])
    return page.table(["family", "what grows", "from … to", *(f"{e}, ms" for e in engines), "slope of ours"], lines, 6)


def _milliseconds(figures: Mapping[str, Any]) -> str:
    return "failed" if "error" in figures else f"{figures['median'] * 1e3:.3g} ({figures['minimum'] * 1e3:.3g})"


def slope(members: Sequence[dict[str, Any]]) -> str:
    """The exponent of our times; empty with fewer than two of them."""
    known = [(row["value"], row["engines"][OURS]["minimum"]) for row in members if "minimum" in row["engines"][OURS]]
    return f"{exponent(*zip(*known, strict=True)):.2f}" if len(known) > 1 else ""


def draw(rows: Sequence[dict[str, Any]], engines: Sequence[str], figure: Any) -> None:
    """One panel per family and measure, both axes logarithmic."""
    found = curves(rows)
    columns = max(sum(family == f for family, _ in found) for f, _ in found)
    families = list(dict.fromkeys(family for family, _ in found))
    figure.set_size_inches(2.6 * columns, 2.4 * len(families))
    grid = figure.subplots(len(families), columns, squeeze=False)
    for panel in grid.flat:
        panel.set_axis_off()
    for (family, axis), members in found.items():
        place = [a for f, a in found if f == family].index(axis)
        panel = grid[families.index(family)][place]
        panel.set_axis_on()
        for engine in engines:
            known = [(row["value"], row["engines"][engine].get("minimum")) for row in members]
            panel.loglog(
                *zip(*[(v, s * 1e3) for v, s in known if s] or [(1, 1)], strict=True), marker=".", label=engine
            )
        panel.set_title(f"{family}: {axis}", fontsize=8)
        panel.tick_params(labelsize=6)
    grid[0][0].legend(fontsize=6)
    grid[0][0].set_ylabel("ms", fontsize=7)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print the table; the exit status is 1 if tinycomp failed or disagreed with onnxruntime."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks scaling", description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []], help="default: all")
    parser.add_argument("--engines", nargs="+", default=installed(), choices=installed(), help="%(default)s")
    parser.add_argument("--quick", action="store_true", help="short blocks")
    output.add_option(parser)
    options = parser.parse_args(given)
    effort = QUICK if options.quick else USUAL
    found = output.record("scaling", output.command_line("scaling", given), dataclasses.asdict(effort), [])
    found["engines"] = options.engines
    print(f"{describe(found['machine'])}\n{effort}\n")
    for family, axis, measures in points(os.cpu_count() or 1):
        if not options.families or family in options.families:
            found["rows"].append(measure(family, axis, measures, options.engines, effort))
            print(f"{family}, {axis} {found['rows'][-1]['value']}", file=sys.stderr, flush=True)
    text = table(found["rows"], options.engines)
    print(text)
    output.save(options.output, found, text, lambda figure: draw(found["rows"], options.engines, figure))
    return int(any(not row["agrees"] for row in found["rows"]))


if __name__ == "__main__":
    sys.exit(main())
