"""Running many cases in worker processes, so that a crash or a hang ends a worker and not the session."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.fuzz.harness import Harness

ROOT = Path(__file__).resolve().parents[2]
START = 300.0
"""Seconds until a worker must be ready: making all of onnx's node tests takes its time."""
INTERVAL = 120.0
"""Seconds between two lines about how far a session has come."""
SAVED = 3
"""How many cases are saved of findings that look alike."""


class EndedError(Exception):
    """A worker has crashed, or was ended because it hung."""


@dataclass
class Outcome:
    """What a session has seen.

    Attributes:
        facts: Sums of what the cases said about themselves.
        findings: How often each kind of fault was seen.
        first: The text of the first finding of each kind.
    """

    facts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        """How many cases have been run."""
        return self.facts["cases"]


class Worker:
    """One process that runs cases, and is started anew when it ends."""

    def __init__(self, harness: Harness, folder: Path) -> None:
        self._harness = harness
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    def ask(self, command: str, seed: int, seconds: float) -> dict[str, Any]:
        """Run a case and return the reply.

        Raises:
            EndedError: If the process ends, or gives no answer in time; the text begins with what happened.
        """
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command} {seed}\n")
        self._process.stdin.flush()
        return self._read(seconds)

    def close(self) -> None:
        """End the process and drop its output."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", self._harness.name, str(self._folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1, cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._read(START)

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(seconds) else None
        if line:
            reply: dict[str, Any] = json.loads(line)
            return reply
        raise EndedError(self._last_words(f"hang: more than {seconds:.0f} s" if line is None else ""))

    def _last_words(self, what: str) -> str:
        """End the process and return what it has written last."""
        assert self._process is not None
        assert self._log is not None
        if what:
            self._process.kill()
        code = self._process.wait()
        self._log.seek(0)
        text = self._log.read()[-6000:]
        self.close()
        return f"{what or f'crash: the process ended with {code}'}\n{text}"


@dataclass
class Session:
    """Cases of one harness, in several processes at a time.

    Attributes:
        harness: What to run.
        folder: Where to write the inputs of findings.
        jobs: Number of processes.
        say: Whether to print findings as they come.
    """

    harness: Harness
    folder: Path
    jobs: int = 1
    say: bool = False
    outcome: Outcome = field(default_factory=Outcome)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _said: float = field(default_factory=time.monotonic)

    def run(self, first: int, count: int | None = None, seconds: float | None = None) -> Outcome:
        """Run the cases of the seeds from ``first`` on: ``count`` of them, or until the time is up."""
        deadline = None if seconds is None else time.monotonic() + seconds
        seeds = iter(range(first, first + count if count is not None else 1 << 62))
        threads = [threading.Thread(target=self._serve, args=(seeds, deadline)) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.outcome

    def _serve(self, seeds: Iterator[int], deadline: float | None) -> None:
        with contextlib.closing(Worker(self.harness, self.folder)) as worker:
            while deadline is None or time.monotonic() < deadline:
                with self._lock:
                    seed = next(seeds, None)
                if seed is None:
                    return
                self._one(worker, seed)

    def _one(self, worker: Worker, seed: int) -> None:
        try:
            reply = worker.ask("check", seed, self.harness.seconds)
        except EndedError as error:
            text = str(error)
            reply = {"wrong": text, "where": text.partition("\n")[0]}
        with self._lock:
            self.outcome.facts.update({"cases": 1, **reply.get("facts", {})})
            self._tell(seed)
        if "wrong" in reply:
            self._record(worker, seed, reply["where"], reply["wrong"])

    def _tell(self, seed: int) -> None:
        """Say once in a while how far the session has come."""
        if self.say and time.monotonic() > self._said + INTERVAL:
            self._said = time.monotonic()
            found = sum(self.outcome.findings.values())
            print(f"at seed {seed}: {self.outcome.cases} cases, {found} findings", flush=True)

    def _record(self, worker: Worker, seed: int, kind: str, text: str) -> None:
        with self._lock:
            self.outcome.findings[kind] += 1
            number = self.outcome.findings[kind]
            self.outcome.first.setdefault(kind, f"seed {seed}: {text}")
        if number > SAVED:
            return
        if self.say:
            print(f"seed {seed}: {kind}", flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.harness.name}-{seed}.txt"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            reply = worker.ask("save", seed, 10 * self.harness.seconds)
        except EndedError as error:
            reply = {"wrong": str(error)}
        if "wrong" in reply:
            path.write_text(f"{text}\n\nNot saved as a whole: {reply['wrong']}", encoding="utf-8", errors="replace")
