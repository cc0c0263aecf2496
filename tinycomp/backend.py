"""ONNX's backend interface, so that tools that speak it can use tinycomp.

Example:
    >>> import numpy as np, onnx, tinycomp.backend
    >>> node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    >>> tinycomp.backend.run_node(node, [np.float32([1, 2]), np.float32([3, 4])])[0]
    array([4., 6.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from tinycomp.driver.compile import compile  # noqa: A004 - the public name
from tinycomp.driver.targets import AnyTarget
from tinycomp.errors import FeedError, TinycompError, UnsupportedError
from tinycomp.ir.schemas import known_opsets
from tinycomp.ir.to_proto import type_to_proto
from tinycomp.ir.types import TensorType, dtype_name, type_of
from tinycomp.runtime.module import Module

__all__ = ["TinycompBackend", "TinycompRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class TinycompRep(BackendRep):
    """A compiled model as ONNX's backend interface wants it.

    Attributes:
        module: The compiled model.
    """

    def __init__(self, module: Module) -> None:
        self.module = module

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: A dict by name, a sequence in the order of the graph's inputs (those with a default may be left out
                at the end), or the only input itself.
            **kwargs: Ignored, as the interface allows.

        Returns:
            The results in the order of the graph's outputs.

        Raises:
            FeedError: If an input is missing or does not fit.
            ExecutionError: If a step fails on these values.
        """
        outputs = self.module.run(self._by_name(inputs))
        return tuple(outputs.values())

    def _by_name(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        names = [spec.name for spec in self.module.inputs]
        if len(values) > len(names):
            raise FeedError("too many inputs", expected=f"{len(names)}: {', '.join(names)}", found=str(len(values)))
        return dict(zip(names, values, strict=False))


class TinycompBackend(Backend):
    """Compiles and runs ONNX models with tinycomp, on the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether models can run on ``device``, such as ``"CPU"`` or ``"CUDA:1"``; only the CPU is supported."""
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):
            return False

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Tell whether the model can be compiled."""
        try:
            cls.prepare(model, device, **kwargs)
        except TinycompError:
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = "CPU",
        *,
        target: AnyTarget | Sequence[AnyTarget] = "c",
        **kwargs: Any,
    ) -> TinycompRep:
        """Compile a model.

        Args:
            model: The model.
            device: Where to run; only ``"CPU"``.
            target: As for :func:`tinycomp.compile`.
            **kwargs: Further arguments of :func:`tinycomp.compile`.

        Raises:
            UnsupportedError: If the device is another one, or the model asks for what no tier can do.
            ModelError: If the model is not valid.
        """
        if not cls.supports_device(device):
            raise UnsupportedError("the device is not supported", expected='"CPU"', found=f'"{device}"')
        return TinycompRep(compile(model, target, **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile a model and run it once; see :meth:`prepare` and :meth:`TinycompRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single operator.

        Args:
            node: The node.
            inputs: Its operands, in order without the absent ones, or by name.
            device: Where to run; only ``"CPU"``.
            outputs_info: dtypes and shapes of the results; inferred without it.
            **kwargs: ``opset_version``, the opset version of the node's domain (by default the newest), and further
                arguments of :meth:`prepare`.
        """
        opset_version: int | None = kwargs.pop("opset_version", None)
        arrays = _operands(node, inputs)
        model = _single_node_model(node, arrays, outputs_info, opset_version)
        return cls.prepare(model, device, **kwargs).run(arrays)


def _operands(node: onnx.NodeProto, inputs: Any) -> dict[str, np.ndarray]:
    """Return the operands of a node by name."""
    names = list(dict.fromkeys(name for name in node.input if name))
    if isinstance(inputs, Mapping):
        return {name: np.asarray(inputs[name]) for name in names}
    values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(values) != len(names):
        raise FeedError(
            "wrong number of operands", where=node.op_type, expected=f"{len(names)}: {', '.join(names)}",
            found=str(len(values)),
        )  # fmt: skip
    return dict(zip(names, map(np.asarray, values), strict=True))


def _single_node_model(
    node: onnx.NodeProto,
    arrays: Mapping[str, np.ndarray],
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None,
    opset_version: int | None,
) -> onnx.ModelProto:
    """Return a model of one node whose inputs have the types of ``arrays``."""
    types: list[TensorType | None] = [None] * len(node.output)
    for index, (dtype, shape) in enumerate(outputs_info or ()):
        types[index] = TensorType(dtype_name(np.dtype(dtype)), tuple(shape))
    inputs = [onnx.ValueInfoProto(name=n, type=type_to_proto(type_of(a))) for n, a in arrays.items()]
    outputs = [
        onnx.ValueInfoProto(name=name, type=None if type_ is None else type_to_proto(type_))
        for name, type_ in zip(node.output, types, strict=True)
        if name
    ]
    newest = known_opsets()
    opsets = {"": newest[""]} | ({node.domain: newest.get(node.domain, 1)} if node.domain else {})
    if opset_version is not None:
        opsets[node.domain] = opset_version
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(helper.make_graph([node], node.op_type, inputs, outputs), opset_imports=imports)


prepare = TinycompBackend.prepare
run_model = TinycompBackend.run_model
run_node = TinycompBackend.run_node
supports_device = TinycompBackend.supports_device
is_compatible = TinycompBackend.is_compatible
