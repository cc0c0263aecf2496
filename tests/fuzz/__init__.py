"""Fuzzing: random and broken inputs for every part that takes any. Run as ``python -m tests.fuzz --minutes N``."""
