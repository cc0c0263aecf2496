"""A small model and the images to try it on, shipped with the package.

The model is a 26,000-parameter convolutional network for the 8x8 handwritten digits of the UCI repository
(E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", 1998; CC BY 4.0): once in float32 with its
batch normalisations in place, and once quantised to int8 in the QuantizeLinear/DequantizeLinear form.
``benchmarks/train_digits.py`` in the source repository writes every file in this folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["digits", "digits_model"]


def digits_model(quantized: bool = False) -> Path:
    """Return where the digits classifier lies on disk.

    Both models take ``image``, float32 ``[N, 1, 8, 8]`` with ink from 0 (paper) to 1 (black), and give
    ``probabilities``, float32 ``[N, 10]``.

    Args:
        quantized: The int8 model instead of the float32 one.

    Returns:
        The path of an ONNX file.
    """
    return _file("digits_int8.onnx" if quantized else "digits_fp32.onnx")


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the 200 held-out digits, which neither training nor calibration has seen.

    Returns:
        Images, float32 ``[200, 1, 8, 8]`` from 0 to 1, and their labels, int64 ``[200]`` from 0 to 9.
    """
    with np.load(_file("digits.npz"), allow_pickle=False) as stored:
        images = stored["images"].astype(np.float32) / np.float32(16)
        return images[:, np.newaxis], stored["labels"].astype(np.int64)


def _file(name: str) -> Path:
    return Path(__file__).with_name(name)
