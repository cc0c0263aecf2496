"""Arrays and tensors of others, fed and bound: the right result, or an error that says where."""

from __future__ import annotations

import array
import mmap
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinycomp
from tests.arrays import read_only, unaligned
from tinycomp.errors import FeedError
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types

GRAPH = """graph @g opset {"" = 17} (%x: float32[N, 4]) -> (%y) {
  %a: float32[N, 4] = Mul(%x, %x)
  %y: float32[N, 4] = Neg(%a)
}"""
X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


class Subclass(np.ndarray):
    pass


class Exporting:
    """What has its memory elsewhere: ``name`` is how it tells."""

    def __init__(self, *names: str) -> None:
        values = X.copy()
        for name in names:
            setattr(
                type(self), name, lambda self, *args, _name=name, **options: getattr(values, _name)(*args, **options)
            )


def exporting(*names: str) -> Any:
    return type("Exporting", (Exporting,), {})(*names)


class Interface:
    def __init__(self) -> None:
        self.values = X.copy()
        self.__array_interface__ = self.values.__array_interface__


def mapped() -> np.ndarray:
    memory = mmap.mmap(-1, X.nbytes)
    memory.write(X.tobytes())
    return np.frombuffer(memory, np.float32).reshape(3, 4)


FINE: dict[str, Callable[[], Any]] = {
    "array": X.copy,
    "list": X.tolist,
    "tuple": lambda: tuple(map(tuple, X.tolist())),
    "list of arrays": lambda: [*X],
    "columns first": lambda: np.asfortranarray(X),
    "negative strides": lambda: X[::-1].copy()[::-1],
    "both negative": lambda: X[::-1, ::-1].copy()[::-1, ::-1],
    "every other": lambda: np.repeat(np.repeat(X, 2, 0), 3, 1)[::2, ::3],
    "overlapping": lambda: np.lib.stride_tricks.as_strided(np.arange(8, dtype=np.float32), (3, 4), (8, 4)),
    "repeated row": lambda: np.broadcast_to(X[0], (3, 4)),
    "misaligned": lambda: unaligned(X),
    "read-only": lambda: read_only(X),
    "other byte order": lambda: X.astype(">f4"),
    "unaligned, other byte order": lambda: unaligned(X.astype(">f4")),
    "mapped": mapped,
    "matrix": lambda: X.copy().view(np.matrix),
    "masked array without a mask": lambda: np.ma.array(X.copy()),
    "subclass": lambda: X.copy().view(Subclass),
    "record array": lambda: X.copy().view(np.recarray),
    "memoryview": lambda: memoryview(X.copy()),
    "memoryview, backwards": lambda: memoryview(X.copy()[::-1]),
    "no rows": lambda: X[:0],
    "__array__": lambda: exporting("__array__"),
    "DLPack": lambda: exporting("__dlpack__", "__dlpack_device__"),
    "__array_interface__": Interface,
}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: np.ma.array(X, mask=X > 0), "elements are masked; .*filled"),
    "float64": (lambda: X.astype(np.float64), "wrong dtype|does not fit"),
    "float16": (lambda: X.astype(np.float16), "wrong dtype|does not fit"),
    "bfloat16": (lambda: X.astype(ml_dtypes.bfloat16), "wrong dtype|does not fit"),
    "int": (lambda: X.astype(np.int32), "wrong dtype|does not fit"),
    "complex": (lambda: X.astype(np.complex64), "wrong dtype|does not fit"),
    "objects": (lambda: X.astype(object), "cannot be read|wrong dtype|does not fit"),
    "structured": (lambda: np.zeros((3, 4), [("mask", "f4")]), "wrong dtype|does not fit"),
    "void": (lambda: np.zeros((3, 4), "V4"), "wrong dtype|does not fit"),
    "texts": (lambda: np.full((3, 4), "a"), "wrong dtype|does not fit"),
    "times": (lambda: np.zeros((3, 4), "M8[s]"), "wrong dtype|does not fit"),
    "three columns": (lambda: X[:, :3], "wrong shape|does not fit"),
    "one dimension": (X.ravel, "wrong shape|does not fit"),
    "ragged": (lambda: [[1.0], [1.0, 2.0]], "cannot be read|wrong number|too many"),
    "bytes": (X.tobytes, "cannot be read|wrong|only arrays"),
    "array.array": (lambda: array.array("f", X.ravel()), "wrong|cannot be read|too many"),
    "a map": (lambda: {"a": X}, "Pass inputs by name|no input"),
    "None": (lambda: None, "cannot be read"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["c", "host"])
def module(request: pytest.FixtureRequest) -> tinycomp.Module:
    return tinycomp.compile(parse_graph(GRAPH, infer=infer_node_types), request.param)


@pytest.mark.parametrize("kind", FINE)
def test_fed(module: tinycomp.Module, kind: str) -> None:
    value = FINE[kind]()
    known = np.from_dlpack(value) if kind == "DLPack" else np.asarray(value)
    expected = -np.square(np.asarray(known, np.float32))
    results = [
        module(value),
        module(x=value),
        module.run({"x": value})["y"],
        module.run_async({"x": value}).result(20)["y"],
    ]
    for result in results:
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, expected)
    try:
        bound = module.bind({"x": value})
    except FeedError as error:
        assert "contiguous, aligned" in str(error) or "only arrays" in str(error) or "does not fit" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(bound(), expected)


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(module: tinycomp.Module, kind: str) -> None:
    make, message = REFUSED[kind]
    for call in (
        module,
        lambda x: module(x=x),
        lambda x: module.run({"x": x}),
        lambda x: module.run_async({"x": x}).result(20),
    ):
        with pytest.raises(FeedError, match=message):
            call(make())
    with pytest.raises(FeedError, match=f"{message}|only arrays can be bound"):
        module.bind({"x": make()})


@pytest.mark.parametrize("kind", [*FINE, *REFUSED])
@pytest.mark.parametrize("way", ["run", "bind"])
def test_results_go_where_they_are_wanted_or_it_is_said_why_not(module: tinycomp.Module, kind: str, way: str) -> None:
    target = FINE[kind]() if kind in FINE else REFUSED[kind][0]()
    if target is None:
        return
    try:
        if way == "run":
            found = module.run({"x": X}, outputs={"y": target})["y"]
        else:
            found = module.bind({"x": X}, {"y": target})()
    except FeedError as error:
        assert '"y"' in str(error)  # noqa: PT017
    else:
        assert found is target
        np.testing.assert_array_equal(np.asarray(target), -np.square(X))
