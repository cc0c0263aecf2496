"""The harnesses by name. Each is imported only where it is run: some need libraries that others do not."""

from __future__ import annotations

import importlib

from tests.fuzz.harness import Harness

NAMES = (
    "importer",
    "sizes",
    "inference",
    "declarations",
    "partitioner",
    "api",
    "commands",
    "artifact",
    "meaning",
    "differential",
    "quantized",
    "exported",
    "operators",
    "tosa",
    "framing",
    "scoring",
)


def find(name: str) -> Harness:
    """Return a harness, which stands as ``HARNESS`` in the file of its name."""
    harness = importlib.import_module(f"tests.fuzz.{name}").HARNESS
    assert isinstance(harness, Harness)
    assert harness.name == name
    return harness
