"""What a case of the corpus is, and how it is run: within a time limit, and judged by what came out."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tinycomp
from tinycomp.errors import ExecutionError, ModelError, TinycompError, TinycompWarning

SECONDS = 20
"""More than this is a hang; the slowest cases need about one second."""
TARGETS = ("c", "host")
Feeds = Mapping[str, Any] | list[Any]


@dataclass(frozen=True)
class Case:
    """One bad input.

    Attributes:
        id: Class number and name, such as ``36-stride-zero``.
        model: Makes the model from an empty folder: anything that ``compile`` takes.
        error: What must be raised; None if the model must run and give ``wanted``.
        texts: Parts of the message, in any order.
        feeds: Inputs of the run. With feeds, the error must come from the run and not before; without, from compile.
        wanted: Results in output order.
        options: Further arguments of ``compile``.
        timeout: The run's own timeout.
        warns: Part of a warning that must be given.
        does: What to do instead, for cases that are not about compiling and running; may raise or return nothing.
    """

    id: str
    model: Callable[[Path], Any] | None = None
    error: type[Exception] | None = None
    texts: Sequence[str] = ()
    feeds: Mapping[str, Any] | None = None
    wanted: Sequence[Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    warns: str = ""
    does: Callable[[Path], None] | None = None

    @property
    def number(self) -> int:
        """The class."""
        return int(self.id.split("-")[0])


def rejected(id_: str, model: Any, *texts: str, error: type[Exception] = ModelError, **options: Any) -> Case:
    """A model that ``compile`` must refuse; ``model`` is the model or makes it from a folder."""
    assert texts, id_
    return Case(id_, _maker(model), error, texts, options=options)


def failing(
    id_: str, model: Any, feeds: Feeds, *texts: str, error: type[Exception] = ExecutionError, **fields: Any
) -> Case:
    """A model that compiles, and must fail on these feeds, by name or in order, with this error."""
    assert texts, id_
    return Case(id_, _maker(model), error, texts, feeds=_named(model, feeds), **fields)


def right(id_: str, model: Any, feeds: Feeds, *wanted: Any, warns: str = "", **options: Any) -> Case:
    """A model that looks wrong, or feeds that do, but must compile, run, and give these results."""
    assert wanted, id_
    return Case(id_, _maker(model), feeds=_named(model, feeds), wanted=wanted, warns=warns, options=options)


def doing(id_: str, does: Callable[[Path], None], error: type[Exception] | None = None, *texts: str) -> Case:
    """A case that says itself what to do."""
    assert (error is None) == (not texts), id_
    return Case(id_, error=error, texts=texts, does=does)


def _named(model: Any, feeds: Feeds) -> Mapping[str, Any]:
    return dict(zip([i.name for i in model.graph.input], feeds, strict=True)) if isinstance(feeds, list) else feeds


def _maker(model: Any) -> Callable[[Path], Any]:
    return model if callable(model) else lambda folder: model


def run_case(case: Case, folder: Path, target: str) -> None:
    """Run a case for one target.

    Raises:
        AssertionError: If what came out is not what the case asks for.
    """
    with _within(SECONDS), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TinycompWarning)
        stage, error, results = _outcome(case, folder, target)
    _judge(case, stage, error, results)
    if case.warns:
        assert any(case.warns in str(w.message) for w in caught), [str(w.message) for w in caught]


def _outcome(case: Case, folder: Path, target: str) -> tuple[str, Exception | None, list[Any]]:
    """Return the stage that was reached, what was raised there, and the results."""
    stage, results = "compile", []
    try:
        if case.does is not None:
            stage = "does"
            case.does(folder)
            return stage, None, []
        assert case.model is not None
        module = tinycomp.compile(case.model(folder), **{"target": target, **case.options})
        stage = "run"
        if case.feeds is not None:
            results = list(module.run(case.feeds, timeout=case.timeout).values())
    except AssertionError:
        raise
    except Exception as error:  # what it is, the case judges
        return stage, error, []
    return stage, None, results


def _judge(case: Case, stage: str, error: Exception | None, results: list[Any]) -> None:
    if case.error is None:
        if error is not None:
            raise AssertionError(f"should run, but: {type(error).__name__}: {error}") from error
        if case.wanted is not None:
            _assert_equal(results, case.wanted)
        return
    assert error is not None, f"silent: gave {results}"
    assert isinstance(error, case.error), f"{type(error).__name__}: {error}"
    if case.does is None:
        assert stage == ("compile" if case.feeds is None else "run"), f"raised by {stage}: {error}"
    for text in case.texts:
        assert text in str(error), f"{text!r} is not in: {error}"
    if isinstance(error, TinycompError):
        assert error.message
        assert error.where or error.expected or error.found or error.hint, f"says nothing but: {error}"


def _assert_equal(results: Sequence[Any], wanted: Sequence[Any]) -> None:
    assert len(results) == len(wanted)
    for found, right_one in zip(results, wanted, strict=True):
        expected = np.asarray(right_one)
        assert found.shape == expected.shape, f"{found.shape} instead of {expected.shape}"
        np.testing.assert_array_equal(found, expected)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise a TimeoutError in the main thread where there are alarms; the subprocesses have limits of their own."""

    def expire(number: int, frame: object) -> None:
        raise AssertionError(f"hang: more than {seconds} s")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
