"""TOSA: regions as programs of the Tensor Operator Set Architecture 1.0, run in its reference model.

The target is as slow as it is exact. It serves to test what vendors' compilers that read TOSA are given, and those
compilers: :mod:`tinycomp.targets.ethos_u` is built on it. tosa-tools, which writes and runs the programs, may be
installed in another environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops.numeric import Array
from tinycomp.passes.legalize import ExplicitPads, NarrowWeights, ReductionsToPools, StepsToPools
from tinycomp.passes.legalize import TransposedToConvolutions as Transposed
from tinycomp.records import dataclass, field
from tinycomp.rewrite import reject
from tinycomp.rewrite.traits import is_structural
from tinycomp.runtime.blob import Blob
from tinycomp.target import Target, Tolerance
from tinycomp.target.quantization import REAL
from tinycomp.targets.common.checks import Verdict
from tinycomp.targets.common.composites import own_parameters
from tinycomp.targets.tosa import integer, movement, real
from tinycomp.targets.tosa.emitter import Emitter
from tinycomp.targets.tosa.program import Program
from tinycomp.targets.tosa.tools import ReferenceModel, interpreter, serialize

Constraint = Callable[[tuple[Node, ...], Any], Verdict]
"""Says whether hardware can run the nodes of a layer, or one operator, with the options of the target."""


@dataclass(frozen=True)
class TosaOptions:
    """Choose what is computed, and by what.

    Attributes:
        real: Whether operators of float32 are taken, too: TOSA's profile PRO-FP beside PRO-INT.
        python: The interpreter of an environment with tosa-tools; by default the environment variable
            TINYCOMP_TOSA_PYTHON names it, or it is the one that runs tinycomp.
    """

    real: bool = False
    python: str = field(default="", metadata={"saved": False})


def add_rows(target: Target, constraint: Constraint = lambda nodes, options: True) -> None:
    """Let a target take what the rows describe: quantised layers, moves of numbers, and floats if it has that option.

    Args:
        target: The target.
        constraint: What hardware asks for in addition.
    """
    for layer in integer.LAYERS.values():
        composite = target.composite(layer.pattern)
        for check in (*layer.checks, lambda match, options: constraint(match.matched, options)):
            composite.check(check)
    for op, rule in {**integer.QUANTIZATION, **movement.QUANTIZATION}.items():
        target.quantization(op)(rule)
    for op in {**movement.RULES, **(real.RULES if hasattr(target.options, "real") else {})}:
        target.op(op)(_judge_of(op, constraint))


def _judge_of(op: str, constraint: Constraint) -> Callable[[Node, Any], Verdict]:
    def judge(node: Node, options: Any) -> Verdict:
        dtype, rule = node.operand(0).dtype, movement.RULES.get(op)
        if dtype == "float32" and getattr(options, "real", False):
            rule = rule or real.RULES.get(op)
        elif dtype in REAL:
            rule = None
        if rule is None:
            return reject(f"it does not compute {op} of {dtype}")
        verdict = rule.check(node)
        return verdict if verdict is not True else constraint((node,), options)

    return judge


def emit(region: Node) -> Program:
    """Return the program of a region, whose shapes are known."""
    body: Graph = region.body.clone()
    own_parameters(body)
    emitter = Emitter(body.inputs)
    for node in body.nodes:
        emitter.program.source = node.label
        if is_structural(node):
            emitter.alias(node.output, node.operand(0))
        elif node.is_composite:
            integer.LAYERS[node.op.partition(".")[2]].emit(emitter, node)
        else:
            (movement.RULES.get(node.op) or real.RULES[node.op]).emit(emitter, node)
    return emitter.finish(body.outputs)


LEGALIZE = tuple(kind() for kind in (ReductionsToPools, StepsToPools, ExplicitPads, NarrowWeights, Transposed))
TARGET = Target(
    "tosa", description="TOSA 1.0 in its reference model, 8-bit integers to the bit; slow", options=TosaOptions,
    static_shapes=True, canonical=True, legalize=LEGALIZE, requantize="fixed_point", tolerance=Tolerance(steps=0),
)  # fmt: skip
add_rows(TARGET)


@TARGET.codegen
def build(region: Node, options: TosaOptions) -> Blob:
    """Return the TOSA file of a region."""
    file = serialize(emit(region), interpreter(options.python))
    return Blob(file.tobytes(), arrays={"unsigned": unsigned(region)})


def unsigned(region: Node) -> Array:
    """Return which results are of uint8, which TOSA stores as int8."""
    return np.array([value.dtype == "uint8" for value in region.body.outputs])


@TARGET.loader
def load(blob: Blob, options: TosaOptions) -> ReferenceModel:
    """Return what runs a TOSA file."""
    return ReferenceModel(np.frombuffer(blob.data, np.uint8), blob.arrays["unsigned"], interpreter(options.python))
