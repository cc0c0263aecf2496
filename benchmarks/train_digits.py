"""Train the digits classifier and write the files of ``tinycomp/data``.

``python -m benchmarks.train_digits`` takes well under a minute on one core and writes the same files each time on the
same machine: a float32 model, an int8 model calibrated on the training digits, and the held-out digits themselves.

The network is shaped as a demonstration for accelerators. Every convolution has a multiple of 16 output channels, and
there is one of each kind that a matrix unit meets: plain, residual, depthwise, pointwise. The classifier at the end has
10 outputs and a softmax, which such a unit leaves to others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.qdq import quantize_qdq

DATA = Path(__file__).resolve().parent.parent / "tinycomp" / "data"
HELD_OUT, VALIDATION = 200, 200
EPOCHS, BATCH, PEAK_RATE = 40, 64, 1e-2
OPSET = 17


@dataclass(frozen=True)
class Conv:
    """One convolution with its batch normalisation; ``skip`` adds the named activation before the ReLU."""

    name: str
    inputs: int
    outputs: int
    kernel: int = 3
    groups: int = 1
    relu: bool = True
    skip: str = ""


@dataclass(frozen=True)
class Pool:
    """A 2x2 max pool with stride 2."""

    name: str


NETWORK: tuple[Conv | Pool, ...] = (
    Conv("stem", 1, 16),
    Conv("widen", 16, 32),
    Conv("residual/1", 32, 32),
    Conv("residual/2", 32, 32, skip="widen"),
    Pool("pool"),
    Conv("separable/depthwise", 32, 32, groups=32),
    Conv("separable/pointwise", 32, 48, kernel=1),
)
FEATURES, CLASSES = 48, 10


@dataclass(frozen=True)
class Split:
    """Images uint8 ``[n, 8, 8]`` from 0 to 16 and labels int64 ``[n]``."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    @property
    def scaled(self) -> NDArray[np.float32]:
        """The images as the network takes them: float32 ``[n, 1, 8, 8]`` from 0 to 1."""
        return self.images[:, np.newaxis].astype(np.float32) / np.float32(16)


def splits() -> tuple[Split, Split, Split]:
    """Divide the 1,797 digits, always in the same way.

    Returns:
        The training (1,397), validation (200) and held-out (200) digits.
    """
    source = load_digits()
    order = np.random.default_rng(1998).permutation(len(source.target))
    parts = np.split(order, [HELD_OUT, HELD_OUT + VALIDATION])
    held_out, validation, training = (
        Split(source.images[part].astype(np.uint8), source.target[part].astype(np.int64)) for part in parts
    )
    return training, validation, held_out


class Digits(nn.Module):
    """The network of ``NETWORK``, followed by a global average pool and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        convs = [step for step in NETWORK if isinstance(step, Conv)]
        self.convs = nn.ModuleDict({_key(c.name): _torch_conv(c) for c in convs})
        self.norms = nn.ModuleDict({_key(c.name): nn.BatchNorm2d(c.outputs) for c in convs})
        self.dense = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits ``[n, 10]`` of images ``[n, 1, 8, 8]``."""
        seen: dict[str, torch.Tensor] = {}
        for step in NETWORK:
            if isinstance(step, Pool):
                x = nn.functional.max_pool2d(x, 2)
                continue
            x = self.norms[_key(step.name)](self.convs[_key(step.name)](x))
            x = x + seen[step.skip] if step.skip else x
            x = seen[step.name] = torch.relu(x) if step.relu else x
        return self.dense(x.mean((2, 3)))


def _key(name: str) -> str:
    return name.replace("/", "_")


def _torch_conv(conv: Conv) -> nn.Conv2d:
    return nn.Conv2d(conv.inputs, conv.outputs, conv.kernel, padding=conv.kernel // 2, groups=conv.groups, bias=False)


def train(data: Split) -> Digits:
    """Train on one thread with a one-cycle learning rate; the same digits give the same network."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.02)
    batches = len(data.labels) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=EPOCHS * batches)
    images, labels = torch.from_numpy(data.scaled), torch.from_numpy(data.labels)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(labels))[: batches * BATCH].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(_shift(images[chosen])), labels[chosen]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def _shift(images: torch.Tensor) -> torch.Tensor:
    """Move a batch by up to one pixel in each direction, filling with paper."""
    down, right = (int(d) for d in torch.randint(0, 3, (2,)))
    return nn.functional.pad(images, (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8]


class GraphWriter:
    """Collects the nodes and initializers of an ONNX graph; every value is named after the node that makes it."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, tensor: torch.Tensor) -> str:
        """Add a float32 initializer and return its name.

        Numbers keep 16 of their 24 bits, so that the file, which every wheel holds, compresses by a fifth more.
        """
        bits = np.atleast_1d(tensor.detach().float().numpy()).view(np.uint32)
        rounded = ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view(np.float32).reshape(tuple(tensor.shape))
        self.initializers.append(numpy_helper.from_array(rounded, name))
        return name

    def node(self, op: str, name: str, *inputs: str, output: str = "", **attributes: object) -> str:
        """Add a node with one output and return the output's name."""
        self.nodes.append(helper.make_node(op, inputs, [output or f"{name}:0"], name=name, **attributes))
        return output or f"{name}:0"


def export(model: Digits, fold: bool) -> onnx.ModelProto:
    """Write the trained network as ONNX.

    Args:
        model: The trained network.
        fold: Fold each batch normalisation into its convolution instead of exporting it as a node.
    """
    out = GraphWriter()
    seen: dict[str, str] = {}
    x = "image"
    for step in NETWORK:
        if isinstance(step, Pool):
            x = out.node("MaxPool", step.name, x, kernel_shape=[2, 2], strides=[2, 2])
            continue
        x = _export_conv(out, model, step, x, fold)
        x = out.node("Add", f"{step.name}/add", x, seen[step.skip]) if step.skip else x
        x = seen[step.name] = out.node("Relu", f"{step.name}/relu", x) if step.relu else x
    x = out.node("GlobalAveragePool", "average", x)
    x = out.node("Flatten", "flatten", x, axis=1)
    weight = out.constant("dense/weight", model.dense.weight)
    x = out.node("Gemm", "dense", x, weight, out.constant("dense/bias", model.dense.bias), transB=1)
    out.node("Softmax", "softmax", x, output="probabilities", axis=1)
    return _finish(out)


def _export_conv(out: GraphWriter, model: Digits, conv: Conv, x: str, fold: bool) -> str:
    name, norm, weight = conv.name, model.norms[_key(conv.name)], model.convs[_key(conv.name)].weight
    attributes = {
        "kernel_shape": [conv.kernel] * 2,
        "pads": [conv.kernel // 2] * 4,
        "group": conv.groups,
    }
    if fold:
        gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        w = out.constant(f"{name}/weight", weight * gain[:, None, None, None])
        b = out.constant(f"{name}/bias", norm.bias - norm.running_mean * gain)
        return out.node("Conv", f"{name}/conv", x, w, b, **attributes)
    x = out.node("Conv", f"{name}/conv", x, out.constant(f"{name}/weight", weight), **attributes)
    parts = {"scale": norm.weight, "shift": norm.bias, "mean": norm.running_mean, "variance": norm.running_var}
    operands = [out.constant(f"{name}/norm/{part}", tensor) for part, tensor in parts.items()]
    return out.node("BatchNormalization", f"{name}/norm", x, *operands, epsilon=norm.eps)


def _finish(out: GraphWriter) -> onnx.ModelProto:
    graph = helper.make_graph(
        out.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", CLASSES])],
        out.initializers,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="tinycomp"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(model: onnx.ModelProto, data: Split) -> float:
    """The share of digits that the model gets right, run by ONNX Runtime."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(None, {"image": data.scaled})
    return float((probabilities.argmax(1) == data.labels).mean())


def main() -> None:
    """Train, quantise, report the accuracies and write the files."""
    training, validation, held_out = splits()
    trained = train(training)
    fp32 = export(trained, fold=False)
    int8 = quantize_qdq(export(trained, fold=True), {"image": training.scaled})
    for label, model in (("fp32", fp32), ("int8", int8)):
        path = DATA / f"digits_{label}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        scores = ", ".join(
            f"{part} {accuracy(model, data):.2%}"
            for part, data in (("training", training), ("validation", validation), ("held-out", held_out))
        )
        print(f"{path.name}: {path.stat().st_size:,} bytes; {scores}")
    np.savez_compressed(DATA / "digits.npz", images=held_out.images, labels=held_out.labels.astype(np.uint8))


if __name__ == "__main__":
    main()
