"""Accuracy after quantising: signal-to-noise and right answers beside onnxruntime's quantize_static.

Both quantise the same model with the same settings on the same calibration data. onnxruntime gets the model after its
own preprocessing, which folds batch normalisations. Both results are run by onnxruntime without graph optimisations,
which computes what the QuantizeLinear and DequantizeLinear nodes say, and compared with the float model on inputs that
the calibration has not seen. Of the digits model what its Softmax reads is compared: probabilities near 1 hide noise.

A file named ``*.onnx`` is a classifier of text lines that lie upside down or not, as PP-OCR has one (the package
rapidocr-onnxruntime holds it); it reads lines that are drawn here. Of such a model the answers that stay are counted.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import version_converter
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import tinycomp
from benchmarks import corpus, output
from tinycomp.data import digits, digits_model

Feeds = Mapping[str, np.ndarray]
MODELS = ("digits", "resnet18", "mobilenet_v2")
SEEN, UNSEEN = 16, 64
"""Random inputs that models of the corpus are calibrated with and judged by."""


@dataclass(frozen=True)
class Setting:
    """One way to quantise, for both."""

    name: str
    ours: Mapping[str, Any]
    method: CalibrationMethod = CalibrationMethod.MinMax
    activations: QuantType = QuantType.QUInt8
    per_channel: bool = True
    reduce_range: bool = False
    extra: Mapping[str, Any] | None = None


PERCENTILE = 99.99
SETTINGS = (
    Setting("min-max", {}),
    Setting("min-max, per tensor", {"per_channel": False}, per_channel=False),
    Setting("min-max, 7-bit weights", {"reduce_range": True}, reduce_range=True),
    Setting("min-max, int8", {"activations": "int8"}, activations=QuantType.QInt8),
    Setting(
        "min-max, int8 symmetric",
        {"activations": "int8", "symmetric": True},
        activations=QuantType.QInt8,
        extra={"ActivationSymmetric": True},
    ),
    Setting(
        f"percentile {PERCENTILE}",
        {"method": "percentile", "percentile": PERCENTILE},
        CalibrationMethod.Percentile,
        extra={"CalibPercentile": PERCENTILE},
    ),
    Setting("entropy", {"method": "entropy"}, CalibrationMethod.Entropy),
)
OURS_ALONE: Mapping[str, Mapping[str, Any]] = {
    "mse": {"method": "mse"},
    "mse, last 3 conv in float": {"method": "mse", "keep_float": "last 3 conv"},
    "min-max, per tensor, equalised": {"per_channel": False, "equalize": True},
}
"""What onnxruntime has no counterpart for."""


@dataclass(frozen=True)
class Task:
    """A model with the data to calibrate it and to judge it by.

    Attributes:
        model: In float32.
        seen: Calibration inputs.
        unseen: What both results are run on.
        labels: The right answers, where there are any.
        compared: The value that is compared with the float model's; empty for the model's output.
    """

    model: Path
    seen: Sequence[Feeds]
    unseen: Sequence[Feeds]
    labels: np.ndarray | None = None
    compared: str = ""


def task(name: str) -> Task:
    """The task of one of :data:`MODELS`, or of another model of the corpus."""
    if name.endswith(".onnx"):
        (image,) = ort.InferenceSession(name, providers=["CPUExecutionProvider"]).get_inputs()
        seen, unseen = ([{image.name: text_line(seed)} for seed in range(*ends)] for ends in ((0, 64), (1000, 1400)))
        return Task(Path(name), seen, unseen, np.arange(1000, 1400) % 2)
    if name != "digits":
        seen = [corpus.feeds(name, 1000 + seed) for seed in range(SEEN)]
        return Task(corpus.path(name), seen, [corpus.feeds(name, seed) for seed in range(UNSEEN)])
    from benchmarks.train_digits import splits

    training, _, _ = splits()
    images, labels = digits()
    batches = [{"image": training.scaled[start : start + 50]} for start in range(0, 1000, 50)]
    return Task(digits_model(), batches, [{"image": images}], labels, "dense:0")


def text_line(seed: int) -> np.ndarray:
    """A drawn line of text, float32 [1, 3, 48, 192] from -1 to 1; those of odd seeds are upside down."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (192, 48), tuple(rng.integers(140, 256, 3).tolist()))
    characters = "ABCDEFGHJKLMNPRSTUVWXYZabcdefghkmnprstuvwxyz0123456789 "
    text = "".join(rng.choice([*characters], int(rng.integers(4, 12))))
    font = ImageFont.load_default(size=int(rng.integers(16, 34)))
    place = (int(rng.integers(0, 40)), int(rng.integers(0, 10)))
    ImageDraw.Draw(image).text(place, text, fill=tuple(rng.integers(0, 110, 3).tolist()), font=font)
    pixels = np.asarray(image) + rng.normal(0, 6, (48, 192, 3))
    turned = pixels[::-1, ::-1] if seed % 2 else pixels
    return np.ascontiguousarray((turned / 127.5 - 1).transpose(2, 0, 1)[None], np.float32)


class _Reader(CalibrationDataReader):
    def __init__(self, feeds: Iterable[Feeds]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feeds | None:
        return next(self._feeds, None)


def by_tinycomp(given: Task, options: Mapping[str, Any]) -> onnx.ModelProto:
    """Quantise with tinycomp."""
    return tinycomp.quantize(given.model, given.seen, **options)


def by_onnxruntime(given: Task, setting: Setting) -> onnx.ModelProto:
    """Quantise with quantize_static."""
    options = {"WeightSymmetric": True, **(setting.extra or {})}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger().setLevel(logging.ERROR)
        prepared, quantised = Path(folder, "prepared.onnx"), Path(folder, "quantised.onnx")
        model = onnx.load(given.model)
        onnx.save(_with_axes(model), prepared)
        # Its inference over symbols fails at models of opsets before 13 whose sizes are open.
        quant_pre_process(str(prepared), str(prepared), auto_merge=True, skip_symbolic_shape=_is_old(model))
        quantize_static(
            str(prepared),
            str(quantised),
            _Reader(given.seen),
            quant_format=QuantFormat.QDQ,
            per_channel=setting.per_channel,
            reduce_range=setting.reduce_range,
            activation_type=setting.activations,
            weight_type=QuantType.QInt8,
            calibrate_method=setting.method,
            extra_options=options,
        )
        return onnx.load(quantised)


def _with_axes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that has scales per channel, which quantize_static does not see to."""
    return version_converter.convert_version(model, 17) if _is_old(model) else model


def _is_old(model: onnx.ModelProto) -> bool:
    return any(each.version < 13 for each in model.opset_import if not each.domain)


def run(model: onnx.ModelProto, given: Task) -> list[np.ndarray]:
    """The compared value for every unseen input, exactly as the nodes say."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(
        _ending_at(model, given.compared).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [session.run(None, dict(feeds))[0] for feeds in given.unseen]


def _ending_at(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with what stands for a value as its output: behind the last rounding, if the value is rounded."""
    if not name:
        return model
    ended = onnx.ModelProto()
    ended.CopyFrom(model)
    (softmax,) = (node for node in ended.graph.node if node.op_type == "Softmax")
    del ended.graph.output[:]
    ended.graph.output.append(onnx.ValueInfoProto(name=softmax.input[0]))
    return ended


def decibels(exact: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> float:
    """The signal-to-noise ratio over all outputs."""
    signal = sum(float((a.astype(np.float64) ** 2).sum()) for a in exact)
    noise = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(exact, found, strict=True))
    return 10 * float(np.log10(signal / noise))


def judge(given: Task, exact: Sequence[np.ndarray], make: Callable[[], onnx.ModelProto]) -> dict[str, float]:
    """Quantise, run, and compare."""
    start = time.perf_counter()
    model = make()
    seconds = time.perf_counter() - start
    found = run(model, given)
    row = {"decibels": decibels(exact, found), "seconds": seconds, "bytes": model.ByteSize()}
    if given.labels is not None:
        answers, wanted = (np.concatenate(each).argmax(axis=1) for each in (found, exact))
        row["accuracy"] = float((answers == given.labels).mean())
        row["kept"] = float((answers == wanted).mean())
    return row


def measure(name: str, settings: Sequence[Setting], alone: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one model."""
    given = task(name)
    exact = run(onnx.load(given.model), given)
    name, rows = given.model.stem if name.endswith(".onnx") else name, []
    for setting in settings:
        plain = {**setting.ours, "bias_correction": False}
        row = {"model": name, "setting": setting.name}
        row["tinycomp"] = judge(given, exact, lambda options=setting.ours: by_tinycomp(given, options))
        row["uncorrected"] = judge(given, exact, lambda options=plain: by_tinycomp(given, options))
        row["onnxruntime"] = judge(given, exact, lambda setting=setting: by_onnxruntime(given, setting))
        rows.append(row)
        print(line(row), flush=True)
    for label, options in alone.items():
        ours = judge(given, exact, lambda options=options: by_tinycomp(given, options))
        rows.append({"model": name, "setting": label, "tinycomp": ours, "uncorrected": None, "onnxruntime": None})
        print(line(rows[-1]), flush=True)
    return rows


COLUMNS = ("tinycomp", "uncorrected", "onnxruntime")
HEAD = (
    "| model | setting | tinycomp, dB | without bias correction, dB | onnxruntime, dB "
    "| tinycomp, right | without, right | onnxruntime, right | tinycomp, kept | without, kept | onnxruntime, kept |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def line(row: Mapping[str, Any]) -> str:
    """A row as Markdown."""
    results = [row[column] for column in COLUMNS]
    cells = [f"{each['decibels']:.2f}" if each else "" for each in results]
    for share in ("accuracy", "kept"):
        cells += [f"{each[share]:.1%}" if each and share in each else "" for each in results]
    return "| " + " | ".join([row["model"], row["setting"], *cells]) + " |"


def main(arguments: list[str] | None = None) -> int:
    """Quantise, print the table; the exit status is 1 if onnxruntime's result is better anywhere."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks quantization", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "models", nargs="*", default=list(MODELS), metavar="name", help="digits, of the corpus, or a file: see above"
    )
    parser.add_argument("--quick", action="store_true", help="only the first two settings of the digits model")
    output.add_option(parser)
    options = parser.parse_args(arguments)
    models = ["digits"] if options.quick else options.models
    settings, alone = (SETTINGS[:2], {}) if options.quick else (SETTINGS, OURS_ALONE)
    print(HEAD, flush=True)
    rows = [row for name in models for row in measure(name, settings, alone)]
    found = output.record(
        "quantization",
        output.command_line("quantization", arguments),
        {"calibration": SEEN, "judged": UNSEEN, "percentile": PERCENTILE},
        rows,
    )
    output.save(options.output, found, "\n".join([HEAD, *map(line, rows)]))
    return int(any(worse(row) for row in rows))


def worse(row: Mapping[str, Any]) -> bool:
    """Whether onnxruntime's result is better."""
    ours, theirs = row["tinycomp"], row["onnxruntime"]
    if theirs is None:
        return False
    return bool(ours["decibels"] < theirs["decibels"] or ours.get("accuracy", 1) < theirs.get("accuracy", 0))


if __name__ == "__main__":
    raise SystemExit(main())
