"""What files of a user may hold instead of what they should: one error with the file and the field, whatever it is."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinycomp.cli.exits import UsageError
from tinycomp.cli.feeds import read_feeds
from tinycomp.driver.dump import read_dump
from tinycomp.errors import GenerationError, ModelError, TuningError
from tinycomp.generation.decoder import read_config
from tinycomp.generation.text import ByteTokenizer
from tinycomp.targets.c.tuning.log import TuningLog

CONFIGS: dict[str, Any] = {
    "a number": (3, ": not the configuration of a decoder; expected an object; found 3"),
    "a list": ([], "expected an object; found []"),
    "a list for model": ({"model": []}, ", model: not the configuration of a decoder; expected an object"),
    "null for search": ({"search": None}, ", search: not the configuration"),
    "a text for decoder": ({"model": {"decoder": "x"}}, ", model.decoder: not the configuration"),
    "a number for a name": (
        {"model": {"decoder": {"inputs": {"input_ids": 3}}}},
        ", model.decoder.inputs.input_ids: not the configuration of a decoder; expected a text; found 3",
    ),
    "a list for a name": ({"model": {"decoder": {"outputs": {"logits": ["x"]}}}}, ", model.decoder.outputs.logits: "),
    "an object for a path": ({"model": {"decoder": {"filename": {}}}}, ", model.decoder.filename: "),
    "a text for a length": (
        {"model": {"context_length": "long"}}, ", model.context_length: not the configuration"
    ),
    "a length below zero": ({"model": {"context_length": -1}}, "expected a number of tokens; found -1"),
    "a length beyond range": ({"search": {"max_length": 10**30}}, ", search.max_length: "),
    "a text for a switch": ({"search": {"past_present_share_buffer": "no"}}, "expected true or false; found 'no'"),
    "a text for a token": ({"model": {"eos_token_id": "</s>"}}, ", model.eos_token_id: "),
    "a text among tokens": ({"model": {"eos_token_id": [1, "2"]}}, "expected a token or a list of tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_fields_of_a_configuration(name: str, tmp_path: Path) -> None:
    contents, message = CONFIGS[name]
    path = tmp_path / "genai_config.json"
    path.write_text(json.dumps(contents))
    with pytest.raises(GenerationError) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def zipped(data: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", compression) as archive:
            archive.writestr("x.npy", data)
        return file.getvalue()


def array(value: Any, **options: Any) -> bytes:
    with io.BytesIO() as file:
        np.save(file, value, **options)
        return file.getvalue()


def marked(offset: int, value: int) -> bytes:
    """Return an archive with one number changed in the header of its member, and in the directory."""
    data = bytearray(zipped(array(np.ones(3))))
    for signature, place in ((b"PK\x03\x04", offset), (b"PK\x01\x02", offset + 2)):
        data[data.index(signature) + place] = value
    return bytes(data)


def named(path: Path) -> object:
    return read_feeds(f"x={path}", ())


def unnamed(path: Path) -> object:
    return read_feeds(str(path), ())


READERS: dict[str, tuple[str, bytes, Callable[[Path], object], type[Exception], str]] = {
    "objects": ("x.npy", array(np.array([{}]), allow_pickle=True), named, UsageError, "pickle"),
    "objects in an archive": (
        "x.npz", zipped(array(np.array([{}]), allow_pickle=True)), unnamed, UsageError, "pickle",
    ),
    "an encrypted member": ("x.npz", marked(6, 1), unnamed, UsageError, "encrypted"),
    "an unknown compression": ("x.npz", marked(8, 99), unnamed, UsageError, "compression"),
    "a huge shape": (
        "x.npy", array(np.ones(3)).replace(b"(3,)", b"(1<<60,)"), named, UsageError, "found",
    ),
    "IR that is not UTF-8": ("x.tir", b"graph @\xff", read_dump, ModelError, "not a text file; expected tinycomp IR"),
    "JSON that is not UTF-8": ("c.json", b'{"\xff": 1}', read_config, GenerationError, "the file is damaged"),
    "JSON in JSON in JSON": ("c.json", b"[" * 200_000, read_config, GenerationError, "objects in objects, too deep"),
    "a log of something else": ("log", b"\xff\xfe\n{}", TuningLog.read, TuningError, "not a tuning log"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::tinycomp.errors.TinycompWarning")
@pytest.mark.parametrize("name", READERS)
def test_contents(name: str, tmp_path: Path) -> None:
    file, data, read, kind, message = READERS[name]
    (tmp_path / file).write_bytes(data)
    with pytest.raises(kind) as caught:
        read(tmp_path / file)
    assert file in str(caught.value)
    assert message in str(caught.value)


def test_prompts_that_are_not_text() -> None:
    with pytest.raises(GenerationError, match="text: not text; expected UTF-8; found UnicodeEncodeError"):
        ByteTokenizer().encode("caf\udce9")
