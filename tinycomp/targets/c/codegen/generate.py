"""The code generator of the C target: from a region to a program."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Set

from tinycomp import symbolic
from tinycomp.errors import TargetError
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import Dim, TensorType, tensor, without_contents
from tinycomp.ops.agreement import conditions, settle_sizes
from tinycomp.ops.body_types import retype
from tinycomp.ops.elements import element_sources, read_elements, with_elements
from tinycomp.ops.rows import name_rows
from tinycomp.ops.rule import stated_of, states_for_another
from tinycomp.passes.assign_layout import AssignLayout, LayoutRule
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants, evaluated
from tinycomp.rewrite.edits import replace_by_constant
from tinycomp.rewrite.traits import has_trait, is_structural
from tinycomp.runtime.native.program import Condition, Program
from tinycomp.symbolic import Expression, Size, has_elements, minimum
from tinycomp.target import Decline
from tinycomp.target.decline import blame
from tinycomp.target.policy import symbolic_macs
from tinycomp.targets.c.codegen.element_program import Ref, Steps, emit_fusion_group
from tinycomp.targets.c.codegen.emitter import Emitter, Rewrite
from tinycomp.targets.c.codegen.epilogue import ANCHORS, spelled_out
from tinycomp.targets.c.codegen.fusion_groups import FusionGroup, find_fusion_groups, order_to_fuse
from tinycomp.targets.c.codegen.rules import LoweringRule
from tinycomp.targets.c.codegen.texts import has_texts, takes_texts
from tinycomp.targets.c.options import Settings
from tinycomp.targets.c.quantized.unsigned import MakeUnsigned
from tinycomp.targets.common.checks import UnsizedError, is_known
from tinycomp.targets.common.composites import own_parameters

Table = Mapping[tuple[str, str], LoweringRule]


def _pass_on(emit: Emitter, node: Node) -> None:
    emit.alias(node.outputs[0], emit.view(node.operand(0)))


STRUCTURAL = LoweringRule(lambda node: True, _pass_on, LayoutRule.ROW_MAJOR)
"""The rule of nodes that compute nothing, such as Dropout and StopFusion."""


def generate(region: Node, table: Table, settings: Settings | None = None) -> Program:
    """Return the program of a region, for all sizes of its dynamic dimensions; the region is not changed.

    Raises:
        TargetError: If the region holds an operator that the target does not know.
        Decline: If the sizes of a value are not known.
    """
    for value in region.body.inputs:
        if value.rank is None:
            places = [place for place, node in enumerate(region.body.nodes) if value in node.inputs]
            raise Decline(f'the rank of "{value.name}" is not known', places)
    body = region.body.clone()
    try:
        with symbolic.naming():
            program = _of_graph(region.op, body, table, settings or Settings())
    except UnsizedError as error:
        name = error.value.name
        places = [place for place, node in enumerate(region.body.nodes) if name in {v.name for v in node.outputs}]
        raise Decline(f'the sizes of "{name}" are not known', places) from error
    body.dissolve()
    return program


def _of_graph(name: str, graph: Graph, table: Table, settings: Settings, outer: Emitter | None = None) -> Program:
    """Return the program of a region's graph or, given the ``outer`` emitter, of a body; the graph is changed.

    It reads top to bottom: sizes get names, constants fold, layouts are assigned, and every node or fusion group emits
    its calls.
    """
    is_body = outer is not None
    is_symbolic, most = name_sizes(graph, f"{name}:" if is_body else "")
    is_symbolic = is_symbolic or bool(most) or (not is_body and has_texts(graph))
    conditions: list[Condition] = []
    if is_symbolic or most:
        conditions += (*(() if is_body else _within_bounds(graph)), *_conditions(graph))
    for node in filter(states_for_another, graph.nodes):  # which would keep its neighbours apart
        graph.replace_uses(node.output, node.operand(0))
        graph.erase(node)
    expected = symbolic.expected_sizes([tensor(v.type).sizes or () for v in graph.inputs])
    with (
        symbolic.expecting(expected),
        symbolic.expecting({symbol: 0 if size is None else symbolic.typical(size) for symbol, size in most.items()}),
    ):
        _dequantize(graph)
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
        steps = functools.cache(lambda node: _steps_alone(node, rules(node)))
        order = order_to_fuse(graph, steps)
        groups = find_fusion_groups(graph, steps, order)
        for node in order:
            group = groups.get(node)
            if group is None or node is group.nodes[-1]:
                try:
                    if group is None:
                        _lower(emit, node, rules(node))
                    else:
                        _emit_group(emit, group, rules)
                except Exception as error:
                    blame(error, *(group.nodes if group is not None else (node,)))
                    raise
        program = emit.finish(name, _memory_rewrite(settings))
    conditions += emit.demands
    return dataclasses.replace(program, conditions=tuple(conditions))


def _conditions(graph: Graph) -> tuple[Condition, ...]:
    """Return the distinct conditions on the sizes of a run, each with the first node that needs it."""
    found: dict[Size, Condition] = {}
    for node in graph.nodes:
        has_own = bool(node.bodies) and not node.is_call  # bodies check their conditions when they are entered
        for inner in [node] if has_own else node.operators():
            said = stated_of(inner)
            for value, text in (*conditions(inner), *_negative(inner)):
                found.setdefault(value, Condition(value, text, f"{said.label} ({said.qualified_op})"))
    return tuple(found.values())


def _negative(node: Node) -> Iterator[tuple[Size, str]]:
    """Yield the conditions that sizes of results computed from elements of operands are not negative."""
    for value in node.used_outputs():
        for dim in value.sizes or ():
            if isinstance(dim, int):
                continue
            below = minimum(dim, 0) if has_elements(dim) else 0
            if isinstance(below, Expression):
                yield below, f'a size of "{value.name}" is negative: {dim}'


def _within_bounds(graph: Graph) -> Iterator[Condition]:
    """Yield the conditions that the sizes of the inputs are within their assumed bounds."""
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


def _dequantize(graph: Graph) -> None:
    """Compute what is dequantised from constants, if no pass has done so: checks take it for a constant."""
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and is_known(node.output):
            arrays = evaluated(node, [None if v is None else v.const for v in node.inputs])
            if not isinstance(arrays, str):
                replace_by_constant(graph, node.output, arrays[0])


def _fold_sizes(graph: Graph, found: Set[str]) -> None:
    """Replace values that are computed from sizes by nodes that give the sizes directly.

    Args:
        graph: The graph of a region or of a body.
        found: The sizes that nodes determine at run time. Values that depend on them stay, because such a node would
            be dead if nothing read it any more.
    """
    for node in graph.nodes:
        for value in node.used_outputs():
            contents = value.contents
            if contents is None or None in contents or value.dtype == "bool":
                continue
            if has_elements(*contents) and not has_trait(node, "measure"):
                continue  # an element may be larger than any size, so arithmetic must use the element itself
            if any(isinstance(size, Expression) and size.symbols & found for size in contents):
                continue
            name = graph.fresh(value.name)
            sizes = graph.add("Sizes", [], domain=TINYCOMP, version=1, outputs=[name], types=[value.type], at=node)
            graph.replace_uses(value, sizes.output)


def _memory_rewrite(settings: Settings) -> Rewrite | None:
    """Return the rewrite of a program's calls that the option ``memory`` asks for, if any."""
    if settings.memory == "fast":
        return None
    from tinycomp.targets.c.codegen.least_memory import lower_peak  # imported here, because few want less memory

    return functools.partial(lower_peak, budget=0 if settings.memory == "least" else settings.memory)


def name_sizes(graph: Graph, prefix: str) -> tuple[bool, dict[str, Size | None]]:
    """Give every size in the graph of a region or of a body a name, and all values the types that follow from that.

    Args:
        graph: The graph, whose types are changed.
        prefix: For a body, what its names begin with, so that they differ from those of the program around it.

    Returns:
        Whether there are sizes that a run reads off the inputs; and by name the most that those may be which
        instructions determine: None for elements of tensors, which may be any numbers.

    Raises:
        Decline: If there is no limit to how many rows a value has.
        TypeInferenceError: If the operators do not work for such sizes.
    """
    is_symbolic = _name_inputs(graph, prefix)
    read = read_elements(graph, prefix) if prefix else frozenset[str]()
    unlimited = dict.fromkeys(read, symbolic.UNLIMITED)
    rows = {name: symbolic.span(size, unlimited)[1] for name, size in name_rows(graph).items()}
    if unbounded := [name for name, size in rows.items() if size is None]:
        raise Decline(f"there is no limit to {unbounded[0]}")
    return is_symbolic, {**dict.fromkeys(read), **rows}


def _name_inputs(graph: Graph, prefix: str) -> bool:
    """Express every dynamic dimension of the inputs by sizes that a run reads off the inputs.

    New names begin with ``prefix``, so that they differ from those of the outer program.

    Returns:
        Whether there is such a dimension.

    Raises:
        TypeInferenceError: If the operators do not work for such sizes.
    """
    if prefix:  # elements that the program around knows are read where the body needs them
        for value in graph.inputs:
            if any(isinstance(size, Expression) for size in value.contents or ()):
                value.type = without_contents(value.type)
    dims = [dim for value in graph.inputs for dim in value.shape or ()]
    if all(isinstance(dim, int) for dim in dims):
        if any(value.static_shape is None for node in graph.nodes for value in node.used_outputs()):
            retype(graph, [value.type for value in graph.inputs])
        return not prefix and _name_elements(graph)
    sizes = [symbolic.size(dim) for dim in dims if isinstance(dim, str)]
    named = {size.name for size in sizes if isinstance(size, Expression) and size.name is not None}
    types = [_with_names(value, prefix, named) for value in graph.inputs]
    are_named = all(type_ == v.type and v.contents is None for type_, v in zip(types, graph.inputs, strict=True))
    if not are_named or not _is_sized(graph, named):
        retype(graph, types)
    # What a body takes has the sizes that it has around it: those that the body wants are its conditions.
    if not prefix:
        settle_sizes(graph, graph)
        _name_elements(graph)
    return True


def _with_names(value: Value, prefix: str, named: Set[str]) -> TensorType:
    """Return the type of an input with a name for every dimension that is not computed from those that have one."""
    type_ = tensor(value.type)
    shape = [_named(dim, f"{prefix}{value.name}.{axis}", named) for axis, dim in enumerate(type_.shape or ())]
    return TensorType(type_.dtype, tuple(shape), type_.layout)


def _is_sized(graph: Graph, named: Set[str]) -> bool:
    """Tell whether all sizes, and all elements that are known, are numbers or follow from named dimensions."""
    dims: set[Dim] = set()
    elements: set[Size | None] = set()
    for _, node in graph.walk():
        for value in node.used_outputs():
            type_ = value.type
            if not isinstance(type_, TensorType) or type_.shape is None:
                return False
            dims.update(type_.shape)
            elements.update(type_.contents or ())
    if any(dim is None or (isinstance(dim, int) and dim > symbolic.FARTHEST) for dim in dims):
        return False
    sizes = elements.union([symbolic.size(dim) for dim in dims if dim is not None])
    return all(size.symbols <= named for size in sizes if isinstance(size, Expression))


def _name_elements(graph: Graph) -> bool:
    """Name the elements of inputs that sizes depend on; tell whether there are any."""
    sources = element_sources(graph.nodes)
    dims = {name for value in graph.inputs for size in _dims(value) for name in size.symbols}
    if taken := sorted(dims & frozenset[str]().union(*sources.values())):
        raise Decline(f'a dimension has the name "{taken[0]}", which stands for an element of an input')
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


def _named(dim: Dim, name: str, named: Set[str]) -> Dim:
    """Return a dimension of an input if it is computed from sizes that are dimensions themselves, else a new one."""
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
    """Return the rule of a node; a composite without a rule of its own uses that of its anchor.

    The anchor of ``c.conv`` is the Conv, with which bias, residual and activation are fused.

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
