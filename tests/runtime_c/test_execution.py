"""Programs of several calls, threads, forks, profiles, and the description as plain data."""

from __future__ import annotations

import dataclasses
import multiprocessing

import numpy as np
import pytest

from tests import records
from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS
from tests.threads import in_threads
from tinycomp.errors import ArtifactError, TargetError
from tinycomp.runtime.native import processor
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.processor import available_isas, cpu_features
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program


def layer(source: Operand, target: Operand, weight: int, rows: int, width: int) -> Instruction:
    params = {"m": rows, "n": width, "k": width, "lda": width, "ldc": width, "ldr": 0, "trans_b": 0, **OWN_BLOCKS}
    params |= NO_ACTIVATION | {"activation": 1}
    operands = (target, source, Operand("constant", weight), ABSENT, ABSENT)
    return Instruction("gemm_f32", operands, params, (f"layer{weight}",), rows * width * width)


def perceptron(rows: int = 64, width: int = 100, depth: int = 6) -> Program:
    """A chain of layers that alternates between two slots of the arena."""
    rng = np.random.default_rng(3)
    weights = tuple((rng.standard_normal((width, width)) / 8).astype(np.float32) for _ in range(depth))
    slots = [Operand("arena", 0, 0), Operand("arena", 0, rows * width * 4)]
    places = [Operand("input"), *(slots[i % 2] for i in range(depth - 1)), Operand("output")]
    calls = tuple(layer(places[i], places[i + 1], i, rows, width) for i in range(depth))
    spec = ("float32", (rows, width))
    return Program("mlp", (BufferSpec("x", *spec),), (BufferSpec("y", *spec),), weights, 2 * rows * width * 4, calls)


def feed(program: Program, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(program.inputs[0].shape).astype(np.float32)


def expected(program: Program, x: np.ndarray) -> np.ndarray:
    for weight in program.constants:
        x = np.maximum(x @ weight, 0)
    return x


def run(runner: NativeProgram, x: np.ndarray) -> np.ndarray:
    y = np.full(runner.program.outputs[0].shape, np.nan, np.float32)
    runner.run([x], [y])
    return y


def test_chain_of_calls(isa, pool):
    program = perceptron()
    x = feed(program)
    serial, shared = run(runner(program, None, isa), x), run(runner(program, pool, isa), x)
    np.testing.assert_allclose(serial, expected(program, x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(serial, shared)


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
def test_bits_do_not_depend_on_the_number_of_threads(threads):
    program = perceptron(rows=203)
    x = feed(program)
    np.testing.assert_array_equal(run(NativeProgram(program), x), run(NativeProgram(program, Pool(threads)), x))


def test_eight_threads_share_one_program(pool):
    program = perceptron()
    runner = NativeProgram(program, pool)
    feeds = [feed(program, seed) for seed in range(8)]
    wanted = [run(NativeProgram(program), x) for x in feeds]
    wrong: list[int] = []

    def work(i: int) -> None:
        wrong.extend(i for _ in range(50) if not np.array_equal(run(runner, feeds[i]), wanted[i]))

    in_threads(work, range(8))
    assert wrong == []


def _child(runner: NativeProgram, x: np.ndarray, queue: multiprocessing.Queue) -> None:
    queue.put(run(runner, x))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_run_after_fork():
    program = perceptron()
    runner, x = NativeProgram(program, Pool(2)), feed(program)
    wanted = run(runner, x)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(runner, x, queue))
    child.start()
    np.testing.assert_array_equal(queue.get(timeout=30), wanted)
    child.join(30)
    assert child.exitcode == 0
    np.testing.assert_array_equal(run(runner, x), wanted)


def test_profile_has_a_figure_per_call(pool):
    program = perceptron()
    x, y = feed(program), np.empty(program.outputs[0].shape, np.float32)
    seconds = NativeProgram(program, pool).profile([x], [y])
    assert len(seconds) == len(program.instructions)
    assert all(0 < second < 1 for second in seconds)


def test_pools_come_and_go():
    program = perceptron()
    x = feed(program)
    for _ in range(20):
        run(NativeProgram(program, Pool(3)), x)


def test_program_survives_its_records():
    program = perceptron()
    clip = {**program.instructions[0].params, "activation": 2, "activation_b": float("inf")}
    first = Instruction("gemm_f32", program.instructions[0].operands, clip, ('a "name"',), 7)
    program = dataclasses.replace(program, instructions=(first, *program.instructions[1:]))
    assert records.again(program) == program


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: said.clear(),
        lambda said: said.pop(),
        lambda said: said.pop(1),
        lambda said: said.insert(2, ["step", {}]),
        lambda said: records.of_kind(said, "unit")[0].update(constants=1),
        lambda said: records.of_kind(said, "program")[0].update(inputs=2),
        lambda said: records.of_kind(said, "buffer")[0].update(space=3),
        lambda said: records.of_kind(said, "buffer")[0].update(dtype="any"),
        lambda said: records.of_kind(said, "buffer")[0].update(dims=[[7, -1]]),
        lambda said: records.of_kind(said, "call")[0].update(kernel=9999),
        lambda said: records.of_kind(said, "call")[0].update(params=""),
        lambda said: records.of_kind(said, "call")[0].update(operands=[[9, 0, 0]]),
    ],
)
def test_damaged_description(damage):
    program = perceptron()
    said = records.read(encoded(program))
    damage(said)
    with pytest.raises((ArtifactError, TargetError)):
        NativeProgram(records.program(said, program.constants))


def test_program_as_text():
    lines = perceptron(rows=2, width=3, depth=2).to_text().splitlines()
    assert lines == [
        "program mlp (arena 48 bytes, 2 constants)",
        "  input[0]  x: float32[2, 3]",
        "  output[0] y: float32[2, 3]",
        "  0 gemm_f32(arena, input[0], constant[0], -, -) m=2 n=3 k=3 lda=3 ldc=3 ldr=0 trans_b=0"
        " block_rows=0 panel_order=0 activation=1 activation_a=0 activation_b=0  # layer0",
        "  1 gemm_f32(output[0], arena, constant[1], -, -) m=2 n=3 k=3 lda=3 ldc=3 ldr=0 trans_b=0"
        " block_rows=0 panel_order=0 activation=1 activation_a=0 activation_b=0  # layer1",
    ]


def test_machine_is_described():
    assert available_isas()[0] == "scalar"
    assert processor.default_threads() >= 1
    assert ("avx512" in available_isas()) == ({"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(cpu_features()))


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_cgroup_quota(files, quota, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processor._cgroup_quota(tmp_path) == quota
