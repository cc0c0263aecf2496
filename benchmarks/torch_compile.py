"""PyTorch's own way in: ``torch.compile`` with tinycomp, Inductor, and eager mode, on the same tensors.

``python -m benchmarks torch-compile`` needs PyTorch with ``onnxscript``, and a C++ compiler for Inductor. The three run
in turn in one process, with as many threads each; the second of two batch sizes is new to modules of open sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks import output, page
from benchmarks.machine import describe

MODELS = ("resnet50", "bert_base", "mlp")


def example(name: str) -> tuple[Any, Callable[[int], tuple[Any, ...]]]:
    """A model in evaluation mode, and what makes its arguments for a batch."""
    import torch

    torch.manual_seed(0)
    if name == "mlp":
        layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024), torch.nn.GELU()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(1024, 64)).eval(), lambda n: (torch.randn(n, 256),)
    if name == "bert_base":
        from transformers import BertConfig, BertModel

        model = BertModel(BertConfig(), add_pooling_layer=False).eval()
        return model, lambda n: (torch.randint(0, 30522, (n, 128)),)
    from benchmarks.architectures.classifiers import resnet50

    return resnet50().eval(), lambda n: (torch.randn(n, 3, 224, 224),)


def compare(name: str, batches: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Time a model at some batch sizes."""
    import torch

    from tinycomp.pytorch import backend

    model, inputs = example(name)
    torch.compiler.reset()
    ways = {
        "tinycomp": torch.compile(model, backend=backend),
        "inductor": torch.compile(model, backend="inductor"),
        "eager": model,
    }
    rows = []
    with torch.inference_mode():
        for run in ways.values():  # the second size is what tells PyTorch that sizes change
            for batch in (batches[-1] + 1, batches[-1] + 2):
                with contextlib.suppress(Exception):  # said below
                    run(*inputs(batch))
        for batch in batches:
            arguments = inputs(batch)
            wanted = _tensor(model(*arguments))
            failed = {}
            for way, run in ways.items():
                try:
                    torch.testing.assert_close(_tensor(run(*arguments)), wanted, rtol=1e-3, atol=1e-3)
                except Exception as error:  # Inductor does not take every model; then there is nothing to compare with
                    failed[way] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            if "tinycomp" in failed:
                raise RuntimeError(failed["tinycomp"])
            samples: dict[str, list[float]] = {way: [] for way in ways if way not in failed}
            for _ in range(rounds):
                for way in samples:
                    samples[way].append(_seconds(ways[way], arguments))
            times = {way: {"median": statistics.median(s), "minimum": min(s)} for way, s in samples.items()}
            rows.append({"model": name, "batch": batch, "times": times, "failed": failed})
    return rows


def _tensor(result: Any) -> Any:
    """The first tensor of a result."""
    return result[0] if hasattr(result, "keys") or isinstance(result, tuple) else result


def _seconds(run: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < 0.05:
        run(*arguments)
        count += 1
    taken = (time.perf_counter() - start) / count
    time.sleep(0.005)  # threads of this one go to sleep before the next
    return taken


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown: milliseconds, and how many times tinycomp's the others' are."""
    cells = []
    for row in rows:
        times = row["times"]
        ours = times["tinycomp"]
        ratios = [
            f"{times[way]['median'] / ours['median']:.2f} ({times[way]['minimum'] / ours['minimum']:.2f})"
            if way in times
            else "failed"
            for way in ("inductor", "eager")
        ]
        cells.append((row["model"], str(row["batch"]), f"{ours['median'] * 1e3:.3f}", *ratios))
    return page.table(["model", "batch", "tinycomp, ms", "Inductor / ours, medians (minima)", "eager / ours"], cells)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Time torch.compile with tinycomp, Inductor, and eager mode.")
    parser.add_argument("models", nargs="*", default=list(MODELS), help=f"some of {', '.join(MODELS)} (all)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each (%(default)s)")
    parser.add_argument("--rounds", type=int, default=11, help="blocks of each (%(default)s)")
    parser.add_argument("--batches", type=int, nargs="*", default=[2, 3], help="batch sizes, in this order (2 3)")
    output.add_option(parser)
    options = parser.parse_args(given)
    import torch

    torch.set_num_threads(options.threads)
    rows = [row for name in options.models for row in compare(name, tuple(options.batches), options.rounds)]
    effort = {"rounds": options.rounds, "threads": options.threads}
    found = output.record("torch-compile", output.command_line("torch-compile", given), effort, rows)
    print(f"{describe(found['machine'])}; {options.threads} thread(s)\n\n{table(rows)}")
    output.save(options.output, found, table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
