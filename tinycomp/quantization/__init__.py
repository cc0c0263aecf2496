"""Quantise: turn a float model into an int8 one that any runtime for ONNX can run."""

from tinycomp.quantization.layers import Layer
from tinycomp.quantization.noise import LayerNoise, NoiseTable, noise
from tinycomp.quantization.options import METHODS
from tinycomp.quantization.quantizer import quantize

__all__ = ["METHODS", "Layer", "LayerNoise", "NoiseTable", "noise", "quantize"]
