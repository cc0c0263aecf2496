"""A float model quantised to int8 in one call, and what that changes: accuracy, size, time.

Half of the digits that ship with tinycomp calibrate, the other half judge. A second model keeps its most sensitive
layers in float.
"""

from __future__ import annotations

import time

import numpy as np

import tinycomp
from tinycomp.data import digits, digits_model
from tinycomp.quantization import noise

RUNS = 200


def batches(images, size=20):
    """Return the images in batches: calibration runs one after another, and keeps none."""
    return [images[start : start + size] for start in range(0, len(images), size)]


def seconds(module, image):
    """Return the least time of a run on one image."""
    classify, times = module.bind(image), []
    for _ in range(RUNS):
        started = time.perf_counter()
        classify()
        times.append(time.perf_counter() - started)
    return min(times)


def main():
    """Quantise, compare."""
    images, labels = digits()
    seen, unseen, answers = images[:100], images[100:], labels[100:]
    table = noise(digits_model(), batches(seen), progress=False)
    print(table)
    kept = table.suggest(2)
    models = {
        "float32": digits_model().read_bytes(),
        "int8": tinycomp.quantize(digits_model(), batches(seen), progress=False).SerializeToString(),
        "mixed": tinycomp.quantize(digits_model(), batches(seen), keep_float=kept, progress=False).SerializeToString(),
    }
    expected = tinycomp.compile(models["float32"])(unseen)
    for name, model in models.items():
        module = tinycomp.compile(model, shapes={"image": (1, 1, 8, 8)}, threads=1)
        found = np.concatenate([module(image[np.newaxis]) for image in unseen])
        right = (found.argmax(axis=1) == answers).mean()
        apart = np.abs(found - expected).max()
        microseconds = seconds(module, unseen[:1]) * 1e6
        print(f"{name:>8}: {right:.0%} right, {len(model):>7,} bytes, {microseconds:6.1f} µs, {apart:.3f} from float32")


if __name__ == "__main__":
    main()
