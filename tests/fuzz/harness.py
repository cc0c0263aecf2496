"""What a harness is, and what one of its cases may say."""

from __future__ import annotations

import random
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


class WrongError(AssertionError):
    """A case has shown a fault; the text says what was expected and found."""


@dataclass(frozen=True)
class Harness:
    """One kind of cases, each made from a number alone, so that any of them can be made again.

    Attributes:
        name: As on the command line.
        check: Runs the case of a seed and returns what it was, for statistics. A :class:`WrongError` is a finding, and
            so is every other exception, an end of the process, and taking too long.
        save: Writes the case of a seed to a folder, in files whose names begin with the text given.
        seconds: What a case may take on a busy machine; more is a hang.
        memory: Bytes of address space that a process may take beyond what it has when it is ready.
    """

    name: str
    check: Callable[[int], Counter[str]]
    save: Callable[[int, Path, str], None]
    seconds: float = 60.0
    memory: int = 2 << 30


@dataclass(frozen=True)
class Damage:
    """Cases that are files: valid ones with something wrong in them.

    Attributes:
        name: As on the command line.
        suffix: Of the files.
        base: Returns a valid file.
        mutate: Returns a file that differs a little.
        run: Reads a file; what it does with it may depend on the random numbers. Returns what came of it.
    """

    name: str
    suffix: str
    base: Callable[[random.Random], bytes]
    mutate: Callable[[random.Random, bytes], bytes]
    run: Callable[[bytes, random.Random], Counter[str]]

    def case(self, seed: int) -> tuple[bytes, random.Random]:
        """Return the file of a seed, and the random numbers to run it with."""
        rng, _ = generators(self.name, seed)
        return self.mutate(rng, self.base(rng)), rng

    def check(self, seed: int) -> Counter[str]:
        """Run the file of a seed."""
        return self.run(*self.case(seed))

    def save(self, seed: int, folder: Path, stem: str) -> None:
        """Write the file of a seed."""
        (folder / f"{stem}{self.suffix}").write_bytes(self.case(seed)[0])

    def harness(self, seconds: float = Harness.seconds) -> Harness:
        """Return the harness that makes its cases in this way, of which each may take some seconds."""
        return Harness(self.name, self.check, self.save, seconds)


def limit_memory(further: int) -> None:
    """Let the address space of this process grow by ``further`` bytes at most."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + further
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def generators(name: str, seed: int) -> tuple[random.Random, np.random.Generator]:
    """Return the random numbers of a case: for choices, and for arrays."""
    choices = random.Random(f"{name}:{seed}")
    return choices, np.random.default_rng(choices.getrandbits(64))
