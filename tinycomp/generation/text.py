"""Turn text into tokens and back: by a ``tokenizer.json``, or byte by byte."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tinycomp.errors import GenerationError
from tinycomp.memory.reading import read_regular, reading


class Tokenizer(Protocol):
    """What turns text into tokens and back."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""

    def decoder(self) -> Callable[[int], str]:
        """Return a function that takes token after token and returns the text that each completes."""


class ByteTokenizer:
    """Takes the bytes of UTF-8 for tokens: for models with a vocabulary of 256."""

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text."""
        with reading(GenerationError, "text", "UTF-8", problem="not text"):
            return list(text.encode())

    def decoder(self) -> Callable[[int], str]:
        """Return a function that takes byte after byte."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        return lambda token: decode(bytes([token]))


class JsonTokenizer:
    """A ``tokenizer.json``, read by Hugging Face's package ``tokenizers``.

    Args:
        path: Of the file.

    Raises:
        GenerationError: If the package is not installed, or the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
            from tokenizers.decoders import DecodeStream
        except ImportError as error:
            raise GenerationError(
                "a tokenizer needs a package that is not installed", where=str(path), expected="tokenizers",
                found=str(error), hint='Install it with pip install "tinycomp[generate]", or give tokens instead.',
            ) from error  # fmt: skip
        with reading(GenerationError, path, "a tokenizer.json"):
            self._tokenizer = tokenizers.Tokenizer.from_buffer(read_regular(path))
        self._stream = DecodeStream

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the tokenizer puts around it."""
        with reading(GenerationError, "text", "UTF-8", problem="not text"):
            return list(self._tokenizer.encode(text).ids)

    def decoder(self) -> Callable[[int], str]:
        """Return a function that takes token after token; special ones give no text."""
        stream = self._stream(skip_special_tokens=True)
        return lambda token: stream.step(self._tokenizer, token) or ""
