"""A corpus of well-known architectures as ONNX files, exported from PyTorch when first asked for.

Weights are random but seeded, and batch normalisations have the statistics of the activations that they see, so that
every layer passes on a signal that matters. Nothing is downloaded. Files lie in the user's cache folder, or where the
environment variable ``TINYCOMP_CORPUS`` says, under a key made of the exporting code and the PyTorch version.

Command line: ``python -m benchmarks.corpus [--dynamic-batch] [--list] [names]`` exports the named models, or all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

__all__ = ["Architecture", "Input", "architecture", "feeds", "folder", "names", "path"]


@dataclass(frozen=True)
class Input:
    """One input of a model: its shape for batch 1, and what to feed it.

    Floats are drawn from a normal distribution. With ``below`` set, the input holds integers from 0 to ``below - 1``;
    a mask (``below=2``) holds ones, then at most a quarter of zeros at the end, as padding does.
    """

    name: str
    shape: tuple[int, ...]
    below: int = 0

    def sample(self, rng: np.random.Generator, batch: int = 1) -> NDArray[np.generic]:
        """A random value, float32 or int64, with the given batch."""
        shape = (batch, *self.shape[1:])
        if not self.below:
            return rng.standard_normal(shape, dtype=np.float32)
        if self.below > 2:
            return rng.integers(0, self.below, shape)
        kept = rng.integers(shape[1] * 3 // 4, shape[1] + 1, (batch, 1))
        return (np.arange(shape[1]) < kept).astype(np.int64)


@dataclass(frozen=True)
class Architecture:
    """What is needed to build, export and feed one model.

    Attributes:
        builder: ``module.function`` below ``benchmarks.architectures`` that returns the PyTorch module.
        inputs: The inputs, in the order of the module's arguments.
        outputs: The names of the outputs.
        exporter: ``torchscript`` keeps batch normalisations as nodes and names nodes after modules; ``dynamo`` is what
            PyTorch recommends today, and what its users send.
        finish: ``module.function`` that changes the exported ModelProto in place, for what PyTorch cannot express.
    """

    builder: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...] = ("logits",)
    exporter: str = "torchscript"
    finish: str = ""


IMAGE = (Input("image", (1, 3, 224, 224)),)
TEXT = (Input("input_ids", (1, 128), below=30522), Input("attention_mask", (1, 128), below=2))
SHORT_TEXT = (Input("input_ids", (1, 64), below=8000), Input("attention_mask", (1, 64), below=2))
TWO_TEXTS = (*SHORT_TEXT, Input("decoder_input_ids", (1, 24), below=8000))
FROM_TRANSFORMERS = ("language", "perception", "transformer")
"""The families that the ``transformers`` package builds."""

ARCHITECTURES = {
    "resnet18": Architecture("classifiers.resnet18", IMAGE),
    "resnet50": Architecture("classifiers.resnet50", IMAGE),
    "mobilenet_v1": Architecture("classifiers.mobilenet_v1", IMAGE),
    "mobilenet_v2": Architecture("classifiers.mobilenet_v2", IMAGE),
    "efficientnet_b0": Architecture("classifiers.efficientnet_b0", IMAGE),
    "convnext_tiny": Architecture("transformer.convnext_tiny", IMAGE),
    "unet": Architecture("segmentation.UNet", (Input("image", (1, 3, 192, 192)),), ("mask",)),
    "segformer_b0": Architecture("transformer.segformer_b0", (Input("image", (1, 3, 512, 512)),)),
    "yolov8n": Architecture("detection.YoloNano", (Input("image", (1, 3, 320, 320)),), ("detections",)),
    "ssd_nms": Architecture(
        "detection.Ssd",
        (Input("image", (1, 3, 320, 320)),),
        ("all_boxes", "all_scores"),
        finish="detection.add_nms",
    ),
    "bert": Architecture("transformer.bert", TEXT, ("states", "pooled"), "dynamo"),
    "bert_base": Architecture("transformer.bert_base", TEXT, ("states", "pooled"), "dynamo"),
    "vit_tiny": Architecture("transformer.vit_tiny", IMAGE, exporter="dynamo"),
    "gpt2_small": Architecture(
        "transformer.gpt2_small", (Input("input_ids", (1, 32), below=50257),), exporter="dynamo"
    ),
    "whisper_encoder": Architecture(
        "transformer.whisper_encoder", (Input("mel", (1, 80, 3000)),), ("states",), "dynamo"
    ),
    "lstm_bidir": Architecture("recurrent.BidirectionalLstm", (Input("features", (1, 100, 40)),), ("log_probs",)),
    "densenet121": Architecture("branched.densenet121", IMAGE),
    "shufflenet_v2": Architecture("branched.shufflenet_v2", IMAGE),
    "inception": Architecture("branched.inception", IMAGE),
    "regnet_y_400mf": Architecture("branched.regnet_y_400mf", IMAGE, exporter="dynamo"),
    "gru_tagger": Architecture("sequence.GruTagger", (Input("tokens", (1, 50), below=2000),), ("tags",)),
    "tcn": Architecture("sequence.TemporalConv", (Input("features", (1, 32, 200)),), exporter="dynamo"),
    "mlp_mixer": Architecture("sequence.Mixer", IMAGE, exporter="dynamo"),
    "diffusion_unet": Architecture(
        "diffusion.Denoiser",
        (Input("latents", (1, 4, 32, 32)), Input("steps", (1,)), Input("context", (1, 16, 96))),
        ("noise",),
        "dynamo",
    ),
    "llama": Architecture(
        "llama.LlamaStep",
        (Input("tokens", (1, 4), below=8000), *(Input(name, (1, 4, 2, 60, 32)) for name in ("keys", "values"))),
        ("logits", "new_keys", "new_values"),
        "dynamo",
    ),
    "distilbert": Architecture("language.distilbert", SHORT_TEXT, ("states",)),
    "albert": Architecture("language.albert", SHORT_TEXT, ("states",), "dynamo"),
    "mobilebert": Architecture("language.mobilebert", SHORT_TEXT, ("states",), "dynamo"),
    "t5": Architecture("language.t5", TWO_TEXTS),
    "bart": Architecture("language.bart", TWO_TEXTS, exporter="dynamo"),
    "clip": Architecture("perception.clip", (*IMAGE, *SHORT_TEXT), ("image_embedding", "text_embedding"), "dynamo"),
    "deit_tiny": Architecture("perception.deit_tiny", IMAGE),
    "swin": Architecture("perception.swin", IMAGE, exporter="dynamo"),
    "wav2vec2": Architecture("perception.wav2vec2", (Input("waveform", (1, 16000)),), exporter="dynamo"),
}


def names() -> list[str]:
    """The models of the corpus."""
    return list(ARCHITECTURES)


def architecture(name: str) -> Architecture:
    """Look a model up.

    Raises:
        KeyError: There is no such model; the message lists those that there are.
    """
    try:
        return ARCHITECTURES[name]
    except KeyError:
        raise KeyError(f"no model {name!r} in the corpus; there are {', '.join(ARCHITECTURES)}") from None


def path(name: str, dynamic_batch: bool = False) -> Path:
    """The ONNX file of a model, exported and verified now if it is not in the cache.

    Args:
        name: One of ``names()``.
        dynamic_batch: Leave the batch symbolic (``batch``) instead of 1.

    Raises:
        KeyError: There is no such model.
        ModuleNotFoundError: PyTorch, or the ``transformers`` package for a model that needs it, is not installed.
    """
    wanted = architecture(name)
    file = folder() / f"{name}{'_dynamic' if dynamic_batch else ''}_{_key(wanted)}.onnx"
    if not file.exists():
        from benchmarks.export import export

        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}.part")
        try:
            export(wanted, unfinished, dynamic_batch)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    return file


def feeds(name: str, seed: int = 0, batch: int = 1) -> dict[str, NDArray[np.generic]]:
    """Random inputs for a model; the same seed gives the same values.

    Args:
        name: One of ``names()``.
        seed: Chooses the values.
        batch: More than 1 only for a model with a symbolic batch.
    """
    rng = np.random.default_rng(seed)
    return {wanted.name: wanted.sample(rng, batch) for wanted in architecture(name).inputs}


def folder() -> Path:
    """Return where the files lie."""
    chosen = os.environ.get("TINYCOMP_CORPUS")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("tinycomp")) / "corpus"


def _key(wanted: Architecture) -> str:
    """Changes with the description, the code that builds and exports the model, and the libraries that it uses."""
    here = Path(__file__).resolve().parent
    family = wanted.builder.split(".")[0]
    digest = hashlib.sha256(repr(wanted).encode())
    for source in (here / "export.py", here / "architectures" / "blocks.py", here / "architectures" / f"{family}.py"):
        digest.update(source.read_bytes())
    for library in ["torch", *(["transformers"] if family in FROM_TRANSFORMERS else [])]:
        digest.update(_version(library).encode())
    return digest.hexdigest()[:12]


def _version(library: str) -> str:
    try:
        return f"{library} {metadata.version(library)} "
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(f"the corpus is exported by {library}; pip install {library}") from None


def main(arguments: Iterable[str] | None = None) -> None:
    """Export models and report their sizes and export times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description="Export the model corpus.")
    parser.add_argument("names", nargs="*", metavar="name", help="models to export (default: all)")
    parser.add_argument("--dynamic-batch", action="store_true", help="leave the batch symbolic")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.list:
        print("\n".join(names()))
        return
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"no model {unknown[0]!r} in the corpus; --list shows what there is")
    chosen = options.names or names()
    for position, name in enumerate(chosen, 1):
        print(f"[{position}/{len(chosen)}] {name:<16}", end=" ", flush=True)
        start = time.perf_counter()
        file = path(name, options.dynamic_batch)
        seconds = time.perf_counter() - start
        print(f"{file.stat().st_size / 1e6:8.1f} MB {seconds:7.1f} s  {file}", flush=True)


if __name__ == "__main__":
    main()
