"""Operators on texts: normalising, splitting, joining, matching, and counting n-grams."""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.index import named
from tinycomp.ir.graph import Node, Value
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Sizes, broadcasting_to
from tinycomp.symbolic import Size, maximum, product, symbol

FAMILY = OpFamily("text")
_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
_MODES = ("TF", "IDF", "TFIDF")
_MOST_REPEATS = 2
_MOST_CHOICES = 8


LONGEST, ALL = symbol("texts.longest"), symbol("texts.bytes")
"""No text that comes into a program has more bytes of UTF-8, and all of them together have no more."""
_GROWTH = 3
"""A letter has up to so many times its bytes in another case."""
_SAME = frozenset({*named("view"), *named("structural"), "Transpose"})
"""What gives every text of its operand once."""


def utf8(text: Any) -> bytes:
    """Return the bytes of a text of an attribute, a constant or an array."""
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")


def longest_text(value: Value) -> Size:
    """Return a bound for the bytes of each text of a value, by those that come into the program."""
    return _bounds(value)[value][0]


def text_bytes(value: Value) -> Size:
    """Return a bound for the bytes of all texts of a value together."""
    return _bounds(value)[value][1]


def _bounds(value: Value) -> dict[Value, tuple[Size, Size]]:
    """Return both bounds for a value and all texts that it follows from."""
    found: dict[Value, tuple[Size, Size]] = {}
    waiting = [value]
    while waiting:
        top = waiting[-1]
        node = top.producer
        operands = [v for v in node.inputs if v is not None and v.dtype == "string"] if node is not None else []
        missing = [v for v in operands if v not in found]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if top not in found:
            found[top] = _bound(top, [found[v] for v in operands])
    return found


def _bound(value: Value, operands: Sequence[tuple[Size, Size]]) -> tuple[Size, Size]:
    node = value.producer
    if value.const is not None or node is None:
        sizes = None if value.const is None else [len(utf8(text)) for text in value.const.reshape(-1).tolist()]
        return (LONGEST, ALL) if sizes is None else (max(sizes, default=0), sum(sizes))
    if node.op == "StringNormalizer":
        ((longest, total),) = operands
        changes = node.attrs.get("case_change_action", "NONE") != "NONE"
        return (_GROWTH * longest, _GROWTH * total) if changes else (longest, total)
    if operands and (node.op in _SAME or node.op == "StringSplit"):  # parts of a text are no more than it
        return operands[0]
    if operands and node.op == "Tokenizer":
        filled = max(len(utf8(text)) for text in made_texts(node))
        return maximum(operands[0][0], filled), operands[0][1] + product((*(value.sizes or ()), filled))
    if node.op == "StringConcat":
        whole = sum((longest for longest, _ in operands), start=0)
        if all(v is not None and v.sizes == value.sizes for v in node.inputs):
            return whole, sum((total for _, total in operands), start=0)
        return whole, product((*(value.sizes or ()), whole))
    made = [len(utf8(text)) for text in made_texts(node)]
    longest = maximum(*made, *[each for each, _ in operands if node.op != "LabelEncoder"])
    return longest, product((*(value.sizes or ()), longest))


def made_texts(node: Node) -> list[Any]:
    """Return the texts that a node gives besides those of its operands and their parts."""
    attrs = node.attrs
    if node.op == "Tokenizer":
        return [attrs.get("pad_value", "")]
    if node.op == "LabelEncoder":
        given = attrs.get("values_tensor")
        values = list(attrs.get("values_strings", ())) if given is None else np.asarray(given).reshape(-1).tolist()
        default = attrs.get("default_tensor")
        own = attrs.get("default_string", "_Unused") if default is None else np.asarray(default).reshape(-1)[0]
        return [*values, own] if node.output.dtype == "string" else []
    return []


def _objects(texts: list[Any], shape: Sequence[int]) -> Array:
    """Return texts as an array of this shape."""
    result = np.empty(len(texts), object)
    result[:] = texts
    return result.reshape(shape)


def _most_normalised(node: Node) -> Size | None:
    sizes = node.operand(0).sizes
    return maximum(sizes[-1], 1) if sizes and node.attrs.get("stopwords") else None


@FAMILY.op("StringNormalizer", row_bound=_most_normalised, row_axis=-1)
def string_normalizer(
    x: Array,
    *,
    case_change_action: Any = "NONE",
    is_case_sensitive: int = 0,
    locale: Any = "",
    stopwords: Sequence[Any] = (),
) -> Array:
    """Change the case of texts and leave stop words out; where none is left, one empty text is.

    Letters change as in Unicode, whatever the locale: that is a property of the process.

    Args:
        x: [texts] or [1, texts].
        case_change_action: ``NONE``, ``LOWER`` or ``UPPER``.
        is_case_sensitive: Whether a stop word is one in the same case only.
        locale: Ignored.
        stopwords: What is left out.
    """
    action = str(case_change_action)
    compared = str if is_case_sensitive else str.lower
    stops = {compared(word) for word in stopwords}
    texts = (
        [text for text in x.reshape(-1).tolist() if compared(text) not in stops] if stops else x.reshape(-1).tolist()
    )
    kept = [_CASES[action](text) for text in texts] or [""]
    return _objects(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))


@FAMILY.op("StringConcat")
def string_concat(x: Array, y: Array) -> Array:
    """Return the texts of ``y`` put behind those of ``x``, with broadcasting."""
    return np.asarray(np.add(x, y, dtype=object), object)


def _most_parts(node: Node) -> Size | None:
    """Bound the parts of a text: each but the last one has what stands between behind it."""
    if node.operand(0).sizes is None:
        return None
    longest, between = longest_text(node.operand(0)), len(utf8(node.attrs.get("delimiter", "")))
    return longest // between + 1 if between else (longest + 1) // 2


@FAMILY.op("StringSplit", row_bound=_most_parts, row_axis=-1)
def string_split(x: Array, *, delimiter: Any = "", maxsplit: int | None = None) -> tuple[Array, Array]:
    """Return the parts of texts, filled up with empty ones along a last axis, and how many each has in int64.

    Args:
        x: Any shape.
        delimiter: What stands between two parts; where it is empty, any white space.
        maxsplit: How often a text is split at most.
    """
    between = str(delimiter) or None
    most = -1 if maxsplit is None else maxsplit
    parts = [text.split(between, most) for text in x.reshape(-1).tolist()]
    counts = np.array([len(each) for each in parts], np.int64)
    width = int(counts.max(initial=0))
    reserve((len(parts), width), np.dtype(object).itemsize, "StringSplit")
    empty = [[""] * (width - count) for count in range(width + 1)]
    filled = list(itertools.chain.from_iterable(each + empty[len(each)] for each in parts))
    return _objects(filled, (*x.shape, width)), counts.reshape(x.shape)


@FAMILY.op("RegexFullMatch")
def regex_full_match(x: Array, *, pattern: Any = "") -> Array:
    """Tell which texts match a regular expression from end to end.

    The package ``re2`` matches in linear time where it is installed. Python's own engine tries alternatives one after
    another, and serves only expressions that cannot keep it busy for long.

    Raises:
        ModelError: If the pattern is no regular expression.
        UnsupportedError: If it needs ``re2``, which is not installed.
    """
    matches = _matcher(str(pattern))
    return np.array([matches(text) is not None for text in x.reshape(-1).tolist()], bool).reshape(x.shape)


@functools.lru_cache(maxsize=64)
def _matcher(pattern: str) -> Callable[[str], Any]:
    """Return a function that tells whether a text matches."""
    matches: Callable[[str], Any] = _compiled("RegexFullMatch", pattern, _MOST_REPEATS, _MOST_CHOICES).fullmatch
    return matches


def _compiled(op: str, pattern: str, repeats: int, choices: int, **options: Any) -> Any:
    """Return a regular expression of ``re2``, or of Python's own engine where that is as good.

    Args:
        op: The operator, for messages.
        pattern: The expression.
        repeats: How many repetitions it may have without ``re2``.
        choices: How many choices it may have then.
        options: Those of ``re2``.

    Raises:
        ModelError: If it is no regular expression.
        UnsupportedError: If it needs ``re2``, which is not installed.
    """
    try:
        engine: Any = importlib.import_module("re2")
    except ImportError:
        engine = re
        if problem := backtracks(pattern, repeats, choices):
            raise UnsupportedError(
                f"{op}: {problem} may take exponential time without re2",
                expected=f"no repeated groups, {repeats} repetitions and {choices} choices at most",
                found=repr(pattern), hint="Install google-re2 (the extra `regex`), which matches in linear time.",
            ) from None  # fmt: skip
    try:
        # Where nothing has to be tried again, Python's engine answers sooner.
        if engine is re or not ("$" in pattern or backtracks(pattern, repeats=1, choices=0)):
            return re.compile(pattern, re.ASCII)  # re2's classes of letters are those of ASCII
        chosen = engine.Options()
        for name, value in options.items():
            setattr(chosen, name, value)
        return engine.compile(pattern, chosen)
    except (re.error, engine.error) as error:
        raise ModelError(f"{op}: no regular expression", found=repr(pattern), where=str(error)) from error


def backtracks(pattern: str, repeats: int = _MOST_REPEATS, choices: int = _MOST_CHOICES) -> str:
    """Name what may keep an engine busy that tries alternatives one after another; empty if there is nothing.

    With r repetitions and c choices it tries at most 2^c * n^r ways through n letters, if no group is repeated.
    """
    # Escaped letters and sets of letters are one letter each.
    bare = re.sub(r"\\.", "a", pattern, flags=re.DOTALL)
    bare = re.sub(r"\[\^?\]?[^\]]*\]", "a", bare)
    if re.search(r"\)[*+?{]", bare):
        return "a repeated group"
    if re.search(r"\(\?(?!:|P<)", bare):
        return "an extension of groups"
    if len(re.findall(r"[*+{]", bare)) > repeats:
        return "a pattern of many repetitions"
    if len(re.findall(r"[|?]", bare)) > choices:
        return "a pattern of many choices"
    return ""


def _most_tokens(node: Node) -> Size | None:
    x, fewest = node.operand(0), max(int(node.attrs.get("mincharnum", 1)), 1)
    return longest_text(x) // fewest + 1 if x.sizes is not None else None


@FAMILY.op("Tokenizer", domain="com.microsoft", row_bound=_most_tokens, row_axis=-1)
def tokenizer(
    x: Array,
    *,
    mark: int = 0,
    mincharnum: int = 1,
    pad_value: Any = "",
    separators: Sequence[Any] = (),
    tokenexp: Any = "",
) -> Array:
    """Return the tokens of texts along a last axis, filled up behind them.

    An expression matches as many letters as it can, as in onnxruntime. Where no text has a token, that axis is empty.

    Args:
        x: [texts] or [rows, texts].
        mark: Whether the tokens of a text stand between U+0002 and U+0003.
        mincharnum: The fewest letters of a token.
        pad_value: What fills up.
        separators: Regular expressions for what stands between tokens; a single empty one makes letters tokens.
        tokenexp: A regular expression for tokens, where there are no separators.

    Raises:
        ModelError: If there is no way to find tokens, or an expression is none.
        UnsupportedError: If an expression needs ``re2``, which is not installed.
    """
    split = _splitter(tuple(separators), str(tokenexp))
    tokens = [[token for token in split(text) if len(token) >= mincharnum] for text in x.reshape(-1).tolist()]
    width = max(map(len, tokens), default=0)
    if width and mark:
        tokens, width = [["\2", *each, "\3"] for each in tokens], width + 2
    reserve((len(tokens), width), np.dtype(object).itemsize, "Tokenizer")
    padding = [str(pad_value)] * width
    filled = list(itertools.chain.from_iterable(each + padding[len(each) :] for each in tokens))
    return _objects(filled, (*x.shape, width))


@functools.lru_cache(maxsize=64)
def _splitter(separators: tuple[str, ...], expression: str) -> Callable[[str], Iterable[str]]:
    """Return a function that finds the tokens of a text."""
    if separators == ("",):
        return list
    if not all(separators) or not (separators or expression):
        raise ModelError(
            "Tokenizer: there is no way to find tokens",
            expected="separators, a single empty one, or tokenexp", found=f"{list(separators)}, {expression!r}",
        )  # fmt: skip
    engines = [_compiled("Tokenizer", p, 1, 0, longest_match=True) for p in separators or (expression,)]
    if not separators:
        return lambda text: (found for match in engines[0].finditer(text) if (found := match.group()))

    def split(text: str) -> list[str]:
        parts = [text]
        for engine in engines:
            parts = [piece for part in parts for piece in _between(engine, part)]
        return parts

    return split


def _between(engine: Any, text: str) -> Iterator[str]:
    """Yield what stands between the matches of an expression that are not empty."""
    start = 0
    for match in engine.finditer(text):
        if match.end() > match.start():
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


@FAMILY.op("TfIdfVectorizer")
def tf_idf_vectorizer(
    x: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: Any,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[Any] = (),
    weights: Sequence[float] = (),
) -> Array:
    """Count the n-grams of a pool in every row, and weigh them.

    Args:
        x: Texts or integers, [items] or [rows, items].
        max_gram_length: The most items of an n-gram that counts.
        max_skip_count: How many items may be skipped between two of an n-gram at most; always the same number.
        min_gram_length: The fewest items of an n-gram that counts.
        mode: ``TF`` for counts, ``IDF`` for the weights of what occurs, ``TFIDF`` for their products.
        ngram_counts: Where in the pool the n-grams of 1, 2, ... items begin.
        ngram_indexes: The column of every n-gram.
        pool_int64s: N-grams of integers, one after the other.
        pool_strings: N-grams of texts.
        weights: The weight of every n-gram, all 1 if there are none.

    Returns:
        [columns] or [rows, columns] in float32.

    Raises:
        ModelError: If attributes contradict each other.
    """
    kind = str(mode)
    columns = np.asarray(ngram_indexes, np.int64)
    width = int(columns.max(initial=-1)) + 1
    _check_pool(kind, columns, weights)
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    items, pool, known = _numbered(rows, pool_int64s, pool_strings)
    reserve((len(rows), width), 12, "TfIdfVectorizer")
    counts = np.zeros(len(rows) * width, np.int64)
    ends = [*ngram_counts[1:], len(pool)]
    first = 0
    for size, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % size:
            raise ModelError(
                "TfIdfVectorizer: the pool is not made of whole n-grams",
                expected=f"ends of n-grams of {size} in [0, {len(pool)}]", found=f"[{start}, {end}]",
            )  # fmt: skip
        grams = pool[start:end].reshape(-1, size)
        own, first = columns[first : first + len(grams)], first + len(grams)
        if len(own) < len(grams):
            raise ModelError(
                "TfIdfVectorizer: too few ngram_indexes", expected=f"at least {first}", found=str(len(columns))
            )
        if not min_gram_length <= size <= max_gram_length or not len(grams):
            continue
        # No item is further from another than the row is long.
        for skipped in range(min(max_skip_count, items.shape[-1]) + 1 if size > 1 else 1):
            row, gram = _occurrences(items, grams, known, skipped + 1)
            counts += np.bincount(row * width + own[gram], minlength=len(counts))
    found = counts.reshape(*x.shape[:-1], width)
    scale = np.ones(width, np.float32)
    if len(weights):
        scale[columns] = weights[: len(columns)]
    if kind == "TF":
        return found.astype(np.float32)
    return np.where(found > 0, scale, np.float32(0)) if kind == "IDF" else found.astype(np.float32) * scale


def _check_pool(mode: str, columns: Array, weights: Sequence[float]) -> None:
    if mode not in _MODES:
        raise ModelError("TfIdfVectorizer: unknown mode", expected=" or ".join(_MODES), found=mode)
    if (columns < 0).any():
        raise ModelError("TfIdfVectorizer: bad ngram_indexes", expected="columns from 0 on", found=str(columns.min()))
    if 0 < len(weights) < len(columns):
        raise ModelError(
            "TfIdfVectorizer: too few weights", expected=f"at least {len(columns)}", found=str(len(weights))
        )


def _numbered(rows: Array, ints: Sequence[int], texts: Sequence[Any]) -> tuple[Array, Array, int]:
    """Return the rows and the pool with a number for every item of the pool, -1 for others, and how many there are."""
    if rows.dtype == object:
        table = {word: number for number, word in enumerate(dict.fromkeys(texts))}
        flat = np.fromiter((table.get(t, -1) for t in rows.reshape(-1).tolist()), np.int64, rows.size)
        return flat.reshape(rows.shape), np.array([table[word] for word in texts], np.int64), len(table)
    values, pool = np.unique(np.asarray(ints, np.int64), return_inverse=True)
    if not len(values):
        return np.full(rows.shape, -1, np.int64), pool, 0
    near = np.minimum(np.searchsorted(values, rows), len(values) - 1)
    return np.where(values[near] == rows, near, -1), pool, len(values)


def _occurrences(items: Array, grams: Array, known: int, step: int) -> tuple[Array, Array]:
    """Return the row and the n-gram of every occurrence of one.

    N-grams grow by an item at a time, beginnings that are not in the pool are dropped.

    Args:
        items: Numbers of items, [rows, items]; -1 is not in the pool.
        grams: Numbers of the items of n-grams, [n-grams, n].
        known: One more than the largest number.
        step: How far the items of an n-gram are apart.
    """
    reach = (grams.shape[1] - 1) * step
    places = items.shape[1] - reach
    if places <= 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    row, place = np.nonzero(items[:, :places] >= 0)
    state, entry = items[row, place], grams[:, 0]
    for level in range(1, grams.shape[1]):
        following = items[row, place + level * step]
        pairs, entry = np.unique(entry * known + grams[:, level], return_inverse=True)
        wanted = state * known + following
        state = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        kept = (following >= 0) & (pairs[state] == wanted)
        row, place, state = row[kept], place[kept], state[kept]
    # Of equal n-grams in the pool the last counts.
    gram = np.full(max(known, len(grams)), -1, np.int64)
    gram[entry] = np.arange(len(grams))
    chosen = gram[state]
    return row[chosen >= 0], chosen[chosen >= 0]


# Rules -------------------------------------------------------------------------------------------------------------

FAMILY.infer("StringConcat")(broadcasting_to("string"))
FAMILY.infer("RegexFullMatch")(broadcasting_to("bool"))


def _require_texts(facts: Facts) -> Sizes | None:
    """Demand that the first operand is a vector or a matrix; return its shape."""
    shape = facts.shape(0)
    facts.require(shape is None or len(shape) in (1, 2), "the texts have the wrong rank",
                  expected="[texts] or [rows, texts]", found=facts.shown(0))  # fmt: skip
    return shape


@FAMILY.infer("StringNormalizer")
def _normalized(facts: Facts) -> Results:
    action = str(facts.attr("case_change_action", "NONE"))
    facts.require(action in _CASES, "unknown case_change_action", expected=f"one of {', '.join(_CASES)}", found=action)
    shape = _require_texts(facts)
    if shape is None:
        return [facts.tensor("string", None)]
    if len(shape) > 1:
        facts.require_equal(shape[0], 1, "there is more than one row of texts")
    last = None if facts.attr("stopwords") or shape[-1] is None else maximum(shape[-1], 1)
    return [facts.tensor("string", (*shape[:-1], last))]


@FAMILY.infer("StringSplit")
def _split(facts: Facts) -> Results:
    shape = facts.shape(0)
    return [facts.tensor("string", None if shape is None else (*shape, None)), facts.tensor("int64", shape)]


@FAMILY.infer("Tokenizer", domain="com.microsoft")
def _tokens(facts: Facts) -> Results:
    shape = _require_texts(facts)
    return [facts.tensor("string", None if shape is None else (*shape, None))]


@FAMILY.infer("TfIdfVectorizer")
def _counted(facts: Facts) -> Results:
    shape = _require_texts(facts)
    width = max(facts.attr("ngram_indexes") or (-1,)) + 1
    return [facts.tensor("float32", None if shape is None else (*shape[:-1], width))]
