"""Random valid models by onnxruntime and by tinycomp in several ways; all results have to agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from tests.fuzz.conditioning import explained
from tests.fuzz.harness import Harness, WrongError
from tests.fuzz.models import random_model
from tests.fuzz.peers import PEERS, RefusedError, Results, by_onnxruntime, differences
from tests.fuzz.shrink import smallest


def check_model(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Counter[str]:
    """Run a model by all peers.

    A model that onnxruntime does not run is compared among tinycomp's own ways.

    Returns:
        What was seen.

    Raises:
        WrongError: If results differ by more than roundings explain.
    """
    facts = Counter(nodes=len(model.graph.node))
    by_peer: dict[str, Results] = {}
    with np.errstate(all="ignore"):
        for peer in PEERS:
            by_peer[peer.name] = peer.run(model, feeds)
    try:
        right, source = by_onnxruntime(model, feeds), "onnxruntime"
    except RefusedError:
        facts["without_onnxruntime"] = 1
        source = PEERS[-1].name
        right = by_peer.pop(source)
    for name, found in by_peer.items():
        wrong = differences(found, right)
        if wrong and explained(model, feeds, found, right, list(wrong)):
            facts["ill_conditioned"] = 1
        elif wrong:
            raise WrongError(f"{name} differs from {source}: {wrong}; opset {model.opset_import[0].version}")
    return facts


def _check(seed: int) -> Counter[str]:
    sample = random_model(seed)
    return check_model(sample.model, sample.feeds)


def fails(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> bool:
    """Whether a model shows a fault of any kind."""
    try:
        check_model(model, feeds)
    except Exception:
        return True
    return False


def _save(seed: int, folder: Path, stem: str) -> None:
    """Write the model and its inputs, and the smallest part of it that fails."""
    sample = random_model(seed)
    _write(sample.model, sample.feeds, folder / f"{stem}.onnx")
    model, feeds = smallest(sample.model, sample.feeds, fails)
    _write(model, feeds, folder / f"{stem}-small.onnx")
    (folder / f"{stem}-small.txt").write_text(onnx.printer.to_text(model), encoding="utf-8")


def _write(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], path: Path) -> None:
    onnx.save(model, path)
    np.savez(path.with_suffix(".npz"), **feeds)


HARNESS = Harness("differential", _check, _save)
