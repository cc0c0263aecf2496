"""Measuring the kernels of a model, and compiling with what was measured."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.targets.c.tuning.test_choices import SHAPES, network
from tinycomp.data import digits, digits_model
from tinycomp.driver.tune import Bench
from tinycomp.errors import ModelError, TinycompWarning, TuningError, WriteError
from tinycomp.runtime.native import processor
from tinycomp.runtime.native.processor import Machine, default_isa, this_machine
from tinycomp.targets.c.tuning.log import Entry, TuningLog, applicable


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured does not matter here."""
    monkeypatch.setattr("tinycomp.driver.tune.ROUNDS", 1)
    monkeypatch.setattr("tinycomp.driver.tune.PATIENCE", 0.0)


def favouring(log: TuningLog, algorithm: str) -> TuningLog:
    """A log that says that one algorithm, with the kernel's own blocks, is the fastest everywhere."""
    entries = []
    for entry in log.entries:
        seconds = {name: 1.0 if name == algorithm else 2.0 for name in entry.seconds}
        entries.append(dataclasses.replace(entry, seconds=seconds))
    return TuningLog(entries)


def algorithms(module: tinycomp.Module) -> list[str]:
    return [layer.algorithm for layer in module.report().layers]


@pytest.mark.usefixtures("quick")
def test_a_model_is_measured_once(tmp_path):
    path = tmp_path / "tuning.jsonl"
    tuned = tinycomp.tune(network(), path, shapes=SHAPES, threads=1)
    assert (tuned.problems, tuned.measured) == (3, 3)
    lines = path.read_text().splitlines()
    assert [json.loads(line)["problem"].split()[0] for line in lines] == ["conv2d", "conv2d", "gemm"]
    assert {"direct", "lines", "Winograd F(2x2, 3x3)", "Winograd F(4x4, 3x3)"} <= json.loads(lines[0])["seconds"].keys()
    again = tinycomp.tune(network(), path, shapes=SHAPES, threads=1)
    assert (again.problems, again.measured) == (3, 0)
    assert path.read_text().splitlines() == lines
    other = tinycomp.tune(network(), path, shapes={"x": (2, 16, 24, 20)}, threads=1)
    assert (other.problems, other.measured) == (3, 3)


@pytest.mark.usefixtures("quick")
def test_quantised_convolutions_are_measured_and_decided_too(tmp_path):
    model, shapes = digits_model(quantized=True), {"image": (1, 1, 8, 8)}
    tuned = tinycomp.tune(model, tmp_path / "log", shapes=shapes, threads=1)
    log = favouring(tuned.log, "Winograd F(2x2, 3x3)")
    modules = [
        tinycomp.compile(model, shapes=shapes, threads=1, options={"c": {"tuning": log}}),
        tinycomp.compile(model, options={"c": {"winograd": False}}),
    ]
    assert ["Winograd F(2x2, 3x3)" in algorithms(module) for module in modules] == [True, False]
    image = digits()[0][:1]
    np.testing.assert_array_equal(modules[0](image), modules[1](image))


@pytest.mark.usefixtures("quick")
def test_threads_are_measured_apart():
    log = TuningLog()
    for threads in (1, 2):
        assert tinycomp.tune(network(), log, shapes=SHAPES, threads=threads).measured == 3
    assert [entry.threads for entry in log.entries] == [1] * 3 + [2] * 3


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("algorithm", ["direct", "Winograd F(2x2, 3x3)", "Winograd F(4x4, 3x3)"])
def test_a_log_decides(algorithm, tmp_path):
    tuned = tinycomp.tune(network(), tmp_path / "log", shapes=SHAPES, threads=1)
    log = favouring(tuned.log, algorithm)
    module = tinycomp.compile(network(), shapes=SHAPES, threads=1, options={"c": {"tuning": log}})
    assert algorithms(module) == [algorithm] * 2
    x = np.random.default_rng(1).standard_normal(SHAPES["x"], np.float32)
    np.testing.assert_allclose(module(x), tinycomp.compile(network(), "host")(x), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("quick")
def test_a_log_decides_for_the_sizes_that_it_has_measured():
    """A model with open sizes is tuned for some of them; where it is built per set of sizes, those use what fits."""
    log = favouring(tinycomp.tune(network(), TuningLog(), shapes={"x": (4, 16, 24, 20)}, threads=1).log, "direct")
    module = tinycomp.compile(network(), threads=1, options={"c": {"tuning": log}}, specialize=True)
    for batch, expected in ((4, "direct"), (5, "Winograd")):
        profile = module.profile({"x": np.zeros((batch, 16, 24, 20), np.float32)}, runs=1)
        assert {row.algorithm.split()[0] for row in profile.rows if row.algorithm} == {expected}


@pytest.mark.usefixtures("quick")
def test_an_interrupted_run_keeps_what_it_has(tmp_path, monkeypatch):
    path, measure = tmp_path / "tuning.jsonl", Bench.measure

    def interrupted(self, problem):
        if problem.family == "gemm":
            raise KeyboardInterrupt
        return measure(self, problem)

    monkeypatch.setattr(Bench, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tinycomp.tune(network(), path, shapes=SHAPES, threads=1)
    assert len(path.read_text().splitlines()) == 2
    monkeypatch.setattr(Bench, "measure", measure)
    assert tinycomp.tune(network(), path, shapes=SHAPES, threads=1).measured == 1


def test_open_sizes_are_refused():
    with pytest.raises(
        TuningError, match=r'only known sizes .*"x": float32\[N, 16, 24, 20\].*\{\'x\': \(1, 16, 24, 20\)'
    ):
        tinycomp.tune(network(), TuningLog())


def test_a_model_that_is_none_is_refused():
    with pytest.raises(ModelError):
        tinycomp.tune(b"nonsense", TuningLog())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("shown", [True, False])
def test_the_bar_is_on_stderr_if_it_is_wanted(shown, capsys):
    tinycomp.tune(network(), TuningLog(), shapes=SHAPES, threads=1, progress=shown)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("3/3" in err) == shown


# The log ------------------------------------------------------------------------------------------------------------

HERE = this_machine()
ELSEWHERE = Machine("Abacus 3000", 1 << 10, 2 << 10, 3 << 10)


def entry(machine: Machine = HERE, problem: str = "gemm m=1 n=2 k=3", threads: int = 1, seconds: float = 0.5) -> Entry:
    return Entry(machine, default_isa(), threads, problem, {"gemm_f32": seconds, "gemm_f32, block_rows=24": 0.25})


def test_entries_survive_the_file(tmp_path):
    log = TuningLog(path=tmp_path / "log")
    entries = [entry(), entry(ELSEWHERE), entry(problem='odd " name\n'), entry(seconds=1e-300)]
    for each in entries:
        log.add(each)
    assert TuningLog.read(tmp_path / "log").entries == log.entries == entries


def test_the_last_line_of_a_problem_counts():
    assert applicable(TuningLog([entry(seconds=1.0), entry(seconds=2.0)]), default_isa(), 1) == {
        "gemm m=1 n=2 k=3": {"gemm_f32": 2.0, "gemm_f32, block_rows=24": 0.25}
    }


def test_another_machine_is_ignored_with_a_warning():
    log = TuningLog([entry(), entry(ELSEWHERE, "gemm m=4 n=5 k=6")])
    text = (
        r"ignored 1 of 2 measurements, .*another machine; expected .*; found Abacus 3000 \(1 KB L1, 2 KB L2, 3 KB L3\)"
    )
    with pytest.warns(TinycompWarning, match=text):
        measured = applicable(log, default_isa(), 1)
    assert list(measured) == ["gemm m=1 n=2 k=3"]


def test_other_threads_are_ignored_with_a_warning():
    text = rf"expected {default_isa()} with 3 thread\(s\); found {default_isa()} with 1 thread\(s\)"
    with pytest.warns(TinycompWarning, match=text):
        assert applicable(TuningLog([entry()]), default_isa(), 3) == {}


DAMAGED = {
    "cut short": (entry().to_json()[:50], "not JSON"),
    "no JSON": ("hello", "not JSON"),
    "a number": ("12", "TypeError"),
    "another version": (entry().to_json().replace('"version": 1', '"version": 9'), "version 9, not 1"),
    "nothing measured": ('{"version": 1, "machine": {}, "isa": "", "threads": 1, "problem": ""}', "no 'seconds'"),
    "a time of zero": (entry(seconds=0.0).to_json(), "not a positive number"),
    "no time": (entry().to_json().replace("0.25", "NaN"), "not a positive number"),
    "no machine": (entry().to_json().replace('"cpu"', '"gpu"'), "no 'cpu'"),
    "deep": ("[" * 100_000, "RecursionError"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_lines_are_skipped_by_number(damage, tmp_path):
    line, reason = DAMAGED[damage]
    path = tmp_path / "log"
    path.write_text(f"{entry().to_json()}\n\n{line}\n{entry(problem='last').to_json()}\n")
    with pytest.warns(TinycompWarning, match=rf"log, line 3: skipped, it is damaged: .*{reason}"):
        assert [e.problem for e in TuningLog.read(path).entries] == ["gemm m=1 n=2 k=3", "last"]


def test_a_line_that_was_cut_short_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "log"
    path.write_text(entry().to_json()[:60])
    TuningLog(path=path).add(entry(problem="next"))
    with pytest.warns(TinycompWarning, match="line 1"):
        assert [e.problem for e in TuningLog.read(path).entries] == ["next"]


@pytest.mark.parametrize("content", ["hello\nworld\n", "\x00\x01\n", "[1, 2]"])
@pytest.mark.filterwarnings("ignore::tinycomp.errors.TinycompWarning")
def test_another_kind_of_file_is_refused(content, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text(content)
    with pytest.raises(TuningError, match=r"model\.onnx: not a tuning log"):
        tinycomp.compile(network(), options={"c": {"tuning": path}})


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TuningError, match=r"there is no such file; expected a log as tinycomp tune MODEL"):
        tinycomp.compile(network(), options={"c": {"tuning": tmp_path / "none"}})


def test_an_empty_file_is_an_empty_log(tmp_path):
    path = tmp_path / "log"
    path.touch()
    assert TuningLog.read(path).entries == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WriteError, match=r"the tuning log cannot be written.*Check the folder"):
        TuningLog(path=tmp_path / "none" / "log").add(entry())


def test_the_machine_is_named_without_linux(monkeypatch, tmp_path):
    assert processor._cpu_name(tmp_path / "none")
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: Abacus: fast\n\nprocessor\t: 1\nmodel name\t: other\n"
    )
    assert processor._cpu_name(Path(tmp_path / "cpuinfo")) == "Abacus: fast"
