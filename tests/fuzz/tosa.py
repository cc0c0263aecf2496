"""Random quantised networks in TOSA's reference model have the bits of the C target's fixed-point rule.

The C target gets the layers as they are legalised for TOSA: padded means are integers there, and by themselves float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

import tinycomp
from tests.fuzz.harness import Harness, WrongError
from tests.fuzz.peers import Results
from tests.targets.quantized_models import FIXED_POINT_LAYERS, random_model
from tinycomp.driver.pipeline import optimisation_passes
from tinycomp.passes.legalize import Legalize

OURS = "c:requantize=fixed_point"


def case(seed: int) -> tuple[onnx.ModelProto, Results]:
    """Return the network of a seed."""
    return random_model(seed, layers=FIXED_POINT_LAYERS)


def check_model(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Counter[str]:
    """Run a quantised network with as much of it in TOSA as there can be, and without.

    Returns:
        How many networks there were, and how many layers and regions in TOSA.

    Raises:
        WrongError: If a result is another.
    """
    module = tinycomp.compile(model, ["tosa", OURS], threads=1)
    legalised = tinycomp.Pipeline([*optimisation_passes(), Legalize("tosa")])(tinycomp.from_onnx(model))
    found, wanted = (each.run(dict(feeds)) for each in (module, tinycomp.compile(legalised, OURS, threads=1)))
    for name, right in wanted.items():
        if not np.array_equal(found[name], right):
            raise WrongError(f"TOSA differs in {int((found[name] != right).sum())} numbers of {name}")
    regions = [row for row in module.report().regions if row.target == "tosa"]
    return Counter(equal=1, regions=len(regions), layers=sum(sum(row.composites.values()) for row in regions))


def save(seed: int, folder: Path, stem: str) -> None:
    model, feeds = case(seed)
    onnx.save(model, folder / f"{stem}.onnx")
    np.savez(folder / f"{stem}.npz", **feeds)


HARNESS = Harness("tosa", lambda seed: check_model(*case(seed)), save)
