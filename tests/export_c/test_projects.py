"""Exported projects: built by a compiler without a warning, their results are those of the module."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import tinycomp
from examples.c_source_target import TARGET
from tests.host_only import DOMAIN, NAME
from tests.models import MISSING, models_folder
from tinycomp.data import digits_model
from tinycomp.errors import MemoryLimitError, UnsupportedError
from tinycomp.export_c import Project, to_c, to_c_within
from tinycomp.export_c.sources import files_of, headers_of
from tinycomp.export_c.trial import missing_tools, run_trial
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.library import kernel_names
from tinycomp.runtime.native.processor import available_isas

TINY = ("ad_autoencoder", "ic_resnet8", "kws_dscnn", "vww_mobilenet")


def module_of(path: Path, memory: str = "fast") -> Module:
    graph = tinycomp.from_onnx(path)
    shapes = {v.name: tuple(d if isinstance(d, int) else 1 for d in v.shape or ()) for v in graph.inputs}
    return tinycomp.compile(graph, "c", shapes=shapes, threads=1, options={"c": {"memory": memory}})


def parsed(text: str, **shapes: tuple[int, ...]) -> Module:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    return tinycomp.compile(model, "c", shapes=shapes or None, threads=1)


def try_or_skip(project: Project) -> None:
    if missing := missing_tools(project.processor):
        pytest.skip(f"{', '.join(missing)} is not installed")
    trial = run_trial(project, "-Og")
    assert trial.passed, trial.output


@pytest.mark.long
@pytest.mark.parametrize(("quantized", "cpu"), [(False, "generic"), (True, "generic"), (True, "x86-64-v3")])
def test_digits_have_the_results_of_the_module(quantized: bool, cpu: str) -> None:
    if cpu == "x86-64-v3" and "avx2" not in available_isas():
        pytest.skip("this processor has no AVX2")
    try_or_skip(to_c(module_of(digits_model(quantized=quantized)), cpu, name="digits"))


@pytest.mark.long
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4", "cortex-m55", "rv32imc"])
def test_digits_on_emulated_microcontrollers(cpu: str) -> None:
    try_or_skip(to_c(module_of(digits_model(quantized=True)), cpu))


@pytest.mark.parametrize(
    ("name", "kind", "cpu"),
    [
        *itertools.product(TINY, ["int8"], ["cortex-m4"]),
        *itertools.product(("kws_dscnn", "vww_mobilenet"), ["int8"], ["cortex-m55"]),
        ("ic_resnet8", "fp32", "generic"),
    ],
)
def test_tiny_models(name: str, kind: str, cpu: str) -> None:
    folder = models_folder()
    if folder is None:
        pytest.skip(MISSING)
    path = folder / f"{name}_{kind}.onnx"
    data = np.load(path.with_suffix(".npz"))
    module = module_of(path, "least" if cpu == "cortex-m4" else "fast")
    feeds = [data[key][:1] for key in data.files if key.startswith(("input", "x"))][: len(module.inputs)]
    matching = len(feeds) == len(module.inputs) and feeds[0].shape == module.inputs[0].shape
    project = to_c(module, cpu, feeds=feeds if matching else None)
    assert cpu != "cortex-m4" or project.memory_bytes <= (2 if name == "ad_autoencoder" else 40) << 10
    try_or_skip(project)


def compiled(folder: Path, compiler: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Compile and link a project that was written to a folder, with warnings as errors."""
    sources = [path.name for path in sorted(folder.glob("*.c"))]
    include = ["-I.", "-Iruntime/src", "-Iruntime/include"]
    command = [compiler, *options, "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", *include, *sources]
    return subprocess.run([*command, "-o", "test", "-lm"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("options", [("-O0",), ("-O2", "-m32", "-msse2", "-mfpmath=sse")], ids=" ".join)
def test_compilers_and_widths(compiler: str, options: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    if "-m32" in options:
        (tmp_path / "empty.c").write_text("#include <stdio.h>\nint main(void) { return 0; }\n")
        if compiled(tmp_path, compiler, "-m32").returncode:
            pytest.skip("there is no C library for 32 bits")
        (tmp_path / "empty.c").unlink()
    to_c(module_of(digits_model(quantized=True))).write(tmp_path)
    built = compiled(tmp_path, compiler, *options)
    assert built.returncode == 0, built.stderr
    assert subprocess.run(["./test"], cwd=tmp_path, check=False).returncode == 0
    if "-m32" in options:
        assert "build with -msse2 -mfpmath=sse" in compiled(tmp_path, compiler, "-m32", "-mno-sse").stderr


MIXED = (
    "m (float[6, 70] x, int64[6, 2] i) => (float[70, 6] y, float[6, 2] z, int8[6, 70] q) "
    "{ t = Transpose<perm = [1, 0]>(x) a = Constant<value_float = 1.5>() b = Mul(t, a) y = Tanh(b) "
    "z = GatherElements<axis = 1>(x, i) s = Constant<value_float = 0.25>() "
    "o = Constant<value = int8 {3}>() q = QuantizeLinear(x, s, o) }"
)
"""States of rows, of transpositions and of element-wise programs, with immediates."""


@pytest.mark.long
@pytest.mark.parametrize("cpu", ["generic-be", "cortex-m0"])
def test_states_are_packed_for_other_processors(cpu: str) -> None:
    """Where numbers have their bytes in the other order, lie in vectors of other widths, and pointers are shorter."""
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((6, 70)).astype(np.float32), rng.integers(0, 70, (6, 2))]
    try_or_skip(to_c(parsed(MIXED), cpu, feeds=feeds))


@pytest.mark.long
@pytest.mark.parametrize("cpu", ["armv8-a", "generic-be"])
def test_digits_on_processors_that_are_emulated_for_programs(cpu: str) -> None:
    try_or_skip(to_c(module_of(digits_model(quantized=True)), cpu))


def test_results_that_differ_fail_the_test() -> None:
    module = parsed("m (float[4] x) => (float[4] y) { y = Exp(x) }")
    project = to_c(module)
    wrong = {**project.files, "test.c": re.sub(r"(y_expected\[4\] = \{\s*)", r"\g<1>9.5f + ", project.files["test.c"])}
    assert wrong["test.c"] != project.files["test.c"]
    if missing_tools(project.processor):
        pytest.skip("there is no compiler")
    trial = run_trial(dataclasses.replace(project, files=wrong), "-Og")
    assert not trial.passed
    assert "1 of 4 results differ" in trial.output


def test_what_is_done_to_no_elements_leaves_nothing_behind() -> None:
    try_or_skip(to_c(parsed("m (float[0, 3] x, float[3] z) => (float[0, 3] y, float[3] w) { y = Exp(x) w = Neg(z) }")))


def test_a_result_whose_rows_are_found_in_the_run_is_refused_by_name() -> None:
    text = (
        "m (int64 t, float[4] x) => (float[k, 4] y) { s, y = Loop(t, , x) <body = b (int64 i, bool q, float[4] a) => "
        "(bool r, float[4] n, float[4] m) { r = Identity(q) n = Neg(a) m = Exp(a) }> }"
    )
    with pytest.raises(UnsupportedError, match=r'"y": a size is found in the run|a result of control flow'):
        to_c(parsed(text))


def test_the_text_is_the_same_every_time() -> None:
    module = module_of(digits_model(quantized=True))
    assert to_c(module).files == to_c(module_of(digits_model(quantized=True))).files


def test_only_the_kernels_in_use_are_there() -> None:
    project = to_c(parsed("m (float[2, 3] x) => (float[3, 2] y) { y = Transpose<perm = [1, 0]>(x) }"))
    assert project.kernels == ("copy",)
    families = {
        name.split("/")[2] for name in project.files if name.startswith("runtime/kernels/") and "/" in name[16:]
    }
    assert families == {"copy"}


def test_every_kernel_has_its_files() -> None:
    assert len(headers_of(kernel_names())) <= len(kernel_names())
    for isa in ("scalar", "helium", "avx2", "neon"):
        files = files_of(kernel_names(), [f"simd_{isa}.h"])
        assert {name for name in files if name.startswith("src/simd_")} == {f"src/simd_{isa}.h"}


def test_nothing_allocates_and_nothing_writable_is_global(tmp_path: Path) -> None:
    if shutil.which("cc") is None or shutil.which("nm") is None:
        pytest.skip("there is no compiler")
    project = to_c(module_of(digits_model(quantized=True)))
    project.write(tmp_path)
    subprocess.run(["make", "-s", "CFLAGS=-Og"], cwd=tmp_path, check=True, capture_output=True)
    symbols = subprocess.run(["nm", "libmodel.a"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    undefined = set(re.findall(r"^ +U (\w+)$", symbols, re.MULTILINE)) - {"model_weights"}
    mathematics = {"expf", "rintf", "logf", "ldexpf", "sqrtf", "fmaf", "roundf"}
    allowed = {"memcpy", "memmove", "memset", "__stack_chk_fail", *mathematics}
    assert undefined - {"_GLOBAL_OFFSET_TABLE_"} <= allowed
    writable = re.findall(r"^[0-9a-f]+ [bBDC] ([\w.]+)$", symbols, re.MULTILINE)
    assert [name for name in writable if "memory" not in name] == []


def test_runs_in_memories_of_their_own(tmp_path: Path) -> None:
    """Two runs, each in memory of the caller's, do not see each other; memory that is not aligned is refused."""
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    to_c(parsed("m (float[4] x) => (float[4] y) { a = Exp(x) b = Transpose(a) y = Softmax(b) }")).write(tmp_path)
    (tmp_path / "main.c").write_text(
        '#include "model.h"\n'
        "static _Alignas(MODEL_ALIGNMENT) unsigned char one[MODEL_MEMORY_BYTES], two[MODEL_MEMORY_BYTES + 64];\n"
        "int main(void) {\n"
        "  const float x[4] = {0, 0, 0, 0};\n  float y[4], z[4];\n"
        "  if (model_run_in(one, x, y) || model_run_in(two, x, z)) return 1;\n"
        "  for (int i = 0; i < 4; i++) if (y[i] != 0.25f || z[i] != y[i]) return 2;\n"
        "  return model_run_in(two + 1, x, y) != MODEL_INVALID || model_run_in(NULL, x, y) != MODEL_INVALID;\n}\n"
    )
    flags = ["-std=c11", "-DMODEL_NO_STATIC_MEMORY", "-I.", "-Iruntime/src", "-Iruntime/include"]
    sources = ["main.c", "model.c", "model_weights.c"]
    subprocess.run(["cc", *flags, *sources, "-lm", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run(["./main"], cwd=tmp_path).returncode == 0


def test_a_result_that_is_an_input_is_copied() -> None:
    try_or_skip(to_c(parsed("m (float[4] x) => (float[4] y, float[4] z) { y = Identity(x) z = Exp(x) }")))


SANITIZED = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.long
def test_sizes_with_bounds() -> None:
    """Several runs at sizes of their own, the greatest among them, in memory for the greatest."""
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    text = (
        "m (float[n, 4] x, float[k, 4] z) => (float[p, 4] c, float[q] y, int64[1, r] i) { "
        "c = Concat<axis = 0>(x, z) e = Exp(x) t = Transpose(e) f = MatMul(c, t) "
        "y = ReduceMax<axes = [1], keepdims = 0>(f) o = Constant<value_float = 9.0>() "
        "g = Greater(y, o) i = NonZero(g) }"
    )
    project = to_c(parsed(text, x=((1, 12), 4), z=((0, 5), 4)))  # type: ignore[arg-type]
    assert project.files["test.c"].count("model_run(") == 4
    assert "int64_t n; /* n, 1 to 12 */" in project.files["model.h"]
    assert "int64_t out_i[2];" in project.files["model.h"]
    trial = run_trial(project, *SANITIZED)
    assert trial.passed, trial.output


def test_sizes_are_checked(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    text = "m (float[n] x, float[k] z) => (float[n] y) { y = Add(x, z) }"
    to_c(parsed(text, x=((2, 4),), z=((2, 4),))).write(tmp_path)  # type: ignore[arg-type]
    (tmp_path / "test.c").write_text(
        '#include "model.h"\n'
        "int main(void) {\n  const float x[4] = {1, 2, 3, 4};\n  float y[4];\n  model_shapes shapes;\n"
        "  const model_sizes good = {3, 3}, low = {1, 1}, high = {5, 5}, unequal = {2, 3};\n"
        "  return model_run(&good, x, x, y, &shapes) != MODEL_OK || shapes.out_y[0] != 3 || y[2] != 6 ||\n"
        "         model_run(&good, x, x, y, 0) != MODEL_OK || model_run(0, x, x, y, 0) != MODEL_INVALID ||\n"
        "         model_run(&low, x, x, y, 0) != MODEL_SIZES || model_run(&high, x, x, y, 0) != MODEL_SIZES ||\n"
        "         model_run(&unequal, x, x, y, 0) == MODEL_OK;\n}\n"
    )
    built = compiled(tmp_path, "cc", "-O0")
    assert built.returncode == 0, built.stderr
    assert subprocess.run(["./test"], cwd=tmp_path, check=False).returncode == 0


def test_sizes_without_bounds_are_refused_by_name() -> None:
    topk = "m (float[n] x, int64[1] k) => (float[p] y, int64[p] i) { [best] y, i = TopK(x, k) }"
    with pytest.raises(UnsupportedError, match='elements of "k" are sizes of the run'):
        to_c(parsed(topk, x=((1, 8),)))  # type: ignore[arg-type]
    flow = (
        "m (float[n] x, bool c) => (float[n] y) { [choose] y = If(c) "
        "<then_branch = a () => (float[n] b) { b = Exp(x) }, else_branch = d () => (float[n] e) { e = Neg(x) }> }"
    )
    with pytest.raises(UnsupportedError, match="choose: the sizes in control flow depend on sizes of the run"):
        to_c(parsed(flow, x=((1, 8),)))  # type: ignore[arg-type]


def test_what_has_no_form_in_c_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"odd \(tests::HostOnly\): tests::HostOnly has no form in C"):
        to_c(parsed(f"m (float[2, 2] x) => (float[2, 2] y) {{ [odd] y = {DOMAIN}.{NAME}(x) }}"))
    with pytest.raises(UnsupportedError, match='"x": a dimension has no bound'):
        to_c(parsed("m (float[n] x) => (float[n] y) { y = Exp(x) }"))


def test_names_of_processors_and_projects_are_checked() -> None:
    module = parsed("m (float[4] x) => (float[4] y) { y = Exp(x) }")
    with pytest.raises(UnsupportedError, match=r"no such processor; expected one of host, generic, .* found cortex-m5"):
        to_c(module, "cortex-m5")
    for name in ("9lives", "a b", "Model", "näme"):
        with pytest.raises(UnsupportedError, match="not a name for a project"):
            to_c(module, name=name)


def test_names_from_a_model_cannot_leave_their_comments() -> None:
    hostile = '*/ int evil; /* `|"'
    graph = tinycomp.Graph("m", opsets={"": 17})
    x = graph.add_input(hostile, tinycomp.ir.TensorType("float32", (4,)))
    graph.set_outputs([graph.add("Exp", [x], sources=[hostile]).output], [hostile])
    project = to_c(tinycomp.compile(graph, "c"))
    assert all("*/ int evil" not in text for name, text in project.files.items() if name.endswith((".c", ".h")))
    try_or_skip(project)


IF = """m (bool[1] c, float[4] x) => (float[4] y) {
    y = If (c) <
        then_branch = one () => (float[4] a) { a = Exp(x) },
        else_branch = other () => (float[4] b) { z = Neg(x) b = Softmax(z) }
    >
}"""
LOOP = """m (int64 n, bool go, float[4] x) => (float[4] y, float[3, 4] rows) {
    y, rows = Loop (n, go, x) <body = trip (int64 i, bool on, float[4] a) => (bool off, float[4] b, float[4] row) {
        off = Identity(on)
        one = Cast<to = 1>(i)
        b = Add(a, one)
        row = Exp(b)
    }>
}"""


@pytest.mark.long
@pytest.mark.parametrize("condition", [True, False])
def test_branches(condition: bool) -> None:
    feeds = [np.array([condition]), np.linspace(-1, 1, 4, dtype=np.float32)]
    try_or_skip(to_c(parsed(IF), feeds=feeds))


def test_loops(tmp_path: Path) -> None:
    """A loop gives what the module does, and another number of trips than its rows have room for is refused."""
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    module = parsed(LOOP)
    project = to_c(module, feeds=[np.array(3), np.array(True), np.ones(4, np.float32)])
    assert "for (; goes_on" in project.files["model.c"]
    project.write(tmp_path)
    (tmp_path / "test.c").write_text(
        '#include <stdio.h>\n#include "model.h"\nint main(void) {\n'
        "  const uint8_t go = 1;\n  const float x[4] = {0, 1, 2, 3};\n  float y[4], rows[12];\n"
        "  for (int64_t n = 0; n < 6; n++) {\n"
        "    if (model_run(&n, &go, x, y, rows) != (n == 3 ? MODEL_OK : MODEL_FAILED)) return 1;\n"
        '    for (int i = 0; i < 12 && n == 3; i++) printf("%.9g ", i < 4 ? y[i] + rows[i] : rows[i]);\n'
        "  }\n  return 0;\n}\n"
    )
    built = compiled(tmp_path, "cc", "-O0")
    assert built.returncode == 0, built.stderr
    done = subprocess.run(["./test"], cwd=tmp_path, check=True, capture_output=True, text=True)
    y, rows = module(np.array(3), np.array(True), np.arange(4, dtype=np.float32))
    expected = [*(y + rows[0]), *rows[1:].reshape(-1)]
    np.testing.assert_allclose(np.array(done.stdout.split(), np.float32), expected, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("weights", ["binary", "pointer"])
def test_weights_outside_of_the_source(weights: str, tmp_path: Path) -> None:
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("there is no compiler")
    module = module_of(digits_model(quantized=True))
    project = to_c(module, name="digits", weights=weights)  # type: ignore[arg-type]
    assert len(project.binaries["digits_weights.bin"]) == project.weights_bytes
    assert sum(map(len, project.files.values())) < sum(map(len, to_c(module, name="digits").files.values()))
    project.write(tmp_path)
    built = subprocess.run(["make", "check", "CFLAGS=-Og -Werror"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "0 of 10 results differ" in built.stdout


def test_regions_of_several_targets(tmp_path: Path) -> None:
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("there is no compiler")
    text = "m (float[4, 8] x) => (float[4, 8] y) { a = Tanh(x) b = Softmax(a) c = Exp(b) d = Add(c, x) y = Softmax(d) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    project = to_c(tinycomp.compile(model, [TARGET, "c"], threads=1))
    assert {"model_part_0.c", "model_part_1.c"} <= set(project.files)
    assert project.kernels == ("softmax_f32",)
    try_or_skip(project)
    project.write(tmp_path)
    built = subprocess.run(["make", "check", "CFLAGS=-Og -Werror"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr


def test_the_least_memory(tmp_path: Path) -> None:
    """A project for the fewest bytes needs fewer, says what needs most of them, and repeats calls in loops."""
    graph = tinycomp.from_onnx(digits_model(quantized=True))
    shapes = {v.name: (1, *(v.shape or ())[1:]) for v in graph.inputs}
    fast, least = (
        to_c(tinycomp.compile(graph, "c", shapes=shapes, threads=1, options={"c": {"memory": memory}}))
        for memory in ("fast", "least")
    )
    assert least.memory_bytes < fast.memory_bytes
    peak = least.memory.peak
    assert peak is not None
    assert sum(buffer.nbytes for buffer in least.memory.alive(peak.step)) == peak.nbytes
    assert least.to_dict()["peak"]["kernel"] == peak.kernel
    assert f"`{peak.kernel}`" in least.files["README.md"]
    try_or_skip(least)


def test_so_many_bytes() -> None:
    graph = tinycomp.from_onnx(digits_model(quantized=True))
    shapes = {v.name: (1, *(v.shape or ())[1:]) for v in graph.inputs}

    def build(memory: str | int) -> Module:
        return tinycomp.compile(graph, "c", shapes=shapes, threads=1, options={"c": {"memory": memory}})

    assert to_c_within(build, 12_000).memory_bytes <= 12_000 < to_c(build("fast")).memory_bytes
    with pytest.raises(MemoryLimitError, match="the model needs more memory") as failed:
        to_c_within(build, 1_000)
    assert "qconv2d" in str(failed.value)


def test_a_step_of_the_host_that_only_gives_bytes_another_shape() -> None:
    text = "a = Tanh(x) s = Constant<value_ints = [32]>() b = Reshape(a, s) y = Exp(b)"
    text = f"m (float[4, 8] x) => (float[32] y) {{ {text} }}"
    module = tinycomp.compile(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), TARGET)
    assert any(step.op == "Reshape" for step in module.plan.steps)
    project = to_c(module)
    assert "memcpy(" in project.files["model.c"]
    assert project.kernels == ()
    try_or_skip(project)
