"""The ways in which a model can be met; each makes trials out of a subject, none if it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tinycomp
from tests.cases.case import OPSET
from tests.cases.subject import Subject
from tests.declarations import ways as declared
from tests.ops.harness import tensor_type
from tinycomp.errors import TinycompError
from tinycomp.frontend.definition import definition
from tinycomp.ir.graph import Graph


class Trial(NamedTuple):
    """One run.

    Attributes:
        model: What is compiled.
        feeds: What it is given.
        wanted: The right results in order.
        target: ``"c"`` or ``"host"``.
        options: Further arguments of ``tinycomp.compile``.
        saved: Whether the module is saved and loaded.
        exported: Whether the module becomes a C project, whose own test runs on the feeds, too.
        name: What tells the trial from the others of its way.
    """

    model: onnx.ModelProto | Graph
    feeds: Mapping[str, Any]
    wanted: Sequence[Any]
    target: str = "c"
    options: Mapping[str, Any] = MappingProxyType({})
    saved: bool = False
    exported: bool = False
    name: str = ""


Way = Callable[[Subject], Iterator[Trial]]
WAYS: dict[str, Way] = {}


def way(make: Way) -> Way:
    """Let a function be a way, by its name."""
    WAYS[make.__name__.strip("_").replace("_", "-")] = make
    return make


def _copied(s: Subject) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(s.model)
    return model


def _changed(s: Subject, change: declared.Way) -> onnx.ModelProto:
    model = _copied(s)
    change(model)
    return model


def _arrays(values: Sequence[Any]) -> bool:
    return all(isinstance(value, np.ndarray) for value in values)


# As it stands -------------------------------------------------------------------------------------------------------


@way
def host(s: Subject) -> Iterator[Trial]:
    """Numpy, beside the witness."""
    yield Trial(s.model, s.feeds, s.wanted, "host")


@way
def c(s: Subject) -> Iterator[Trial]:
    """The C target, row-major."""
    yield Trial(s.model, s.feeds, s.wanted)


@way
def channels_last(s: Subject) -> Iterator[Trial]:
    """The C target, between pools of one cell, which change nothing but ask for channels last."""
    model = _copied(s)
    if not _arrays(s.wanted):
        return
    named = dict(zip([o.name for o in model.graph.output], s.wanted, strict=True)) if s.wanted else {}
    before = [(n, f"{n}_in") for n, x in s.feeds.items() if _poolable(x)]
    after = [(n, f"{n}_out") for n, x in named.items() if _poolable(x) and n not in s.feeds]
    if (not before and not after) or any(op.domain == "" and op.version < 7 for op in model.opset_import):
        return
    ranks = {n: x.ndim for n, x in [*s.feeds.items(), *named.items()] if isinstance(x, np.ndarray)}
    for node in model.graph.node:
        _rename(node, dict(before))
    pools = [
        helper.make_node("MaxPool", [n], [new], f"pool_{new}", kernel_shape=[1] * (ranks[n] - 2))
        for n, new in (*before, *after)
    ]
    nodes = [*pools[: len(before)], *model.graph.node, *pools[len(before) :]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    renamed = dict(after)
    for value in model.graph.output:
        value.name = renamed.get(value.name, value.name)
    _import(model)
    yield Trial(model, s.feeds, s.wanted)


def _poolable(x: Any) -> bool:
    """Tell whether an array may be pooled and is the same afterwards."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim not in (3, 4) or not x.size:
        return False
    return bool(np.isfinite(x).all())


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Let a node and its bodies read other values."""
    node.input[:] = [names.get(n, n) for n in node.input]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for inner in graph.node:
                _rename(inner, names)


def _import(model: onnx.ModelProto, domain: str = "", version: int = OPSET) -> None:
    if all(op.domain not in (domain, domain or "ai.onnx") for op in model.opset_import):
        model.opset_import.append(helper.make_opsetid(domain, version))


# How it is compiled and kept -----------------------------------------------------------------------------------------


@way
def unoptimized(s: Subject) -> Iterator[Trial]:
    """Without simplification: ``optimize=False``."""
    for target in ("c", "host"):
        yield Trial(s.model, s.feeds, s.wanted, target, {"optimize": False}, name=target)


@way
def verified(s: Subject) -> Iterator[Trial]:
    """With ``verify=True``, with closed sizes and open ones."""
    yield Trial(s.model, s.feeds, s.wanted, options={"verify": True}, name="closed")
    yield Trial(_changed(s, declared.own_symbols), s.feeds, s.wanted, options={"verify": True}, name="open")


@way
def saved(s: Subject) -> Iterator[Trial]:
    """Saved and loaded, with closed sizes and open ones."""
    for target in ("c", "host"):
        yield Trial(s.model, s.feeds, s.wanted, target, saved=True, name=target)
    yield Trial(_changed(s, declared.own_symbols), s.feeds, s.wanted, saved=True, name="open")


@way
def exported(s: Subject) -> Iterator[Trial]:
    """A C project, built without optimisation."""
    if not s.refused and _arrays([*s.feeds.values(), *s.wanted]):
        yield Trial(s.model, s.feeds, s.wanted, exported=True)


@way
def specialized(s: Subject) -> Iterator[Trial]:
    """Open sizes with ``specialize=True``."""
    yield Trial(_changed(s, declared.own_symbols), s.feeds, s.wanted, options={"specialize": True})


@way
def defined(s: Subject) -> Iterator[Trial]:
    """What defines the operator by others, in place of its kernel."""
    if s.refused:
        return
    try:
        graph = tinycomp.from_onnx(s.model)
        body = definition(graph.nodes[0]) if len(graph.nodes) == 1 else None
    except TinycompError:  # the definition does not work for these operands
        return
    if body is None or "inexact_definition" in _traits(graph) or "random" in _traits(graph):
        return
    names = list(dict.fromkeys(v.name for v in graph.nodes[0].inputs if v is not None and v.const is None))
    feeds = {formal.name: s.feeds[name] for formal, name in zip(body.inputs, names, strict=True)}
    yield Trial(body, feeds, s.wanted, "host", {"passes": []})


def _traits(graph: Graph) -> frozenset[str]:
    from tinycomp.ops import OPS

    node = graph.nodes[0]
    record = OPS.find(node.op, node.domain, node.version)
    return frozenset() if record is None else frozenset(record.traits)


# Which results are wanted ---------------------------------------------------------------------------------------------


@way
def results(s: Subject) -> Iterator[Trial]:
    """Each of several results left out in turn, or alone: by the node, or because nobody reads it."""
    names = [o.name for o in s.model.graph.output]
    if len(s.model.graph.node) != 1 or len(names) < 2 or list(s.model.graph.node[0].output) != names:
        return
    kept = {frozenset(names) - {name} for name in names} | {frozenset({name}) for name in names}
    for some in sorted(kept, key=sorted):
        for absent in (False, True) if _may_be_absent(s.model, frozenset(names) - some) else (False,):
            model = _copied(s)
            left = [o for o in model.graph.output if o.name in some]
            del model.graph.output[:]
            model.graph.output.extend(left)
            if absent:
                model.graph.node[0].output[:] = [n if n in some else "" for n in names]
            wanted = [x for n, x in zip(names, s.wanted, strict=True) if n in some] if s.wanted else s.wanted
            for target in ("c", "host"):
                where = f"{target}, {'absent' if absent else 'unread'} but {', '.join(sorted(some))}"
                yield Trial(model, s.feeds, wanted, target, name=where)


def _may_be_absent(model: onnx.ModelProto, names: frozenset[str]) -> bool:
    """Tell whether the node may leave results out, rather than let nobody read them."""
    node = model.graph.node[0]
    version = next(op.version for op in model.opset_import if op.domain in {node.domain, node.domain or "ai.onnx"})
    if not onnx.defs.has(node.op_type, version, node.domain):
        return False
    formal = onnx.defs.get_schema(node.op_type, version, node.domain).outputs
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    places = [i for i, name in enumerate(node.output) if name in names]
    return all(formal[min(i, len(formal) - 1)].option != single for i in places)


# Where operands come from --------------------------------------------------------------------------------------------


def _given(s: Subject) -> list[str]:
    """Return the tensors that are inputs, in order."""
    return [n for n, x in s.feeds.items() if isinstance(x, np.ndarray)]


def _bind(model: onnx.ModelProto, values: Mapping[str, np.ndarray], keep: bool = False) -> None:
    """Give inputs values as initializers, and keep them as inputs if asked to."""
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in values.items())
    if not keep:
        kept = [i for i in model.graph.input if i.name not in values]
        del model.graph.input[:]
        model.graph.input.extend(kept)


@way
def constants(s: Subject) -> Iterator[Trial]:
    """All operands but the first are constants, and then all."""
    for first in (1, 0):
        values = {n: s.feeds[n] for n in _given(s)[first:]}
        if values:
            model = _copied(s)
            _bind(model, values)
            left = {n: x for n, x in s.feeds.items() if n not in values}
            for target in ("c", "host"):
                yield Trial(model, left, s.wanted, target, name=f"{target}, but {first}")


def _initializers(s: Subject) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in s.model.graph.initializer}


def _inputs_of(values: Mapping[str, np.ndarray]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(n, tensor_type(x), x.shape) for n, x in values.items()]


@way
def run_time(s: Subject) -> Iterator[Trial]:
    """No operand is a constant."""
    values = _initializers(s)
    if values:
        model = _copied(s)
        del model.graph.initializer[:]
        model.graph.input.extend(_inputs_of(values))
        for target in ("c", "host"):
            yield Trial(model, {**s.feeds, **values}, s.wanted, target, name=target)


@way
def defaults(s: Subject) -> Iterator[Trial]:
    """Operands are initializers that are inputs as well; they keep their values, or are fed in place of others."""
    model, values = _copied(s), _initializers(s)
    if model.ir_version < 4:  # where all initializers are inputs, and constant
        return
    if values:
        model.graph.input.extend(_inputs_of(values))
    else:
        values = {n: s.feeds[n] for n in _given(s)[1:]}
        _bind(model, values, keep=True)
    if not values:
        return
    left = {n: x for n, x in s.feeds.items() if n not in values}
    for target in ("c", "host"):
        yield Trial(model, left, s.wanted, target, name=f"{target}, kept")
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        x = values.get(tensor.name)
        if x is not None and x.dtype == np.float32:
            other = np.where(x == 0, 0.5, x / 2)  # shares stay between 0 and 1
            tensor.CopyFrom(numpy_helper.from_array(other.astype(x.dtype), tensor.name))
    for target in ("c", "host"):
        yield Trial(changed, {**left, **values}, s.wanted, target, name=f"{target}, fed")


# What is declared ----------------------------------------------------------------------------------------------------


@way
def open_in_turn(s: Subject) -> Iterator[Trial]:
    """Every dimension of an input is open, one at a time."""
    for name in _given(s):
        for axis in range(s.feeds[name].ndim):
            model = _copied(s)
            declared._forget(model.graph.output)
            for value in model.graph.input:
                if value.name == name and axis < len(value.type.tensor_type.shape.dim):
                    value.type.tensor_type.shape.dim[axis].dim_param = "n"
                    yield Trial(model, s.feeds, s.wanted, name=f"axis {axis} of {name}")


def _declared(change: declared.Way) -> Way:
    """Return a way that declares other things, on both targets."""

    def make(s: Subject) -> Iterator[Trial]:
        model = _copied(s)
        if s.wanted and _arrays(s.wanted):
            for value, x in zip(model.graph.output, s.wanted, strict=True):
                value.CopyFrom(helper.make_tensor_value_info(value.name, tensor_type(x), x.shape))
        change(model)
        for target in ("c", "host"):
            yield Trial(model, s.feeds, s.wanted, target, name=target)

    make.__doc__ = change.__doc__
    return make


for _name, _change in (
    ("open", declared.own_symbols), ("sizes", declared.sizes), ("no-ranks", declared.no_ranks),
    ("placeholders", declared.placeholders), ("first-one", declared.first_one), ("stale", declared.stale),
    ("stale-open", declared.stale_open), ("stale-ranks", declared.stale_ranks),
    ("symbol-of-an-input", declared.symbol_of_an_input),
):  # fmt: skip
    WAYS[_name] = _declared(_change)


@way
def shapes(s: Subject) -> Iterator[Trial]:
    """Open sizes that ``shapes=`` closes, and closed ones that it opens under names."""
    given = {n: s.feeds[n].shape for n in _given(s)}
    if given:
        options = {"shapes": given}
        yield Trial(_changed(s, declared.own_symbols), s.feeds, s.wanted, options=options, name="closed")
        names = {n: tuple(f"{n}_{axis}" for axis in range(len(shape))) for n, shape in given.items()}
        yield Trial(s.model, s.feeds, s.wanted, options={"shapes": names}, name="opened")


# Where it stands -----------------------------------------------------------------------------------------------------


def _results(s: Subject) -> list[onnx.ValueInfoProto]:
    """Return the outputs with their element types alone."""
    names = [o.name for o in s.model.graph.output]
    wanted = s.wanted or [None] * len(names)
    return [
        helper.make_tensor_value_info(n, tensor_type(x), None) if isinstance(x, np.ndarray)
        else onnx.ValueInfoProto(name=n)
        for n, x in zip(names, wanted, strict=True)
    ]  # fmt: skip


def _around(
    s: Subject, node: onnx.NodeProto, wanted: Sequence[Any], inputs: Sequence[onnx.ValueInfoProto] = (),
    tensors: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> onnx.ModelProto:  # fmt: skip
    """Return a model of one node that holds the subject's, which reads its inputs and initializers from outside."""
    model = _copied(s)
    del model.graph.node[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.node.append(node)
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in tensors.items())
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in node.output)
    _import(model)
    return model


def _old(s: Subject) -> bool:
    """Tell whether the opset is older than control flow as it is written here."""
    return any(op.domain in ("", "ai.onnx") and op.version < 11 for op in s.model.opset_import)


@way
def in_a_loop(s: Subject) -> Iterator[Trial]:
    """In the body of a Loop of two trips, which captures the operands or carries the first one."""
    if not _arrays(s.wanted) or _old(s) or not s.wanted:
        return
    twice = [np.stack([x, x]) for x in s.wanted]
    ends = [f"all_{o.name}" for o in s.model.graph.output]
    for carried in (False, True):
        names = _given(s)[:1] if carried else []
        if carried and not names:
            return
        inner = {n: f"{n}_carried" for n in names}
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in s.model.graph.node]
        for each in nodes:
            _rename(each, inner)
        nodes += [
            helper.make_node("Identity", ["go"], ["on"]),
            *(helper.make_node("Identity", [i], [f"{i}_next"]) for i in inner.values()),
        ]
        carry = [
            helper.make_tensor_value_info(inner[n], tensor_type(s.feeds[n]), s.feeds[n].shape) for n in names
        ]  # fmt: skip
        formals = [
            helper.make_tensor_value_info("trip", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []), *carry,
        ]  # fmt: skip
        nexts = [helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, []), *carry]
        for value, name in zip(nexts[1:], inner.values(), strict=True):
            value = onnx.ValueInfoProto.FromString(value.SerializeToString())
            value.name = f"{name}_next"
            nexts[1 + list(inner.values()).index(name)] = value
        body = helper.make_graph(nodes, "body", formals, [*nexts, *_results(s)])
        last = [f"{n}_last" for n in names]
        node = helper.make_node("Loop", ["trips", "", *names], [*last, *ends], "loop", body=body)
        wanted = [*(s.feeds[n] for n in names), *twice]
        model = _around(s, node, wanted, tensors={"trips": np.array(2, np.int64)})
        for target in ("c", "host"):
            yield Trial(model, s.feeds, wanted, target, name=f"{target}, {'carried' if carried else 'captured'}")


@way
def in_an_if(s: Subject) -> Iterator[Trial]:
    """In both branches of an If, each taken once."""
    if _old(s):
        return
    branches = {}
    for name in ("then_branch", "else_branch"):
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in s.model.graph.node]
        branches[name] = helper.make_graph(nodes, name, [], _results(s))
    ends = [f"one_{o.name}" for o in s.model.graph.output]
    node = helper.make_node("If", ["which"], ends, "if", **branches)
    inputs = [helper.make_tensor_value_info("which", onnx.TensorProto.BOOL, [])]
    model = _around(s, node, s.wanted, inputs)
    for target in ("c", "host"):
        for which in (True, False):
            yield Trial(model, {**s.feeds, "which": np.array(which)}, s.wanted, target, name=f"{target}, {which}")


@way
def in_a_function(s: Subject) -> Iterator[Trial]:
    """In a function of the model."""
    model = _copied(s)
    names = [*(i.name for i in model.graph.input), *(t.name for t in model.graph.initializer)]
    names = list(dict.fromkeys(names))
    ends = [o.name for o in model.graph.output]
    function = helper.make_function("tests", "Held", names, ends, list(model.graph.node), list(model.opset_import))
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.append(helper.make_node("Held", names, ends, "call", domain="tests"))
    model.functions.append(function)
    model.ir_version = max(model.ir_version, 8)
    _import(model, "tests", 1)
    for target in ("c", "host"):
        yield Trial(model, s.feeds, s.wanted, target, name=target)
