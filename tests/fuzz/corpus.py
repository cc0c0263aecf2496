"""Valid models to start from: those of onnx's own tests and those that tinycomp ships.

The node tests are made by onnx in a process of its own, which takes seconds; they are kept in a file of the temporary
folder, for all workers. Short runs leave them out.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import onnx
import onnx.backend.test

from tests.models import light_models, shipped_models

NODES = "TINYCOMP_FUZZ_NODES"
"""An environment variable: 0 leaves the node tests out."""
_MAKE = """
import sys, warnings, zipfile
warnings.simplefilter("ignore")
from onnx.backend.test.loader import load_model_tests
with zipfile.ZipFile(sys.argv[1], "w") as file:
    for case in load_model_tests(kind="node"):
        if case.model is not None and case.model.ByteSize() < 1 << 16:
            file.writestr(f"{case.name}.onnx", case.model.SerializeToString())
"""


@functools.cache
def small_models() -> tuple[bytes, ...]:
    """Return models of few nodes: onnx's tests of operators, and those that came out of PyTorch."""
    data = Path(onnx.backend.test.__file__).parent / "data"
    paths = [p for kind in ("simple", "pytorch-operator", "pytorch-converted") for p in (data / kind).rglob("*.onnx")]
    found = [p.read_bytes() for p in sorted(paths) if p.stat().st_size < 1 << 18]
    return (*found, *(_node_models() if os.environ.get(NODES, "1") != "0" else ()))


@functools.cache
def whole_models() -> tuple[bytes, ...]:
    """Return networks of up to some hundred nodes."""
    return tuple(p.read_bytes() for p in [*shipped_models(), *light_models()])


def _node_models() -> list[bytes]:
    path = Path(tempfile.gettempdir()) / f"tinycomp-fuzz-nodes-{onnx.__version__}.zip"
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}")
        subprocess.run([sys.executable, "-c", _MAKE, str(partial)], check=True, capture_output=True)
        partial.replace(path)
    with zipfile.ZipFile(path) as file:
        return [file.read(name) for name in sorted(file.namelist())]
