"""Define operators of ``ai.onnx.ml`` by ONNX's own: scaling and encoding of features, linear models.

Forms that are not covered here stay the operator that they are; so do most of texts, which have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tinycomp.frontend.definition_body import Body
from tinycomp.frontend.extension import Extensions, covered
from tinycomp.ir.graph import Value
from tinycomp.ir.types import UNKNOWN_DTYPE
from tinycomp.ops.distance import DOMAIN as OWN_DOMAIN
from tinycomp.ops.distance import METRICS
from tinycomp.ops.svm import pair_weights

DOMAIN = "ai.onnx.ml"
EXTENSIONS = Extensions(DOMAIN)
defines = EXTENSIONS.defines
_DENSE = 16
"""Integer keys that span at most so many numbers each are looked up by index."""
_FEW = 64
"""So many texts are compared one by one."""
_MOST_VOTES = 1 << 24
"""Elements of the matrix by which pairs of classes vote; with more, the operator has a kernel of its own."""
_FAR = 1 << 60
_TRANSFORMS = {"NONE": "", "SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid"}
_NEAR_ZERO = 1e-7
"""What SOFTMAX_ZERO takes for zero."""
_WINITZKI = 0.147
"""The constant of Winitzki's approximation of the inverse error function, which onnxruntime has."""


def _numbers(b: Body, x: Value) -> Value:
    """Return rows, or one of them, in float32."""
    covered(x.dtype in ("float32", "float64", "int32", "int64") and x.rank in (1, 2, None))
    return b.cast(x, "float32")


def _rows(b: Body, x: Value) -> Value:
    """Return rows of numbers in float32; a vector is one row."""
    rows = _numbers(b, x)
    if rows.rank == 1:
        return b.reshape(rows, [1, -1])
    if rows.rank == 2:
        return rows
    width = b.reshape(b("Shape", rows, start=-1), [1])
    return b("Reshape", rows, b("Concat", b.ints(-1), width, axis=0))


def _transformed(b: Body, scores: Value, transform: str) -> Value:
    """Return what a post-transform makes of several scores, as onnxruntime computes it."""
    if transform in _TRANSFORMS:
        return b(_TRANSFORMS[transform], scores) if _TRANSFORMS[transform] else scores
    covered(transform in ("SOFTMAX_ZERO", "PROBIT"))
    if transform == "PROBIT":
        return _probit(b, scores)
    last = b.ints(1)
    largest, _ = b.several(2, "TopK", scores, last, axis=1)
    counts = b("Greater", b("Abs", scores), b.float32(_NEAR_ZERO))
    powers = b("Exp", b("Sub", scores, largest))
    parts = b("Where", counts, powers, b("Mul", scores, b("Exp", b("Neg", largest))))
    return b("Div", parts, b("ReduceSum", parts, last, keepdims=1))


def _probit(b: Body, x: Value) -> Value:
    """Return the quantiles of the normal distribution."""
    doubled = b("Sub", b("Mul", x, b.float32(2)), b.float32(1))
    one = b.float32(1)
    log = b("Log", b("Mul", b("Sub", one, doubled), b("Add", one, doubled)))
    middle = b("Add", b("Mul", log, b.float32(0.5)), b.float32(2 / (3.14159 * _WINITZKI)))
    root = b("Sqrt", b("Sub", b("Mul", middle, middle), b("Mul", log, b.float32(1 / _WINITZKI))))
    size = b("Mul", b("Sqrt", b("Sub", root, middle)), b.float32(np.sqrt(2)))
    return b("Where", b("Less", doubled, b.float32(0)), b("Neg", size), size)


def _row(b: Body, values: Sequence[float]) -> Value:
    return b.const(np.asarray(values, np.float32))


@defines("Scaler", since=13)
def _scaler(b: Body, x: Value, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Value:
    covered(len(offset) > 0 and len(scale) > 0)
    return b("Mul", b("Sub", _numbers(b, x), _row(b, offset)), _row(b, scale))


@defines("Normalizer", since=18)
def _normalizer(b: Body, x: Value, *, norm: str = "MAX") -> Value:
    covered(norm in ("MAX", "L1", "L2"))
    rows = _numbers(b, x)
    size = b(f"Reduce{norm.title()}", rows, b.ints(-1), keepdims=1)
    return b("Div", rows, b("Where", b("Equal", size, b.float32(0)), b.float32(1), size))


@defines("Binarizer", since=13)
def _binarizer(b: Body, x: Value, *, threshold: float = 0.0) -> Value:
    covered(x.dtype in ("float32", "float64", "int32", "int64"))
    limit = b.like(x, threshold)
    return b.cast(b("Greater", x, limit), x.dtype)


@defines("Imputer", since=13)
def _imputer(
    b: Body,
    x: Value,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Value:
    if x.dtype == "int64":
        covered(len(imputed_value_int64s) > 0)
        missing = b("Equal", x, b.const(np.int64(replaced_value_int64)))
        return b("Where", missing, b.const(np.asarray(imputed_value_int64s, np.int64)), x)
    covered(x.dtype == "float32" and len(imputed_value_floats) > 0)
    missing = b("IsNaN", x) if np.isnan(replaced_value_float) else b("Equal", x, b.float32(replaced_value_float))
    return b("Where", missing, _row(b, imputed_value_floats), x)


@defines("FeatureVectorizer", since=13)
def _feature_vectorizer(b: Body, *tables: Value, inputdimensions: Sequence[int] = ()) -> Value:
    covered(len(tables) == len(inputdimensions) and all(x.rank == 2 for x in tables))
    return b("Concat", *map(partial(_columns, b), tables, inputdimensions), axis=1)


def _columns(b: Body, x: Value, count: int) -> Value:
    """Return the first columns of a table in float32, and zeros for those that it has not."""
    rows = _numbers(b, x)
    if (x.shape or ())[1:] == (count,):
        return rows
    return b("Slice", b("Pad", rows, b.ints(0, 0, 0, count)), b.ints(0), b.ints(count), b.ints(1))


@defines("ArrayFeatureExtractor", since=13)
def _array_feature_extractor(b: Body, x: Value, indices: Value) -> Value:
    covered(x.rank and x.dtype != UNKNOWN_DTYPE)
    wanted = b.reshape(indices, [-1] if x.rank != 1 else [1, -1])  # the values of a vector are one row
    return b("Gather", x, wanted, axis=-1)


@defines("OneHotEncoder", since=13)
def _one_hot_encoder(
    b: Body,
    x: Value,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    zeros: int = 1,
) -> Value:
    covered(zeros and bool(cats_int64s) != bool(cats_strings))
    if cats_strings:
        covered(x.dtype == "string" and x.rank is not None and len(cats_strings) <= _FEW)
        texts = list(cats_strings)
        b.require_opset(19)  # which compares texts
        same = b("Equal", b("Unsqueeze", x, b.ints(-1)), b.const(np.array(texts, object)))
        return b.cast(same, "float32")
    covered(x.dtype in ("int64", "int32", "float32"))
    numbers = b("Unsqueeze", b.cast(x, "int64"), b.ints(-1))
    return b.cast(b("Equal", numbers, b.const(np.asarray(cats_int64s, np.int64))), "float32")


@defines("CDist", since=13, domain="com.microsoft")
def _cdist(b: Body, x: Value, points: Value, *, metric: str = "sqeuclidean") -> Value:
    covered(metric in METRICS[:2] and x.dtype == points.dtype and x.rank == points.rank == 2)
    covered(x.dtype in ("float32", "float64"))
    return b.extra(OWN_DOMAIN, "Distances", x, points, metric=metric)


@defines("LabelEncoder", since=13)
def _label_encoder(
    b: Body,
    x: Value,
    *,
    classes_strings: Sequence[str] = (),
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: object = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
    values_tensor: object = None,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str | bytes = "_Unused",
    default_tensor: object = None,
) -> Value:
    # Integers that lie near each other become numbers by their place in a table, between two defaults.
    others = (classes_strings, keys_floats, keys_strings, values_strings)
    covered(x.dtype == "int64" and len(keys_int64s) > 0 and not any(len(each) for each in others))
    covered(keys_tensor is None and values_tensor is None and default_tensor is None)
    floats = len(values_floats) > 0
    covered(not floats or not len(values_int64s))
    values = np.asarray(values_floats, np.float32) if floats else np.asarray(values_int64s, np.int64)
    low, high = min(keys_int64s), max(keys_int64s)
    covered(len(values) == len(keys_int64s) and high - low <= _DENSE * len(values) and abs(low) < _FAR)
    table = np.full(high - low + 3, default_float if floats else default_int64, values.dtype)
    table[np.asarray(keys_int64s[::-1], np.int64) - (low - 1)] = values[::-1]  # of equal keys the first counts
    places = b("Sub", b("Clip", x, b.const(np.int64(low - 1)), b.const(np.int64(high + 1))), b.const(np.int64(low - 1)))
    return b("Gather", b.const(table), places)


def _labels(ints: Sequence[int], strings: Sequence[str]) -> np.ndarray:
    """Return the labels of classes, which are texts or integers."""
    return np.array(strings, object) if strings else np.asarray(ints, np.int64)


def _linear(b: Body, x: Value, coefficients: Sequence[float], intercepts: Sequence[float], outputs: int) -> Value:
    """Return the products of rows and coefficients, and the intercepts added."""
    covered(outputs > 0 and len(coefficients) % outputs == 0 and len(intercepts) in (0, outputs))
    factors = np.asarray(coefficients, np.float32).reshape(outputs, -1)
    return b("Gemm", _rows(b, x), b.const(factors), _row(b, intercepts) if len(intercepts) else None, transB=1)


@defines("LinearRegressor", since=13)
def _linear_regressor(
    b: Body,
    x: Value,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Value:
    scores = _linear(b, x, coefficients, intercepts, targets)
    # Of one target, onnxruntime transforms nothing but to a quantile.
    return scores if targets == 1 and post_transform != "PROBIT" else _transformed(b, scores, post_transform)


@defines("LinearClassifier", since=13)
def _linear_classifier(
    b: Body,
    x: Value,
    *,
    coefficients: Sequence[float],
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    intercepts: Sequence[float] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    labels = _labels(classlabels_ints, classlabels_strings)
    covered(len(labels) > 1)
    if len(labels) == 2 and len(intercepts) == 1:
        # The only score speaks for the second class; onnxruntime has no softmax here.
        covered(post_transform != "PROBIT")
        score = _linear(b, x, coefficients, intercepts, 1)
        second = b.reshape(b("Greater", score, b.float32(0)), [-1])
        label = b("Gather", b.const(labels), b.cast(second, "int64"))
        if post_transform == "LOGISTIC":
            return label, b("Sigmoid", b("Concat", b("Neg", score), score, axis=1))
        return label, b("Concat", b("Sub", b.float32(1), score), score, axis=1)
    covered(len(intercepts) == len(labels))
    scores = _linear(b, x, coefficients, intercepts, len(labels))
    label = b("Gather", b.const(labels), b("ArgMax", scores, axis=1, keepdims=0))
    return label, _transformed(b, scores, post_transform)


def _similarity(b: Body, x: Value, vectors: np.ndarray, kind: str, params: Sequence[float]) -> Value:
    """Return the kernel function of every row and every support vector: see :func:`tinycomp.ops.svm.similarities`."""
    gamma, constant, degree = (*params, 0.0, 0.0, 0.0)[:3]
    covered(kind in ("LINEAR", "POLY", "RBF", "SIGMOID"))
    products = b("Gemm", x, b.const(vectors), transB=1)
    if kind == "RBF":
        lengths = b("ReduceSum", b("Mul", x, x), b.ints(1), keepdims=1)
        apart = b("Sub", b("Add", lengths, b.const((vectors * vectors).sum(1))), b("Add", products, products))
        return b("Exp", b("Mul", b("Max", apart, b.float32(0)), b.float32(-gamma)))
    if kind == "LINEAR":
        return products
    shifted = b("Add", b("Mul", products, b.float32(gamma)), b.float32(constant))
    return b("Tanh", shifted) if kind == "SIGMOID" else b("Pow", shifted, b.float32(degree))


@defines("SVMRegressor", since=13)
def _svm_regressor(
    b: Body,
    x: Value,
    *,
    coefficients: Sequence[float],
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Value:
    del post_transform  # of which onnxruntime makes nothing here
    covered(len(rho) == 1 and n_supports in (0, len(coefficients)) and len(coefficients) > 0)
    factors = np.asarray(coefficients, np.float32)
    if not n_supports:  # a linear model
        distance = b("Add", _similarity(b, _rows(b, x), factors[None], kernel_type, kernel_params), _row(b, rho))
    else:
        vectors = np.asarray(support_vectors, np.float32).reshape(n_supports, -1)
        near = _similarity(b, _rows(b, x), vectors, kernel_type, kernel_params)
        distance = b("Gemm", near, b.const(factors[:, None]), _row(b, rho))
    if not one_class:
        return distance
    return b("Where", b("Greater", distance, b.float32(0)), b.float32(1), b.float32(-1))


@defines("SVMClassifier", since=13)
def _svm_classifier(
    b: Body,
    x: Value,
    *,
    coefficients: Sequence[float],
    rho: Sequence[float],
    support_vectors: Sequence[float],
    vectors_per_class: Sequence[int],
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
) -> tuple[Value, Value]:
    counts = np.asarray(vectors_per_class, np.int64)
    total, classes = int(counts.sum()), len(counts)
    pairs = classes * (classes - 1) // 2
    covered(post_transform in _TRANSFORMS and classes > 1 and len(prob_a) == len(prob_b) and len(prob_a) in (0, pairs))
    covered(pairs * classes <= _MOST_VOTES)
    covered(total > 0 and len(support_vectors) % total == 0 and len(coefficients) == total * (classes - 1))
    vectors = np.asarray(support_vectors, np.float32).reshape(total, -1)
    labels = _labels(classlabels_ints, classlabels_strings)
    rows = _rows(b, x)
    first, second = np.triu_indices(classes, 1)
    columns = (rows.shape or (0, None))[1]
    covered(len(labels) == classes and len(rho) == len(first))
    covered(not isinstance(columns, int) or columns == vectors.shape[1])
    near = _similarity(b, rows, vectors, kernel_type, kernel_params)
    weights = pair_weights(counts, coefficients).astype(np.float32)
    decisions = b("Gemm", near, b.const(weights), _row(b, rho))
    # Every pair has a vote for its second class, which goes to the first where the decision is positive.
    moved = np.eye(classes, dtype=np.float32)[first] - np.eye(classes, dtype=np.float32)[second]
    positive = b.cast(b("Greater", decisions, b.float32(0)), "float32")
    votes = b("Gemm", positive, b.const(moved), b.const(np.arange(classes, dtype=np.float32)))
    label = b("Gather", b.const(labels), b("ArgMax", votes, axis=1, keepdims=0))
    if prob_a:
        scores = b.extra(OWN_DOMAIN, "PairwiseCoupling", decisions, prob_a=prob_a, prob_b=prob_b)
    else:
        scores = b("Concat", b("Neg", decisions), decisions, axis=1) if classes == 2 else decisions
    operator = _TRANSFORMS[post_transform]
    return label, b(operator, scores) if operator else scores
