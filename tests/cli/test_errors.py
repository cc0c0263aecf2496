"""What users get wrong: each error says where, and what to do, and ends with 2."""

from __future__ import annotations

import numpy as np
import pytest

from tinycomp.cli import exits


def fails(result, *texts: str) -> None:
    assert result.code == exits.USAGE, result.err
    assert result.out == ""
    for text in texts:
        assert text in result.error
    assert "Traceback" not in result.err


@pytest.mark.parametrize("command", ["compile", "run", "bench", "report", "verify", "opt"])
def test_a_missing_model(call, command: str) -> None:
    fails(call(command, "nope.onnx"), "there is no such file", "where: nope.onnx", "hint: Check the path.")


def test_a_misspelt_model(call, unknown_op) -> None:
    fails(call("run", unknown_op.with_name("unknwn.onnx")), 'hint: Did you mean "unknown.onnx"?')
    fails(call("run", "digits-int"), 'hint: Did you mean "digits-int8"?')


def test_a_folder(call, tmp_path) -> None:
    fails(call("run", tmp_path), "not a regular file, but a folder", "hint: Name a file inside it.")


def test_a_file_that_is_no_model(call, tmp_path) -> None:
    path = tmp_path / "page.onnx"
    path.write_text("<html>")
    fails(call("compile", path), "not an ONNX model", "found: HTML or XML text", "fetched a web page")


def test_an_unknown_operator(call, unknown_op) -> None:
    fails(call("compile", unknown_op), "unknown operator Rleu", "where: node act", 'hint: Did you mean "Relu"?')


def test_an_unknown_target(call) -> None:
    fails(call("compile", "digits", "-t", "cc"), 'there is no target "cc"', 'hint: Did you mean "c"?')


def test_no_inputs(call, two_inputs) -> None:
    fails(
        call("run", two_inputs), "no inputs are given", "expected: ids: int64[N]", "--input ids=FILE.npy", "--random 0"
    )


def test_an_input_of_the_wrong_dtype(call, two_inputs, image) -> None:
    fails(call("run", two_inputs, "--input", f"ids={image}"), "wrong dtype", 'where: input "ids"', "found: float32")


def test_an_input_of_the_wrong_shape(call, tmp_path) -> None:
    path = tmp_path / "flat.npy"
    np.save(path, np.zeros((1, 8, 8), np.float32))
    fails(call("run", "digits", "--input", path), "wrong shape", "found: shape (1, 8, 8)", "try array[None]")


def test_a_misspelt_input(call, image) -> None:
    fails(call("run", "digits", "--input", f"imag={image}"), 'no input "imag"', 'hint: Did you mean "image"?')


def test_an_input_file_that_is_missing(call) -> None:
    fails(call("run", "digits", "--input", "image=no.npy"), "where: no.npy", "hint: Check the path.")


def test_an_input_file_that_is_damaged(call, tmp_path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"no array")
    fails(call("run", "digits", "--input", path), "cannot be read as arrays", "hint: Write it with numpy.save")


def test_an_input_file_with_pickled_objects(call, tmp_path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    fails(call("run", "digits", "--input", path), "cannot be read as arrays", "without pickled objects")


def test_an_archive_for_one_input(call, tmp_path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros(1))
    fails(call("run", "digits", "--input", f"image={tmp_path / 'x.npz'}"), "hint: Write --input", "x.npz")


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("1,1,8,8", "expected: INPUT=DIMS, such as image=1,3,224,224"),
        ("image=1,x!,8,8", 'found: "x!" in image=1,x!,8,8'),
        ("imag=1,1,8,8", 'hint: Did you mean "image"?'),
        ("image=1,1,8", "the given shape has the wrong rank"),
        ("image=5..1,1,8,8", "not the bounds of a dimension"),
    ],
)
def test_a_wrong_shape_option(call, shape: str, text: str) -> None:
    fails(call("compile", "digits", "--shape", shape), text)


def test_a_wrong_number_of_threads(call) -> None:
    fails(call("bench", "digits", "--threads", "0"), "argument --threads: expected a number above 0, found 0")


def test_a_seed_that_is_none(call) -> None:
    fails(call("run", "digits", "--random=-1"), "argument --random: expected a whole number, 0 or above, found -1")


def test_an_input_that_is_given_twice(call, image) -> None:
    wanted = "this input is given twice", 'where: input "image"'
    fails(call("run", "digits", "--input", f"image={image}", "--input", image), *wanted)


def test_saving_what_is_not_looked_for(call, tmp_path) -> None:
    fails(call("verify", "digits", "--save", tmp_path), "where: --save", "hint: Add --regions.")


def test_no_target_before_another(call) -> None:
    fails(call("compile", "digits", "-t", "host", "-t", "c"), '"host" means no target at all', "found: host, c")


def test_an_output_below_a_file(call, image) -> None:
    fails(call("compile", "digits", "-o", image / "x.tcm"), f"where: {image / 'x.tcm'}", "A part of the path is a file")


@pytest.mark.filterwarnings("default::tinycomp.errors.TinycompWarning")
def test_a_log_that_is_damaged(call, tmp_path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("junk\n")
    result = call("compile", "digits", "-t", f"c:tuning={log}")
    fails(result, "not a tuning log", f"where: {log}")
    assert f"warning: {log}, line 1: skipped, it is damaged" in result.err
    assert "TinycompWarning" not in result.err


def test_a_text_that_does_not_parse(call, tmp_path) -> None:
    path = tmp_path / "x.tir"
    path.write_text("graph @x { bad")
    fails(call("opt", path), f"where: {path}, line 1, column 10", "1 | graph @x { bad |")


def test_an_output_folder_that_is_missing(call, tmp_path) -> None:
    fails(call("compile", "digits", "-o", tmp_path / "no" / "x.tcm"), "No such file or directory", "x.tcm")


def test_what_does_not_go_with_a_saved_module(call, tmp_path) -> None:
    path = tmp_path / "x.tcm"
    assert call("compile", "digits", "-o", path).code == exits.OK
    fails(call("run", path, "-t", "host"), "a saved module has its target, shapes and kernels already")
    fails(call("run", path, "-t", "c:winograd=never"), "Leave out --target, or compile")
    fails(call("run", path, "--memory-limit", "9", "--shape", "x=1"), "Leave out --shape and --memory-limit, or")
    fails(call("bench", path, "--peer", "onnxruntime"), "a saved module does not hold the ONNX model")
    fails(call("verify", path), "a saved module cannot be compiled again")


def test_a_damaged_module(call, tmp_path) -> None:
    path = tmp_path / "x.tcm"
    path.write_bytes(b"PK but no zip")
    fails(call("run", path, "--random", "0"), "x.tcm")
