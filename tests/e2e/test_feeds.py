"""What a module takes: every form of array that means the same is right, everything else is named in the error."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.arrays import read_only, unaligned
from tests.targets.c.harness import make_model
from tinycomp.errors import FeedError
from tinycomp.runtime.spec import TensorSpec, check_feed

A = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
B = np.arange(3, dtype=np.int64)


@pytest.fixture(scope="module", params=["c", "host"])
def module(request):
    """``(relu(a) + 1, b + b)``: a float and an integer input, both of fixed shape."""
    nodes = [
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Add", ["r", "one"], ["y"]),
        helper.make_node("Add", ["b", "b"], ["z"]),
    ]
    return tinycomp.compile(make_model(nodes, {"a": A, "b": B}, {"one": np.float32([1])}, ["y", "z"]), request.param)


def assert_right(results, a=A, b=B):
    y, z = results
    np.testing.assert_array_equal(y, np.maximum(a, 0) + 1)
    np.testing.assert_array_equal(z, b + b)


def test_by_position_by_name_and_mixed(module):
    assert_right(module(A, B))
    assert_right(module(b=B, a=A))
    assert_right(module(A, b=B))
    assert_right(module.run({"b": B, "a": A}).values())
    assert list(module.run({"b": B, "a": A})) == ["y", "z"]


class Exchanged:
    """What a library hands out whose arrays know the exchange protocol alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


FORMS = {
    "fortran": np.asfortranarray,
    "non-contiguous": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "reversed": lambda x: x[..., ::-1].copy()[..., ::-1],
    "read-only": read_only,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "misaligned": unaligned,
    "nested lists": lambda x: x.tolist(),
    "tuple": lambda x: tuple(map(tuple, x.tolist())) if x.ndim > 1 else tuple(x.tolist()),
    "memoryview": memoryview,
    "dlpack": Exchanged,
    "subclass": lambda x: x.view(np.recarray),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_the_same_values(module, form):
    a, b = FORMS[form](A), FORMS[form](B)
    assert_right(module(a, b))


def test_what_was_handed_in_is_left_alone(module):
    a, b = A.copy(), B.copy()
    module(a, b)
    np.testing.assert_array_equal(a, A)
    np.testing.assert_array_equal(b, B)


def test_tensors_of_other_libraries(module):
    torch = pytest.importorskip("torch")
    assert_right(module(torch.from_numpy(A), torch.from_numpy(B)))
    with pytest.raises(FeedError, match=r'input "a": cannot be read as an array; .*found Tensor: .*\.detach\(\)'):
        module(torch.from_numpy(A).requires_grad_(), B)


def test_bfloat16_of_other_libraries():
    spec = TensorSpec("x", "bfloat16", (2, 3))
    with pytest.raises(FeedError) as error:
        check_feed(spec, A)
    assert str(error.value).endswith(
        "found float32. Convert it first, for instance with array.astype(ml_dtypes.bfloat16)."
    )
    assert check_feed(spec, A.astype(ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(A).bfloat16()
    with pytest.raises(FeedError, match=r"pass the bits, for PyTorch as tensor\.view\(torch\.int16\)\.numpy\(\)\."):
        check_feed(spec, tensor)
    bits = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(check_feed(spec, bits), A.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("args", "named", "text"),
    [
        ((A,), {}, 'input "b": input missing; expected a value for b: int64[3]. Pass every input, by'),
        ((), {}, 'input "a": input missing; expected a value for a: float32[2, 3], b: int64[3]'),
        ((A, B, A), {}, "too many inputs; expected 2: a, b; found 3"),
        ((A, B), {"c": A}, 'the model has no input "c"; expected one of a, b'),
        ((A, B), {"b": B}, 'input "b": given by position and by name. Pass it once.'),
        ((A.astype("f8"), B), {}, 'input "a": wrong dtype; expected a: float32[2, 3]; found float64. Convert it first'),
        ((A, B.astype("i4")), {}, 'input "b": wrong dtype; expected b: int64[3]; found int32'),
        ((A, B.astype("i1")), {}, 'found int8. Convert it first, for instance with array.astype("int64").'),
        ((A, A), {}, 'input "b": wrong dtype; expected b: int64[3]; found float32'),
        ((A[0], B), {}, 'input "a": wrong shape; expected a: float32[2, 3]; found shape (3,). A batch'),
        ((A.T, B), {}, 'input "a": wrong shape; expected a: float32[2, 3]; found shape (3, 2). Check the shape'),
        ((A[None], B), {}, "found shape (1, 2, 3)"),
        ((None, B), {}, 'input "a": cannot be read as an array; expected a: float32[2, 3]; found NoneType. Pass a'),
        (("text", B), {}, 'input "a": cannot be read as an array; expected a: float32[2, 3]; found str'),
        (({"a": A}, B), {}, "found dict. Pass inputs by name as module.run(feeds), or as module(**feeds)."),
        (([[1], [2, 3]], B), {}, 'input "a": cannot be read as an array; expected a: float32[2, 3]; found list'),
        ((object(), B), {}, 'input "a": cannot be read as an array; expected a: float32[2, 3]; found object. Pass a'),
        ((A, [1.5, 2, 3]), {}, 'input "b": wrong dtype; expected b: int64[3]; found numbers with a fraction.'),
        ((A, [2**70, 0, 0]), {}, 'input "b": cannot be read as an array'),
        ((np.full((2, 3), "x"), B), {}, 'input "a": wrong dtype'),
    ],
)  # fmt: skip
def test_errors_name_the_input(module, args, named, text):
    with pytest.raises(FeedError) as error:
        module(*args, **named)
    assert text in str(error.value)


def test_an_unknown_name_suggests_the_nearest():
    nodes = [helper.make_node("Relu", ["image"], ["y"])]
    module = tinycomp.compile(make_model(nodes, {"image": A}, {}, ["y"]))
    with pytest.raises(
        FeedError, match=r'the model has no input "imgae"; expected one of image\. Did you mean "image"'
    ):
        module.run({"imgae": A})


def test_inputs_with_defaults():
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"])]
    model = make_model(nodes, {"x": A, "scale": np.float32([2])}, {"scale": np.float32([3])}, ["y"])
    for target in ("c", "host"):
        module = tinycomp.compile(model, target)
        np.testing.assert_array_equal(module.defaults["scale"], [3])
        np.testing.assert_array_equal(module(A), A * 3)
        np.testing.assert_array_equal(module(A, np.float32([5])), A * 5)
        np.testing.assert_array_equal(module(A, scale=np.float32([7])), A * 7)
        with pytest.raises(FeedError, match='input "x": input missing; expected a value for x'):
            module(scale=np.float32([5]))
        np.testing.assert_array_equal(tinycomp.load(saved(module))(A), A * 3)


def saved(module):
    return module.__reduce__()[1][0]


def outputs_model(outputs):
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["y"], ["same"]),
        helper.make_node("Identity", ["x"], ["fed"]),
        helper.make_node("Identity", ["k"], ["constant"]),
        helper.make_node("Reshape", ["y", "flat"], ["view"]),
        helper.make_node("Reshape", ["x", "flat"], ["fed_view"]),
    ]
    constants = {"k": np.float32([1, 2]), "flat": np.array([-1])}
    return make_model(nodes, {"x": A}, constants, outputs)


@pytest.mark.parametrize("target", ["c", "host"])
@pytest.mark.parametrize("passes", [None, ""])
def test_results_are_the_callers_own(target, passes):
    """Writing into one result changes no other, no feed, and no later run."""
    names = ["y", "same", "fed", "constant", "view", "fed_view"]
    module = tinycomp.compile(outputs_model(names), target, passes=passes)
    feed = A.copy()
    first = module.run({"x": feed})
    expected = {name: value.copy() for name, value in first.items()}
    for name in names:
        for other in names:
            assert name == other or not np.shares_memory(first[name], first[other]), (name, other)
        assert not np.shares_memory(first[name], feed), name
        assert first[name].flags.writeable
        first[name][...] = -99
    np.testing.assert_array_equal(feed, A)
    for name, value in module.run({"x": feed}).items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF])
def test_codes_that_no_text_has_are_refused(code):
    spec = TensorSpec("x", "string", (1,))
    with pytest.raises(FeedError, match=r'input "x": an element is not a text; .* found a code beyond U\+10FFFF'):
        check_feed(spec, np.frombuffer(code.to_bytes(4, "little"), "<U1"))
