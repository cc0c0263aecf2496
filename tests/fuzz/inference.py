"""Random operators with random attributes, shapes and types: what is inferred is what the numpy kernels compute."""

from __future__ import annotations

import functools
import random
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import tinycomp
from tests.fuzz.corpus import small_models
from tests.fuzz.harness import Harness, WrongError, generators
from tests.fuzz.models.build import CODES, NAMES
from tests.fuzz.mutation import FLOATS
from tinycomp.checking import random_feeds
from tinycomp.errors import TinycompError
from tinycomp.ir.types import TensorType
from tinycomp.ops import OPS

MEMORY = 1 << 27
WORDS = (
    "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "constant", "reflect", "edge", "wrap", "linear", "nearest", "cubic",
    "add", "mul", "max", "min", "none", "tanh", "DCR", "CRD", "forward", "reverse", "bidirectional", "mean", "sum",
    "half_pixel", "align_corners", "asymmetric", "ij,jk->ik", "...i->...", "ii->i", "LEFT", "RIGHT", "zeros", "border",
)  # fmt: skip


@functools.cache
def schemas() -> tuple[onnx.defs.OpSchema, ...]:
    """Return every operator of ONNX in its versions from 7 on, without those with bodies."""
    every = onnx.defs.get_all_schemas_with_history()
    found = [s for s in every if s.domain == "" and s.since_version >= 7 and not s.deprecated]
    kinds = onnx.defs.OpSchema.AttrType
    graphs = (kinds.GRAPH, kinds.GRAPHS)
    plain = [s for s in found if not any(a.type in graphs for a in s.attributes.values())]
    return tuple(sorted(plain, key=lambda s: (s.name, s.since_version)))


def random_node(rng: random.Random, arrays: np.random.Generator) -> onnx.ModelProto:
    """Return a model of one node, made from what the operator's schema says; most are valid or nearly so."""
    schema = rng.choice(schemas())
    bound: dict[str, str] = {}
    common = _shape(rng)
    names, infos, tensors = [], [], []
    for position, formal in enumerate(_formals(rng, schema)):
        if formal is None:
            names.append("")
            continue
        name, dtype = f"x{position}", _dtype(rng, schema, formal, bound)
        if dtype is None:
            names.append("")
            continue
        shape = common if rng.random() < 0.6 else _shape(rng)
        if rng.random() < 0.3 and dtype in CODES:
            shape = shape[:1] if dtype == "int64" else shape
            array = (arrays.integers(-3, 4, shape) if rng.random() < 0.7 else arrays.random(shape)).astype(dtype)
            tensors.append(onnx.numpy_helper.from_array(array, name))
        else:
            dims: list[int | str] = [f"s{d}" if rng.random() < 0.15 else d for d in shape]
            infos.append(helper.make_tensor_value_info(name, CODES[dtype], dims))
        names.append(name)
    # An empty list has no type of its own.
    attrs = {a.name: _attribute(rng, a) for a in schema.attributes.values() if a.required or rng.random() < 0.4}
    outputs = [f"y{i}" for i in range(_count(rng, schema))]
    node = helper.make_node(
        schema.name, names, outputs, "n", **{k: v for k, v in attrs.items() if v is not None and v != []}
    )
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "g", infos, results, tensors)
    opset = max(schema.since_version, rng.choice((7, schema.since_version)))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _formals(rng: random.Random, schema: onnx.defs.OpSchema) -> list[onnx.defs.OpSchema.FormalParameter | None]:
    option = onnx.defs.OpSchema.FormalParameterOption
    found: list[onnx.defs.OpSchema.FormalParameter | None] = []
    for formal in schema.inputs:
        if formal.option == option.Variadic:
            found += [formal] * rng.randint(1, 3)
        else:
            found.append(None if formal.option == option.Optional and rng.random() < 0.4 else formal)
    return found


def _count(rng: random.Random, schema: onnx.defs.OpSchema) -> int:
    least = max(schema.min_output, 1)
    return rng.randint(least, max(least, min(schema.max_output, 4)))


def _dtype(
    rng: random.Random, schema: onnx.defs.OpSchema, formal: onnx.defs.OpSchema.FormalParameter, bound: dict[str, str]
) -> str | None:
    """Return a dtype that the formal takes, the same for all of one type variable; None if it takes no tensors."""
    if formal.type_str in bound:
        return bound[formal.type_str]
    known = {f"tensor({helper.tensor_dtype_to_string(c).partition('.')[2].lower()})": n for c, n in NAMES.items()}
    choices = sorted(known[t] for t in formal.types if t in known)
    if not choices:
        return None
    favourite = "float32" if "float32" in choices and rng.random() < 0.5 else rng.choice(choices)
    return bound.setdefault(formal.type_str, favourite)


def _shape(rng: random.Random) -> list[int]:
    return [
        rng.choice((0, 1, 2, 2, 3, 4, 5)) if rng.random() < 0.9 else 1 for _ in range(rng.choice((0, 1, 2, 3, 4, 4, 5)))
    ]


def _attribute(rng: random.Random, attribute: onnx.defs.OpSchema.Attribute) -> object:
    kinds = onnx.defs.OpSchema.AttrType
    number = rng.choice((0, 1, 1, 2, 2, 3, -1, -2, 4, 9))
    numbers = [rng.choice((0, 1, 1, 2, 2, 3, -1)) for _ in range(rng.choice((0, 1, 2, 2, 3, 4, 4, 6)))]
    match attribute.type:
        case kinds.INT:
            return rng.choice(tuple(CODES.values())) if attribute.name in ("to", "dtype") else number
        case kinds.INTS:
            return rng.choice((numbers, list(range(len(numbers))), [1] * len(numbers)))
        case kinds.FLOAT:
            return rng.choice(FLOATS)
        case kinds.FLOATS:
            return [rng.choice(FLOATS) for _ in numbers]
        case kinds.STRING:
            return rng.choice(WORDS)
        case kinds.STRINGS:
            return [rng.choice(WORDS) for _ in numbers]
        case kinds.TENSOR:
            return onnx.numpy_helper.from_array(np.array(numbers, rng.choice((np.float32, np.int64))))
    return None


def changed_node(rng: random.Random) -> onnx.ModelProto:
    """Return a test model of onnx with other sizes, attributes or types of its inputs, and without its answers."""
    model = onnx.ModelProto.FromString(rng.choice(small_models()))
    for node in model.graph.node:
        for attribute in node.attribute:
            if rng.random() < 0.3:
                _change_attribute(rng, attribute)
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.ClearField("type")
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if rng.random() < 0.2:
                dim.dim_value = rng.choice((0, 1, 2, 3, 5, 8))
        if rng.random() < 0.15:
            value.type.tensor_type.elem_type = rng.choice(tuple(NAMES))
    return model


def _change_attribute(rng: random.Random, attribute: onnx.AttributeProto) -> None:
    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.INT:
            attribute.i = rng.choice((attribute.i + 1, attribute.i - 1, -attribute.i, 0, 1, 2))
        case kinds.INTS if attribute.ints:
            at = rng.randrange(len(attribute.ints))
            attribute.ints[at] = rng.choice((attribute.ints[at] + 1, attribute.ints[at] - 1, 0, 1, 2))
        case kinds.FLOAT:
            attribute.f = rng.choice(FLOATS)
        case kinds.STRING:
            attribute.s = rng.choice(WORDS).encode()


def check_types(model: onnx.ModelProto, rng: random.Random) -> Counter[str]:
    """Compile a model for the host, run it, and compare its results with the types that were inferred.

    Raises:
        WrongError: If a result has another dtype, rank or size.
    """
    try:
        graph = tinycomp.from_onnx(model)
    except TinycompError:
        return Counter(refused=1)
    types = [v.type for v in graph.outputs]
    try:
        module = tinycomp.compile(graph, "host", threads=1, memory_limit=MEMORY, passes=[])
        feeds = random_feeds(module.inputs, rng.getrandbits(32))
        results = list(module.run(feeds, timeout=5.0).values())
    except TinycompError:
        return Counter(typed=1)
    sizes: dict[str, int] = {}
    for type_, result in zip(types, results, strict=True):
        if isinstance(type_, TensorType) and isinstance(result, np.ndarray) and not _fits(type_, result, sizes):
            ops = ", ".join(f"{n.op}-{n.version}" for n in graph.nodes)
            raise WrongError(f"{ops}: inferred {type_}, computed {result.dtype.name}{list(result.shape)}\n{graph}")
    kernels = all(OPS.find(n.op, n.domain, n.version) is not None for n in graph.nodes)
    return Counter(run=1, with_own_kernels=int(kernels))


def _fits(type_: TensorType, result: np.ndarray, sizes: dict[str, int]) -> bool:
    dtype = "string" if result.dtype.kind == "O" else result.dtype.name
    if type_.dtype not in (dtype, "?") or (type_.shape is not None and len(type_.shape) != result.ndim):
        return False
    pairs = zip(type_.shape or (), result.shape, strict=False)
    return all((d is None) or (sizes.setdefault(d, n) if isinstance(d, str) else d) == n for d, n in pairs)


def _model(seed: int) -> tuple[onnx.ModelProto, random.Random]:
    rng, arrays = generators("inference", seed)
    return (changed_node(rng) if rng.random() < 0.5 else random_node(rng, arrays)), rng


def _check(seed: int) -> Counter[str]:
    model, rng = _model(seed)
    with np.errstate(all="ignore"):
        return check_types(model, rng)


def _save(seed: int, folder: Path, stem: str) -> None:
    onnx.save(_model(seed)[0], folder / f"{stem}.onnx")


HARNESS = Harness("inference", _check, _save)
