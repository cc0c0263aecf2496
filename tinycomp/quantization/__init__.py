"""Quantise: turn a float model into an int8 one that any runtime for ONNX can run, or its weights into int4."""

from tinycomp.quantization.accuracy import compare_layers
from tinycomp.quantization.check import violations
from tinycomp.quantization.layers import Layer
from tinycomp.quantization.noise import LayerNoise, NoiseTable, noise
from tinycomp.quantization.options import METHODS
from tinycomp.quantization.quantizer import quantize
from tinycomp.quantization.weight_only import WEIGHT_METHODS

__all__ = [
    "METHODS",
    "WEIGHT_METHODS",
    "Layer",
    "LayerNoise",
    "NoiseTable",
    "compare_layers",
    "noise",
    "quantize",
    "violations",
]
