"""Packed weights that programs share: found by what they depend on, freed with the last program that uses them."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, single
from tests.runtime_c.windows import window_params
from tests.threads import in_threads
from tinycomp.runtime.native.executor import NativeProgram, Weights
from tinycomp.runtime.native.library import kernel_named
from tinycomp.runtime.native.processor import available_isas
from tinycomp.runtime.native.program import Program

B = np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)


def gemm(m: int, b: np.ndarray = B, n: int = 24, k: int = 24, trans_b: int = 0) -> tuple[Program, np.ndarray]:
    a = np.random.default_rng(m).standard_normal((m, k)).astype(np.float32)
    params = {"m": m, "n": n, "k": k, "lda": k, "ldc": n, "ldr": 0, "trans_b": trans_b, **OWN_BLOCKS, **NO_ACTIVATION}
    return single("gemm_f32", [a, Weight(b), None, None], params, ("float32", (m, n)))[0], a


def result(runner: NativeProgram, a: np.ndarray) -> np.ndarray:
    y = np.empty(runner.program.outputs[0].shape, np.float32)
    runner.run([a], [y])
    return y


def test_programs_for_several_batch_sizes_share_one_copy(native_isa):
    weights = Weights()
    runners = [(NativeProgram(gemm(m)[0], None, native_isa, weights), gemm(m)[1]) for m in (1, 2, 77)]
    once = NativeProgram(gemm(1)[0], None, native_isa)
    assert weights.nbytes == once.state_bytes > 0
    assert [runner.state_bytes for runner, _ in runners] == [0, 0, 0]
    for runner, a in runners:
        np.testing.assert_allclose(result(runner, a), a @ B, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("other", [{"b": B.copy()}, {"trans_b": 1}, {"n": 12, "k": 48}, {"n": 48, "k": 12}], ids=str)
def test_what_packing_depends_on_keeps_weights_apart(other, native_isa):
    weights = Weights()
    first, second = (NativeProgram(gemm(3, **options)[0], None, native_isa, weights) for options in ({}, other))
    assert weights.nbytes == sum(NativeProgram(r.program, None, native_isa).state_bytes for r in (first, second))
    a = gemm(3, **other)[1]
    np.testing.assert_array_equal(result(second, a), result(NativeProgram(second.program, None, native_isa), a))


def test_instruction_sets_pack_for_themselves():
    weights = Weights()
    kept = [NativeProgram(gemm(3)[0], None, isa, weights) for isa in available_isas()]
    assert weights.nbytes == sum(NativeProgram(gemm(3)[0], None, r.isa).state_bytes for r in kept)


def test_the_last_program_frees_what_it_shared():
    weights = Weights()
    first, second = NativeProgram(gemm(1)[0], weights=weights), NativeProgram(gemm(2)[0], weights=weights)
    held = weights.nbytes
    del first
    gc.collect()
    assert weights.nbytes == held
    a = gemm(2)[1]
    del weights
    np.testing.assert_allclose(result(second, a), a @ B, rtol=1e-4, atol=1e-4)


def test_nothing_is_kept_for_programs_that_are_gone():
    weights = Weights()
    for m in range(1, 5):
        NativeProgram(gemm(m)[0], weights=weights)
    gc.collect()
    assert weights.nbytes == 0


@pytest.mark.parametrize("kernel", ["conv2d_f32", "conv2d_winograd_f32", "dwconv2d_f32", "conv_transpose2d_f32"])
def test_convolutions_share_over_batch_and_image_size(kernel, native_isa, rng):
    depthwise, weights = kernel == "dwconv2d_f32", Weights()
    w = Weight(rng.standard_normal((8, 1 if depthwise else 8, 3, 3), np.float32))
    runners = []
    for batch, size in ((1, 9), (4, 9), (2, 30)):
        x = rng.standard_normal((batch, size, size, 8), np.float32)
        given = window_params(x, (3, 3), pads=(1, 1, 1, 1)) | {"out_channels": 8, "groups": 1, "algorithm": 0}
        given |= {"y_pixel_stride": 8, "residual_pixel_stride": 8, "group_channels": 0, "planar": 0, **OWN_BLOCKS}
        params = {name: given[name] for name in kernel_named(kernel).fields}
        operands = [x, w, None] if kernel == "conv_transpose2d_f32" else [x, w, None, None]
        program, feeds = single(kernel, operands, params, ("float32", x.shape))
        runners.append(NativeProgram(program, None, native_isa, weights))
        np.testing.assert_array_equal(
            result(runners[-1], feeds[0]), result(NativeProgram(program, None, native_isa), feeds[0])
        )
    assert weights.nbytes == NativeProgram(runners[0].program, None, native_isa).state_bytes


def test_threads_that_pack_the_same_weights_end_up_with_one_copy():
    weights, made, start = Weights(), [], threading.Barrier(8)

    def build(m: int) -> None:
        program = gemm(m)[0]
        start.wait()
        made.append(NativeProgram(program, weights=weights))

    in_threads(build, range(1, 9))
    assert weights.nbytes == NativeProgram(gemm(1)[0]).state_bytes
    for runner in made:
        a = gemm(runner.program.inputs[0].shape[0])[1]
        np.testing.assert_allclose(result(runner, a), a @ B, rtol=1e-4, atol=1e-4)
