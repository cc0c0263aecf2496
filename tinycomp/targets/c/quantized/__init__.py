"""Quantised layers and operators on the C target."""
