"""Control flow in the C runtime: descriptions that are wrong, allocations that fail, and memory that grows."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests import records
from tests.runtime_c.test_memory_faults import SHIM
from tests.targets.c.ops.test_control_flow import choosing, counting, growing, growing_feeds
from tinycomp.errors import ArtifactError, ExecutionError, TargetError
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.program import Operand, Program
from tinycomp.runtime.regions import NativeRegion


def program_of(model) -> Program:
    """Return the program of the first region."""
    steps = tinycomp.compile(model, "c")._parts.plan.steps
    return next(step.run.program for step in steps if isinstance(step.run, NativeRegion))


def altered(program: Program, **changes) -> Program:
    """Return a program whose control flow is described otherwise."""
    calls = list(program.instructions)
    for i, call in enumerate(calls):
        if call.control is not None:
            calls[i] = dataclasses.replace(call, control=dataclasses.replace(call.control, **changes))
    return dataclasses.replace(program, instructions=tuple(calls))


def control_of(program: Program):
    (call,) = [call for call in program.instructions if call.control is not None]
    return call.control


def test_a_body_may_not_read_more_than_there_is():
    program = program_of(choosing(5))
    shapes = control_of(program).shapes
    native = NativeProgram(altered(program, shapes=((4, 4), *shapes[1:])))
    with pytest.raises(ExecutionError, match="the body reads 80 bytes of its input 0, which has 64"):
        native.call([np.ones((5, 4), np.float32)])


def test_operands_end_inside_their_buffers():
    program = program_of(choosing(5))
    with pytest.raises(TargetError, match=r"\(if\): operand 1 ends at byte 96 of a buffer of|past the end"):
        NativeProgram(altered(program, shapes=((6, 4),)))


def test_results_have_the_bytes_that_the_body_writes():
    program = program_of(choosing(5))
    native = NativeProgram(altered(program, results=(64,)))
    with pytest.raises(ExecutionError, match="result 0 has 80 bytes, not 64"):
        native.call([np.ones((5, 4), np.float32)])


def test_results_of_if_have_a_size():
    with pytest.raises(TargetError, match="an operand has no size, or there is no such value"):
        NativeProgram(altered(program_of(choosing(5)), results=(None,)))


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("control", lambda said: said.update(carried=9)),
        ("control", lambda said: said.update(kind=2)),
        ("control", lambda said: said["operands"].pop()),
        ("control", lambda said: said["shapes"].append("1")),
        ("control", lambda said: said.update(results=9)),
        ("body", lambda said: said.update(program=1)),
        ("buffer", lambda said: said.update(elements=[0, 0])),
        ("growth", lambda said: said.update(rank=9)),
    ],
)
def test_a_damaged_description_is_refused(kind, damage):
    program = program_of(counting())
    said = records.read(encoded(program))
    assert records.again(program).to_text() == program.to_text()
    damage(records.of_kind(said, kind)[0])
    with pytest.raises((ArtifactError, TargetError), match=r"the description( of a program)? is damaged"):
        NativeProgram(records.program(said, program.constants))


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_bodies_take_and_give_what_they_must(kind):
    program = program_of(choosing(5))
    first, *others = control_of(program).bodies
    specs = getattr(first, kind)
    more = dataclasses.replace(first, **{kind: (*specs, dataclasses.replace(specs[0], name="more"))})
    with pytest.raises(TargetError, match=r"does not take or give|do not fit the bodies|writes an output"):
        NativeProgram(altered(program, bodies=(more, *others)))


@pytest.mark.parametrize("carried", [-1, 9, 2**21])
@pytest.mark.parametrize("model", [lambda: choosing(5), counting], ids=["if", "loop"])
def test_carried_values_are_among_the_results(model, carried):
    with pytest.raises(TargetError, match=r'"control": a(nother)? number (is out of range|of operands than it has)'):
        NativeProgram(altered(program_of(model()), carried=carried))


def test_if_carries_nothing():
    with pytest.raises(TargetError, match="there is no such control flow"):
        NativeProgram(altered(program_of(choosing(5)), carried=1))


def test_operands_must_exist():
    program = program_of(choosing(5))
    calls = [
        call
        if call.control is None
        else dataclasses.replace(call, operands=(*call.operands[:-1], Operand("output", 7)))
        for call in program.instructions
    ]
    with pytest.raises(TargetError, match=r"index 7 is not among the 1 buffers of its space"):
        NativeProgram(dataclasses.replace(program, instructions=tuple(calls)))


@pytest.mark.parametrize("threads", [1, 2])
def test_contexts_keep_what_has_grown(threads):
    program = program_of(growing())
    native = NativeProgram(program, Pool(threads))
    for rows, limit in ((2, 40), (3, 4000), (1, 5), (0, 0)):
        feeds = growing_feeds(rows, limit)
        (found,) = native.call([np.asarray(feeds[spec.name]) for spec in program.inputs])
        expected = feeds["s0"]
        while True:
            expected = np.concatenate([expected, feeds["x"]])
            if not expected.sum() < limit:
                break
        np.testing.assert_array_equal(found, expected)


SCRIPT = """
import ctypes, gc
import numpy as np
from tests.runtime_c.test_control_flow import program_of
from tests.targets.c.ops.test_control_flow import choosing, counting, counting_feeds, growing, growing_feeds, floats
import tinycomp.runtime._native
from tinycomp.runtime.native.executor import NativeProgram

shim = ctypes.CDLL(None)
for line in open("/proc/self/maps"):  # a call at the end of a function of the library returns to the extension
    if "libtinycomp" in line or "_native" in line:
        shim.watch(*(ctypes.c_void_p(int(end, 16)) for end in line.split()[0].split("-")))
cases = (
    (growing(), growing_feeds(2, 40)), (counting(), counting_feeds(3, 9)), (choosing(), {"x": floats(3, 4) + 2}),
    (choosing(5), {"x": floats(5, 4) - 2}),
)
programs = [(program_of(model), feeds) for model, feeds in cases]
gc.collect()
gc.freeze()  # what is there already is not looked at again and again
for program, feeds in programs:
    inputs = [np.asarray(feeds[spec.name]) for spec in program.inputs]
    wanted = NativeProgram(program).call(inputs)
    gc.collect()
    before, refused = shim.still_live(), 0
    while True:
        runner = None
        shim.fail_after(refused)
        try:
            runner = NativeProgram(program)
            found = runner.call(inputs)
        except MemoryError as error:
            assert "no memory" in str(error), error
            refused += 1
        else:
            break
        shim.fail_after(-1)
        del runner
        gc.collect()
        assert shim.still_live() == before, (refused, shim.still_live(), before)
    shim.fail_after(-1)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    runner.call(inputs)
    del runner
    gc.collect()
    assert shim.still_live() == before
    assert refused > 30, refused
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or not shutil.which("cc"), reason="needs glibc and a C compiler")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another library is preloaded already")
def test_every_allocation_fails_once(tmp_path):
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-fno-builtin", "-o", library, source, "-ldl"], check=True)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": root}
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root, check=False)
    assert result.returncode == 0, result.stderr
