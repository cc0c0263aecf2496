"""Generate tokens with a decoder, and measure how well it predicts a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tinycomp.arguments import checked
from tinycomp.errors import GenerationError
from tinycomp.generation.decoder import Config, Decoder, Runnable, checked_tokens, read_config
from tinycomp.generation.sampling import Sampler

_PIECE = 512
"""How many tokens are scored per run: the logits of all would need a lot of memory."""


@checked("tokens", error=GenerationError, least={"max_new_tokens": 0})
def generate(
    module: Runnable,
    tokens: Iterable[int],
    *,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Iterable[int | Sequence[int]] = (),
    seed: int | None = None,
    config: Config | None = None,
) -> Iterator[int]:
    """Continue a text with a language model, token by token.

    The keys and values of earlier tokens are kept, in the convention that the model's inputs and outputs show
    (:mod:`tinycomp.generation.decoder`): a growing past, or a buffer of fixed length.

    Args:
        module: A compiled decoder: token ids and the past in, logits and the present out.
        tokens: The ids of the text so far, at least one.
        max_new_tokens: After how many tokens to end.
        temperature: 0 for the likeliest token each time, above it for random ones: see
            :class:`tinycomp.generation.Sampler`, also for ``top_k`` and ``top_p``.
        top_k: How many tokens to choose from.
        top_p: The probability of the tokens to choose from.
        stop: Ids, or sequences of ids, that end the text; they are its last tokens.
        seed: For the same random choices each time.
        config: A ``genai_config.json`` (its contents or path) with the names of inputs and outputs; the ids that it
            calls ``eos_token_id`` stop, too.

    Returns:
        An iterator over the new tokens, each as soon as it is chosen.

    Raises:
        GenerationError: At once if the inputs are not those of a decoder or an option is wrong; while iterating if the
            cache is full or the logits are not numbers.

    Example:
        >>> import tinycomp
        >>> module = tinycomp.compile("decoder.onnx")                              # doctest: +SKIP
        >>> for token in tinycomp.generate(module, [1, 15043], max_new_tokens=20): # doctest: +SKIP
        ...     print(token)
    """
    prompt = checked_tokens(tokens)
    sampler = Sampler(temperature, top_k, top_p, seed)
    decoder = Decoder(module, capacity=len(prompt) + max_new_tokens, config=config)
    stops = [*_stops(stop), *_stops(read_config(config).get("eos_token_id", ()))]
    if decoder.capacity is not None and len(prompt) > decoder.capacity:
        raise GenerationError(
            "the prompt is longer than the cache", where="tokens", expected=f"up to {decoder.capacity}",
            found=str(len(prompt)), hint="Shorten the prompt, or compile the model with a longer cache.",
        )  # fmt: skip
    return _generated(decoder, prompt, sampler, stops, max_new_tokens)


def _generated(
    decoder: Decoder, prompt: list[int], sampler: Sampler, stops: list[list[int]], count: int
) -> Iterator[int]:
    pending, recent = prompt, list[int]()
    longest = max(map(len, stops), default=1)
    for _ in range(count):
        token = sampler(decoder.step(pending)[-1])
        yield token
        pending, recent = [token], [*recent, token][-longest:]
        if any(recent[-len(end) :] == end for end in stops):
            return


@checked("tokens", error=GenerationError, least={"window": 1})
def perplexity(
    module: Runnable, tokens: Iterable[int], *, window: int | None = None, config: Config | None = None
) -> float:
    """Return the perplexity of a text: the exponential of the mean negative log-likelihood of its tokens.

    Lower is better; 1 for a text that is predicted with certainty, the size of the vocabulary for one that is guessed.

    Args:
        module: A compiled decoder that gives the logits of all tokens, as for :func:`generate`.
        tokens: The ids of the text, at least two; the first is not scored.
        window: How many tokens the model sees at most; a longer text is cut into such pieces, each scored without what
            comes before. By default as many as its cache has room for, or all.
        config: As for :func:`generate`.

    Raises:
        GenerationError: If there is nothing to score, the model returns only the last logits, or they are not numbers.
    """
    text = np.asarray(checked_tokens(tokens))
    capacity = Decoder(module, capacity=window or text.size, config=config).capacity
    size = min(window or text.size, capacity or text.size)
    if text.size < 2 or size < 1:
        raise GenerationError("there is nothing to score", where="tokens", expected="two or more", found=str(text.size))
    total = 0.0
    for start in range(0, text.size - 1, size):
        decoder = Decoder(module, capacity=size, config=config)
        end = min(start + size, text.size - 1)
        for first in range(start, end, _PIECE):
            last = min(first + _PIECE, end)
            total += _surprise(decoder.step(text[first:last].tolist()), text[first + 1 : last + 1])
    return math.exp(total / (text.size - 1))


def _surprise(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the negative log-likelihood of the tokens that follow."""
    if len(logits) != len(targets):
        raise GenerationError(
            "the model returns only the last logits", where="logits", expected=f"logits of {len(targets)} tokens",
            found=str(len(logits)), hint="Export it so that it returns the logits of all tokens.",
        )  # fmt: skip
    if targets.max() >= logits.shape[1]:
        raise GenerationError(
            "not tokens of the model", where="tokens", expected=f"ids below {logits.shape[1]}",
            found=str(targets.max()), hint="A tokenizer turns a text into ids.",
        )  # fmt: skip
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    lost = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(targets)), targets]
    if not np.isfinite(lost).all():
        raise GenerationError("the logits are not numbers", where="logits", expected="finite numbers", found="others")
    return float(lost.sum())


def _stops(stop: int | Iterable[int | Sequence[int]]) -> list[list[int]]:
    """Return the sequences that end a text."""
    entries = [stop] if isinstance(stop, (int, np.integer)) else list(stop)
    return [checked_tokens([entry] if isinstance(entry, (int, np.integer)) else entry, "stop") for entry in entries]
