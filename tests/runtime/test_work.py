"""What kernel calls have to do: known figures for every kernel, which are those of its definition.

That no call moves more than there is in its operands is checked wherever a kernel is tested (``helpers.check_work``).
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c import element
from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, single
from tests.runtime_c.known import CALLS, KERNELS
from tests.runtime_c.quantized import RESULTS
from tests.runtime_c.test_conv2d_f32 import conv_params
from tests.runtime_c.test_qconv2d import conv_params as quantized_params
from tinycomp.runtime.native.executor import NativeProgram, Work
from tinycomp.runtime.native.library import kernel_named, kernel_names
from tinycomp.runtime.native.program import ABSENT, Instruction, Operand, Program
from tinycomp.targets.c.codegen.emitter import nd_params

ROOM = 1 << 16
"""Bytes that hold any operand of these calls."""


def work(kernel, operands, params, shape, dtype="float32") -> Work:
    program, _ = single(kernel, operands, params, (dtype, shape))
    return NativeProgram(program).work(0)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def gemm(residual: np.ndarray | None) -> Work:
    params = {"m": 5, "n": 7, "k": 11, "lda": 20, "ldc": 7, "ldr": 7, "trans_b": 0} | OWN_BLOCKS | NO_ACTIVATION
    return work("gemm_f32", [zeros(5, 20), Weight(zeros(11, 7)), None, residual], params, (5, 7))


def conv(kernel: str, size: int, algorithm: int = 0) -> Work:
    x, w = zeros(1, size, size, 16), zeros(32, 16, 3, 3)
    params = conv_params(x, w, (1, 1), (1, 1), (1, 1, 1, 1), 1) | NO_ACTIVATION | {"algorithm": algorithm}
    return work(kernel, [x, Weight(w), Weight(zeros(32)), None], params, (1, size, size, 32))


def test_every_kernel_is_known():
    assert [row["kernel"] for row in KERNELS] == list(kernel_names())


@pytest.mark.parametrize("known", CALLS, ids=lambda known: known["kernel"])
def test_kernels_state_their_known_work(known):
    letters = kernel_named(known["kernel"]).signature.lower()
    places = [Operand("constant" if letter in "wp" else "arena") for letter in letters]
    for index in known["absent"]:
        places[index] = ABSENT
    call = Instruction(known["kernel"], tuple(places), known["params"])
    program = Program("known", (), (), (np.zeros(ROOM, np.uint8),), ROOM, (call,))
    assert NativeProgram(program).work(0) == Work(*known["work"])


def test_only_instructions_have_work():
    program, _ = single("fill", [], nd_params((3,), stride=(1,)) | {"element_size": 4, "pattern": 0}, ("int32", (3,)))
    native = NativeProgram(program)
    for index in (-1, 1):
        with pytest.raises(IndexError, match=f"test has no instruction {index}"):
            native.work(index)


def test_a_product_counts_each_element_once_and_no_gaps_between_rows():
    assert gemm(None) == Work(2 * 5 * 7 * 11, 0, 4 * (5 * 11 + 11 * 7), 4 * 5 * 7, 2 * 5 * 7 * 11)


def test_an_absent_operand_moves_nothing():
    assert gemm(zeros(5, 7)).bytes - gemm(None).bytes == 4 * 5 * 7


def test_a_convolution_counts_all_taps_and_names_its_algorithm():
    direct = conv("conv2d_f32", 8, algorithm=1)
    assert direct.flops == direct.done == 2 * 8 * 8 * 32 * 16 * 9
    assert direct.bytes == 4 * (64 * 32 + 64 * 16 + 32 * 16 * 9 + 32)
    assert [conv("conv2d_f32", 8, algorithm=i).algorithm for i in range(3)] == ["", "direct", "lines"]


@pytest.mark.parametrize(
    ("size", "algorithm", "tile", "saved"), [(8, 0, 4, 4.0), (7, 4, 4, 4.0 * 49 / 64), (8, 3, 2, 2.25)]
)
def test_winograd_is_given_the_work_of_the_direct_form(size: int, algorithm: int, tile: int, saved: float):
    winograd, direct = conv("conv2d_winograd_f32", size, algorithm), conv("conv2d_f32", size)
    assert (winograd.flops, winograd.bytes) == (direct.flops, direct.bytes)
    assert winograd.flops / winograd.done == pytest.approx(saved)
    assert winograd.algorithm == f"Winograd F({tile}x{tile}, 3x3)"


def test_quantised_winograd_too():
    result, x, w = RESULTS["uint8"], np.zeros((1, 7, 8, 4), np.uint8), np.zeros((6, 4, 3, 3), np.int8)
    params = quantized_params(x, w, ((1, 1), (1, 1), (1, 1, 1, 1), 1), result)
    operands = [x, Weight(w), None, Weight(np.ones(6, np.float32)), None]
    winograd, direct = (work(k, operands, params, (1, 7, 8, 6), "uint8") for k in ("qconv2d_winograd", "qconv2d"))
    assert (winograd.integer_operations, winograd.bytes) == (direct.integer_operations, direct.bytes)
    assert winograd.integer_operations / winograd.done == pytest.approx(2.25 * 7 / 8)
    assert winograd.algorithm == "Winograd F(2x2, 3x3)"


def test_a_repeated_operand_is_read_once():
    x, row = zeros(6, 5), np.broadcast_to(zeros(5), (6, 5))
    words = element.encode([x, row], [], [element.step(element.BINARY, 0, "float32", 0, 1)])
    places = [None, None, None, Weight(words), x, zeros(5), *[None] * 9]
    known = Work(30, 0, 4 * (30 + 5) + words.nbytes, 4 * 30, 30)
    assert work("elementwise", places, {"words": words.size}, (6, 5)) == known


def test_operations_on_integers_are_told_apart():
    x, y = (np.zeros(6, np.int32) for _ in range(2))
    words = element.encode([x, y], [], [element.step(element.BINARY, 0, "int32", 0, 1)])
    places = [None, None, None, Weight(words), x, y, *[None] * 9]
    assert work("elementwise", places, {"words": words.size}, (6,), "int32") == Work(0, 6, 48 + words.nbytes, 24, 6)


def test_conversions_are_no_arithmetic_and_comparisons_give_bytes():
    x = zeros(10)
    steps = [element.step(element.CAST, element.TYPES.index(np.dtype("float64")), "float32", 0)]
    steps += [element.step(element.COMPARE, 2, "float64", 1, 1)]
    words = element.encode([x], [], steps)
    places = [None, None, None, Weight(words), x, *[None] * 10]
    known = Work(10, 0, 40 + words.nbytes, 10, 10)
    assert work("elementwise", places, {"words": words.size}, (10,), "bool") == known


def test_only_rows_that_are_gathered_are_read():
    params = {"element_size": 4, "index_size": 8, "outer": 1, "axis": 1000, "inner": 3, "count": 2}
    known = Work(0, 0, 4 * 2 * 3 + 2 * 8, 4 * 2 * 3, 0)
    assert work("gather", [zeros(1000, 3), np.array([5, 9])], params, (2, 3)) == known


def test_a_causal_mask_saves_work():
    def attention(causal: int) -> int:
        x, strides = zeros(1, 1, 4, 8), {}
        for name in "yqkv":
            strides |= {f"{name}_batch": 32, f"{name}_head": 32, f"{name}_row": 8}
        params = {"batch": 1, "heads": 1, "group": 1, "rows": 4, "keys": 4, "depth": 8, "value_depth": 8, "scale": 1.0}
        params |= {"causal": causal, "past": 0, "k_column": 1, **strides}
        params |= {"mask_batch": 0, "mask_head": 0, "mask_row": 0, "mask_column": 0}
        return work("attention_f32", [x, x, x, None], params, x.shape).flops

    assert attention(1) / attention(0) == (1 + 2 + 3 + 4) / 16
