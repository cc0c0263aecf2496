"""The library itself: absent, of another version, refusing, and run from many threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tinycomp_dnnl import interface, library

import tinycomp
from tests.examples.dnnl.harness import compiled, floats, needs_dnnl, program_of
from tests.examples.dnnl.test_composites import X, block, model
from tests.models import ROOT
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.target import find

NOWHERE = "/nowhere/libdnnl.so.2"


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.PATH_VARIABLE, NOWHERE)


@pytest.mark.usefixtures("absent")
def test_the_target_is_found_without_the_library() -> None:
    assert find("dnnl").name == "dnnl"


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize("target", ["dnnl", ["dnnl", "c"]])
def test_compiling_without_the_library_says_what_to_install(target: str | list[str]) -> None:
    with pytest.raises(TargetError, match="oneDNN cannot be opened") as caught:
        tinycomp.compile(model(block(False), {"x": X}), target)
    assert "apt-get install libdnnl2" in str(caught.value)
    assert "TINYCOMP_DNNL" in str(caught.value)
    assert NOWHERE in str(caught.value)


def test_the_command_line_lists_the_target_as_unavailable() -> None:
    command = [sys.executable, "-m", "tinycomp", "targets", "--json"]
    environment = {**os.environ, library.PATH_VARIABLE: NOWHERE}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    rows = {row["name"]: row for row in json.loads(done.stdout)["targets"]}
    assert "apt-get install libdnnl2" in rows["dnnl"]["error"]
    assert "conv" in rows["dnnl"]["composites"]
    assert rows["c"]["error"] == ""


@needs_dnnl
def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = library.candidates()[-1]
    monkeypatch.setattr(interface, "INTERFACES", ())
    with pytest.raises(
        TargetError, match=r"another interface; expected version 2\.6, 2\.7 or 3\.2 to 3\.x; found \d\.\d+\.\d"
    ):
        library.open_library(path)
    with pytest.raises(TargetError, match=r"cannot be opened; found .*another interface.*pip install onednn-cpu-gomp"):
        library._load.__wrapped__((path,))


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ((2, 5), None),
        ((2, 6), 2),
        ((2, 7), 2),
        ((2, 8), None),
        ((3, 1), None),
        ((3, 2), 3),
        ((3, 13), 3),
        ((4, 0), None),
    ],
)
def test_versions_have_their_interfaces(version: tuple[int, int], major: int | None) -> None:
    found = interface.interface_of(*version)
    assert (None if found is None else found.major) == major


@needs_dnnl
def test_the_library_is_opened_once() -> None:
    assert library.load() is library.load()


@needs_dnnl
def test_what_the_library_refuses_is_an_error() -> None:
    opened = library.load()
    with pytest.raises(TargetError, match=r"strides: oneDNN \d\.\d+\.\d answers: invalid arguments"):
        opened.plain((-5, 2))
    with pytest.raises(MemoryError, match="out of memory"):
        opened.check(1, "arena")


@needs_dnnl
def test_a_primitive_that_fails_names_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    program, lib = program_of(model(block(False), {"x": X})), library.load().lib

    class Failing:
        def __getattr__(self, name: str) -> object:
            return (lambda *_: 5) if name == "dnnl_primitive_execute" else getattr(lib, name)

    program(X)
    monkeypatch.setattr(program._idle[0]._library, "lib", Failing())
    with pytest.raises(ExecutionError, match="oneDNN fails with status 5"):
        program(X)


@needs_dnnl
def test_threads_share_a_module() -> None:
    module = compiled(model(block(False), {"x": X}))
    inputs = [floats(*X.shape, seed=seed) for seed in range(24)]
    wanted = [module(x) for x in inputs]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(module, inputs))
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(f, w)


@needs_dnnl
def test_runs_leave_operands_and_earlier_results_alone() -> None:
    module = compiled(model(block(True), {"x": X}))
    kept = X.copy()
    first = module(X)
    again = first.copy()
    module(-X)
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(first, again)


@needs_dnnl
def test_operands_may_lie_anyhow() -> None:
    module = compiled(model(block(False), {"x": X}))
    turned = np.asfortranarray(X)
    np.testing.assert_array_equal(module(turned), module(X))


FORKING = """
import os, signal, sys
import tinycomp
from tests.examples.dnnl.test_composites import X, block, model
module = tinycomp.compile(model(block(False), {"x": X}), "dnnl")
module(X)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(30)  # a run that hangs ends the child with another code
try:
    module(X)
except tinycomp.TinycompError as error:
    os._exit(7 if "cannot run in a forked process" in str(error) else 1)
os._exit(0)
"""


@pytest.mark.long
@needs_dnnl
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(("threads", "code"), [(1, 0), (2, 7)])
def test_a_forked_process_is_told_rather_than_left_hanging(threads: int, code: int) -> None:
    if threads == 1 and not library.load().has_openmp:
        pytest.skip("this oneDNN does not count threads by OpenMP")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    assert subprocess.run([sys.executable, "-c", FORKING], env=environment, cwd=ROOT).returncode == code
