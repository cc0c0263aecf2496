"""Quantised layers in the QuantizeLinear/DequantizeLinear form, for any target: patterns, checks, reading.

``docs/quantization.md`` defines what a layer computes.
"""
