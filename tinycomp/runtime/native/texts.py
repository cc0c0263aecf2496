"""The border between texts of Python and those of the C runtime, which are spans of a heap of UTF-8."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tinycomp.errors import ExecutionError, FeedError
from tinycomp.memory.budget import reserve_bytes
from tinycomp.runtime.native.program import Array, Program, Texts

_texts: Any = importlib.import_module("tinycomp.runtime._texts")
_MOST = (1 << 32) - 1
"""A heap has no more bytes, since a span names them by 32 bits."""
_LEAST = 64


class TextBorder:
    """Turn the operands of a program into its inputs, and its outputs into results.

    Sizes of heaps are powers of two, so that a program need not be planned anew for every text.

    Args:
        program: The program.
        texts: Which of its inputs and outputs are texts.
    """

    def __init__(self, program: Program, texts: Texts) -> None:
        self._texts, self._where = texts, f"region {program.name}"
        self._names = [spec.name for spec in program.inputs]
        self._prefix = np.frombuffer(texts.prefix, np.uint8)
        self._results = len(program.results)
        self._sizes: dict[tuple[int, int], Array] = {}

    def encode(self, operands: Sequence[Array], limit: int | None = None) -> list[Array] | None:
        """Return the inputs for contiguous arrays; None if their heap would be larger than a limit.

        Raises:
            FeedError: If an element is not a text, or the texts are too long for one heap.
            MemoryLimitError: If a heap is more than the budget in force allows.
        """
        total = longest = 0
        for index in self._texts.inputs:
            bytes_of_all, bytes_of_one = self._measured(index, operands[index])
            total, longest = total + bytes_of_all, max(longest, bytes_of_one)
        start = len(self._prefix)
        room, most = _rounded(total), _rounded(longest)
        if limit is not None and start + room > limit:
            return None
        if start + room > _MOST:
            self._refuse_length(total)
        reserve_bytes(start + room, self._where, "its texts")
        heap = np.zeros(start + room, np.uint8)
        if start:
            heap[:start] = self._prefix
        inputs, at = list(operands), start
        for index in self._texts.inputs:
            inputs[index] = spans = np.empty(operands[index].shape, np.uint64)
            at = _texts.encode(operands[index], spans, heap, at)
        sizes = self._sizes.get((room, most))
        if sizes is None:  # of which there are few, because they are powers of two
            sizes = self._sizes[room, most] = np.array((room, most), np.int64)
        inputs += (heap, sizes)
        return inputs

    def _measured(self, index: int, texts: Array) -> tuple[int, int]:
        """Return the bytes of all texts of an operand, and those of the longest one."""
        try:
            total, longest = _texts.measure(texts)
        except TypeError as error:
            place, found = error.args
            raise FeedError(
                "an element is not a text", where=f'{self._where}, "{self._names[index]}"', expected="str",
                found=f"{type(found).__name__} at {np.unravel_index(place, texts.shape) if texts.shape else ()}",
                hint="Convert it first, for instance with array.astype(str).",
            ) from None  # fmt: skip
        return total, longest

    def _refuse_length(self, total: int) -> NoReturn:
        raise FeedError(
            "the texts are too long for one run", where=self._where, expected=f"at most {_MOST} bytes of UTF-8",
            found=f"{total} bytes", hint="Run parts of the batch one after another.",
        )  # fmt: skip

    def decode(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
        """Return the results for the outputs of a run.

        Raises:
            ExecutionError: If an output is no text.
        """
        results = list(outputs[: self._results])
        for index, heap in self._texts.outputs:
            texts = np.empty(outputs[index].shape, object)
            try:
                _texts.decode(outputs[index], inputs[-2] if heap < 0 else outputs[heap], texts)
            except ValueError as error:  # of which UnicodeDecodeError is one
                raise ExecutionError("a result is not a valid text", where=self._where, found=str(error)) from error
            results[index] = texts
        return results


def _rounded(size: int) -> int:
    """Return the next power of two, with room for short texts."""
    return max(_LEAST, 1 << (size - 1).bit_length()) if size else _LEAST
