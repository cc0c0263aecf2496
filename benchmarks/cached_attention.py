"""Attention with a cache: the C kernels, the kernel without lengths, and onnxruntime's GroupQueryAttention, by turns.

Every case runs in the same process on the same arrays and threads, one call of each after another, and the least of all
times counts. The rate is that of reading the keys and values once, next to what two threads read of plain memory.

Usage: python -m benchmarks.cached_attention [--threads N] [--seconds S]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import tinycomp
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program


@dataclass(frozen=True)
class Sizes:
    """What a call works on: the last ``rows`` of ``keys`` tokens, in heads of ``size`` features."""

    heads: int
    group: int
    rows: int
    keys: int
    size: int

    def __str__(self) -> str:
        """Return the sizes for a table."""
        return f"{self.heads} heads / {self.group}, {self.rows} of {self.keys} x {self.size}"

    @property
    def shared(self) -> int:
        """How many heads of keys there are."""
        return self.heads // self.group


CASES = (
    Sizes(32, 4, 1, 512, 128), Sizes(32, 4, 1, 8192, 128), Sizes(32, 1, 1, 4096, 128), Sizes(8, 8, 1, 65536, 128),
    Sizes(14, 7, 1, 16384, 64), Sizes(32, 4, 4, 8192, 128), Sizes(32, 4, 128, 2048, 128), Sizes(32, 4, 512, 512, 128),
    Sizes(16, 1, 1024, 1024, 64), Sizes(12, 1, 128, 128, 64),
)  # fmt: skip


def feeds_of(s: Sizes) -> dict[str, np.ndarray]:
    """Return the inputs of one call."""
    rng = np.random.default_rng(0)
    cache = (1, s.shared, s.keys, s.size)
    return {
        "query": rng.standard_normal((1, s.rows, s.heads * s.size), np.float32),
        "key": rng.standard_normal((1, s.rows, s.shared * s.size), np.float32),
        "value": rng.standard_normal((1, s.rows, s.shared * s.size), np.float32),
        "past_key": rng.standard_normal(cache, np.float32),
        "past_value": rng.standard_normal(cache, np.float32),
        "seqlens_k": np.array([s.keys - 1], np.int32),
        "total_sequence_length": np.array(s.keys, np.int32),
    }


def model_of(s: Sizes) -> bytes:
    """Return a model of one GroupQueryAttention on a shared buffer."""
    feeds = feeds_of(s)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    results = {
        "y": feeds["query"].shape,
        "present_key": feeds["past_key"].shape,
        "present_value": feeds["past_key"].shape,
    }
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in results.items()]
    heads = {"num_heads": s.heads, "kv_num_heads": s.shared}
    node = helper.make_node("GroupQueryAttention", list(feeds), list(results), domain="com.microsoft", **heads)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def in_place(s: Sizes, threads: int) -> Callable[[], Any]:
    """Return the compiled operator, bound to a cache that it extends in place."""
    feeds = feeds_of(s)
    module = tinycomp.compile(model_of(s), threads=threads)
    presents = {"present_key": feeds["past_key"], "present_value": feeds["past_value"]}
    return module.bind(feeds, {"y": np.empty_like(feeds["query"]), **presents})


def without_lengths(s: Sizes, threads: int) -> Callable[[], Any]:
    """Return attention_f32 on the same cache, causal."""
    feeds = feeds_of(s)
    arrays = [feeds["query"], feeds["past_key"], feeds["past_value"]]
    params: dict[str, int | float] = {
        "batch": 1, "heads": s.heads, "group": s.group, "rows": s.rows, "keys": s.keys, "depth": s.size,
        "value_depth": s.size, "k_column": 1, "causal": 1, "past": s.keys - s.rows, "scale": s.size**-0.5,
        **dict.fromkeys((f"{x}_batch" for x in "yqkv"), 0), **dict.fromkeys(("y_head", "q_head"), s.size),
        **dict.fromkeys(("y_row", "q_row"), s.heads * s.size), **dict.fromkeys(("k_row", "v_row"), s.size),
        **dict.fromkeys(("k_head", "v_head"), s.keys * s.size),
        **dict.fromkeys((f"mask_{x}" for x in ("batch", "head", "row", "column")), 0),
    }  # fmt: skip
    places = (Operand("output"), *(Operand("input", i) for i in range(3)), ABSENT)
    specs = tuple(BufferSpec(f"x{i}", "float32", x.shape) for i, x in enumerate(arrays))
    result = BufferSpec("y", "float32", arrays[0].shape)
    call = Instruction("attention_f32", places, params)
    program = NativeProgram(Program("attention", specs, (result,), (), 0, (call,)), Pool(threads))
    return program.bound(arrays, [np.empty_like(arrays[0])])


def in_onnxruntime(s: Sizes, threads: int) -> Callable[[], Any]:
    """Return onnxruntime's operator, bound likewise."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model_of(s), options, providers=["CPUExecutionProvider"])
    arrays = feeds_of(s) | {"y": np.zeros((1, s.rows, s.heads * s.size), np.float32)}
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    binding = session.io_binding()
    for name in list(arrays)[:-1]:
        binding.bind_ortvalue_input(name, values[name])
    for name, place in (("y", "y"), ("present_key", "past_key"), ("present_value", "past_value")):
        binding.bind_ortvalue_output(name, values[place])

    def run() -> None:
        session.run_with_iobinding(binding)
        assert arrays

    return run


def least(calls: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Return the least time of every call, all of them running by turns."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, found in zip(calls, times, strict=True):
            time.sleep(0.003)  # the threads of the others spin for a while
            call()
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    return [min(found) for found in times]


def reading(threads: int) -> Callable[[], Any]:
    """Return a function that reads 256 MB with so many threads."""
    parts = np.array_split(np.ones(1 << 26, np.float32), threads)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(np.max, parts))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="per case")
    options = parser.parse_args()
    read = reading(options.threads)
    print(f"{'case':<38}{'ms':>9}{'GB/s':>7}{'memory':>8}{'old/new':>9}{'onnxruntime/new':>17}")
    for s in CASES:
        calls = [make(s, options.threads) for make in (in_place, without_lengths, in_onnxruntime)]
        new, old, other, memory = least([*calls, read], options.seconds)
        rate = 2 * s.shared * s.keys * s.size * 4 / new / 1e9
        print(
            f"{s!s:<38}{new * 1e3:9.3f}{rate:7.1f}{(1 << 28) / memory / 1e9:8.1f}{old / new:9.2f}{other / new:17.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
