"""A server under 64 clients: throughput and latency of tinycomp beside onnxruntime, both behind ``tinycomp serve``.

``python -m benchmarks serve`` needs the extra ``serve`` and onnxruntime. Each engine is served by a process of its own,
and both live throughout; a client with many connections asks one and then the other. Every answer is held
against the rows that were sent: one that is lost or another client's is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import output, page, suites
from benchmarks.machine import describe
from benchmarks.peers import OURS, REFERENCE
from tinycomp.runtime.spec import TensorSpec

ENGINES = (OURS, REFERENCE)
HEADER = "Inference-Header-Content-Length"
TOLERANCE = 1e-3
SAMPLES = 64


class Session:
    """A session of onnxruntime as something that can be served."""

    defaults: Mapping[str, Any] = {}

    def __init__(self, model: Path, threads: int) -> None:
        import onnxruntime as ort

        from tinycomp.runtime.requests import Requests

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = {"tensor(float)": "float32", "tensor(int8)": "int8", "tensor(uint8)": "uint8"}
        self.inputs = [_spec(each, names) for each in self._session.get_inputs()]
        rows = self.inputs[0].shape[0] if self.inputs[0].shape else None
        self.outputs = [
            TensorSpec(each.name, names[each.type], (rows, *each.shape[1:])) for each in self._session.get_outputs()
        ]
        self._names = [spec.name for spec in self.outputs]
        self._requests = Requests(2)

    def run_async(self, feeds: Mapping[str, Any], *, timeout: float | None = None) -> Future[dict[str, Any]]:
        """Begin a run, in a thread as tinycomp's own."""
        return self._requests.begin(lambda: dict(zip(self._names, self._session.run(None, feeds), strict=True)))

    def close(self) -> None:
        """Finish what is under way."""
        self._requests.close(wait=True)


def _spec(tensor: Any, names: Mapping[str, str]) -> TensorSpec:
    return TensorSpec(tensor.name, names[tensor.type], tuple(tensor.shape))


def serve(engine: str, model: Path, threads: int, batch: int) -> None:
    """Serve a model, and print the port."""
    import tinycomp
    from tinycomp.serving.application import Application, Limits, ServedModel
    from tinycomp.serving.server import listen
    from tinycomp.serving.server import serve as run_server

    made = tinycomp.compile(model, threads=threads) if engine == OURS else Session(model, threads)
    listening = listen("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    run_server(Application([ServedModel("m", made)], Limits(batch=batch)), listening)


class Load:
    """Requests of one row each, and what their answers must be."""

    def __init__(self, model: Path) -> None:
        import tinycomp

        module = tinycomp.compile(model)
        (spec,) = module.inputs
        sizes = [dim for dim in (spec.shape or ())[1:] if isinstance(dim, int)]
        rng = np.random.default_rng(0)
        dtype = spec.numpy_dtype
        assert dtype is not None
        if dtype.kind == "f":
            rows = rng.standard_normal((SAMPLES, *sizes)).astype(dtype)
        else:
            rows = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (SAMPLES, *sizes)).astype(dtype)
        self.expected = [module(row[None])[0].astype(np.float64) for row in rows]
        self.scale = max(float(np.abs(each).max()) for each in self.expected)
        self.dtype = module.outputs[0].numpy_dtype
        self.exact = dtype.kind == "f"
        kind = {"float32": "FP32", "int8": "INT8", "uint8": "UINT8"}[spec.dtype]
        self.requests = [self._request(spec.name, kind, row[None]) for row in rows]

    @staticmethod
    def _request(name: str, kind: str, rows: np.ndarray) -> bytes:
        tensor = {"name": name, "shape": rows.shape, "datatype": kind}
        tensor["parameters"] = {"binary_data_size": rows.nbytes}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        size = len(head) + rows.nbytes
        lines = (
            f"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\n{HEADER}: {len(head)}\r\nContent-Length: {size}\r\n\r\n"
        )
        return lines.encode() + head + rows.tobytes()

    async def ask(self, port: int, clients: int, seconds: float) -> tuple[list[float], int, float]:
        """Keep ``clients`` connections busy; return latencies, wrong answers, and how long it took."""
        latencies, wrong, started = list[float](), 0, time.perf_counter()

        async def one(number: int) -> None:
            nonlocal wrong
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            turn = number
            while time.perf_counter() - started < seconds:
                turn = (turn * 5 + 1) % SAMPLES
                begun = time.perf_counter()
                writer.write(self.requests[turn])
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
                body = await reader.readexactly(int(fields[b"content-length"]))
                latencies.append(time.perf_counter() - begun)
                if not head.startswith(b"http/1.1 200"):
                    raise RuntimeError(body.decode())
                found = np.frombuffer(body[int(fields[HEADER.lower().encode()]) :], self.dtype)
                wrong += not self.right(turn, found)
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(one(number) for number in range(clients)))
        return latencies, wrong, time.perf_counter() - started

    def right(self, number: int, found: np.ndarray) -> bool:
        """Tell whether an answer is that of a request; integers may differ by one in their last place."""
        wanted = self.expected[number].reshape(-1)
        allowed = TOLERANCE * self.scale if self.exact else 2.0
        return found.size == wanted.size and bool(np.abs(found - wanted).max() <= allowed)


def compare(model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Time both engines in turns."""
    load, servers, ports = Load(model), dict[str, subprocess.Popen[str]](), dict[str, int]()
    different = {tuple(np.round(each.reshape(-1) / load.scale, 4)) for each in load.expected}
    try:
        for engine in ENGINES:
            command = [sys.executable, "-m", "benchmarks.serve", str(model), "--serve", engine]
            command += ["--threads", str(options.threads), "--batch", str(options.batch)]
            servers[engine] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for engine, server in servers.items():
            assert server.stdout is not None
            ports[engine] = int(server.stdout.readline())
        run = _loop()
        for port in ports.values():
            run(load.ask(port, options.clients, options.seconds / 2))  # every size of a batch once
        rounds: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
        for _ in range(options.rounds):
            for engine, port in ports.items():
                latencies, wrong, taken = run(load.ask(port, options.clients, options.seconds))
                middle, last = np.quantile(latencies, [0.5, 0.99])
                rounds[engine].append(
                    {"per_second": len(latencies) / taken, "p50": middle, "p99": last, "wrong": wrong}
                )
    finally:
        for server in servers.values():
            server.terminate()
        for server in servers.values():
            server.wait()
            if server.stdout is not None:
                server.stdout.close()
    return {"model": model.stem, "different": len(different), "rounds": rounds}


def _loop() -> Callable[[Any], Any]:
    """Return what runs coroutines: in uvloop, so that clients take little from the servers."""
    import uvloop

    return lambda coroutine: uvloop.run(coroutine)


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown: medians over the rounds, and the median of the rounds' ratios."""
    cells = []
    for row in rows:
        ours, theirs = (row["rounds"][engine] for engine in ENGINES)
        medians = [
            [statistics.median(r[key] for r in of) for of in (ours, theirs)] for key in ("per_second", "p50", "p99")
        ]
        ratio = statistics.median(a["per_second"] / b["per_second"] for a, b in zip(ours, theirs, strict=True))
        tail = statistics.median(b["p99"] / a["p99"] for a, b in zip(ours, theirs, strict=True))
        wrong = sum(int(r["wrong"]) for of in (ours, theirs) for r in of)
        cells.append(
            (
                row["model"], f"{medians[0][0]:,.0f}", f"{medians[0][1]:,.0f}", f"{ratio:.2f}",
                *(f"{ms[0] * 1e3:.1f} / {ms[1] * 1e3:.1f}" for ms in medians[1:]), f"{tail:.2f}", str(wrong),
            )
        )  # fmt: skip
    head = ["model", "ours, answers/s", "onnxruntime", "ours / onnxruntime", "p50, ms, both", "p99, ms, both"]
    return page.table([*head, "p99, onnxruntime / ours", "wrong answers"], cells)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Time tinycomp and onnxruntime behind the same server.")
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files with one input and one output (MLPerf Tiny's)")
    parser.add_argument("--clients", type=int, default=64, help="connections (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of a run (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn (%(default)s)")
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    output.add_option(parser)
    options = parser.parse_args(given)
    if options.serve:
        serve(options.serve, options.models[0], options.threads, options.batch)
        return 0
    models = options.models or [Path(name) for name in suites.tiny_files()]
    if not models:
        parser.error(f"name models, or a folder with those of MLPerf Tiny in {suites.VARIABLE}")
    rows = [compare(model, options) for model in models]
    effort = {key: getattr(options, key) for key in ("clients", "threads", "batch", "rounds", "seconds")}
    found = output.record("serve", output.command_line("serve", given), effort, rows)
    print(f"{describe(found['machine'])}; {options.threads} thread(s), {options.clients} clients\n\n{table(rows)}")
    output.save(options.output, found, table(rows))
    return int(any(r["wrong"] for row in rows for of in row["rounds"].values() for r in of))


if __name__ == "__main__":
    raise SystemExit(main())
