"""Calling a function in a process of its own, which has imported and compiled nothing before."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_CHILD = "from benchmarks.fresh import answer; answer()"


def in_fresh_process(module: str, function: str, *arguments: Any) -> Any:
    """Return what a function returns when a new Python process calls it.

    Args:
        module: Where the function is.
        function: Its name.
        arguments: What to call it with; they and the result must allow pickling.

    Raises:
        RuntimeError: The process failed; the message is the last line that it wrote.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=pickle.dumps((module, function, arguments)),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"{module}.{function} ended with status {done.returncode}")
    return pickle.loads(done.stdout)


def answer() -> None:
    """The child's side of :func:`in_fresh_process`: the question on standard input, the answer on standard output.

    What the function itself prints goes to standard error.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    module, function, arguments = pickle.load(sys.stdin.buffer)
    result = getattr(importlib.import_module(module), function)(*arguments)
    with os.fdopen(out, "wb") as stream:
        stream.write(pickle.dumps(result))
