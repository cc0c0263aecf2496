"""Products with weights of 4 bits in blocks, as language models have them: against onnxruntime, and the memory.

``python -m benchmarks block-products`` interleaves models of one MatMulNBits, accuracy level 4, with blocks of 32, on
tinycomp and on onnxruntime, with every number of threads that is asked for. One row is a step of decoding, hundreds are
a prompt. What is read is judged by how fast as many bytes can be read by as many threads.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks import output, page
from benchmarks.machine import describe
from tinycomp.runtime.native.processor import default_isa, peak_read

ROWS = (1, 4, 16, 64, 512)
SIZES = ((512, 512), (512, 1536), (1024, 1024), (1024, 2816), (2816, 1024), (1024, 32000))
"""Depth and columns: of attention, of a gated layer, and of the logits."""
BLOCK = 32
_PAUSE = 0.005
"""Seconds between contenders: spinning threads of the one before would slow the next one down."""


def model(depth: int, columns: int, rows: int, level: int = 4) -> bytes:
    """One MatMulNBits, with scales that float16 holds."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, (columns, depth // BLOCK, BLOCK // 2), np.uint8)
    scales = rng.uniform(1e-3, 1e-2, (columns, depth // BLOCK)).astype(np.float16).astype(np.float32)
    attrs = {"K": depth, "N": columns, "bits": 4, "block_size": BLOCK, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **attrs)
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, d]) for n, d in (("x", depth), ("y", columns))]
    constants = [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")]
    graph = helper.make_graph([node], "product", types[:1], types[1:], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def contenders(depth: int, columns: int, rows: int, threads: int, level: int = 4) -> dict[str, Callable[[], Any]]:
    """The calls that are compared, by name; their results are near each other."""
    import onnxruntime as ort

    import tinycomp

    stored = model(depth, columns, rows, level)
    x = np.random.default_rng(2).standard_normal((rows, depth), np.float32)
    bound = tinycomp.compile(stored, target="c", threads=threads).bind(x)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(stored, options, providers=["CPUExecutionProvider"])
    binding, y = session.io_binding(), ort.OrtValue.ortvalue_from_numpy(np.empty((rows, columns), np.float32))
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    ours = bound()
    np.testing.assert_allclose(ours, y.numpy(), rtol=0, atol=1e-2 * np.abs(ours).max())
    return {"tinycomp": bound, "onnxruntime": lambda: session.run_with_iobinding(binding)}


def measure(depth: int, columns: int, rows: int, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """One row of the table: the contenders take turns, and the first run of a turn is not counted."""
    runs = contenders(depth, columns, rows, threads)
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            end = time.perf_counter() + seconds
            counted = len(samples[name])
            while len(samples[name]) == counted or time.perf_counter() < end:
                start = time.perf_counter()
                run()
                samples[name].append(time.perf_counter() - start)
            time.sleep(_PAUSE)
    medians = {name: statistics.median(times) for name, times in samples.items()}
    read = columns * depth // 2 + columns * (depth // BLOCK) * 2
    return {
        "depth": depth, "columns": columns, "rows": rows, "threads": threads, "medians": medians,
        "minima": {name: min(times) for name, times in samples.items()},
        "ratio": medians["onnxruntime"] / medians["tinycomp"],
        "macs_per_second": rows * columns * depth / medians["tinycomp"],
        "bytes_per_second": read / medians["tinycomp"],
        "share_of_reading": read / medians["tinycomp"] / peak_read(default_isa(), threads, read),
    }  # fmt: skip


NAMES = ["K x N", "rows", "threads", "µs", "onnxruntime", "ratio", "GMAC/s", "GB/s of weights", "of reading"]


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    medians = row["medians"]
    few = row["rows"] <= 8
    return [
        f"{row['depth']}x{row['columns']}", str(row["rows"]), str(row["threads"]), f"{medians['tinycomp'] * 1e6:.1f}",
        f"{medians['onnxruntime'] * 1e6:.1f}", f"{row['ratio']:.2f}", f"{row['macs_per_second'] / 1e9:.0f}",
        f"{row['bytes_per_second'] / 1e9:.1f}" if few else "", f"{row['share_of_reading']:.0%}" if few else "",
    ]  # fmt: skip


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Time products with weights of 4 bits.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="%(default)s")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="%(default)s")
    parser.add_argument("--quick", action="store_true", help="few and short turns, small weights")
    output.add_option(parser)
    options = parser.parse_args(given)
    effort: dict[str, Any] = {"rounds": 2, "seconds": 0.005} if options.quick else {"rounds": 7, "seconds": 0.04}
    found = output.record("block-products", output.command_line("block-products", given), effort, [])
    print(f"{describe(found['machine'])}\n\n{page.heading(NAMES, 1)}")
    for threads in options.threads:
        for depth, columns in SIZES[:1] if options.quick else SIZES:
            for rows in options.rows:
                found["rows"].append(measure(depth, columns, rows, threads, **effort))
                print(page.line(cells(found["rows"][-1])), flush=True)
    output.save(options.output, found, page.table(NAMES, map(cells, found["rows"]), 1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
