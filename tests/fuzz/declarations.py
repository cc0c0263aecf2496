"""Random valid models that declare anything: true sizes, stale ones, none, placeholders for names, ranks unknown.

What is computed does not depend on it, on the host and on the C target: nothing is refused, and the results are those
of onnxruntime for the model with true declarations. Inputs are declared truly, as far as they are; what is claimed of
results, of values between nodes and in bodies may be wrong.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tinycomp
from tests.fuzz.conditioning import explained
from tests.fuzz.harness import Harness, WrongError, generators
from tests.fuzz.models import random_model
from tests.fuzz.peers import RefusedError, Results, by_onnxruntime, declared, differences
from tinycomp.errors import TinycompError

PLACEHOLDERS = ("?", "-1", "None", "", "?")
Dim = int | str | None


@dataclass(frozen=True)
class Edit:
    """What is declared of a value instead of its true type.

    Attributes:
        name: The value.
        body: Whether it is a value of a body.
        shape: The dimensions; None leaves the shape out.
        typed: Whether the type of elements is declared.
    """

    name: str
    body: bool
    shape: tuple[Dim, ...] | None
    typed: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {'' if self.typed else 'no type '}{self.shape}"


@dataclass(frozen=True)
class Case:
    """A model with true declarations, and what is declared instead.

    Attributes:
        model: The model, whose inner values are declared where it is known what they are.
        feeds: Its inputs.
        edits: What is declared instead.
        closed: Whether ``shapes=`` closes the sizes of the inputs.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    edits: Sequence[Edit]
    closed: bool

    def edited(self) -> onnx.ModelProto:
        """Return the model as it is compiled."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        edits = {(e.name, e.body): e for e in self.edits}
        for value, body in _values(model.graph):
            edit = edits.get((value.name, body))
            if edit is not None:
                _declare(value, edit)
        return model


def _values(graph: onnx.GraphProto, body: bool = False) -> Iterator[tuple[onnx.ValueInfoProto, bool]]:
    """Yield the declared values of a graph and, but for their inputs, of its bodies."""
    values = [*graph.value_info, *graph.output, *([] if body else graph.input)]
    yield from ((value, body) for value in values)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _values(attribute.g, True)


def _declare(value: onnx.ValueInfoProto, edit: Edit) -> None:
    if not edit.typed:
        value.ClearField("type")
    elif edit.shape is None:
        value.type.tensor_type.ClearField("shape")
    else:
        code = value.type.tensor_type.elem_type
        value.type.CopyFrom(helper.make_tensor_type_proto(code, None))
        value.type.tensor_type.shape.SetInParent()
        for size in edit.shape:
            dim = value.type.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
            elif size is not None:
                dim.dim_param = size


def case(seed: int) -> Case:
    """Return the case of a seed."""
    rng, _ = generators("declarations", seed)
    sample = random_model(seed)
    model = _with_true_types(sample.model, sample.feeds)
    inputs = {v.name for v in model.graph.input}
    outputs = {v.name for v in model.graph.output}
    level = rng.choice((0.2, 0.6, 1.0))
    names = [f"{v.name}_{a}" for v in model.graph.input for a in range(len(v.type.tensor_type.shape.dim))]
    edits = []
    for value, body in _values(model.graph):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape") or rng.random() > level:
            continue
        sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
        if value.name in inputs and not body:
            edits.append(Edit(value.name, body, _of_an_input(rng, value.name, sample.feeds[value.name].shape)))
        else:
            end = value.name in outputs or body
            edits.append(Edit(value.name, body, _claim(rng, sizes, names), rng.random() > 0.1 or not end or body))
    return Case(model, sample.feeds, edits, rng.random() < 0.15)


def _with_true_types(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Declare the values between nodes as onnxruntime finds them, or as onnx infers them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = list(dict.fromkeys(n for node in model.graph.node for n in node.output if n))
    try:
        found = by_onnxruntime(declared(model, names), feeds, optimise=False)
    except RefusedError:
        return onnx.shape_inference.infer_shapes(copy)
    types = {
        n: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in found.items() if isinstance(x, np.ndarray) and x.dtype != object
    }  # fmt: skip
    ends = [o.name for o in copy.graph.output]
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(v for n, v in types.items() if n not in ends)
    for value in copy.graph.output:
        value.CopyFrom(types.get(value.name, value))
    for value in copy.graph.input:
        value.CopyFrom(
            helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, feeds[value.name].shape)
        )
    return copy


def _of_an_input(rng: random.Random, name: str, shape: Sequence[int]) -> tuple[Dim, ...] | None:
    """Return a true declaration: sizes, symbols of its own or of that size, placeholders, nothing."""
    if rng.random() < 0.07:
        return None
    kinds = rng.choice((("size",), ("own",), ("same", "size"), ("size", "own", "same", "placeholder", "none")))
    found: list[Dim] = []
    for axis, size in enumerate(shape):
        kind = rng.choice(kinds)
        own, same = f"{name}_{axis}", f"s{size}"
        found.append({"size": size, "own": own, "same": same, "none": None}.get(kind, rng.choice(PLACEHOLDERS)))
    return tuple(found)


def _claim(rng: random.Random, sizes: Sequence[Dim], names: Sequence[str]) -> tuple[Dim, ...] | None:
    """Return what is claimed of a result."""
    kind = rng.choice(("missing", "stale", "one", "placeholder", "symbol", "unknown", "rank", "mixed"))
    if kind == "missing":
        return None
    if kind == "rank":
        return (*sizes, 2) if rng.random() < 0.5 or not sizes else tuple(sizes[1:])
    found: list[Dim] = []
    for axis, size in enumerate(sizes):
        each = rng.choice(("stale", "one", "placeholder", "symbol", "unknown", "true")) if kind == "mixed" else kind
        stale = size + rng.choice((1, 1, 7)) if isinstance(size, int) else 3
        claims: dict[str, Dim] = {
            "stale": stale, "one": 1 if axis == 0 else size, "placeholder": rng.choice(PLACEHOLDERS),
            "symbol": rng.choice([*names, "other"]), "unknown": None, "true": size,
        }  # fmt: skip
        found.append(claims[each])
    return tuple(found)


def _run(case: Case, target: str) -> Results:
    options: dict[str, Any] = {"threads": 1}
    if case.closed:
        options["shapes"] = {name: x.shape for name, x in case.feeds.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return tinycomp.compile(case.edited(), [] if target == "host" else target, **options).run(case.feeds)


def check_case(case: Case) -> Counter[str]:
    """Compile and run a case on both targets, and compare.

    Raises:
        WrongError: If results are not those of the model with true declarations.
        TinycompError: If a target refuses it, though it takes that one.
    """
    plain = replace(case, edits=(), closed=False)
    try:
        right = by_onnxruntime(case.model, case.feeds)
    except RefusedError:
        right = _run(plain, "host")
    for target in ("c", "host"):
        try:
            found = _run(case, target)
        except TinycompError:
            if _refused(plain, target):
                return Counter(refused_as_it_stands=1)
            raise
        wrong = differences(found, right)
        if wrong and not explained(case.model, case.feeds, found, right, list(wrong)):
            stands = differences(_run(plain, target), right)
            raise WrongError(f"{target}{' as it stands' if stands else ''}: {wrong}")
    return Counter(right=1, open=int(any(isinstance(d, str) for e in case.edits for d in e.shape or ())))


def _refused(case: Case, target: str) -> bool:
    try:
        _run(case, target)
    except TinycompError:
        return True
    return False


# The smallest case that still fails ----------------------------------------------------------------------------------


def _kind(case: Case) -> str:
    """Return what kind of fault a case shows, or nothing."""
    try:
        check_case(case)
    except WrongError as error:
        return f"wrong {str(error).partition(':')[0]}"
    except Exception as error:
        return type(error).__name__
    return ""


def smallest(case: Case) -> Case:
    """Return a case of fewer nodes and declarations that fails in the same way."""
    kind = _kind(case)

    def fails(small: Case) -> bool:
        return _kind(small) == kind

    case = _fewer(case, fails)
    for count in range(1, len(case.model.graph.node)):
        for node in case.model.graph.node:
            small = _part(case, node, count)
            if small is not None and fails(small):
                return _fewer(small, fails)
    return case


def _fewer(case: Case, fails: Callable[[Case], bool]) -> Case:
    if case.closed and fails(replace(case, closed=False)):
        case = replace(case, closed=False)
    for edit in case.edits:
        small = replace(case, edits=[e for e in case.edits if e is not edit])
        if fails(small):
            case = small
    return case


def _part(case: Case, last: onnx.NodeProto, count: int) -> Case | None:
    """Return what computes a node from the inputs, if that takes so many nodes."""
    graph = case.model.graph
    needed, kept = set(last.output), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= _reads(node)
    if len(kept) != count:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    types = {v.name: v for v in [*graph.value_info, *graph.output]}
    parts = {
        "node": kept[::-1], "input": [v for v in graph.input if v.name in needed],
        "initializer": [t for t in graph.initializer if t.name in needed],
        "output": [types.get(n, onnx.ValueInfoProto(name=n)) for n in last.output if n],
        "value_info": [v for n, v in types.items() if n in needed and n not in last.output],
    }  # fmt: skip
    for field, values in parts.items():
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(values)
    names = {value.name for value, _ in _values(model.graph)}
    feeds = {v.name: case.feeds[v.name] for v in parts["input"]}
    return replace(case, model=model, feeds=feeds, edits=[e for e in case.edits if e.name in names])


def _reads(node: onnx.NodeProto) -> set[str]:
    graphs = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return set(node.input).union(*(_reads(inner) for graph in graphs for inner in graph.node))


def _save(seed: int, folder: Path, stem: str) -> None:
    """Write the smallest case that fails like that of the seed."""
    small = smallest(case(seed))
    onnx.save(small.edited(), folder / f"{stem}.onnx")
    np.savez(folder / f"{stem}.npz", **small.feeds)
    said = "\n".join([*map(str, small.edits), "shapes= closes the sizes" if small.closed else ""])
    text = onnx.printer.to_text(small.edited())
    (folder / f"{stem}-small.txt").write_text(f"{_kind(small)}\n{said}\n{text}", encoding="utf-8")


HARNESS = Harness("declarations", lambda seed: check_case(case(seed)), _save)
