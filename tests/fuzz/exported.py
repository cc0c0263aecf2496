"""Random models as C projects, built with the sanitizers: their results are those of the module, or nobody writes one.

``python -m tests.fuzz.exported --count 60`` takes models of ONNX's own tests instead, drawn by ``--seed``. With ``--cpu
generic-be`` or ``armv8-a`` projects of either kind (``--random``) are run by an emulator, without the sanitizers.

Every third random model is a quantised network, and half of all are planned for the least memory. The module runs on
plain C, as the project does, so that what magnifies roundings magnifies the same ones.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

import tinycomp
from tests.fuzz.corpus import small_models
from tests.fuzz.harness import Harness, WrongError
from tests.fuzz.models import random_model
from tests.targets.quantized_models import random_model as quantized_model
from tinycomp.checking import random_feeds
from tinycomp.errors import TinycompError, TinycompWarning, UnsupportedError
from tinycomp.export_c import to_c
from tinycomp.export_c.trial import run_trial

OPTIONS = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SELECTED = "TINYCOMP_ISA"


def case(seed: int) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Return a model and its inputs."""
    if seed % 3 == 0:
        return quantized_model(seed // 3, integer_only=False)
    sample = random_model(seed)
    return sample.model, sample.feeds


def check_model(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], memory: str = "fast", cpu: str = "generic"
) -> Counter[str]:
    """Export a model, build the project, with the sanitizers where it runs here, and run its test.

    Returns:
        Whether it was exported, or of what kind the reason against that was.

    Raises:
        WrongError: If the test finds other results than the module's, or the sanitizers find a fault.
    """
    before = os.environ.get(SELECTED)
    os.environ[SELECTED] = "scalar"
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", TinycompWarning)
            shapes = {name: array.shape for name, array in feeds.items()}
            module = tinycomp.compile(model, "c", shapes=shapes, threads=1, options={"c": {"memory": memory}})
            try:
                project = to_c(module, cpu, feeds=[feeds[spec.name] for spec in module.inputs])
            except UnsupportedError as error:
                return Counter({"refused": 1, f"refused, {error.message.split(':')[0]}": 1})
    finally:
        if before is None:
            del os.environ[SELECTED]
        else:
            os.environ[SELECTED] = before
    trial = run_trial(project, *(("-O1",) if project.processor.emulator else OPTIONS))
    if not trial.passed:
        raise WrongError(f"the project's test failed: {trial.output[-1500:]}")
    return Counter(exported=1, calls=len(project.kernels))


def save(seed: int, folder: Path, stem: str) -> None:
    """Write the model and its inputs."""
    model, feeds = case(seed)
    onnx.save(model, folder / f"{stem}.onnx")
    np.savez(folder / f"{stem}.npz", **feeds)


def own_models(count: int, seed: int, cpu: str = "generic") -> Counter[str]:
    """Export models of ONNX's tests with random inputs until there are ``count`` projects, or no models left."""
    facts: Counter[str] = Counter()
    for data in random.Random(seed).sample(small_models(), len(small_models())):
        if facts["exported"] >= count:
            break
        try:
            model = onnx.load_model_from_string(data)
            specs = tinycomp.compile(model, "host", passes=[]).inputs
            feeds = {spec.name: array for spec, array in zip(specs, random_feeds(specs, seed).values(), strict=True)}
            facts += check_model(model, {name: np.asarray(array) for name, array in feeds.items()}, cpu=cpu)
        except TinycompError:
            facts["does not run on random inputs"] += 1
        except WrongError as error:
            facts["wrong"] += 1
            print(f"{model.graph.name}: {error}", flush=True)
    return facts


def random_models(count: int, seed: int, cpu: str) -> Counter[str]:
    """Export so many random models."""
    facts: Counter[str] = Counter()
    for each in range(seed, seed + count):
        try:
            facts += check_seed(each, cpu)
        except (WrongError, TinycompError) as error:
            facts["wrong"] += 1
            print(f"seed {each}: {error}", flush=True)
    return facts


def check_seed(seed: int, cpu: str = "generic") -> Counter[str]:
    """Check a random model, every other one planned for the least memory."""
    return check_model(*case(seed), memory=("fast", "least")[seed // 3 % 2], cpu=cpu)


HARNESS = Harness("exported", check_seed, save, seconds=300.0, memory=1 << 46)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.exported", description="Export models of ONNX's tests.")
    parser.add_argument("--count", type=int, default=60, help="how many projects to build (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice and of the inputs (default: 0)")
    parser.add_argument("--cpu", default="generic", help="what they are for (default: generic)")
    parser.add_argument("--random", action="store_true", help="export random models instead")
    options = parser.parse_args()
    seen = (random_models if options.random else own_models)(options.count, options.seed, options.cpu)
    print(", ".join(f"{number} {what}" for what, number in sorted(seen.items())))
    sys.exit(bool(seen["wrong"] or (seen["exported"] < options.count and not options.random)))
