"""Choose the next token from logits: the likeliest, or one at random as likely as the model says."""

from __future__ import annotations

import math

import numpy as np

from tinycomp.arguments import checked_fields
from tinycomp.errors import GenerationError, shown
from tinycomp.records import dataclass, field


@checked_fields(GenerationError)
@dataclass(frozen=True)
class Sampler:
    """How to choose a token.

    The logits are divided by the temperature, then all but the ``top_k`` likeliest tokens are left out, then all but
    the fewest that together have at least the probability ``top_p`` (nucleus sampling, Holtzman et al. 2020).

    Attributes:
        temperature: 0 for the likeliest token, the first of several; above 1 for more variety.
        top_k: How many tokens to choose from; None for all.
        top_p: Their least probability together, above 0 and up to 1; None for 1.
        seed: Two samplers with one seed choose alike; None for a random one.

    Raises:
        GenerationError: If an option has a value that it cannot have.

    Example:
        >>> import numpy as np
        >>> sampler = Sampler(temperature=1.0, top_k=2, seed=0)
        >>> sorted({sampler(np.float32([0, 3, 1, 3])) for _ in range(20)})
        [1, 3]
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    _random: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise _wrong("temperature", "a number from 0 on", self.temperature)
        if self.top_k is not None and self.top_k < 1:
            raise _wrong("top_k", "a whole number from 1 on, or None", self.top_k)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise _wrong("top_p", "a number above 0, up to 1, or None", self.top_p)
        if self.seed is not None and self.seed < 0:
            raise _wrong("seed", "a whole number from 0 on, or None", self.seed)
        object.__setattr__(self, "_random", np.random.default_rng(self.seed))

    def __call__(self, logits: np.ndarray) -> int:
        """Return a token.

        Args:
            logits: ``[vocabulary]``; minus infinity for what must not be chosen.

        Raises:
            GenerationError: If one is NaN or plus infinity, or none is finite; or if they are no such array.
        """
        if not isinstance(logits, np.ndarray) or logits.ndim != 1 or not logits.size or logits.dtype.kind in "OSUTcMm":
            raise GenerationError(
                "not the logits of a token", where="logits", expected="an array [vocabulary] of numbers",
                found=f"{logits.dtype}{list(logits.shape)}" if isinstance(logits, np.ndarray) else shown(logits),
            )  # fmt: skip
        if not np.isfinite(highest := np.max(logits)):
            wrong = int(np.isnan(logits).sum())
            raise GenerationError(
                "the logits are not numbers", where="logits", expected="finite numbers",
                found=f"{wrong} of {logits.size} NaN" if wrong else f"{highest} as the highest",
                hint="Compare the model with tinycomp verify; float16 may be too narrow for it.",
            )  # fmt: skip
        if self.temperature == 0:
            return int(np.argmax(logits))
        tokens, shares = self.distribution(logits)
        place = np.searchsorted(np.cumsum(shares), self._random.random(), side="right")
        return int(tokens[min(int(place), tokens.size - 1)])

    def distribution(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens to choose from, the likeliest first, and their probabilities in float64."""
        order = np.argsort(-logits, kind="stable")[: self.top_k]
        with np.errstate(over="ignore"):
            scaled = (logits[order].astype(np.float64) - float(logits[order[0]])) / self.temperature
        weights = np.exp(scaled)
        shares = weights / weights.sum()
        if self.top_p is not None:
            kept = int(np.searchsorted(np.cumsum(shares), self.top_p)) + 1
            order, shares = order[:kept], shares[:kept] / shares[:kept].sum()
        return order, shares


def _wrong(name: str, expected: str, value: object) -> GenerationError:
    return GenerationError(f"{name} cannot have this value", where=name, expected=expected, found=shown(value))
