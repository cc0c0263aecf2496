"""Decoders token by token: tokens per second beside onnxruntime and llama.cpp, and the share of the memory's speed.

``python -m benchmarks decode`` measures decoders of random weights, in 4 bits and in float32 (by tinycomp with
``precision="bf16"`` as well), whose caches are shared buffers, grow or are scattered to, for batch 1: steps of one
token from an empty cache on, and the reading of a prompt at once, with logits for all of its tokens. llama.cpp takes
part where ``--llama-python`` or ``TINYCOMP_LLAMA_PYTHON`` names an interpreter with ``llama-cpp-python`` and ``gguf``,
or this one has them: with random weights in Q4_0 and its usual cache in float16.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import changing, output, page
from benchmarks.architectures import decoders
from benchmarks.llama_cpp_engine import BLOCK, BLOCK_BYTES
from benchmarks.machine import describe
from benchmarks.peers import OURS, REFERENCE, prepare, relative_error
from benchmarks.worker import Worker, pin, worker

LLAMA = "llama.cpp"
ENGINES = (OURS, REFERENCE, LLAMA)
VARIABLE = "TINYCOMP_LLAMA_PYTHON"
TOLERANCES = {"int4": 0.05, "float32": 1e-4, "bf16": 0.05}
"""The largest difference of logits that still counts as agreement, as a share of the largest magnitude; rows that both
engines quantise to 8 bits on the way may differ by a few steps."""


@dataclass(frozen=True)
class Case:
    """A decoder.

    Attributes:
        sizes: Its sizes.
        weights: ``int4`` or ``float32``.
        form: Of the cache, one of :data:`FORMS`.
        precision: What tinycomp is asked to store float32 weights in; the others have the same file.
    """

    sizes: decoders.Sizes
    weights: str
    form: str = "shared"
    precision: str = "f32"

    def weight_bytes(self, engine: str) -> int:
        """How many bytes of weights a step reads: all products, of the embedding next to nothing."""
        s = self.sizes
        layer = 2 * s.width * s.width + 2 * s.width * s.kv_heads * s.head + 3 * s.width * s.hidden
        count = s.layers * layer + s.vocabulary * s.width
        if self.weights == "float32":
            return (2 if engine == OURS and self.precision != "f32" else 4) * count
        block = BLOCK_BYTES if engine == LLAMA else decoders.BLOCK // 2 + 4
        return count // BLOCK * block

    def cache_bytes(self, engine: str, length: float) -> float:
        """How many bytes of keys and values a step reads that has so many tokens before it."""
        return 2 * self.sizes.layers * self.sizes.kv_heads * self.sizes.head * length * (2 if engine == LLAMA else 4)


_SMALL = dataclasses.replace(decoders.SMALL, vocabulary=32000, positions=1024)
_LARGE = dataclasses.replace(decoders.LARGE, vocabulary=32000, positions=1024)
CASES: Mapping[str, Case] = {
    "small int4": Case(_SMALL, "int4"),
    "small float32": Case(_SMALL, "float32"),
    "small growing int4": Case(_SMALL, "int4", "growing"),
    "small growing float32": Case(_SMALL, "float32", "growing"),
    "small scattered int4": Case(_SMALL, "int4", "scattered"),
    "small scattered float32": Case(_SMALL, "float32", "scattered"),
    "small bf16": Case(_SMALL, "float32", precision="bf16"),
    "large int4": Case(_LARGE, "int4"),
    "large float32": Case(_LARGE, "float32"),
    "large bf16": Case(_LARGE, "float32", precision="bf16"),
}
"""8 layers of 512 and 24 layers of 1024, with caches of every form."""


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: How often every engine has its turn.
        tokens: Steps of one token in a turn.
        prompt: Tokens that are read at once.
        prompts: How often they are read in a turn.
        pause: Seconds of silence behind every turn.
    """

    rounds: int = 3
    tokens: int = 64
    prompt: int = 512
    prompts: int = 1
    pause: float = 0.1


FORMS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "shared": functools.partial(decoders.genai, shared=True),
    "growing": decoders.optimum,
    "scattered": decoders.opset24,
}
"""How a decoder keeps keys and values: in a buffer that its attention writes to, as onnxruntime-genai builds it; in
arrays that Concat extends, as optimum exports it; or in a buffer that TensorScatter writes to."""
QUICK = Effort(rounds=1, tokens=8, prompt=32, pause=0.02)


def model(case: Case) -> Path:
    """Return the file of a decoder, written now if it is not in the cache."""

    def write(file: Path) -> None:
        onnx.save(FORMS[case.form](case.sizes, weights=case.weights), file)

    return changing.cached(f"decode_{_stem(case)}", write)


def _stem(case: Case) -> str:
    sizes = "_".join(map(str, dataclasses.astuple(case.sizes)))
    return f"{case.form}_{case.weights}_{sizes}"


class Ours:
    """A decoder that tinycomp runs as its users do, in a process of its own."""

    def __init__(self, file: Path, sizes: Mapping[str, int], threads: int, precision: Any = "f32") -> None:
        pin(threads)
        prepare(OURS)
        import tinycomp
        from tinycomp.generation import Decoder

        module = tinycomp.compile(file, target="c", threads=threads, precision=precision)
        self._decoder, self._vocabulary = (lambda: Decoder(module)), sizes["vocabulary"]

    def generate(self, tokens: int) -> list[float]:
        """The seconds of every step of one token, from an empty cache on."""
        decoder = self._decoder()
        return [_timed(decoder.step, text(i, 1, self._vocabulary)) for i in range(tokens)]

    def prefill(self, tokens: int, times: int) -> list[float]:
        """The seconds of runs on many tokens at once, with logits for all of them."""
        prompt = text(0, tokens, self._vocabulary)
        return [_timed(self._decoder().step, prompt) for _ in range(times)]

    def logits(self) -> list[np.ndarray]:
        """What follows a few tokens, and then one more."""
        decoder = self._decoder()
        return [decoder.step(text(0, 5, self._vocabulary)), decoder.step(text(5, 1, self._vocabulary))]


class OnnxRuntime:
    """A decoder that onnxruntime runs as onnxruntime-genai does: bound, and with shared buffers where the form allows.

    A cache that grows is handed on from the results of one run to the inputs of the next, without a copy.
    """

    def __init__(self, file: Path, sizes: Mapping[str, int], threads: int) -> None:
        pin(threads)
        prepare(REFERENCE)
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self._value = ort.OrtValue.ortvalue_from_numpy
        self._session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._sizes = decoders.Sizes(**sizes)
        inputs = {each.name: each.shape for each in self._session.get_inputs()}
        self._inputs = set(inputs)
        self._caches = [name for name in inputs if name.startswith("past_key_values.")]
        self._shared = isinstance(inputs[self._caches[0]][2], int)
        self._clear()

    def generate(self, tokens: int) -> list[float]:
        """The seconds of every step of one token, from an empty cache on."""
        self._clear()
        return [_timed(self._step, text(i, 1, self._sizes.vocabulary)) for i in range(tokens)]

    def prefill(self, tokens: int, times: int) -> list[float]:
        """The seconds of runs on many tokens at once, with logits for all of them."""
        samples = []
        for _ in range(times):
            self._clear()
            samples.append(_timed(self._step, text(0, tokens, self._sizes.vocabulary)))
        return samples

    def logits(self) -> list[np.ndarray]:
        """What follows a few tokens, and then one more."""
        self._clear()
        return [self._step(text(i, n, self._sizes.vocabulary))[0].copy() for i, n in ((0, 5), (5, 1))]

    def _clear(self) -> None:
        s = self._sizes
        shape = (1, s.kv_heads, s.positions if self._shared else 0, s.head)
        self._past = {name: self._value(np.zeros(shape, np.float32)) for name in self._caches}
        self._length = 0

    def _step(self, tokens: Sequence[int]) -> np.ndarray:
        total = self._length + len(tokens)
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(self._length, total)[None],
        }
        binding = self._session.io_binding()
        for name, array in feeds.items():
            if name in self._inputs:
                binding.bind_cpu_input(name, array)
        binding.bind_output("logits")
        for name, value in self._past.items():
            binding.bind_ortvalue_input(name, value)
            present = name.replace("past_key_values", "present")
            if self._shared:
                binding.bind_ortvalue_output(present, value)
            else:
                binding.bind_output(present)
        self._session.run_with_iobinding(binding)
        results = binding.get_outputs()
        if not self._shared:
            self._past = dict(zip(self._caches, results[1:], strict=True))
        self._length = total
        return results[0].numpy()


def text(first: int, count: int, vocabulary: int) -> list[int]:
    """Some tokens."""
    return [i * 7919 % vocabulary for i in range(first, first + count)]


def _timed(step: Any, tokens: Sequence[int]) -> float:
    start = time.perf_counter()
    step(tokens)
    return time.perf_counter() - start


class Memory:
    """How fast the memory can be read by so many threads, measured in a process of its own."""

    def __init__(self, threads: int) -> None:
        pin(threads)
        self._parts = np.array_split(np.ones(1 << 26, np.uint64), threads)  # 512 MB, more than any cache
        self._threads = ThreadPoolExecutor(threads)

    def bandwidth(self) -> float:
        """Bytes per second of the fastest of three passes of numpy's maximum, which is bound by reading."""
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            list(self._threads.map(np.max, self._parts))
            seconds.append(time.perf_counter() - start)
        return sum(part.nbytes for part in self._parts) / min(seconds)


def measure(name: str, threads: int, effort: Effort, engines: Sequence[str], llama_python: str) -> dict[str, Any]:
    """One row: the figures of every engine on one decoder, as JSON-able values; one that fails has an ``error``."""
    case = CASES[name]
    sizes = dataclasses.asdict(case.sizes)
    file = model(case)
    row: dict[str, Any] = {"model": name, "threads": threads, "engines": {}}
    chosen = [e for e in engines if e != LLAMA or (case.weights == "int4" and case.form == "shared")]
    samples: dict[str, dict[str, list[float]]] = {e: {"generate": [], "prefill": []} for e in chosen}
    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(worker("benchmarks.decode", "Memory", threads))
        workers: dict[str, Worker] = {}
        for engine in chosen:
            where = {OURS: ("benchmarks.decode", "Ours"), REFERENCE: (__spec__.name, "OnnxRuntime")}.get(
                engine, ("benchmarks.llama_cpp_engine", "LlamaCpp")
            )
            path = file.with_suffix(".gguf") if engine == LLAMA else file
            python = llama_python if engine == LLAMA else sys.executable
            asked = [path, sizes, threads, *([case.precision] if engine == OURS else [])]
            workers[engine] = stack.enter_context(worker(*where, *asked, python=python))
        bandwidths = []
        for number in range(-1, effort.rounds):  # the first turn makes things ready
            bandwidths.append(memory.ask("bandwidth"))
            for engine, each in workers.items():
                steps = each.ask("generate", effort.tokens if number >= 0 else 2)
                prompts = each.ask("prefill", effort.prompt, effort.prompts)
                if number >= 0 and not each.error:
                    samples[engine]["generate"] += steps
                    samples[engine]["prefill"] += prompts
                time.sleep(effort.pause)
        pair = [workers[e].ask("logits") for e in (OURS, REFERENCE) if e in workers]
        errors = {engine: each.error for engine, each in workers.items()}
    row["bandwidth"] = max(bandwidths)
    if len(pair) == 2 and None not in pair:
        row["error"] = max(relative_error(*each) for each in zip(*pair, strict=True))
    for engine in chosen:
        figures = {"error": errors[engine]} if errors[engine] else _figures(case, engine, samples[engine], effort)
        if "generate" in figures:
            figures["share"] = {key: figures["bytes"] / s / row["bandwidth"] for key, s in figures["generate"].items()}
        row["engines"][engine] = figures
    failed = bool(errors.get(OURS))
    row["agrees"] = (
        not failed and row.get("error", 0.0) <= TOLERANCES[case.weights if case.precision == "f32" else case.precision]
    )
    return row


def _figures(case: Case, engine: str, samples: Mapping[str, Sequence[float]], effort: Effort) -> dict[str, Any]:
    """Seconds of a step and of a prompt, and the bytes that a step reads on average."""
    read = case.weight_bytes(engine) + case.cache_bytes(engine, (effort.tokens - 1) / 2)
    times = {key: {"median": statistics.median(s), "minimum": min(s)} for key, s in samples.items()}
    return {**times, "bytes": read, "prompt": effort.prompt}


def heading(engines: Sequence[str]) -> str:
    """The first two lines of the Markdown table."""
    peers = [engine for engine in engines if engine != OURS]
    columns = [f"{e}, {what}" for what in ("tokens/s", "prompt tokens/s") for e in engines]
    columns += [f"ours / {peer}{what}" for what in ("", ", prompt") for peer in peers]
    return page.heading(["model", "threads", *columns, "GB/s", *(f"{e}, share of it" for e in engines), "error"])


def line(row: Mapping[str, Any], engines: Sequence[str]) -> str:
    """One line of the Markdown table: figures of medians, those of minima in brackets."""
    cells = [row["model"], row["threads"]]
    known = {e: f for e, f in row["engines"].items() if "error" not in f}
    for key in ("generate", "prefill"):
        for engine in engines:
            error = row["engines"].get(engine, {}).get("error", "")
            cells.append(_pair(_rate(known[engine], key), 1) if engine in known else error[:60])
    for key in ("generate", "prefill"):
        for peer in engines:
            if peer != OURS:
                both = OURS in known and peer in known
                ratios = {f: s / known[OURS][key][f] for f, s in known[peer][key].items()} if both else None
                cells.append(_pair(ratios, 2))
    cells.append(f"{row['bandwidth'] / 1e9:.1f}")
    cells += [_percent(known[e]["share"]) if e in known else "" for e in engines]
    agreement = "" if row["agrees"] else " differs"
    return page.line([*cells, f"{row['error']:.1e}{agreement}" if "error" in row else ""])


def _rate(figures: Mapping[str, Any], key: str) -> dict[str, float]:
    """Tokens per second."""
    count = figures["prompt"] if key == "prefill" else 1
    return {figure: count / seconds for figure, seconds in figures[key].items()}


def _pair(figures: Mapping[str, float] | None, digits: int) -> str:
    return f"{figures['median']:.{digits}f} ({figures['minimum']:.{digits}f})" if figures else ""


def _percent(figures: Mapping[str, float]) -> str:
    return f"{figures['median']:.0%} ({figures['minimum']:.0%})"


def table(rows: Iterable[Mapping[str, Any]], engines: Sequence[str]) -> str:
    """All lines of the Markdown table."""
    return "\n".join([heading(engines), *(line(row, engines) for row in rows)])


def has_llama(python: str) -> bool:
    """Tell whether an interpreter has llama.cpp and can write its files."""
    names = ("llama_cpp", "gguf")
    if python == sys.executable:
        return all(importlib.util.find_spec(name) is not None for name in names)
    test = f"import importlib.util as u; raise SystemExit(any(u.find_spec(n) is None for n in {names}))"
    try:
        return subprocess.run([python, "-c", test], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure; the exit status is 1 if tinycomp failed on a model or disagreed with onnxruntime."""
    given = None if arguments is None else list(arguments)
    options = _options(given)
    effort = QUICK if options.quick else Effort()
    if options.rounds is not None:
        effort = dataclasses.replace(effort, rounds=options.rounds)
    engines = list(options.engines)
    if LLAMA in engines and not has_llama(options.llama_python):
        engines.remove(LLAMA)
        print(f"no llama.cpp: {options.llama_python} lacks llama-cpp-python or gguf; see --llama-python")
    found = output.record("decode", output.command_line("decode", given), dataclasses.asdict(effort), [])
    found["engines"] = engines
    print(f"{describe(found['machine'])}\n{effort}\n\n{heading(engines)}", flush=True)
    for threads in options.threads:
        for name in options.models or CASES:
            found["rows"].append(measure(name, threads, effort, engines, options.llama_python))
            print(line(found["rows"][-1], engines), flush=True)
    output.save(options.output, found, table(found["rows"], engines))
    return int(any(not row["agrees"] for row in found["rows"]))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks decode", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*CASES, []], help="default: all")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of every engine (%(default)s)")
    parser.add_argument("--rounds", type=int, help=f"turns per engine ({Effort().rounds})")
    parser.add_argument("--quick", action="store_true", help="a short pass")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES, help="%(default)s")
    usual = os.environ.get(VARIABLE, sys.executable)
    parser.add_argument("--llama-python", default=usual, help=f"has llama-cpp-python and gguf (${VARIABLE}, else this)")
    output.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
