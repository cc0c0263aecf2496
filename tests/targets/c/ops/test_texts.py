"""Operators on texts on the C target against the host's kernels and onnxruntime, for known and unknown sizes."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests import records
from tinycomp.errors import ArtifactError, ExecutionError, FeedError, MemoryLimitError, UnsupportedError
from tinycomp.export_c import to_c
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.texts import TextBorder

ML, MICROSOFT = "ai.onnx.ml", "com.microsoft"
SPACES = "\u3000a\u2028 b\x1c c\x85\xa0"
Attrs = dict[str, Any]


def texts(*each: str) -> np.ndarray:
    array = np.empty(len(each), object)
    array[:] = each
    return array


WORDS = texts(
    "Hello wörld", "", "a,b,,c", " E\u0301ÀB  😀x ", "\0nul\0", "ΓΣ Γ\u0301Σ\u0301 ΓΣΓ Σ", "İstanbul ß ŉ ﬃ ΐ",
    "x" * 300, SPACES, "\ud800 lone", "Hello wörld", ",",
)  # fmt: skip


def model_of(
    op: str, feeds: Mapping[str, np.ndarray], results: list[int], known: bool, domain: str = "", **attrs: Any
) -> onnx.ModelProto:
    """Return a model of one node; empty lists among the attributes are left out."""

    def info(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
        shape = list(value.shape) if known else [f"{name}{axis}" for axis in range(value.ndim)]
        number = TensorProto.STRING if value.dtype == object else helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_value_info(name, number, shape)

    names = [f"y{i}" for i in range(len(results))]
    node = helper.make_node(op, [*feeds], names, domain=domain, **{k: v for k, v in attrs.items() if v != []})
    outputs = [helper.make_tensor_value_info(n, number, None) for n, number in zip(names, results, strict=True)]
    graph = helper.make_graph([node], "g", [info(*item) for item in feeds.items()], outputs)
    opsets = [helper.make_opsetid(d, v) for d, v in (("", 20), (ML, 4), (MICROSOFT, 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(
    op: str, feeds: Mapping[str, np.ndarray], results: list[int], against_ort: bool = False, **about: Any
) -> None:
    """Compare the C target with the host, and with onnxruntime where that computes the same."""
    for known in (True, False):
        model = model_of(op, feeds, results, known, **about)
        module = tinycomp.compile(model)
        assert not module.report().hosts
        module = tinycomp.load(module.to_bytes())
        others = [[*tinycomp.compile(model, "host").run(feeds).values()]]
        if against_ort:
            others.append(ort.InferenceSession(model.SerializeToString()).run(None, dict(feeds)))
        for _ in range(2):  # sizes that a run has found out stay for the next one
            for wanted in others:
                for a, b in zip(module.run(feeds).values(), wanted, strict=True):
                    assert (a.dtype, a.shape, a.tolist()) == (b.dtype, b.shape, b.tolist())


STRING, INT64, FLOAT, BOOL = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
PLAIN = texts(*[text for text in WORDS if "\ud800" not in text])
"""What onnxruntime's Python takes, too."""


def test_concat() -> None:
    check("StringConcat", {"x": WORDS, "z": WORDS[::-1].copy()}, [STRING])
    check("StringConcat", {"x": PLAIN.reshape(-1, 1), "z": texts("-", "", "é")}, [STRING], against_ort=True)
    check("StringConcat", {"x": texts("a").reshape(()), "z": texts()}, [STRING])


def test_equal() -> None:
    check("Equal", {"x": PLAIN.reshape(-1, 1), "z": PLAIN}, [BOOL], against_ort=True)
    check("Equal", {"x": texts(), "z": texts()}, [BOOL])


@pytest.mark.parametrize("delimiter", ["", ",", "b,", "é", "😀", " "])
def test_split(delimiter: str) -> None:
    for limit in ({}, {"maxsplit": 0}, {"maxsplit": 1}, {"maxsplit": 5}):
        check("StringSplit", {"x": WORDS.reshape(3, 4)}, [STRING, INT64], delimiter=delimiter, **limit)
    for few in (texts(), texts(""), texts("a b").reshape(())):
        check("StringSplit", {"x": few}, [STRING, INT64], delimiter=delimiter)


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
def test_normalize(action: str, sensitive: int) -> None:
    about: Attrs = {"case_change_action": action, "is_case_sensitive": sensitive}
    for stops in ([], ["a,b,,c", "HELLO wÖrld", "x" * 300, "ς"], [*PLAIN, "\u3000"]):
        check("StringNormalizer", {"x": PLAIN}, [STRING], stopwords=stops, **about)
        check("StringNormalizer", {"x": PLAIN[None]}, [STRING], stopwords=stops, **about)
    check(
        "StringNormalizer",
        {"x": texts("Ab", "aB", "c", "C")},
        [STRING],
        True,
        stopwords=["ab", "C"],
        locale="C.UTF-8",
        **about,
    )
    for few in (texts(), texts("")):
        check("StringNormalizer", {"x": few}, [STRING], **about)


@pytest.mark.parametrize("pattern", ["[a-zA-Z]+", ".*", r".+\s.*", "[^a]*", r"(\W|^)\w*,.*\bc\b"])
def test_match(pattern: str) -> None:
    check("RegexFullMatch", {"x": PLAIN.reshape(-1, 1)}, [BOOL], against_ort=True, pattern=pattern)


NEEDS_RE2 = pytest.mark.skipif(importlib.util.find_spec("re2") is None, reason="the host finds no longest match")


@pytest.mark.parametrize(
    "how",
    [
        {"tokenexp": "[a-zA-Z]+"}, {"tokenexp": "[^ ,]+", "mincharnum": 2}, {"separators": ["[ ,]"]},
        {"separators": [",+"]}, {"separators": [""]},
        pytest.param({"tokenexp": "[à-ÿ]|b"}, marks=NEEDS_RE2),
    ],
    ids=str,
)  # fmt: skip
def test_tokenizer(how: Attrs) -> None:
    about: Attrs = {"domain": MICROSOFT, "mark": 0, "pad_value": "#é", "mincharnum": 1} | how
    check("Tokenizer", {"x": PLAIN}, [STRING], **about)
    check("Tokenizer", {"x": texts("b ñ", "one, two,,")[None]}, [STRING], against_ort=True, **about)
    check("Tokenizer", {"x": texts(" ")}, [STRING], **about)


def test_labels() -> None:
    keys: Attrs = {"domain": ML, "keys_strings": ["a,b,,c", "", "q", "", "x" * 300]}
    check("LabelEncoder", {"x": PLAIN}, [INT64], True, values_int64s=[5, 6, 7, 8, -9], default_int64=3, **keys)
    check("LabelEncoder", {"x": PLAIN}, [FLOAT], True, values_floats=[5.0, 6.5, 7.0, 8.0, -9.0], **keys)
    check("LabelEncoder", {"x": PLAIN}, [STRING], True, values_strings=["ä", "", "z", "é", "w"], **keys)


def test_ngrams() -> None:
    about: Attrs = {
        "max_gram_length": 2, "min_gram_length": 1, "max_skip_count": 1, "mode": "TFIDF", "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4], "pool_strings": ["", "zz", "a,b,,c", "", "a,b,,c", "é", "é"],
        "weights": [1.0, 2.0, 3.0, 4.0, 5.0],
    }  # fmt: skip
    check("TfIdfVectorizer", {"x": texts(*PLAIN, "é", "é", "é").reshape(2, 7)}, [FLOAT], against_ort=True, **about)


def chain(*nodes: onnx.NodeProto, shape: list[Any] | None = None) -> onnx.ModelProto:
    """Return a model of several nodes from ``x`` to ``y``."""
    x, y = (helper.make_tensor_value_info(n, STRING, s) for n, s in (("x", shape or ["n"]), ("y", None)))
    return helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )


def test_texts_that_are_made_are_moved_and_made_into_others() -> None:
    model = chain(
        helper.make_node("StringNormalizer", ["x"], ["low"], case_change_action="LOWER", stopwords=["stop"]),
        helper.make_node("StringConcat", ["low", "low"], ["twice"]),
        helper.make_node("StringSplit", ["twice"], ["parts", ""], delimiter="b"),
        helper.make_node("Transpose", ["parts"], ["turned"]),
        helper.make_node("StringConcat", ["turned", "low"], ["y"]),
    )
    module = tinycomp.compile(model)
    assert not module.report().hosts
    for x in (texts("ABÉ", "Stop", "ß"), texts("stop"), texts(*"abcdefgh"), texts("b" * 500, "c")):
        wanted = tinycomp.compile(model, "host")(x)
        assert module(x).tolist() == wanted.tolist()
        assert tinycomp.load(module.to_bytes())(x).tolist() == wanted.tolist()


def test_texts_of_two_heaps_are_not_joined_in_one_program() -> None:
    model = chain(
        helper.make_node("StringNormalizer", ["x"], ["low"], case_change_action="LOWER"),
        helper.make_node("Concat", ["low", "x"], ["y"], axis=0),
    )
    module = tinycomp.compile(model)
    assert [host.op for host in module.report().hosts] == ["Concat"]
    assert module(texts("A", "é")).tolist() == ["a", "é", "A", "é"]


def test_texts_that_are_only_moved_stay_where_they_are() -> None:
    module = tinycomp.compile(chain(helper.make_node("Transpose", ["x"], ["y"]), shape=["n", 2]))
    assert str(module.report().hosts[0].reasons[0]) == "c.Transpose: its texts are only moved"


NORMALIZED = chain(helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER"))


def test_what_is_no_text_is_refused() -> None:
    x = texts("a", "b")
    x[1] = 7
    with pytest.raises(FeedError, match='"x": an element is not a text; expected str; found int at'):
        tinycomp.compile(NORMALIZED)(x)


def test_arrays_of_other_kinds_of_texts_are_taken() -> None:
    module = tinycomp.compile(NORMALIZED)
    assert module(np.array(["é", "bb"])).tolist() == ["É", "BB"]
    assert module(texts("a", "x", "b")[::2]).tolist() == ["A", "B"]
    assert module(["q", "é"]).tolist() == ["Q", "É"]


def test_memory_and_time_are_limited() -> None:
    module = tinycomp.compile(NORMALIZED, memory_limit=1 << 20)
    with pytest.raises(MemoryLimitError, match="texts"):
        module(texts("x" * (1 << 21)))
    with pytest.raises(ExecutionError, match="time"):
        module.run({"x": texts("x")}, timeout=1e-12)


def test_there_is_no_c_for_texts() -> None:
    model = chain(helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER"), shape=[2])
    with pytest.raises(UnsupportedError, match="values of this type have no form in C"):
        to_c(tinycomp.compile(model))


def test_the_short_way_gives_what_the_long_one_does() -> None:
    model = chain(
        helper.make_node("StringSplit", ["x"], ["parts", "counts"], delimiter=","),
        helper.make_node("StringConcat", ["parts", "parts"], ["y"]),
    )
    model.graph.output.insert(0, helper.make_tensor_value_info("counts", INT64, None))
    module = tinycomp.compile(model)
    for x in (texts("a,b", "é"), texts("q"), texts(*("x," * 5000, "y"))):
        long = module.run({"x": x}, timeout=1000.0)
        assert [v.tolist() for v in module.run({"x": x}).values()] == [v.tolist() for v in long.values()]
        assert [v.tolist() for v in module(x)] == [v.tolist() for v in long.values()]
    with pytest.raises(FeedError, match="wrong shape"):
        module(texts("a").reshape(1, 1))


@pytest.mark.parametrize(
    "damage",
    [
        {"inputs": [5]}, {"inputs": [0, 0]}, {"inputs": [1]}, {"outputs": [0, 7]}, {"outputs": [1, 1]},
        {"outputs": [0, 0]}, {"outputs": [0]},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_descriptions_of_texts_are_refused(damage: Attrs) -> None:
    (step,) = tinycomp.compile(NORMALIZED)._parts.plan.steps
    program = step.run.program
    said = records.read(encoded(program))
    assert records.again(program).texts == program.texts
    records.of_kind(said, "texts")[0].update(damage)
    with pytest.raises(ArtifactError, match="the description of a program is damaged"):
        records.program(said, program.constants)


def test_spans_that_leave_their_heap_are_no_results() -> None:
    (step,) = tinycomp.compile(NORMALIZED)._parts.plan.steps
    border = TextBorder(step.run.program, step.run.program.texts)
    inputs, heap = border.encode([texts("ab")]), np.frombuffer(b"ab\xff", np.uint8)
    for start, length in ((3, 1), (0, 4), (2**32 - 1, 2**32 - 1), (2, 1)):
        with pytest.raises(ExecutionError, match="a result is not a valid text"):
            border.decode(inputs, [np.array([start + (length << 32)], np.uint64), heap])
