"""``tinycomp generate``."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.generation.decoders import decoder, recomputed
from tinycomp.cli import exits

PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on a shared buffer, under the name that its configuration gives."""
    place = tmp_path_factory.mktemp("decoder")
    onnx.save(decoder("shared"), place / "tiny.onnx")
    config = {"model": {"decoder": {"filename": "tiny.onnx"}, "eos_token_id": 11}}
    (place / "genai_config.json").write_text(json.dumps(config))
    return place


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of bytes."""
    place = tmp_path_factory.mktemp("letters")
    onnx.save(decoder("shared", vocabulary=256), place / "model.onnx")
    return place


def test_tokens_of_a_model_file(call, folder) -> None:
    wanted = recomputed(PROMPT, 6)
    result = call("generate", folder / "tiny.onnx", "--tokens", "3,1,4, 1,5", "--max-new-tokens", 6)
    assert result.code == exits.OK, result.err
    assert result.out == "".join(f"{token} " for token in wanted) + "\n"
    assert "6 tokens in " in result.err


def test_a_folder_names_its_model_and_what_ends_a_text(call, folder) -> None:
    result = call("generate", folder, "--tokens", "3,1,4,1,5", "--json")
    assert result.json["tokens"] == [4, 4, 4, 11]
    assert result.json["prompt_tokens"] == PROMPT
    assert result.json["text"] is None
    stopped = call("generate", folder, "--tokens", "3,1,4,1,5", "--stop", "7", "--stop", "4,4", "--json")
    assert stopped.json["tokens"] == [4, 4]


def test_a_model_of_bytes_reads_and_writes_text(call, letters) -> None:
    options = ("--temperature", 3, "--top-k", 200, "--top-p", 0.99, "--seed", 3, "--max-new-tokens", 20)
    shown = call("generate", letters, "--prompt", "Füße", *options)
    told = call("generate", letters, "--prompt", "Füße", *options, "--json")
    assert told.json["prompt_tokens"] == list("Füße".encode())
    assert len(told.json["tokens"]) == 20
    assert told.json["text"] == bytes(told.json["tokens"]).decode(errors="replace")
    assert len(shown.out) > 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompt", "text"), "there is no tokenizer for the prompt"),
        (("--tokens", "1,two"), "expected whole numbers such as 1,2,3, found 1,two"),
        ((), "one of the arguments --prompt --tokens is required"),
        (
            ("--tokens", "1", "--top-p", 2),
            "top_p cannot have this value where: top_p expected: a number above 0, up to 1",
        ),
        (("--tokens", ",".join("1" * 40)), "the prompt is longer than the cache where: tokens expected: up to 32"),
    ],
)
def test_what_is_wrong_is_said(call, folder, arguments, message) -> None:
    result = call("generate", folder, *arguments)
    assert result.code == exits.USAGE
    assert message in result.error


def test_a_tokenizer_in_the_folder(call, folder, tmp_path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{i}": i for i in range(19)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "model.onnx").write_bytes((folder / "tiny.onnx").read_bytes())
    result = call("generate", tmp_path, "--prompt", "w3 w1 w4 w1 w5", "--max-new-tokens", 4)
    assert result.out == "w4 w4 w4 w11\n"
