"""Saved modules in programs without Python: the same results, and nothing in a file that can do harm."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import threading
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import onnx
import pytest

import tinycomp
from tests import records
from tests.models import folder_models, shipped_models
from tests.runtime_c.clibrary import HEADERS, LIBRARY, CModule, LibraryError, library
from tinycomp.cli import main
from tinycomp.data import digits
from tinycomp.driver.targets import resolve_targets
from tinycomp.runtime.native.module_records import MEMBER

ROOT = Path(__file__).resolve().parents[2]


HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def module_of(text: str, **options: object) -> tinycomp.Module:
    return tinycomp.compile(onnx.parser.parse_model(HEADER + text), **options)


def check(module: tinycomp.Module, *arrays: np.ndarray, threads: int = 1) -> CModule:
    """Compare the library's results with those of Python, to the bit, in two runs."""
    found = CModule(module.to_bytes(), threads=threads)
    wanted = module(*arrays)
    for _ in range(2):
        for ours, theirs in zip(found(*arrays), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    return found


MLP = """m (float[N, 4] x) => (float[N, 3] y, float[N, 8] h)
<float[4, 8] w = {1,2,3,4,5,6,7,8, 1,0,1,0,1,0,1,0, 2,2,2,2,2,2,2,2, 0,1,0,1,0,1,0,1},
 float[8, 3] v = {1,2,3, 3,2,1, 1,1,1, 2,2,2, 3,3,3, 0,1,0, 1,0,1, 2,1,2}>
{ a = MatMul(x, w)
  h = Relu(a)
  y = MatMul(h, v) }"""
LOOP = """m (int64 n, float[N] x) => (float[N] y, float[T, N] steps)
{ true = Constant<value = bool {1}>()
  y, steps = Loop(n, true, x)
    <body = b (int64 i, bool go, float[N] state) => (bool more, float[N] next, float[N] row)
    { more = Identity(go)
      next = Add(state, x)
      row = Mul(next, state) }> }"""
IF = """m (bool c, float[2, N] x) => (float[2, N] y)
{ y = If(c) <then_branch = t () => (float[2, N] p) { p = Neg(x) },
             else_branch = e () => (float[2, N] q) { s = Exp(x)
                                                     q = CumSum(s, axis) }> }""".replace(
    "{ y", "<int64 axis = {1}> { y"
)
FOUND = """m (float[N, 3] x) => (int64[2, K] places, float[K] values)
{ places = NonZero(x)
  rows = Transpose<perm = [1, 0]>(places)
  values = GatherND(x, rows) }"""
SIZES = """m (float[N, 8] x, int64[1] k) => (float[N, K] y)
{ zero = Constant<value = int64[1] {0}>()
  one = Constant<value = int64[1] {1}>()
  y = Slice(x, zero, k, one) }"""


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (MLP, [(np.arange(8, dtype=np.float32).reshape(2, 4),), (np.ones((5, 4), np.float32),)]),
        (LOOP, [(np.int64(3), np.arange(4, dtype=np.float32)), (np.int64(0), np.ones(2, np.float32))]),
        (IF, [(np.bool_(flag), np.arange(6, dtype=np.float32).reshape(2, 3)) for flag in (True, False)]),
        (FOUND, [(np.array([[0, 1, 0], [2, 0, 3]], np.float32),), (np.zeros((2, 3), np.float32),)]),
        (SIZES, [(np.arange(16, dtype=np.float32).reshape(2, 8), np.array([k])) for k in (3, 8, 0)]),
    ],
    ids=["sizes", "loop", "if", "found", "elements"],
)
def test_results_are_those_of_python(text: str, feeds: list[tuple[np.ndarray, ...]]) -> None:
    module = module_of(text)
    session = None
    for arrays in feeds:
        session = check(module, *map(np.asarray, arrays))
    assert session is not None
    for arrays in feeds:  # and with one session for all sizes
        wanted = module(*map(np.asarray, arrays))
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for ours, theirs in zip(session(*map(np.asarray, arrays)), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("path", [*shipped_models(), *folder_models()], ids=lambda path: path.stem)
def test_real_models(path: Path) -> None:
    module = tinycomp.compile(path)
    rng = np.random.default_rng(0)
    feeds = []
    for spec in module.inputs:
        shape = [d if isinstance(d, int) else 2 for d in spec.shape or ()]
        values = rng.normal(size=shape) if spec.dtype.startswith("float") else rng.integers(0, 100, shape)
        feeds.append(values.astype(spec.dtype))
    found = check(module, *feeds, threads=2)
    assert found.specs("input") == [(s.name, s.dtype, list(s.shape or ())) for s in module.inputs]
    assert found.specs("output") == [(s.name, s.dtype, list(s.shape or ())) for s in module.outputs]


def test_given_memory_and_caches_in_place() -> None:
    module = module_of(
        """m (float[4, 3] cache, float[1, 3] row, int64[1, 1] at) => (float[4, 3] next, float[4] sums)
        { next = ScatterND(cache, at, row)
          sums = ReduceSum<keepdims = 0>(next, axes) }""".replace("{ next", "<int64[1] axes = {1}> { next")
    )
    feeds = [np.zeros((4, 3), np.float32), np.ones((1, 3), np.float32), np.array([[2]])]
    found = check(module, *feeds)
    kept = np.full(4, 7, np.float32)
    found.set_output(1, kept)
    found(*feeds)
    np.testing.assert_array_equal(kept, [0, 0, 3, 0])
    found.set_output(1, feeds[1].reshape(-1))
    with pytest.raises(LibraryError, match='"sums" overlaps input "row"'):
        found(*feeds)
    found.set_output(1, np.zeros(3, np.float32))
    with pytest.raises(LibraryError, match='output "sums" has 16 bytes, and there is room for 12'):
        found(*feeds)


def test_what_does_not_fit_is_an_error() -> None:
    found = CModule(module_of(MLP, shapes={"x": (("N", 1, 6), 4)}).to_bytes())
    with pytest.raises(LibraryError, match='input "x" has not been set'):
        found()
    for array, message in (
        (np.zeros((2, 4)), 'input "x" is of type float32, not float64'),
        (np.zeros(4, np.float32), 'input "x" has 2 dimensions, not 1'),
        (np.zeros((2, 5), np.float32), 'input "x": dimension 1 is 4, not 5'),
        (np.zeros((7, 4), np.float32), 'input "x": N is 7, which is not from 1 to 6'),
    ):
        with pytest.raises(LibraryError, match=message):
            found(array)
    with pytest.raises(LibraryError, match="there is no output 0"):
        found.output(0)
    with pytest.raises(LibraryError, match="there is no input 9"):
        found.set_input(9, np.zeros(1))


def test_sessions_say_what_is_wrong() -> None:
    module = module_of("""m (float[N, 2] a, float[N, 2] b) => (float[N, 2] y, float[N, 2] z)
        { y = Add(a, b)
          z = Sub(a, b) }""")
    found = CModule(module.to_bytes())
    a, b = np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)
    with pytest.raises(LibraryError, match='input "b": N is 4 there, and 3 in another input'):
        found(a, b)
    memory = np.zeros(64, np.float32)
    found.set_output(0, memory[:6])
    found.set_output(1, memory[5:11])
    with pytest.raises(LibraryError, match=r'the memory of outputs "y" and "z" overlaps'):
        found(a, a)
    found.set_output(1, memory[6:12])
    found(a, a)
    for index in (-1, 2):
        with pytest.raises(LibraryError, match=f"there is no output {index}; the module has 2"):
            found.set_output(index, memory)
        with pytest.raises(LibraryError, match=f"there is no output {index}, or no run has ended well"):
            found.output(index)
        with pytest.raises(LibraryError, match=f"there is no input {index}; the module has 2"):
            found.set_input(index, a)
    ffi, lib, error = found.ffi, found.lib, found.error
    start = ffi.cast("char *", ffi.from_buffer(memory))
    for data, nbytes in ((start + 2, 24), (start, -1)):
        assert lib.tc_session_set_output(found.session, 0, data, nbytes, error)
        assert b"fewer than no bytes, or not aligned to its elements" in ffi.string(error.message)
    for data, rows, message in (
        (start + 2, 3, b"is not aligned to its elements"),
        (ffi.NULL, 3, b"no data, or dimensions that no memory holds"),
        (start, 1 << 61, b"no data, or dimensions that no memory holds"),
        (start, -1, b"no data, or dimensions that no memory holds"),
    ):
        name = ffi.new("char[]", b"float32")
        tensor = ffi.new("tc_tensor *", {"data": data, "dtype": name, "rank": 2, "dims": [rows, 2]})
        assert lib.tc_session_set_input(found.session, 0, tensor, error)
        assert message in ffi.string(error.message)
    with pytest.raises(LibraryError, match='input "a" has not been set'):
        CModule(module.to_bytes())()
    found.set_output(0, memory[:6])
    found.set_output(1, memory[6:12])
    found.set_input(0, a)  # inputs that are refused leave the one before where it is
    assert lib.tc_session_set_input(found.session, 0, tensor, error)
    np.testing.assert_array_equal(found()[0], a + a)


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (
            "m (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }",
            [np.ones((2, 2), np.float32)],
        ),
        ("m (int64[A, B] x) => (int64[2, K] y) { y = NonZero(x) }", [np.array([[0, 1, 0], [1, 1, 1]])]),
    ],
    ids=["of a known size", "of a size that the run finds"],
)
def test_results_are_copied_before_they_are_fed(text: str, feeds: list[np.ndarray]) -> None:
    """The next run writes where they lie."""
    module = module_of(text)
    found, memory = CModule(module.to_bytes()), np.zeros(64, feeds[0].dtype)
    (first,) = found(*feeds)
    result = found.ffi.new("tc_tensor *")
    found._check(found.lib.tc_session_output(found.session, 0, result, found.error))
    found._check(found.lib.tc_session_set_input(found.session, 0, result, found.error))
    with pytest.raises(
        LibraryError, match=r'the memory of "x" is the session.*for output "y", which a run writes: copy'
    ):
        found()
    np.testing.assert_array_equal(found(first)[0], module(first))
    found.set_output(0, memory)
    np.testing.assert_array_equal(found(*feeds)[0], first)
    found.set_output(0, memory[32:])
    found.set_input(0, memory[: first.size].reshape(first.shape))
    np.testing.assert_array_equal(found()[0], module(first))


def test_no_result_goes_to_the_memory_of_another() -> None:
    found = CModule(module_of("m (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Exp(y) }").to_bytes())
    x, result = np.ones(4, np.float32), found.ffi.new("tc_tensor *")
    found(x)
    found._check(found.lib.tc_session_output(found.session, 0, result, found.error))
    found._check(found.lib.tc_session_set_output(found.session, 1, result.data, 16, found.error))
    with pytest.raises(LibraryError, match=r'the memory of "z" is the session.*for output "y"'):
        found(x)


def test_limits() -> None:
    module = module_of(LOOP)
    found = CModule(module.to_bytes())
    found.limit(seconds=0.05)
    with pytest.raises(LibraryError, match="time"):
        found(np.int64(1 << 62), np.ones(2, np.float32))
    found.limit(nbytes=1 << 16)
    with pytest.raises(LibraryError):
        found(np.int64(10000), np.ones(200, np.float32))
    found.limit()
    assert len(found(np.int64(2), np.ones(2, np.float32))[1]) == 2


def test_eight_threads_share_a_module() -> None:
    """Each has a session of its own; results are those of one thread."""
    module = module_of(MLP)
    found = CModule(module.to_bytes(), threads=2)
    feeds = [np.full((1 + i % 3, 4), i, np.float32) for i in range(24)]
    wanted = [module(x) for x in feeds]
    failures: list[object] = []

    def work(first: int) -> None:
        session = found.beside()
        for i in range(first, first + 48):
            for ours, theirs in zip(session(feeds[i % 24]), wanted[i % 24], strict=True):
                if not np.array_equal(ours, theirs):
                    failures.append(i)

    threads = [threading.Thread(target=work, args=(3 * i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_functions_of_regions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C source of a target is compiled by whoever links the program, and passed as a function."""
    TARGET = pytest.importorskip("examples.c_source_target", reason="needs the examples").TARGET  # noqa: N806

    text = (
        HEADER
        + """m (float[2, 3] x) => (float[2, 3] y)
        <int64 axis = {1}>
        { a = Exp(x)
          b = Neg(a)
          c = CumSum(b, axis)
          y = Tanh(c) }"""
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    module = tinycomp.compile(tmp_path / "m.onnx", target=[TARGET, "c"])
    monkeypatch.setattr("tinycomp.driver.compiler.resolve_targets", lambda *_: [TARGET, *resolve_targets(["c"])])
    assert main(["compile", str(tmp_path / "m.onnx"), "--emit", "c-sources", "-o", str(tmp_path / "sources")]) == 0
    ffi, functions = cffi.FFI(), []
    sources = sorted((tmp_path / "sources").glob("*.c"))
    assert len(sources) == 2
    with pytest.raises(LibraryError, match=f'the region "{sources[0].stem}" has C source of its own'):
        CModule(module.to_bytes())
    for source in sources:
        built, name = source.with_suffix(".so"), source.stem
        subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", source, "-o", built, "-lm"], check=True)
        ffi.cdef(f"int {name}(const void *const *, void *const *, const void *const *, void *);")
        functions.append((name, built))
    loaded = [(name, ffi.dlopen(str(built))) for name, built in functions]
    pointers = [
        (name, library()[0].cast("void *", int(ffi.cast("intptr_t", ffi.addressof(f, name))))) for name, f in loaded
    ]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(CModule(module.to_bytes(), pointers)(x)[0], module(x), rtol=1e-6)


def test_models_that_need_python_say_so() -> None:
    module = module_of("m (float[N] x) => (float[N] y) { y = Neg(x) }", target="host")
    with pytest.raises(LibraryError, match="it has nodes that run on the host"):
        CModule(module.to_bytes())


def with_record(contents: bytes, record: bytes, member: str = MEMBER) -> bytes:
    """The file with another record, or another member, and checksums that fit."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(contents)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as new:
        for info in old.infolist():
            new.writestr(zipfile.ZipInfo(info.filename), record if info.filename == member else old.read(info))
    return buffer.getvalue()


def record_of(contents: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(contents)) as file:
        return file.read(MEMBER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: b"", "this is not a saved module, or it is cut off"),
        (lambda c: c[:-1], "this is not a saved module, or it is cut off"),
        (lambda c: c[: len(c) // 2], "this is not a saved module, or it is cut off"),
        (lambda c: with_record(c, b""), "it begins with something else"),
        (lambda c: with_record(c, bytes(8) + record_of(c)[8:]), 'in a record "unit": a number is out of range'),
        (lambda c: with_record(c, record_of(c)[:8] + bytes(8) + record_of(c)[16:]), "saved by another version"),
        (lambda c: with_record(c, record_of(c)[:-8]), "it ends too early"),
        (lambda c: c.replace(record_of(c), record_of(c)[:-8] + b"\1" * 8), 'the checksum is wrong of "native.bin"'),
    ],
)
def test_damaged_files(change, message: str) -> None:
    with pytest.raises(LibraryError, match=message):
        CModule(change(module_of(MLP).to_bytes()))


def test_records_that_are_cut_off() -> None:
    contents = module_of(MLP).to_bytes()
    record = record_of(contents)
    for end in range(8, len(record), 8):
        with pytest.raises(LibraryError, match=r"ends too early|out of range|run on the host|made twice|than there is"):
            CModule(with_record(contents, record[:end]))


Edit = Callable[[list[list[Any]]], Any]
"""Changes the records of a file."""


def edited(contents: bytes, *edits: Edit) -> bytes:
    """The file whose records say something else."""
    said = records.read(record_of(contents))
    for edit in edits:
        edit(said)
    return with_record(contents, records.write(said))


def setting(kind: str, which: int = 0, **fields: Any) -> Edit:
    """Set fields of one of the records of a kind."""
    return lambda said: records.of_kind(said, kind)[which].update(fields)


GIVEN = """m (float[3] x, float[3] d) => (float[3] y) <float[3] d = {1, 2, 3}>
{ y = Add(x, d) }"""
CACHE = """m (float[4, 3] cache, float[1, 3] row, int64[1, 1] at) => (float[4, 3] next)
{ next = ScatterND(cache, at, row) }"""
TOO_LARGE = (1 << 48) + 1


@pytest.mark.parametrize("change", [{0: 0}, {1: 0}, {1: ord("N") * 257}])
def test_texts_that_have_no_end(change: dict[int, int]) -> None:
    contents = module_of(MLP).to_bytes()
    words = list(struct.unpack(f"<{len(record_of(contents)) // 8}q", record_of(contents)))
    at = next(i for i in range(len(words)) if words[i : i + 2] == [2, ord("N")])
    for behind, word in change.items():
        words[at + behind] = word
    with pytest.raises(LibraryError, match="a text has no end"):
        CModule(with_record(contents, struct.pack(f"<{len(words)}q", *words)))


@pytest.mark.parametrize(
    ("text", "edit", "message"),
    [
        (GIVEN, setting("default", dims=[4]), "a constant does not have the bytes of its type"),
        (GIVEN, setting("default", dtype="any"), "a type of elements is not known"),
        (GIVEN, setting("default", array=9), "there is no such array"),
        (MLP, setting("input", dims=[[0, -1], [-1, -2]]), "a number is out of range"),
        (MLP, setting("input", dims=[[0, -1], [-1, TOO_LARGE]]), "a number is out of range"),
        (MLP, setting("input", dims=[[9, -1], [-1, 4]]), "there is no such symbol"),
        (MLP, setting("input", dims=[[0, -1]]), "another number of dimensions than it has"),
        (MLP, setting("input", default=0), "there is no such default"),
        (MLP, setting("input", rank=9, dims=[[0, -1]] * 9), "a value has too many dimensions"),
        (MLP, setting("buffer", dims=[[1000, -1], [-1, 4]]), "there is no such size"),
        (MLP, setting("buffer", dtype="any"), "a type of elements is not known"),
        (MLP, setting("buffer", index=7), "there is no such buffer"),
        (MLP, setting("buffer", index=0, space=2), "a buffer is described twice"),
        (MLP, lambda said: said.remove(next(r for r in said if r[0] == "buffer")), "an input has no type"),
        (MLP, setting("program", sources=[1, 0]), "a size is read off no input"),
        (MLP, setting("program", sources=[]), "a number is out of range"),
        (MLP, setting("unit", constants=9), "another number of programs or constants"),
        (MLP, setting("unit", programs=2), "a program begins otherwise"),
        (MLP, setting("formula", operation=7), "a condition without a text"),
        (MLP, setting("typical", sizes=[]), "typical sizes of other symbols"),
        (MLP, lambda said: said.insert(-1, ["end", {}]), "it does not belong into a module"),
        (MLP, lambda said: said.insert(8, ["step", {}]), "it does not belong into a program"),
        (MLP, setting("constants", arrays=[99, 99]), "there is no such array"),
        (MLP, setting("array", offset=TOO_LARGE), "an array does not lie in the file"),
        (MLP, setting("array", nbytes=-1, bytes=-1), "an array does not lie in the file"),
        (MLP, setting("module", slots=1 << 30), "a number is out of range"),
        (MLP, setting("step", reads=[99]), "there is no such slot"),
        (MLP, setting("step", unit=7), "there is no such program"),
        (MLP, setting("step", reads=[2, 2]), "a step takes or gives something else than its program"),
        (IF, setting("body", program=2), "there is no such body"),
        (IF, setting("body", symbols=[]), "sizes or outputs of another body"),
        (IF, lambda said: said.remove(next(r for r in said if r[0] == "body")), "bodies or growths are missing"),
        (IF, setting("control", operands=[]), "another number of operands than it has"),
        (LOOP, setting("growth", rank=9), "there is no loop with such a result"),
        (FOUND, setting("buffer", -1, bytes=0), "an output has no type or no size, or has one that only a run shows"),
        (FOUND, lambda said: said.insert(*left(said)), "an output is made twice"),
    ],
)
def test_records_that_make_no_sense(text: str, edit: Edit, message: str) -> None:
    contents = module_of(text).general.to_bytes()
    CModule(edited(contents))
    with pytest.raises(LibraryError, match=message):
        CModule(edited(contents, edit))


def test_arrays_that_python_makes_hold_what_a_program_writes() -> None:
    """It makes them in the shape that the records give, where C goes by their bytes; and so it is with what is read."""
    module = module_of("m (float[N, 2] x) => (float[M, 2] y) <int64[4] p = {4, 0, 0, 0}> { y = Pad(x, p) }")
    contents, x = module.to_bytes(), np.ones((3, 2), np.float32)
    formulas = records.of_kind(records.read(record_of(contents)), "formula")
    rows = next(i for i, formula in enumerate(formulas) if (formula["operation"], formula["a"]) == (0, 4))
    fewer = edited(contents, setting("formula", rows, a=3))
    with zipfile.ZipFile(io.BytesIO(fewer)) as file:
        checksums = {info.filename: info.CRC for info in file.infolist() if info.filename != "checksums.json"}
    fewer = with_record(fewer, json.dumps(checksums).encode(), "checksums.json")
    with pytest.raises(LibraryError, match="reaches past the end of output 0"):
        CModule(fewer)(x)
    other = tinycomp.load(fewer)
    for timeout in (None, 9.0):
        with pytest.raises(tinycomp.errors.FeedError, match="reaches past the end of output 0"):
            other.run({"x": x}, timeout=timeout)
    with pytest.raises(tinycomp.errors.FeedError, match="reaches past the end of output 0"):
        other.run({"x": x}, outputs={"y": np.zeros((6, 2), np.float32)})


def left(said: list[list[Any]]) -> tuple[int, list[Any]]:
    """Where the first output stays that is left in the arena, and the record that says so."""
    return next((i, record) for i, record in enumerate(said) if record[0] == "leaves")


@pytest.mark.parametrize(
    "other", [{"dtype": "float64"}, {"rank": 0, "dims": []}, {"dims": [[-1, 2]]}], ids=["dtype", "rank", "size"]
)
@pytest.mark.parametrize(
    ("kind", "which", "message"),
    [
        ("output", 0, 'output "y" has another type or shape than the module declares'),
        ("buffer", 0, "c_0: operand 0 has another type|c_0: input 0 has 1 dim.*, not 0|past the end of input 0"),
        ("buffer", 1, "c_0: operand 1 has another type|c_0: input 1 has 1 dim.*, not 0|past the end of input 1"),
    ],
)
def test_tensors_of_other_types_than_their_record_says(
    kind: str, which: int, message: str, other: dict[str, Any]
) -> None:
    contents = edited(module_of(GIVEN).general.to_bytes(), setting(kind, which, **other))
    with pytest.raises(LibraryError, match=message):
        CModule(contents)(np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("rank", "dims"),
    [(-1, ()), (9, ()), (2, (1 << 62, 0)), (2, (-1, 0)), (2, (1 << 32, 1 << 32)), (2, (1 << 30, 1 << 30))],
)
def test_dimensions_that_no_memory_holds(rank: int, dims: tuple[int, ...]) -> None:
    """The record says nothing of the input's dimensions."""
    found = CModule(edited(module_of(GIVEN).general.to_bytes(), setting("input", rank=-1, dims=[])))
    found.set_input(0, np.zeros(3, np.float32))
    ffi, memory, dtype = found.ffi, np.zeros(1, np.float32), found.ffi.new("char[]", b"float32")
    data = ffi.cast("void *", ffi.from_buffer(memory))
    tensors = ffi.new("tc_tensor[]", [{"data": data, "dtype": dtype, "rank": rank, "dims": dims}, {}])
    assert found.lib.tc_session_set_input(found.session, 0, tensors, found.error)
    assert b"no data, or dimensions that no memory holds" in ffi.string(found.error.message)


def fixed(*slots: int) -> Edit:
    """Constants in slots, of the contents of the default."""

    def edit(said: list[list[Any]]) -> None:
        at = next(i for i, record in enumerate(said) if record[0] == "input")
        (default,) = records.of_kind(said, "default")
        said[at:at] = [["fixed", {**default, "slot": slot}] for slot in slots]

    return edit


@pytest.mark.parametrize(
    "edits",
    [
        [fixed(0, 0)],
        [fixed(2)],
        [setting("step", reads=[1, 3])],
        [setting("output", slot=2), setting("step", writes=[2])],
        [setting("output", slot=1)],
    ],
)
def test_values_that_nothing_makes_or_that_are_made_twice(edits: list[Edit]) -> None:
    """Inputs have slots 2 and 3, and the result has 4 and is the output."""
    contents = module_of(GIVEN).general.to_bytes()
    CModule(edited(contents, fixed(0)))
    with pytest.raises(LibraryError, match="a value is read that nothing makes, or made twice"):
        CModule(edited(contents, *edits))


def test_sizes_that_lie_behind_their_operand() -> None:
    contents = edited(module_of(SIZES).to_bytes(), setting("program", sources=[0, 0, 1, -(1 << 40)]))
    with pytest.raises(LibraryError, match="a size is read off something else"):
        CModule(contents)(np.zeros((2, 8), np.float32), np.array([3]))


def negative(said: list[list[Any]]) -> None:
    """Let the second output have as many elements as -1 says."""
    at, (_, fields) = [(i, record) for i, record in enumerate(said) if record[0] == "leaves"][1]
    values = sum(record[0] in ("formula", "condition") for record in said[:at]) + len(
        records.of_kind(said, "program")[0]["symbols"]
    )
    said.insert(at, ["formula", {"operation": 0, "a": -1}])
    fields["dims"] = [values]


@pytest.mark.parametrize(
    "edit", [setting("buffer", -1, dims=[[-1, -1], [-1, -1]], unknown=["k", "k"]), negative], ids=["rank", "negative"]
)
def test_results_that_have_other_sizes_than_they_say(edit: Edit) -> None:
    found = CModule(edited(module_of(FOUND).to_bytes(), edit))
    with pytest.raises(LibraryError, match="c_0: result 1 does not have the size that its dimensions say"):
        found(np.ones((2, 3), np.float32))


def test_results_of_unknown_size_that_given_memory_has_no_room_for() -> None:
    found, memory = CModule(module_of(FOUND).to_bytes()), np.zeros(2, np.float32)
    found.set_output(1, memory)
    found(np.array([[0, 1, 2]], np.float32))
    np.testing.assert_array_equal(memory, [1, 2])
    with pytest.raises(LibraryError, match='output "values" has 12 bytes, and there is room for 8'):
        found(np.ones((1, 3), np.float32))


@pytest.mark.parametrize("pair", [(-1, 0), (3, 0), (0, -1), (0, 1)])
def test_caches_that_no_input_or_output_is(pair: tuple[int, int]) -> None:
    """The model extends none."""
    contents = module_of(CACHE).to_bytes()

    def extended(source: int, target: int) -> bytes:
        return edited(contents, lambda said: said.insert(-1, ["pair", {"input": source, "output": target}]))

    CModule(extended(0, 0))
    with pytest.raises(LibraryError, match=r"a number is out of range|there is no such (input|output)"):
        CModule(extended(*pair))


def test_functions_whose_record_makes_no_sense() -> None:
    contents, functions = module_of(GIVEN).general.to_bytes(), [("c_0", library()[0].cast("void *", 1))]
    values = [["value", {"written": written, "dtype": "float32", "dims": [3]}] for written in (0, 0, 1)]

    def function(scratch: int, more: list[Any] = values) -> bytes:
        """A function in place of the program."""
        last = ["function", {"scratch": scratch, "arrays": []}]
        return edited(contents, setting("step", unit=-1), lambda said: said.extend([*more, last]))

    CModule(function(1 << 48), functions)
    for damaged in (function(-1), function(TOO_LARGE), function(0, values[1:])):
        with pytest.raises(LibraryError, match="there is no such function, or not all of its values"):
            CModule(damaged, functions)
    with pytest.raises(LibraryError, match="there is no such value"):
        CModule(function(0, [*values, values[0]]), functions)


@pytest.mark.parametrize("arrays", [b"", bytes(7), struct.pack("<Q", 1) + b"", struct.pack("<Q", 1 << 63) + bytes(64)])
def test_arrays_without_a_beginning(arrays: bytes) -> None:
    with pytest.raises(LibraryError, match="its arrays have no beginning"):
        CModule(with_record(module_of(MLP).to_bytes(), arrays, "arrays.safetensors"))


EDITS = int(os.environ.get("TINYCOMP_EDITS", "150"))
"""How many edits of every record are tried."""
BOUNDARIES = (0, 1, -1, 2, 7, 8, 255, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 48, (1 << 62), -(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize("text", [MLP, LOOP, IF, FOUND, SIZES], ids=["sizes", "loop", "if", "found", "elements"])
def test_edited_records_do_no_harm(text: str) -> None:
    """Every edit is refused, or runs to an end; the sanitizers look on where the library is built with them."""
    contents = module_of(text).general.to_bytes()
    record, rng = record_of(contents), random.Random(zlib.crc32(text.encode()))
    words = list(struct.unpack(f"<{len(record) // 8}q", record))
    refused = 0
    for _ in range(EDITS):
        edited = words.copy()
        for _ in range(rng.choice((1, 1, 1, 2))):
            place = rng.randrange(2, len(words))
            edited[place] = rng.choice((rng.choice(BOUNDARIES), rng.choice(words), words[place] + rng.choice((-1, 1))))
        edited = [max(-(1 << 63), min(word, (1 << 63) - 1)) for word in edited]
        try:
            found = CModule(with_record(contents, struct.pack(f"<{len(edited)}q", *edited)))
            found.limit(1.0, 1 << 28)
            found(*[_some(dtype, dims) for _, dtype, dims in found.specs("input")])
        except LibraryError:
            refused += 1
    assert refused > EDITS // 3


REFUSALS = Path(__file__).with_name("record_refusals.json")
"""How often each message answers edits of records. ``python -m tests.runtime_c.test_library`` writes it anew."""
EDITED = {"if": IF, "found": FOUND, "sizes": SIZES, "loop": LOOP}


def answer(contents: bytes, words: list[int], name: str) -> str:
    """Return what loading and running an edited record is refused with, without numbers and kernels; or nothing."""
    try:
        found = CModule(with_record(contents, struct.pack(f"<{len(words)}q", *words)))
        if name != "loop":  # which may go on for as long as it likes
            found.limit(nbytes=1 << 24)
            found(*[_some(dtype, dims) for _, dtype, dims in found.specs("input")])
    except LibraryError as error:
        return re.sub(r"instruction \d+ \([^)]*\)|-?\d+(\.\d+)?(e[+-]?\d+)?", "#", error.args[1])
    return ""


def record_answers(name: str) -> dict[str, int]:
    """Return how often each message answers where every word in turn has other values."""
    contents = module_of(EDITED[name]).to_bytes()
    record = record_of(contents)
    words = list(struct.unpack(f"<{len(record) // 8}q", record))
    found: Counter[str] = Counter()
    for place, word in enumerate(words):
        for other in (-1, 1 << 40, min(word + 1, (1 << 63) - 1)):
            found[answer(contents, [*words[:place], other, *words[place + 1 :]], name)] += 1
    return dict(sorted(found.items()))


@pytest.mark.parametrize("name", EDITED)
def test_each_check_of_a_record_answers_as_often_as_before(name: str) -> None:
    assert record_answers(name) == json.loads(REFUSALS.read_text())[name]


def _some(dtype: str, dims: list[int | str | None]) -> np.ndarray:
    shape = [min(d, 64) if isinstance(d, int) else 2 for d in dims]
    return np.ones(shape, tinycomp.ir.types.numpy_dtype(dtype))


def test_the_example_builds_and_runs(tmp_path: Path) -> None:
    library()
    if b"__asan_init" in LIBRARY.read_bytes() or b"__tsan_init" in LIBRARY.read_bytes():
        pytest.skip("the library is built with a sanitizer, which the program is not")
    if shutil.which("pkg-config") is None or shutil.which("cc") is None:
        pytest.skip("building the example needs cc and pkg-config")
    images, _ = digits()
    module = tinycomp.compile(tinycomp.data.digits_model())
    module.save(tmp_path / "digits.tcm")
    images.tofile(tmp_path / "images.f32")
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "tinycomp"],
        env={**os.environ, "PKG_CONFIG_PATH": str(LIBRARY.parent / "pkgconfig")},
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    program = tmp_path / "classify"
    source = ROOT / "examples" / "c_program" / "classify.c"
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags], check=True)
    printed = subprocess.run(
        [program, tmp_path / "digits.tcm", tmp_path / "images.f32"], capture_output=True, text=True, check=True
    ).stdout
    np.testing.assert_array_equal(np.array(printed.split(), int), module(images).argmax(axis=1))


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_the_header_is_for_cpp_too(tmp_path: Path) -> None:
    source = tmp_path / "use.cpp"
    source.write_text('#include "tinycomp_run.h"\nint main() { return tc_module_input_count(nullptr); }\n')
    subprocess.run(["c++", "-Wall", "-Wextra", "-Werror", "-I", HEADERS, "-fsyntax-only", source], check=True)


if __name__ == "__main__":
    REFUSALS.write_text(json.dumps({name: record_answers(name) for name in EDITED}, indent=0) + "\n")
