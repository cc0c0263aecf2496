"""Texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const

WORDS = np.array(["the", "Cat", "cat", "sat", "ON", "mat", "\u00c4pfel", "\u00e4pfel", ""], object)
GRAMS = {
    "max_gram_length": 2, "min_gram_length": 1, "max_skip_count": 1, "mode": "TF", "ngram_counts": [0, 2],
    "ngram_indexes": [2, 0, 1], "pool_int64s": [0, 1, 1, 2],
}  # fmt: skip


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    for left, right in (((6,), (6,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((), ()), ((0,), (1,))):
        pair = [np.resize(WORDS, shape) for shape in (left, right)]
        yield Case("StringConcat", pair)
        yield Case("StringConcat", [pair[0], Const(pair[1])])
        yield Case("Equal", pair)
    yield Case("StringConcat", [WORDS[:2], WORDS[:3]], refused="StringConcat")
    for action, stops in itertools.product(("NONE", "LOWER", "UPPER"), ([], ["cat", "ON"], WORDS.tolist())):
        for sensitive in (0, 1):
            attrs = {"case_change_action": action, "is_case_sensitive": sensitive, "locale": "C.UTF-8"}
            for words in (WORDS, WORDS[None]):
                yield Case("StringNormalizer", [words], attrs | ({"stopwords": stops} if stops else {}))
    lines = np.array(["a b  c", "d", "e,f,g h"], object)
    for delimiter in ("", ",", "b"):
        for most in (None, 1):
            attrs = {"delimiter": delimiter, **({} if most is None else {"maxsplit": most})}
            yield Case("StringSplit", [lines], attrs, outputs=2)
    yield Case("RegexFullMatch", [WORDS], {"pattern": "[a-z]*"}, onnxruntime=False)
    some = np.array([["cat", "the", "Cat", "", "\u0661"], ["a", "aa", "(a)))", "cats", "\u00e4"]], object)
    for pattern in ("", "c.t", r"[\w.]+", "(?:the|[Cc]at)", r"\(a\)*", "a{2,3}", r"\w|\d"):
        yield Case("RegexFullMatch", [some], {"pattern": pattern}, reference=False)
    for x in (np.array([0, 1, 1, 2, 0]), np.array([[0, 1], [1, 2]])):
        yield Case("TfIdfVectorizer", [x], GRAMS)
    yield Case("TfIdfVectorizer", [WORDS], {**{k: v for k, v in GRAMS.items() if k != "pool_int64s"},
                                            "pool_strings": ["the", "cat", "Cat", "sat"]})  # fmt: skip
