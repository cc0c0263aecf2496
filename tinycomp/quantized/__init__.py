"""Quantised layers in the QuantizeLinear/DequantizeLinear form: which there are, their record, and what they compute.

``docs/quantised-layers.md`` defines what a layer computes. Targets, checks and the host read the same record.
"""

from typing import Literal

Rounding = Literal["float", "fixed_point"]
"""How sums become 8-bit numbers: by a float32 factor, as ONNX has it, or by TFLite's 31-bit multiplier and shift."""
