"""Quantised layers in the QuantizeLinear/DequantizeLinear form, for any target: patterns, checks, reading.

``docs/quantised-layers.md`` defines what a layer computes.
"""
