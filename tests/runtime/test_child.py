"""Processes for calls: what is between them and the one that has started them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tinycomp.runtime.child import Child
from tinycomp.targets.tosa.tools import worker_of

PROC = Path("/proc")


def holders(pipe: str) -> set[int]:
    """The processes that have a pipe open, by its name in ``/proc``."""
    found = set()
    for link in PROC.glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) == pipe:
                found.add(int(link.parts[2]))
        except OSError:  # it has ended, or is another user's
            continue
    return found


@pytest.mark.skipif(not (PROC / "self/fd").exists(), reason="the system does not show who holds a pipe")
def test_pickles_go_through_pipes_that_nobody_else_holds() -> None:
    children = Child(), Child()
    numbers = [child.call(os.getpid) for child in children]
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        for child, number in zip(children, numbers, strict=True):
            assert child._process is not None
            for stream in (child._process.stdin, child._process.stdout):
                assert stream is not None
                assert stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
                assert holders(str((PROC / f"self/fd/{stream.fileno()}").readlink())) == {os.getpid(), number}
    finally:
        bystander.communicate()
        for child in children:
            child.end()


def test_an_interrupted_call_is_not_answered_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("tinycomp.runtime.child.pickle.load", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                child.call(len, "abc")
        assert child.call(len, "a") == 1
    finally:
        child.end()


def test_interrupted_tools_are_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_of(sys.executable)
    monkeypatch.setattr(worker, "_process", _Interrupting(worker._process))
    with pytest.raises(KeyboardInterrupt):
        worker.ask("nothing", {})
    assert worker_of(sys.executable) is not worker


class _Interrupting:
    """A process whose answer is not waited for."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.stdout = process, self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def read(self, size: int) -> bytes:
        raise KeyboardInterrupt


def _interrupted(*arguments: Any) -> Any:
    raise KeyboardInterrupt
