"""Decoders in every form that tools export continue a text as onnxruntime does."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tinycomp
from benchmarks.architectures import decoders
from benchmarks.architectures.decoders import TINY
from tests.generation.decoders import Session
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
