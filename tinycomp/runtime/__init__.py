"""Run time: programs, the C runtime that executes them, and compiled modules."""
