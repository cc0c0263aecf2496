"""N-grams on the C target: TfIdfVectorizer, whose pool becomes sorted tables; texts are integers first."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ops.text import utf8
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import Size
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.rules import LoweringRules
from tinycomp.targets.c.codegen.texts import DTYPE
from tinycomp.targets.c.ops.texts import emit_lookup
from tinycomp.targets.common.checks import Verdict, all_of, ranks, sized_type

FAMILY = LoweringRules()
_MODES = {"TF": lib.TC_NGRAMS_COUNTS, "IDF": lib.TC_NGRAMS_WEIGHTS, "TFIDF": lib.TC_NGRAMS_PRODUCTS}
_HEAD = 3
"""Words that describe the n-grams of one length."""
_MOST_LEVELS = 64
_ITEM_BYTES = 8


def _items(node: Node) -> Verdict:
    dtype = node.operand(0).dtype
    return dtype in ("int32", "int64", DTYPE) or reject(f"n-grams of {dtype}")


def _items_of_pool(node: Node) -> tuple[np.ndarray, list[bytes]]:
    """Return the pool as integers, and the texts that these are the places of."""
    if node.operand(0).dtype != DTYPE:
        return np.asarray(node.attrs.get("pool_int64s", ()), np.int64), []
    words = [utf8(word) for word in node.attrs.get("pool_strings", ())]
    texts = dict.fromkeys(words)
    places = {text: place for place, text in enumerate(texts)}
    return np.array([places[word] for word in words], np.int64), [*texts]


def _pool_name(node: Node) -> str:
    return "pool_strings" if node.operand(0).dtype == DTYPE else "pool_int64s"


def _pool(node: Node) -> Verdict:
    """Tell whether the attributes fit each other: what does not is for the host to refuse."""
    attrs = node.attrs
    counts, columns, pool = (list(attrs.get(n, ())) for n in ("ngram_counts", "ngram_indexes", _pool_name(node)))
    ends = [*counts, len(pool)]
    whole = all(0 <= a <= b and (b - a) % n == 0 for n, (a, b) in enumerate(pairwise(ends), 1))
    grams = sum((b - a) // n for n, (a, b) in enumerate(pairwise(ends), 1)) if whole else 0
    weights = list(attrs.get("weights", ()))
    fits = whole and len(columns) >= grams and min(columns, default=0) >= 0
    fits = fits and len(counts) <= _MOST_LEVELS and not 0 < len(weights) < len(columns)
    return (fits and str(attrs["mode"]) in _MODES) or reject("its attributes do not fit each other")


@FAMILY.lower("TfIdfVectorizer", check=all_of(_items, ranks(1, 2), _pool), layout=LayoutRule.ROW_MAJOR)
def tf_idf(emit: Emitter, node: Node) -> None:
    """Emit a search of the n-grams of every row in the tables."""
    x, attrs = node.operand(0), node.attrs
    shape: tuple[Size, ...] = sized_type(x)[1]
    rows, length = shape if len(shape) > 1 else (1, *shape)
    columns = np.asarray(attrs["ngram_indexes"], np.int64)
    width = int(columns.max(initial=-1)) + 1
    scale = np.ones(width, np.float32)
    if weights := attrs.get("weights"):
        scale[columns] = np.asarray(weights, np.float32)[: len(columns)]
    pool, texts = _items_of_pool(node)
    items: Value | View = x
    if x.dtype == DTYPE:
        items = emit.scratch(rows * length * _ITEM_BYTES)
        emit_lookup(emit, node, items, texts, list(range(len(texts))), -1)
    table, levels = _table(node, columns, pool)
    params = {
        "rows": rows, "length": length, "width": width, "type": TYPES["int64" if x.dtype == DTYPE else x.dtype],
        "mode": _MODES[str(attrs["mode"])],
        "levels": levels, "skips": max(int(attrs["max_skip_count"]), 0), "words": len(table),
    }  # fmt: skip
    emit.call("count_ngrams", [node.output, items, emit.constant(table), emit.constant(scale)], params, node)


def _table(node: Node, columns: np.ndarray, pool: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the n-grams of every length that counts, sorted, as the kernel reads them; and how many lengths."""
    attrs = node.attrs
    wanted = range(int(attrs["min_gram_length"]), int(attrs["max_gram_length"]) + 1)
    tables: list[tuple[int, np.ndarray]] = []
    first = 0
    for size, (start, end) in enumerate(pairwise([*attrs["ngram_counts"], len(pool)]), 1):
        grams = pool[start:end].reshape(-1, size)
        own, first = columns[first : first + len(grams)], first + len(grams)
        if size in wanted and len(grams):
            # Of equal n-grams in the pool the last counts.
            distinct, place = np.unique(grams[::-1], axis=0, return_index=True)
            tables.append((size, np.column_stack([distinct, own[::-1][place]])))
    head, at = [], _HEAD * len(tables)
    for size, table in tables:
        head += [size, len(table), at]
        at += table.size
    return np.concatenate([np.array(head, np.int64), *(table.reshape(-1) for _, table in tables)]), len(tables)
