"""Run Vela, Arm's compiler for Ethos-U, on a TOSA file, and read what it has made."""

from __future__ import annotations

import csv
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tinycomp.ops.numeric import Array
from tinycomp.records import dataclass
from tinycomp.target import Decline
from tinycomp.targets.tosa.tools import environment, missing

_SUMMARY = {
    "cycles": ("cycles_total",),
    "inferences per second": ("inferences_per_second",),
    "SRAM KiB": ("sram_memory_used",),
    "DRAM KiB": ("dram_memory_used",),
    "flash KiB": ("on_chip_flash_memory_used", "off_chip_flash_memory_used"),
    "SRAM traffic B": ("sram_total_bytes",),
    "DRAM traffic B": ("dram_total_bytes",),
    "flash traffic B": ("on_chip_flash_total_bytes", "off_chip_flash_total_bytes"),
}
"""The figures of a region, and the columns of Vela's summary that they are the sums of."""
_LAYER = {"cycles": "Op Cycles", "MACs": "MAC Count", "SRAM cycles": "SRAM AC", "flash cycles": "OffFlash AC"}
"""The figures of a layer, and their columns."""
PLACES = ("input_region", "input_offset", "output_region", "output_offset", "scratch_size", "scratch_fast_size")
"""Where operands and results lie in the regions of memory that the driver is given, and how large these are."""
REGIONS = ("weight_region", "scratch_region", "scratch_fast_region")
_SECONDS = 600.0


@dataclass(frozen=True)
class Compiled:
    """Hold what Vela has made of a program.

    Attributes:
        stream: The command stream, as Arm's driver takes it.
        weights: Constants as they lie in the flash, uint8.
        places: Numbers of :data:`PLACES` and :data:`REGIONS`, int64, and how many bytes operands and results take.
        figures: Its estimates.
        layers: Its estimates for each of its operators, in order, by the names of their tensors.
    """

    stream: bytes
    weights: Array
    places: Mapping[str, Array]
    figures: Mapping[str, float]
    layers: Sequence[tuple[str, Mapping[str, float]]]


def compile_file(file: Array, arguments: Sequence[str], python: str) -> Compiled:
    """Return what Vela makes of a TOSA file.

    Args:
        file: The bytes, uint8.
        arguments: For its command line.
        python: The interpreter of the environment that it is installed in.

    Raises:
        TargetError: If it is not installed.
        Decline: If it does not compile the file, or not for the NPU alone.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "region.tosa").write_bytes(file.tobytes())
        command = [python, "-m", "ethosu.vela", str(folder / "region.tosa"), *arguments, "--verbose-performance"]
        outcome = _run([*command, "--output-format", "raw", "--output-dir", name], python)
        said = outcome.stdout + outcome.stderr
        if "No module named" in outcome.stderr:
            raise missing("ethos-u-vela", python, outcome.stderr.strip().splitlines()[-1])
        made = folder / "region_vela.npz"
        if outcome.returncode or not made.exists():
            raise Decline(f"Vela does not compile it, code {outcome.returncode}: {_complaint(said)}")
        if "CPU operators = 0 " not in said:
            raise Decline(f"Vela leaves operators to the processor: {_complaint(said)}")
        with np.load(made, allow_pickle=False) as arrays:
            stream, weights = (np.frombuffer(arrays[n].tobytes(), np.uint8) for n in ("cmd_data", "weight_data"))
            places = {n: arrays[n].astype(np.int64).reshape(-1) for n in (*PLACES, *REGIONS)}
            for side in ("input", "output"):
                places[f"{side}_bytes"] = arrays[f"{side}_shape"].prod(axis=1) * arrays[f"{side}_elem_size"]
        (summary,) = _rows(next(folder.glob("*_summary_*.csv")))
        layers = [
            (row["Name"], {name: float(row[column]) for name, column in _LAYER.items()})
            for row in _rows(next(folder.glob("*_per-layer.csv")))
        ]
    figures = {name: sum(float(summary[column]) for column in columns) for name, columns in _SUMMARY.items()}
    return Compiled(stream.tobytes(), weights.copy(), places, figures, layers)


def _run(command: list[str], python: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(), timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise missing("ethos-u-vela", python, str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise Decline(f"Vela takes more than {_SECONDS:.0f} seconds") from error


def _complaint(said: str) -> str:
    """Return the lines in which Vela says what is wrong, or its last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Warning: No ")]
    wrong = [line for line in lines if "rror" in line or "not supported" in line or "onstraint" in line]
    return "; ".join((wrong or lines or ["it says nothing"])[-3:])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{key.strip(): value.strip() for key, value in row.items()} for row in csv.DictReader(file)]
