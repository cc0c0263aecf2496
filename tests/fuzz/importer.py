"""Damaged ONNX models: whatever they hold, they are refused with an error of tinycomp's own, or compile and run."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import onnx
from google.protobuf.message import DecodeError

import tinycomp
from tests.fuzz.corpus import small_models, whole_models
from tests.fuzz.harness import Damage
from tests.fuzz.mutation import mutate_bytes, mutate_message
from tinycomp.checking import random_feeds
from tinycomp.errors import TinycompError
from tinycomp.memory.budget import limited

MEMORY = 1 << 28
"""Bytes that a run may take; it is far less than what the process may."""


def base(rng: random.Random) -> bytes:
    """Return a valid model, most often one of few nodes."""
    return rng.choice(whole_models() if rng.random() < 0.03 else small_models())


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes of a model with something wrong in it, or with something unusual that may be right."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return mutate_bytes(rng, data)
    if rng.random() < 0.25:
        return mutate_bytes(rng, data)
    donor = onnx.ModelProto.FromString(data if rng.random() < 0.6 else rng.choice(small_models()))
    try:
        mutate_message(rng, model, donor)
        return model.SerializeToString()
    except UnicodeDecodeError:  # a text of the message is none
        return mutate_bytes(rng, data)


def run(data: bytes, rng: random.Random) -> Counter[str]:
    """Compile and run a model of any kind."""
    try:
        graph = tinycomp.from_onnx(data)
    except TinycompError:
        return Counter(refused=1)
    try:
        module = tinycomp.compile(graph, rng.choice(("c", "host")), threads=1, memory_limit=MEMORY)
        with np.errstate(all="ignore"), limited(memory=MEMORY):
            module.run(random_feeds(module.inputs, rng.getrandbits(32)), timeout=5.0)
    except TinycompError:
        return Counter(imported=1)
    return Counter(run=1)


DAMAGE = Damage("importer", ".onnx", base, mutate, run)
HARNESS = DAMAGE.harness()
