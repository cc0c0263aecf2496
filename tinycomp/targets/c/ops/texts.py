"""Texts on the C target: spans of heaps, which kernels compare, join, cut and look up."""

from __future__ import annotations

import functools
import itertools
import sys

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import numpy_dtype
from tinycomp.ops.automaton import Automaton, automaton
from tinycomp.ops.maps import label_table
from tinycomp.ops.text import utf8
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import Size, product
from tinycomp.targets.c.codegen.element_program import broadcast_strides
from tinycomp.targets.c.codegen.emitter import Emitter, View, nd_params
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.codegen.texts import DTYPE, bounds
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, ranks, sized_type

FAMILY = LoweringRules()
_SPAN_BYTES = 8
_PAGE = 256
_IGNORABLE, _CASED = 1 << 61, 1 << 62
_WIDTH = 21
"""Bits of a code point."""
_SIGMA = "\u03a3"
_PLANES = (range(0x20000), range(0xE0000, 0xE0200))
"""The code points in the planes of Unicode that have letters of two cases, and what is ignorable beside them."""
_texts = dtypes(DTYPE)


def _pair(emit: Emitter, node: Node) -> tuple[list[Value | View], dict[str, float | Size]]:
    """Return two operands with their heaps, and parameters to walk both, broadcast to the result."""
    shape = sized_type(node.output)[1]
    operands: list[Value | View] = []
    steps: list[list[Size]] = []
    sizes: dict[str, float | Size] = {}
    for name, value in zip("ab", node.inputs, strict=True):
        assert value is not None
        heap = emit.heap(value)
        steps.append(broadcast_strides(value, shape))
        operands += [value, heap.view]
        sizes[f"{name}_bytes"] = heap.nbytes
    return operands, {**nd_params(shape, a_stride=steps[0], b_stride=steps[1]), **sizes}


def text_equal(emit: Emitter, node: Node) -> None:
    """Emit a comparison of texts."""
    operands, params = _pair(emit, node)
    emit.call("text_equal", [node.output, *operands], params, node)


@FAMILY.lower("StringConcat", check=all_of(_texts, known_rank), layout=LayoutRule.ROW_MAJOR)
def text_concat(emit: Emitter, node: Node) -> None:
    """Emit pairs of texts as one."""
    operands, params = _pair(emit, node)
    heap = emit.heap(node.output)
    params |= {"bytes": heap.nbytes, "kept": len(emit.known.prefix)}
    emit.call("text_concat", [node.output, heap.view, *operands], params, node)


# ---- tables ----


def hash_table(texts: list[bytes], numbers: list[int]) -> tuple[np.ndarray, int]:
    """Return a table that ``text_lookup`` reads, and how many slots it has; of equal texts the first counts."""
    table = dict(zip(reversed(texts), reversed(numbers), strict=True))
    slots = 1 << (2 * len(table)).bit_length()
    pairs = np.zeros((slots, 2), np.int64)
    start = 0
    for (text, number), place in zip(table.items(), _hashes([*table]), strict=True):
        while pairs[place % slots, 0]:
            place += 1
        pairs[place % slots] = (start << 32) + len(text) + 1, number
        start += len(text)
    data = b"".join(table)
    words = np.frombuffer(data + bytes(-len(data) % 8), np.int64)
    return np.concatenate([pairs.reshape(-1), words]), slots


def _hashes(texts: list[bytes]) -> list[int]:
    """Return the hash of every text: FNV-1a of 64 bits, plus its upper half."""
    hashes = np.full(len(texts), 0xCBF29CE484222325, np.uint64)
    order = np.argsort([-len(text) for text in texts], kind="stable")
    lengths = -np.array([-len(texts[i]) for i in order], np.int64)
    longest = int(lengths.max(initial=0))
    letters = np.zeros((len(texts), longest), np.uint8)
    for row, i in enumerate(order):
        letters[row, : len(texts[i])] = np.frombuffer(texts[i], np.uint8)
    prime = np.uint64(0x100000001B3)
    with np.errstate(over="ignore"):
        for column in range(longest):
            rows = int(np.searchsorted(-lengths, -column, side="left"))
            hashes[order[:rows]] = (hashes[order[:rows]] ^ letters[:rows, column]) * prime
        hashes += hashes >> np.uint64(32)
    return [int(value) for value in hashes]


def emit_lookup(
    emit: Emitter, node: Node, y: Value | View, texts: list[bytes], numbers: list[int], missing: int
) -> None:
    """Emit the numbers of the texts of the first operand in a table."""
    x = node.operand(0)
    table, slots = hash_table(texts, numbers)
    heap = emit.heap(x)
    params = {
        "texts": product(sized_type(x)[1]), "x_bytes": heap.nbytes, "slots": slots, "words": len(table),
        "missing": missing,
    }  # fmt: skip
    emit.call("text_lookup", [y, x, heap.view, emit.constant(table)], params, node)


def _label_check(node: Node) -> Verdict:
    keys, values, _ = label_table(node.attrs, node.version)
    if keys.dtype != object:
        return reject("its keys are not texts")
    return len(keys) == len(values) or reject("its table is uneven")


@FAMILY.lower("LabelEncoder", check=all_of(_texts, _label_check), layout=LayoutRule.ROW_MAJOR, domain="ai.onnx.ml")
def label_encoder(emit: Emitter, node: Node) -> None:
    """Emit a search of texts in a table of int64, or of places of other values."""
    keys, values, default = label_table(node.attrs, node.version)
    texts, dtype = [utf8(key) for key in keys.tolist()], node.output.dtype
    if dtype == "int64":
        emit_lookup(emit, node, node.output, texts, [int(value) for value in values], int(default))
        return
    count = product(sized_type(node.output)[1])
    places = emit.scratch(count * _SPAN_BYTES)
    emit_lookup(emit, node, places, texts, list(range(len(texts))), len(texts))
    results = np.append(values, np.array([default], values.dtype))
    table = emit.known.spans(results) if dtype == DTYPE else results.astype(numpy_dtype(dtype))
    params = {
        "element_size": table.itemsize, "index_size": _SPAN_BYTES, "outer": 1, "axis": len(table), "inner": 1,
        "count": count,
    }  # fmt: skip
    emit.call("gather", [node.output, emit.constant(table), places], params, node)


# ---- cases ----


@functools.cache
def case_table(action: str) -> tuple[np.ndarray, int]:
    """Return what becomes of all code points in another case, as a kernel reads it, and how many pages it has.

    Letters change as in Python, which follows the Unicode standard (section 3.13).
    """
    words = np.zeros(sys.maxunicode + 1, np.int64)
    codes = [*itertools.chain(*_PLANES)]
    letters = [chr(code) for code in codes]
    change = str.lower if action == "LOWER" else str.upper
    for code, letter in zip(codes, letters, strict=True):
        changed = change(letter)
        if changed != letter:
            words[code] = sum(ord(each) << _WIDTH * place for place, each in enumerate(changed))
    if action == "LOWER":
        # A sigma ends a word behind something cased, what is ignorable left out, if nothing cased follows.
        cased, either = (_ends(f"{before}{{}}{_SIGMA} ", letters) for before in ("", "A"))
        words[codes] += np.where(cased, _CASED, 0) + np.where(either & ~cased, _IGNORABLE, 0)
    pages = words.reshape(-1, _PAGE)
    used = np.flatnonzero(pages.any(axis=1))
    count = int(used.max()) + 1
    starts = np.zeros(count, np.int64)
    starts[used] = count + _PAGE * np.arange(len(used))
    return np.concatenate([starts, pages[used].reshape(-1)]), count


def _ends(pattern: str, letters: list[str]) -> np.ndarray:
    """Tell for every letter whether the sigma in a pattern with it is a final one; a space is as a digit."""
    text = "".join([pattern.format(letter if letter != " " else "1") for letter in letters]).lower()
    return np.array([word.endswith("\u03c2") for word in text.split(" ")[:-1]])


def _normal_shape(node: Node) -> Verdict:
    shape = node.operand(0).shape or ()
    if node.attrs.get("case_change_action", "NONE") not in ("NONE", "LOWER", "UPPER"):
        return reject("an unknown change of case")
    return len(shape) == 1 or shape[0] == 1 or not isinstance(shape[0], int) or reject(f"texts of shape {list(shape)}")


@FAMILY.lower("StringNormalizer", check=all_of(_texts, ranks(1, 2), _normal_shape), layout=LayoutRule.ROW_MAJOR)
def text_normalize(emit: Emitter, node: Node) -> None:
    """Emit texts in another case, without stop words."""
    x, attrs = node.operand(0), node.attrs
    for rows in sized_type(x)[1][:-1]:
        emit.demand(rows - 1, "it takes one row of texts", node)
    action, stops = attrs.get("case_change_action", "NONE"), [*attrs.get("stopwords", ())]
    heap, own = emit.heap(x), emit.heap(node.output) if action != "NONE" else None
    tables: list[View | None] = [None, None, None]
    params: dict[str, float | Size] = {
        "count": product(sized_type(x)[1]), **bounds(x), "bytes": 0 if own is None else own.nbytes,
        "x_bytes": heap.nbytes, "kept": len(emit.known.prefix), "stop_slots": 0, "stop_words": 0,
    }  # fmt: skip
    wanted = [action != "NONE" and action, bool(stops) and not attrs.get("is_case_sensitive", 0) and "LOWER"]
    for place, (name, case) in enumerate(zip(("case", "stopped"), wanted, strict=True)):
        table, pages = case_table(case) if case else (None, 0)
        tables[place] = None if table is None else emit.constant(table)
        params |= {f"{name}_pages": pages, f"{name}_words": 0 if table is None else len(table)}
    if stops:
        compared = [word.lower() if wanted[1] else word for word in stops]
        table, slots = hash_table([utf8(word) for word in compared], [0] * len(compared))
        tables[2] = emit.constant(table)
        params |= {"stop_slots": slots, "stop_words": len(table)}
    operands = [node.output, emit.scratch(_SPAN_BYTES), None if own is None else own.view, x, heap.view, *tables]
    emit.call("text_normalize", operands, params, node)
    left = sized_type(node.output)[1][-1]
    if getattr(left, "name", None) in emit.most:
        emit.finds(left, 1)


# ---- parts ----


def _whole_result(node: Node) -> Verdict:
    return bool(node.outputs[0].name) or reject("its parts are not used")


@FAMILY.lower("StringSplit", check=all_of(_texts, known_rank, _whole_result), layout=LayoutRule.ROW_MAJOR)
def string_split(emit: Emitter, node: Node) -> None:
    """Emit the parts of texts, side by side, and then as rows."""
    delimiter, limit = utf8(node.attrs.get("delimiter", "")), node.attrs.get("maxsplit")
    params = {"limit": -1 if limit is None else max(int(limit), -1), "fewest": 0, "delimiter": len(delimiter)}
    mode = lib.TC_SPLIT_BETWEEN_TEXTS if delimiter else lib.TC_SPLIT_BETWEEN_SPACES
    pattern = emit.constant(np.frombuffer(delimiter, np.uint8)) if delimiter else None
    _emit_split(emit, node, pattern, {**params, "mode": mode, "states": 0, "classes": 0}, 0)


def _emit_split(emit: Emitter, node: Node, pattern: View | None, params: dict[str, float | Size], filler: int) -> None:
    """Emit the parts of texts as rows; ``filler`` is the span of what fills these up."""
    x = node.operand(0)
    heap, texts, found = emit.heap(x), product(sized_type(x)[1]), sized_type(node.output)[1][-1]
    most = emit.most_of(found)
    counts: Value | View = emit.scratch(texts * _SPAN_BYTES)
    if len(node.outputs) > 1 and node.outputs[1].name:
        counts = node.outputs[1]
    parts, width = emit.scratch(texts * most * _SPAN_BYTES), emit.scratch(_SPAN_BYTES)
    params = {"texts": texts, "total": bounds(x)["total"], "most": most, "x_bytes": heap.nbytes, **params}
    emit.call("text_split", [parts, counts, width, x, heap.view, pattern], params, node)
    emit.finds(found, 2)
    filled = {"fill_start": filler & (1 << 32) - 1, "fill_length": filler >> 32}
    params = {"texts": texts, "width": found, "most": most, **filled}
    emit.call("text_rows", [node.output, parts, counts], params, node)


def _pattern(node: Node) -> Automaton | str:
    """Return the automaton of a Tokenizer's expression, empty for letters; or why there is none."""
    separators, expression = [*node.attrs.get("separators", ())], node.attrs.get("tokenexp", "")
    if separators == [""]:
        return ""
    if len(separators) > 1:
        return "several separators"
    wanted = separators[0] if separators else expression
    made = automaton(wanted) if wanted else None
    if made is None or made.looks_around or not made.gives_up:
        return f"the expression {wanted!r}"
    return made


def _tokens_check(node: Node) -> Verdict:
    pattern = _pattern(node)
    if isinstance(pattern, str) and pattern:
        return reject(pattern)
    if node.attrs.get("mark", 0) or int(node.attrs.get("mincharnum", 1)) < 1:
        return reject("tokens with marks, or without letters")
    return True


@FAMILY.lower(
    "Tokenizer", domain="com.microsoft", check=all_of(_texts, ranks(1, 2), _tokens_check), layout=LayoutRule.ROW_MAJOR
)
def tokenizer(emit: Emitter, node: Node) -> None:
    """Emit the tokens of texts."""
    pattern, separators = _pattern(node), node.attrs.get("separators", ())
    params = {"limit": -1, "fewest": int(node.attrs.get("mincharnum", 1)), "delimiter": 0, "states": 0, "classes": 0}
    table, mode = None, lib.TC_SPLIT_LETTERS
    if isinstance(pattern, Automaton):
        mode = lib.TC_SPLIT_BETWEEN_MATCHES if separators else lib.TC_SPLIT_MATCHES
        table = emit.constant(_words(pattern))
        params |= {"states": pattern.steps.shape[0], "classes": pattern.steps.shape[1]}
    filler = emit.known.span(node.attrs.get("pad_value", ""))
    _emit_split(emit, node, table, {**params, "mode": mode}, filler)


def _words(pattern: Automaton) -> np.ndarray:
    """Return an automaton as kernels read it."""
    parts = (pattern.classes, pattern.steps.reshape(-1), pattern.accepts)
    return np.concatenate([part.astype(np.int32) for part in parts])


def _match_check(node: Node) -> Verdict:
    pattern = node.attrs.get("pattern", "")
    return automaton(pattern) is not None or reject(f"the expression {pattern!r}")


@FAMILY.lower("RegexFullMatch", check=all_of(_texts, known_rank, _match_check), layout=LayoutRule.ROW_MAJOR)
def regex_full_match(emit: Emitter, node: Node) -> None:
    """Emit the steps of an automaton over every text."""
    x, pattern = node.operand(0), automaton(node.attrs.get("pattern", ""))
    assert pattern is not None, node
    heap, (states, classes) = emit.heap(x), pattern.steps.shape
    params = {"texts": product(sized_type(x)[1]), "x_bytes": heap.nbytes, "states": states, "classes": classes}
    emit.call("text_match", [node.output, x, heap.view, emit.constant(_words(pattern))], params, node)
