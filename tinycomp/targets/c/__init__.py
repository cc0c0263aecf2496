"""The C target: NHWC kernels with packed weights and fused epilogues, run by the runtime in ``runtime_c/``.

Each operator has a rule (check, layout, lowering) in a file of its family; :mod:`families` imports these files as they
are needed. :mod:`composites` lists the fused patterns.
"""

from __future__ import annotations

import functools

from tinycomp.index import LOWERINGS
from tinycomp.ir.graph import COMPOSITE, Node
from tinycomp.ir.types import UNKNOWN_DTYPE
from tinycomp.ops.record import heads
from tinycomp.rewrite import reject
from tinycomp.runtime.native.program import Program
from tinycomp.target import Target, Tolerance
from tinycomp.targets.c.codegen.generate import generate
from tinycomp.targets.c.codegen.sizes import with_sizes
from tinycomp.targets.c.composites import add_composites
from tinycomp.targets.c.families import TABLE
from tinycomp.targets.c.options import COptions, Settings
from tinycomp.targets.c.tuning.choices import choose
from tinycomp.targets.common.checks import Check, Verdict, all_of

_WITH_BODIES = frozenset(heads(LOWERINGS["ops.control_flow"]))
"""Operators that the target takes together with their bodies, if it takes every node in these."""


def _known_dtypes(node: Node) -> Verdict:
    """Check that the element type of every operand is known."""
    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype == UNKNOWN_DTYPE:
            return reject(f'the element type of operand {index} ("{value.name}") is unknown')
    return True


def _accepts(node: Node) -> Verdict:
    """Tell whether the target takes a node in the body of another one, which it would then run as well."""
    if node.is_composite and node.target is not None:
        return node.target == "c" or reject(f"it belongs to {node.target}")
    key = node.domain, node.op
    if key not in TABLE or node.is_composite:
        return reject(f"no rule for {node.qualified_op}")
    return TABLE[key].check(node)


def _check_of(domain: str, name: str) -> Check:
    """Return the check of an operator, which imports the family of the operator at its first call."""

    @functools.cache
    def made() -> Check:
        if (domain, name) in _WITH_BODIES:
            from tinycomp.targets.c.ops.control_flow import whole

            return whole(_accepts)
        return with_sizes(all_of(_known_dtypes, TABLE[domain, name].check))

    return lambda node: made()(node)


def _make_target() -> Target:
    target = Target(
        "c",
        tolerance=Tolerance(rtol=1e-4, atol=1e-6, steps=0),
        description="The built-in C runtime for CPUs (scalar, AVX2, AVX-512).",
        programs=True,
        canonical=True,
        options=COptions,
    )
    target.widens_half = target.falls_back = True
    add_composites(target)
    for domain, name in TABLE:
        if domain != COMPOSITE:  # composites have checks of their own
            target.op(f"{domain}::{name}" if domain else name)(_check_of(domain, name))

    @target.codegen
    def build(region: Node, settings: Settings) -> Program:
        return choose(generate(region, TABLE, settings), settings)

    return target


TARGET = _make_target()
