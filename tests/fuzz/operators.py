"""Operators without a numpy kernel of tinycomp's own, with random attributes: what they give is what onnxruntime gives.

``onnx.reference`` serves these where no definition covers a node. Operands and attributes are valid, so that nearly
every case is one that onnxruntime runs.
"""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tests.fuzz.harness import Harness, WrongError, generators
from tests.fuzz.peers import RefusedError, by_onnxruntime
from tinycomp.errors import TinycompError

ML = "ai.onnx.ml"
F32, I64 = np.float32, np.int64
Array = np.ndarray


@dataclass
class Call:
    """One node and its operands.

    Attributes:
        op: The operator.
        operands: Arrays, maps, or None for those that are absent.
        attrs: Its attributes.
        domain: Its domain.
        opset: The version of the domain.
        outputs: How many results are asked for.
        known: The operands that are constants of the model.
        close: What results may differ by, as a share of the largest.
    """

    op: str
    operands: Sequence[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = 21
    outputs: int = 1
    known: frozenset[int] = frozenset()
    close: float = 1e-5

    def model(self) -> onnx.ModelProto:
        """Return a model of the node alone."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.operands)]
        results = [f"y{i}" for i in range(self.outputs)]
        attrs = {k: v for k, v in self.attrs.items() if v is not None}
        node = helper.make_node(self.op, names, results, "node", domain=self.domain, **attrs)
        constants = {f"x{i}": self.operands[i] for i in self.known if self.operands[i] is not None}
        return make_model([node], self.feeds, constants, results, domains={self.domain: self.opset})

    @property
    def feeds(self) -> dict[str, Any]:
        """What a run is given."""
        return {f"x{i}": x for i, x in enumerate(self.operands) if x is not None and i not in self.known}


Maker = Callable[[random.Random, np.random.Generator], Call]
MAKERS: list[Maker] = []


def operator(make: Maker) -> Maker:
    """Let a function make cases."""
    MAKERS.append(make)
    return make


def _reals(arrays: np.random.Generator, *shape: int) -> Array:
    return arrays.standard_normal(shape).astype(F32)


def _floats(arrays: np.random.Generator, count: int) -> list[float]:
    return [float(v) for v in _reals(arrays, count)]


def _features(rng: random.Random, arrays: np.random.Generator, columns: int, rows: int | None = None) -> Array:
    """Return rows of features, in one of the types that classical models take."""
    shape = (rng.randint(1, 6) if rows is None else rows, columns)
    dtype = rng.choice((F32, F32, F32, np.float64, np.int32, I64))
    return (3 * arrays.standard_normal(shape)).astype(dtype)


LETTERS = "abAB  ,,;é\u0301\u00df\u03a3\u0130😀\0"


def _texts(rng: random.Random, count: int) -> Array:
    """Return texts of few letters, so that some are equal."""
    array = np.empty(count, object)
    array[:] = ["".join(rng.choices(LETTERS, k=rng.choice((0, 1, 2, 8, 40)))) for _ in range(count)]
    return array


@operator
def joined_texts(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Pairs of texts, broadcast."""
    rows, columns = rng.randint(0, 4), rng.randint(1, 4)
    x, z = _texts(rng, rows * columns).reshape(rows, columns), _texts(rng, columns)
    return Call(rng.choice(("StringConcat", "Equal")), [x, z], known=frozenset(rng.choice(((), (1,)))))


@operator
def split_texts(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Parts of texts: onnxruntime finds none in an empty text, and leaves space at the end out of the last part."""
    x = _texts(rng, rng.randint(1, 6))
    x[:] = [text.strip() or "b" for text in x]
    attrs = {"delimiter": rng.choice((None, "", ",", ", ", "é", "a")), "maxsplit": rng.choice((None, 0, 1, 3))}
    return Call("StringSplit", [x], attrs, outputs=2)


@operator
def normalized_texts(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Texts in another case, of letters that every locale has, without stop words."""
    x = np.array(["".join(rng.choices("abAB ,;", k=rng.randint(0, 3))) for _ in range(rng.randint(1, 6))], object)
    attrs = {
        "case_change_action": rng.choice(("NONE", "LOWER", "UPPER")), "is_case_sensitive": rng.randint(0, 1),
        "stopwords": rng.choice((None, x[:2].tolist(), ["a", "AB"])), "locale": "C.UTF-8",
    }  # fmt: skip
    return Call("StringNormalizer", [x], attrs)


@operator
def labelled_texts(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Labels of texts."""
    x = _texts(rng, rng.randint(1, 6))
    keys = [*dict.fromkeys([*x[:3].tolist(), "a", ""])]
    attrs = {"keys_strings": keys, "values_int64s": [*range(len(keys))], "default_int64": rng.choice((None, 7))}
    return Call("LabelEncoder", [x], attrs, ML, 4)


@operator
def matched_texts(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Texts that match an expression from end to end."""
    patterns = ("[a-z]*", ".*", r"(\w|,)*", "a.*b?", r"[^é]*,?", r"(A|^)\W{0,3}.*$", r"\b.*")
    return Call("RegexFullMatch", [_texts(rng, rng.randint(1, 6))], {"pattern": rng.choice(patterns)})


@operator
def windows(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Windows of every length."""
    size = np.array(rng.randint(1, 40), rng.choice((np.int32, I64)))
    attrs = {"periodic": rng.choice((None, 0, 1)), "output_datatype": rng.choice((None, 1, 11))}
    op = rng.choice(("BlackmanWindow", "HammingWindow", "HannWindow"))
    return Call(op, [size], attrs, opset=17, known=frozenset(rng.choice(((), (0,)))))


@operator
def center_crop_pad(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Crops and pads of any axes."""
    shape = [rng.randint(1, 7) for _ in range(rng.randint(1, 4))]
    axes = rng.choice((None, rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
    wanted = np.array([rng.randint(1, 9) for _ in axes or shape], rng.choice((np.int32, I64)))
    shifted = None if axes is None else [a - len(shape) if rng.random() < 0.3 else a for a in axes]
    return Call("CenterCropPad", [_reals(arrays, *shape), wanted], {"axes": shifted}, opset=18)


@operator
def dft(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Transforms along any axis, of other lengths than there are."""
    inverse, onesided = rng.choice(((0, 0), (0, 0), (1, 0), (0, 1), (1, 1)))
    rank, late = rng.randint(2, 4), rng.random() < 0.7
    parts = 2 if inverse and onesided else 1 if onesided else rng.choice((1, 2))
    shape = [rng.choice((1, 2, 3, 5, 6, 8, 12)) for _ in range(rank - 1)]
    axis = rng.randrange(rank - 1)
    length = None if rng.random() < 0.6 else np.array(rng.randint(1, 14), I64)
    if inverse and onesided:
        shape[axis] = max(shape[axis], 3)
        if length is not None:  # onnxruntime takes other numbers of bins than half of it otherwise than ONNX and numpy
            length = np.array(2 * (shape[axis] - 1) + rng.randint(0, 1), I64)
    operands = [_reals(arrays, *shape, parts), length]
    attrs = {"inverse": inverse, "onesided": onesided}
    if late:
        operands.append(np.array(axis - rng.choice((0, rank)), I64))
    else:
        attrs["axis"] = axis
    known = frozenset(rng.choice(((1, 2), (1, 2), (2,), ())))
    return Call("DFT", operands, attrs, opset=20 if late else 17, known=known)


@operator
def stft(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Transforms of frames, with windows or without."""
    n, step, onesided = rng.choice((4, 8, 9, 16)), rng.randint(1, 8), rng.choice((None, 0, 1))
    x = _reals(arrays, rng.randint(1, 3), n + rng.randint(0, 40), 2 if onesided == 0 and rng.random() < 0.5 else 1)
    window = _reals(arrays, n) if rng.random() < 0.6 else None
    length = np.array(n, I64) if window is None or rng.random() < 0.5 else None
    known = frozenset(rng.choice(((1, 3), (1, 2, 3), (3,), ())))
    return Call("STFT", [x, np.array(step, I64), window, length], {"onesided": onesided}, opset=17, known=known)


@operator
def mel_weight_matrix(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Filters of few and many bands."""
    rate = rng.choice((8000, 16000, 22050))
    integers = [np.array(n, rng.choice((np.int32, I64))) for n in (rng.randint(1, 20), rng.choice((16, 64, 256)), rate)]
    ends = [np.array(v, F32) for v in (rng.choice((0.0, 20.0, 133.5)), rng.choice((0.25, 0.5)) * rate)]
    dtype = integers[0].dtype
    return Call(
        "MelWeightMatrix", [*(n.astype(dtype) for n in integers), *ends],
        {"output_datatype": rng.choice((None, 1, 11))}, opset=17, known=frozenset(rng.choice(((), range(5)))),
    )  # fmt: skip


@operator
def loss(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Losses of classes, weighted, reduced, and with classes that do not count."""
    classes, behind = rng.randint(1, 6), [rng.randint(1, 4) for _ in range(rng.randint(0, 3))]
    batch = rng.randint(1, 4)
    scores = _reals(arrays, batch, classes, *behind)
    target = arrays.integers(0, classes, (batch, *behind)).astype(rng.choice((np.int32, I64)))
    weight = np.abs(_reals(arrays, classes)) + F32(0.1) if rng.random() < 0.5 else None
    attrs = {"reduction": rng.choice((None, "none", "sum", "mean")), "ignore_index": rng.choice((None, None, 0, -1))}
    if attrs["ignore_index"] == -1:
        target[arrays.random(target.shape) < 0.3] = -1
    if rng.random() < 0.5:
        return Call("NegativeLogLikelihoodLoss", [scores, target, weight], attrs, opset=13)
    return Call("SoftmaxCrossEntropyLoss", [scores, target, weight], attrs, opset=13, outputs=rng.choice((1, 2)))


@operator
def array_feature_extractor(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Columns of a table."""
    columns = rng.randint(1, 6)
    x = _features(rng, arrays, columns)
    if rng.random() < 0.2:
        x = x[0]
    places = arrays.integers(0, columns, (1, rng.randint(1, 5))).astype(I64)
    return Call("ArrayFeatureExtractor", [x, places], domain=ML, opset=1, known=frozenset(rng.choice(((), (1,)))))


@operator
def binarizer(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Comparisons with a threshold."""
    x = _reals(arrays, *(rng.randint(1, 4) for _ in range(rng.randint(1, 3))))
    return Call("Binarizer", [x], {"threshold": rng.choice((None, 0.0, 0.5, -1.0))}, ML, 1)


@operator
def dict_vectorizer(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Maps with keys that are in the vocabulary, and others."""
    if rng.random() < 0.5:
        words = ["a", "b", "c", "d"]
        given = {w: float(v) for w, v in zip(rng.sample([*words, "e"], 3), _floats(arrays, 3), strict=True)}
        return Call("DictVectorizer", [given], {"string_vocabulary": words}, ML, 1)
    numbers = dict(zip(rng.sample(range(7), 3), _floats(arrays, 3), strict=True))
    return Call("DictVectorizer", [numbers], {"int64_vocabulary": [5, 1, 3, 0]}, ML, 1)


@operator
def feature_vectorizer(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Tables side by side."""
    rows, widths = rng.randint(1, 4), [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
    dtype = rng.choice((F32, np.float64, np.int32, I64))
    tables = [(3 * arrays.standard_normal((rows, n))).astype(dtype) for n in widths]
    return Call("FeatureVectorizer", tables, {"inputdimensions": widths}, ML, 1)


@operator
def imputer(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Missing values, which are NaN or a number."""
    columns = rng.randint(1, 5)
    count = rng.choice((1, columns))
    if rng.random() < 0.3:
        x = arrays.integers(0, 4, (rng.randint(1, 4), columns)).astype(I64)
        given = [int(v) for v in arrays.integers(10, 20, count)]
        return Call("Imputer", [x], {"imputed_value_int64s": given, "replaced_value_int64": 2}, ML, 1)
    x = np.round(_reals(arrays, rng.randint(1, 4), columns), 0)
    missing = rng.choice((float("nan"), 1.0, None))
    if missing is not None and np.isnan(missing):
        x[arrays.random(x.shape) < 0.4] = np.nan
    return Call(
        "Imputer", [x.astype(F32)], {"imputed_value_floats": _floats(arrays, count), "replaced_value_float": missing},
        ML, 1,
    )  # fmt: skip


TRANSFORMS = (None, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@operator
def linear_classifier(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Two and more classes, with integer and text labels."""
    columns, classes = rng.randint(1, 5), rng.randint(2, 4)
    single = classes == 2 and rng.random() < 0.4
    scores = 1 if single else classes
    labels: dict[str, Any] = {"classlabels_ints": rng.sample(range(-3, 9), classes)}
    if rng.random() < 0.3:
        labels = {"classlabels_strings": [f"c{i}" for i in range(classes)]}
    transform = rng.choice(TRANSFORMS[:-1])
    attrs = {
        "coefficients": _floats(arrays, scores * columns), "post_transform": transform,
        "intercepts": _floats(arrays, scores) if rng.random() < 0.8 else None,
        "multi_class": rng.choice((None, 0, 1)), **labels,
    }  # fmt: skip
    return Call("LinearClassifier", [_features(rng, arrays, columns)], attrs, ML, 1, outputs=2)


@operator
def linear_regressor(rng: random.Random, arrays: np.random.Generator) -> Call:
    """One and several targets."""
    columns, targets = rng.randint(1, 5), rng.randint(1, 3)
    attrs = {
        "coefficients": _floats(arrays, targets * columns), "targets": targets,
        "intercepts": _floats(arrays, targets) if rng.random() < 0.8 else None,
        "post_transform": rng.choice(TRANSFORMS[:-1]),
    }  # fmt: skip
    return Call("LinearRegressor", [_reals(arrays, rng.randint(1, 6), columns)], attrs, ML, 1)


@operator
def normalizer(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Every norm, also of rows of zeros."""
    x = _features(rng, arrays, rng.randint(1, 5))
    if rng.random() < 0.3:
        x[0] = 0
    if rng.random() < 0.2:
        x = x[0]
    return Call("Normalizer", [x], {"norm": rng.choice((None, "MAX", "L1", "L2"))}, ML, 1)


@operator
def svm_regressor(rng: random.Random, arrays: np.random.Generator) -> Call:
    """Every kernel; without support vectors it is linear."""
    columns, kernel = rng.randint(1, 4), rng.choice((None, "LINEAR", "POLY", "RBF", "SIGMOID"))
    count = rng.randint(1, 5)
    params = [abs(v) for v in _floats(arrays, 1)] + _floats(arrays, 1) + [float(rng.randint(1, 3))]
    attrs = {
        "coefficients": _floats(arrays, count), "kernel_type": kernel, "n_supports": count,
        "support_vectors": _floats(arrays, count * columns), "rho": _floats(arrays, 1),
        "kernel_params": params if kernel not in (None, "LINEAR") or rng.random() < 0.5 else None,
        "one_class": rng.choice((None, 0, 1)), "post_transform": rng.choice((None, "NONE", "LOGISTIC")),
    }  # fmt: skip
    if rng.random() < 0.2:
        attrs |= {
            "n_supports": 0,
            "support_vectors": None,
            "coefficients": _floats(arrays, columns),
            "kernel_type": None,
        }
    return Call("SVMRegressor", [_reals(arrays, rng.randint(1, 6), columns)], attrs, ML, 1, close=1e-4)


@operator
def scaler(rng: random.Random, arrays: np.random.Generator) -> Call:
    """One factor for all columns, or one for each."""
    columns = rng.randint(1, 5)
    offset, scale = (_floats(arrays, rng.choice((1, columns))) for _ in range(2))
    if len(offset) != len(scale):
        scale = _floats(arrays, len(offset))
    return Call("Scaler", [_features(rng, arrays, columns)], {"offset": offset, "scale": scale}, ML, 1)


def case(seed: int) -> Call:
    """Return the call of a seed."""
    rng, arrays = generators("operators", seed)
    return MAKERS[seed % len(MAKERS)](rng, arrays)


def check(seed: int) -> Counter[str]:
    """Compare the results of a call on the C target and on the host with onnxruntime's.

    Raises:
        WrongError: If they differ, or are an error where onnxruntime gives results.
    """
    call = case(seed)
    model = call.model()
    try:
        wanted = by_onnxruntime(model, call.feeds)
    except RefusedError:
        return Counter({f"onnxruntime refuses {call.op}": 1})
    for target in ("c", "host"):
        try:
            found = tinycomp.compile(model, target, threads=1).run(call.feeds)
        except TinycompError as error:
            if "Install google-re2" in str(error) and importlib.util.find_spec("re2") is None:
                return Counter({f"{call.op} needs re2": 1})
            raise WrongError(
                f"{call.op} on {target}: onnxruntime gives results, but {error}\n{described(call)}"
            ) from error
        for name, value in wanted.items():
            compare(found[name], value, call, f"{call.op} on {target}: {name}")
    return Counter({call.op: 1})


def compare(found: Any, wanted: Any, call: Call, what: str) -> None:
    """Say where results differ.

    Raises:
        WrongError: If they do.
    """
    a, b = np.asarray(found), np.asarray(wanted)
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind or (a.dtype.kind == "f" and a.dtype != b.dtype):
        raise WrongError(f"{what}: {a.dtype}{a.shape}, onnxruntime {b.dtype}{b.shape}\n{described(call)}")
    if a.dtype.kind != "f":
        same = bool((a == b).all())
    else:
        finite = np.abs(b[np.isfinite(b)])
        same = np.allclose(a, b, rtol=1e-4, atol=call.close * max(float(finite.max(initial=0.0)), 1e-2), equal_nan=True)
    if not same:
        raise WrongError(f"{what}: {a.tolist()}, onnxruntime {b.tolist()}\n{described(call)}")


def described(call: Call) -> str:
    """Return a call as text."""
    operands = ", ".join("absent" if x is None else str(getattr(x, "tolist", lambda x=x: x)()) for x in call.operands)
    return f"{call.op}-{call.opset} {call.attrs} ({operands[:2000]}), constants {sorted(call.known)}"


def save(seed: int, folder: Path, stem: str) -> None:
    """Write the model of a seed."""
    (folder / f"{stem}.onnx").write_bytes(case(seed).model().SerializeToString())


HARNESS = Harness("operators", check, save)
