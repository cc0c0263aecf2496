"""The C target: NHWC kernels with packed weights and fused epilogues, run by the runtime in ``runtime_c/``.

A rule per operator (check, layout, lowering) stands in the family files; :mod:`composites` lists what runs fused.
"""

from __future__ import annotations

from importlib import import_module

from tinycomp.ir.graph import COMPOSITE, Node
from tinycomp.ir.types import UNKNOWN_DTYPE
from tinycomp.rewrite import reject
from tinycomp.runtime.native.program import Program
from tinycomp.target import Target, Tolerance
from tinycomp.targets.c.codegen.generate import generate
from tinycomp.targets.c.codegen.rules import merged
from tinycomp.targets.c.codegen.sizes import with_sizes
from tinycomp.targets.c.composites import add_composites
from tinycomp.targets.c.ops.control_flow import CONTROL_FLOW, whole
from tinycomp.targets.c.options import COptions, Settings
from tinycomp.targets.c.tuning.choices import choose
from tinycomp.targets.common.checks import Verdict, all_of

FAMILIES = (
    "ops.attention", "quantized.block_products", "ops.cached_attention", "ops.classical",
    "ops.control_flow", "ops.conv",
    "quantized.conversion", "ops.detection", "quantized.elements", "ops.elementwise", "quantized.fixed_point",
    "ops.indexing", "ops.matmul",
    "ops.movement", "ops.ngrams", "ops.norm", "quantized.operators", "ops.pool", "quantized.products", "ops.random",
    "ops.recurrent", "ops.reduction", "ops.resize", "ops.rotary", "ops.sampling", "ops.texts", "ops.trees",
    "quantized.run_time_products", "quantized.weights",
)  # fmt: skip
"""The modules whose ``FAMILY`` holds lowering rules."""
TABLE = merged(import_module(f"{__name__}.{family}").FAMILY for family in FAMILIES)
"""The lowering of every operator that the target knows, by domain and name."""


def _known_dtypes(node: Node) -> Verdict:
    """Check that there is no operand of which nobody knows what its elements are."""
    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype == UNKNOWN_DTYPE:
            return reject(f'nobody knows the element type of operand {index} ("{value.name}")')
    return True


def _accepts(node: Node) -> Verdict:
    """Tell whether the target takes a node of a body, which runs where the node around it does."""
    if node.is_composite and node.target is not None:
        return node.target == "c" or reject(f"it belongs to {node.target}")
    rule = TABLE.get((node.domain, node.op))
    if rule is None or node.is_composite:
        return reject(f"no rule for {node.qualified_op}")
    return rule.check(node)


def _make_target() -> Target:
    target = Target(
        "c",
        tolerance=Tolerance(rtol=1e-4, atol=1e-6),
        description="The built-in C runtime for CPUs (scalar, AVX2, AVX-512).",
        programs=True,
        canonical=True,
        options=COptions,
    )
    target.widens_half = True
    add_composites(target)
    for (domain, name), rule in TABLE.items():
        if domain == COMPOSITE:
            continue  # its own check has taken it
        of_bodies = not domain and name in CONTROL_FLOW
        check = whole(_accepts) if of_bodies else with_sizes(all_of(_known_dtypes, rule.check))
        target.op(f"{domain}::{name}" if domain else name)(check)

    @target.codegen
    def build(region: Node, settings: Settings) -> Program:
        return choose(generate(region, TABLE, settings), settings)

    return target


TARGET = _make_target()
