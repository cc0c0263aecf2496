"""What a code generator's callable is handed, and what becomes of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinycomp
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types

CHAIN = """graph @chain opset {"" = 17} (%x: float32[N, 4]) -> (%y) {
  %r: float32[N, 4] = Relu(%x) from ["relu"]
  %y: float32[N, 4] = Neg(%r) from ["neg"]
}"""
ALONE = """graph @alone opset {"" = 17} (%x: float32[2, 4]) -> (%r) {
  %r: float32[2, 4] = Relu(%x) from ["relu"]
}"""
PARTS = """graph @parts opset {"" = 17} (%x: float32[4, 4]) -> (%a, %b) {
  %a: float32[2, 4], %b: float32[2, 4] = Split(%x) {axis = 0} from ["split"]
}"""
LOOP = """graph @loop opset {"" = 17} (%x: float32[2, 4], %trips: int64[]) -> (%last, %all) {
  %go: bool[] = const true
  %last: float32[2, 4], %all: float32[?, 2, 4] = Loop(%trips, %go, %x) from ["loop"]
    body = graph @body (%i: int64[], %c: bool[], %s: float32[2, 4]) -> (%c, %n, %n) {
      %n: float32[2, 4] = Relu(%s) from ["relu"]
    }
}"""
X = np.array([[1, -2, 3, -4], [5, -6, 7, -8]], np.float32)
HINT = "The code generator's callable returns numpy arrays, one for each result of the region."


def module_of(text: str, call: Callable[..., Any], op: str = "Relu", **options: Any) -> tinycomp.Module:
    npu = tinycomp.Target("npu", **options)
    npu.accept(op)
    npu.codegen(lambda region: call)
    return tinycomp.compile(parse_graph(text, infer=infer_node_types), npu)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "the region's code returned no array; expected an array; found None"),
        ("text", "the region's code returned no array; expected an array; found an object of type str"),
        (1.0, "the region's code returned no array; expected an array; found an object of type float"),
        (iter([X]), "the region's code returned no array; expected an array; found an object of type list_iterator"),
        (
            [[1.0]],
            'the region\'s code returned no array for "r"; expected float32[2, 4]; found an object of type list',
        ),
        ([None], 'the region\'s code returned no array for "r"; expected float32[2, 4]; found None'),
        ([], "the region's code returned a wrong number of results; expected 1; found 0"),
        ((X, X), "the region's code returned a wrong number of results; expected 1; found 2"),
        (X[0], 'the region\'s code returned a wrong array for "r"; expected float32[2, 4]; found float32[4]'),
        (X[:, :3], 'the region\'s code returned a wrong array for "r"; expected float32[2, 4]; found float32[2, 3]'),
        (X[:1], 'the region\'s code returned a wrong array for "r"; expected float32[2, 4]; found float32[1, 4]'),
        (
            X.astype(np.float64),
            'the region\'s code returned a wrong array for "r"; expected float32[2, 4]; found float64[2, 4]',
        ),
        (X.astype(">f4"), 'the region\'s code returned a wrong array for "r"; expected float32[2, 4]; found >f4[2, 4]'),
    ],
)
@pytest.mark.parametrize("static_shapes", [False, True])
def test_what_is_no_result_is_blamed_on_the_region(returned: Any, problem: str, static_shapes: bool) -> None:
    module = module_of(CHAIN, lambda x: returned, static_shapes=static_shapes)
    with pytest.raises(TargetError) as raised:
        module(X)
    assert str(raised.value) == f"npu, region npu_0: {problem}. {HINT}"


def test_results_that_are_too_few_are_blamed_on_the_region() -> None:
    for returned, found in ((X, "1"), ([X], "1"), ([], "0")):
        with pytest.raises(TargetError, match=f"wrong number of results; expected 2; found {found}"):
            module_of(PARTS, lambda x, r=returned: r, "Split")(np.concatenate([X, X]))
    with pytest.raises(TargetError, match="code returned no array; expected a tuple of 2 arrays; found None"):
        module_of(PARTS, lambda x: None, "Split")(np.concatenate([X, X]))


def test_sizes_of_results_follow_those_of_the_operands() -> None:
    module = module_of(CHAIN, lambda x: np.maximum(x, 0)[: len(x) if len(x) < 3 else 2])
    for rows in (1, 2, 1):
        assert module(X[:rows]).shape == (rows, 4)
    with pytest.raises(TargetError, match=r"expected float32\[3, 4\]; found float32\[2, 4\]"):
        module(np.concatenate([X, X[:1]]))
    assert module(X).shape == (2, 4)


def test_a_numpy_scalar_is_a_result_of_rank_zero() -> None:
    text = 'graph @g opset {"" = 17} (%x: float32[]) -> (%y) { %y: float32[] = Relu(%x) from ["relu"] }'
    result = module_of(text, lambda x: np.maximum(x, np.float32(0)))(np.array(2, np.float32))
    assert isinstance(result, np.ndarray)
    assert result == 2


@pytest.mark.parametrize("text", [ALONE, CHAIN])
def test_operands_cannot_be_written(text: str) -> None:
    x = X.copy()
    module = module_of(text, lambda a: np.negative(a, out=a))
    with pytest.raises(ExecutionError, match=r"node npu_0 .*output array is read-only"):
        module(x)
    np.testing.assert_array_equal(x, X)
    module = module_of(CHAIN, lambda a: np.negative(a, out=a), "Neg")  # the result of another node
    with pytest.raises(ExecutionError, match=r"node npu_0 .*output array is read-only"):
        module(x)


def held(buffer: np.ndarray) -> dict[str, Callable[[np.ndarray], Any]]:
    """Return callables that compute a Relu into the same memory every time."""
    answers = [buffer]

    def returning(make: Callable[[], Any]) -> Callable[[np.ndarray], Any]:
        def call(x: np.ndarray) -> Any:
            np.maximum(x, 0, out=buffer)
            return make()

        return call

    flat = buffer.reshape(-1)
    return {
        "array": returning(lambda: buffer),
        "list": returning(lambda: answers),
        "new list": returning(lambda: [buffer]),
        "view": returning(lambda: buffer[:]),
        "view of a view": returning(lambda: flat.reshape(2, 4)),
        "foreign memory": returning(lambda: np.frombuffer(memoryview(buffer).cast("B"), np.float32).reshape(2, 4)),
    }


@pytest.mark.parametrize("way", held(np.empty((2, 4), np.float32)))
@pytest.mark.parametrize("text", [ALONE, CHAIN, LOOP])
def test_a_callable_may_use_its_results_again(text: str, way: str) -> None:
    module = module_of(text, held(np.empty((2, 4), np.float32))[way])
    trips = [np.array(2)] if text is LOOP else []
    first = module(X, *trips)
    kept = [np.copy(each) for each in (first if isinstance(first, tuple) else (first,))]
    module(X + 10, *trips)
    for result, before in zip(first if isinstance(first, tuple) else (first,), kept, strict=True):
        np.testing.assert_array_equal(result, before)


def test_what_is_fresh_is_not_copied() -> None:
    made: list[int] = []

    def fresh(x: np.ndarray) -> Any:
        result = np.maximum(x, 0)
        made.append(result.ctypes.data)
        return [result]

    result = module_of(ALONE, fresh)(X)
    assert result.ctypes.data == made[0]
    assert result.flags.writeable


def test_an_operand_handed_on_is_not_the_callers_array() -> None:
    x = X.copy()
    result = module_of(ALONE, lambda a: a)(x)
    result[...] = 0
    np.testing.assert_array_equal(x, X)


def test_sequences_are_lists_of_arrays() -> None:
    text = """graph @g opset {"" = 17} (%x: float32[2, 4]) -> (%n, %s) {
      %s: seq<float32[2, 4]> = SequenceConstruct(%x, %x) from ["construct"]
      %n: int64[] = SequenceLength(%s) from ["length"]
    }"""
    assert module_of(text, lambda x: [[x, x]], "SequenceConstruct")(X)[0] == 2
    with pytest.raises(TargetError, match=r'no array for "s"; expected seq<.*; found an object of type tuple'):
        module_of(text, lambda x: [(x, x)], "SequenceConstruct")(X)
    assert module_of(text, lambda s: np.int64(len(s)), "SequenceLength")(X)[0] == 2
