"""Whole models on emulated instruction sets, and that the emulation tells what goes wrong there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.models import folder_models, shipped_models
from tests.runtime_c.emulated import EmulatedProgram
from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, single
from tests.runtime_c.test_gather import gather_params
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.program import BufferSpec, Program
from tinycomp.runtime.regions import NativeRegion

SMALL = 2 << 20
MODELS = [path for path in (*shipped_models(), *folder_models()) if path.stat().st_size < SMALL]


def programs_of(module: tinycomp.Module) -> list[Program]:
    return [step.run.native.program for step in module._parts.plan.steps if isinstance(step.run, NativeRegion)]


def sample(spec: BufferSpec, rng: np.random.Generator) -> np.ndarray:
    if np.dtype(spec.dtype).kind == "f":
        return rng.standard_normal(spec.shape).astype(spec.dtype)
    return rng.integers(0, 100, spec.shape).astype(spec.dtype)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_regions_of_whole_models_give_what_they_give_here(
    path: Path, emulated: str, pool: Pool, rng: np.random.Generator
) -> None:
    module = tinycomp.compile(path, threads=1)
    sizes = {spec.name: tuple(2 if isinstance(d, str) else d for d in spec.shape or ()) for spec in module.inputs}
    module = tinycomp.compile(path, shapes=sizes, threads=1)
    programs = programs_of(module)
    assert programs
    for program in programs:
        feeds = [sample(spec, rng) for spec in program.inputs]
        wanted, found = ([np.zeros(s.shape, s.dtype) for s in program.outputs] for _ in range(2))
        NativeProgram(program).run(feeds, wanted)
        EmulatedProgram(program, pool, emulated).run(feeds, found)
        for a, b in zip(found, wanted, strict=True):
            if a.dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())
            else:  # a sum that lies between two quanta may go either way
                assert np.abs(a.astype(np.int64) - b).max() <= 1


@pytest.mark.parametrize(
    "path",
    [path for path in MODELS if path.with_suffix(".npz").exists() and "int8" in path.stem],
    ids=lambda path: path.stem,
)
def test_quantized_models_give_their_stored_outputs_to_the_bit(path: Path, emulated: str, pool: Pool) -> None:
    stored = np.load(path.with_suffix(".npz"))
    shapes = {spec.name: (len(stored["input"]), *spec.shape[1:]) for spec in tinycomp.compile(path).inputs}
    (program,) = programs_of(tinycomp.compile(path, shapes=shapes, threads=1))
    found = np.zeros_like(stored["output"])
    EmulatedProgram(program, pool, emulated).run([stored["input"]], [found])
    np.testing.assert_array_equal(found, stored["output"])


def gemm(rng: np.random.Generator, **changes: int) -> tuple[Program, list[np.ndarray]]:
    a, b = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    sizes = {"m": 4, "n": 4, "k": 4, "lda": 4, "ldc": 4, "ldr": 4, "trans_b": 0} | changes
    return single("gemm_f32", [a, Weight(b), None, None], sizes | OWN_BLOCKS | NO_ACTIVATION, ("float32", (4, 4)))


def test_a_refused_program_is_told_as_on_this_machine(emulated: str, rng: np.random.Generator) -> None:
    program, feeds = gemm(rng, trans_b=2)
    with pytest.raises(TargetError) as here:
        NativeProgram(program)
    with pytest.raises(TargetError) as there:
        EmulatedProgram(program, None, emulated).run(feeds, [np.empty((4, 4), np.float32)])
    assert str(there.value) == str(here.value)


def test_a_failed_run_names_the_node_and_the_next_one_works(emulated: str) -> None:
    data, index = np.arange(6, dtype=np.int32).reshape(2, 3), np.array([5])
    program, feeds = single("gather", [data, index], gather_params(data, index, 0), ("int32", (1, 3)))
    found = [np.empty((1, 3), np.int32)]
    with pytest.raises(ExecutionError, match=r"node node \(gather\): an index is out of range"):
        EmulatedProgram(program, None, emulated).run(feeds, found)
    EmulatedProgram(program, None, emulated).run([data, np.array([1])], found)
    np.testing.assert_array_equal(found[0], data[1:])


def test_the_driver_computes_with_the_constants_that_it_is_sent(emulated: str, rng: np.random.Generator) -> None:
    program, feeds = gemm(rng)
    for constant in (program.constants[0], 2 * program.constants[0]):
        found = [np.zeros((4, 4), np.float32)]
        EmulatedProgram(replace(program, constants=(constant,)), None, emulated).run(feeds, found)
        np.testing.assert_allclose(found[0], feeds[0] @ constant, rtol=1e-5, atol=1e-6)
