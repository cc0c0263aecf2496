"""Damaged ONNX models: whatever they hold, they are refused with an error of tinycomp's own, or compile and run."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import onnx

import tinycomp
from tests.fuzz.corpus import small_models, whole_models
from tests.fuzz.harness import Harness, generators
from tests.fuzz.mutation import mutate_bytes, mutate_message
from tinycomp.checking import random_feeds
from tinycomp.errors import TinycompError

MEMORY = 1 << 28
"""Bytes that a run may take; it is far less than what the process may."""


def damaged(rng: random.Random) -> bytes:
    """Return the bytes of a model with something wrong in it, or with something unusual that may be right."""
    data = rng.choice(whole_models() if rng.random() < 0.03 else small_models())
    if rng.random() < 0.25:
        return mutate_bytes(rng, data)
    model = onnx.ModelProto.FromString(data)
    donor = model if rng.random() < 0.6 else onnx.ModelProto.FromString(rng.choice(small_models()))
    frozen = onnx.ModelProto()
    frozen.CopyFrom(donor)
    mutate_message(rng, model, frozen)
    return model.SerializeToString()


def check_model(data: bytes, rng: random.Random) -> Counter[str]:
    """Compile and run a model of any kind.

    Returns:
        How far it came.
    """
    try:
        graph = tinycomp.from_onnx(data)
    except TinycompError:
        return Counter(refused=1)
    try:
        module = tinycomp.compile(graph, rng.choice(("c", "host")), threads=1, memory_limit=MEMORY)
        feeds = random_feeds(module.inputs, rng.getrandbits(32))
        module.run(feeds, timeout=5.0)
    except TinycompError:
        return Counter(imported=1)
    return Counter(run=1)


def _check(seed: int) -> Counter[str]:
    rng, _ = generators("importer", seed)
    with np.errstate(all="ignore"):
        return check_model(damaged(rng), rng)


def _save(seed: int, folder: Path, stem: str) -> None:
    rng, _ = generators("importer", seed)
    (folder / f"{stem}.onnx").write_bytes(damaged(rng))


HARNESS = Harness("importer", _check, _save)
