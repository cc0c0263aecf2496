"""Attributes that must be one of a few words or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tinycomp.errors import did_you_mean
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ops.facts import Facts
from tinycomp.ops.resize import NEAREST_MODES, TRANSFORM_MODES
from tinycomp.ops.spatial import AUTO_PADS

_DTYPES = tuple(NUMBER_BY_DTYPE.values())
_WINDOWED = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool")
_MAKERS = (
    "Bernoulli", "EyeLike", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"
)  # fmt: skip

_CHOICES: Mapping[str, Mapping[str, Sequence[object]]] = {
    **{key: {"auto_pad": AUTO_PADS} for key in _WINDOWED},
    **{key: {"dtype": _DTYPES} for key in _MAKERS},
    **{key: {"reduction": ("none", "add", "mul", "max", "min")} for key in ("ScatterElements", "ScatterND")},
    **{key: {"reduction": ("none", "sum", "mean")} for key in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "Cast": {"to": _DTYPES},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("bilinear", "linear", "nearest", "bicubic", "cubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "LpNormalization": {"p": (1, 2)},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "coordinate_transformation_mode": TRANSFORM_MODES,
        "nearest_mode": NEAREST_MODES,
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    },
    "RoiAlign": {
        "mode": ("avg", "max"),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    },
    "Upsample": {"mode": ("nearest", "linear", "bilinear")},
}


def _choice(known: Mapping[str, Sequence[object]]) -> Callable[[Facts], None]:
    def check(facts: Facts) -> None:
        for name, words in known.items():
            value = facts.attr(name)
            # Operators before opset 6 name dtypes by text; inference knows those.
            if value is None or value in words or (name in ("to", "dtype") and isinstance(value, str)):
                continue
            texts = [str(w) for w in words]
            shown = texts if len(texts) < 12 else [*texts[:3], "…", texts[-1]]
            hint = did_you_mean(str(value), texts) if isinstance(value, str) else ""
            facts.fail(f"unknown {name}", expected=f"one of {', '.join(shown)}", found=repr(value), hint=hint)

    return check


CHECKS = {op: _choice(known) for op, known in _CHOICES.items()}
