"""Continuing a text: the same tokens as a decoder without a cache, ends, and errors."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import onnx
import pytest

import tinycomp
from tests.generation.decoders import Session, decoder, grouped, recomputed
from tinycomp.errors import GenerationError
from tinycomp.generation import Decoder, Sampler, perplexity

PROMPT = [3, 1, 4, 1, 5]
COUNT = 20


@pytest.fixture(scope="module")
def expected() -> list[int]:
    tokens = recomputed(PROMPT, COUNT)
    assert len(set(tokens)) > 3
    return tokens


@pytest.mark.parametrize("runtime", [Session, tinycomp.compile])
@pytest.mark.parametrize(
    "model",
    [
        decoder("growing"),
        decoder("shared"),
        decoder("shared", capacity="room"),
        decoder("shared", tokens=1),
        decoder("shared", extra=["seqlens_k", "total_sequence_length", "attention_mask"]),
    ],
    ids=["growing", "shared", "shared, length open", "one token per run", "lengths as inputs"],
)
def test_the_likeliest_tokens_are_those_without_a_cache(model, runtime, expected):
    assert list(tinycomp.generate(runtime(model), PROMPT, max_new_tokens=COUNT)) == expected


@pytest.mark.parametrize("capacity", [40, "room"])
def test_attention_with_groups_of_heads_on_a_shared_buffer(capacity):
    """onnxruntime's own operator: as a buffer, and with all tokens at once."""
    session = Session(grouped(capacity))
    tokens = list(tinycomp.generate(session, PROMPT, max_new_tokens=COUNT))
    assert [f["attention_mask"].shape[1] for f in session.feeds] == list(range(len(PROMPT), len(PROMPT) + COUNT))
    text = [*PROMPT, *tokens]
    whole = Session(grouped(40))
    _ = list(tinycomp.generate(whole, text[:-1], max_new_tokens=1))
    logits = whole.session.run(["logits"], dict(whole.feeds[0]))[0][0]
    assert logits.argmax(axis=1)[len(PROMPT) - 1 :].tolist() == tokens


def test_names_of_a_configuration(expected, tmp_path):
    model = decoder("growing")
    names = {"input_ids": "tokens", "attention_mask": "seen", "logits": "scores"}
    names |= {f"past_key_values.{i}.{kind}": f"old_{kind}_{i}" for i in range(2) for kind in ("key", "value")}
    for node in model.graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    module = tinycomp.compile(model)
    with pytest.raises(
        GenerationError, match=r'input "tokens": the input is not one of a decoder; expected one of inp'
    ):
        tinycomp.generate(module, PROMPT)
    inputs = {"input_ids": "tokens", "attention_mask": "seen"}
    inputs |= {"past_key_names": "old_key_%d", "past_value_names": "old_value_%d"}
    parts = {"inputs": inputs, "outputs": {"logits": "scores", "present_key_names": "present.%d.key"}}
    config = {"model": {"decoder": parts, "eos_token_id": [expected[5], 99]}}
    wanted = expected[: expected.index(expected[5]) + 1]
    assert list(tinycomp.generate(module, PROMPT, max_new_tokens=COUNT, config=config)) == wanted
    path = tmp_path / "genai_config.json"
    path.write_text(f"{config}".replace("'", '"'))
    assert list(tinycomp.generate(module, PROMPT, max_new_tokens=COUNT, config=path)) == wanted


@pytest.mark.parametrize("form", ["id", "ids", "sequence", "several"])
def test_a_stop_ends_the_text_and_is_its_end(form, expected):
    sequence = expected[2:4]
    stop = {"id": sequence[1], "ids": [98, np.int64(sequence[1])], "sequence": [sequence], "several": [[98], sequence]}
    assert sequence not in (expected[0:2], expected[1:3])
    assert sequence[1] not in expected[:3]
    tokens = list(tinycomp.generate(Session(decoder("shared")), PROMPT, max_new_tokens=COUNT, stop=stop[form]))
    assert tokens == expected[:4]


def test_how_many_tokens(expected):
    session = Session(decoder("shared"))
    assert list(tinycomp.generate(session, PROMPT, max_new_tokens=0)) == []
    assert not session.feeds
    assert list(tinycomp.generate(session, np.int64(PROMPT), max_new_tokens=3)) == expected[:3]
    assert len(session.feeds) == 3


def test_a_seed_makes_random_tokens_the_same_again():
    session = Session(decoder("growing"))
    options = {"max_new_tokens": 15, "temperature": 1.5, "top_k": 10, "top_p": 0.95}
    first, again, other = (list(tinycomp.generate(session, PROMPT, seed=seed, **options)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.long
def test_two_thousand_tokens_on_a_shared_buffer_need_no_more_memory_than_a_few():
    module = tinycomp.compile(decoder("shared", capacity=2048))
    sizes = []
    tracemalloc.start()
    for number, _ in enumerate(tinycomp.generate(module, PROMPT, max_new_tokens=2000)):
        if number % 400 == 399:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(sizes) == 5
    assert all(later - earlier < 20_000 for earlier, later in pairwise(sizes[1:])), sizes


def test_a_full_cache_is_an_error_after_the_last_token_that_fits(expected):
    tokens, module = [], tinycomp.compile(decoder("shared", capacity=8))
    with pytest.raises(GenerationError) as caught:
        tokens.extend(tinycomp.generate(module, PROMPT))
    assert tokens == expected[:4]
    assert str(caught.value) == (
        "token 9: the cache is full; expected up to 8 tokens, those of the prompt among them; found 9. "
        "Generate fewer tokens, or compile the model with a longer cache."
    )
    config = {"model": {"context_length": 7}}
    with pytest.raises(GenerationError, match="token 8: the cache is full; expected up to 7 tokens"):
        list(tinycomp.generate(Session(decoder("growing")), PROMPT, config=config))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": range(9)}, "tokens: the prompt is longer than the cache; expected up to 8; found 9"),
        ({"tokens": []}, "tokens: not tokens; expected ids from 0 on, at least one; found none. A tokenizer turns"),
        ({"tokens": [1, -2]}, "tokens: not tokens; expected ids from 0 on, at least one; found -2"),
        ({"tokens": ["one"]}, "tokens: not tokens; expected whole numbers; found 'str' object"),
        ({"tokens": b"ab"}, "tokens: not tokens; expected whole numbers; found a bytes"),
        ({"tokens": {3, 1}}, "tokens: not tokens; expected whole numbers; found a set"),
        ({"tokens": {1: 2}}, "tokens: not tokens; expected whole numbers; found a dict"),
        ({"stop": [[]]}, "stop: not tokens; expected ids from 0 on, at least one; found none"),
        ({"max_new_tokens": -1},
            "max_new_tokens: the option does not take this value; expected int, 0 or more; found -1"),
        ({"tokens": [10**30]}, "tokens: not tokens; expected ids from 0 on, at least one; found 10000"),
        ({"top_k": 1.5}, "top_k: the option does not take this value; expected int or None; found 1.5"),
        ({"temperature": -1.0},
            "temperature: temperature cannot have this value; expected a number from 0 on; found -1.0"),
        ({"config": "nowhere.json"}, "nowhere.json: there is no such file; expected a genai_config.json"),
        ({"config": {"model": {"context_length": -(10**5000)}}}, "not the configuration of a decoder; expected a"),
        ({"config": {"model": 3}}, "config, model: not the configuration of a decoder; expected an object; found 3"),
    ],
)  # fmt: skip
def test_options_are_checked_at_once(options, message):
    with pytest.raises(GenerationError) as caught:
        tinycomp.generate(Session(decoder("shared", capacity=8)), options.pop("tokens", PROMPT), **options)
    assert message in str(caught.value)


LAST = "present.1.value"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: None, 'output "present.0.key": the result is no array; expected numbers; found NoneType'),
        (lambda r: [*r.values()], 'output "present.0.key": the result is no array'),
        (lambda r: {}, 'output "present.0.key": the result is no array'),
        (lambda r: r | {LAST: None}, f'output "{LAST}": the result is no array; expected numbers; found NoneType'),
        (lambda r: r | {LAST: r[LAST].astype(object)}, "expected numbers; found an array of object"),
        (lambda r: r | {LAST: r[LAST][..., :-1]}, f'output "{LAST}": the result has the wrong shape'),
        (lambda r: r | {"logits": r["logits"].tolist()}, 'output "logits": the result is no array; expected numbers'),
        (lambda r: r | {"logits": r["logits"] + 0j}, "expected numbers; found an array of complex"),
        (
            lambda r: r | {"logits": r["logits"].reshape(-1)},
            'output "logits": the result has the wrong shape; expected',
        ),
        (lambda r: r | {"logits": r["logits"][:, :0]}, "expected [1, 5, 19], or logits of the last token alone; found"),
        (lambda r: r | {"logits": r["logits"][..., :0]}, "expected [1, 5, 19], or logits of the last token alone"),
        (lambda r: r | {"logits": np.repeat(r["logits"], 2, 0)}, "found [2, 5, 19]"),
        (lambda r: r | {"logits": r["logits"][0, 0, 0]}, "the result is no array; expected numbers; found float32"),
    ],
)
def test_results_of_other_runtimes_are_looked_at(change, message):
    """And a run that went wrong leaves the text as it was."""
    session = Session(decoder("growing"))
    run, wrong = session.run, [change]
    session.run = lambda feeds: wrong.pop()(run(feeds)) if wrong else run(feeds)
    text = Decoder(session)
    with pytest.raises(GenerationError) as caught:
        text.step(PROMPT)
    assert message in str(caught.value)
    np.testing.assert_array_equal(text.step(PROMPT), Decoder(session).step(PROMPT))


@pytest.mark.parametrize("tokens", [[], None, 1, "a", [-1], [1.5], [[1]], [1 << 31], [1 << 70], [None], {1}])
def test_steps_take_tokens(tokens):
    text = Decoder(Session(decoder("growing")))
    for call in (text.step, text.feeds):
        with pytest.raises(GenerationError, match="tokens: not tokens; expected"):
            call(tokens)


@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        *((wrong, "capacity: the option does not take this value; expected int") for wrong in (0, -1, 1.5, "3", True)),
        *((1 << bits, "the cache does not fit into memory; expected fewer tokens") for bits in (50, 62, 70)),
    ],
)
def test_capacities(capacity, message):
    with pytest.raises(GenerationError, match=message):
        Decoder(Session(decoder("shared", capacity="room")), capacity=capacity)


@pytest.mark.parametrize(
    "logits",
    [None, [1.0], np.zeros(0), np.zeros((1, 2)), np.float32(1), np.array(["a"]), np.array([{}]), np.array([1j])],
)
def test_a_token_has_logits_in_a_row(logits):
    for sampler in (Sampler(), Sampler(temperature=1.0)):
        with pytest.raises(
            GenerationError, match=r"logits: not the logits of a token; expected an array \[vocabulary\]"
        ):
            sampler(logits)


def test_logits_that_are_not_numbers():
    model = decoder("growing")
    head = model.graph.initializer[-1]
    head.CopyFrom(onnx.numpy_helper.from_array(np.full(head.dims, np.nan, np.float32), head.name))
    module = tinycomp.compile(model)
    with pytest.raises(GenerationError, match=r"logits: .* numbers; expected finite numbers; found 19 of 19 NaN. Co"):
        next(tinycomp.generate(module, PROMPT))
    with pytest.raises(GenerationError, match="logits: the logits are not numbers"):
        perplexity(module, PROMPT)


def test_the_perplexity_is_that_of_the_definition(expected):
    text = [*PROMPT, *expected]
    logits = Session(decoder("plain")).run({"input_ids": np.int64([text])})["logits"][0, :-1].astype(np.float64)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    wanted = np.exp(-np.log(shares[np.arange(len(text) - 1), text[1:]]).mean())
    forms = {"growing": {}, "shared": {}, "open": {"capacity": "room"}, "single": {"tokens": 1}}
    for name, options in forms.items():
        model = decoder(name if name == "growing" else "shared", **options)
        assert perplexity(tinycomp.compile(model), text) == pytest.approx(wanted, rel=1e-4)
    pieces = [perplexity(Session(decoder("growing")), text[i : i + 8]) for i in (0, 7, 14)]
    assert len(text) == 25
    windows = perplexity(Session(decoder("growing")), text[:22], window=7)
    assert np.log(windows) == pytest.approx(np.log(pieces).mean(), rel=1e-5)
    assert perplexity(Session(decoder("shared", capacity=7)), text[:22]) == pytest.approx(windows, rel=1e-5)


def test_what_has_no_perplexity():
    session = Session(decoder("growing"))
    with pytest.raises(GenerationError, match="tokens: there is nothing to score; expected two or more; found 1"):
        perplexity(session, [1])
    run = session.run
    session.run = lambda feeds: {k: v[:, -1:] if k == "logits" else v for k, v in run(feeds).items()}
    assert len(list(tinycomp.generate(session, PROMPT, max_new_tokens=2))) == 2
    with pytest.raises(
        GenerationError, match="the model returns only the last logits; expected logits of 4 tokens; found 1"
    ):
        perplexity(session, PROMPT)
