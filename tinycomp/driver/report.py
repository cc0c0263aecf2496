"""Building the report of a partitioned graph from its regions, its host nodes, and the passes' remarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tinycomp.driver.declined import FAILURE, STAGE
from tinycomp.ir.blocked import conversion_of
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import substitute, tensor
from tinycomp.ops import OPS
from tinycomp.passes.check_quantization import CheckQuantization
from tinycomp.passes.legalize import Legalize
from tinycomp.passes.merge_regions import MINIMUM
from tinycomp.passes.place_by_cost import ESTIMATE
from tinycomp.remark import Remark
from tinycomp.rewrite.traits import at_border, has_trait
from tinycomp.runtime.blob import Blob, Figures
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.plan import Position
from tinycomp.runtime.report import Report
from tinycomp.runtime.rows import (
    BORDER,
    CompositeRow,
    ConversionRow,
    HostRow,
    LayerRow,
    LayoutRow,
    RegionRow,
    ViolationRow,
)
from tinycomp.target.policy import macs, sample_bytes

_NAMED = 5
"""The most layers that a note names."""
_ROUNDED = 4
"""The accuracy level of a MatMulNBits whose data may be rounded to 8 bits; only a target that takes it whole can."""


def make_report(
    graph: Graph,
    model: str,
    targets: Sequence[str],
    notes: Sequence[str] = (),
    programs: Mapping[tuple[str, Any], object] = MappingProxyType({}),
    sizes: Mapping[str, int] = MappingProxyType({}),
    misses: Sequence[Remark] = (),
) -> Report:
    """Return the report of a partitioned graph: where every node runs, and why.

    Args:
        graph: The graph.
        model: Name of the model.
        targets: In priority order.
        notes: What else the reader should know.
        programs: What was generated for its regions, by symbol and shapes.
        sizes: Sizes by symbol; symbols without one count as their upper bound where one is assumed, else as 1.
        misses: Further remarks, in addition to those of the graph.
    """
    regions, hosts = [], []
    conversions: list[ConversionRow] = []
    layouts: list[LayoutRow] = []
    reasons = _reasons(graph, misses)
    border = at_border(graph)
    for position, node in _outside_regions(graph):
        if node.is_region:
            regions.append(_region_row(node, position, sizes, _figures(node.op, programs)))
            conversions += [_conversion_row(inner, node.op, sizes) for inner in node.body.nodes if _converts(inner)]
        elif (conversion := conversion_of(node)) is not None:
            layouts.append(LayoutRow(node.sources, node.operand(0).name, *conversion, _bytes(node.outputs, sizes)))
        elif not _is_open_call(node):
            hosts.append(_border_row(node, position) if node in border else _host_row(node, position, reasons, sizes))
            conversions += [_conversion_row(node, "host", sizes)] if _converts(node) else []
    return Report(
        model, tuple(targets), tuple(regions), tuple(hosts), (*notes, *_legalised(graph), *_doubts(graph)), reasons,
        _layers(programs), tuple(conversions), tuple(layouts), violation_rows=_violations(graph, regions),
    )  # fmt: skip


def _violations(graph: Graph, regions: Iterable[RegionRow]) -> tuple[ViolationRow, ...]:
    """Return the violations of quantisation rules, except those of layers that the target took nevertheless."""
    taken = {(row.target, source) for row in regions for source in row.sources}
    graphs = dict.fromkeys([graph, *(g for g, _ in graph.walk())])
    found = (r for r in dict.fromkeys(r for g in graphs for r in g.remarks) if r.stage == CheckQuantization.name)
    return tuple(
        ViolationRow(r.target, r.where, r.rule.rpartition(" ")[2], r.sources, r.reason, r.remedy)
        for r in found
        if not any((r.target, source) in taken for source in r.sources)
    )


def _converts(node: Node) -> bool:
    """Tell whether a node turns real numbers into quantised ones or back."""
    return has_trait(node, "quantization")


def _conversion_row(node: Node, place: str, sizes: Mapping[str, int]) -> ConversionRow:
    after = tensor(substitute(node.output.type, sizes))
    return ConversionRow(place, node.sources, node.operand(0).dtype, after.dtype, after.size())


def _layers(programs: Mapping[tuple[str, Any], object]) -> tuple[LayerRow, ...]:
    """Return the calls of native programs that could have been computed otherwise."""
    return tuple(
        LayerRow(symbol, call.source, call.kernel, call.algorithm)
        for (symbol, _), program in programs.items()
        if isinstance(program, Program)
        for each in program.walk()
        for call in each.instructions
        if call.algorithm
    )


def _doubts(graph: Graph) -> list[str]:
    """Tell which graphs may have more regions than necessary, the estimated costs of placements, and what failed."""
    found = dict.fromkeys(graph.remarks)
    failed = [
        f"The code generator of {r.target} failed; {_some(r.sources)} run elsewhere. Please report this: {r.reason}."
        for r in found
        if r.stage == STAGE and r.rule == FAILURE
    ]
    return [r.reason for r in found if r.rule in (ESTIMATE, MINIMUM)] + failed


def _legalised(graph: Graph) -> list[str]:
    """Tell which layers have been rewritten for a target, and by which passes."""
    found: dict[tuple[str, str], list[str]] = {}
    for remark in dict.fromkeys(graph.remarks):
        if remark.stage == Legalize.name:
            found.setdefault((remark.target, remark.rule), []).append(", ".join(remark.sources[:1]))
    return [
        f"For {target}, {rule} rewrote {len(names)} layer(s) that it refuses as they stand: {_some(names)}."
        for (target, rule), names in found.items()
    ]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _outside_regions(graph: Graph) -> Iterable[tuple[Position, Node]]:
    """Return every node of the graph and of the bodies of host nodes, as a plan's steps are ordered and placed.

    Calls of functions that were not inlined are among them, before what the functions hold.
    """
    stack = _placed(graph)
    while stack:
        position, node = stack.pop()
        yield position, node
        if not node.is_call or _is_open_call(node):
            bodies = [_placed(body, (*position, index)) for index, body in enumerate(node.bodies.values())]
            stack.extend(each for body in reversed(bodies) for each in body)


def _is_open_call(node: Node) -> bool:
    """Tell whether a node only runs the nodes of a function, each of which has a row of its own."""
    return node.is_call and not node.is_composite and not node.is_region and conversion_of(node) is None


def _placed(graph: Graph, path: Position = ()) -> list[tuple[Position, Node]]:
    """Return the nodes of a graph with their positions, the last one first."""
    return [((*path, index), node) for index, node in enumerate(graph.nodes)][::-1]


def integer_macs(node: Node, sizes: Mapping[str, int] = MappingProxyType({})) -> int:
    """Count the multiply-accumulates of a region that multiply 8-bit integers, as :func:`macs` counts them."""
    return sum(
        macs([inner], sizes)
        for atom in node.body.nodes
        for inner in (atom.body.nodes if atom.is_composite else [atom])
        if has_trait(inner, "integer_product")
        or inner.attrs.get("accuracy_level") == _ROUNDED
        or (atom.is_composite and _reads_dequantized(inner))
    )


def _reads_dequantized(node: Node) -> bool:
    """Tell whether both factors of a product have been dequantised inside the composite that the node belongs to."""
    return has_trait(node, "product") and all(_is_dequantized(v) for v in node.inputs[:2])


def _is_dequantized(value: Value | None) -> bool:
    while value is not None and value.producer is not None:
        if value.producer.op == "DequantizeLinear":
            return True
        value = value.producer.inputs[0]
    return False


def _figures(symbol: str, programs: Mapping[tuple[str, Any], object]) -> Figures:
    """Return the estimates of a vendor's compiler for a region, for the first sizes that it was built for."""
    made = (program for (name, _), program in programs.items() if name == symbol)
    return next((program.figures for program in made if isinstance(program, Blob)), {})


def _region_row(node: Node, position: Position, sizes: Mapping[str, int], figures: Figures) -> RegionRow:
    inside = node.operators()
    return RegionRow(
        symbol=node.op,
        target=node.target or "",
        nodes=len(inside),
        composites=dict(Counter(n.op for n in node.body.nodes if n.is_composite)),
        singles=dict(Counter(n.qualified_op for n in node.body.nodes if not (n.is_composite or conversion_of(n)))),
        ops=dict(Counter(n.qualified_op for n in inside)),
        macs=macs([node], sizes),
        integer_macs=integer_macs(node, sizes),
        bytes_in=_bytes((v for v in node.inputs if v is not None and not v.is_const), sizes),
        bytes_out=_bytes(node.outputs, sizes),
        sources=tuple(dict.fromkeys([source for n in (node, *inside) for source in n.sources])),
        position=position,
        members=tuple(_composite_row(n) for n in node.body.nodes if n.is_composite),
        figures={name: value for name, value in figures.items() if not isinstance(value, Mapping)},
        layer_figures={name: value for name, value in figures.items() if isinstance(value, Mapping)},
    )


def _composite_row(node: Node) -> CompositeRow:
    inside = node.operators()
    sources = dict.fromkeys(source for n in (node, *inside) for source in n.sources)
    return CompositeRow(node.op, tuple(n.qualified_op for n in inside), tuple(sources))


def _bytes(values: Iterable[Value], sizes: Mapping[str, int]) -> int:
    return sum(sample_bytes(value, sizes) for value in values)


def _host_row(
    node: Node, position: Position, reasons: Mapping[str, tuple[Remark, ...]], sizes: Mapping[str, int]
) -> HostRow:
    record = OPS.find(node.op, node.domain, node.version)
    has_kernel = node.is_call or (record is not None and record.kernel is not None)
    remarks = dict.fromkeys(r for source in node.sources for r in reasons.get(source, ()))
    work = (
        macs([node], sizes) if node.is_call or not node.bodies else 0
    )  # the nodes in its bodies have rows of their own
    tier = "numpy" if has_kernel else "reference"
    return HostRow(node.label, node.qualified_op, tier, work, _ranked(remarks), node.sources, position)


def _border_row(node: Node, position: Position) -> HostRow:
    return HostRow(node.label, node.qualified_op, BORDER, 0, (), node.sources, position)


def _reasons(graph: Graph, further: Sequence[Remark]) -> dict[str, tuple[Remark, ...]]:
    """Return every remark by source name, which then is no part of it any more."""
    found: dict[str, dict[Remark, None]] = {}
    graphs = dict.fromkeys([graph, *(g for g, _ in graph.walk())])
    for remark in dict.fromkeys((*(r for g in graphs for r in g.remarks), *further)):
        reason = replace(remark, sources=(), where="")
        for source in remark.sources:
            found.setdefault(source, {})[reason] = None
    return {source: _ranked(reasons) for source, reasons in found.items()}


def _ranked(reasons: Iterable[Remark]) -> tuple[Remark, ...]:
    return tuple(sorted(reasons, key=lambda r: -r.progress))
