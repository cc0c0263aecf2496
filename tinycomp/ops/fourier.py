"""STFT: the transforms of the frames of a signal. DFT runs by its definition, or in ``onnx.reference``."""

from __future__ import annotations

import numpy as np

from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, scalar_int
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.symbolic import maximum

FAMILY = OpFamily("fourier")


@FAMILY.op("STFT")
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
    """
    step = scalar_int(frame_step)
    signal = signal[..., None] if signal.ndim == 2 else signal
    length = scalar_int(frame_length) if frame_length is not None else len(window)  # type: ignore[arg-type]
    whole = signal[..., 0] + 1j * signal[..., 1] if signal.shape[2] == 2 else signal[..., 0]
    starts = np.arange(0, signal.shape[1] - length + 1, step)
    reserve((len(signal), len(starts), length), 16, "STFT")
    frames = whole[:, starts[:, None] + np.arange(length)]
    bins = np.fft.fft(frames if window is None else frames * window)[..., : length // 2 + 1 if onesided else length]
    return np.stack([bins.real, bins.imag], -1).astype(signal.dtype)


@FAMILY.infer("STFT", sizing=(1, 3))
def _transforms(facts: Facts) -> Results:
    signal = facts.shape(0)
    facts.require(signal is None or len(signal) in (2, 3), "the signal has other dimensions",
                  expected="[batch, length, 1 or 2], or [batch, length] of reals", found=facts.shown(0))  # fmt: skip
    batch, samples, parts = (None, None, None) if signal is None else (*signal, 1)[:3]
    if parts is not None:
        facts.demand((parts - 1) * (parts - 2), f"the signal has {parts} parts, which are neither 1 nor 2")
    for index, what in ((1, "frame_step"), (3, "frame_length")):
        facts.require_scalar(index, what)
    step, length = ((facts.elements(index) or (None,))[0] for index in (1, 3))
    facts.require(facts.has(2) or facts.has(3), "the frames have no length", expected="a window or frame_length")
    if facts.has(2):
        length = facts.require_equal(facts.dims(2, 1)[0], length, "the window does not fit the frames")
    facts.require_at_least(step, 1, "frame_step is out of range")
    facts.require_at_least(length, 1, "frames are empty")
    bins = length if length is None or not facts.attr("onesided", 1) else length // 2 + 1
    frames = None
    if samples is not None and length is not None:
        facts.require_at_least(samples - length, 0, "frames are longer than the signal")
        frames = None if step is None else maximum(samples - length, 0) // step + 1
    return [facts.tensor(facts.dtype(0), (batch, frames, bins, 2))]
