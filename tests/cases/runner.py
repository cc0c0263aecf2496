"""Meets a subject in a way, and says what came of it."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tinycomp
from tests.cases.subject import Subject
from tests.cases.ways import WAYS, Trial
from tests.declarations.measure import INTERNAL, Outcome, difference
from tests.declarations.ways import TARGETS
from tinycomp.errors import TinycompError, UnsupportedError
from tinycomp.export_c import to_c
from tinycomp.export_c.trial import run_trial
from tinycomp.runtime.module import Module

KINDS = ("right", "hosted", "refused", "wrong", "internal")
"""Right; right, but on the host, which the row does not say and, in other ways than ``c``, that one does not need;
refused; other results; an error of ours."""
_LAST: dict[str, tuple[Subject, Any]] = {}
"""What was found of the last subject as it stands."""


def meet(s: Subject, way: str) -> Outcome | None:
    """Meet a subject in a way; the worst of its trials counts. None if the way does not apply."""
    worst: Outcome | None = None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for trial in WAYS[way](s):
            found = _try(s, trial, way)
            if found.text and trial.name:
                found = Outcome(found.kind, f"({trial.name}) {found.text}")
            if worst is None or KINDS.index(found.kind) > KINDS.index(worst.kind):
                worst = found
    if worst is not None and worst.kind == "hosted" and way != "c" and _stands_on_the_host(s):
        return Outcome("right")
    return worst


def _once(s: Subject, what: str, find: Callable[[Subject], Any]) -> Any:
    if what not in _LAST or _LAST[what][0] is not s:
        _LAST[what] = s, find(s)
    return _LAST[what][1]


def _stands_on_the_host(s: Subject) -> bool:
    """Tell whether the C target leaves a subject to the host as it stands, where sizes and ranks are known."""
    return bool(s.host) or _once(s, "c", lambda s: meet(s, "c")) != ("right", "")


def _try(s: Subject, trial: Trial, way: str) -> Outcome:
    before = {name: x.copy() for name, x in trial.feeds.items() if isinstance(x, np.ndarray)}
    try:
        module = tinycomp.compile(trial.model, TARGETS[trial.target], threads=1, **trial.options)
        results = [*(_kept(module) if trial.saved else module).run(trial.feeds).values()]
    except TinycompError as error:
        text = f"{type(error).__name__}: {error}".replace("\n", " | ")
        if s.refused and re.search(s.refused, text):
            return Outcome("right")
        return Outcome("internal" if re.search(INTERNAL, text) else "refused", text)
    except Exception as error:
        return Outcome("internal", f"{type(error).__name__}: {error}".replace("\n", " | "))
    if s.refused:
        return Outcome("wrong", f"accepted, though: {s.refused}")
    changed = [name for name, x in before.items() if difference(trial.feeds[name], x, 0.0, 0.0)]
    text = f"it changed {changed}" if changed else _difference(s, results, trial.wanted)
    if text:
        return Outcome("wrong", text)
    found = _placed(s, module, way) if trial.target == "c" else Outcome("right")
    return _built(module, trial) if trial.exported and found.kind == "right" else found


def _built(module: Module, trial: Trial) -> Outcome:
    """Tell whether a project builds without a warning, and gives what the module gives."""
    try:
        project = to_c(module, feeds=[np.asarray(trial.feeds[spec.name]) for spec in module.inputs])
        test = run_trial(project, "-O0")
    except UnsupportedError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}".replace("\n", " | "))
    except TinycompError as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}".replace("\n", " | "))
    return Outcome("right") if test.passed else Outcome("wrong", test.output[-600:].replace("\n", " | "))


def _kept(module: Module) -> Module:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.tcm"
        module.save(path)
        return tinycomp.load(path)


def _difference(s: Subject, found: list[Any], wanted: Any) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} results instead of {len(wanted)}"
    for f, w in zip(found, wanted, strict=True):
        atol = s.atol
        if s.of_largest and isinstance(w, np.ndarray):
            atol += s.of_largest * float(np.abs(w).max(initial=0.0))
        text = difference(f, w, s.rtol, atol)
        if text:
            return text
    return ""


def _placed(s: Subject, module: Module, way: str) -> Outcome:
    """Tell whether nodes ran on the host although the row does not say so."""
    reasons = [f"{row.op}: {'; '.join(map(str, row.reasons))}" for row in module.report().hosts]
    if way == "c" and s.host and not any(s.host in r for r in reasons):
        return Outcome("wrong", f"on the C target, though: {s.host}")
    others = [r for r in reasons if not (s.host and s.host in r)]
    return Outcome("hosted", others[0]) if others else Outcome("right")
