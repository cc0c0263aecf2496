"""Which kernels calls get: by estimates, by measurements, and within the memory that faster weights may take."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.errors import OptionError
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.library import lib
from tinycomp.runtime.native.processor import IsaShape, default_isa, isa_shape
from tinycomp.runtime.native.program import ALGORITHMS, Instruction, Operand, Program
from tinycomp.targets.c.options import Allowance, Settings
from tinycomp.targets.c.tuning.candidates import Problem, problem_of
from tinycomp.targets.c.tuning.choices import SHAPE_GAIN, choose
from tinycomp.targets.c.tuning.cost import Processor
from tinycomp.targets.c.tuning.trial import trial_of

AVX2 = Processor(IsaShape(8, 16), 512 << 10)
AVX512 = Processor(IsaShape(16, 64), 1 << 20)


def conv(
    size: tuple[int, int], channels: tuple[int, int], kernel: int = 3, stride: int = 1, *, groups: int = 1,
    dilation: int = 1, batch: int = 1,
) -> Problem:  # fmt: skip
    pad = (kernel - 1) * dilation // 2
    out = [(n + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1 for n in size]
    sizes = {
        "batch": batch, "height": size[0], "width": size[1], "channels": channels[0],
        "out_height": out[0], "out_width": out[1], "out_channels": channels[1],
        "kernel_height": kernel, "kernel_width": kernel, "stride_height": stride, "stride_width": stride,
        "dilation_height": dilation, "dilation_width": dilation, "pad_top": pad, "pad_left": pad, "groups": groups,
    }  # fmt: skip
    return Problem("conv2d", sizes)


def qconv(size: tuple[int, int], channels: tuple[int, int], *args: int, weight_type: int = 4, **others: int) -> Problem:
    """The same with 8-bit numbers; weights are int8 or (6) int16."""
    return Problem("qconv2d", {**conv(size, channels, *args, **others).sizes, "weight_type": weight_type})


PROBLEMS = {
    "3x3": conv((9, 13), (12, 20)),
    "3x3, one tile": conv((3, 3), (16, 16)),
    "3x3, many channels": conv((7, 7), (70, 200)),
    "3x3, batch 3": conv((8, 5), (4, 5), batch=3),
    "stem": conv((23, 20), (3, 17), 7, 2),
    "1x1": conv((10, 11), (24, 33), 1),
    "groups": conv((6, 6), (8, 12), groups=4),
    "dilated": conv((11, 11), (3, 9), dilation=2),
    "few filters": conv((12, 70), (5, 3)),
    "quantised 3x3": qconv((9, 13), (12, 20)),
    "quantised 3x3, int16": qconv((9, 13), (12, 20), weight_type=6),
    "quantised 3x3, batch 3": qconv((8, 5), (40, 33), batch=3),
    "quantised stem": qconv((23, 20), (3, 17), 7, 2),
    "quantised groups": qconv((6, 6), (8, 12), groups=4),
    "gemm": Problem("gemm", {"m": 50, "n": 70, "k": 33}),
    "row": Problem("gemm", {"m": 1, "n": 40, "k": 300}),
    "matmul": Problem("matmul", {"batch0": 2, "batch1": 3, "m": 60, "n": 20, "k": 9, "turned_a": 0, "turned_b": 0}),
    "turned": Problem("matmul", {"batch0": 1, "batch1": 2, "m": 30, "n": 21, "k": 8, "turned_a": 1, "turned_b": 1}),
}


def results(program: Program, threads: int = 2) -> np.ndarray:
    rng = np.random.default_rng(3)
    feeds = [
        rng.integers(0, 256, spec.shape, np.uint8)
        if spec.dtype == "uint8"
        else rng.standard_normal(spec.shape, np.float32)
        for spec in program.inputs
    ]
    y = np.full(program.outputs[0].shape, 77, program.outputs[0].dtype)
    NativeProgram(program, Pool(threads)).run(feeds, [y])
    return y


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_candidate_computes_the_same(name):
    problem = PROBLEMS[name]
    candidates = problem.candidates(isa_shape(default_isa()).lanes, shaped=True)
    assert len({c.name for c in candidates}) == len(candidates)
    expected = results(trial_of(problem, candidates[0]))
    for candidate in candidates:
        y = results(trial_of(problem, candidate))
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=3e-4, err_msg=candidate.name)
        np.testing.assert_array_equal(y, results(trial_of(problem, candidate), threads=1), candidate.name)
        if candidate.algorithm == candidates[0].algorithm:
            np.testing.assert_array_equal(y, expected, "blocks never change a bit")


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_call_tells_its_problem_back(name):
    problem = PROBLEMS[name]
    for candidate in problem.candidates(8):
        found = problem_of(trial_of(problem, candidate).instructions[0])
        assert found is not None
        assert (found.key, found.candidates(8)) == (problem.key, problem.candidates(8))


@pytest.mark.parametrize("name", PROBLEMS)
def test_candidates_have_the_weights_that_they_say(name):
    """What the allowance counts is what the runtime packs, up to bias, zeros and padding."""
    problem = PROBLEMS[name]
    for candidate in problem.candidates(isa_shape(default_isa()).lanes):
        packed = NativeProgram(trial_of(problem, candidate)).state_bytes
        assert candidate.weight_bytes <= packed <= 1.25 * candidate.weight_bytes + 1024, candidate.name


def test_the_names_of_algorithms_are_those_of_the_runtime():
    assert dict(ALGORITHMS) == {
        lib.TC_CONV_DIRECT: "direct",
        lib.TC_CONV_LINES: "lines",
        lib.TC_CONV_WINOGRAD_2: "Winograd F(2x2, 3x3)",
        lib.TC_CONV_WINOGRAD_4: "Winograd F(4x4, 3x3)",
        lib.TC_CONV_COLUMNS: "columns",
    }


@pytest.mark.parametrize("name", ["3x3", "stem", "1x1", "gemm", "row"])
def test_candidates_of_rounded_factors(name):
    plain, problem = PROBLEMS[name], dataclasses.replace(PROBLEMS[name], rounded=True)
    candidates = problem.candidates(isa_shape(default_isa()).lanes, shaped=True)
    assert len({c.name for c in candidates}) == len(candidates)
    assert [c for c in candidates if not c.is_rounded] == list(plain.candidates(isa_shape(default_isa()).lanes, True))
    expected = results(trial_of(problem, candidates[0]))
    rounded = [c for c in candidates if c.is_rounded]
    assert rounded
    for candidate in rounded:
        trial = trial_of(problem, candidate)
        np.testing.assert_allclose(results(trial), expected, rtol=0, atol=0.02 * np.abs(expected).max())
        assert problem_of(trial.instructions[0]).key == problem.key


def test_rounded_factors_are_chosen_where_pairs_are_multiplied():
    pairs = Processor(IsaShape(16, 64, pairs=True), 1 << 20)
    names = {}
    for kernel, size in ((1, 28), (3, 14)):
        problem = dataclasses.replace(conv((size, size), (256, 256), kernel), rounded=True)
        by_time = sorted(problem.candidates(16), key=lambda c, problem=problem: problem.seconds(c, pairs))
        names[kernel] = [c.name for c in by_time]
    assert names[1] == ["direct of bfloat16", "direct"]
    assert names[3][0] == "Winograd F(2x2, 3x3) of bfloat16"
    assert names[3][-1] == "direct"


def algorithms(problem: Problem) -> list[str]:
    return [c.name for c in problem.candidates(8)]


def test_algorithms_are_offered_where_they_are_valid():
    assert algorithms(conv((9, 9), (64, 64))) == ["direct", "Winograd F(2x2, 3x3)", "Winograd F(4x4, 3x3)"]
    assert algorithms(conv((9, 9), (8, 8))) == ["direct", "lines", "Winograd F(2x2, 3x3)", "Winograd F(4x4, 3x3)"]
    assert algorithms(Problem("conv2d", conv((9, 9), (8, 8)).sizes, adjacent=False)) == [
        "direct", "Winograd F(2x2, 3x3)", "Winograd F(4x4, 3x3)",
    ]  # fmt: skip
    assert algorithms(conv((9, 9), (8, 8), stride=2)) == ["direct", "lines"]
    assert algorithms(conv((9, 9), (64, 64), dilation=2)) == ["direct"]
    assert algorithms(conv((9, 9), (64, 64), groups=2)) == ["direct"]
    assert algorithms(conv((9, 9), (3, 8), 5)) == ["direct", "lines"]
    assert algorithms(conv((9, 9), (3, 8), 1)) == ["direct"]
    assert algorithms(conv((9, 40), (40, 4), 5)) == ["direct", "lines", "columns"]
    assert algorithms(conv((9, 40), (40, 5), 5)) == ["direct", "lines"]
    assert algorithms(conv((9, 24), (40, 4), 5)) == ["direct", "lines"]
    assert algorithms(conv((9, 40), (40, 4), 5, dilation=2)) == ["direct"]
    assert algorithms(conv((9, 40), (40, 4), 5, stride=2)) == ["direct", "lines"]


# Layers of resnet18, unet and yolov8n, and what the cost model gives them.
GOLDEN = {
    "stem 224, 3 channels": (conv((224, 224), (3, 64), 7, 2), "lines", "lines"),
    "56, 64 channels": (conv((56, 56), (64, 64)), "Winograd F(4x4, 3x3)", "Winograd F(4x4, 3x3)"),
    "28, 128 channels": (conv((28, 28), (128, 128)), "Winograd F(4x4, 3x3)", "Winograd F(4x4, 3x3)"),
    "14, 256 channels": (conv((14, 14), (256, 256)), "Winograd F(4x4, 3x3)", "Winograd F(4x4, 3x3)"),
    "7, 512 channels": (conv((7, 7), (512, 512)), "Winograd F(2x2, 3x3)", "Winograd F(2x2, 3x3)"),
    "stride 2": (conv((56, 56), (64, 128), 3, 2), "direct", "direct"),
    "1x1": (conv((28, 28), (128, 512), 1), "direct", "direct"),
    "3 channels": (conv((192, 192), (3, 16)), "lines", "lines"),
    "four filters": (conv((192, 192), (8, 4)), "columns", "columns"),
    "eight filters": (conv((192, 192), (8, 8)), "lines", "columns"),
    "one pixel": (conv((1, 1), (64, 64)), "direct", "direct"),
    "2x2 pixels": (conv((2, 2), (64, 64)), "direct", "direct"),
    "quantised 56": (qconv((56, 56), (64, 64)), "Winograd F(2x2, 3x3)", "direct"),
    "quantised 14": (qconv((14, 14), (256, 256)), "Winograd F(2x2, 3x3)", "direct"),
    "quantised 8": (qconv((8, 8), (64, 64)), "Winograd F(2x2, 3x3)", "direct"),
    "quantised, few channels": (qconv((32, 32), (16, 16)), "direct", "direct"),
    "quantised, int16 weights": (qconv((14, 14), (256, 256), weight_type=6), "direct", "direct"),
    "quantised, sums might overflow": (qconv((28, 28), (1828, 64)), "direct", "direct"),
}


EMPTY = {
    "no images": conv((9, 9), (8, 8), batch=0),
    "no pixels": Problem("conv2d", {**conv((9, 9), (8, 8)).sizes, "out_height": 0}),
    "no channels": conv((9, 9), (0, 8)),
    "nothing quantised": qconv((9, 9), (8, 8), batch=0),
    "no rows": Problem("gemm", {"m": 0, "n": 3, "k": 4}),
    "no depth": Problem("gemm", {"m": 2, "n": 3, "k": 0}),
    "no product": Problem("matmul", {"batch0": 0, "batch1": 1, "m": 0, "n": 0, "k": 0, "turned_a": 0, "turned_b": 0}),
}


@pytest.mark.parametrize("name", EMPTY)
def test_what_is_empty_has_an_estimate(name):
    problem = EMPTY[name]
    for candidate in problem.candidates(8):
        assert problem.seconds(candidate, AVX2) >= 0


@pytest.mark.parametrize("layer", ["56, 64 channels", "2x2 pixels"])
def test_estimates_do_not_depend_on_the_batch(layer):
    """So a model with an open batch size packs its weights once."""
    problem = GOLDEN[layer][0]
    many = Problem("conv2d", {**problem.sizes, "batch": 64})
    assert chosen([many], Settings()) == chosen([problem], Settings())


def program_of(problems: Sequence[Problem], copies: Mapping[int, int] | None = None) -> Program:
    """A program of calls in the neutral form, each with a constant of its own."""
    calls = []
    for number, problem in enumerate(problems):
        call = trial_of(problem, problem.candidates(8)[0]).instructions[0]
        params = {**call.params, "algorithm": 0}
        operands = (*call.operands[:2], Operand("constant", (copies or {}).get(number, number)), *call.operands[3:])
        calls.append(Instruction(call.kernel, operands, params))
    return Program("net", (), (), (), 0, tuple(calls))


def chosen(problems: Sequence[Problem], settings: Settings, on: Processor = AVX2) -> list[str]:
    return [call.algorithm for call in choose(program_of(problems), settings, on).instructions]


@pytest.mark.parametrize("layer", GOLDEN)
def test_golden_choices(layer):
    problem, avx2, avx512 = GOLDEN[layer]
    assert chosen([problem], Settings()) == [avx2]
    assert chosen([problem], Settings(), AVX512) == [avx512]


def test_estimates_leave_the_blocks_to_the_kernel():
    for call in choose(program_of([p for p, *_ in GOLDEN.values()]), Settings(), AVX2).instructions:
        assert {call.params.get(name, 0) for name in ("block_rows", "panel_order", "group_channels")} == {0}


def test_the_kernel_follows_the_algorithm():
    problems = [problem for problem, *_ in GOLDEN.values()]
    for call in choose(program_of(problems), Settings(), AVX2).instructions:
        assert "winograd" in call.kernel if "Winograd" in call.algorithm else call.kernel in ("conv2d_f32", "qconv2d")


BIG, SMALL, STRIDED = conv((14, 14), (256, 256)), conv((2, 2), (64, 64)), conv((56, 56), (64, 64), 3, 2)


@pytest.mark.parametrize(
    ("winograd", "expected"),
    [
        (False, ["direct", "direct", "direct"]),
        ("auto", ["Winograd F(4x4, 3x3)", "direct", "direct"]),
        (True, ["Winograd F(4x4, 3x3)", "Winograd F(2x2, 3x3)", "direct"]),
    ],
)
def test_winograd_modes(winograd, expected):
    assert chosen([BIG, SMALL, STRIDED], Settings(winograd)) == expected


def extra(problem: Problem, name: str) -> int:
    sizes = {c.name: c.weight_bytes for c in problem.candidates(8)}
    return sizes[name] - sizes["direct"]


def test_layers_that_gain_most_per_byte_get_the_memory_first():
    few, many = conv((56, 56), (64, 64)), BIG
    assert extra(few, "Winograd F(4x4, 3x3)") < extra(many, "Winograd F(2x2, 3x3)")
    allowance = Allowance(extra(few, "Winograd F(4x4, 3x3)"))
    assert chosen([many, few], Settings(allowance=allowance)) == ["direct", "Winograd F(4x4, 3x3)"]
    assert allowance.bytes == 0


def test_a_smaller_form_is_taken_where_the_larger_one_has_no_room():
    allowance = Allowance(extra(BIG, "Winograd F(2x2, 3x3)") + 100)
    assert chosen([BIG], Settings(allowance=allowance)) == ["Winograd F(2x2, 3x3)"]
    assert allowance.bytes == 100


def test_the_allowance_is_shared_by_the_regions_of_a_plan_and_only_auto_keeps_to_it():
    settings = Settings(allowance=Allowance(extra(BIG, "Winograd F(4x4, 3x3)")))
    assert chosen([BIG], settings) == ["Winograd F(4x4, 3x3)"]
    assert chosen([BIG], settings) == ["direct"]
    assert chosen([BIG], settings.for_plan(1)) == ["Winograd F(4x4, 3x3)"]
    assert chosen([BIG], Settings(True, allowance=Allowance(0))) == ["Winograd F(4x4, 3x3)"]


@pytest.mark.parametrize("seed", range(20))
def test_the_allowance_is_never_overdrawn_and_pays_for_what_is_taken(seed):
    rng = np.random.default_rng(seed)
    problems = [conv((n, n), (c, d)) for n, c, d in rng.integers(2, 80, (12, 3)).tolist()]
    total = int(rng.integers(0, 20_000_000))
    settings = Settings(allowance=Allowance(total))
    spent = sum(extra(p, a) for p, a in zip(problems, chosen(problems, settings), strict=True))
    assert spent == total - settings.allowance.bytes <= total


def test_calls_over_the_same_weights_pay_for_them_once():
    settings = Settings(allowance=Allowance(extra(BIG, "Winograd F(4x4, 3x3)")))
    program = program_of([BIG, BIG], {1: 0})
    assert [c.algorithm for c in choose(program, settings, AVX2).instructions] == ["Winograd F(4x4, 3x3)"] * 2


def test_measurements_overrule_estimates():
    seconds = {"direct": 1e-3, "Winograd F(2x2, 3x3)": 2e-3, "Winograd F(4x4, 3x3)": 3e-3}
    assert chosen([BIG], Settings(measured={BIG.key: seconds})) == ["direct"]
    assert chosen([BIG], Settings(True, measured={BIG.key: seconds})) == ["Winograd F(2x2, 3x3)"]
    assert chosen([SMALL], Settings(measured={BIG.key: seconds})) == ["direct"]


def test_measured_blocks_must_gain_more_than_noise():
    shaped = next(c for c in BIG.candidates(8, shaped=True) if c.is_shaped and c.algorithm == 1)
    for share, expected in ((1 - SHAPE_GAIN / 2, 0), (1 - SHAPE_GAIN * 2, shaped.params["block_rows"])):
        measured = {BIG.key: {"direct": 1e-3, shaped.name: share * 1e-3}}
        (call,) = choose(program_of([BIG]), Settings(measured=measured), AVX2).instructions
        assert (call.algorithm, call.params["block_rows"]) == ("direct", expected)


def test_a_log_of_candidates_that_are_no_more_leaves_the_estimate():
    assert chosen([BIG], Settings(measured={BIG.key: {"fft": 1e-9}})) == ["Winograd F(4x4, 3x3)"]


def network() -> onnx.ModelProto:
    """Two 3x3 convolutions on images of any batch size, and a product."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((32, 16, 3, 3), np.float32) / 12,
        "w2": rng.standard_normal((16, 32, 3, 3), np.float32) / 17,
        "w3": rng.standard_normal((20, 10), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "activation"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "second", pads=[1] * 4),
        helper.make_node("MatMul", ["c", "w3"], ["y"], "last"),
    ]
    x = np.zeros(SHAPES["x"], np.float32)
    return make_model(nodes, {"x": x}, weights, ["y"], symbolic={"x": ["N", 16, 24, 20]})


SHAPES = {"x": (1, 16, 24, 20)}


@pytest.mark.parametrize("winograd", [False, True, "auto"])
def test_models_agree_whatever_is_chosen(winograd):
    x = np.random.default_rng(1).standard_normal(SHAPES["x"], np.float32)
    module = tinycomp.compile(network(), shapes=SHAPES, threads=1, options={"c": {"winograd": winograd}})
    expected = tinycomp.compile(network(), "host", shapes=SHAPES)(x)
    np.testing.assert_allclose(module(x), expected, rtol=1e-4, atol=1e-4)
    layers = module.report().layers
    assert [layer.sources for layer in layers] == [("first", "activation"), ("second",)]
    assert {"Winograd" in layer.algorithm for layer in layers} == {winograd is not False}
    assert [layer.kernel for layer in module.report().how("activation")] == [layers[0].kernel]
    counts = Counter(layer.algorithm for layer in layers)
    assert f"Convolutions: {', '.join(f'{n} {name}' for name, n in counts.most_common())}." in str(module.report())
    algorithms_of_rows = [row.algorithm for row in module.profile({"x": x}, runs=1).rows if row.algorithm]
    assert algorithms_of_rows == [layer.algorithm for layer in layers]


def test_another_value_is_refused():
    text = r'target c, option winograd: .* does not take this value; expected True, False or "auto"; found \'always\''
    with pytest.raises(OptionError, match=text):
        tinycomp.compile(network(), options={"c": {"winograd": "always"}})


@pytest.mark.parametrize("winograd", [False, "auto"])
def test_a_saved_module_keeps_to_it_for_every_size(winograd, tmp_path):
    """With open sizes, programs are generated after loading, too."""
    tinycomp.compile(network(), threads=1, options={"c": {"winograd": winograd}}).save(tmp_path / "net.tcm")
    module = tinycomp.load(tmp_path / "net.tcm")
    x = np.random.default_rng(1).standard_normal((3, *SHAPES["x"][1:]), np.float32)
    profile = module.profile({"x": x}, runs=1)
    found = {"Winograd" in row.algorithm for row in profile.rows if row.algorithm}
    assert found == {winograd is not False}
