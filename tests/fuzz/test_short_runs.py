"""A few seeded cases of every harness, and what the machinery does about crashes, hangs and wrong results."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.fuzz import registry
from tests.fuzz.corpus import NODES
from tests.fuzz.harness import Harness, WrongError
from tests.fuzz.models import random_model
from tests.fuzz.session import ROOT, Outcome, Session

pytest.importorskip("onnxruntime", reason="it is what results are compared with")

from tests.fuzz import differential, quantized
from tests.fuzz.conditioning import explained
from tests.fuzz.peers import PEERS, Peer, Results, by_onnxruntime
from tests.fuzz.shrink import smallest

COUNTS = {
    "importer": 40,
    "inference": 200,
    "partitioner": 25,
    "api": 150,
    "commands": 20,
    "artifact": 40,
    "meaning": 250,
    "differential": 40,
    "quantized": 25,
    "operators": 40,
    "exported": 1,
    "framing": 1000,
}


@pytest.fixture(autouse=True)
def without_node_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making onnx's node tests takes longer than all the rest."""
    monkeypatch.setenv(NODES, "0")


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", COUNTS)
def test_short_run(name: str, tmp_path: Path) -> None:
    outcome = Session(registry.find(name), tmp_path).run(0, COUNTS[name])
    assert not outcome.findings, "\n".join(outcome.first.values())
    assert outcome.cases == COUNTS[name]


@pytest.mark.parametrize("name", ["importer", "artifact"])
def test_guided_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="it leads the run")
    command = [sys.executable, "-m", "tests.fuzz.guided", "--harness", name, "--minutes", "0.05"]
    run = subprocess.run([*command, "--folder", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert not list((tmp_path / "found").iterdir())
    assert int(re.search(r"number_of_executed_units: (\d+)", run.stderr)[1]) > 10


# The machinery ------------------------------------------------------------------------------------------------------


def _check(seed: int) -> Counter[str]:
    match seed:
        case 1:
            os.abort()
        case 2:
            time.sleep(600)
        case 3:
            raise WrongError("three is wrong")
        case 4:
            bytearray(1 << 40)
        case 5:
            print("what a library says")
    return Counter(good=1)


def _save(seed: int, folder: Path, stem: str) -> None:
    (folder / f"{stem}.bin").write_bytes(bytes([seed]))


HARNESS = Harness("test_short_runs", _check, _save, seconds=3.0)


@pytest.mark.long
def test_findings_are_told_apart_and_saved(tmp_path: Path) -> None:
    outcome: Outcome = Session(HARNESS, tmp_path, jobs=2).run(0, 8)
    kinds = {kind.partition(" at")[0].partition(":")[0]: number for kind, number in outcome.findings.items()}
    assert kinds == {"crash": 1, "hang": 1, "WrongError": 1, "MemoryError": 1}
    assert outcome.facts == {"cases": 8, "good": 4}
    assert {p.name for p in tmp_path.iterdir()} == {
        f"test_short_runs-{seed}.{kind}" for seed in (1, 2, 3, 4) for kind in ("txt", "bin")
    }
    crash = next(text for kind, text in outcome.first.items() if kind.startswith("crash"))
    assert "os.abort()" in crash or "Fatal Python error: Aborted" in crash
    assert "three is wrong" in (tmp_path / "test_short_runs-3.txt").read_text()


def test_a_seed_means_one_case() -> None:
    first, second = (random_model(7) for _ in range(2))
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert all((first.feeds[name] == second.feeds[name]).all() for name in first.feeds)


def test_a_wrong_result_is_noticed_and_its_node_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that adds a little to every Sigmoid: of many nodes, that one is what remains."""
    sample = next(
        s for s in map(random_model, range(1000)) if _holds(s.model, "Sigmoid") and len(s.model.graph.node) > 9
    )

    class Wrong(Peer):
        def run(self, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Results:
            results = super().run(model, feeds)
            wrong = np.float32(0.01 * _holds(model, "Sigmoid"))
            return {name: r + wrong if r.dtype == np.float32 else r for name, r in results.items()}

    monkeypatch.setattr(differential, "PEERS", (Wrong("wrong", lambda: {"target": "host"}), *PEERS[1:]))
    with pytest.raises(WrongError, match="wrong differs from onnxruntime"):
        differential.check_model(sample.model, sample.feeds)
    small, _ = smallest(sample.model, sample.feeds, differential.fails)
    assert [n.op_type for n in small.graph.node] == ["Sigmoid"]


def _holds(model: onnx.ModelProto, op: str) -> bool:
    return any(n.op_type == op for n in model.graph.node)


def test_magnified_roundings_are_told_from_faults() -> None:
    """(x + 1000) - 1000 loses digits that are multiplied back in; a difference of twice the result is still a fault."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x) => (float[4] y) <float c = {1000}> { a = Add(x, c) b = Sub(a, c) y = Mul(b, c) }
    """
    model, feeds = onnx.parser.parse_model(text), {"x": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}
    right = by_onnxruntime(model, feeds)
    assert explained(model, feeds, {"y": right["y"] + np.float32(0.1)}, right, ["y"])
    assert not explained(model, feeds, {"y": right["y"] * 2}, right, ["y"])


def test_a_tie_between_two_numbers_is_told_from_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 919 has a sum that float32 arithmetic puts on the other side of a tie; any other step is a fault."""
    model, feeds = quantized.case(919)
    assert quantized.check_model(model, feeds) == {"explained": 1, "ties": 1}

    def wrong(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Results:
        results = by_onnxruntime(model, feeds)
        last = results[model.graph.output[-1].name]
        last.flat[0] += 1 if last.flat[0] < 0 else -1
        return results

    monkeypatch.setattr(quantized, "by_onnxruntime", wrong)
    with pytest.raises(WrongError, match=r"onnxruntime is .* steps from the real number in quantizelinear"):
        quantized.check_model(model, feeds)
