"""Arm's Ethos-U: regions of 8-bit integers as command streams for a microNPU, by way of TOSA and Vela.

A region becomes a TOSA program (:mod:`tinycomp.targets.tosa`), which Vela compiles. What tinycomp keeps is the command
stream with its weights, and Vela's estimates for the report. There is no device here to run a stream: in this process
the reference model of TOSA runs the program that the stream was made of.
"""

from __future__ import annotations

from typing import Literal

from tinycomp.ir.graph import Node
from tinycomp.passes.legalize import DecomposeStrides
from tinycomp.records import dataclass, field
from tinycomp.rewrite import reject
from tinycomp.runtime.blob import Blob
from tinycomp.target import Policy, Target, Tolerance
from tinycomp.targets.common.checks import Verdict
from tinycomp.targets.ethos_u.vela import Compiled, compile_file
from tinycomp.targets.tosa import LEGALIZE, add_rows, emit, unsigned
from tinycomp.targets.tosa.program import Program
from tinycomp.targets.tosa.tools import ReferenceModel, interpreter, serialize

Accelerator = Literal[
    "ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256", "ethos-u65-512",
    "ethos-u85-128", "ethos-u85-256", "ethos-u85-512", "ethos-u85-1024", "ethos-u85-2048",
]  # fmt: skip


@dataclass(frozen=True)
class EthosUOptions:
    """Choose the device, and how Vela compiles for it.

    Attributes:
        accelerator: The device and its multiply-accumulate units.
        system_config: A system configuration of Vela's, such as Ethos_U55_High_End_Embedded; by default Vela's own.
        memory_mode: A memory mode of Vela's, such as Shared_Sram; by default Vela's own for the device.
        config: A file of configurations beside Vela's own.
        optimise: Whether Vela makes streams fast, or their memory small.
        python: The interpreter of an environment with tosa-tools and ethos-u-vela; by default the environment variable
            TINYCOMP_TOSA_PYTHON names it, or it is the one that runs tinycomp.
    """

    accelerator: Accelerator = "ethos-u55-128"
    system_config: str = ""
    memory_mode: str = ""
    config: str = field(default="", metadata={"form": "FILE", "saved": False, "file": True})
    optimise: Literal["Performance", "Size"] = "Performance"
    python: str = field(default="", metadata={"saved": False})

    def arguments(self) -> list[str]:
        """Return what Vela's command line says of it."""
        given = {
            "accelerator-config": self.accelerator, "optimise": self.optimise, "system-config": self.system_config,
            "memory-mode": self.memory_mode, "config": self.config,
        }  # fmt: skip
        return [part for name, value in given.items() if value for part in (f"--{name}", value)]


_DEPTH, _COMPARED = 65535, 127
_STRIDE = 3
_FACTORS = (2, 4, 8)


def constraint(nodes: tuple[Node, ...], options: EthosUOptions) -> Verdict:
    """Tell whether the device runs the nodes of a layer, or one operator.

    Vela splits other kernels, strides and batches than the hardware has; here is what it does not. Where sizes are not
    known before the region is built, Vela has the last word.
    """
    small = not options.accelerator.startswith("ethos-u85")
    checks = [_depth_fits, *([_strides_fit, _repeats, _compares] if small else [])]
    verdicts = (check(node, options.accelerator) for node in nodes for check in checks)
    return next((verdict for verdict in verdicts if verdict is not True), True)


def _depth_fits(node: Node, accelerator: str) -> Verdict:
    shape = node.operand(0).static_shape if node.op in ("Conv", "Gemm", "MatMul") else None
    depth = shape[1 if node.op == "Conv" else -1] if shape else 0
    return depth <= _DEPTH or reject(f"{accelerator} has at most {_DEPTH} channels, got {depth}")


def _strides_fit(node: Node, accelerator: str) -> Verdict:
    """Tell whether the windows of a depthwise convolution, or of a mean, are as near as the device has them."""
    weight = node.optional_operand(1)
    shape = None if weight is None else weight.static_shape
    depthwise = node.op == "Conv" and shape is not None and shape[1] == 1 < node.attrs.get("group", 1)
    result = node.output.static_shape
    single = result is not None and all(size == 1 for size in result[2:])
    strides = node.attrs.get("strides", ()) if (depthwise or node.op == "AveragePool") and not single else ()
    return max(strides, default=1) <= _STRIDE or reject(
        f"{accelerator} moves the windows of single channels by at most {_STRIDE}, got strides {list(strides)}"
    )


def _repeats(node: Node, accelerator: str) -> Verdict:
    before, after = node.operand(0).static_shape, node.output.static_shape
    if node.op == "Resize" and node.attrs.get("mode", "nearest") != "nearest":
        return reject(f"{accelerator} repeats pixels, and interpolates none")
    if node.op != "Resize" or before is None or after is None or before[2:] == (1, 1):
        return True
    factors = [a // b for a, b in zip(after[2:], before[2:], strict=True)]
    fits = factors == [1, 1] or all(factor in _FACTORS for factor in factors)
    return fits or reject(f"{accelerator} repeats pixels 2, 4 or 8 times along both axes, got {factors}")


def _compares(node: Node, accelerator: str) -> Verdict:
    shape = node.operand(0).static_shape if node.op == "ArgMax" else None
    size = shape[node.attrs.get("axis", 0)] if shape else 0
    return size <= _COMPARED or reject(f"{accelerator} finds the greatest of at most {_COMPARED} numbers, got {size}")


TARGET = Target(
    "ethos_u", description="Arm Ethos-U microNPUs, by TOSA and Vela; runs in TOSA's reference model here",
    options=EthosUOptions, static_shapes=True, canonical=True, policy=Policy(min_macs=1),
    requantize="fixed_point", tolerance=Tolerance(steps=0),
    legalize=(*LEGALIZE, DecomposeStrides(_STRIDE)),
)  # fmt: skip
add_rows(TARGET, constraint)


@TARGET.codegen
def build(region: Node, options: EthosUOptions) -> Blob:
    """Return the command stream of a region, with its weights, places in memory, and the TOSA file behind it."""
    python = interpreter(options.python)
    program = emit(region)
    file = serialize(program, python)
    made = compile_file(file, options.arguments(), python)
    arrays = {"weights": made.weights, **made.places, "tosa": file, "unsigned": unsigned(region)}
    return Blob(made.stream, arrays=arrays, figures={**made.figures, **_by_layer(made, program)})


def _by_layer(made: Compiled, program: Program) -> dict[str, dict[str, float]]:
    """Return Vela's estimates by the layers of the model; its own operators have the names of tensors."""
    sources = {operator.output: operator.source for operator in program.operators}
    total: dict[str, dict[str, float]] = {}
    for name, figures in made.layers:
        tensor = name if name in sources else name.rpartition("_")[0]
        layer = total.setdefault(sources.get(tensor, name), dict.fromkeys(figures, 0.0))
        for figure, value in figures.items():
            layer[figure] += value
    return total


@TARGET.loader
def load(blob: Blob, options: EthosUOptions) -> ReferenceModel:
    """Return what computes the results that the device would give."""
    return ReferenceModel(blob.arrays["tosa"], blob.arrays["unsigned"], interpreter(options.python))
