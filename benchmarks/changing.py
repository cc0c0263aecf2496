"""Models with symbolic dimensions, and the sizes that their users send one after another.

The files are what exporters write: PyTorch's where it is installed, else nodes in the same form. They lie in the folder
of the corpus, or in one that is given.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import itertools
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks import corpus
from benchmarks.architectures import decoders

Feeds = dict[str, NDArray[Any]]
Sizes = tuple[int, ...]
"""The values of what changes from call to call."""


@dataclass(frozen=True)
class Changing:
    """A model and how its sizes change.

    Attributes:
        write: Writes the ONNX file.
        sizes: All sizes, from the least to the greatest; a measurement takes each once, in random order.
        feeds: Makes inputs of given sizes.
        count: How many of the sizes are taken where nobody says how many: evenly from all.
    """

    write: Callable[[Path], None]
    sizes: Sequence[Sizes]
    feeds: Callable[[Sizes, np.random.Generator], Feeds]
    count: int = 512

    def sequence(self, count: int | None = None, seed: int = 0) -> list[Sizes]:
        """Return ``count`` different sizes in random order, the least and the greatest among them."""
        wanted = min(count or self.count, len(self.sizes))
        places = np.unique(np.linspace(0, len(self.sizes) - 1, wanted).round().astype(int))
        return [self.sizes[i] for i in np.random.default_rng(seed).permutation(places)]


def path(name: str) -> Path:
    """Return the file of a model, written now if it is not in the cache.

    Raises:
        ModuleNotFoundError: If PyTorch is not installed, or ``transformers``, and the model needs them.
    """
    return cached(f"changing_{name.replace(' ', '_')}", MODELS[name].write)


def cached(stem: str, write: Callable[[Path], None]) -> Path:
    """Return a file of the corpus's folder, written now if it is not there, or not by this code."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for source in ("any_size", "decoders", "detection", "recurrent", "transformer"):
        digest.update((here / "architectures" / f"{source}.py").read_bytes())
    file = corpus.folder() / f"{stem}_{digest.hexdigest()[:12]}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}.part")
        try:
            write(unfinished)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    return file


def _exported(
    builder: str,
    example: Mapping[str, tuple[Sequence[int], int]],
    outputs: Sequence[str],
    axes: Mapping[int, str],
    exporter: str,
    finish: str = "",
) -> Callable[[Path], None]:
    """Return what exports a PyTorch module with symbolic dimensions.

    Args:
        builder: ``module.function`` below ``benchmarks.architectures``.
        example: The shape of every input, and what its integers stay below, or 0 for floats.
        outputs: Their names.
        axes: The symbolic axes of every input.
        exporter: ``torchscript`` or ``dynamo``.
        finish: What changes the model behind the export.
    """

    def write(file: Path) -> None:
        import torch

        from benchmarks.export import enliven

        torch.manual_seed(0)
        module = _named(builder)().eval()
        tensors = tuple(torch.randint(0, n, s) if n else torch.randn(*s) for s, n in example.values())
        enliven(module, tensors)
        usual: dict[str, Any] = {"input_names": list(example), "output_names": list(outputs)}
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporters give advice, which helps nobody here
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            if exporter == "dynamo":
                symbols = {axis: torch.export.Dim(symbol) for axis, symbol in axes.items()}
                torch.onnx.export(
                    module, tensors, file, dynamo=True, verbose=False, external_data=False, opset_version=18,
                    dynamic_shapes=tuple(symbols for _ in tensors), **usual,
                )  # fmt: skip
            else:
                torch.onnx.export(
                    module, tensors, file, dynamo=False, opset_version=17,
                    dynamic_axes={name: dict(axes) for name in example}, **usual,
                )  # fmt: skip
        if finish:
            model = onnx.load(file)
            _named(finish)(model)
            file.write_bytes(model.SerializeToString())

    return write


def _named(name: str) -> Any:
    """Return a function by ``module.function`` below ``benchmarks.architectures``."""
    module, function = name.split(".")
    return getattr(importlib.import_module(f"benchmarks.architectures.{module}"), function)


def _saved(build: Callable[[], onnx.ModelProto]) -> Callable[[Path], None]:
    """Return what writes a model that is built node by node."""
    return lambda file: onnx.save(build(), file)


def _text(sizes: Sizes, rng: np.random.Generator) -> Feeds:
    (length,) = sizes
    return {"input_ids": rng.integers(0, 30522, (1, length)), "attention_mask": np.ones((1, length), np.int64)}


def _prompt(sizes: Sizes, rng: np.random.Generator) -> Feeds:
    (length,) = sizes
    form = PREFILL
    tokens = {"input_ids": rng.integers(0, form.vocabulary, (1, length))}
    places = {"attention_mask": np.ones((1, length), np.int64), "position_ids": np.arange(length)[None]}
    empty = np.zeros((1, form.kv_heads, 0, form.head), np.float32)
    caches = {f"past_key_values.{i}.{kind}": empty for i in range(form.layers) for kind in ("key", "value")}
    return {**tokens, **places, **caches}


def _generation(sizes: Sizes, rng: np.random.Generator) -> Feeds:
    length, steps = sizes
    return {"prompt": rng.integers(0, LOOPED.vocabulary, length), "steps": np.array(steps)}


def _image(sizes: Sizes, rng: np.random.Generator) -> Feeds:
    return {"image": rng.standard_normal((1, 3, *sizes), np.float32)}


def _rows(name: str, columns: int, *before: int) -> Callable[[Sizes, np.random.Generator], Feeds]:
    """Return what makes one input whose rows change in number."""
    return lambda sizes, rng: {name: rng.standard_normal((*before, sizes[0], columns), np.float32)}


def _graph(sizes: Sizes, rng: np.random.Generator) -> Feeds:
    nodes, edges = sizes
    return {"x": rng.standard_normal((nodes, 64), np.float32), "edge_index": rng.integers(0, nodes, (2, edges))}


def _candidates(sizes: Sizes, rng: np.random.Generator) -> Feeds:
    """Return boxes and scores of an image; how many survive depends on what is seen, not on a size."""
    corners = rng.random((1, BOXES, 2), np.float32) * (0.2 + 0.7 * (sizes[0] % 7) / 7)
    boxes = np.concatenate((corners, corners + 0.02 + 0.15 * rng.random((1, BOXES, 2), np.float32)), axis=2)
    rarity = np.float32(20 + sizes[0] % 40)
    return {"boxes": boxes, "scores": rng.random((1, 20, BOXES), np.float32) ** rarity}


PREFILL = decoders.SMALL
LOOPED = dataclasses.replace(decoders.SMALL, layers=2, width=256, heads=4, kv_heads=4, hidden=688, positions=256)
BOXES = 1000


class _Nodes:
    """Writes nodes one after another, with random weights."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._stored: list[onnx.TensorProto] = []
        self._names = (f"v{i}" for i in itertools.count())

    def add(self, op: str, *operands: str, output: str = "", **attributes: Any) -> str:
        name = output or next(self._names)
        self._nodes.append(helper.make_node(op, operands, [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = next(self._names)
        self._stored.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def dense(self, x: str, columns_in: int, columns_out: int) -> str:
        weight = self._rng.standard_normal((columns_in, columns_out)) * (2 / columns_in) ** 0.5
        bias = 0.1 * self._rng.standard_normal(columns_out)
        return self.add("Gemm", x, self.constant(weight, np.float32), self.constant(bias, np.float32))

    def model(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> onnx.ModelProto:
        """Return the model; inputs and outputs as element types and shapes by name."""
        types = [[helper.make_tensor_value_info(n, *t) for n, t in each.items()] for each in (inputs, outputs)]
        graph = helper.make_graph(self._nodes, "changing", *types, self._stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def autoencoder() -> onnx.ModelProto:
    """Build the dense autoencoder of MLPerf Tiny's task of anomaly detection, with a symbolic batch."""
    n, x, before = _Nodes(), "x", 640
    widths = (128, 128, 128, 128, 8, 128, 128, 128, 128, 640)
    for width in widths[:-1]:
        x, before = n.add("Relu", n.dense(x, before, width)), width
    n.add("Identity", n.dense(x, before, widths[-1]), output="y")
    type_ = (TensorProto.FLOAT, ["batch", 640])
    return n.model({"x": type_}, {"y": type_})


def graph_convolution() -> onnx.ModelProto:
    """Build three layers of graph convolution (Kipf and Welling, 2017) with summed messages, nodes and edges symbolic.

    Messages are gathered from the sources and added up at the targets by ScatterElements, as exports of PyTorch do.
    """
    n, x, width = _Nodes(), "x", 64
    sources, targets = (n.add("Gather", "edge_index", n.constant(i), axis=0) for i in (0, 1))
    column = n.add("Unsqueeze", targets, n.constant([1]))
    count = n.add("Shape", "x", start=0, end=1)
    one = n.constant([1.0], np.float32)
    edges = n.add("Shape", targets)
    zeros = n.add("ConstantOfShape", count, value=numpy_helper.from_array(np.zeros(1, np.float32)))
    ones = n.add("Expand", one, edges)
    degree = n.add("Add", n.add("ScatterElements", zeros, targets, ones, axis=0, reduction="add"), one)
    norm = n.add("Unsqueeze", n.add("Reciprocal", degree), n.constant([1]))
    for columns in (128, 128, 16):
        y = n.dense(x, width, columns)
        shape = n.add("Concat", count, n.constant([columns]), axis=0)
        zeros = n.add("ConstantOfShape", shape, value=numpy_helper.from_array(np.zeros(1, np.float32)))
        index = n.add("Expand", column, n.add("Concat", edges, n.constant([columns]), axis=0))
        messages = n.add("Gather", y, sources, axis=0)
        summed = n.add("ScatterElements", zeros, index, messages, axis=0, reduction="add")
        x, width = n.add("Relu", n.add("Mul", n.add("Add", summed, y), norm)), columns
    n.add("Softmax", x, output="y", axis=-1)
    inputs = {"x": (TensorProto.FLOAT, ["nodes", 64]), "edge_index": (TensorProto.INT64, [2, "edges"])}
    return n.model(inputs, {"y": (TensorProto.FLOAT, ["nodes", 16])})


def suppression() -> onnx.ModelProto:
    """Build non-maximum suppression of 1,000 boxes in 20 classes and what stands behind it: gathers, and pixels."""
    n = _Nodes()
    limits = (n.constant([50]), n.constant([0.5], np.float32), n.constant([0.3], np.float32))
    chosen = n.add("NonMaxSuppression", "boxes", "scores", *limits, output="chosen")
    n.add("GatherND", "scores", chosen, output="confidence")
    kept = n.add("GatherND", "boxes", n.add("Gather", chosen, n.constant([0, 2]), axis=1))
    n.add("Clip", n.add("Mul", kept, n.constant(640.0, np.float32)), n.constant(0.0, np.float32), output="pixels")
    inputs = {"boxes": (TensorProto.FLOAT, [1, BOXES, 4]), "scores": (TensorProto.FLOAT, [1, 20, BOXES])}
    found = {"chosen": (TensorProto.INT64, ["k", 3]), "confidence": (TensorProto.FLOAT, ["k"])}
    return n.model(inputs, {**found, "pixels": (TensorProto.FLOAT, ["k", 4])})


def _lengths(first: int, last: int) -> list[Sizes]:
    return [(n,) for n in range(first, last + 1)]


def _images() -> Iterator[Sizes]:
    """Yield 20 heights and widths of photographs, upright and across."""
    for side in (160, 192, 224, 256, 288, 320, 352, 384, 416, 448):
        yield side, side * 3 // 4
        yield side * 2 // 3, side


_TEXTS = {"input_ids": ((2, 12), 30522), "attention_mask": ((2, 12), 2)}
_AXES = {0: "batch", 1: "sequence"}

MODELS: Mapping[str, Changing] = {
    "bert": Changing(
        _exported("transformer.bert", _TEXTS, ("states", "pooled"), _AXES, "dynamo"), _lengths(1, 512), _text, 256
    ),
    "bert_base": Changing(
        _exported("transformer.bert_base", _TEXTS, ("states", "pooled"), _AXES, "dynamo"), _lengths(5, 128), _text, 32
    ),
    "decoder prefill": Changing(_saved(lambda: decoders.optimum(PREFILL)), _lengths(1, 512), _prompt, 32),
    "decoder loop": Changing(
        _saved(lambda: decoders.loop(LOOPED)), [(n, 4 + n % 13) for n in range(1, 33)], _generation, 16
    ),
    "detector": Changing(
        _exported(
            "any_size.Detector", {"image": ((2, 3, 200, 232), 0)}, ("all_boxes", "all_scores"),
            {0: "batch", 2: "height", 3: "width"}, "torchscript", "detection.add_nms",
        ),
        list(_images()), _image,
    ),
    "lstm": Changing(
        _exported(
            "recurrent.BidirectionalLstm", {"features": ((2, 50, 40), 0)}, ("log_probs",),
            {0: "batch", 1: "frames"}, "torchscript",
        ),
        _lengths(10, 300), _rows("features", 40, 1), 60,
    ),
    "graph convolution": Changing(
        _saved(graph_convolution), [(n, 4 * n + 37 * (n % 11)) for n in range(20, 820, 8)], _graph, 50
    ),
    "suppression": Changing(_saved(suppression), _lengths(1, 50), _candidates),
    "autoencoder": Changing(_saved(autoencoder), _lengths(1, 256), _rows("x", 640), 256),
}  # fmt: skip
