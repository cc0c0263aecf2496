"""Running a graph node by node on the host tiers: the reference that every pass is measured by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import TensorType, numpy_dtype
from tinycomp.ops import bind


def evaluate(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """Return the results of ``graph`` for one array per input."""
    held = dict(zip(graph.inputs, operands, strict=True))
    held |= {value: value.const for value in graph.constants}
    left = {value: graph.use_count(value) for value in graph.values.values()}
    for node in graph.nodes:
        results = _run(node)(*(None if v is None else held[v] for v in node.inputs))
        held |= dict(zip(node.outputs, results, strict=False))
        for value in filter(None, node.inputs):
            left[value] -= 1
            if not left[value] and value.producer is not None:
                del held[value]
    return [held[value] for value in graph.outputs]


def _run(node: Node) -> Callable[..., Sequence[Any]]:
    if node.is_call:
        return _callable(node.body)
    return bind(node, {key: _callable(body) for key, body in node.bodies.items()})[0]


def _callable(body: Graph) -> Callable[..., tuple[Any, ...]]:
    return lambda *operands: tuple(evaluate(body, operands))


def random_feeds(graph: Graph, seed: int = 0, sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    """Return an array per input; symbols take ``sizes``, or one."""
    rng = np.random.default_rng(seed)
    feeds = []
    for value in graph.inputs:
        assert isinstance(value.type, TensorType)
        shape = tuple(d if isinstance(d, int) else (sizes or {}).get(str(d), 1) for d in value.type.shape or ())
        array = rng.standard_normal(shape)
        if value.type.dtype == "bool":
            feeds.append(array > 0)
        elif value.type.dtype.startswith(("int", "uint")):
            feeds.append(np.asarray(np.abs(array * 10)).astype(numpy_dtype(value.type.dtype)))
        else:
            feeds.append(array.astype(numpy_dtype(value.type.dtype)))
    return feeds


def assert_same_results(before: Graph, after: Graph, feeds: Sequence[np.ndarray], tolerance: float = 1e-5) -> None:
    """Compare the results of two graphs; the tolerance is relative to the greatest number of each result."""
    assert before.output_names == after.output_names
    for name, a, b in zip(before.output_names, evaluate(before, feeds), evaluate(after, feeds), strict=True):
        assert a.dtype == b.dtype, name
        assert a.shape == b.shape, name
        scale = max(float(np.max(np.abs(a.astype(np.float64)), initial=0.0, where=np.isfinite(a))), 1e-30)
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * scale, err_msg=name)
