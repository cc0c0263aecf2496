"""Turn a path, bytes or a ModelProto into a ModelProto whose frame has been checked.

What is checked here concerns the file as a whole: that it is an ONNX protobuf at all, its size, its IR version and its
opset imports. Everything inside the graph is checked while it is imported.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.arguments import is_model_proto
from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.ir.messages import FunctionProto, ModelProto, read_message
from tinycomp.ir.schemas import installed, known_ir_version, known_opsets
from tinycomp.memory.mapped import map_file, mapping_of
from tinycomp.memory.reading import reading
from tinycomp.memory.system import open_regular
from tinycomp.records import dataclass

if TYPE_CHECKING:
    import onnx

MAX_PROTOBUF = (1 << 31) - 1
_OLDEST_WITH_OPSETS = 3
_STRANGERS = (
    (b"version https://git-lfs", 0, "a Git LFS pointer", 'Fetch the real file with "git lfs pull".'),
    (
        b"PK\x03\x04",
        0,
        "a zip archive, such as a PyTorch checkpoint",
        "Export the model to ONNX first, or open a saved module with tinycomp.load.",
    ),
    (b"\x89HDF", 0, "an HDF5 file, such as a Keras model", "Export the model to ONNX first."),
    (b"TFL3", 4, "a TensorFlow Lite model", "Convert the model to ONNX first."),
    (b"ORTM", 4, "an ONNX Runtime flatbuffer", "Give the original .onnx file."),
    (b"\x80\x02", 0, "a Python pickle", "Export the model to ONNX first."),
    (b"{", 0, "JSON", "Save the model in ONNX's binary form."),
)


@dataclass(frozen=True)
class LoadedModel:
    """A model and where it came from.

    Attributes:
        proto: The parsed model, as onnx's class where the caller has parsed it.
        folder: Folder that external data are relative to; None for a model without a file.
        where: Name of the model for messages.
        nbytes: The memory that it takes, what lies in a mapped file apart.
    """

    proto: ModelProto
    folder: Path | None
    where: str
    nbytes: int


def load_model(model: str | os.PathLike[str] | bytes | onnx.ModelProto, *, mapped: bool = False) -> LoadedModel:
    """Read and parse a model, and check its frame.

    Args:
        model: Path of a file, the bytes of a file, or a parsed model.
        mapped: Whether large ``raw_data`` may be views of the file instead of copies.

    Raises:
        ModelError: If there is no such file, or its contents are not a valid ONNX model.
        UnsupportedError: If the model is newer than the installed onnx package.
    """
    if is_model_proto(model):
        proto: Any = model  # of the same fields
        loaded = LoadedModel(proto, None, f'model "{model.graph.name}"', int(model.ByteSize()))
    elif isinstance(model, (bytes, bytearray, memoryview)):
        loaded = _parse(memoryview(bytes(model)), None, "model bytes", shares=mapped)
    elif isinstance(model, (str, os.PathLike)):
        path = Path(model)
        loaded = _parse(_mapped(path).data, path.parent, str(path), shares=mapped)
    else:
        raise ModelError(
            "not a model",
            expected="a path, bytes or onnx.ModelProto",
            found=f"an object of type {type(model).__name__}",
        )
    _check_frame(loaded)
    return loaded


def opset_imports(proto: ModelProto | FunctionProto, where: str, ir_version: int) -> dict[str, int]:
    """Return opset version by domain, with ``ai.onnx`` written as ``""``.

    Raises:
        ModelError: If a domain is missing, imported twice with different versions, or has an impossible version.
        UnsupportedError: If a version is newer than the installed onnx package knows.
    """
    imports: dict[str, int] = {}
    for entry in proto.opset_import:
        check_text(entry.domain, where)
        domain = normal_domain(entry.domain)
        version = int(entry.version)
        if imports.setdefault(domain, version) != version:
            raise ModelError(
                f"opset_import names the domain {shown(domain)} twice",
                where=where,
                expected="one version per domain",
                found=f"versions {imports[domain]} and {version}",
            )
        _check_opset(domain, version, where)
    if not imports:
        if ir_version >= _OLDEST_WITH_OPSETS:
            raise ModelError("opset_import is missing", where=where, expected=f"an entry for {shown('')}", found="none")
        imports[""] = 1
    return imports


def check_text(text: str, where: str) -> None:
    """Refuse a name that is not UTF-8 (which protobuf hands over as bytes).

    Raises:
        ModelError: If it is not.
    """
    check_texts((text,), where)


def check_texts(texts: Iterable[str], where: str) -> None:
    """Refuse names as :func:`check_text` does.

    Raises:
        ModelError: If one is not UTF-8.
    """
    for text in texts:
        if not isinstance(text, str):
            raise ModelError("a name is not UTF-8", where=where, expected="UTF-8 text", found=repr(text)[:80])


def normal_domain(domain: str) -> str:
    """Return the domain as tinycomp writes it: ONNX's own is empty."""
    return "" if domain == "ai.onnx" else domain


def shown(domain: str) -> str:
    """Return a domain for messages."""
    return f'"{domain or "ai.onnx"}"'


_GREATEST_OPSET = (1 << 31) - 1
"""onnx's own functions take versions of 32 bits."""


def _check_opset(domain: str, version: int, where: str) -> None:
    newest = known_opsets().get(domain)
    if newest is not None and version > newest:
        newest = max(newest, installed()[0][domain])
    if version < 1 or (newest is None and version > _GREATEST_OPSET):
        raise ModelError(
            f"impossible opset version for domain {shown(domain)}",
            where=where,
            expected=f"1 to {newest or _GREATEST_OPSET}",
            found=str(version),
        )
    if newest is not None and version > newest:
        raise UnsupportedError(
            f"opset {version} of domain {shown(domain)} is not known",
            where=where,
            expected=f"1 to {newest}",
            found=str(version),
            hint="Install a newer onnx package, or convert the model with onnx.version_converter.",
        )


def _mapped(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped for reading."""
    with reading(ModelError, path, "an .onnx file"), os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_PROTOBUF:
            raise _too_large(size, str(path))
        return map_file(file, path.absolute())


def _too_large(size: int, where: str) -> ModelError:
    return ModelError(
        "the file is too large for a protobuf",
        where=where,
        expected=f"up to {MAX_PROTOBUF} bytes",
        found=f"{size} bytes",
        hint="Save the weights as external data: onnx.save(model, path, save_as_external_data=True).",
    )


def _parse(data: memoryview, folder: Path | None, where: str, *, shares: bool) -> LoadedModel:
    """Return a model; ``shares`` says whether its large tensors may be views of ``data``."""
    if not data:
        raise ModelError("the file is empty", where=where, expected="an ONNX model", found="0 bytes")
    if len(data) > MAX_PROTOBUF:
        raise _too_large(len(data), where)
    _reject_strangers(data, where)
    proto = read_message(ModelProto, data, shares=shares)
    if proto is None:
        return LoadedModel(_judged(data, where), folder, where, len(data))
    raw = (tensor.raw_data for tensor in proto.graph.initializer)
    shared = sum(each.nbytes for each in raw if isinstance(each, memoryview) and mapping_of(each) is not None)
    return LoadedModel(proto, folder, where, len(data) - shared)


def _judged(data: memoryview, where: str) -> Any:
    """Return what protobuf's own parser makes of bytes that are damaged or of an unusual form."""
    onnx = importlib.import_module("onnx")
    message = importlib.import_module("google.protobuf.message")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(bytes(data))
    except (message.DecodeError, RuntimeError) as error:
        raise ModelError(
            "not a complete ONNX protobuf",
            where=where,
            expected="an ONNX model",
            found=f"{len(data)} bytes that cannot be decoded",
            hint="The file may be truncated or nested too deeply; fetch or export it again.",
        ) from error
    return proto


def _reject_strangers(data: memoryview, where: str) -> None:
    start = bytes(data[:512]).lstrip()
    if start[:1] == b"<":
        kind, hint = "HTML or XML text", "The download may have fetched a web page instead of the file."
    else:
        match = next((s for s in _STRANGERS if data[s[1] : s[1] + len(s[0])] == s[0]), None)
        if match is None:
            return
        kind, hint = match[2:]
    raise ModelError("not an ONNX model", where=where, expected="a binary ONNX protobuf", found=kind, hint=hint)


def _check_frame(loaded: LoadedModel) -> None:
    proto = loaded.proto
    newest = known_ir_version()
    if proto.ir_version > newest:
        newest = max(newest, installed()[1])
    if not 1 <= proto.ir_version <= newest:
        kind = UnsupportedError if proto.ir_version > newest else ModelError
        raise kind(
            "unknown IR version",
            where=loaded.where,
            expected=f"1 to {newest}",
            found=str(proto.ir_version) if proto.HasField("ir_version") else "none",
            hint="This may not be an ONNX model." if proto.ir_version < 1 else "Install a newer onnx package.",
        )
    if not proto.HasField("graph"):
        raise ModelError("the model has no graph", where=loaded.where)
    if not proto.graph.output:
        raise ModelError("the graph has no outputs", where=loaded.where, expected="at least one output")
