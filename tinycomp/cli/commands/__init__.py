"""The commands, one file each. Only the one that is asked for is imported, so that help and doctor need little."""

from __future__ import annotations

import importlib
from types import MappingProxyType

from tinycomp.cli.session import Command

SUMMARIES = MappingProxyType(
    {
        "demo": "compile the digits classifier that comes with tinycomp and run it; needs no download",
        "compile": "compile a model and save the result",
        "export-c": "turn a model into a C project without Python, also for microcontrollers",
        "quantize": "turn a float model into an int8 one, calibrated with data of yours, or its weights into int4",
        "tune": "measure a model's kernels on this machine, for -t c:tuning=FILE",
        "run": "run a model once and show its results",
        "score": "run a model on the rows of Parquet files, in several processes or on a Ray cluster",
        "serve": "answer requests over HTTP, in KServe's open inference protocol",
        "generate": "continue a text with a language model, token by token",
        "bench": "measure how long a run takes, also next to onnxruntime",
        "report": "show what runs where, and why",
        "verify": "compare a compiled model with onnxruntime or with the numpy kernels",
        "opt": "run chosen passes on a graph and write it as text or ONNX",
        "targets": "list the targets that can be found, and what they take",
        "cache": "list or remove what targets have had compiled on this machine",
        "doctor": "check the installation and show what this machine offers",
    }
)
"""Every command with its one-line description, in the order of the help."""


def load(name: str) -> Command:
    """Return the command called ``name``."""
    command: Command = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").COMMAND
    return command
