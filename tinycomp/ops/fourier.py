"""STFT: the transforms of the frames of a signal. DFT runs by its definition, or in ``onnx.reference``."""

from __future__ import annotations

import numpy as np

from tinycomp import symbolic
from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.types import Dim, TensorType, Type, tensor
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, scalar_int
from tinycomp.ops.record import OpFamily

FAMILY = OpFamily("fourier")


def _stft_types(node: Node) -> list[Type]:
    """Count bins by the default of ``onesided``, which onnx's inference does not know."""
    signal, window = tensor(node.operand(0).type), node.optional_operand(2)
    step, given = node.const(1), node.const(3)
    if window is not None and window.shape is not None and len(window.shape) != 1:
        raise ModelError(
            "the window is not a vector", where=f"node {node.label} (STFT)", expected="[frame length]",
            found=str(window.type),
        )  # fmt: skip
    if signal.shape is not None and len(signal.shape) not in (2, 3):
        raise ModelError(
            "the signal has other dimensions", where=f"node {node.label} (STFT)",
            expected="[batch, length, 1 or 2], or [batch, length] of real numbers", found=str(signal),
        )  # fmt: skip
    length: Dim = None
    if given is not None:
        length = scalar_int(given)
    elif node.optional_operand(3) is None and window is not None and window.shape:
        length = window.shape[0]
    batch, samples = (None, None) if signal.shape is None else signal.shape[:2]
    frames: Dim = None
    bins: Dim = None
    if isinstance(length, int) and length > 0:
        bins = length // 2 + 1 if node.attrs.get("onesided", 1) else length
        if step is not None and scalar_int(step) > 0 and samples is not None:
            more = symbolic.maximum(symbolic.size(samples) - length, 0)  # a run refuses a signal that is too short
            frames = symbolic.dimension(more // scalar_int(step) + 1)
    return [TensorType(signal.dtype, (batch, frames, bins, 2))]


@FAMILY.op("STFT", type_rule=_stft_types)
def stft(
    signal: Array,
    frame_step: Array,
    window: Array | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """Return the transforms of all whole frames of signals [batch, length, 1 or 2] as [batch, frames, bins, 2].

    A signal [batch, length] is real: PyTorch's older exporter writes it so.

    Raises:
        ExecutionError: If frames have no length or no step, or are longer than the signal.
    """
    step = scalar_int(frame_step)
    signal = signal[..., None] if signal.ndim == 2 else signal
    length = len(window) if frame_length is None and window is not None else 0
    length = scalar_int(frame_length) if frame_length is not None else length
    if signal.ndim != 3 or signal.shape[2] not in (1, 2) or step < 1 or not 1 <= length <= signal.shape[1]:
        raise ExecutionError(
            "STFT: the frames do not fit the signal",
            expected="a signal [batch, length, 1 or 2], a step of 1 or more, and frames from 1 to its length",
            found=f"shape {list(signal.shape)}, step {step}, frames of {length}",
        )
    if window is not None and window.shape != (length,):
        raise ExecutionError(
            "STFT: the window does not fit the frames", expected=f"[{length}]", found=str(window.shape)
        )
    whole = signal[..., 0] + 1j * signal[..., 1] if signal.shape[2] == 2 else signal[..., 0]
    starts = np.arange(0, signal.shape[1] - length + 1, step)
    reserve((len(signal), len(starts), length), 16, "STFT")
    frames = whole[:, starts[:, None] + np.arange(length)]
    bins = np.fft.fft(frames if window is None else frames * window)[..., : length // 2 + 1 if onesided else length]
    return np.stack([bins.real, bins.imag], -1).astype(signal.dtype)
