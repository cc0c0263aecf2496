"""Targets: what an accelerator, a library or a kernel set can run, described in one file.

A :class:`Target` is a plain object. Passes take targets as arguments; there is no registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinycomp.lazy import from_modules
from tinycomp.target.decline import Decline
from tinycomp.target.lookup import find, find_all, names
from tinycomp.target.placement import Placement
from tinycomp.target.policy import Policy, TransferCost
from tinycomp.target.target import OpRule, Target, Tolerance, Verdict, answer_reason

if TYPE_CHECKING:
    from tinycomp.quantized.layer import QuantizationParameters, QuantizedLayer
    from tinycomp.target.cost import HOST_COST, Cost, Link, fused_roofline, roofline
    from tinycomp.target.quantization import QuantizationCheck, QuantizationRule, Violation, violations
    from tinycomp.target.region import Region, Split, split
else:
    __getattr__ = from_modules(
        __name__,
        dict.fromkeys(("HOST_COST", "Cost", "Link", "fused_roofline", "roofline"), ".cost")
        | dict.fromkeys(("QuantizationParameters", "QuantizedLayer"), "tinycomp.quantized.layer")
        | dict.fromkeys(("QuantizationCheck", "QuantizationRule", "Violation", "violations"), ".quantization")
        | dict.fromkeys(("Region", "Split", "split"), ".region"),
    )

__all__ = [
    "HOST_COST",
    "Cost",
    "Decline",
    "Link",
    "OpRule",
    "Placement",
    "Policy",
    "QuantizationCheck",
    "QuantizationParameters",
    "QuantizationRule",
    "QuantizedLayer",
    "Region",
    "Split",
    "Target",
    "Tolerance",
    "TransferCost",
    "Verdict",
    "Violation",
    "answer_reason",
    "find",
    "find_all",
    "fused_roofline",
    "names",
    "roofline",
    "split",
    "violations",
]
