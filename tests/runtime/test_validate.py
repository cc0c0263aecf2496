"""Saved modules that say two things at once, or read what nothing has written, are refused before they are built."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import zipfile

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.fuzz.artifact import _packed, _unpacked
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.errors import ArtifactError, TinycompError

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
        helper.make_node("Det", ["p"], ["y"], name="determinant"),
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
        lambda m: m["plan"]["steps"][0].update(reads=[3]), "step c_0: a slot is read that holds no value"),
    "written twice": (
        lambda m: m["plan"]["steps"][0].update(writes=[2]), "step c_0: a slot is written that holds a value"),
    "freed twice": (
        lambda m: m["plan"]["steps"][0].update(frees=[2, 2]), "step c_0: a slot is freed that holds no value"),
    "freed early": (
        lambda m: m["plan"]["steps"][0].update(frees=[3]), "the outputs: a slot is read that holds no value"),
    "output not written": (
        lambda m: m["plan"]["steps"][0].update(writes=[1]), "the outputs: a slot is read that holds no value"),
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
    "infinity": (lambda m: m["plan"].update(slots=float("inf")), "the plan is damaged"),
    "two to the 62": (lambda m: m["plan"].update(slots=2**62), "the plan is damaged"),
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
