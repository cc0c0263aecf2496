"""Regions on devices, most of them simulated."""
