"""The code generator of the C target: from a region to a program."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Set

from tinycomp import symbolic
from tinycomp.errors import TargetError
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import Dim, TensorType, Type, tensor
from tinycomp.ops.agreement import conditions, implied_sizes
from tinycomp.ops.elements import element_sources, with_elements
from tinycomp.ops.rows import declared_rows, name_rows
from tinycomp.ops.typing import retype
from tinycomp.passes.assign_layout import AssignLayout, LayoutRule
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.rewrite.traits import is_structural
from tinycomp.runtime.native.program import Condition, Program
from tinycomp.symbolic import Expression, Size, has_elements, minimum
from tinycomp.target import Decline
from tinycomp.target.policy import symbolic_macs
from tinycomp.targets.c.codegen.element_program import Ref, Steps, emit_fusion_group
from tinycomp.targets.c.codegen.emitter import Emitter, Rewrite
from tinycomp.targets.c.codegen.epilogue import ANCHORS, spelled_out
from tinycomp.targets.c.codegen.fusion_groups import FusionGroup, find_fusion_groups
from tinycomp.targets.c.codegen.rules import LoweringRule
from tinycomp.targets.c.codegen.texts import has_texts, takes_texts
from tinycomp.targets.c.options import Settings
from tinycomp.targets.c.quantized.unsigned import MakeUnsigned
from tinycomp.targets.common.composites import own_parameters

Table = Mapping[tuple[str, str], LoweringRule]


def _hand_on(emit: Emitter, node: Node) -> None:
    emit.alias(node.outputs[0], emit.view(node.operand(0)))


STRUCTURAL = LoweringRule(lambda node: True, _hand_on, LayoutRule.ROW_MAJOR)
"""How nodes are lowered that compute nothing and lie between nodes of the target (Dropout, StopFusion)."""


def generate(region: Node, table: Table, settings: Settings | None = None) -> Program:
    """Return the program of a region, which serves every size of its dynamic dimensions.

    The region is left as it is.

    Raises:
        TargetError: If the region holds an operator that the target does not know.
    """
    body = region.body.clone()
    program = _of_graph(region.op, body, table, settings or Settings())
    body.dissolve()
    return program


def _of_graph(name: str, graph: Graph, table: Table, settings: Settings, outer: Emitter | None = None) -> Program:
    """Return the program of a graph, which is changed: of a region, or of a body in the program that is ``outer``."""
    is_symbolic = _name_sizes(graph, "" if outer is None else f"{name}:")
    declared = declared_rows(graph)
    most = name_rows(graph)
    is_symbolic = is_symbolic or bool(most) or (outer is None and has_texts(graph))
    demanded = (*_within_bounds(graph), *_conditions(graph)) if is_symbolic and outer is None else ()
    shapes = [tensor(v.type).sizes or () for v in graph.inputs]
    with symbolic.expecting(symbolic.expected_sizes(shapes)), symbolic.expecting(_typical(most)):
        program = _generated(name, graph, table, settings, is_symbolic, most, outer)
    counts = tuple(_count(name, *declared[name]) for name in most if name in declared) if outer is None else ()
    return dataclasses.replace(program, conditions=(*demanded, *counts, *program.conditions))


def _count(name: str, rows: int, node: Node) -> Condition:
    """Demand of a run that a node finds as much as its model says."""
    value = symbolic.symbol(name) - rows
    assert isinstance(value, Expression)
    return Condition(value, f"the model says that it finds {rows}", f"{node.label} ({node.qualified_op})")


def _typical(most: Mapping[str, Size]) -> dict[str, int]:
    return {name: symbolic.typical(size) for name, size in most.items()}


def _conditions(graph: Graph) -> tuple[Condition, ...]:
    """Return what the sizes of a run must fulfil, each once, with the first node that demands it."""
    found: dict[Size, Condition] = {}
    for node in graph.nodes:
        for inner in node.operators():
            for value, text in (*conditions(inner), *_negative(inner)):
                found.setdefault(value, Condition(value, text, f"{inner.label} ({inner.qualified_op})"))
    return tuple(found.values())


def _negative(node: Node) -> Iterator[tuple[Size, str]]:
    """Yield that no size of the results that follows from elements of operands is negative."""
    for value in node.used_outputs():
        for dim in value.sizes or ():
            if isinstance(dim, int):
                continue
            below = minimum(dim, 0) if has_elements(dim) else 0
            if isinstance(below, Expression):
                yield below, f'a size of "{value.name}" is negative: {dim}'


def _within_bounds(graph: Graph) -> Iterator[Condition]:
    """Yield that the sizes of the inputs are within the bounds assumed."""
    seen = set[str]()
    for value in graph.inputs:
        for dim in tensor(value.type).sizes or ():
            name = dim.name if isinstance(dim, Expression) else None
            if name is None or name in seen:
                continue
            seen.add(name)
            least, most = symbolic.bounds(dim)
            with symbolic.assuming({name: (0, None)}):
                below = symbolic.maximum(least - dim, 0) if least else 0
                above = symbolic.maximum(dim - most, 0) if most is not None else 0
            if isinstance(below + above, Expression):
                yield Condition(below + above, f"{name} is not from {least} to {most}", value.name)


def _fold_sizes(graph: Graph, found: Set[str]) -> None:
    """Replace values that follow from sizes by these, so that what computes them step by step is left out.

    Args:
        graph: A region's or a body's.
        found: The sizes that a step of the program finds out, which may be wanted for nothing else.
    """
    for node in graph.nodes:
        for value in node.used_outputs():
            contents = value.contents
            if contents is None or None in contents or value.dtype == "bool":
                continue
            if has_elements(*contents) and node.op not in ("Shape", "Size"):
                continue  # an element may be larger than a size can be, and is computed with as it is
            if any(isinstance(size, Expression) and size.symbols & found for size in contents):
                continue
            name = graph.fresh(value.name)
            sizes = graph.add("Sizes", [], domain=TINYCOMP, version=1, outputs=[name], types=[value.type], at=node)
            graph.replace_uses(value, sizes.output)


def _generated(
    name: str,
    graph: Graph,
    table: Table,
    settings: Settings,
    is_symbolic: bool,
    most: Mapping[str, Size],
    outer: Emitter | None,
) -> Program:
    FoldConstants(keep_quantized=False).run(graph)
    if is_symbolic:
        _fold_sizes(graph, most.keys())
    EliminateDeadCode().run(graph)
    own_parameters(graph)
    rules = functools.cache(lambda node: rule_of(node, table))
    MakeUnsigned(graph, rules).run()
    AssignLayout(lambda node: rules(node).layout_of(node)).run(graph)

    def lower_body(around: Emitter, body: Graph, body_name: str) -> Program:
        return _of_graph(f"{name}/{body_name}", body, table, settings, around)

    emit = Emitter(graph, settings, most, lower_body, outer)
    groups = find_fusion_groups(graph, lambda node: _steps_alone(node, rules(node)))
    for node in graph.nodes:
        if node not in groups:
            _lower(emit, node, rules(node))
        elif node is groups[node].nodes[-1]:
            _emit_group(emit, groups[node], rules)
    program = emit.finish(name, _memory_rewrite(settings))
    return dataclasses.replace(program, conditions=tuple(emit.demands)) if outer is None else program


def _memory_rewrite(settings: Settings) -> Rewrite | None:
    """Return what makes other calls of a program's for the memory that is wanted."""
    if settings.memory == "fast":
        return None
    from tinycomp.targets.c.codegen.least_memory import lower_peak  # not before: few want less memory

    return functools.partial(lower_peak, budget=0 if settings.memory == "least" else settings.memory)


def _name_sizes(graph: Graph, prefix: str) -> bool:
    """Give every dimension of the inputs that is no number an expression over sizes that a run reads off the inputs.

    New names begin with ``prefix``, so that they are not those of sizes around.

    Returns:
        Whether there is any.

    Raises:
        TypeInferenceError: If the operators do not work for such sizes.
    """
    dims = [dim for value in graph.inputs for dim in value.shape or ()]
    if all(isinstance(dim, int) for dim in dims):
        if any(value.static_shape is None for node in graph.nodes for value in node.used_outputs()):
            retype(graph, [value.type for value in graph.inputs])
        return not prefix and _name_elements(graph)
    sizes = [symbolic.size(dim) for dim in dims if isinstance(dim, str)]
    named = {size.name for size in sizes if isinstance(size, Expression) and size.name is not None}
    types: list[Type] = []
    for value in graph.inputs:
        type_ = tensor(value.type)
        shape = [_named(dim, f"{prefix}{value.name}.{axis}", named) for axis, dim in enumerate(type_.shape or ())]
        types.append(TensorType(type_.dtype, tuple(shape), type_.layout))
    retype(graph, types)
    if implied := implied_sizes(graph):
        retype(graph, [_with_sizes(type_, implied) for type_ in types])
    if not prefix:
        _name_elements(graph)
    return True


def _name_elements(graph: Graph) -> bool:
    """Give elements of the inputs that sizes follow from their names; tell whether there are any."""
    sources = element_sources(graph.nodes)
    dims = {name for value in graph.inputs for size in _dims(value) for name in size.symbols}
    if taken := sorted(dims & frozenset[str]().union(*sources.values())):
        raise Decline(f'a dimension is called "{taken[0]}", as an element of an input is')
    types = [
        _only_elements(with_elements(value), sources[value]) if value in sources else value.type
        for value in graph.inputs
    ]
    if sources:
        retype(graph, types)
    return bool(sources)


def _dims(value: Value) -> list[Expression]:
    return [size for size in tensor(value.type).sizes or () if isinstance(size, Expression)]


def _only_elements(type_: TensorType, names: Set[str]) -> TensorType:
    held = [e if isinstance(e, Expression) and e.symbols <= names else None for e in type_.contents or ()]
    return dataclasses.replace(type_, contents=tuple(held))


def _with_sizes(type_: Type, sizes: Mapping[str, Size]) -> Type:
    """Return a type with sizes for some symbols."""
    own = tensor(type_)
    dims = [symbolic.dimension(symbolic.substitute(size, sizes)) for size in own.sizes or ()]
    return TensorType(own.dtype, tuple(dims), own.layout)


def _named(dim: Dim, name: str, named: Set[str]) -> Dim:
    """Return a dimension of an input if it follows from sizes that are dimensions themselves, else a new one."""
    if isinstance(dim, int):
        return dim
    size = None if dim is None else symbolic.size(dim)
    if not isinstance(size, Expression) or not size.symbols <= named:
        size = symbolic.symbol(name)
    return symbolic.dimension(size)


def _lower(emit: Emitter, node: Node, rule: LoweringRule) -> None:
    lower = rule.lower
    assert lower is not None, node
    calls = len(emit.calls)
    lower(emit, node)
    work = symbolic_macs([node]) if len(emit.calls) > calls else 0
    if not isinstance(work, int) or work:
        emit.count_macs(work)


def _steps_alone(node: Node, rule: LoweringRule) -> Steps | None:
    build = rule.build
    if build is None or (rule.lower is not None and takes_texts(node)):
        return None
    steps = Steps()
    build(steps, node)
    return steps


def _emit_group(emit: Emitter, group: FusionGroup, rules: Callable[[Node], LoweringRule]) -> None:
    outputs = group.outputs(emit.graph.outputs)
    activations = spelled_out(group.nodes, outputs)

    def build(steps: Steps, node: Node) -> Ref | None:
        if node not in activations:
            add = rules(node).build
            assert add is not None, node
            return add(steps, node)
        spelled = activations[node]
        if spelled is None:
            return None
        found = spelled.activation
        return steps.unary(found.code, steps.read(spelled.argument), found.a, found.b)

    emit_fusion_group(emit, group.nodes, outputs, build)


def rule_of(node: Node, table: Table) -> LoweringRule:
    """Return the rule of a node; a composite without a rule of its own has that of its anchor.

    The anchor of ``c.conv`` is the Conv, to which bias, residual and activation are fused.

    Raises:
        TargetError: If there is none.
    """
    key = (node.domain, node.op)
    if node.is_composite and key not in table:
        for inner in node.body.nodes:
            if inner.op in ANCHORS:
                key = (inner.domain, inner.op)
                break
    if is_structural(node) and (key not in table or table[key].check(node) is not True):
        return STRUCTURAL
    if key not in table:
        raise TargetError(f"the C target has no lowering for {node.qualified_op}", where=node.label)
    return table[key]
