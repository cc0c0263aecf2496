"""Models of the corpus, quantised when first asked for, in files beside the float ones.

They are quantised by :func:`tinycomp.quantize`, or for a run's own ranges by onnxruntime's ``quantize_dynamic``.
"""

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
DYNAMIC = "-dynamic"
"""The same of what ``quantize_dynamic`` makes."""
SAMPLES = 8
"""Random inputs of the calibration."""


def path(name: str) -> Path:
    """Return the file of a quantised architecture, whose name ends with one of the suffixes.

    Activations are uint8, weights have 7 bits: with 8, onnxruntime's sums saturate on processors without VNNI, and its
    results could not be compared. Without ``-dynamic``, weights have a scale per channel, and ranges are by min-max.
    """
    if name.endswith(DYNAMIC):
        return _dynamic(corpus.path(name.removesuffix(DYNAMIC)))
    name = name.removesuffix(SUFFIX)
    model = corpus.path(name)
    file = model.with_name(f"{model.stem}{SUFFIX}-{_key()}.onnx")
    if not file.exists():
        quantized = tinycomp.quantize(model, _samples(name), reduce_range=True)
        partial = file.with_suffix(".part")
        onnx.save(quantized, partial)
        partial.replace(file)
    return file


def _dynamic(model: Path) -> Path:
    """Quantise every operator that can be; onnxruntime has no convolution of signed weights."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    file = model.with_name(f"{model.stem}{DYNAMIC}.onnx")
    if not file.exists():
        partial = file.with_suffix(".part")
        quantize_dynamic(model, partial, reduce_range=True, weight_type=QuantType.QUInt8)
        partial.replace(file)
    return file


def _samples(name: str) -> Iterator[dict[str, NDArray[np.generic]]]:
    return (corpus.feeds(name, seed) for seed in range(1, 1 + SAMPLES))


def _key() -> str:
    """What the result depends on beside the float model."""
    package = Path(tinycomp.__file__).parent / "quantization"
    text = b"".join(file.read_bytes() for file in sorted(package.glob("*.py")))
    return hashlib.sha256(text).hexdigest()[:12]
