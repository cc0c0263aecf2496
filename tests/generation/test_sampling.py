"""Choosing a token from logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycomp.errors import GenerationError
from tinycomp.generation import Sampler

LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=20).map(np.float32)
TEMPERATURES = st.floats(0.05, 20)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@given(LOGITS)
def test_no_temperature_takes_the_likeliest_and_of_several_the_first(logits):
    assert Sampler()(logits) == int(np.argmax(logits))
    assert logits[Sampler(1e-30, seed=0)(logits)] >= logits.max() - 1e-25


@given(LOGITS, TEMPERATURES)
def test_all_tokens_have_the_probabilities_of_the_softmax(logits, temperature):
    tokens, shares = Sampler(temperature).distribution(logits)
    assert sorted(tokens) == list(range(logits.size))
    np.testing.assert_allclose(shares, softmax(logits.astype(np.float64) / temperature)[tokens], rtol=1e-9, atol=1e-300)


@given(LOGITS, TEMPERATURES, st.integers(1, 50), st.integers(0, 9))
def test_top_k_leaves_the_k_likeliest(logits, temperature, k, seed):
    sampler = Sampler(temperature, top_k=k, seed=seed)
    tokens, shares = sampler.distribution(logits)
    assert len(tokens) == min(k, logits.size)
    assert shares.sum() == pytest.approx(1)
    assert set(logits[tokens]) >= set(np.sort(logits)[::-1][: len(tokens)])
    assert sampler(logits) in tokens


@given(LOGITS, TEMPERATURES, st.floats(0.01, 1))
def test_top_p_leaves_the_fewest_with_that_probability(logits, temperature, p):
    tokens, shares = Sampler(temperature, top_p=p).distribution(logits)
    everything = softmax(logits.astype(np.float64) / temperature)
    assert everything[tokens].sum() >= p - 1e-9
    assert everything[tokens[:-1]].sum() < p + 1e-9
    assert everything[tokens].min() >= np.delete(everything, tokens).max(initial=0)
    np.testing.assert_allclose(shares, everything[tokens] / everything[tokens].sum(), rtol=1e-9, atol=1e-300)


@given(LOGITS, TEMPERATURES, st.integers(0, 2**32))
def test_one_seed_gives_one_text(logits, temperature, seed):
    first, again = Sampler(temperature, seed=seed), Sampler(temperature, seed=seed)
    assert [first(logits) for _ in range(5)] == [again(logits) for _ in range(5)]


def test_tokens_come_as_often_as_they_are_likely():
    logits = np.log(np.float32([0.5, 0.2, 0.3]))
    sampler = Sampler(1.0, seed=0)
    counts = np.bincount([sampler(logits) for _ in range(4000)], minlength=3)
    np.testing.assert_allclose(counts / 4000, [0.5, 0.2, 0.3], atol=0.03)


def test_what_is_ruled_out_never_comes():
    logits = np.float32([-np.inf, 0, -np.inf, 0])
    sampler = Sampler(5.0, seed=0)
    assert {sampler(logits) for _ in range(50)} == {1, 3}


@pytest.mark.parametrize(
    ("logits", "found"),
    [([0, np.nan, np.nan], "2 of 3 NaN"), ([0, np.inf], "inf as the highest"), ([-np.inf], "-inf as the highest")],
)
def test_logits_have_to_be_numbers(logits, found):
    for temperature in (0.0, 1.0):
        with pytest.raises(GenerationError) as caught:
            Sampler(temperature)(np.float32(logits))
        assert str(caught.value) == (
            f"logits: the logits are not numbers; expected finite numbers; found {found}. "
            "Compare the model with tinycomp verify; float16 may be too narrow for it."
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": np.nan}, "temperature: the option does not take this value; expected float; found nan"),
        ({"top_k": 0}, "top_k: top_k cannot have this value; expected a whole number from 1 on, or None; found 0"),
        ({"top_p": 1.5}, "top_p: top_p cannot have this value; expected a number above 0, up to 1, or None; found 1.5"),
        ({"seed": -1}, "seed: seed cannot have this value; expected a whole number from 0 on, or None; found -1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(GenerationError) as caught:
        Sampler(**options)
    assert str(caught.value) == message
