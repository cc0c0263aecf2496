"""What one call costs: a Relu on eight floats, so that nothing but the call itself takes time.

``python -m benchmarks call-overhead`` interleaves the ways to call a module with onnxruntime's ``run``, in one
process and one thread, and prints microseconds per call: for a model of fixed sizes, and for one with a symbolic size.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks import output, page
from benchmarks.machine import describe


def relu_model(size: int | str = 8) -> bytes:
    """A model ``y = Relu(x)`` on float32 ``[size]``."""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", types[:1], types[1:])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()


def callers(model: bytes) -> dict[str, Callable[[], Any]]:
    """The calls of a model of one input of eight floats that are compared, by name."""
    import onnxruntime as ort

    import tinycomp

    x = np.linspace(-1, 1, 8, dtype=np.float32)
    feeds = {"x": x}
    module = tinycomp.compile(model, target="c", threads=1)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    bound = module.bind(x)
    np.testing.assert_array_equal(bound(), session.run(None, feeds)[0])
    np.testing.assert_array_equal(module(x), session.run(None, feeds)[0])
    return {
        "tinycomp module(x)": lambda: module(x),
        "tinycomp module.run(feeds)": lambda: module.run(feeds),
        "tinycomp module.bind(x)()": bound,
        "onnxruntime session.run(None, feeds)": lambda: session.run(None, feeds),
    }


def time_calls(call: Callable[[], Any], count: int) -> float:
    """Mean seconds of ``count`` calls in a row."""
    repeat = range(count)
    start = time.perf_counter()
    for _ in repeat:
        call()
    return (time.perf_counter() - start) / count


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown, in microseconds."""
    cells = ((row["call"], f"{row['median'] * 1e6:.2f}", f"{row['minimum'] * 1e6:.2f}") for row in rows)
    return page.table(["one call of Relu on 8 floats", "median, µs", "minimum, µs"], cells)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Time one call of a model that does next to nothing.")
    parser.add_argument("--rounds", type=int, default=30, help="blocks per way to call (%(default)s)")
    parser.add_argument("--calls", type=int, default=10_000, help="calls per block (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few and short blocks")
    output.add_option(parser)
    options = parser.parse_args(given)
    effort = {"rounds": 3, "calls": 1_000} if options.quick else {"rounds": options.rounds, "calls": options.calls}
    contestants = callers(relu_model())
    contestants |= {f"{name}, symbolic size": call for name, call in callers(relu_model("n")).items()}
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(effort["rounds"]):
        for name, call in contestants.items():
            samples[name].append(time_calls(call, effort["calls"]))
    rows = [{"call": n, "median": statistics.median(s), "minimum": min(s)} for n, s in samples.items()]
    found = output.record("call-overhead", output.command_line("call-overhead", given), effort, rows)
    print(f"{describe(found['machine'])}\n\n{table(rows)}")
    output.save(options.output, found, table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
