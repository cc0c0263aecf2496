"""What is recognised as a decoder, and its steps."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.generation.decoders import VOCABULARY, Session, decoder, grouped
from tinycomp.errors import GenerationError
from tinycomp.generation import Decoder
from tinycomp.runtime.spec import TensorSpec

PAST = TensorSpec("past_key_values.0.key", "float32", ("batch", 2, "past", 4))
PRESENT = TensorSpec("present.0.key", "float32", ("batch", 2, "all", 4))
IDS = TensorSpec("input_ids", "int64", ("batch", "sequence"))
LOGITS = TensorSpec("logits", "float32", ("batch", "sequence", 11))


@dataclass
class Fake:
    """A module of which only the interface counts."""

    inputs: tuple[TensorSpec, ...] = (IDS, PAST)
    outputs: tuple[TensorSpec, ...] = (LOGITS, PRESENT)
    results: dict[str, Any] = field(default_factory=dict)

    def run(self, feeds: Any) -> dict[str, Any]:
        return self.results


def spec(name: str, *shape: int | str, dtype: str = "int64") -> TensorSpec:
    return TensorSpec(name, dtype, shape)


@pytest.mark.parametrize("model", [decoder("growing"), decoder("shared")], ids=["growing", "shared"])
def test_pieces_of_a_text_give_the_logits_of_the_whole(model):
    module, text = tinycomp.compile(model), [3, 1, 4, 1, 5, 9, 2, 6]
    whole = Decoder(module).step(text)
    pieces = Decoder(module)
    parts = [pieces.step(text[:3]), pieces.step(text[3:4]), pieces.step(text[4:])]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-4)
    assert pieces.length == len(text)
    assert pieces.vocabulary == 19


def test_feeds_in_every_role():
    names = ("total_sequence_length", "past_sequence_length")
    scalars = (spec("seqlens_k", "batch", dtype="int32"), *(spec(name, dtype="int32") for name in names))
    roles = (spec("position_ids", "batch", "sequence"), spec("cache_position", "sequence"))
    mask, branch = spec("attention_mask", "batch", "total"), spec("use_cache_branch", 1, dtype="bool")
    buffers = spec("past_0", 2, "batch", 2, 16, 4, dtype="float16"), spec("present_0", 2, "batch", 2, 16, 4)
    module = Fake((IDS, mask, *roles, *scalars, branch, buffers[0]), (LOGITS, buffers[1]))
    module.results = {"logits": np.zeros((1, 3, 11), np.float16), "present_0": np.ones((2, 1, 2, 16, 4), np.float16)}
    seen = Decoder(module)
    assert seen.capacity == 16
    assert seen.step([5, 6, 7]).dtype == np.float32
    feeds = {name: (value.dtype.name, value.tolist()) for name, value in seen.feeds([8, 9]).items()}
    assert feeds.pop("past_0") == ("float16", np.ones((2, 1, 2, 16, 4)).tolist())
    assert feeds == {
        "input_ids": ("int64", [[8, 9]]),
        "attention_mask": ("int64", [[1, 1, 1, 1, 1]]),
        "position_ids": ("int64", [[3, 4]]),
        "cache_position": ("int64", [3, 4]),
        "seqlens_k": ("int32", [4]),
        "total_sequence_length": ("int32", 5),
        "past_sequence_length": ("int32", 3),
        "use_cache_branch": ("bool", [True]),
    }


@pytest.mark.parametrize(("size", "length"), [(8, 8), ("room", 8), ("total", 3)])
def test_the_mask_is_as_long_as_the_buffer_where_the_model_says_so(size, length):
    caches = [spec(n, 1, 2, 8 if size == 8 else "room", 4, dtype="float32") for n in (PAST.name, PRESENT.name)]
    module = Fake((IDS, spec("attention_mask", "batch", size), caches[0]), (LOGITS, caches[1]))
    mask = Decoder(module, capacity=8).feeds([1, 2, 3])["attention_mask"]
    assert mask.tolist() == [[1, 1, 1] + [0] * (length - 3)]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            Fake((IDS, PAST, spec("positoin_ids", "sequence"))),
            'input "positoin_ids": the input is not one of a decoder; expected one of input_ids, attention_mask, '
            "position_ids, cache_position, seqlens_k, total_sequence_length, past_sequence_length, use_cache_branch, "
            "past_key_values.%d.key, "
            "past_key_values.%d.value, past_%d, and a result for every past; found positoin_ids: int64[sequence]. "
            'Did you mean "position_ids"? Other names: config={"model": {"decoder": {"inputs": {"input_ids": "…"}}}}.',
        ),
        (Fake(outputs=(LOGITS,)), 'input "past_key_values.0.key": the input is not one of a decoder'),
        (Fake((PAST,)),
            'names: there is no "input_ids"; expected "input_ids" among the inputs or outputs; found past_'),
        (
            Fake(outputs=(spec("logit", 1, "s", 11), PRESENT)),
            'there is no "logits"; expected "logits" among the inputs or outputs; found logit, present.0.key. '
            'Did you mean "logit"? config= gives names other than the usual ones.',
        ),
        (
            Fake((IDS,)),
            "inputs: the model keeps no keys and values; expected past_key_values.0.key; found input_ids. "
            "Export it with a past: optimum's task text-generation-with-past.",
        ),
        (
            Fake((spec("input_ids", 1, 5), PAST)),
            'input "input_ids": the number of tokens is fixed; expected a symbol, or 1; found input_ids: int64[1, 5]. '
            "Compile without a shape for it.",
        ),
        (
            Fake((IDS, spec(PAST.name, "b", 2, 6, 4)), (LOGITS, spec(PRESENT.name, "b", 2, 7, 4))),
            'input "past_key_values.0.key": the past has the wrong shape; expected the same length for every layer: '
            "that of the result, or a symbol where the cache grows; found past_key_values.0.key: int64[b, 2, 6, 4] -> "
            "present.0.key: int64[b, 2, 7, 4]. Compile without a fixed past, or with one that the result has, too.",
        ),
        (
            Fake((IDS, spec(PAST.name, "b", "heads", "past", 4))),
            'input "past_key_values.0.key": the past has the wrong shape; expected [1, heads, tokens, size] with the '
            "numbers of present.0.key: float32[batch, 2, all, 4]; found past_key_values.0.key: int64[b, heads, past, "
            "4]. One text is generated at a time; heads and their size must be known: compile with shapes.",
        ),
        (Fake((IDS, spec(PAST.name, 1, 3, "past", 4))), "the past has the wrong shape; expected [1, heads, tokens, si"),
        (Fake((IDS, spec(PAST.name, 2, 2, "past", 4))), "the past has the wrong shape; expected [1, heads, tokens, si"),
        (Fake((IDS, spec(PAST.name, 1, "past", 4))),
            '"past_key_values.0.key": the cache has the wrong shape; expected [batch, heads, tokens, size]; found'),
        (Fake((IDS, PAST), (LOGITS, spec(PRESENT.name, 1, 2, "past", 4))),
            'input "past_key_values.0.key": the length of the cache is open; expected a capacity; found past_key_val'),
    ],
)  # fmt: skip
def test_what_is_no_decoder_is_told(module, message):
    with pytest.raises(GenerationError) as caught:
        Decoder(module)
    assert message in str(caught.value)


def test_a_result_of_the_wrong_shape_is_told():
    module = Fake(results={"logits": np.zeros((1, 2, 11)), "present.0.key": np.zeros((1, 2, 3, 4), np.float32)})
    with pytest.raises(GenerationError) as caught:
        Decoder(module).step([1, 2])
    assert str(caught.value) == (
        'output "present.0.key": the result has the wrong shape; expected [1, 2, 2, 4]; found [1, 2, 3, 4]. '
        'It must go on from the input "past_key_values.0.key".'
    )


def test_inputs_with_a_value_of_their_own_may_be_anything():
    session = Session(decoder("growing", extra=["bonus"]))
    session.defaults = {"bonus": np.zeros((1, 1))}
    assert "bonus" not in Decoder(session).feeds([1])


def test_a_shared_buffer_is_written_in_place():
    module = tinycomp.compile(grouped(21000, tokens=1, lengths_given=True))
    seen, tokens = Decoder(module), [3, 1, 4, 1, 5]
    logits = [seen.step([token])[0] for token in tokens]
    buffers = [past.ctypes.data for past in seen._past.values()]
    tracemalloc.start()
    try:
        for step in range(2000):
            seen.step([step % VOCABULARY])
            if step == 10:
                before = tracemalloc.get_traced_memory()[0]
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert most < 21000 * 8 * 4 // 2, "half a buffer: nothing has copied one, and little stays of a step"
    assert buffers == [past.ctypes.data for past in seen._past.values()]
    assert seen.length == 2005
    wanted = Decoder(Session(grouped(21000))).step(tokens)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("capacity", [32, "room"])
def test_grouped_queries_in_onnxruntime_give_the_same_logits(capacity):
    text, model = [3, 1, 4, 1, 5, 9, 2, 6], grouped(capacity)
    results = []
    for module in (tinycomp.compile(model), Session(model)):
        seen = Decoder(module, capacity=32)
        results.append(np.concatenate([seen.step(text[:5]), seen.step(text[5:6]), seen.step(text[6:7])]))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_feeds_do_not_change_with_later_steps():
    seen = Decoder(tinycomp.compile(grouped()))
    feeds = seen.feeds([1, 2])
    kept = {name: value.copy() for name, value in feeds.items()}
    seen.step([1, 2])
    for name, value in feeds.items():
        np.testing.assert_array_equal(value, kept[name])
