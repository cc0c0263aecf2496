"""A device with a slow compiler: command streams as blobs, saved, loaded by version, and kept in a cache.

The imagined device has a scratchpad of 16 kB and executes commands of fixed size: it loads an operand, multiplies by a
weight tile by tile, and stores a result. Its compiler plans the scratchpad, tries tilings, and writes bytes; the device
knows nothing but these and the weights beside them. Everything comes from ``tinycomp.target_api``.
Run it with ``python examples/blob_target.py``.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tinycomp
from tinycomp.target_api import (
    Blob,
    Buffer,
    ExecutionError,
    Graph,
    Match,
    Memory,
    Node,
    P,
    Remark,
    Target,
    TargetError,
    TensorType,
    Value,
    ValuePattern,
    Verdict,
    plan_memories,
    reading,
    reject,
    require_api,
    tensor,
    tile_matmul,
)

SCRATCHPAD = 16 << 10
RESIDENT = SCRATCHPAD // 2  # the other half holds the tile at work
MAGIC, FORMAT = b"STRM", (2, 1)
HEADER = struct.Struct("<4sBBHH")  # magic, format, commands, weights
COMMAND = struct.Struct("<B3x8I")  # what to do, and eight numbers
LOAD, PRODUCT, STORE = range(3)


@dataclass(frozen=True)
class StreamOptions:
    """How the compiler works.

    Attributes:
        effort: Seconds that it searches per layer, as vendors' compilers do.
    """

    effort: float = 0.2


compiled: list[str] = []  # which regions the compiler has been called for


def make_target() -> Target:
    """Return the target; an entry point would name this function."""
    require_api("1.0")
    target = Target(
        "stream", description="a device with a compiler of command streams", options=StreamOptions, static_shapes=True,
        version="2.1",
    )  # fmt: skip
    target.composite(dense).check(fits)
    target.codegen(compile_region)
    target.loader(load)
    target.compatibility(compatible)
    return target


# What it can run ------------------------------------------------------------------------------------------------------


def dense(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """A matrix product with bias, and with a Relu if there is one."""
    gemm = P.Gemm(x.where(dtype="float32"), w, b, alpha=1.0, beta=1.0, transA=0, transB=0)
    y = gemm | P.Add(P.MatMul(x.where(dtype="float32", rank=2), w), b)
    return P.Relu(y) | y


def fits(match: Match) -> bool | Remark:
    """A layer's columns must fill the array, and its bias have one number for each."""
    columns = match.w.const.shape[-1]
    if match.b.const.size != columns:
        return reject(f"the bias must have {columns} elements, got {match.b.const.size}")
    return columns % 8 == 0 or reject(f"columns must be a multiple of 8, got {columns}")


# The compiler ---------------------------------------------------------------------------------------------------------


def compile_region(region: Node, options: StreamOptions) -> Blob:
    """Turn a region into a stream of commands; every value between its layers lies in the scratchpad."""
    compiled.append(region.op)
    body = region.body
    place = placed(body)
    commands, arrays = [], {}
    for number, value in enumerate(body.inputs):
        commands.append(COMMAND.pack(LOAD, number, place[value], *sizes(value), 0, 0, 0, 0))
    for node in body.nodes:
        time.sleep(options.effort)  # the search for a schedule
        product = reading.first(node.body.nodes, "MatMul", "Gemm")
        weight = reading.constant(product.inputs[1])
        bias = next(v for v in node.body.constants if v.const is not weight).const
        relu = any(inner.op == "Relu" for inner in node.body.nodes)
        (rows, terms), columns = sizes(node.inputs[0]), weight.shape[1]
        tiling = tile_matmul(
            rows, columns, terms, SCRATCHPAD - RESIDENT, left_bytes=4, right_bytes=4, result_bytes=4, multiple=8
        )
        arrays |= {f"{len(arrays)}": weight, f"{len(arrays) + 1}": bias.reshape(-1)}
        commands.append(
            COMMAND.pack(
                PRODUCT, place[node.inputs[0]], place[node.output], rows, terms, len(arrays) - 2, relu, *tiling.tile[1:]
            )
        )
    for number, value in enumerate(body.outputs):
        commands.append(COMMAND.pack(STORE, number, place[value], *sizes(value), 0, 0, 0, 0))
    header = HEADER.pack(MAGIC, *FORMAT, len(commands), len(arrays))
    return Blob(header + b"".join(commands), version=".".join(map(str, FORMAT)), arrays=arrays)


def placed(body: Graph) -> dict[Value, int]:
    """Return where every value lies in the scratchpad, from before the step that reads or makes it."""
    first = dict.fromkeys(body.inputs, 0) | {node.output: step for step, node in enumerate(body.nodes, 1)}
    last = dict(first)
    for step, node in enumerate(body.nodes, 1):
        last |= {v: step for v in node.inputs if v in last}
    last |= dict.fromkeys(body.outputs, len(body.nodes) + 1)
    buffers = [Buffer(tensor(v.type).nbytes(), first[v], last[v]) for v in first]
    plan = plan_memories(buffers, [Memory("scratchpad", RESIDENT)])
    return {value: where.offset for value, where in zip(first, plan.places, strict=True)}


def sizes(value: Value) -> tuple[int, int]:
    """Return rows and columns."""
    rows, columns = value.static_shape
    return rows, columns


# The device -----------------------------------------------------------------------------------------------------------


def compatible(version: str) -> Verdict:
    """Streams of this format are run, older ones compiled again, those of a newer device refused."""
    major, minor = map(int, version.split("."))
    if (major, minor) > FORMAT:
        return "refuse"
    return "use" if major == FORMAT[0] else "rebuild"


def load(blob: Blob) -> Callable[..., list[np.ndarray]]:
    """Check a stream, whoever wrote it, and return what runs it."""
    if blob.data[:4] != MAGIC or len(blob.data) < HEADER.size:
        raise TargetError("this is no command stream", expected=f"{MAGIC!r} at its begin", found=repr(blob.data[:4]))
    count, weights = HEADER.unpack_from(blob.data)[3:]
    if len(blob.data) != HEADER.size + count * COMMAND.size or len(blob.arrays) != weights:
        raise TargetError("the command stream is cut off", found=f"{len(blob.data)} bytes")
    commands = [COMMAND.unpack_from(blob.data, HEADER.size + i * COMMAND.size) for i in range(count)]
    return Stream(commands, [blob.arrays[str(i)] for i in range(weights)])


@dataclass(frozen=True)
class Stream:
    """A checked stream; every call has a scratchpad of its own, so that threads do not meet."""

    commands: list[tuple[int, ...]]
    weights: list[np.ndarray]

    def __call__(self, *operands: np.ndarray) -> list[np.ndarray]:
        """Execute the commands."""
        scratchpad = np.zeros(RESIDENT, np.uint8)
        results = {}
        for what, *numbers in self.commands:
            if what == LOAD:
                number, at, rows, columns = numbers[:4]
                matrix(scratchpad, at, rows, columns)[...] = operands[number]
            elif what == STORE:
                number, at, rows, columns = numbers[:4]
                results[number] = matrix(scratchpad, at, rows, columns).copy()
            else:
                self.multiply(scratchpad, *numbers)
        return [results[number] for number in sorted(results)]

    def multiply(
        self,
        scratchpad: np.ndarray,
        x: int,
        y: int,
        rows: int,
        terms: int,
        weight: int,
        relu: int,
        width: int,
        depth: int,
    ) -> None:
        """Multiply tile by tile: columns by ``width``, terms by ``depth``."""
        w, bias = self.weights[weight], self.weights[weight + 1]
        data, total = matrix(scratchpad, x, rows, terms), np.tile(bias, (rows, 1))
        for column in steps(w.shape[1], width):
            for term in steps(terms, depth):
                total[:, column] += data[:, term] @ w[term, column]
        matrix(scratchpad, y, rows, w.shape[1])[...] = np.maximum(total, 0) if relu else total


def matrix(scratchpad: np.ndarray, at: int, rows: int, columns: int) -> np.ndarray:
    """Return a matrix in the scratchpad."""
    if at + 4 * rows * columns > RESIDENT:
        raise ExecutionError("a command leaves the scratchpad", found=f"{at} + {4 * rows * columns}")
    return scratchpad[at : at + 4 * rows * columns].view(np.float32).reshape(rows, columns)


def steps(count: int, size: int) -> Iterator[slice]:
    """Yield pieces of at most ``size``."""
    return (slice(start, start + size) for start in range(0, count, size))


# Show -----------------------------------------------------------------------------------------------------------------


def classifier(rows: int = 4, layers: int = 4, width: int = 64) -> Graph:
    """Return a model of dense layers and a softmax, which the device does not know."""
    rng = np.random.default_rng(0)
    graph = Graph("classifier", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (rows, width)))
    for layer in range(layers):
        weight = graph.add_const((rng.standard_normal((width, width)) / width**0.5).astype(np.float32), f"w{layer}")
        bias = graph.add_const(rng.standard_normal(width).astype(np.float32), f"b{layer}")
        x = graph.add("Add", [graph.add("MatMul", [x, weight]).output, bias], sources=[f"layer{layer}"]).output
        x = graph.add("Relu", [x]).output if layer < layers - 1 else x
    graph.set_outputs([graph.add("Softmax", [x], {"axis": -1}).output], ["y"])
    return graph


def timed(what: str, action: Callable[[], tinycomp.Module]) -> tinycomp.Module:
    """Do something, and say how long it took and how often the compiler was called."""
    before, started = len(compiled), time.perf_counter()
    module = action()
    print(f"{what}: {time.perf_counter() - started:.2f} s, {len(compiled) - before} calls of the compiler")
    return module


def main() -> None:
    """Compile, compile again, save and load; then let versions disagree."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TINYCOMP_CACHE"] = folder  # this example leaves nothing behind
        target, graph = make_target(), classifier()
        x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
        module = timed("compiled and verified", lambda: tinycomp.compile(graph, target, verify=True))
        np.testing.assert_allclose(module(x), tinycomp.compile(graph, "host")(x), rtol=1e-4, atol=1e-6)
        timed("compiled again, from the cache", lambda: tinycomp.compile(graph, make_target()))

        path = Path(folder) / "classifier.tcm"
        module.save(path)
        again = timed("loaded", lambda: tinycomp.load(path, targets=[make_target()]))
        assert (again(x) == module(x)).all()

        tinycomp.to_ep_context(module, Path(folder) / "classifier_ctx.onnx")
        newer = make_target()
        newer.compatibility(lambda version: "refuse")
        try:
            tinycomp.load(path, targets=[newer])
        except tinycomp.TinycompError as error:
            print(error)


if __name__ == "__main__":
    main()
