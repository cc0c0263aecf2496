"""The options of the C target, and the settings that its code generator derives from them for one plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from tinycomp.quantized import Rounding
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.processor import default_isa
from tinycomp.target import Tolerance

Winograd = bool | Literal["auto"]
"""Whether convolutions may be computed by Winograd's algorithm: never, wherever possible, or where it pays."""

Memory = Literal["fast", "least"] | int
"""The aim of memory planning: speed, as few bytes as possible, or at most a number of bytes."""

Precision = Literal["f32", "bf16"]
"""What the factors of products and convolutions may be rounded to; sums are float32."""

Measured = Mapping[str, Mapping[str, float]]
"""Seconds by candidate, by problem: the entries of a tuning log for this machine, instruction set and thread count."""

EXTRA_WEIGHT_BYTES = 256 << 20
"""Bytes that the packed weights of one plan may take beyond those of the most compact algorithms."""


@dataclass(frozen=True)
class COptions:
    """Choose how the C target computes.

    Attributes:
        winograd: Whether 3x3 convolutions may be computed by Winograd's algorithm: never, wherever it is possible, or
            where it is expected to pay and the weights do not grow by more than 256 MB together.
        requantize: How the integer sums of quantised layers become 8-bit numbers: by the model's scales in float32, as
            ONNX defines it, or as TFLite does in integers.
        memory: Whether the memory of values in between is planned for speed, or for as few bytes at a time as possible:
            calls are ordered for that, computed in strips and in place. A number of bytes asks for no more of that
            than it takes to be within them. Results are the same to the bit. Where sizes are not numbers, it changes
            nothing.
        precision: What the factors of products and convolutions with constant weights may be rounded to: ``bf16`` lets
            them be bfloat16 where the processor multiplies pairs of these in one instruction, and that is expected to
            be faster. ``compile(precision="bf16")`` and models in bfloat16 choose it.
        tuning: A log that tune wrote, or its path: what it has measured on this machine decides which kernels and
            blocks are used; what it has not is estimated.
    """

    winograd: Winograd = field(default="auto", metadata={"words": {"never": False, "auto": "auto", "always": True}})
    requantize: Rounding = "float"
    memory: Memory = field(default="fast", metadata={"form": "fast|least|BYTES"})
    precision: Precision = "f32"
    tuning: Any = field(default=None, metadata={"form": "FILE", "saved": False, "file": True})

    @property
    def rounds(self) -> bool:
        """Whether factors may be rounded to bfloat16."""
        return self.precision == "bf16"

    @property
    def tolerance(self) -> Tolerance | None:
        """The tolerance of comparisons with the numpy kernels; None for the target's default."""
        return Tolerance(rtol=0.05, atol=1e-3, steps=0) if self.rounds else None

    def for_plan(self, threads: int) -> Settings:
        """Return the settings for a plan that runs on this many threads.

        Raises:
            TuningError: If the tuning log cannot be read.
        """
        measured: Measured = {}
        if self.tuning is not None:
            from tinycomp.targets.c.tuning.log import applicable  # imported here: few have a log

            measured = applicable(self.tuning, default_isa(), threads)
        return Settings(
            self.winograd, self.requantize, self.memory, self.precision, self.tuning, measured, threads=threads
        )


@dataclass
class Allowance:
    """Count the memory that may still be spent on faster forms of the weights; regions of one plan spend it together.

    Attributes:
        bytes: What is left.
    """

    bytes: int = EXTRA_WEIGHT_BYTES

    def take(self, wanted: int) -> bool:
        """Spend ``wanted`` bytes if they are left; say whether they were."""
        if wanted > self.bytes:
            return False
        self.bytes -= wanted
        return True


@dataclass(frozen=True)
class Settings(COptions):
    """Say how the regions of one plan are to be computed.

    Attributes:
        measured: What the tuning log says; what it does not hold is estimated.
        allowance: What ``winograd="auto"`` may spend on transformed weights.
        threads: How many share the work. Results do not depend on it, to the bit; what is kept in the caches may.
    """

    measured: Measured = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)
    threads: int = field(default=1, metadata={"saved": False})

    def for_plan(self, threads: int) -> Settings:
        """Return the same settings with a whole allowance, for a plan of its own on as many threads."""
        return dataclasses.replace(self, allowance=Allowance(), threads=threads)
