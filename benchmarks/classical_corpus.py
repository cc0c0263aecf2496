"""A corpus of models of classical machine learning, as scikit-learn, LightGBM, XGBoost and CatBoost export them.

They are trained when asked for, on data sets inside scikit-learn, with fixed seeds and one thread; that takes seconds
at most. ``skl2onnx`` and ``onnxmltools`` convert them, CatBoost writes ONNX itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import onnx
import onnxmltools
import pandas
import skl2onnx
import xgboost
from onnxmltools.convert.common import data_types as ml_types
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
from sklearn import (
    calibration,
    cluster,
    compose,
    cross_decomposition,
    datasets,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

Array = np.ndarray[Any, Any]
BOTH = ("predict", "predict_proba")
OPSETS = {"": 21, "ai.onnx.ml": 3}


@dataclass(frozen=True)
class Trained:
    """Hold a model, rows for it, and what the library that trained it says of them.

    Attributes:
        model: The ONNX model.
        feeds: Arrays by the names of the inputs.
        wanted: One array per output of the model; None where the library has no name for it.
        booster: What LightGBM trained, for those who read that.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    wanted: tuple[Array | None, ...]
    booster: lightgbm.Booster | None = None


def table(name: str) -> tuple[Array, Array]:
    """Return rows in float32 and what is to be predicted of them.

    The numbers are those of float16: what lies halfway between two, where trees cut, is a float32 then.

    Args:
        name: ``iris``, ``wine``, ``breast_cancer``, ``digits`` or ``diabetes``; behind it, ``missing`` makes every
            eleventh number NaN, ``named`` gives classes their names, ``rounded`` makes integers of numbers.
    """
    base, *changes = name.split()
    bunch = getattr(datasets, f"load_{base}")()
    x, y = bunch.data.astype(np.float16).astype(np.float32), bunch.target
    if "missing" in changes:
        x = x.copy()
        x.reshape(-1)[::11] = np.nan
    if "rounded" in changes:
        x = np.floor(x)
    if "named" in changes:
        y = np.asarray(bunch.target_names, object)[y]
    return x, y


def mixed() -> tuple[pandas.DataFrame, Array]:
    """Return numbers with gaps, integers and texts about wines, and their makers."""
    x, y = table("wine")
    colours = np.array(["pale", "ruby", "deep", "black"], object)[np.digitize(x[:, 9], [3, 5, 8])]
    alcohol = x[:, 0].copy()
    alcohol[::7] = np.nan
    columns = {"alcohol": alcohol, "proline": x[:, 12], "colour": colours, "magnesium": x[:, 4].astype(np.int64) // 20}
    return pandas.DataFrame(columns), y


def lines() -> tuple[Array, Array]:
    """Return the lines of the descriptions of data sets, and which one each is of."""
    texts = [
        [line for line in getattr(datasets, f"load_{name}")().DESCR.splitlines() if len(line.split()) > 3]
        for name in ("iris", "wine", "breast_cancer", "diabetes")
    ]
    return np.concatenate([np.array(each, object) for each in texts]), np.repeat(
        np.arange(4), [len(each) for each in texts]
    )


def scikit(
    estimator: Any, data: str, results: Sequence[str] = ("predict",), dtype: Any = np.float32, zipmap: bool = False,
    **options: Any,
) -> Trained:  # fmt: skip
    """Train an estimator of scikit-learn on a table and convert it.

    Args:
        estimator: What to train.
        data: See :func:`table`.
        results: The methods of the estimator whose results the outputs are; an empty one is not compared.
        dtype: Of the rows, float32 or float64.
        zipmap: Whether probabilities are a dictionary per row.
        options: Of the converter, for this estimator.
    """
    x, y = table(data)
    x = x.astype(dtype)
    estimator.fit(x[::2], y[::2])
    x = x[1::2]
    kind = DoubleTensorType if dtype == np.float64 else FloatTensorType
    options |= {"zipmap": False} if "predict_proba" in results and not zipmap else {}
    model = skl2onnx.to_onnx(
        estimator, initial_types=[("x", kind([None, x.shape[1]]))], target_opset=OPSETS,
        options={id(estimator): options} if options else None,
    )  # fmt: skip
    return Trained(model, {"x": x}, predictions(estimator, results, x))


def predictions(estimator: Any, results: Sequence[str], x: Any) -> tuple[Array | None, ...]:
    """Return what some methods of an estimator say."""
    return tuple(np.asarray(getattr(estimator, name)(x)) if name else None for name in results)


def scaled(*steps: Any) -> Any:
    """Put a scaler before estimators."""
    return pipeline.make_pipeline(preprocessing.StandardScaler(), *steps)


def frame(estimator: Any, results: Sequence[str] = BOTH) -> Trained:
    """Train an estimator on columns of several types; every column is an input."""
    x, y = mixed()
    estimator.fit(x[::2], y[::2])
    x = x[1::2]
    kinds = {"f": FloatTensorType, "i": Int64TensorType}
    inputs = [(str(name), kinds.get(x[name].dtype.kind, StringTensorType)([None, 1])) for name in x.columns]
    model = skl2onnx.to_onnx(
        estimator, initial_types=inputs, target_opset=OPSETS, options={id(estimator): {"zipmap": False}}
    )
    feeds = {}
    for name in x.columns:
        column = x[name].to_numpy()
        feeds[str(name)] = (column if column.dtype.kind in "fi" else column.astype(object))[:, None]
    return Trained(model, feeds, predictions(estimator, results, x))


def texts(estimator: Any) -> Trained:
    """Train a classifier on lines of text."""
    x, y = lines()
    estimator.fit(x[::2], y[::2])
    x = x[1::2]
    model = skl2onnx.to_onnx(
        estimator, initial_types=[("x", StringTensorType([None, 1]))], target_opset=OPSETS,
        options={id(estimator): {"zipmap": False}, id(estimator[0]): {"locale": "C"}},
    )  # fmt: skip
    return Trained(model, {"x": x[:, None]}, predictions(estimator, BOTH, x))


def boosted(estimator: Any, data: str, zipmap: bool = False, **training: Any) -> Trained:
    """Train an estimator of LightGBM or XGBoost and convert it.

    Args:
        estimator: What to train.
        data: See :func:`table`.
        zipmap: Whether probabilities of LightGBM's classes are a dictionary per row.
        training: Arguments for the training.
    """
    x, y = table(data)
    estimator.fit(x[::2], y[::2], **training)
    x = x[1::2]
    results = BOTH if hasattr(estimator, "predict_proba") else BOTH[:1]
    types = [("x", ml_types.FloatTensorType([None, x.shape[1]]))]
    if isinstance(estimator, lightgbm.LGBMModel):
        model = onnxmltools.convert_lightgbm(estimator, initial_types=types, target_opset=15, zipmap=zipmap)
        return Trained(model, {"x": x}, predictions(estimator, results, x), estimator.booster_)
    model = onnxmltools.convert_xgboost(estimator, initial_types=types, target_opset=15)
    return Trained(model, {"x": x}, predictions(estimator, results, x))


def large(count: int) -> Trained:
    """Train trees of 31 leaves, LightGBM's default, on 20,000 rows of 20 features."""
    x, y = datasets.make_regression(20_000, 20, random_state=0, noise=5)
    x = x.astype(np.float16).astype(np.float32)
    estimator = lightgbm.LGBMRegressor(n_estimators=count, n_jobs=1, verbose=-1, deterministic=True).fit(x, y)
    types = [("x", ml_types.FloatTensorType([None, 20]))]
    model = onnxmltools.convert_lightgbm(estimator, initial_types=types, target_opset=15)
    return Trained(model, {"x": x}, predictions(estimator, BOTH[:1], x), estimator.booster_)


def cat(estimator: Any, data: str) -> Trained:
    """Train an estimator of CatBoost and let it write ONNX."""
    x, y = table(data)
    estimator.fit(x[::2], y[::2])
    x = x[1::2]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        estimator.save_model(str(file), format="onnx")
        model = onnx.load(file)
    results = BOTH if hasattr(estimator, "predict_proba") else BOTH[:1]
    return Trained(model, {model.graph.input[0].name: x}, predictions(estimator, results, x))


def _light(kind: str, **options: Any) -> Any:
    return getattr(lightgbm, kind)(n_estimators=30, n_jobs=1, verbose=-1, deterministic=True, **options)


def _extreme(kind: str, **options: Any) -> Any:
    return getattr(xgboost, kind)(n_estimators=30, n_jobs=1, **options)


def _cat(kind: str, **options: Any) -> Any:
    return getattr(catboost, kind)(
        iterations=30, thread_count=1, random_seed=0, verbose=False, allow_writing_files=False, **options
    )


def _columns(*, categories: Any) -> Any:
    numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    return compose.ColumnTransformer(
        [("numbers", numbers, ["alcohol", "proline"]), ("texts", categories, ["colour"]),
         ("integers", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["magnesium"])]
    )  # fmt: skip


def _svc(**options: Any) -> Any:
    return svm.SVC(probability=True, random_state=0, **options)


MODELS: Mapping[str, Callable[[], Trained]] = {
    # Linear models
    "logistic regression of two classes": lambda: scikit(
        scaled(linear_model.LogisticRegression()), "breast_cancer", BOTH
    ),
    "logistic regression of names": lambda: scikit(scaled(linear_model.LogisticRegression()), "wine named", BOTH),
    "one logistic regression against the rest": lambda: scikit(
        multiclass.OneVsRestClassifier(linear_model.LogisticRegression(max_iter=5000)), "iris", BOTH
    ),
    "stochastic gradient descent": lambda: scikit(
        scaled(linear_model.SGDClassifier(loss="log_loss", random_state=0)), "wine", BOTH
    ),
    "ridge classifier": lambda: scikit(linear_model.RidgeClassifier(), "wine", ("predict", "decision_function")),
    "linear support vectors": lambda: scikit(
        svm.LinearSVC(random_state=0), "iris", ("predict", "decision_function")
    ),
    "linear discriminants": lambda: scikit(
        discriminant_analysis.LinearDiscriminantAnalysis(), "digits", BOTH, zipmap=True
    ),
    "quadratic discriminants": lambda: scikit(
        discriminant_analysis.QuadraticDiscriminantAnalysis(), "iris", BOTH
    ),
    "elastic net": lambda: scikit(linear_model.ElasticNet(alpha=0.01), "diabetes"),
    "Poisson regression": lambda: scikit(linear_model.PoissonRegressor(max_iter=1000), "diabetes"),
    "partial least squares": lambda: scikit(cross_decomposition.PLSRegression(3), "diabetes"),
    "polynomial ridge": lambda: scikit(
        pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()), "diabetes"
    ),
    # Naive Bayes
    "Gaussian Bayes": lambda: scikit(naive_bayes.GaussianNB(), "iris", BOTH),
    "Bernoulli Bayes": lambda: scikit(naive_bayes.BernoulliNB(binarize=7.0), "digits", BOTH),
    "categorical Bayes": lambda: scikit(
        pipeline.make_pipeline(
            preprocessing.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
            naive_bayes.CategoricalNB(min_categories=4),
        ), "iris", BOTH,
    ),
    # Neighbours and kernels
    "nearest neighbours": lambda: scikit(neighbors.KNeighborsClassifier(), "iris", BOTH),
    "nearest neighbours by Manhattan distance": lambda: scikit(
        neighbors.KNeighborsRegressor(7, metric="manhattan"), "diabetes"
    ),
    "nearest neighbours by CDist": lambda: scikit(
        neighbors.KNeighborsClassifier(9), "breast_cancer", BOTH, optim="cdist"
    ),
    "neighbours in a radius": lambda: scikit(neighbors.RadiusNeighborsClassifier(2.0), "iris", BOTH),
    "local outliers": lambda: scikit(
        neighbors.LocalOutlierFactor(novelty=True), "iris", ("predict", "decision_function")
    ),
    "Gaussian process": lambda: scikit(
        gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF(30.0), alpha=0.1, random_state=0),
        "iris", dtype=np.float64,
    ),
    # Support vectors
    "support vectors of two classes with probabilities": lambda: scikit(scaled(_svc()), "breast_cancer", BOTH),
    "support vectors of three classes with probabilities": lambda: scikit(
        scaled(_svc(kernel="poly", coef0=1.0)), "wine named", BOTH, zipmap=True
    ),
    "support vectors of ten classes with probabilities": lambda: scikit(_svc(gamma=0.001), "digits", BOTH),
    "support vectors without probabilities": lambda: scikit(
        scaled(svm.SVC(kernel="sigmoid", gamma=0.05)), "wine", ("predict", "decision_function"), zipmap=False
    ),
    "support vector regression": lambda: scikit(svm.SVR(C=100.0), "diabetes"),
    "one class of support vectors": lambda: scikit(
        scaled(svm.OneClassSVM(nu=0.1)), "wine", ("predict", "decision_function")
    ),
    # Trees
    "decision tree": lambda: scikit(tree.DecisionTreeClassifier(random_state=0), "digits", BOTH),
    "random forest": lambda: scikit(
        ensemble.RandomForestClassifier(50, random_state=0), "wine named", BOTH, zipmap=True
    ),
    "random forest in double": lambda: scikit(
        ensemble.RandomForestClassifier(50, random_state=0), "breast_cancer", BOTH, dtype=np.float64
    ),
    "extra trees": lambda: scikit(ensemble.ExtraTreesClassifier(50, random_state=0), "digits", BOTH),
    "gradient boosting of two classes": lambda: scikit(
        ensemble.GradientBoostingClassifier(random_state=0), "breast_cancer", BOTH
    ),
    "gradient boosting of three classes": lambda: scikit(
        ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0), "iris", BOTH
    ),
    "gradient boosting regression": lambda: scikit(ensemble.GradientBoostingRegressor(random_state=0), "diabetes"),
    "AdaBoost": lambda: scikit(ensemble.AdaBoostClassifier(n_estimators=20, random_state=0), "iris", BOTH),
    "isolation forest": lambda: scikit(
        ensemble.IsolationForest(n_estimators=30, random_state=0), "iris", ("predict", "decision_function")
    ),
    # Combinations
    "bagging": lambda: scikit(
        ensemble.BaggingClassifier(tree.DecisionTreeClassifier(max_depth=4), random_state=0), "wine", BOTH
    ),
    "vote": lambda: scikit(
        ensemble.VotingClassifier(
            [("linear", scaled(linear_model.LogisticRegression())), ("bayes", naive_bayes.GaussianNB())],
            voting="soft", flatten_transform=False,
        ), "wine", BOTH,
    ),
    "stack": lambda: scikit(
        ensemble.StackingRegressor(
            [("ridge", linear_model.Ridge()), ("tree", tree.DecisionTreeRegressor(max_depth=4, random_state=0))]
        ), "diabetes",
    ),
    "calibrated support vectors": lambda: scikit(
        calibration.CalibratedClassifierCV(svm.LinearSVC(random_state=0), cv=3), "iris", BOTH
    ),
    "several targets": lambda: scikit(
        multioutput.MultiOutputRegressor(ensemble.GradientBoostingRegressor(n_estimators=5, random_state=0)), "linnerud"
    ),
    # Networks, clusters, components
    "multilayer perceptron": lambda: scikit(
        scaled(neural_network.MLPClassifier((32, 16), max_iter=60, random_state=0)), "digits", BOTH
    ),
    "k-means": lambda: scikit(
        cluster.KMeans(5, random_state=0, n_init=2), "iris", ("predict", "transform")
    ),
    "Gaussian mixture": lambda: scikit(mixture.GaussianMixture(3, random_state=0), "iris", BOTH, zipmap=True),
    "principal components and discriminants": lambda: scikit(
        scaled(decomposition.PCA(5), linear_model.LogisticRegression()), "wine", BOTH
    ),
    "selected and transformed features": lambda: scikit(
        pipeline.make_pipeline(
            feature_selection.SelectKBest(k=6), preprocessing.RobustScaler(), preprocessing.PowerTransformer(),
            preprocessing.Normalizer(),
        ), "wine", ("transform",),
    ),
    # Columns and texts
    "columns of numbers and texts": lambda: frame(
        pipeline.make_pipeline(
            _columns(categories=preprocessing.OneHotEncoder(handle_unknown="ignore")),
            linear_model.LogisticRegression(max_iter=500),
        )
    ),
    "columns of numbers and codes": lambda: frame(
        pipeline.make_pipeline(
            _columns(categories=preprocessing.OrdinalEncoder()), ensemble.RandomForestClassifier(20, random_state=0)
        )
    ),
    "words of texts": lambda: texts(
        pipeline.make_pipeline(
            feature_extraction.text.TfidfVectorizer(token_pattern="[a-zA-Z]+"), linear_model.LogisticRegression()
        )
    ),
    "pairs of words": lambda: texts(
        pipeline.make_pipeline(
            feature_extraction.text.CountVectorizer(ngram_range=(1, 2), token_pattern="[a-zA-Z]+"),
            naive_bayes.MultinomialNB(),
        )
    ),
    # Other libraries
    "LightGBM of two classes": lambda: boosted(_light("LGBMClassifier"), "breast_cancer", zipmap=True),
    "LightGBM of three classes": lambda: boosted(_light("LGBMClassifier"), "wine missing"),
    "LightGBM regression": lambda: boosted(_light("LGBMRegressor"), "diabetes missing"),
    "LightGBM of categories": lambda: boosted(
        _light("LGBMRegressor", min_child_samples=3), "wine rounded", categorical_feature=[4, 12]
    ),
    "LightGBM with dropped trees": lambda: boosted(
        _light("LGBMRegressor", boosting_type="dart", drop_seed=0, objective="poisson"), "diabetes"
    ),
    "XGBoost of two classes": lambda: boosted(_extreme("XGBClassifier"), "breast_cancer missing"),
    "XGBoost of three classes": lambda: boosted(_extreme("XGBClassifier"), "wine"),
    "XGBoost regression": lambda: boosted(_extreme("XGBRegressor"), "diabetes missing"),
    "XGBoost of counts": lambda: boosted(_extreme("XGBRegressor", objective="count:poisson"), "diabetes"),
    "XGBoost of gamma distributions": lambda: boosted(_extreme("XGBRegressor", objective="reg:gamma"), "diabetes"),
    "XGBoost of ten classes": lambda: boosted(_extreme("XGBClassifier", max_depth=3), "digits"),
    "CatBoost of two classes": lambda: cat(_cat("CatBoostClassifier"), "breast_cancer"),
    "CatBoost of three classes": lambda: cat(_cat("CatBoostClassifier"), "wine"),
    "CatBoost regression": lambda: cat(_cat("CatBoostRegressor"), "diabetes missing"),
}  # fmt: skip
"""What trains and converts each model."""
LARGE: Mapping[str, Callable[[], Trained]] = {
    "LightGBM of 100 trees": lambda: large(100),
    "LightGBM of 1,000 trees": lambda: large(1000),
}
"""The same of models that only speed is measured of."""
ONNXRUNTIME_FAILS = frozenset({"neighbours in a radius"})
"""onnxruntime takes no negative index there."""
