"""What the bodies of If, Loop and Scan are given while a model runs, which calibrates the layers inside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.driver.compile import compile as compile_model
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import TensorType
from tinycomp.ops import bind
from tinycomp.quantization.calibration import CalibrationData, Feeds, Watch
from tinycomp.records import dataclass


def has_tensors_alone(node: Node) -> bool:
    """Tell whether all that a node reads, and its bodies take, are tensors, which calibration data can be."""
    values = [v for v in node.inputs if v is not None]
    return all(isinstance(v.type, TensorType) for v in (*values, *(v for b in node.bodies.values() for v in b.inputs)))


@dataclass(frozen=True)
class Invocations:
    """The inputs of a body, run by run, over the calibration data of the graph around it.

    The graph computes what the node reads, and the node runs once more with a body that tells what it is given.

    Attributes:
        graph: In float.
        node: An If, Loop or Scan of it.
        key: Which of its bodies.
        data: What the graph is run on.
        threads: Of the runs.
    """

    graph: Graph
    node: Node
    key: str
    data: CalibrationData
    threads: int | None = None

    def __iter__(self) -> Iterator[Feeds]:
        """Yield what the body is given, by the names of its inputs."""
        node = self.node
        watch = Watch(self.graph, [v for v in node.inputs if v is not None and not v.is_const], self.threads)
        given: list[Feeds] = []
        bodies = {key: self._running(body, given if key == self.key else []) for key, body in node.bodies.items()}
        kernel, _ = bind(node, bodies)
        for where, feeds in self.data:
            arrays = watch(feeds, where)
            kernel(*[None if v is None else v.const if v.is_const else arrays[v.name] for v in node.inputs])
            yield from given
            given.clear()

    def _running(self, body: Graph, given: list[Feeds]) -> Any:
        module = compile_model(body.clone(), threads=self.threads)

        def run(*operands: Any) -> Sequence[Any]:
            feeds: Mapping[str, Any] = {v.name: np.asarray(x) for v, x in zip(body.inputs, operands, strict=True)}
            given.append(dict(feeds))
            results = module.run(feeds)
            return tuple(results[name] for name in body.output_names)

        return run
