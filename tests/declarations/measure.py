"""One node test in one way: what came of it."""

from __future__ import annotations

import contextlib
import functools
import pickle
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

import tinycomp
from tests.declarations.ways import TARGETS, WAYS
from tinycomp.errors import TinycompError

KINDS = ("right", "refused", "wrong", "internal")
SECONDS = 60.0
_CACHE = Path(__file__).resolve().parents[2] / "build" / f"node-tests-{onnx.__version__}.pickle"
INTERNAL = r"code generator failed|internal error"
"""What an error says that is one of ours, whatever its class."""


class Outcome(NamedTuple):
    """What came of a test.

    Attributes:
        kind: One of :data:`KINDS`: the right results; an error that says what cannot be; other results; another error.
        text: The error, or how results differ; empty if they are right.
    """

    kind: str
    text: str = ""


class Case(NamedTuple):
    """A node test.

    Attributes:
        name: As in ONNX.
        model: What is computed.
        feeds: The inputs in order.
        wanted: The results in order.
        rtol: What they may differ by, relatively.
        atol: What they may differ by, absolutely.
    """

    name: str
    model: onnx.ModelProto
    feeds: list[Any]
    wanted: list[Any]
    rtol: float
    atol: float

    def has(self, op: str) -> bool:
        """Tell whether the test is one of an operator, expanded or not."""
        return any(n.op_type == op for n in self.model.graph.node) or f"_{op.lower()}" in self.name


@functools.cache
def node_tests() -> tuple[Case, ...]:
    """Return ONNX's node tests; making their results takes a while, so they are kept in a file under ``build``."""
    with contextlib.suppress(FileNotFoundError, EOFError):
        return tuple(Case(n, onnx.ModelProto.FromString(m), *rest) for n, m, *rest in pickle.loads(_CACHE.read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    rows = [
        (c.name, c.model.SerializeToString(), [*map(_array, c.data_sets[0][0])], [*map(_array, c.data_sets[0][1])],
         c.rtol, c.atol)
        for c in found if c.model is not None and c.data_sets
    ]  # fmt: skip
    _CACHE.parent.mkdir(exist_ok=True)
    _CACHE.write_bytes(pickle.dumps(rows))
    return tuple(Case(n, onnx.ModelProto.FromString(m), *rest) for n, m, *rest in rows)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, np.generic):
        return np.asarray(value)
    return value


def measure(case: Case, way: str, target: str) -> Outcome | None:
    """Run a test in a way; None if it is not right as it stands."""
    found = _measure(case, way, target)
    if found.kind != "right" and (way == "as-they-are" or _measure(case, "as-they-are", target).kind != "right"):
        return None
    return found


def _measure(case: Case, way: str, target: str) -> Outcome:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    WAYS[way](model)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            module = tinycomp.compile(model, TARGETS[target], threads=1)
            feeds = dict(zip([i.name for i in case.model.graph.input], case.feeds, strict=False))
            results = [*module.run(feeds).values()]
        except TinycompError as error:
            text = f"{type(error).__name__}: {error}".replace("\n", " | ")
            return Outcome("internal" if re.search(INTERNAL, text) else "refused", text)
        except Exception as error:
            return Outcome("internal", f"{type(error).__name__}: {error}".replace("\n", " | "))
    if len(results) != len(case.wanted):
        return Outcome("wrong", f"{len(results)} results instead of {len(case.wanted)}")
    texts = (difference(f, w, case.rtol, case.atol) for f, w in zip(results, case.wanted, strict=True))
    text = next(filter(None, texts), "")
    return Outcome("wrong" if text else "right", text)


def difference(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Return how a result differs from the right one in kind, dtype, shape or values; empty if it does not."""
    if wanted is None or found is None:
        return "" if wanted is found else f"{type(found).__name__} instead of {type(wanted).__name__}"
    if isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            return f"{len(found)} elements instead of {len(wanted)}"
        return next(filter(None, (difference(f, w, rtol, atol) for f, w in zip(found, wanted, strict=True))), "")
    if isinstance(wanted, dict):
        return "" if found == wanted else "another map"
    found, wanted = np.asarray(found), np.asarray(wanted)
    text = wanted.dtype.kind in "OUST"
    if found.shape != wanted.shape or (found.dtype != wanted.dtype and not (text and found.dtype.kind in "OUST")):
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if text or wanted.dtype.kind in "biu":
        count = int((found != wanted).sum())
    else:
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        same = np.isclose(found.astype(wide), wanted.astype(wide), rtol, max(atol, 1e-6), equal_nan=True)
        count = int((~same).sum())
    return f"{count} of {wanted.size} elements differ" if count else ""
