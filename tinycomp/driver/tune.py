"""Tuning: measuring the candidates of every layer of a model on this machine, and keeping the figures in a log.

A layer's weights are cold when a model runs, because all other layers have passed through the cache meanwhile, and its
input is warm, because the layer before has just written it. Measurements imitate both: before every run as many bytes
as the model has weights are read, and then the input.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tinycomp.arguments import checked
from tinycomp.console import SafeConsole
from tinycomp.driver.compiler import Compiler
from tinycomp.driver.models import Model, load_graph
from tinycomp.driver.targets import resolve_targets
from tinycomp.errors import TuningError
from tinycomp.frontend import Shapes
from tinycomp.ir.graph import Value
from tinycomp.memory.interpreter import compiling
from tinycomp.records import dataclass
from tinycomp.runtime.native.executor import NativeProgram, Pool, Weights
from tinycomp.runtime.native.processor import default_isa, default_threads, isa_shape, this_machine
from tinycomp.runtime.native.program import Program
from tinycomp.targets.c.tuning.candidates import Candidate, Problem, problem_of
from tinycomp.targets.c.tuning.log import Entry, TuningLog
from tinycomp.targets.c.tuning.trial import trial_of

ROUNDS = 7
"""How often every candidate of a problem is measured at least; the least of its times counts."""
PATIENCE = 0.3
"""Seconds that the candidates of a problem may take together for further rounds."""
_MOST_ROUNDS = 30
_MOST_SWEPT = 64 << 20
_PROMISING = 1.25


@dataclass(frozen=True)
class Tuned:
    """Hold the result of :func:`tune`.

    Attributes:
        log: The log, for ``compile(options={"c": {"tuning": …}})``.
        problems: How many different problems the model has.
        measured: How many of them were measured now; the log held the others.
        seconds: How long that took.
    """

    log: TuningLog
    problems: int
    measured: int
    seconds: float


@checked("model", "shapes")
def tune(
    model: Model,
    log: str | os.PathLike[str] | TuningLog = "tuning.jsonl",
    *,
    shapes: Shapes | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Tuned:
    """Measure the kernels and blocks that the target ``c`` could use for every layer of a model.

    What the log holds already for this machine, its instruction set and the number of threads is not measured again;
    every finished measurement is in the file at once, so an interrupted run loses nothing.

    Args:
        model: As for :func:`tinycomp.compile`.
        log: The log to extend, or its path; the file is created if it does not exist.
        shapes: Shapes for inputs; they must leave no size open, and may be tuned for one after another.
        threads: Threads that the runs will use, as for :func:`tinycomp.compile`.
        progress: Whether to show a bar on stderr; by default if that is a terminal.

    Returns:
        The log and some figures; either the log or its path is what the option ``tuning`` of the target ``c`` takes.

    Raises:
        ModelError: If the model is not valid.
        TuningError: If the log cannot be read, or the model's sizes are not known.
        WriteError: If the log cannot be written.

    Example:
        >>> import tinycomp
        >>> from tinycomp.data import digits_model
        >>> tuned = tinycomp.tune(digits_model(), TuningLog(), shapes={"image": (1, 1, 8, 8)}, threads=1)
        >>> module = tinycomp.compile(digits_model(), options={"c": {"tuning": tuned.log}}, threads=1)
    """
    started = time.perf_counter()
    kept = log if isinstance(log, TuningLog) else _opened(Path(log))
    pool = Pool(threads if threads is not None else default_threads())
    programs = _programs(model, shapes, pool)
    problems = _problems(programs)
    isa, machine = default_isa(), this_machine()
    known = kept.measured(machine, isa, pool.threads)
    missing = [problem for key, problem in problems.items() if key not in known]
    bench = Bench(pool, isa, sum(array.nbytes for program in programs for array in program.constants))
    with Bar(progress).over("tuning", missing, len(missing)) as problems_left:
        for problem in problems_left:
            kept.add(Entry(machine, isa, pool.threads, problem.key, bench.measure(problem)))
    return Tuned(kept, len(problems), len(missing), time.perf_counter() - started)


def _opened(path: Path) -> TuningLog:
    return TuningLog.read(path) if os.path.exists(path) else TuningLog(path=path)  # noqa: PTH110 - takes any name


def _programs(model: Model, shapes: Shapes | None, pool: Pool) -> list[Program]:
    """Return the native programs of a model whose sizes are all known."""
    compiler = Compiler(resolve_targets("c"), pool)
    with compiling():
        graph = load_graph(model, shapes)
        compiler.partition_in_place(graph)
        open_inputs = [v for v in graph.inputs if getattr(v.type, "static_shape", ()) is None]
        if open_inputs:
            raise TuningError(
                "only known sizes can be measured", where=graph.name, expected="a shape for every input",
                found="; ".join(f'"{v.name}": {v.type}' for v in open_inputs),
                hint=f"Give shapes, for example shapes={_guess(open_inputs)}; tune again for others.",
            )  # fmt: skip
        lowering = compiler.lowering()
        lowering.plan(graph)
    return [program for program in lowering.programs.values() if isinstance(program, Program)]


def _guess(inputs: Sequence[Value]) -> dict[str, tuple[int, ...]]:
    """Return shapes with 1 for every size that is not known."""
    return {v.name: tuple(d if isinstance(d, int) else 1 for d in v.shape or ()) for v in inputs}


def _problems(programs: Sequence[Program]) -> dict[str, Problem]:
    """Return the different problems by key. Where the same one occurs with more candidates, these are measured."""
    problems: dict[str, Problem] = {}
    for each in [each for program in programs for each in program.walk()]:
        for call in each.instructions:
            problem = problem_of(call)
            if problem is not None and not (problem.key in problems and problems[problem.key].adjacent):
                problems[problem.key] = problem
    return problems


class Bench:
    """Measure problems under the conditions of a model.

    Args:
        pool: Threads of the runs.
        isa: The instruction set.
        weight_bytes: What passes through the cache between two runs of the same layer.
    """

    def __init__(self, pool: Pool, isa: str, weight_bytes: int) -> None:
        self._pool, self._isa = pool, isa
        self._lanes = isa_shape(isa).lanes
        self._swept = np.ones(min(weight_bytes, _MOST_SWEPT) // 8)

    def measure(self, problem: Problem) -> dict[str, float]:
        """Return the least seconds of the candidates: of all algorithms, and of the best ones in all their shapes."""
        plain = problem.candidates(self._lanes)
        seconds = self._race(problem, plain)
        limit = _PROMISING * min(seconds.values())
        best = {c.algorithm for c in plain if seconds[c.name] <= limit}
        shaped = [c for c in problem.candidates(self._lanes, shaped=True) if c.is_shaped and c.algorithm in best]
        # The plain ones once more, so that all that are compared ran side by side.
        again = self._race(problem, [*(c for c in plain if c.algorithm in best), *shaped]) if shaped else {}
        return {**seconds, **{name: min(least, seconds.get(name, least)) for name, least in again.items()}}

    def _race(self, problem: Problem, candidates: Sequence[Candidate]) -> dict[str, float]:
        """Run candidates in turns; whatever slows the machine slows them all."""
        programs = {c.name: trial_of(problem, c) for c in candidates}
        # All candidates share one copy of everything, so that memory and caches are the same for each.
        first = next(iter(programs.values()))
        inputs = [np.ones(spec.shape, spec.dtype) for spec in first.inputs]
        outputs = [np.empty(spec.shape, spec.dtype) for spec in first.outputs]
        weights, constants = Weights(), first.constants
        natives = {
            name: NativeProgram(dataclasses.replace(program, constants=constants), self._pool, self._isa, weights)
            for name, program in programs.items()
        }
        runs = {name: native.bound(inputs, outputs) for name, native in natives.items()}
        samples: dict[str, list[float]] = {name: [] for name in runs}
        started = time.perf_counter()
        for number in range(_MOST_ROUNDS):
            for name, run in runs.items():
                samples[name].append(self._timed(run, inputs))
            if number >= ROUNDS and time.perf_counter() - started > PATIENCE:
                break
        return {name: min(times[1:]) for name, times in samples.items()}  # the first run touched memory afresh

    def _timed(self, run: Callable[[], None], inputs: Sequence[np.ndarray]) -> float:
        self._swept.sum()
        for array in inputs:
            array += array.dtype.type(0)  # as the layer before would just have written it
        started = time.perf_counter()
        run()
        return time.perf_counter() - started


class Bar:
    """Show a progress bar on stderr.

    Args:
        wanted: Whether to show one; None for where stderr is a terminal.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._console = SafeConsole(stderr=True)
        self._shown = self._console.is_terminal if wanted is None else wanted

    @contextmanager
    def over(self, what: str, items: Iterable[Any], total: int) -> Iterator[Iterator[Any]]:
        """Yield an iterator over ``items`` that moves the bar; a ``total`` of 0 is one that is not known."""
        clocks = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *clocks)
        options = {"console": self._console, "transient": self._console.is_terminal, "disable": not self._shown}
        with Progress(*columns, **options) as bar:  # type: ignore[arg-type]
            yield iter(bar.track(items, total=total or None, description=what))
