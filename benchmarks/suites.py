"""Named sets of models: architectures of the corpus, and files of the folder that ``TINYCOMP_MODELS`` names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks import corpus, quantized
from benchmarks.feeds import random_feeds
from benchmarks.peers import Feeds

VARIABLE = "TINYCOMP_MODELS"
HEADLINE = (
    "resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2", "efficientnet_b0", "unet", "yolov8n", "bert_base",
    "gpt2_small", "vit_tiny", "convnext_tiny", "segformer_b0", "whisper_encoder", "lstm_bidir",
)  # fmt: skip
"""One of every kind that the corpus has, at the size that people use."""
TINY = ("ic_resnet8_fp32", "kws_dscnn_fp32", "ad_autoencoder_fp32", "vww_mobilenet_fp32")
"""The float32 models of MLPerf Tiny, as ONNX files of these names."""
INT8 = ("resnet50", "mobilenet_v2")
"""What the suite of int8 models has of the corpus, quantised by tinycomp."""
TINY_INT8 = ("ic_resnet8_int8", "kws_dscnn_int8", "ad_autoencoder_int8", "vww_mobilenet_int8")
"""The int8 models of MLPerf Tiny, as ONNX files of these names."""
DYNAMIC = ("resnet18", "mobilenet_v2", "tcn", "bert", "gpt2_small", "lstm_bidir", "gru_tagger")
"""What the suite of dynamically quantised models has of the corpus."""
NAMES = ("headline", "quick", "corpus", "int8", "dynamic")
QUICK = ("resnet18", "mobilenet_v2", "vit_tiny", "lstm_bidir")


def members(suite: str) -> list[str]:
    """The models of a suite: names of the corpus, and paths of files.

    ``headline`` holds :data:`HEADLINE`, and :data:`TINY` where ``TINYCOMP_MODELS`` names a folder with them; ``quick``
    a few of both; ``corpus`` all architectures of the corpus; ``int8`` :data:`INT8` and :data:`TINY_INT8`; ``dynamic``
    :data:`DYNAMIC`.
    """
    if suite == "corpus":
        return corpus.names()
    if suite == "int8":
        return [*(f"{name}{quantized.SUFFIX}" for name in INT8), *tiny_files(TINY_INT8)]
    if suite == "dynamic":
        return [f"{name}{quantized.DYNAMIC}" for name in DYNAMIC]
    return [*HEADLINE, *tiny_files()] if suite == "headline" else [*QUICK, *tiny_files()[:2]]


def tiny_files(names: Iterable[str] = TINY) -> list[str]:
    """The paths of the tiny models that are at hand."""
    folder = os.environ.get(VARIABLE)
    files = [Path(folder) / f"{name}.onnx" for name in names] if folder else []
    return [str(file) for file in files if file.exists()]


def model(name: str, sizes: Mapping[str, int] | None = None, seed: int = 0) -> tuple[Path, Feeds]:
    """The file of a model and inputs for it.

    Args:
        name: Of the corpus, the same with ``-int8`` or ``-dynamic`` behind it, or the path of an ONNX file.
        sizes: Sizes of a file's symbolic dimensions; 1 where not given.
        seed: Chooses the inputs.
    """
    if name in corpus.names():
        return corpus.path(name), corpus.feeds(name, seed)
    for suffix in (quantized.SUFFIX, quantized.DYNAMIC):
        if name.removesuffix(suffix) in corpus.names():
            return quantized.path(name), corpus.feeds(name.removesuffix(suffix), seed)
    return Path(name), random_feeds(Path(name), sizes, seed)
