"""Run a decoder step by step: recognise what it takes and gives by name, and keep its keys and values.

A decoder takes tokens and the keys and values of those before, layer by layer, and gives logits and the keys and values
of all. Two conventions are told apart by the shapes:

- The cache *grows*: a result has as many positions more than its input as there are new tokens.
- The cache is a *shared buffer*: inputs and results have one shape, with room for all tokens there will ever be; the
  positions, the attention mask, or ``seqlens_k`` and ``total_sequence_length`` say how much of it is in use.

A model of onnxruntime-genai serves both; ``past_present_share_buffer`` in its configuration asks for a shared buffer.

Names are those of Hugging Face's optimum, unless a ``genai_config.json`` of onnxruntime-genai gives others.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from os import PathLike
from typing import Any, Protocol

import numpy as np

from tinycomp.arguments import fitting
from tinycomp.errors import GenerationError, did_you_mean, shown
from tinycomp.memory.reading import read_json
from tinycomp.runtime.spec import TensorSpec

_INPUTS = (
    "input_ids", "attention_mask", "position_ids", "cache_position", "seqlens_k", "total_sequence_length",
    "past_sequence_length", "use_cache_branch",
)  # fmt: skip
_CACHES = (
    ("past_key_names", "past_key_values.%d.key", "present_key_names", "present.%d.key"),
    ("past_value_names", "past_key_values.%d.value", "present_value_names", "present.%d.value"),
    ("past_names", "past_%d", "present_names", "present_%d"),
)
"""What ``genai_config.json`` calls the names of a cache's inputs and results, and which they are by default."""
_POSITIONS = -2
"""The axis of a cache that the tokens lie along; before it come the batch and the heads, behind it the head's size."""


class Runnable(Protocol):
    """What a decoder needs of a :class:`tinycomp.Module`."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What it takes."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What it gives."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results by name."""


Config = Mapping[str, Any] | str | PathLike[str]
"""The contents of a ``genai_config.json``, or its path."""


_LARGEST = 2**31 - 1


def checked_tokens(tokens: Iterable[int], where: str = "tokens") -> list[int]:
    """Return ids of tokens as plain numbers.

    Raises:
        GenerationError: If there are none, or they are not ids; it names ``where``.
    """
    try:
        if isinstance(tokens, (str, bytes, bytearray, Mapping, Set)):
            raise TypeError(f"a {type(tokens).__name__}")
        ids = [operator.index(token) for token in tokens]
    except TypeError as error:
        raise GenerationError("not tokens", where=where, expected="whole numbers", found=str(error)) from error
    if not ids or min(ids) < 0 or max(ids) > _LARGEST:
        wrong = next((shown(token) for token in ids if not 0 <= token <= _LARGEST), "none")
        raise GenerationError(
            "not tokens", where=where, expected="ids from 0 on, at least one", found=wrong,
            hint="A tokenizer turns a text into ids.",
        )  # fmt: skip
    return ids


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _are_tokens(value: object) -> bool:
    return all(map(_is_count, value)) if isinstance(value, (list, tuple)) else _is_count(value)


_FIELDS: Sequence[tuple[str, str, Callable[[Any], bool]]] = (
    *(
        (path, "an object", lambda value: isinstance(value, Mapping))
        for path in ("", "model", "search", "model.decoder", "model.decoder.inputs", "model.decoder.outputs")
    ),
    *(
        (path, "a text", lambda value: isinstance(value, str))
        for path in ("model.decoder.inputs.*", "model.decoder.outputs.*", "model.decoder.filename")
    ),
    *(
        (path, "a number of tokens", lambda value: value is None or _is_count(value))
        for path in ("model.context_length", "search.max_length")
    ),
    ("search.past_present_share_buffer", "true or false", lambda value: isinstance(value, bool)),
    ("model.eos_token_id", "a token or a list of tokens", _are_tokens),
)
"""The fields of a configuration that are read: where they are, what they hold, and whether a value is that."""


def read_config(config: Config | None) -> Mapping[str, Any]:
    """Return what ``genai_config.json`` holds under ``"model"``, and as ``"search"`` what it holds under that.

    Raises:
        GenerationError: If it cannot be read.
    """
    where, contents = "config", {} if config is None else config
    if isinstance(contents, (str, PathLike)):
        where = str(contents)
        contents = read_json(contents, GenerationError, "a genai_config.json")
    for path, form, is_right in _FIELDS:
        fields = {"": contents}
        for name in filter(None, path.split(".")):
            fields = {
                f"{above}.{key}".lstrip("."): value[key]
                for above, value in fields.items() for key in (value if name == "*" else [name]) if key in value
            }  # fmt: skip
        for field, value in fields.items():
            if not is_right(value):
                raise GenerationError(
                    "not the configuration of a decoder", where=f"{where}, {field}".rstrip(", "), expected=form,
                    found=shown(value),
                    hint="Give a genai_config.json as onnxruntime-genai writes it, or leave it out.",
                )  # fmt: skip
    return {**contents.get("model", {}), "search": contents.get("search", {})}


class Decoder:
    """A language model and the keys and values of the tokens that it has seen.

    Args:
        module: A compiled model, or whatever else has ``inputs``, ``outputs`` and ``run``; for one text at a time.
        capacity: How many tokens a shared buffer has room for, where the model leaves that open; by default
            ``max_length`` or ``context_length`` of the configuration, which are never exceeded.
        config: A ``genai_config.json`` that gives other names than the usual ones.

    Attributes:
        length: How many tokens it has seen.
        capacity: How many it can see; None where only memory limits them.

    Raises:
        GenerationError: If an input is not recognised or missing, or the shape of a cache is not as it has to be.
    """

    def __init__(self, module: Runnable, *, capacity: int | None = None, config: Config | None = None) -> None:
        capacity = fitting(Decoder.__init__, {"capacity": capacity}, GenerationError, {"capacity": 1})["capacity"]
        model = read_config(config)
        decoder = model.get("decoder", {})
        names: dict[str, str] = {**decoder.get("inputs", {}), **decoder.get("outputs", {})}
        self._module = module
        self._logits = names.get("logits", "logits")
        self._roles = {names.get(role, role): role for role in _INPUTS}
        self._specs = {spec.name: spec for spec in module.inputs}
        caches = _matched(module, names)
        self._check_names(caches)
        lengths = {_length(past) for past, _ in caches}
        shared = all(_is_shared(_length(past), _length(present)) for past, present in caches)
        if len(lengths) > 1 or (not shared and not isinstance(_length(caches[0][0]), str)):
            raise GenerationError(
                "the past has the wrong shape", where=f'input "{caches[0][0].name}"',
                expected="the same length for every layer: that of the result, or a symbol where the cache grows",
                found=", ".join(sorted({f"{past} -> {present}" for past, present in caches})[:4]),
                hint="Compile without a fixed past, or with one that the result has, too.",
            )  # fmt: skip
        length = lengths.pop()
        if model["search"].get("past_present_share_buffer") and isinstance(length, str) and not shared:
            _check_shareable(*caches[0])
            shared = True
        self._shared = shared
        room: int | None = None
        if shared:
            room = length if isinstance(length, int) else _least(capacity, model)
            if room is None:
                raise GenerationError(
                    "the length of the cache is open", where=f'input "{caches[0][0].name}"', expected="a capacity",
                    found=str(caches[0][0]), hint="Pass capacity=, or compile with shapes that fix it.",
                )  # fmt: skip
        self.capacity: int | None = model.get("context_length") if room is None else room
        self.length = 0
        self._symbol = length if shared else None
        self._past = {past.name: _empty(past, present, room or 0) for past, present in caches}
        self._presents = {past.name: present.name for past, present in caches}
        self._fresh = _takes_outputs(module)
        self._run = self._in_place if shared and self._fresh else module.run

    @property
    def vocabulary(self) -> int | None:
        """How many tokens there are; None if the model does not say."""
        size = _named(self._module.outputs, self._logits).shape
        return size[-1] if size and isinstance(size[-1], int) else None

    def feeds(self, tokens: Sequence[int]) -> dict[str, np.ndarray]:
        """Return the inputs of a run on the next tokens: also what calibrates a model that is to be quantised."""
        pasts = {name: past.copy() for name, past in self._past.items()} if self._shared else self._past
        return {**self._new_feeds(checked_tokens(tokens)), **pasts}

    def _new_feeds(self, tokens: Sequence[int]) -> dict[str, np.ndarray]:
        """Return the inputs of a run but for the caches."""
        total = self.length + len(tokens)
        positions = np.arange(self.length, total)
        mask = np.zeros(self._mask_length(total), np.int64)
        mask[:total] = 1
        values = ([*tokens], mask, positions, positions, total - 1, total, self.length, self.length > 0)
        by_role = {role: np.asarray(value) for role, value in zip(_INPUTS, values, strict=True)}
        given = {name: by_role[role] for name, role in self._roles.items() if name in self._specs}
        return {name: _fitted(self._specs[name], value) for name, value in given.items()}

    def step(self, tokens: Iterable[int]) -> np.ndarray:
        """Run the model on the next tokens and keep their keys and values.

        Args:
            tokens: One or more; a model for one token per run gets one after the other.

        Returns:
            The logits ``[tokens, vocabulary]`` in float32; those of the last token alone where the model gives no more.

        Raises:
            GenerationError: If the cache is full, a result has the wrong shape, or what is given are no tokens.
        """
        tokens = checked_tokens(tokens)
        spec = self._specs[next(name for name, role in self._roles.items() if role == "input_ids")]
        if spec.shape and spec.shape[-1] == 1 and len(tokens) > 1:
            return np.concatenate([self.step([token]) for token in tokens])
        total = self.length + len(tokens)
        if self.capacity is not None and total > self.capacity:
            raise GenerationError(
                "the cache is full", where=f"token {self.capacity + 1}",
                expected=f"up to {self.capacity} tokens, those of the prompt among them", found=str(total),
                hint="Generate fewer tokens, or compile the model with a longer cache.",
            )  # fmt: skip
        results = self._run({**self._new_feeds(tokens), **self._past})
        kept = dict[str, np.ndarray]()
        for past, present in self._presents.items():
            shape = list(self._past[past].shape)
            shape[_POSITIONS] += 0 if self._shared else len(tokens)
            result = _result(results, present)
            if list(result.shape) != shape:
                raise GenerationError(
                    "the result has the wrong shape", where=f'output "{present}"', expected=str(shape),
                    found=str(list(result.shape)), hint=f'It must go on from the input "{past}".',
                )  # fmt: skip
            kept[past] = result
        logits, size = _result(results, self._logits), self.vocabulary
        width = logits.shape[-1] if logits.ndim else 0
        if logits.size not in (width, width * len(tokens)) or not width or size not in (None, width):
            raise GenerationError(
                "the result has the wrong shape", where=f'output "{self._logits}"',
                expected=f"[1, {len(tokens)}, {size or 'vocabulary'}], or logits of the last token alone",
                found=str(list(logits.shape)),
            )  # fmt: skip
        self._past, self.length = kept, total
        # Where a run takes arrays for results, all other results are new; elsewhere the next step may write there.
        return logits.reshape(-1, logits.shape[-1]).astype(np.float32, copy=not self._fresh)

    def _in_place(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model so that it writes into the shared buffers."""
        outputs = {present: feeds[past] for past, present in self._presents.items()}
        results: dict[str, Any] = self._module.run(feeds, outputs=outputs)  # type: ignore[call-arg]
        return results

    def _mask_length(self, total: int) -> int:
        """Return how long the attention mask is: as the buffer, where the model says so, or up to the last token."""
        spec = next((s for name, s in self._specs.items() if self._roles.get(name) == "attention_mask"), None)
        size = spec.shape[-1] if spec is not None and spec.shape else None
        if isinstance(size, int):
            return max(size, total)
        return self.capacity if self.capacity is not None and size is not None and size == self._symbol else total

    def _check_names(self, caches: Sequence[tuple[TensorSpec, TensorSpec]]) -> None:
        pasts = {past.name for past, _ in caches}
        known = [*self._roles, *(past for _, past, _, _ in _CACHES)]
        defaults = getattr(self._module, "defaults", ())
        for spec in self._module.inputs:
            if spec.name not in self._roles and spec.name not in pasts and spec.name not in defaults:
                raise GenerationError(
                    "the input is not one of a decoder", where=f'input "{spec.name}"',
                    expected=f"one of {', '.join(known)}, and a result for every past", found=str(spec),
                    hint=f"{did_you_mean(spec.name, known)} "
                    'Other names: config={"model": {"decoder": {"inputs": {"input_ids": "…"}}}}.'.strip(),
                )  # fmt: skip
        tokens = next(name for name, role in self._roles.items() if role == "input_ids")
        size = _named(self._module.inputs, tokens).shape
        _named(self._module.outputs, self._logits)
        if not pasts:
            raise GenerationError(
                "the model keeps no keys and values", where="inputs", expected=_CACHES[0][1] % 0,
                found=", ".join(self._specs), hint="Export it with a past: optimum's task text-generation-with-past.",
            )  # fmt: skip
        if size and isinstance(size[-1], int) and size[-1] != 1:
            raise GenerationError(
                "the number of tokens is fixed", where=f'input "{tokens}"', expected="a symbol, or 1",
                found=str(self._specs[tokens]), hint="Compile without a shape for it.",
            )  # fmt: skip


def _least(capacity: int | None, model: Mapping[str, Any]) -> int | None:
    """Return the room for tokens that is asked for, as far as a configuration allows it; None if nothing says it."""
    limits = [capacity, model["search"].get("max_length"), model.get("context_length")]
    return min((int(limit) for limit in limits if limit), default=None)


def _check_shareable(past: TensorSpec, present: TensorSpec) -> None:
    """Refuse a result that is longer than its input by the new tokens, whatever is in it."""
    if "+" in str(_length(present)):
        raise GenerationError(
            "the cache cannot be a shared buffer", where='config, "past_present_share_buffer"',
            expected="a result as long as its input where that has room", found=f"{past} -> {present}",
            hint="The past of this model grows: set it to false.",
        )  # fmt: skip


def _takes_outputs(module: Runnable) -> bool:
    """Tell whether a run can write into given arrays."""
    return "outputs" in inspect.signature(module.run).parameters


def _result(results: Any, name: str) -> np.ndarray:
    """Return a result of a run, which may be another's than tinycomp's."""
    value = results.get(name) if isinstance(results, Mapping) else None
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSUTcMm":
        found = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise GenerationError("the result is no array", where=f'output "{name}"', expected="numbers", found=found)
    return value


def _named(specs: Sequence[TensorSpec], name: str) -> TensorSpec:
    spec = next((spec for spec in specs if spec.name == name), None)
    if spec is None:
        names = [spec.name for spec in specs]
        raise GenerationError(
            f'there is no "{name}"', where="names", expected=f'"{name}" among the inputs or outputs',
            found=", ".join(names),
            hint=f"{did_you_mean(name, names)} config= gives names other than the usual ones.".strip(),
        )  # fmt: skip
    return spec


def _matched(module: Runnable, names: Mapping[str, str]) -> list[tuple[TensorSpec, TensorSpec]]:
    """Return the inputs and results that are caches, in pairs."""
    outputs = {spec.name: spec for spec in module.outputs}
    pairs = []
    for past_key, past, present_key, present in _CACHES:
        pattern = re.escape(names.get(past_key, past)).replace("%d", r"(\d+)")
        for spec in module.inputs:
            layer = re.fullmatch(pattern, spec.name)
            result = outputs.get(names.get(present_key, present).replace("%d", layer[1])) if layer else None
            if result is not None:
                pairs.append((spec, result))
    return pairs


def _is_shared(past: int | str | None, present: int | str | None) -> bool:
    """Tell whether a cache has the length of the past, as it has where that is a number: room for all tokens."""
    return past == present or (isinstance(past, int) and not isinstance(present, int))


def _length(spec: TensorSpec) -> int | str | None:
    if spec.shape is None or len(spec.shape) < 4:
        raise GenerationError(
            "the cache has the wrong shape", where=f'"{spec.name}"', expected="[batch, heads, tokens, size]",
            found=str(spec),
        )  # fmt: skip
    return spec.shape[_POSITIONS]


def _empty(past: TensorSpec, present: TensorSpec, length: int) -> np.ndarray:
    """Return a cache that holds nothing: without positions where it grows, of zeros where it is a buffer."""
    dims, others = list(past.shape or ()), list(present.shape or ())
    batch, heads = len(dims) - 4, len(dims) - 3
    dims[batch] = 1 if isinstance(dims[batch], str) else dims[batch]
    dims[_POSITIONS] = length
    shape = [dim for dim in dims if isinstance(dim, int)]
    differs = any(isinstance(others[i], int) and others[i] != dims[i] for i in (heads, -1))
    if len(shape) < len(dims) or shape[batch] != 1 or differs:
        raise GenerationError(
            "the past has the wrong shape", where=f'input "{past.name}"',
            expected=f"[1, heads, tokens, size] with the numbers of {present}", found=str(past),
            hint="One text is generated at a time; heads and their size must be known: compile with shapes.",
        )  # fmt: skip
    try:
        return np.zeros(shape, past.numpy_dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        raise GenerationError(
            "the cache does not fit into memory", where=f'input "{past.name}"', expected="fewer tokens",
            found=f"{length} tokens: {error}", hint="Generate fewer tokens.",
        ) from error  # fmt: skip


def _fitted(spec: TensorSpec, value: np.ndarray) -> np.ndarray:
    """Return a value in the dtype and rank of an input."""
    rank = value.ndim if spec.shape is None else len(spec.shape)
    return value.astype(spec.numpy_dtype).reshape((1,) * (rank - value.ndim) + value.shape)
