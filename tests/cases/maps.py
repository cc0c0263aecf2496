"""Labels, categories and maps of classical models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case
from tests.cases.values import floats

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
    yield Case("ZipMap", [floats(3, 3)], {"classlabels_strings": ["a", "b"]}, 1, domain=ML, refused="ZipMap")
    for threshold in (0.0, 0.5):
        yield Case("Binarizer", [floats(3, 4)], {"threshold": threshold}, 1, domain=ML)
    yield Case("ArrayFeatureExtractor", [floats(3, 4), np.array([[2, 0]])], {}, 1, domain=ML)
    for widths in ((4, 2), (2, 3)):
        operands = [floats(3, 4), floats(3, 2)]
        yield Case("FeatureVectorizer", operands, {"inputdimensions": widths}, 1, domain=ML)
    for norm in ("MAX", "L1", "L2"):
        yield Case("Normalizer", [floats(3, 4)], {"norm": norm}, 1, domain=ML)
    yield Case("Scaler", [floats(3, 2)], {"offset": [1.0, -1.0], "scale": [2.0, 0.5]}, 1, domain=ML)
    missing = np.where(floats(3, 2) > 0, np.nan, floats(3, 2)).astype("f4")
    given = {"imputed_value_floats": [0.5, 7.0], "replaced_value_float": float("nan")}
    yield Case("Imputer", [missing], given, 1, domain=ML)
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        attrs = {
            "coefficients": [0.5, -1.0, 0.25, 2.0, 1.0, -0.5],
            "intercepts": [0.5, -0.5],
            "post_transform": transform,
        }
        yield Case("LinearRegressor", [floats(4, 3)], {**attrs, "targets": 2}, 1, domain=ML)
        yield Case("LinearClassifier", [floats(4, 3)], {**attrs, "classlabels_ints": [3, 4]}, 1, 2, domain=ML)
    vectors = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "support_vectors": [0.5, 1.0, -1.0, 0.25],
               "coefficients": [1.5, -0.5], "rho": [0.25]}  # fmt: skip
    yield Case("SVMRegressor", [floats(5, 2)], {**vectors, "n_supports": 2}, 1, domain=ML)
    classes = {**vectors, "vectors_per_class": [1, 1], "classlabels_ints": [0, 1]}
    yield Case("SVMClassifier", [floats(5, 2)], classes, 1, 2, domain=ML)
    yield Case("SVMClassifier", [floats(5, 2)], {**classes, "prob_a": [-1.0], "prob_b": [0.1]}, 1, 2, domain=ML)
