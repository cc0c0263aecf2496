"""``tinycomp quantize``."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import tinycomp
from tinycomp.cli.exits import FAILED, OK, UsageError
from tinycomp.cli.feeds import CalibrationFiles
from tinycomp.cli.models import load_graph, model_path
from tinycomp.cli.options import add_model, add_options, complete_with, positive
from tinycomp.cli.session import Command, Session
from tinycomp.driver.lowering import specs
from tinycomp.quantization import METHODS, WEIGHT_METHODS, noise, violations
from tinycomp.quantization.options import Activations
from tinycomp.runtime.files import write_file
from tinycomp.runtime.report import violation_table
from tinycomp.target.lookup import names

_EXAMPLE = """\
tinycomp quantize model.onnx --calibration images/ -o model-int8.onnx
tinycomp quantize model.onnx --calibration images/ --method mse --keep-float "last 3 conv" -o mixed.onnx
tinycomp quantize digits --calibration digits --noise
tinycomp quantize model.onnx --calibration images/ --target ethos_u -o model-npu.onnx
tinycomp quantize model-int8.onnx --check --target ethos_u
tinycomp quantize decoder.onnx --weights int4 --block 32 -o decoder-int4.onnx"""


def _configure(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "shapes")
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="PATH",
        help="inputs as the model will see them: a folder of .npy or .npz files, or one such file; "
        '"digits" for the images that come with tinycomp; may be left out for int4 weights',
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write the quantised .onnx file")
    rules = parser.add_argument_group("rules of a target", "for example: --target npu_sim --check")
    target = rules.add_argument(
        "--target", metavar="NAME[:OPTION=VALUE,…]", help="the target that the model is for, whose rules are obeyed"
    )
    complete_with(target, lambda prefix: [name for name in names() if name.startswith(prefix)])
    rules.add_argument(
        "--check", action="store_true",
        help="write nothing: name the layers of a quantised model that the target's rules do not allow",
    )  # fmt: skip
    int4 = parser.add_argument_group("weights of 4 bits", "for example: --weights int4 --block 32 --accuracy-level 4")
    int4.add_argument(
        "--weights", choices=("int8", "int4"), default="int8", help="with int4 nothing but weights (default: int8)"
    )
    int4.add_argument("--block", type=int, default=32, metavar="N", help="int4 weights with one scale (default: 32)")
    int4.add_argument(
        "--accuracy-level", type=int, default=0, metavar="N",
        help="of products with int4 weights: 1 for float32 data, 4 allows data of 8 bits (default: 0, either)",
    )  # fmt: skip
    ranges = parser.add_argument_group("ranges and scales", "for example: --method percentile --percentile 99.99")
    ranges.add_argument(
        "--method", choices=tuple(dict.fromkeys((*METHODS, *WEIGHT_METHODS))),
        help="how ranges are chosen (default: minmax; mse for int4 weights)",
    )  # fmt: skip
    ranges.add_argument(
        "--percentile", type=float, metavar="P", help="for that method: what a range holds (default: 99.999)"
    )
    ranges.add_argument(
        "--activations", choices=get_args(Activations),
        help="how data are stored (default: uint8, or what the target wants)",
    )  # fmt: skip
    ranges.add_argument(
        "--symmetric", action=BooleanOptionalAction,
        help="zero points of activations, or of int4 weights, in the middle (default: for int4 weights only)",
    )  # fmt: skip
    ranges.add_argument("--per-tensor", action="store_true", help="one scale per weight, not one per channel")
    ranges.add_argument("--reduce-range", action="store_true", help="7-bit weights, for engines that saturate")
    accuracy = parser.add_argument_group("accuracy", 'for example: --equalize --keep-float "last 2 conv", or --noise')
    accuracy.add_argument("--no-bias-correction", action="store_true", help="leave biases as they are")
    accuracy.add_argument("--equalize", action="store_true", help="even out the channels between layers first")
    accuracy.add_argument(
        "--keep-float", action="append", default=[], metavar="WHICH",
        help='layers that stay in float: a name, a pattern, an operator, or a text such as "last 3 conv"',
    )  # fmt: skip
    accuracy.add_argument("--noise", action="store_true", help="show how much noise every layer brings in")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of a run (default: all it may use)")


def _run(options: Namespace, session: Session) -> int:
    if options.check:
        return _check(options, session)
    if options.output is None and not options.noise:
        raise UsageError(
            "there is nothing to do", expected="-o FILE.onnx, --noise, or both", hint="Name a file to write."
        )
    if options.weights == "int8" and not options.calibration:
        raise UsageError("the following arguments are required: --calibration", hint="Or quantise --weights int4.")
    if options.weights == "int4" and options.noise:
        raise UsageError("--noise does not go with these weights", expected="--weights int8")
    graph = load_graph(options)
    inputs = specs([v.name for v in graph.inputs], graph.inputs)
    data = CalibrationFiles(options.calibration, inputs) if options.calibration else None
    given = {name: value for name, value in _options(options).items() if value is not None}
    chosen = {**given, "progress": False if session.as_json else None}
    summary: dict[str, Any] = {}
    if options.noise and data is not None:
        table = noise(graph, data, **chosen)
        session.show(str(table))
        summary["noise"] = table.to_dict()
    if options.output is not None:
        form = {"weights": options.weights, "block": options.block, "accuracy_level": options.accuracy_level}
        model = tinycomp.quantize(graph, data, **chosen, **form).SerializeToString()
        write_file(options.output, model)
        before = model_path(options.model).stat().st_size
        session.show(f"Wrote {options.output}: {len(model):,} bytes, {len(model) / before:.0%} of {options.model}.")
        summary |= {"output": options.output, "bytes": len(model), "bytes_before": before}
    session.result(summary)
    return OK


def _check(options: Namespace, session: Session) -> int:
    others = {"-o": options.output, "--calibration": options.calibration, "--noise": options.noise}
    given = [name for name, value in others.items() if value]
    if options.target is None or given:
        expected = "--check --target NAME" if options.target is None else f"--check without {' and '.join(given)}"
        raise UsageError("--check looks at a quantised model", expected=expected)
    rows = violations(load_graph(options), options.target)
    if rows:
        session.show(violation_table(rows))
    count = len({row.layer for row in rows})
    about = f"{count} layer(s) do not obey" if count else "Every quantised layer obeys"
    session.show(f"{about} the rules of {options.target}.")
    session.result({"violations": [asdict(row) for row in rows]})
    return FAILED if rows else OK


def _options(options: Namespace) -> dict[str, Any]:
    return {
        "method": options.method,
        "activations": options.activations,
        "symmetric": options.symmetric,
        "per_channel": not options.per_tensor,
        "reduce_range": options.reduce_range,
        "bias_correction": not options.no_bias_correction,
        "equalize": options.equalize,
        "keep_float": options.keep_float,
        "percentile": options.percentile,
        "threads": options.threads,
        "target": options.target,
    }


COMMAND = Command(_EXAMPLE, _configure, _run)
