"""Labels, categories and maps of classical models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case
from tests.cases.values import floats, integers

ML = "ai.onnx.ml"
HOST: dict[str, Any] = {"domain": ML, "host": "no rule for"}
WORDS = np.array([["b", "c"], ["?", "a"]], object)
CATEGORIES: dict[str, Any] = {
    "cats_int64s": [7, 8, 9], "cats_strings": ["a", "b", "c"], "default_int64": -5, "default_string": "none",
}  # fmt: skip


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    for x in (WORDS, np.array([7, 8, 9, 10])):
        yield Case("CategoryMapper", [x], CATEGORIES, 1, **HOST)
    labels = {"keys_strings": ["a", "b", ""], "values_int64s": [5, 6, 7], "default_int64": -2}
    yield Case("LabelEncoder", [WORDS], labels, 4, domain=ML)
    numbers = {"keys_int64s": [1, 2], "values_floats": [0.5, 1.5], "default_float": -1.0}
    yield Case("LabelEncoder", [np.array([[1, 2, 3]])], numbers, 4, domain=ML)
    for zeros in (0, 1):
        where = {"domain": ML, "host": "" if zeros else "no rule for"}  # without zeros, what is unknown is an error
        yield Case("OneHotEncoder", [WORDS], {"cats_strings": ["a", "b", "c", "?"], "zeros": zeros}, 1, **where)
        yield Case("OneHotEncoder", [np.array([1, 3])], {"cats_int64s": [1, 2, 3], "zeros": zeros}, 1, **where)
    yield Case("OneHotEncoder", [WORDS], {"cats_strings": ["a", "b"]}, 1, domain=ML)
    yield Case("OneHotEncoder", [np.array([1, 4])], {"cats_int64s": [1, 2, 3], "zeros": 0}, 1, domain=ML,
               refused="OneHotEncoder")  # fmt: skip
    for x in ({0: 1.5, 2: -2.5}, {3: 1.0}):
        yield Case(
            "CastMap",
            [x],
            {"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 4},
            1,
            domain=ML,
            host="no rule for",
        )
        yield Case("CastMap", [x], {"cast_to": "TO_INT64"}, 1, **HOST)
        yield Case("DictVectorizer", [x], {"int64_vocabulary": [0, 5, 2]}, 1, **HOST)
    yield Case(
        "DictVectorizer",
        [{"a": 1.0, "c": 2.0}],
        {"string_vocabulary": ["c", "b", "a"]},
        1,
        domain=ML,
        host="no rule for",
    )
    yield Case("ZipMap", [floats(3, 2)], {"classlabels_int64s": [5, 6]}, 1, **HOST)
    yield Case("ZipMap", [floats(3, 2)], {"classlabels_strings": ["a", "b"]}, 1, **HOST)
    yield Case("ZipMap", [floats(2)], {"classlabels_strings": ["a", "b"]}, 1, **HOST)
    yield Case("ZipMap", [floats(3, 3)], {"classlabels_strings": ["a", "b"]}, 1, domain=ML, refused="ZipMap")
    yield Case("ArrayFeatureExtractor", [floats(3, 4), np.array([[2, 0]])], {}, 1, domain=ML)
    for widths in ((4, 2), (2, 3)):
        operands = [floats(3, 4), floats(3, 2)]
        yield Case("FeatureVectorizer", operands, {"inputdimensions": widths}, 1, domain=ML)
    yield from features()
    far = {"keys_int64s": [1, 1 << 40], "values_int64s": [2, 3]}
    yield Case("LabelEncoder", [integers(50, WIDTH, low=0, high=7)], far, 2, domain=ML, host="not string")


WIDTH = 7
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
RNG = np.random.default_rng(0)


def numbers(count: int) -> list[float]:
    return [float(v) for v in RNG.standard_normal(count).astype(np.float32)]


def machine(kind: str) -> dict[str, Any]:
    return {
        "coefficients": numbers(5), "support_vectors": numbers(5 * WIDTH), "n_supports": 5, "rho": numbers(1),
        "kernel_type": kind, "kernel_params": [0.2, 0.5, 3.0],
    }  # fmt: skip


def classifier(kind: str, classes: int, probability: bool = False) -> dict[str, Any]:
    """Return a machine of a few support vectors for every class."""
    counts, pairs = RNG.integers(1, 5, classes), classes * (classes - 1) // 2
    total = int(counts.sum())
    attributes = {
        "kernel_type": kind, "kernel_params": [0.2, 0.5, 3.0], "vectors_per_class": counts.tolist(),
        "support_vectors": numbers(total * WIDTH), "coefficients": numbers(total * (classes - 1)),
        "rho": numbers(pairs),
    }  # fmt: skip
    return attributes | ({"prob_a": [-abs(a) for a in numbers(pairs)], "prob_b": numbers(pairs)} if probability else {})


def linear(classes: int) -> dict[str, Any]:
    return {"coefficients": numbers(classes * WIDTH), "intercepts": numbers(classes)}


FORMS: list[tuple[str, dict[str, Any]]] = [
    ("Scaler", {"offset": numbers(WIDTH), "scale": numbers(WIDTH)}),
    ("Scaler", {"offset": numbers(1), "scale": numbers(1)}),
    *(("Normalizer", {"norm": norm}) for norm in ("MAX", "L1", "L2")),
    *(("Binarizer", {"threshold": threshold}) for threshold in (0.0, 0.3)),
    ("Imputer", {"imputed_value_floats": numbers(WIDTH), "replaced_value_float": float("nan")}),
    ("Imputer", {"imputed_value_floats": numbers(1), "replaced_value_float": 0.0}),
    ("Imputer", {"imputed_value_int64s": [-1], "replaced_value_int64": 3}),
    ("OneHotEncoder", {"cats_int64s": [0, 1, 2, 5]}),
    ("LabelEncoder", {"keys_int64s": [4, 0, 5, 4], "values_int64s": [9, 8, 7, 6], "default_int64": 3}),
    ("LabelEncoder", {"keys_int64s": [2, 1], "values_floats": [0.5, -3.0]}),
    ("LinearRegressor", {"coefficients": numbers(2 * WIDTH), "targets": 2, "post_transform": "SOFTMAX_ZERO"}),
    ("LinearRegressor", {"coefficients": numbers(WIDTH), "post_transform": "LOGISTIC"}),
    ("LinearRegressor", {**linear(3), "targets": 3}),
    ("LinearRegressor", linear(1)),
    ("LinearClassifier", {**linear(3), "classlabels_ints": [4, 5, 6], "post_transform": "SOFTMAX"}),
    ("LinearClassifier", {**linear(2), "classlabels_ints": [0, 1], "post_transform": "LOGISTIC"}),
    ("LinearClassifier", {**linear(3), "classlabels_strings": ["a", "b", "c"]}),
    ("LinearClassifier", {**linear(1), "classlabels_ints": [4, 6]}),
    ("LinearClassifier", {**linear(1), "classlabels_ints": [4, 6], "post_transform": "LOGISTIC"}),
    ("LinearClassifier", {**linear(1), "classlabels_strings": ["a", "b"]}),
    *(("SVMRegressor", machine(kind)) for kind in KERNELS),
    ("SVMRegressor", {**machine("RBF"), "one_class": 1}),
    *(
        ("SVMClassifier", {**classifier(kind, classes, probability), "classlabels_ints": [*range(5, 5 + classes)]})
        for kind in KERNELS for classes in (2, 3, 6) for probability in (False, True)
    ),
    *(
        ("SVMClassifier", {**classifier("RBF", n), "classlabels_ints": [*range(n)], "post_transform": transform})
        for n, transform in ((2, "LOGISTIC"), (3, "LOGISTIC"), (3, "SOFTMAX"))
    ),
    ("SVMClassifier", {**classifier("RBF", 3, probability=True), "classlabels_strings": ["a", "b", "c"]}),
]  # fmt: skip
"""Operators on rows of numbers that are defined by ONNX's own."""


def features() -> Iterator[Case]:
    """Rows of numbers, among them zeros and what an Imputer replaces; no rows; a single one."""
    for op, attrs in FORMS:
        if "imputed_value_int64s" in attrs or op in ("LabelEncoder", "OneHotEncoder"):
            x = integers(50, WIDTH, low=0, high=7)
        else:
            x = floats(50, WIDTH)
            x[1], x[2, 3] = 0, np.nan if op == "Imputer" else 0
        version, outputs = (2, 1) if op == "LabelEncoder" else (1, 2 if op.endswith("Classifier") else 1)
        host = "its texts are only moved" if "classlabels_strings" in attrs else ""
        for count in (50, 1, 0):
            yield Case(op, [x[:count]], attrs, version, outputs, rtol=1e-4, atol=2e-5, domain=ML, host=host)
