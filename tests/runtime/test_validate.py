"""Saved modules that say two things at once, or read what nothing has written, are refused before they are built."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
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
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.errors import ArtifactError, TinycompError
from tinycomp.runtime.native.program import BufferSpec, Control, Instruction, Operand, Program
from tinycomp.runtime.spec import TensorSpec
from tinycomp.runtime.validate import check_module, check_program

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


def program(manifest):
    return manifest["plan"]["steps"][0]["program"]


def twin(manifest):
    """Give the output twice."""
    for description in (manifest, manifest["plan"]):
        description["outputs"] *= 2
    manifest["plan"]["output_slots"] *= 2


EDITS = {
    "names": (twin, "two outputs have one name"),
    "interface dtype": (
        lambda m: m["inputs"][0].update(dtype="int8"), 'input "image": the plan is for another one'),
    "interface shape": (
        lambda m: m["outputs"][0].update(shape=["N", 9]), 'output "probabilities": the plan is for another one'),
    "interface number": (lambda m: m["outputs"].clear(), "the plan has another number of outputs"),
    "bounds symbol": (
        lambda m: m.update(bounds={"M": [1, 2]}), 'bounds of "M": no input has a dimension of this name'),
    "bounds order": (lambda m: m.update(bounds={"N": [3, 2]}), 'bounds of "N": no size fulfils them'),
    "bounds sign": (lambda m: m.update(bounds={"N": [-1, 2]}), 'bounds of "N": no size fulfils them'),
    "default": (
        lambda m: m.update(defaults={"other": program(m)["constants"][0]}),
        'default of "other": there is no input of this name'),
    "default fits": (
        lambda m: m.update(defaults={"image": program(m)["constants"][0]}),
        'default of "image": it does not fit the input'),
    "slot absent": (
        lambda m: m["plan"]["steps"][0].update(reads=[0]), "step c_0: there is no such slot"),
    "slot beyond": (
        lambda m: m["plan"].update(output_slots=[9]), "the outputs: there is no such slot"),
    "slot of a discarded output": (
        lambda m: m["plan"].update(output_slots=[1]), "the outputs: there is no such slot"),
    "slot freed": (
        lambda m: m["plan"]["steps"][0].update(frees=[1]), "step c_0: there is no such slot"),
    "slot of a constant": (
        lambda m: m["plan"].update(constants={"-1": program(m)["constants"][0]}),
        "the constants: there is no such slot"),
    "read first": (
        lambda m: m["plan"]["steps"][0].update(reads=[3]), "step c_0: a slot is read while it holds no value"),
    "written twice": (
        lambda m: m["plan"]["steps"][0].update(writes=[2]), "step c_0: a slot is written while it holds a value"),
    "freed twice": (
        lambda m: m["plan"]["steps"][0].update(frees=[2, 2]), "step c_0: a slot is freed while it holds no value"),
    "freed early": (
        lambda m: m["plan"]["steps"][0].update(frees=[3]), "the outputs: a slot is read while it holds no value"),
    "output not written": (
        lambda m: m["plan"]["steps"][0].update(writes=[1]), "the outputs: a slot is read while it holds no value"),
    "operands": (
        lambda m: m["plan"]["steps"][0].update(reads=[2, 2]), "step c_0: the program has another number of operands"),
    "results": (
        lambda m: m["plan"]["steps"][0].update(writes=[3, 1]), "step c_0: the program has another number of results"),
    "slots": (
        lambda m: m["plan"].update(output_slots=[3, 3]), "the plan: the plan has another number of outputs"),
    "operand dtype": (
        lambda m: program(m)["inputs"][0].update(dtype="int32"),
        "step c_0, operand 0: a value is of another type than the one that is wanted"),
    "operand size": (
        lambda m: program(m)["inputs"][0].update(shape=["N", 1, 8, 9]),
        "step c_0, operand 0: a value is of another type than the one that is wanted"),
    "operand rank": (
        lambda m: program(m)["inputs"][0].update(shape=["N", 1, 64]),
        "step c_0, operand 0: a value is of another type than the one that is wanted"),
    "result size": (
        lambda m: program(m)["outputs"][0].update(shape=["N", 5]),
        'output "probabilities": a value is of another type than the one that is wanted'),
    "no instructions": (
        lambda m: program(m)["instructions"].clear(), "program c_0: no instruction writes an output"),
    "an instruction less": (
        lambda m: program(m)["instructions"].pop(0), "a buffer is read before anything is written there"),
    "no last instruction": (
        lambda m: program(m)["instructions"].pop(), "program c_0: no instruction writes an output"),
    "operands of a kernel": (
        lambda m: program(m)["instructions"][0]["operands"].pop(), "a kernel has another number of operands"),
    "infinity": (lambda m: m["plan"].update(slots=float("inf")), "plan.slots: the description is damaged"),
    "two to the 62": (lambda m: m["plan"].update(slots=2**62), "plan.slots: the plan has another number of slots"),
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
    with pytest.raises(ArtifactError, match="program c_0: no instruction writes an output"):
        tinycomp.load(edited(static, lambda m: program(m)["instructions"].clear()))


def test_an_integer_convolution_without_output_lines_divides_by_nothing():
    quantized = tinycomp.quantize(digits_model(), [digits()[0][:20]])
    data = tinycomp.compile(quantized, threads=1).to_bytes()

    def cut(manifest):
        calls = [c for c in program(manifest)["instructions"] if c["kernel"] == "qconv2d"]
        assert calls
        for call in calls:
            call["params"].update(out_height=0, algorithm=1)

    with contextlib.suppress(TinycompError):  # whether it is refused is not what this is about
        tinycomp.load(edited(data, cut))


MIXED = {
    "operands": (lambda p: p["inputs"].append(p["inputs"][0]), "the program has another number of operands"),
    "results": (lambda p: p["outputs"].append(p["outputs"][0]), "no instruction writes an output"),
    "dtype": (lambda p: p["inputs"][0].update(dtype="int32"), "operand 0 of the program is of another dtype"),
    "result dtype": (lambda p: p["outputs"][0].update(dtype="int32"), "result 0 of the program is of another dtype"),
    "no instructions": (lambda p: p["instructions"].clear(), "no instruction writes an output"),
}


@pytest.mark.parametrize("name", MIXED)
def test_programs_beside_host_nodes_are_held_to_the_same(mixed, name):
    edit, message = MIXED[name]
    with pytest.raises(ArtifactError, match=message):
        tinycomp.load(edited(mixed, lambda m: edit(m["programs"][0]["program"])))


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


def first_loop(manifest):
    return program(manifest)["instructions"][0]


def body(manifest):
    return first_loop(manifest)["control"]["bodies"][0]


def writes_what_is_left(manifest):
    calls = program(manifest)["instructions"]
    calls.append({**calls[0], "operands": [["output", 0, 0], *calls[0]["operands"][1:]]})


DESCRIBED = {
    "dtype": ("symbolic", lambda m: program(m)["inputs"][0].update(dtype="any"), "any[N, 1, 8, 8] is not a buffer"),
    "text": (
        "symbolic", lambda m: program(m)["inputs"][0].update(dtype="string"), "string[N, 1, 8, 8] is not a buffer"),
    "no shape": ("symbolic", lambda m: program(m)["inputs"][0].update(shape=None), "inputs[0].shape: the"),
    "no size": (
        "symbolic", lambda m: program(m)["inputs"][0].update(shape=[None, 1]), "inputs[0].shape[0]: the"),
    "elements": (
        "symbolic", lambda m: program(m)["inputs"][0].update(elements=["a"]), "has no 1 elements that could be sizes"),
    "space": (
        "symbolic", lambda m: program(m)["instructions"][0]["operands"][0].__setitem__(0, "heap"),
        "operands[0][0]: the description is damaged"),
    "threads": ("symbolic", lambda m: m.update(threads="many"), "threads: the description is damaged"),
    "bounds": ("symbolic", lambda m: m.update(bounds={"N": [1.5, 2]}), "bounds.N[0]: the description is"),
    "a result of another size": (
        "symbolic", lambda m: program(m)["outputs"][0].update(shape=["N", "10*N"]),
        'output "probabilities": a value is of another type than the one that is wanted'),
    "found twice": (
        "found", lambda m: program(m)["instructions"][2]["found"].__setitem__(0, "n"), "a size is found twice: n, n"),
    "found name": (
        "found", lambda m: program(m)["instructions"][2]["found"].__setitem__(0, 5), "found[0]: the description"),
    "found operand": (
        "found", lambda m: program(m)["instructions"][2]["found"].__setitem__(1, 99), "a size 'y.1' in operand 99"),
    "left": ("found", lambda m: program(m)["left"][0].__setitem__(0, 7), "there is no output 7"),
    "left twice": ("found", lambda m: program(m).update(left=2 * program(m)["left"]), "an output is made twice"),
    "left and written": ("found", writes_what_is_left, "an output is used whose size only the end of a run shows"),
    "bodies": (
        "loop", lambda m: first_loop(m)["control"]["bodies"].append(body(m)), "loop of 5 operands and 2 bodies"),
    "operands": (
        "loop", lambda m: first_loop(m)["operands"].append(["none", 0, 0]), "loop of 6 operands and 1 bodies"),
    "carried": ("loop", lambda m: first_loop(m)["control"].update(carried=5), "loop of 5 operands and 1 bodies"),
    "shapes": (
        "loop", lambda m: first_loop(m)["control"]["shapes"][0].append(1), "operands that do not fit the body c_0/y"),
    "results of a body": (
        "loop", lambda m: body(m)["outputs"].append(body(m)["outputs"][1]), "results that do not fit the body c_0/y"),
    "results of a body in the arena": (
        "loop", lambda m: body(m)["left"].append([1, ["arena", 0, 0]]), "results that do not fit the body c_0/y"),
    "kernels have no bodies": ("loop", lambda m: first_loop(m).update(kernel="fill"), "fill with or without bodies"),
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


def test_an_output_that_grows_is_no_result_of_known_size():
    none, result = Operand("none"), Operand("output")
    loop = Instruction("loop", (none, none, result, result), {}, control=Control((), 0, (), (None, 8)))
    grown = Program("p", (), (BufferSpec("y", "int64", (1,)),), (), 0, (loop,))
    with pytest.raises(ArtifactError, match="an output is used whose size only the end of a run shows"):
        check_program(grown)


def test_results_beside_host_nodes_have_the_size_that_is_declared(mixed):
    edit = edited(mixed, lambda m: m["programs"][0]["program"]["outputs"][0].update(shape=[3, 255]))
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
        lambda d: edited(d, lambda m: program(m)["constants"].__setitem__(0, "none")), 'the array "none" is missing'),
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


def _program_of(steps: int) -> int:
    buffers = BufferSpec("x", "float32", (4,)), BufferSpec("y", "float32", (4,))
    params = {"element_size": 4, **{f"{name}{i}": 1 for name in ("size", "to_stride", "from_stride") for i in range(8)}}
    places = [Operand("input"), *(Operand("arena", 0, 64 * i) for i in range(steps - 1)), Operand("output")]
    calls = tuple(Instruction("copy", (to, of), params) for of, to in itertools.pairwise(places))
    program = Program("p", buffers[:1], buffers[1:], (), 64 * steps, calls)
    return _validated(lambda: check_program(program))


@pytest.mark.parametrize("count", [_plan_of, _program_of])
def test_validation_is_linear_in_the_number_of_steps(count):
    once, twice, four_times = count(40), count(80), count(160)
    assert once < twice
    assert four_times - twice <= 2.2 * (twice - once)
