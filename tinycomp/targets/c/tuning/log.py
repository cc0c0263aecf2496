"""Tuning logs: what was measured where, one JSON object per line, so that a file can grow and be cut short.

A line holds machine, instruction set, number of threads, the problem, and the seconds of every candidate::

    {"version": 1, "machine": {"cpu": "...", "l1": 32768, "l2": 524288, "l3": 33554432}, "isa": "avx2", "threads": 1,
     "problem": "gemm m=1 n=1000 k=512", "seconds": {"gemm_f32": 1.1e-05, "gemm_f32, block_rows=24": 1.2e-05}}

Of several lines for the same problem the last one counts.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tinycomp.errors import TinycompWarning, TuningError, WriteError, shown
from tinycomp.memory.reading import read_regular, reading
from tinycomp.memory.system import open_regular
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.processor import Machine, this_machine

VERSION = 1
"""The form of the lines; others are skipped."""
_SHOWN = 80


@dataclass(frozen=True)
class Entry:
    """One problem, measured on one machine.

    Attributes:
        machine: Where.
        isa: The instruction set in use.
        threads: How many shared the work.
        problem: The problem's key.
        seconds: The time of every candidate by its name.
    """

    machine: Machine
    isa: str
    threads: int
    problem: str
    seconds: Mapping[str, float]

    def to_json(self) -> str:
        """Return the line for the log, without its end."""
        about = {"version": VERSION, "machine": self.machine.to_dict(), "isa": self.isa, "threads": self.threads}
        return json.dumps({**about, "problem": self.problem, "seconds": dict(self.seconds)})

    @classmethod
    def from_json(cls, line: str) -> Entry:
        """Read one line.

        Raises:
            ValueError: If it is none; the message says what is wrong.
        """
        try:
            data = json.loads(line)
            if data["version"] != VERSION:
                raise ValueError(f"version {data['version']!r}, not {VERSION}")
            seconds = {str(name): float(value) for name, value in data["seconds"].items()}
            entry = cls(
                Machine.from_dict(data["machine"]),
                str(data["isa"]),
                int(data["threads"]),
                str(data["problem"]),
                seconds,
            )
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON ({error.msg})") from None
        except KeyError as error:
            raise ValueError(f"no {error}") from None
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        if not seconds or not all(0 < value < math.inf for value in seconds.values()):
            raise ValueError("a time that is not a positive number")
        return entry


@dataclass
class TuningLog:
    """Measurements, with the file that they are added to.

    Attributes:
        entries: In the order of the file.
        path: The file; None for a log in memory.
    """

    entries: list[Entry] = field(default_factory=list)
    path: Path | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TuningLog:
        """Read a log; damaged lines are skipped with a warning that names them.

        Raises:
            TuningError: If the file cannot be read, or has lines but none of a tuning log.
        """
        where = Path(path)
        with reading(TuningError, where, "a log as tinycomp tune MODEL --log FILE writes it"):
            lines = read_regular(where).decode(errors="replace").splitlines()
        entries = list(_read(lines, str(where)))
        if not entries and any(map(str.strip, lines)):
            raise TuningError(
                "not a tuning log", where=str(where), expected="lines as tinycomp.tune writes them",
                found=f"{len(lines)} line(s), none of them such a line",
            )  # fmt: skip
        return cls(entries, where)

    def add(self, entry: Entry) -> None:
        """Add a measurement, also to the file.

        Raises:
            WriteError: If the file cannot be written.
        """
        self.entries.append(entry)
        if self.path is None:
            return
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            with os.fdopen(open_regular(self.path, flags=flags), "a+b") as file:
                file.write(_end_of_last_line(file) + f"{entry.to_json()}\n".encode())
        except OSError as error:
            raise WriteError(
                f"the tuning log cannot be written: {error.strerror}", where=str(self.path),
                hint="Check the folder and its permissions, or name another file.",
            ) from error  # fmt: skip

    def measured(self, machine: Machine, isa: str, threads: int) -> dict[str, Mapping[str, float]]:
        """Return what was measured in these circumstances: seconds by candidate, by problem."""
        here = (machine, isa, threads)
        return {e.problem: e.seconds for e in self.entries if (e.machine, e.isa, e.threads) == here}


Tuning = str | os.PathLike[str] | TuningLog
"""A log, or its path."""


def applicable(tuning: Tuning, isa: str, threads: int) -> dict[str, Mapping[str, float]]:
    """Return what a log says for this machine; what it says for others is ignored, with a warning.

    Raises:
        TuningError: If it cannot be read.
    """
    if not isinstance(tuning, (str, os.PathLike, TuningLog)):
        raise TuningError(
            "not a tuning log", where="tuning", expected="a tinycomp.targets.c.tuning.log.TuningLog or its path",
            found=shown(tuning), hint="tinycomp.tune(model).log is one.",
        )  # fmt: skip
    log = tuning if isinstance(tuning, TuningLog) else TuningLog.read(tuning)
    machine = this_machine()
    measured = log.measured(machine, isa, threads)
    where = str(log.path or "the tuning log")
    strangers = [e for e in log.entries if e.machine != machine]
    if strangers:
        found = ", ".join(sorted({str(e.machine) for e in strangers}))
        _warn(
            f"{where}: ignored {len(strangers)} of {len(log.entries)} measurements, which are of another machine; "
            f"expected {machine}; found {found}. Tune on this machine."
        )
    elif log.entries and not measured:
        found = ", ".join(sorted({f"{e.isa} with {e.threads} thread(s)" for e in log.entries}))
        _warn(
            f"{where}: nothing in it was measured as the model will run; expected {isa} with {threads} thread(s); "
            f"found {found}. Tune with the same threads."
        )
    return measured


def _read(lines: Iterable[str], where: str) -> Iterator[Entry]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield Entry.from_json(line)
        except ValueError as error:
            shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
            _warn(f"{where}, line {number}: skipped, it is damaged: {error}; found {shown}")


def _end_of_last_line(file: Any) -> bytes:
    """Return the line break that an interrupted run has not written any more."""
    if file.tell() == 0:
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def _warn(text: str) -> None:
    warnings.warn(text, TinycompWarning, stacklevel=4)
