"""Models of the corpus, quantised by :func:`tinycomp.quantize` when first asked for, in files beside the float ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

import tinycomp
from benchmarks import corpus

SUFFIX = "-int8"
"""Behind the name of an architecture: the same, quantised."""
SAMPLES = 8
"""Random inputs of the calibration."""


def path(name: str) -> Path:
    """Return the file of a quantised architecture: uint8 activations, weights of 7 bits per channel, ranges by min-max.

    With 8 bits, onnxruntime's sums saturate on processors without VNNI, and its results could not be compared.
    """
    model = corpus.path(name)
    file = model.with_name(f"{model.stem}{SUFFIX}-{_key()}.onnx")
    if not file.exists():
        quantized = tinycomp.quantize(model, _samples(name), reduce_range=True)
        partial = file.with_suffix(".part")
        onnx.save(quantized, partial)
        partial.replace(file)
    return file


def _samples(name: str) -> Iterator[dict[str, NDArray[np.generic]]]:
    return (corpus.feeds(name, seed) for seed in range(1, 1 + SAMPLES))


def _key() -> str:
    """What the result depends on beside the float model."""
    package = Path(tinycomp.__file__).parent / "quantization"
    text = b"".join(file.read_bytes() for file in sorted(package.glob("*.py")))
    return hashlib.sha256(text).hexdigest()[:12]
