"""The simulated device. It knows nothing of tinycomp; for a real one, this is where the vendor's library is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Job = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Dense:
    """A matrix product with bias and, maybe, Relu."""

    weight: np.ndarray
    bias: np.ndarray
    relu: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the layer's result, ``[rows, outputs]``."""
        result = x @ self.weight + self.bias
        return np.maximum(result, np.float32(0)) if self.relu else result


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sum of two arrays of one shape."""
    return a + b


@dataclass(frozen=True)
class Step:
    """One job, and the numbers of the registers that it reads and writes."""

    job: Job
    reads: Sequence[int]
    writes: int


@dataclass(frozen=True)
class Program:
    """Jobs in order. Every call has registers of its own, so that threads may share a program."""

    constants: Sequence[np.ndarray]
    steps: Sequence[Step]
    outputs: Sequence[int]

    def __call__(self, *operands: np.ndarray) -> list[np.ndarray]:
        """Run the program and return its results."""
        registers = dict(enumerate([*operands, *self.constants]))
        for step in self.steps:
            registers[step.writes] = step.job(*(registers[number] for number in step.reads))
        return [registers[number] for number in self.outputs]
