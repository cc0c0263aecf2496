"""Decoders in every form that tools export continue a text as onnxruntime does."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tinycomp
from benchmarks.architectures import decoders
from benchmarks.architectures.decoders import TINY
from tests.generation.decoders import Session
from tinycomp.errors import GenerationError
from tinycomp.generation import Decoder
from tinycomp.runtime.binding import direct_call

PROMPT, COUNT = [3, 5, 7, 11, 13, 2], 12
MODELS = {
    "genai": decoders.genai(TINY),
    "genai shared": decoders.genai(TINY, shared=True),
    "genai int4": decoders.genai(TINY, weights="int4"),
    "genai shared int4": decoders.genai(TINY, shared=True, weights="int4"),
    "optimum": decoders.optimum(TINY),
    "optimum int4": decoders.optimum(TINY, weights="int4"),
    "opset24": decoders.opset24(TINY),
}


FLOATS = [name for name in MODELS if "int4" not in name]


def expected(model: onnx.ModelProto) -> list[int]:
    return list(tinycomp.generate(Session(model), PROMPT, max_new_tokens=COUNT))


def looped(run: object) -> list[np.ndarray]:
    feeds = {"prompt": np.array(PROMPT), "steps": np.array(COUNT)}
    return list(run(feeds))


def test_all_forms_are_one_model():
    found = {name: expected(MODELS[name]) for name in FLOATS}
    session = ort.InferenceSession(decoders.loop(TINY).SerializeToString())
    found["loop"] = looped(lambda feeds: session.run(["tokens"], feeds))[0][-COUNT:].tolist()
    assert len(set(map(tuple, found.values()))) == 1, found
    assert len(set(found["loop"])) > 4


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["host", "c"])
def test_a_compiled_decoder_continues_as_onnxruntime_does(name: str, target: str):
    model = MODELS[name]
    module = tinycomp.compile(model, target)
    assert list(tinycomp.generate(module, PROMPT, max_new_tokens=COUNT)) == expected(model)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_caches_are_those_of_onnxruntime(name: str):
    """At the prompt, at single tokens, and at several; where both round to 8 bits, by a step or two."""
    model = MODELS[name]
    module, session = tinycomp.compile(model, "c"), Session(model)
    ours, peer = (Decoder(m) for m in (module, session))
    tolerance = 2e-5 if name in FLOATS else 0.02
    for tokens in (PROMPT, [1], [4], [9, 8, 60], [0]):
        feeds = peer.feeds(tokens)
        for (key, found), wanted in zip(module.run(feeds).items(), session.run(feeds).values(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max(), err_msg=key)
        np.testing.assert_allclose(ours.step(tokens), peer.step(tokens), rtol=0, atol=5 * tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_a_decoder_is_one_region_that_serves_all_lengths(name: str):
    module = tinycomp.compile(MODELS[name], "c")
    report = module.report()
    assert [region.target for region in report.regions] == ["c"]
    assert not report.hosts
    assert direct_call(module._parts.plan) is not None


@pytest.mark.parametrize("target", ["host", "c"])
def test_a_decoder_in_a_loop(target: str):
    model = decoders.loop(TINY)
    session = ort.InferenceSession(model.SerializeToString())
    wanted = looped(lambda feeds: session.run(None, feeds))
    module = tinycomp.compile(model, target)
    for found, peer in zip(looped(lambda feeds: module.run(feeds).values()), wanted, strict=True):
        np.testing.assert_allclose(found, peer, rtol=0, atol=1e-5 * np.abs(peer).max())


@pytest.mark.parametrize("weights", ["float32", "int4"])
def test_a_configuration_asks_for_a_shared_buffer(weights: str):
    """One module serves a cache that grows and one of any fixed length, which it extends in place."""
    module = tinycomp.compile(decoders.genai(TINY, weights=weights), "c")
    wanted = list(tinycomp.generate(module, PROMPT, max_new_tokens=COUNT))
    config = decoders.genai_config(TINY, shared=True)
    assert list(tinycomp.generate(module, PROMPT, max_new_tokens=COUNT, config=config)) == wanted
    decoder = Decoder(module, config=config)
    assert decoder.capacity == TINY.positions
    decoder.step(PROMPT)
    buffers = [past.ctypes.data for past in decoder._past.values()]
    decoder.step([1])
    decoder.step([1, 4])
    assert buffers == [past.ctypes.data for past in decoder._past.values()]
    assert all(past.shape[2] == TINY.positions for past in decoder._past.values())


def test_a_shared_buffer_that_is_full_is_told():
    module = tinycomp.compile(decoders.genai(TINY), "c")
    decoder = Decoder(module, capacity=7, config=decoders.genai_config(TINY, shared=True))
    decoder.step(PROMPT)
    decoder.step([1])
    with pytest.raises(GenerationError) as caught:
        decoder.step([1])
    assert str(caught.value) == (
        "token 8: the cache is full; expected up to 7 tokens, those of the prompt among them; found 8. "
        "Generate fewer tokens, or compile the model with a longer cache."
    )


def test_a_cache_that_grows_cannot_be_a_shared_buffer():
    module = tinycomp.compile(decoders.optimum(TINY), "c")
    with pytest.raises(GenerationError) as caught:
        Decoder(module, config=decoders.genai_config(TINY, shared=True))
    before = "past_key_values.0.key: float32[batch_size, 2, past_sequence_length, 16]"
    after = "present.0.key: float32[batch_size, 2, past_sequence_length + sequence_length, 16]"
    assert str(caught.value) == (
        'config, "past_present_share_buffer": the cache cannot be a shared buffer; expected a result as long as its '
        f"input where that has room; found {before} -> {after}. The past of this model grows: set it to false."
    )


def test_ten_thousand_tokens_take_no_more_memory():
    sizes = dataclasses.replace(TINY, layers=1, width=32, heads=2, kv_heads=1, hidden=32, positions=10100)
    module = tinycomp.compile(decoders.genai(sizes, shared=True), "c", threads=1)
    decoder = Decoder(module)
    decoder.step(PROMPT)
    before = resident = 0
    for token in range(10000):
        logits = decoder.step([token % 67])
        if token == 2000:
            before = _resident()
    resident = _resident()
    assert np.isfinite(logits).all()
    assert decoder.length == 10006
    assert resident - before < 2 << 20  # a mebibyte of the cache has not been touched before


def _resident() -> int:
    """Bytes of the process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
