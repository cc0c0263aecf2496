"""Operators on texts against onnxruntime; what it does not have, against their definition."""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tinycomp
from tests.ops.harness import run_ours, single_node_model
from tinycomp.errors import ExecutionError, ModelError, UnsupportedError
from tinycomp.ops.text import backtracks

WORDS = ["the", "Cat", "cat", "sat", "ON", "on", "mat", "\u00c4pfel", "\u00e4pfel", ""]


def texts(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array(WORDS, object), shape)


def check(op: str, operands: list[np.ndarray], attrs: dict[str, Any], version: int, outputs: int = 1) -> None:
    """Compare with onnxruntime."""
    model = single_node_model(op, operands, attrs, version, outputs)
    feeds = {f"x{i}": x for i, x in enumerate(operands)}
    wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for got, want in zip(run_ours(op, operands, attrs, version, outputs=outputs), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert got.tolist() == want.tolist()


def test_string_normalizer_of_rows() -> None:
    with pytest.raises(ExecutionError, match="more than one row of texts; expected 1; found 2"):
        run_ours("StringNormalizer", [texts(2, 3)], {}, 10)


@pytest.mark.parametrize("delimiter", [None, "", ",", "--"])
@pytest.mark.parametrize("most", [None, 1, 2])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,)])
def test_string_split(delimiter: str | None, most: int | None, shape: tuple[int, ...]) -> None:
    attrs = {k: v for k, v in {"delimiter": delimiter, "maxsplit": most}.items() if v is not None}
    plain = np.array(["a,b,c", "a", "a b c", "a--b--c--", "--", "a,,b"], object)
    check("StringSplit", [plain[: int(np.prod(shape))].reshape(shape)], attrs, 20, outputs=2)
    # onnxruntime finds no part in an empty text, and counts more white space than ONNX and Python do.
    x = np.array(["", "  a  b c ", " ", ",", "a\tb", "a, b"], object)[: int(np.prod(shape))].reshape(shape)
    wanted = ReferenceEvaluator(single_node_model("StringSplit", [x], attrs, 20, 2)).run(None, {"x0": x})
    for got, want in zip(run_ours("StringSplit", [x], attrs, 20, outputs=2), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert got.tolist() == want.tolist()


def test_regular_expressions_never_explode() -> None:
    x = np.array(["a" * 60 + "b"], object)
    if importlib.util.find_spec("re2") is None:
        hint = "a repeated group may take exponential time without re2.*Install google-re2"
        with pytest.raises(UnsupportedError, match=f"(?s){hint}"):
            run_ours("RegexFullMatch", [x], {"pattern": "(a+)+"}, 20)
    else:
        assert not run_ours("RegexFullMatch", [x], {"pattern": "(a+)+"}, 20)[0]


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", ""),
        (r"www\.[\w.-]+\bcom\b", ""),
        (r"\)+[(*]+[])+]", ""),
        ("(a|a)*", "a repeated group"),
        ("(a{2}){30}", "a repeated group"),
        (r"(?=a)a", "an extension of groups"),
        (".*.*.*a", "a pattern of many repetitions"),
        ("a?" * 9, "a pattern of many choices"),
    ],
)
def test_what_may_explode(pattern: str, problem: str) -> None:
    assert backtracks(pattern) == problem


def test_a_bad_regular_expression() -> None:
    with pytest.raises(ModelError, match="no regular expression"):
        run_ours("RegexFullMatch", [texts(2)], {"pattern": "(a"}, 20)


COUNTS = list(itertools.product(["TF", "IDF", "TFIDF"], [(1, 1), (1, 2), (2, 2), (2, 3), (1, 3)], [0, 1, 4]))


@pytest.mark.parametrize(("mode", "lengths", "skips"), COUNTS)
@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("shape", [(14,), (5, 14)])
def test_tf_idf(mode: str, lengths: tuple[int, int], skips: int, strings: bool, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 5, shape)
    pool = [1, 2, 4, 1, 2, 2, 1, 3, 3, 1, 2, 3, 2, 2, 2, 3, 9, 1]
    attrs: dict[str, Any] = {
        "mode": mode, "min_gram_length": lengths[0], "max_gram_length": lengths[1], "max_skip_count": skips,
        "ngram_counts": [0, 3, 9], "ngram_indexes": [3, 0, 1, 2, 4, 6, 5, 7, 8],
        "weights": [float(v) for v in range(2, 11)],
    }  # fmt: skip
    if strings:
        check("TfIdfVectorizer", [np.array(WORDS, object)[x]], attrs | {"pool_strings": [WORDS[p] for p in pool]}, 9)
    else:
        for dtype in (np.int64, np.int32):
            check("TfIdfVectorizer", [x.astype(dtype)], attrs | {"pool_int64s": pool}, 9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "BM25"}, "unknown mode; expected TF or IDF or TFIDF; found BM25"),
        ({"ngram_counts": [0, 2]}, r"not made of whole n-grams; expected ends of n-grams of 2 in \[0, 3\]"),
        ({"ngram_indexes": [0]}, "too few ngram_indexes; expected at least 3; found 1"),
        ({"ngram_indexes": [0, -1, 2]}, "bad ngram_indexes"),
        ({"weights": [1.0]}, "too few weights; expected at least 3; found 1"),
    ],
)
def test_a_bad_pool(change: dict[str, Any], message: str) -> None:
    attrs = {
        "mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0],
        "ngram_indexes": [0, 1, 2], "pool_int64s": [4, 5, 6],
    }  # fmt: skip
    with pytest.raises(ModelError, match=message):
        run_ours("TfIdfVectorizer", [np.array([4, 5])], attrs | change, 9)


def test_words_to_classes() -> None:
    model = single_node_model("StringNormalizer", [texts(4)], {"case_change_action": "UPPER"}, 10)
    assert tinycomp.compile(model)(np.array(["a", "\u00e9", "", "B"], object)).tolist() == ["A", "\u00c9", "", "B"]


TOKENS: dict[str, dict[str, Any]] = {
    "words": {"tokenexp": "[a-z]+"},
    "long words between marks": {"tokenexp": "[a-z]+", "mark": 1, "mincharnum": 2, "pad_value": "P"},
    "letters of ASCII": {"tokenexp": r"\w+"},
    "what may be empty": {"tokenexp": "x*"},
    "separators": {"separators": [" ", ",", ";"]},
    "separators that are texts": {"separators": ["a", "ab"]},
    "separators before an expression": {"separators": ["b"], "tokenexp": "a"},
    "any letter separates": {"separators": ["."]},
    "letters": {"separators": [""], "mark": 1},
}
LONGEST: dict[str, dict[str, Any]] = {
    "the longest choice": {"tokenexp": "a|ab|abc"},
    "the longest of a lazy one": {"tokenexp": "a??b"},
    "a group": {"tokenexp": "(a)(b)?"},
    "the longest separator": {"separators": ["a|ab"]},
}
"""Expressions that need ``re2``."""


def tokenizer(x: np.ndarray, attrs: dict[str, Any]) -> onnx.ModelProto:
    attrs = {"mark": 0, "mincharnum": 1, "pad_value": "#"} | attrs
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attrs)
    given, made = (helper.make_tensor_value_info(name, onnx.TensorProto.STRING, None) for name in "xy")
    given = helper.make_tensor_value_info("x", onnx.TensorProto.STRING, x.shape)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", [given], [made]), opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("name", [*TOKENS, *LONGEST])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1,)])
def test_tokenizer(name: str, shape: tuple[int, ...]) -> None:
    if name in LONGEST:
        pytest.importorskip("re2", reason="re2 finds the longest match")
    x = np.resize(np.array(["abc ab", "\u00e9 a-b", "", "a,b; c", "aabab \u00e4\u00f6 b", "1"], object), shape)
    model = tokenizer(x, (TOKENS | LONGEST)[name])
    wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    got = tinycomp.compile(model)(x)
    assert (got.shape, got.tolist()) == (wanted.shape, wanted.tolist())


def test_no_text_has_a_token() -> None:
    x = np.array([["", "1"]], object)
    assert tinycomp.compile(tokenizer(x, {"tokenexp": "[a-z]+", "mark": 1}))(x).shape == (1, 2, 0)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({}, r"no way to find tokens; expected separators.*found \[\], ''"),
        ({"separators": ["", "b"]}, r"no way to find tokens.*found \['', 'b'\], ''"),
        ({"tokenexp": "["}, r"Tokenizer: no regular expression; found '\['"),
    ],
)
def test_bad_tokens(attrs: dict[str, Any], message: str) -> None:
    x = np.array(["a"], object)
    with pytest.raises(ModelError, match=message):
        tinycomp.compile(tokenizer(x, attrs))(x)
