"""Regions that are generated as C: running them, failing, saving them."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tinycomp
from tests.runtime.csource.c_sources import (
    SIGNATURE,
    X,
    builds,
    cache,
    doubling,
    function_of,
    graph_of,
    loop_over,
    target_of,
    times,
)
from tinycomp.errors import ArtifactError, ExecutionError, TargetError
from tinycomp.ir.graph import Node
from tinycomp.runtime.archive import read_archive
from tinycomp.runtime.cache import CCache
from tinycomp.runtime.csource.region import CRegion, Origin
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.spec import TensorSpec

__all__ = ["builds", "cache"]

ORIGIN = Origin("gen", "gen_0", "")
ROOT = Path(__file__).resolve().parents[3]
F32 = TensorSpec("x", "float32", (2, 3))


def copy_of(size: int) -> CSource:
    return function_of(
        f"for (long i = 0; i < {size}; ++i) ((char *)outputs[0])[i] = ((const char *)inputs[0])[i];",
    )


# Running -------------------------------------------------------------------------------------------------------------


def test_a_region_runs_and_is_checked_against_the_reference() -> None:
    module = tinycomp.compile(doubling(), times(), verify=True)
    np.testing.assert_array_equal(module(X), 2 * X)
    assert [region.target for region in module.report().regions] == ["gen"]


def test_wrong_code_is_noticed_when_verified() -> None:
    with pytest.raises(tinycomp.TinycompError, match="the region differs from the numpy kernels"):
        tinycomp.compile(doubling(), times("3"), verify=True)


def test_operands_that_are_not_contiguous_are_copied() -> None:
    module = tinycomp.compile(doubling(), times())
    np.testing.assert_array_equal(module(np.asfortranarray(X)), 2 * X)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float64", "bfloat16", "float8_e4m3fn", "int4", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_type_and_size_reaches_c_as_it_is(dtype: str, shape: tuple[int, ...]) -> None:
    spec = TensorSpec("x", dtype, shape)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(spec.numpy_dtype)
    (result,) = CRegion(copy_of(array.nbytes), [spec], [spec], ORIGIN)([array])
    assert result.dtype == array.dtype
    assert result.shape == shape
    assert result.tobytes() == array.tobytes()
    assert dtype != "bfloat16" or result.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    "wrong", [X.astype(np.float64), X[:1], X.reshape(3, 2), X.reshape(-1)], ids=["dtype", "size", "shape", "rank"]
)
def test_nothing_but_what_was_compiled_for_reaches_c(wrong: np.ndarray) -> None:
    region = CRegion(copy_of(X.nbytes), [F32], [F32], ORIGIN)
    with pytest.raises(
        ExecutionError, match=r"^gen, region gen_0: an operand does not fit.*expected float32\[2, 3\]; f"
    ):
        region([wrong])


@pytest.mark.parametrize(
    "spec", [TensorSpec("s", "string", (2,)), TensorSpec("s", "float32", ("N",)), TensorSpec("s", "seq<int8[]>", None)]
)
def test_what_c_cannot_hold_is_refused(spec: TensorSpec) -> None:
    with pytest.raises(
        TargetError, match=r'^gen, region gen_0: "s" cannot be handed to C; expected a tensor of numbers'
    ):
        CRegion(copy_of(0), [spec], [F32], ORIGIN)


def test_symbolic_sizes_are_compiled_as_they_come(cache: CCache, builds: list[str]) -> None:
    graph = graph_of("%two: float32[] = const 2.0\n%y = Mul(%x, %two)", "%x: float32[N, 3]")
    module = tinycomp.compile(graph, times())
    for rows in (1, 4, 1):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(module(x), 2 * x)
    assert len(builds) == len(cache.entries()) == 2


def test_scratch_memory_is_aligned_and_belongs_to_one_call() -> None:
    slow = function_of(
        "const float *x = inputs[0]; float *y = outputs[0], *t = scratch;",
        "if ((unsigned long long)scratch % 64) return 1;",
        "for (int k = 0; k < 2000; ++k) {",
        "  for (long i = 0; i < 4096; ++i) t[i] = x[i] + (float)k;",
        "  for (long i = 0; i < 4096; ++i) if (t[i] != x[i] + (float)k) return 2;",
        "}",
        "for (long i = 0; i < 4096; ++i) y[i] = t[i];",
    )
    source = CSource(slow.text, slow.function, scratch_bytes=4096 * 4)
    spec = TensorSpec("x", "float32", (4096,))
    region = CRegion(source, [spec], [spec], ORIGIN)
    inputs = [np.full(4096, k, np.float32) for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: region([x])[0], inputs * 4))
    for x, y in zip(inputs * 4, results, strict=True):
        np.testing.assert_array_equal(y, x + np.float32(1999))


def test_threads_run_c_at_the_same_time() -> None:
    """Each call waits for the other through memory that both are given: it only ends if the lock of Python is free."""
    meet = function_of(
        "volatile int *a = (volatile int *)inputs[0], *b = (volatile int *)inputs[1];",
        "*a = 1;",
        "for (long i = 0; i < 20000000000L; ++i) if (*b) { *(int *)outputs[0] = 1; return 0; }",
        "*(int *)outputs[0] = 0;",
    )
    flag = TensorSpec("flag", "int32", ())
    region = CRegion(meet, [flag, flag], [flag], ORIGIN)
    one, other = np.zeros((), np.int32), np.zeros((), np.int32)
    results: list[int] = []
    calls = [
        threading.Thread(target=lambda p=p: results.append(int(region(p)[0]))) for p in ([one, other], [other, one])
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert results == [1, 1]


def test_eight_threads_compile_and_run_the_same_module(cache: CCache) -> None:
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda _: tinycomp.compile(doubling(), times()), range(8)))
    for module in modules:
        np.testing.assert_array_equal(module(X), 2 * X)
    assert len(cache.entries()) == 1


def test_names_of_a_model_never_get_out_of_hand() -> None:
    from examples.c_source_target import TARGET

    names = [
        "*/ int main; /*",
        'q"q',
        "a\nb",
        "a\\",
        "??/",
        "int",
        "../../x",
        "é",
        "n" * 100_000,
        "#if 0",
        "i",
        "inputs",
    ]
    graph = tinycomp.Graph("*/ hostile\n", opsets={"": 17})
    value = graph.add_input("*/ x\n", tinycomp.ir.TensorType("float32", (2, 3)))
    for name in names:
        weight = graph.add_const(np.full((3,), 2, np.float32), f"{name}/w")
        value = graph.add("Add", [value, weight], outputs=[name], sources=[name]).output
    graph.set_outputs([value], ["result\n*/"])
    module = tinycomp.compile(graph, TARGET, verify=True)
    np.testing.assert_array_equal(module(X), X + np.float32(2 * len(names)))


# Failing -------------------------------------------------------------------------------------------------------------


def test_a_function_may_say_that_it_failed() -> None:
    target = target_of("Mul", lambda node: function_of("return 7;"))
    module = tinycomp.compile(doubling(), target)
    with pytest.raises(
        ExecutionError, match=r"^gen, region gen_0: the region's C function reports a failure.*found 7$"
    ):
        module(X)


def test_the_compilers_message_is_shown_with_the_region() -> None:
    broken = target_of("Mul", lambda node: function_of("nonsense;"))
    with pytest.raises(TargetError) as caught:
        tinycomp.compile(doubling(), broken)
    assert caught.value.message == "the C compiler refuses the generated source"
    assert caught.value.where == "gen, region gen_0"
    assert "region.c:2" in caught.value.snippet
    assert "nonsense" in caught.value.snippet


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (CSource("int f(const float *x, float *y) { return 0; }", "f"), "incompatible"),
        (CSource("int f(void) { return 0; }", "g"), "undeclared"),
        (CSource(function_of().text, "f", libraries=("no_such_library",)), "no_such_library"),
        (CSource(function_of().text, "f", flags=("-no-such-flag",)), "no-such-flag"),
        (CSource(f"#include <no_such_header.h>\n{function_of().text}", "f"), "no_such_header"),
    ],
    ids=["signature", "name", "library", "flag", "header"],
)
def test_what_does_not_fit_is_a_compile_error(source: CSource, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        CRegion(source, [F32], [F32], ORIGIN)


def test_what_does_not_load_is_an_error() -> None:
    source = CSource(f"void nowhere(void);\n{function_of('nowhere();').text}", "f")
    with pytest.raises(TargetError, match=r"^gen, region gen_0: the compiled source does not load: .*nowhere"):
        CRegion(source, [F32], [F32], ORIGIN)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CC": "no-such-cc"}, 'CC="no-such-cc": there is no C compiler; expected one of no-such-cc in PATH'),
        ({"CC": "", "PATH": "/no/such/folder"}, "there is no C compiler; expected one of cc, gcc, clang in PATH"),
        ({"CC": "false"}, "the C compiler does not tell its version"),
    ],
)
def test_no_compiler(variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TargetError) as caught:
        tinycomp.compile(doubling(), times())
    assert message in str(caught.value)
    assert variables["CC"] == "false" or "install gcc or clang" in caught.value.hint


def test_cc_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -DFACTOR=5.0f")
    np.testing.assert_array_equal(tinycomp.compile(doubling(), times("FACTOR"))(X), 5 * X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": "f; int g"}, "the function's name is not a C identifier; found 'f; int g'"),
        ({"text": " \n"}, "the C source is not a text"),
        ({"flags": "-O2"}, "flags must be a list; found '-O2'"),
        ({"libraries": [1]}, "libraries must be texts"),
        ({"scratch_bytes": -1}, "scratch_bytes is negative"),
        ({"constants": [np.array(["a"], object)]}, "a constant holds texts"),
    ],
)
def test_source_that_is_none(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TargetError, match=f"^CSource: {message}"):
        CSource(**{"text": "int f;", "function": "f", **arguments})  # type: ignore[arg-type]


def test_text_that_no_file_can_hold() -> None:
    with pytest.raises(TargetError, match=r"^gen, region gen_0: the C text cannot be written as UTF-8"):
        CRegion(CSource(f"/* \ud800 */ {function_of().text}", "f"), [F32], [F32], ORIGIN)


# Headers and libraries -----------------------------------------------------------------------------------------------


def test_a_changed_header_is_noticed(tmp_path: Path, cache: CCache, builds: list[str]) -> None:
    def generate(node: Node) -> CSource:
        made = loop_over(node, "x[i] * FACTOR")
        return CSource(f'#include "vendor.h"\n{made.text}', "f", made.constants, include_dirs=[str(headers)])

    headers = tmp_path / "include"
    headers.mkdir()
    for factor in (2.0, 3.25):
        (headers / "vendor.h").write_text(f"#define FACTOR {factor}f\n")
        for _ in range(2):
            module = tinycomp.compile(doubling(), target_of("Mul", generate))
            np.testing.assert_array_equal(module(X), np.float32(factor) * X)
    assert len(builds) == len(cache.entries()) == 2


def test_a_vendor_library_is_linked_and_found_again(tmp_path: Path) -> None:
    (tmp_path / "vendor.c").write_text("float vendor(float x) { return 9.0f * x; }\n")
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libvendor.so"), str(tmp_path / "vendor.c")]
    subprocess.run(command, check=True)

    def generate(node: Node) -> CSource:
        made = loop_over(node, "vendor(x[i])")
        text = f"float vendor(float);\n{made.text}"
        return CSource(text, "f", made.constants, libraries=["vendor"], library_dirs=[str(tmp_path)])

    np.testing.assert_array_equal(tinycomp.compile(doubling(), target_of("Mul", generate))(X), 9 * X)


# Saving --------------------------------------------------------------------------------------------------------------


def test_loading_asks_the_target_and_uses_the_cache(tmp_path: Path, cache: CCache, builds: list[str]) -> None:
    tinycomp.compile(doubling(), times()).save(tmp_path / "m.tcm")
    assert len(builds) == 1
    module = tinycomp.load(tmp_path / "m.tcm", targets=[times()])
    np.testing.assert_array_equal(module(X), 2 * X)
    assert len(builds) == 1
    cache.prune()
    np.testing.assert_array_equal(tinycomp.load(tmp_path / "m.tcm", targets=[times()])(X), 2 * X)
    assert len(builds) == 2
    with pytest.raises(TargetError, match='there is no target "gen"'):
        tinycomp.load(tmp_path / "m.tcm")


def forged(module: tinycomp.Module, path: Path) -> Path:
    """Save a module with other C source than the target's, and right checksums."""
    module.save(path)
    archive = read_archive(path)
    (entry,) = archive.manifest["programs"]
    entry["source"]["text"] = entry["source"]["text"].replace("x[i] *", "100 * x[i] *")
    path.write_bytes(archive.to_bytes())
    return path


def test_c_source_in_a_file_runs_only_on_request(tmp_path: Path) -> None:
    path = forged(tinycomp.compile(doubling(), times()), tmp_path / "m.tcm")
    np.testing.assert_array_equal(tinycomp.load(path, targets=[times()])(X), 2 * X)
    np.testing.assert_array_equal(tinycomp.load(path, targets=[times()], trusted=True)(X), 200 * X)
    np.testing.assert_array_equal(tinycomp.load(path, trusted=True)(X), 200 * X)


def test_damaged_source_in_a_file(tmp_path: Path) -> None:
    tinycomp.compile(doubling(), times()).save(tmp_path / "m.tcm")
    archive = read_archive(tmp_path / "m.tcm")
    archive.manifest["programs"][0]["source"]["function"] = "f; evil"
    with pytest.raises(ArtifactError, match="the description of C source is damaged"):
        tinycomp.load(archive.to_bytes(), trusted=True)


def test_a_pickled_module_runs_in_a_process_without_the_target(tmp_path: Path) -> None:
    module = tinycomp.compile(doubling(), times())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(module))(X), 2 * X)
    (tmp_path / "m.pickle").write_bytes(pickle.dumps(module))
    script = (
        "import pathlib, pickle, numpy as np\n"
        "module = pickle.loads(pathlib.Path('m.pickle').read_bytes())\n"
        "print(module(np.arange(6, dtype=np.float32).reshape(2, 3)).tolist())\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TINYCOMP_CACHE": str(tmp_path / "elsewhere")}
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == str((2 * X).tolist()), run.stderr


def test_source_can_be_written_down_and_read_again() -> None:
    source = CSource("int f;", "f", [X], 64, ["-O1"], ["m"], ["/a"], ["/b"])
    again = CSource.from_dict(source.to_dict(), source.constants)
    assert again == source
    assert source.to_text() == "int f;"
    assert SIGNATURE in function_of().text
