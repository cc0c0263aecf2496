"""The rules of Simplify, grouped by theme; each file ends in its tuple ``RULES``."""
