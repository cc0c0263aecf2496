"""Text to tokens and back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycomp.errors import GenerationError
from tinycomp.generation.text import ByteTokenizer, JsonTokenizer


@given(st.text())
def test_bytes_stream_back_as_the_text(text):
    tokens, decode = ByteTokenizer().encode(text), ByteTokenizer().decoder()
    assert all(0 <= token < 256 for token in tokens)
    assert "".join(map(decode, tokens)) == text


def test_bytes_that_are_no_text_are_marked():
    assert "".join(map(ByteTokenizer().decoder(), [0xC3, 65])) == "\ufffdA"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A file for words, with a token that ends a text."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<unk>": 0, "</s>": 1, "one": 2, "two": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["</s>"])
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_tokenizer_from_a_file(tokenizer):
    text = JsonTokenizer(tokenizer)
    assert text.encode("one two one") == [2, 3, 2]
    assert "".join(map(text.decoder(), [3, 2, 1])) == "two one"


def test_a_file_that_is_no_tokenizer(tmp_path):
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(GenerationError, match=r"the file is damaged; expected a tokenizer.json; found "):
        JsonTokenizer(path)


def test_the_package_may_be_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(GenerationError) as caught:
        JsonTokenizer(tmp_path / "tokenizer.json")
    assert "a tokenizer needs a package that is not installed; expected tokenizers; found " in str(caught.value)
    assert str(caught.value).endswith('Install it with pip install "tinycomp[generate]", or give tokens instead.')
