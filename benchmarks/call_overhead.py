"""What one call costs: a Relu on eight floats, so that nothing but the call itself takes time.

``python -m benchmarks call-overhead`` interleaves the ways to call a module with onnxruntime's ``run``, in one
process and one thread, and prints microseconds per call.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.machine import describe, machine


def relu_model() -> bytes:
    """A model ``y = Relu(x)`` on float32 ``[8]``."""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", types[:1], types[1:])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()


def callers(model: bytes) -> dict[str, Callable[[], Any]]:
    """The calls that are compared, by name."""
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


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description="Time one call of a model that does next to nothing.")
    parser.add_argument("--rounds", type=int, default=30, help="blocks per way to call (%(default)s)")
    parser.add_argument("--calls", type=int, default=10_000, help="calls per block (%(default)s)")
    options = parser.parse_args(None if arguments is None else list(arguments))
    contestants = callers(relu_model())
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, call in contestants.items():
            samples[name].append(time_calls(call, options.calls))
    print(f"{describe(machine())}\n\n| one call of Relu on 8 floats | median, µs | minimum, µs |\n|---|---:|---:|")
    for name, seconds in samples.items():
        print(f"| {name} | {statistics.median(seconds) * 1e6:.2f} | {min(seconds) * 1e6:.2f} |")


if __name__ == "__main__":
    main()
