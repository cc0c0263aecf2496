"""Bodies of the open inference protocol, version 2: requests become arrays, results become responses.

Tensors are JSON, nested or in one list, or come behind it as bytes (the extension ``binary_tensor_data``). See
https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol and, for the extension, Triton's
``extension_binary_data.md``. Nothing in a body is trusted: what is wrong is an error with a status of HTTP.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import orjson
from numpy.typing import NDArray

from tinycomp.errors import TinycompError, UnsupportedError, did_you_mean
from tinycomp.records import dataclass
from tinycomp.runtime.spec import TensorSpec

HEADER = "Inference-Header-Content-Length"
"""The header of HTTP that says where the JSON of a body ends and its bytes begin."""
EXTENSIONS = ("binary_tensor_data",)
_NUMBERS = {
    **{f"{kind}{size}": f"{kind.upper()}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)},
    "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16",
}  # fmt: skip
DATATYPES = {**_NUMBERS, "bool": "BOOL", "string": "BYTES"}
"""The protocol's name of each dtype."""
_MOST_DIMENSIONS = 32
_MOST_ELEMENTS = 1 << 31
_MOST_TEXTS = 1 << 20
_BYTES_OF_A_NUMBER = 10
_LENGTH = struct.Struct("<I")
_FIELDS = {
    "request": ("id", "parameters", "inputs", "outputs"),
    "request.parameters": ("binary_data_output", "priority", "timeout"),
    "input": ("name", "shape", "datatype", "parameters", "data"),
    "input.parameters": ("binary_data_size",),
    "output": ("name", "parameters"),
    "output.parameters": ("binary_data",),
}
"""What objects of a request may hold."""
_INSTEAD = {
    "shared_memory": "This server does not offer shared memory: send data, or bytes after the JSON (binary_data_size).",
    "classification": "This server does not sort results: ask for the output itself.",
    "sequence": "This server keeps nothing from request to request.",
    "binary_data": "The request has binary_data_output, an input binary_data_size, an output binary_data.",
}
"""What to do about others that servers of the protocol have, by how they begin."""
_MICROSECONDS = 1e6
_JSON_TYPES = {type(None): "null", bool: "true or false", str: "a text", list: "a list", dict: "an object"}

Arrays = dict[str, NDArray[Any]]


class RequestError(TinycompError, ValueError):
    """A request cannot be answered.

    Args:
        message: One sentence that says what is wrong.
        status: The status of HTTP.
        parts: As for :class:`TinycompError`.
    """

    def __init__(self, message: str, *, status: int = 400, **parts: str) -> None:
        self.status = status
        super().__init__(message, **parts)

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"status": self.status})


@dataclass(frozen=True)
class Wanted:
    """An output that is asked for, and whether as bytes."""

    name: str
    binary: bool


@dataclass(frozen=True)
class InferRequest:
    """What a request asks.

    Attributes:
        id: What the client calls it; None if it does not.
        inputs: Arrays by name.
        outputs: What the response holds.
        seconds: How long the client wants to wait for it; infinity if it does not say.
    """

    id: str | None
    inputs: Arrays
    outputs: tuple[Wanted, ...]
    seconds: float


def check_tensor(spec: TensorSpec, kind: str) -> None:
    """Refuse an input or output that the protocol has no form for.

    Raises:
        UnsupportedError: If it is one.
    """
    if spec.dtype not in DATATYPES:
        raise UnsupportedError(
            f"the protocol has no form for this {kind}", where=f'{kind} "{spec.name}"', found=str(spec),
            expected=f"a tensor of {', '.join(DATATYPES)}", hint="Serve a model without it.",
        )  # fmt: skip


def describe(spec: TensorSpec) -> dict[str, Any]:
    """Return an input or output as metadata of a model have it: -1 for a size that is open."""
    dims = [-1] if spec.shape is None else [dim if isinstance(dim, int) else -1 for dim in spec.shape]
    return {"name": spec.name, "datatype": DATATYPES[spec.dtype], "shape": dims}


def read_request(
    body: bytes, json_length: str | None, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> InferRequest:
    """Return what a body asks.

    Args:
        body: All of it.
        json_length: The header :data:`HEADER`; None without one.
        inputs: What the model takes.
        outputs: What it gives.

    Raises:
        RequestError: If it is not valid. Shapes are not held against those of the model here.
    """
    length = len(body)
    if json_length is not None:
        if (
            not (json_length.isascii() and json_length.isdecimal())
            or len(json_length) > 18
            or int(json_length) > length
        ):
            raise RequestError(
                "not the length of the JSON", where=HEADER, expected=f"a number up to {length}, the length of the body",
                found=json_length[:40],
            )  # fmt: skip
        length = int(json_length)
    try:
        asked = orjson.loads(memoryview(body)[:length])
    except orjson.JSONDecodeError as error:
        raise RequestError(
            "the body is not JSON",
            found=str(error),
            hint=f"NaN and infinity have no form in JSON; for tensors as bytes, see {HEADER}.",
        ) from error
    if not isinstance(asked, dict):
        raise RequestError("the body is not an object of JSON", found=_kind(asked))
    asked = _known(asked, "request", "the request")
    identity = asked.get("id")
    if identity is not None and not isinstance(identity, str):
        raise RequestError("not a text", where="id", found=_kind(identity))
    parameters = _parameters(asked, "request", "the request")
    _number(parameters, "priority")
    reader = _Binary(body, length)
    specs = {spec.name: spec for spec in inputs}
    arrays: Arrays = {}
    for number, given in enumerate(_objects(asked.get("inputs"), "input")):
        name = given.get("name")
        if not isinstance(name, str) or name not in specs:
            raise RequestError(
                "not an input of the model", where=f"inputs[{number}].name", expected=f"one of {', '.join(specs)}",
                found=name[:80] if isinstance(name, str) else _kind(name),
                hint=did_you_mean(name[:80], specs) if isinstance(name, str) else "",
            )  # fmt: skip
        if name in arrays:
            raise RequestError("the input is given twice", where=f'input "{name}"')
        arrays[name] = _tensor(given, specs[name], reader)
    reader.check_end()
    as_bytes = _flag(parameters, "binary_data_output", "the request", default=False)
    wanted = _outputs(asked.get("outputs"), [spec.name for spec in outputs], as_bytes)
    return InferRequest(identity, arrays, wanted, _number(parameters, "timeout") / _MICROSECONDS or math.inf)


def work_of_reading(body: bytes, json_length: str | None, inputs: Sequence[TensorSpec]) -> int:
    """Return how many bytes of a request are gone through one by one: its JSON and its texts."""
    is_short = json_length is not None and json_length.isascii() and json_length.isdecimal() and len(json_length) < 19
    length = min(int(json_length), len(body)) if json_length is not None and is_short else len(body)
    return length + (len(body) if any(spec.dtype == "string" for spec in inputs) else 0)


def work_of_writing(wanted: Sequence[Wanted], results: Mapping[str, NDArray[Any]]) -> int:
    """Return about how many bytes of a response are written one by one: numbers in JSON, and texts."""
    arrays = [(results[each.name], each.binary) for each in wanted]
    return sum(array.size * _BYTES_OF_A_NUMBER for array, binary in arrays if array.dtype.kind == "O" or not binary)


def write_response(
    about: Mapping[str, Any], wanted: Sequence[Wanted], results: Mapping[str, NDArray[Any]], specs: Sequence[TensorSpec]
) -> tuple[bytes, int | None]:
    """Return the body of a response, and where its JSON ends if bytes follow.

    Args:
        about: Name and version of the model, and the request's id.
        wanted: The outputs.
        results: Their arrays by name.
        specs: What the model gives.

    Raises:
        RequestError: If a number has no form in JSON.
    """
    kinds = {spec.name: spec.dtype for spec in specs}
    tensors, behind = list[dict[str, Any]](), list[bytes]()
    for each in wanted:
        array = results[each.name]
        tensor: dict[str, Any] = {
            "name": each.name, "shape": list(array.shape), "datatype": DATATYPES[kinds[each.name]]
        }  # fmt: skip
        if each.binary:
            data = _bytes_of(array) if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes()
            tensor["parameters"] = {"binary_data_size": len(data)}
            behind.append(data)
        else:
            tensor["data"] = _json_of(each.name, array)
        tensors.append(tensor)
    head = orjson.dumps({**about, "outputs": tensors}, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((head, *behind)), len(head)) if behind else (head, None)


def _known(given: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    """Return what an object holds, without null; what this server would not heed is refused."""
    found = {name: value for name, value in given.items() if value is not None}
    for name in found:
        if name not in _FIELDS[kind]:
            what = "parameter" if kind.endswith("parameters") else "field"
            raise RequestError(
                f'this server has no {what} "{name[:80]}" here', where=where, expected=", ".join(_FIELDS[kind]),
                hint=next((told for start, told in _INSTEAD.items() if name.startswith(start)), "Leave it out."),
            )  # fmt: skip
    return found


def _objects(value: Any, kind: str) -> list[dict[str, Any]]:
    where = f"{kind}s"
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise RequestError("not a list of objects", where=where, found=_kind(value))
    return [_known(each, kind, f"{where}[{number}]") for number, each in enumerate(value)]


def _parameters(given: Mapping[str, Any], kind: str, where: str) -> Mapping[str, Any]:
    found, where = given.get("parameters", {}), f"{where}.parameters"
    if not isinstance(found, dict):
        raise RequestError("not an object of JSON", where=where, found=_kind(found))
    return _known(found, f"{kind}.parameters", where)


def _number(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        raise RequestError(
            "not a whole number from 0 on", where=f"the request.parameters.{name}",
            found=str(value) if type(value) is int else _kind(value),
        )  # fmt: skip
    return value


def _outputs(asked: Any, names: Sequence[str], usual: bool) -> tuple[Wanted, ...]:
    if asked is None or asked == []:
        return tuple(Wanted(name, usual) for name in names)
    wanted: dict[str, Wanted] = {}
    for number, given in enumerate(_objects(asked, "output")):
        name, where = given.get("name"), f"outputs[{number}]"
        if not isinstance(name, str) or name not in names:
            raise RequestError(
                "not an output of the model", where=f"{where}.name", expected=f"one of {', '.join(names)}",
                found=name[:80] if isinstance(name, str) else _kind(name),
                hint=did_you_mean(name[:80], names) if isinstance(name, str) else "",
            )  # fmt: skip
        if name in wanted:
            raise RequestError("the output is asked for twice", where=f'output "{name}"')
        wanted[name] = Wanted(name, _flag(_parameters(given, "output", where), "binary_data", where, default=usual))
    return tuple(wanted.values())


def _flag(parameters: Mapping[str, Any], name: str, where: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError("not true or false", where=f"{where}.parameters.{name}", found=_kind(value))
    return value


class _Binary:
    """The bytes after the JSON, which inputs take in their order."""

    def __init__(self, body: bytes, start: int) -> None:
        self._body, self._next = body, start

    def take(self, size: Any, where: str) -> memoryview:
        left = len(self._body) - self._next
        if type(size) is not int or not 0 <= size <= left:
            found = str(size)[:40] if type(size) is int else _kind(size)
            raise RequestError(
                "not a number of bytes that are there", where=f"{where}, binary_data_size",
                expected=f"up to {left} bytes after the JSON", found=found,
            )  # fmt: skip
        taken = memoryview(self._body)[self._next : self._next + size]
        self._next += size
        return taken

    def check_end(self) -> None:
        left = len(self._body) - self._next
        if left:
            raise RequestError(
                "the body has bytes that no input takes",
                expected="as many as binary_data_size say",
                found=f"{left} more",
            )


def _tensor(given: Mapping[str, Any], spec: TensorSpec, binary: _Binary) -> NDArray[Any]:
    where = f'input "{spec.name}"'
    wanted = DATATYPES[spec.dtype]
    if given.get("datatype") != wanted:
        found = given.get("datatype")
        raise RequestError(
            "wrong datatype", where=where, expected=wanted, found=found[:40] if isinstance(found, str) else _kind(found)
        )
    shape = given.get("shape")
    if not isinstance(shape, list) or any(type(dim) is not int or dim < 0 for dim in shape):
        raise RequestError(
            "not a shape", where=where, expected="a list of whole numbers from 0 on", found=str(shape)[:80]
        )
    if len(shape) > _MOST_DIMENSIONS:
        raise RequestError(
            "too many dimensions", where=where, expected=f"up to {_MOST_DIMENSIONS}", found=str(len(shape))
        )
    most = _MOST_TEXTS if spec.dtype == "string" else _MOST_ELEMENTS
    if math.prod(dim or 1 for dim in shape) > most:  # also where there are none, for what a model makes of the rest
        raise RequestError(
            "too large", where=where, expected=f"sizes whose product is up to {most}", found=str(shape)[:80]
        )
    size, parameters = math.prod(shape), _parameters(given, "input", where)
    if "binary_data_size" in parameters:
        if "data" in given:
            raise RequestError("data and binary_data_size do not go together", where=where)
        return _from_bytes(binary.take(parameters["binary_data_size"], where), spec, size, where).reshape(shape)
    if "data" not in given:
        raise RequestError("there are no data", where=where, expected="data, or parameters.binary_data_size")
    return _from_json(given["data"], spec, shape, size, where)


def _from_bytes(data: memoryview, spec: TensorSpec, size: int, where: str) -> NDArray[Any]:
    dtype = spec.numpy_dtype
    assert dtype is not None
    if dtype.kind == "O":
        return _texts(data, size, where)
    if len(data) != size * dtype.itemsize:
        raise RequestError(
            "wrong number of bytes", where=where, expected=f"{size} elements of {dtype.itemsize}", found=str(len(data))
        )
    array: NDArray[Any] = np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype.newbyteorder("<"))
    if dtype.kind == "b":
        if (array > 1).any():
            raise RequestError("not booleans", where=where, expected="bytes of 0 and 1", found=str(array.max()))
        array = array.view(bool)
    return array if array.flags.aligned else array.copy()


def _texts(data: memoryview, size: int, where: str) -> NDArray[Any]:
    """Return texts, each behind its length."""
    if size * _LENGTH.size > len(data):
        raise RequestError("wrong number of bytes", where=where, expected=f"{size} texts", found=f"{len(data)} bytes")
    found, place = np.empty(size, object), 0
    for number in range(size):
        end = place + _LENGTH.size
        length = _LENGTH.unpack_from(data, place)[0] if end <= len(data) else len(data)
        if end + length > len(data):
            raise RequestError(
                "a text ends after the data", where=f"{where}, element {number}", expected=f"{size} texts"
            )
        found[number] = _text(bytes(data[end : end + length]), f"{where}, element {number}")
        place = end + length
    if place != len(data):
        raise RequestError(
            "wrong number of bytes", where=where, expected=f"{size} texts of {place} bytes", found=str(len(data))
        )
    return found


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError("not a text", where=where, expected="UTF-8", found=error.reason) from error


def _from_json(data: Any, spec: TensorSpec, shape: Sequence[int], size: int, where: str) -> NDArray[Any]:
    dtype = spec.numpy_dtype
    assert dtype is not None
    flat = _flattened(data if isinstance(data, list) or shape else [data], shape, size, where)
    kinds, allowed = set(map(type, flat)), _allowed(dtype)
    if not kinds <= allowed:
        place = next(i for i, value in enumerate(flat) if type(value) not in allowed)
        names = {float: "a fraction", int: "a number", **_JSON_TYPES}
        raise RequestError(
            "wrong kind of element", where=f"{where}, element {place}", expected=DATATYPES[spec.dtype],
            found=names[type(flat[place])],
        )  # fmt: skip
    if dtype.kind == "O":
        array = np.empty(size, object)
        array[:] = flat
        return array.reshape(shape)
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, np.float64 if dtype.kind == "V" or dtype == ml_dtypes.bfloat16 else dtype).astype(
                dtype
            )
    except OverflowError as error:
        raise RequestError(
            "a number is out of range", where=where, expected=DATATYPES[spec.dtype], found=str(error)
        ) from error
    if float in allowed and not np.isfinite(array).all():
        raise RequestError("a number is out of range", where=where, expected=DATATYPES[spec.dtype])
    return array.reshape(shape)


def _allowed(dtype: np.dtype[Any]) -> set[type]:
    kinds: dict[str, set[type]] = {"O": {str}, "b": {bool}, "i": {int}, "u": {int}}
    return kinds.get(dtype.kind, {int, float})


def _flattened(data: Any, shape: Sequence[int], size: int, where: str) -> list[Any]:
    """Return the elements of a tensor that is one list, or lists in lists as deep as its shape."""
    if not isinstance(data, list):
        raise RequestError("not a list", where=f"{where}, data", found=_kind(data))
    if len(shape) > 1 and data and type(data[0]) is list:
        level: list[Any] = [data]
        for dim in shape:
            if any(type(each) is not list or len(each) != dim for each in level):
                raise RequestError("the data have another shape than they say", where=where, expected=str([*shape]))
            level = [*itertools.chain.from_iterable(level)]
        data = level
    flat: list[Any] = data
    if len(flat) != size:
        raise RequestError(
            "wrong number of elements", where=where, expected=f"{size}, for shape {[*shape]}", found=str(len(flat))
        )
    return flat


def _json_of(name: str, array: NDArray[Any]) -> Any:
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "O":
        return flat.tolist()
    if flat.dtype == ml_dtypes.bfloat16:
        flat = flat.astype(np.float32)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise RequestError(
            "JSON has no number for this result", where=f'output "{name}"', found="NaN or infinity", status=422,
            hint='Ask for bytes: "parameters": {"binary_data_output": true}.',
        )  # fmt: skip
    return flat


def _bytes_of(array: NDArray[Any]) -> bytes:
    parts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.reshape(-1)]
    return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))


def _kind(value: Any) -> str:
    return "nothing" if value is None else _JSON_TYPES.get(type(value), "a number")
