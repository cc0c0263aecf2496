"""Saved modules that say two things at once, or read what nothing has written, are refused before they are built."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import struct
import sys
import zipfile

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.fuzz.artifact import _packed, _unpacked
from tests.fuzz.meaning import saved
from tests.host_only import host_only
from tests.records import of_kind
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.errors import ArtifactError, TargetError, TinycompError
from tinycomp.runtime.native.library import ffi, kernel_named
from tinycomp.runtime.spec import TensorSpec
from tinycomp.runtime.validate import check_module

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def native() -> bytes:
    return tinycomp.compile(digits_model(), threads=1).to_bytes()


@pytest.fixture(scope="module")
def static() -> bytes:
    return tinycomp.compile(digits_model(), shapes={"image": (3, 1, 8, 8)}, threads=1).to_bytes()


@pytest.fixture(scope="module")
def mixed() -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        host_only("p", "y", name="host"),
    ]
    weights = {"w": np.ones((4, 3), np.float32)}
    return tinycomp.compile(make_model(nodes, {"x": X}, weights, ["y"]), threads=1).to_bytes()


def edited(data: bytes, edit) -> bytes:
    """The file with another description, and checksums that are right."""
    manifest, members = _unpacked(data)
    manifest = copy.deepcopy(manifest)
    edit(manifest)
    return _packed(manifest, members)


def part(manifest, kind, which=0):
    """The fields of one of the records of a kind."""
    return of_kind(manifest["records"], kind)[which]


def setting(kind, which=0, **fields):
    return lambda manifest: part(manifest, kind, which).update(fields)


def without(kind, which=0):
    """Leave out a record, and what belongs to it."""

    def edit(manifest):
        records = manifest["records"]
        at = [i for i, (name, _) in enumerate(records) if name == kind][which]
        end = next(i for i in range(at + 1, len(records)) if records[i][0] not in ("parameter", "offset", "finds"))
        del records[at:end]

    return edit


def twin(manifest):
    """Give the output twice."""
    records = manifest["records"]
    at = next(i for i, (kind, _) in enumerate(records) if kind == "output")
    records.insert(at, records[at])
    part(manifest, "module").update(outputs=2)
    manifest["outputs"] *= 2


def key(manifest):
    """The key of an array that does not fit the input."""
    return part(manifest, "array")["key"]


EDITS = {
    "names": (twin, "two outputs have one name"),
    "interface dtype": (
        lambda m: m["inputs"][0].update(dtype="int8"), 'input "image": the plan is for another one'),
    "interface shape": (
        lambda m: m["outputs"][0].update(shape=["N", 9]), 'output "probabilities": the plan is for another one'),
    "interface number": (lambda m: m["outputs"].clear(), "the plan has another number of outputs"),
    "interface of the records": (setting("input", name="other"), "the plan is for another one"),
    "bounds symbol": (
        lambda m: m.update(bounds={"M": [1, 2]}), 'bounds of "M": no input has a dimension of this name'),
    "bounds order": (lambda m: m.update(bounds={"N": [3, 2]}), 'bounds of "N": no size fulfils them'),
    "bounds sign": (lambda m: m.update(bounds={"N": [-1, 2]}), 'bounds of "N": no size fulfils them'),
    "default": (lambda m: m.update(defaults={"other": key(m)}), 'default of "other": there is no input of this name'),
    "default fits": (
        lambda m: m.update(defaults={"image": key(m)}), 'default of "image": it does not fit the input'),
    "slot absent": (setting("step", reads=[0]), "step c_0: there is no such slot"),
    "slot beyond": (setting("output", slot=9), "the outputs: there is no such slot"),
    "slot of a discarded output": (setting("output", slot=1), "the outputs: there is no such slot"),
    "slot freed": (setting("step", frees=[1]), "step c_0: there is no such slot"),
    "slot of a constant": (
        lambda m: m["records"].insert(-1, ["fixed", {"array": 0, "dtype": "float32", "dims": [1], "slot": 0}]),
        "the constants: there is no such slot"),
    "read first": (setting("step", reads=[3]), "step c_0: a slot is read while it holds no value"),
    "written twice": (setting("step", writes=[2]), "step c_0: a slot is written while it holds a value"),
    "freed twice": (setting("step", frees=[2, 2]), "step c_0: a slot is freed while it holds no value"),
    "freed early": (setting("step", frees=[3]), "the outputs: a slot is read while it holds no value"),
    "output not written": (setting("step", writes=[1]), "the outputs: a slot is read while it holds no value"),
    "operands": (setting("step", reads=[2, 2]), "step c_0: the program has another number of operands"),
    "results": (setting("step", writes=[3, 1]), "step c_0: the program has another number of results"),
    "no unit": (setting("step", unit=-1), "there is no program -1"),
    "rank": (setting("input", dims=[]), "0 dimensions of rank 4"),
    "parts": (setting("module", steps=2), "parts of the module are missing"),
    "kind": (lambda m: m["records"].append(["end", {}]), "a record 'end' in a module"),
    "beginning": (lambda m: m["records"].pop(0), "a record 'array' at byte 0"),
    "two beginnings": (lambda m: m["records"].insert(1, m["records"][0]), "a record 'file' at byte 16"),
    "another version": (setting("file", fingerprint=7), "saved by another version of tinycomp"),
    "operand dtype": (
        setting("buffer", dtype="int32"),
        "step c_0, operand 0: a value is of another type than the one that is wanted"),
    "operand size": (
        setting("buffer", dims=[[0, -1], [-1, 1], [-1, 8], [-1, 9]]),
        "step c_0, operand 0: a value is of another type than the one that is wanted"),
    "operand rank": (
        setting("buffer", dims=[[0, -1], [-1, 1], [-1, 64]]),
        "step c_0, operand 0: a value is of another type than the one that is wanted"),
    "result size": (
        setting("buffer", 1, dims=[[0, -1], [-1, 5]]),
        'output "probabilities": a value is of another type than the one that is wanted'),
    "no last instruction": (without("call", -1), "no instruction writes an output"),
    "operands of a kernel": (setting("call", operands=[]), "0 operands and"),
    "slots": (setting("module", slots=99), "plan.slots: the plan has another number of slots"),
    "no slots": (setting("module", slots=0), "plan.slots: the plan has another number of slots"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_what_does_not_agree_is_refused(native, name):
    edit, message = EDITS[name]
    with pytest.raises(ArtifactError) as error:
        tinycomp.load(edited(native, edit))
    assert message in str(error.value)


def test_an_unchanged_module_still_runs(native, static, mixed):
    for data, feed in ((native, digits()[0][:3]), (static, digits()[0][:3]), (mixed, X)):
        again = tinycomp.load(edited(data, lambda manifest: None))
        np.testing.assert_array_equal(again(feed), tinycomp.load(data)(feed))


def test_no_instructions_of_fixed_sizes(static):
    def cut(manifest):
        manifest["records"] = [record for record in manifest["records"] if record[0] != "call"]

    with pytest.raises(ArtifactError, match="no instruction writes an output"):
        tinycomp.load(edited(static, cut))


def test_an_integer_convolution_without_output_lines_divides_by_nothing():
    quantized = tinycomp.quantize(digits_model(), [digits()[0][:20]])
    data = tinycomp.compile(quantized, threads=1).to_bytes()
    kernel = kernel_named("qconv2d")

    def cut(manifest):
        calls = [c for c in of_kind(manifest["records"], "call") if c["kernel"] == kernel.index]
        assert calls
        for call in calls:
            params = kernel.read_params(bytes.fromhex(call["params"])) | {"out_height": 0, "algorithm": 1}
            call["params"] = bytes(ffi.buffer(kernel.make_params(params, ""))).hex()

    with contextlib.suppress(TinycompError):  # whether it is refused is not what this is about
        tinycomp.load(edited(data, cut))


def more(kind, which):
    """Describe a buffer twice, with one place more."""

    def edit(manifest):
        records = manifest["records"]
        fields = part(manifest, "buffer", which)
        records.insert(records.index(["buffer", fields]) + 1, ["buffer", {**fields, "index": fields["index"] + 1}])
        part(manifest, "program")[kind] += 1

    return edit


MIXED = {
    "operands": (more("inputs", 0), "the program has another number of operands"),
    "results": (more("outputs", 1), "the program has another number of results"),
    "dtype": (setting("buffer", dtype="int32"), "operand 0 of the program is of another dtype"),
    "result dtype": (setting("buffer", 1, dtype="int32"), "result 0 of the program is of another dtype"),
    "no instructions": (without("call"), "no instruction writes an output"),
}


@pytest.mark.parametrize("name", MIXED)
def test_programs_beside_host_nodes_are_held_to_the_same(mixed, name):
    edit, message = MIXED[name]
    with pytest.raises((ArtifactError, TargetError), match=message):
        tinycomp.load(edited(mixed, edit))


def test_two_members_of_one_name(native):
    stream = io.BytesIO(native)
    with zipfile.ZipFile(stream, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr(zipfile.ZipInfo("graph.tir"), b"")
    with pytest.raises(ArtifactError, match="two members have one name"):
        tinycomp.load(stream.getvalue())


def test_a_description_that_is_nested_too_deeply(native):
    text = "[" * 100_000 + "]" * 100_000
    manifest, members = _unpacked(native)
    packed = json.dumps({**manifest, "deep": "here"}).replace('"here"', text).encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in {"manifest.json": packed, **members}.items():
            file.writestr(zipfile.ZipInfo(name), data)
    with pytest.raises(ArtifactError, match="this is not a saved module, or it is damaged"):
        tinycomp.load(stream.getvalue())


def writes_what_is_left(manifest):
    """Let a call write the output that stays in the arena."""
    call = part(manifest, "call", -1)
    call["operands"][0] = [2, 0, 0]


def another(kind, which=0):
    """Say a record twice."""

    def edit(manifest):
        records = manifest["records"]
        record = ["", part(manifest, kind, which)]
        record[0] = kind
        records.insert(records.index(record), record)

    return edit


DESCRIBED = {
    "dtype": ("symbolic", setting("buffer", dtype="any"), "is not a buffer"),
    "text": ("symbolic", setting("buffer", dtype="string"), "is not a buffer"),
    "no size": ("symbolic", setting("buffer", dims=[[-1, -1], [-1, 1]]), "the description of a program is damaged"),
    "elements": ("symbolic", setting("buffer", elements=[0]), "has no 1 elements that could be sizes"),
    "space": ("symbolic", setting("call", operands=[[9, 0, 0]] * 9), "the description of a program is damaged"),
    "threads": ("symbolic", lambda m: m.update(threads="many"), "threads: the description is damaged"),
    "bounds": ("symbolic", lambda m: m.update(bounds={"N": [1.5, 2]}), "bounds.N[0]: the description is"),
    "a result of another size": (
        "symbolic", setting("buffer", 1, dims=[[0, -1], [1, -1]]),
        'output "probabilities": a value is of another type than the one that is wanted'),
    "sources": ("symbolic", setting("program", sources=[0, 1]), "sizes are read off other places than the inputs show"),
    "no buffer": ("symbolic", without("buffer"), "a buffer is not described"),
    "a buffer twice": ("symbolic", another("buffer"), "is described twice"),
    "no program": ("symbolic", setting("unit", programs=2), "a program begins with a record 'module'"),
    "programs": ("symbolic", setting("unit", programs=0), "0 programs with"),
    "in a program": (
        "symbolic", lambda m: m["records"].insert(m["records"].index(["end", part(m, "end")]), ["module", {}]),
        "a record 'module' in a program"),
    "no value": ("symbolic", setting("piece", value=999), "there is no size 999"),
    "found twice": ("found", lambda m: part(m, "program").update(symbols=["n", "n"]), "a size is found twice: n, n"),
    "found operand": ("found", setting("finds", operand=99), "in operand 99"),
    "left": ("found", setting("leaves", output=7), "there is no output 7"),
    "left twice": ("found", another("leaves"), "an output is made twice"),
    "left and written": ("found", writes_what_is_left, "an output is used whose size only the end of a run shows"),
    "bodies": ("loop", another("body"), "control flow with 2 bodies"),
    "body": ("loop", setting("body", program=1), "there is no body 1"),
    "operands": ("loop", setting("control", operands=[[0, 0, 0]]), "control flow of 1 operands"),
    "carried": ("loop", setting("control", carried=5), "control flow of 5 operands"),
    "shapes": ("loop", setting("control", shapes=["1"]), "operands that do not fit the body c_0/y"),
    "results of a body": ("loop", more("outputs", 5), "results that do not fit the body c_0/y"),
    "growth": ("loop", lambda m: m["records"].insert(m["records"].index(["call", part(m, "call")]), ["growth", {}]),
        "a growth of no result"),
}  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_descriptions_that_make_no_sense(name):
    kind, edit, message = DESCRIBED[name]
    with pytest.raises(ArtifactError) as error:
        tinycomp.load(edited(saved(kind), edit))
    assert message in str(error.value)


def test_a_default_of_another_dtype():
    spec = TensorSpec("x", "float32", ("n",))
    with pytest.raises(ArtifactError, match='default of "x": it does not fit the input'):
        check_module((spec,), (), ((spec,), ()), {"x": np.zeros(2, np.int8)}, {})


def test_results_beside_host_nodes_have_the_size_that_is_declared(mixed):
    edit = edited(mixed, setting("buffer", 1, dims=[[-1, 3], [-1, 255]]))
    with pytest.raises(ArtifactError, match=r"result 0: a value is of another type.*\n?.*float32\[3, 3\]"):
        tinycomp.load(edit)


# The container ------------------------------------------------------------------------------------------------------

HEADER = b"PK\x01\x02"
"""What an entry of a zip file's directory begins with; sizes and the place of its member are inside."""


def entry(data: bytes, byte: int, value: int) -> bytes:
    """The file with another number in the entry of its first member."""
    at = data.index(HEADER) + byte
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


def stored(manifest, members, method=zipfile.ZIP_STORED) -> bytes:
    """The file of a description and members, as they are."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            file.writestr(name, data)
    return stream.getvalue()


def with_arrays(data: bytes, edit) -> bytes:
    """The file whose list of arrays says something else."""
    manifest, members = _unpacked(data)
    raw = members["arrays.safetensors"]
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    edit(next(iter(header.values())))
    text = json.dumps(header).encode()
    return _packed(manifest, {**members, "arrays.safetensors": struct.pack("<Q", len(text)) + text + raw[8 + length :]})


def naming(sums):
    return lambda data: stored(_unpacked(data)[0], _unpacked(data)[1] | {"checksums.json": json.dumps(sums).encode()})


CONTAINERS = {
    "compressed": (lambda d: stored(*_unpacked(d), zipfile.ZIP_DEFLATED), 'the member "manifest.json" is compressed'),
    "larger": (lambda d: entry(entry(d, 20, len(d)), 24, len(d)), "the members claim to be larger than the file"),
    "no header": (lambda d: entry(d, 42, 7), 'the member "manifest.json" has no header'),
    "no room for a header": (
        lambda d: entry(d[:-2] + struct.pack("<H", 4) + b"PK\x03\x04", 42, len(d)),
        'the member "manifest.json" has no header'),
    "a byte": (lambda d: d[:60] + bytes([d[60] ^ 1]) + d[61:], 'the checksum of the member "manifest.json" is wrong'),
    "no names": (naming(None), "saved module, checksums.json: the description is damaged; expected an object"),
    "fewer names": (naming({"graph.tir": 0}), "edited; expected those that checksums.json names; found arrays.safe"),
    "format": (lambda d: edited(d, lambda m: m.update(format=99)), "the file has another format version"),
    "no array": (
        lambda d: edited(d, setting("array", key="none")), 'the array "none" is missing'),
    "no dtype": (
        lambda d: edited(d, lambda m: next(iter(m["arrays"].values())).update(dtype="any")), "unknown dtype any"),
    "no header of arrays": (
        lambda d: _packed(_unpacked(d)[0], {**_unpacked(d)[1], "arrays.safetensors": struct.pack("<Q", 9) + bytes(8)}),
        "a header of 9 bytes"),
    "bytes": (lambda d: with_arrays(d, lambda about: about.update(dtype="F32")), "does not lie in the file"),
    "places": (lambda d: with_arrays(d, lambda about: about.update(data_offsets=[9, 1])), "does not lie in the file"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_that_make_no_sense(native, name):
    edit, message = CONTAINERS[name]
    with pytest.raises(ArtifactError) as error:
        tinycomp.load(edit(native))
    assert message in str(error.value)


def test_a_member_that_is_cut_off(native):
    """Its header is at the end of the file, in the comment."""
    header = struct.pack("<4s22xHH", b"PK\x03\x04", 0, 0)
    commented = native[:-2] + struct.pack("<H", len(header)) + header
    with pytest.raises(ArtifactError, match=r'the member "manifest.json" is cut off'):
        tinycomp.load(entry(commented, 42, len(native)))


def _validated(call) -> int:
    """Return how many functions the validator calls in the course of something, those in C among them."""
    count, inside = 0, 0

    def note(frame, event, _argument):
        nonlocal count, inside
        mine = frame.f_code.co_filename.endswith("validate.py")
        if mine and event == "call":
            inside += 1
        count += bool(inside) and event in ("call", "c_call")
        if mine and event == "return":
            inside -= 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def _plan_of(steps: int) -> int:
    nodes = [helper.make_node("Neg", [f"x{i}"], [f"x{i + 1}"]) for i in range(steps)]
    model = make_model(nodes, {"x0": X}, {}, [f"x{steps}"])
    data = tinycomp.compile(model, "host", optimize=False).to_bytes()
    return _validated(lambda: tinycomp.load(data))


def test_validation_is_linear_in_the_number_of_steps():
    once, twice, four_times = _plan_of(40), _plan_of(80), _plan_of(160)
    assert once < twice
    assert four_times - twice <= 2.2 * (twice - once)
