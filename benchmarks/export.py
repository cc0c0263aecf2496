"""Export one architecture of the corpus to ONNX and verify the file against PyTorch."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.corpus import Architecture

OPSETS = {"torchscript": 17, "dynamo": 18}
Arrays = dict[str, NDArray[np.generic]]


def export(wanted: Architecture, file: Path, dynamic_batch: bool) -> None:
    """Build, export, finish and verify a model.

    Args:
        wanted: The model.
        file: Where the ONNX file goes.
        dynamic_batch: Leave the first dimension of every input symbolic.

    Raises:
        AssertionError: The exported model does not agree with PyTorch, or its outputs carry no signal.
    """
    batch = 2 if dynamic_batch else 1
    torch.manual_seed(0)
    module = _resolve(wanted.builder)().eval()
    enliven(module, tuple(_tensors(wanted, seed=1, batch=2).values()))
    with _quiet():
        exporter = _torchscript if wanted.exporter == "torchscript" else _dynamo
        exporter(module, wanted, tuple(_tensors(wanted, seed=1, batch=batch).values()), file, dynamic_batch)
    _verify_export(module, wanted, file, batch)
    if dynamic_batch:
        _edit(file, lambda model: _declare_outputs(model, _expected(module, wanted, batch)))
    if wanted.finish:
        _edit(file, _resolve(wanted.finish))
    _verify_signal(wanted, file, batch=3 if dynamic_batch else 1)


def enliven(module: nn.Module, example: tuple[torch.Tensor, ...]) -> None:
    """Make a freshly initialised module look trained, so that no rewrite of it is trivially right.

    Parameters that start as one constant (gains of 1, shifts of 0, layer scales of 1e-6) are spread around it. Batch
    normalisations take the statistics of the input that they really see, which keeps the signal alive through any
    depth, and some noise on top, as a trained network has on unseen data.
    """
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.min() == parameter.max():
                parameter += 0.15 * torch.randn_like(parameter)
        for norm in norms:
            norm.momentum = 1.0
            norm.train()
        if norms:
            module(*example)
        for norm in norms:
            norm.eval()
            norm.running_mean += 0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean)
            norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.8, 1.25)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' advice to themselves; what matters is verified afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _resolve(name: str) -> Any:
    family, function = name.split(".")
    return getattr(importlib.import_module(f"benchmarks.architectures.{family}"), function)


def _sample(wanted: Architecture, seed: int, batch: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {i.name: i.sample(rng, batch) for i in wanted.inputs}


def _tensors(wanted: Architecture, seed: int, batch: int) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in _sample(wanted, seed, batch).items()}


def _torchscript(
    module: nn.Module, wanted: Architecture, example: tuple[torch.Tensor, ...], file: Path, dynamic_batch: bool
) -> None:
    inputs = [i.name for i in wanted.inputs]
    torch.onnx.export(
        module,
        example,
        file,
        dynamo=False,
        opset_version=OPSETS["torchscript"],
        training=torch.onnx.TrainingMode.PRESERVE,
        input_names=inputs,
        output_names=list(wanted.outputs),
        dynamic_axes={name: {0: "batch"} for name in [*inputs, *wanted.outputs]} if dynamic_batch else None,
    )


def _dynamo(
    module: nn.Module, wanted: Architecture, example: tuple[torch.Tensor, ...], file: Path, dynamic_batch: bool
) -> None:
    symbol = torch.export.Dim("batch")
    torch.onnx.export(
        module,
        example,
        file,
        dynamo=True,
        verbose=False,
        external_data=False,
        opset_version=OPSETS["dynamo"],
        input_names=[i.name for i in wanted.inputs],
        output_names=list(wanted.outputs),
        dynamic_shapes=tuple({0: symbol} for _ in example) if dynamic_batch else None,
    )


def _expected(module: nn.Module, wanted: Architecture, batch: int) -> dict[str, NDArray[Any]]:
    with torch.no_grad():
        outputs = module(*_tensors(wanted, seed=0, batch=batch).values())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return {name: output.numpy() for name, output in zip(wanted.outputs, outputs, strict=True)}


def _edit(file: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(file)
    change(model)
    file.write_bytes(model.SerializeToString())


def _declare_outputs(model: onnx.ModelProto, expected: dict[str, NDArray[Any]]) -> None:
    """Only the batch is symbolic: write down the other sizes, which an exporter may have lost on the way."""
    for output in model.graph.output:
        dims = output.type.tensor_type.shape.dim
        for dim, size in zip(dims[1:], expected[output.name].shape[1:], strict=True):
            dim.dim_value = size


def _run(file: Path, feeds: Arrays) -> dict[str, NDArray[Any]]:
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True))


def _verify_export(module: nn.Module, wanted: Architecture, file: Path, batch: int) -> None:
    """ONNX Runtime must give what PyTorch gives, on inputs that the exporter has not seen."""
    got = _run(file, _sample(wanted, 0, batch))
    for name, want in _expected(module, wanted, batch).items():
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got[name], want, rtol=1e-3, atol=1e-3 * scale, err_msg=name)


def _verify_signal(wanted: Architecture, file: Path, batch: int) -> None:
    """The file must be valid, and its outputs finite, varied and dependent on the inputs."""
    onnx.checker.check_model(file, full_check=True)
    first, second = (_run(file, _sample(wanted, seed, batch)) for seed in (0, 1))
    for name, a in first.items():
        b = second[name]
        assert np.isfinite(a).all(), f"{name} is not finite"
        assert a.std() > 1e-4, f"{name} is constant"
        assert a.shape != b.shape or not np.allclose(a, b), f"{name} does not depend on the inputs"
