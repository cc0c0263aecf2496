"""FoldConstants: compute at compile time what does not depend on the inputs.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[N, 3, 8, 8]) -> (%y) {
...   %shape: int64[4] = Shape(%x)
...   %axis: int64[] = const 1
...   %channels: int64[] = Gather(%shape, %axis)
...   %float: float32[] = Cast(%channels) {to = 1}
...   %y: float32[N, 3, 8, 8] = Div(%x, %float)
... }''', infer=infer_node_types)
>>> FoldConstants().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[N, 3, 8, 8]) -> (%y) {
  %float: float32[] = const 3.0
  %y: float32[N, 3, 8, 8] = Div@14(%x, %float)
}

A conditional whose condition is known becomes the chosen branch. Constants that a body captures move into the body,
so that folding goes on there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import COMPOSITE, REGION, Graph, Node, Value
from tinycomp.ir.types import TensorType, bits, compatible, numpy_dtype, refine, same, type_of
from tinycomp.lazy import LazyModule
from tinycomp.memory.budget import check_time, current
from tinycomp.ops import bind, contents
from tinycomp.ops.typing import has_contents
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.rewrite.edits import bind_constant_captures, choose_branch, replace_by_constant
from tinycomp.rewrite.rules import erase_dead, open_graphs
from tinycomp.rewrite.traits import has_trait, is_random
from tinycomp.target.policy import macs

if TYPE_CHECKING:
    from tinycomp.quantized import layer
else:
    layer = LazyModule("tinycomp.quantized.layer")


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace nodes whose results are known by constants, in the graph and in the bodies of unclaimed nodes.

    Attributes:
        keep_quantized: Leave DequantizeLinear of constants alone, and so all that follows, so that weights stay small
            and targets can match quantised operators.
        keep_layers: Leave those of quantised layers alone in any case, which the host computes in integers.
        max_bytes: Most bytes by which folding may let the constants of all graphs together grow; a node whose result
            is no larger than its constant operands is free. None is 256 MiB, or eight times the constants that there
            are where that is more. A large result that only repeats elements takes none, and stays a node.
        max_work: Most elements and multiply-accumulates that may be computed. None is 2^29, or 256 for each element
            of the constants that there are where that is more.

    So a small model neither fills the memory nor keeps the compiler busy. Passes that run inside :func:`sharing_budget`
    share what their graph is given.

    Operators that draw random numbers, claimed nodes, composites and regions stay. So does a node whose kernel refuses
    its operands; a remark says why, and running the model will say it again.
    """

    keep_quantized: bool = True
    keep_layers: bool = False
    max_bytes: int | None = None
    max_work: int | None = None

    def run(self, graph: Graph) -> bool:
        """Fold in topological order, once."""
        budget = _shared.get()
        if budget is None or self.max_bytes is not None or self.max_work is not None:
            budget = _Budget.of(graph).limited(self.max_bytes, self.max_work)
        return sum(_Folder(each, self, budget).run() for each in open_graphs(graph)) > 0


_CLOSED = frozenset({COMPOSITE, REGION})
"""Domains of nodes whose bodies are closed."""


_LARGEST_BROADCAST = 1 << 24
"""One of more bytes stays a node, as what reads some of it needs no more; what is constant behind it is folded."""
_LEAST_GROWTH, _GROWTH = 1 << 28, 8
_LEAST_WORK, _WORK = 1 << 29, 256


@dataclass
class _Budget:
    """What is left to spend.

    Attributes:
        left: Bytes.
        work: Elements and multiply-accumulates.
    """

    left: int
    work: int

    @classmethod
    def of(cls, graph: Graph) -> _Budget:
        """Return what a graph and its open bodies are given."""
        held = [v.const for each in open_graphs(graph) for v in each.constants if v.const is not None]
        return cls(
            max(_LEAST_GROWTH, _GROWTH * sum(array.nbytes for array in held)),
            max(_LEAST_WORK, _WORK * sum(array.size for array in held)),
        )

    def limited(self, max_bytes: int | None, max_work: int | None) -> _Budget:
        """Return a budget of the user's."""
        return _Budget(self.left if max_bytes is None else max_bytes, self.work if max_work is None else max_work)


def allowed_growth(graph: Graph) -> int:
    """Return by how many bytes folding may let the constants of a graph and its open bodies grow by default."""
    return _Budget.of(graph).left


_shared: ContextVar[_Budget | None] = ContextVar("tinycomp_folding", default=None)


@contextmanager
def sharing_budget(graph: Graph) -> Iterator[None]:
    """Let all folding inside the ``with`` statement spend what ``graph`` is given as it is now.

    A pass that counted the constants anew would count those that another has made.
    """
    token = _shared.set(_Budget.of(graph))
    try:
        yield
    finally:
        _shared.reset(token)


@dataclass
class _Folder:
    """Folding in one graph; bodies are folded after it, when their captures are as constant as they get."""

    graph: Graph
    options: FoldConstants
    budget: _Budget
    changed: bool = False
    stale: set[Node] = field(default_factory=set)
    broadcasts: dict[Value, np.ndarray] = field(default_factory=dict)

    def run(self) -> bool:
        waiting = deque(self.graph.nodes)
        while waiting:
            node = waiting.popleft()
            if node.target is not None or node.domain in _CLOSED:
                continue
            is_stale = node in self.stale or _lacks_contents(node)
            is_ready = not node.bodies and _is_ready(node)  # its results, not its rule, will say what they are
            if is_stale and not is_ready:
                self._retype(node)
            if node.bodies:
                waiting.extendleft(reversed(self._with_bodies(node)))
            else:
                if node.op == "Reshape":
                    self._fix_reshape(node)
                if not self._fold(node) and is_stale and is_ready:
                    self._retype(node)
        return self.changed

    def _retype(self, node: Node) -> None:
        """Infer the types of a node whose operands are known better than before, keeping what was known already."""
        self.stale.discard(node)
        try:
            types = self.graph.infer(node)
        except TypeInferenceError as error:
            self._remark(node, error.message)
            return
        for value, inferred in zip(node.outputs, types, strict=False):
            better = refine(value.type, inferred)
            if not same(better, value.type):
                self.stale.update(user for output in node.outputs for user in output.users)
            value.type = better

    def _with_bodies(self, node: Node) -> list[Node]:
        """Simplify a node with bodies; return the nodes to go on with."""
        condition = node.inputs[0] if "then_branch" in node.bodies else None
        if condition is not None and condition.const is not None and condition.const.size == 1:
            self.changed = True
            users = {user for value in node.outputs for user in value.users}
            nodes = choose_branch(self.graph, node, bool(condition.const.reshape(-1)[0]))
            self.stale.update(nodes, users)  # a branch may say more of its results than both together
            return nodes
        if condition is not None:
            self.changed |= _bind_condition(node)
        self.changed |= bind_constant_captures(self.graph, node)
        return []

    def _fix_reshape(self, node: Node) -> None:
        """Give a Reshape to a shape that is known but for one dimension a constant shape."""
        computed = None if node.domain else node.optional_operand(1)
        target = None if computed is None or computed.is_const else _reshape_target(computed)
        if target is None or computed is None:
            return
        self.graph.set_input(node, 1, self.graph.add_const(target, f"{node.output.name}_shape"))
        if computed.producer is not None:
            erase_dead(self.graph, computed.producer)
        self._retype(node)
        self.changed = True

    def _fold(self, node: Node) -> bool:
        arrays = self._evaluate(node)
        if arrays is None:
            return False
        users = [user for value in node.outputs for user in value.users]
        named = [(value, _stored(array)) for value, array in zip(node.outputs, arrays, strict=True) if value.name]
        constants = [(replace_by_constant(self.graph, value, array), value.name) for value, array in named]
        erase_dead(self.graph, node)
        for constant, name in constants:
            self.graph.rename(constant, name)
        self.stale.update(users)
        self.changed = True
        return True

    def _evaluate(self, node: Node) -> list[np.ndarray] | None:
        """Return one array per result, or None where the node stays."""
        held: list[np.ndarray | None] = []
        for value in node.inputs:
            held.append(None if value is None else self.broadcasts.get(value) if value.const is None else value.const)
            if value is not None and held[-1] is None:
                return _from_sizes(node)
        is_view = has_trait(node, "strided")
        if not self._may_fold(node) or not (is_view or self._affordable(node, held)):
            return _from_sizes(node)
        check_time(current(), node.label)
        arrays = _results(node, held)
        if isinstance(arrays, str):
            self._remark(node, arrays)
            return None
        if any(array.nbytes > max(_LARGEST_BROADCAST, _bytes_of(array)) for array in arrays):
            self.broadcasts |= {v: array for v, array in zip(node.outputs, arrays, strict=True) if v.name}
            return None
        return arrays if not is_view or self._affordable(node, held) else None

    def _may_fold(self, node: Node) -> bool:
        """Tell whether a node whose operands are all constant is to be computed."""
        if not node.used_outputs():
            return False
        if is_random(node) or (
            node.op == "DequantizeLinear"
            and not node.domain
            and (self.options.keep_quantized or (self.options.keep_layers and layer.is_of_layer(node)))
        ):
            return False
        return all(isinstance(v.type, TensorType) for v in node.used_outputs())

    def _affordable(self, node: Node, operands: Sequence[np.ndarray | None]) -> bool:
        held = {id(array): array for array in operands if array is not None}.values()
        growth = max(sum(_nbytes(v) for v in node.used_outputs()) - sum(map(_bytes_of, held)), 0)
        if growth > self.budget.left:
            self._remark(node, f"its result would add {growth} bytes to the constants, {self.budget.left} are left")
            return False
        work = _work(node, held)
        if work > self.budget.work:
            self._remark(node, f"it would take {work} operations to compute, {self.budget.work} are left")
            return False
        self.budget.left -= growth
        self.budget.work -= work
        return True

    def _remark(self, node: Node, reason: str) -> None:
        self.graph.remarks.append(Remark(FoldConstants.name, node.sources, "", node.qualified_op, reason))


def _bind_condition(node: Node) -> bool:
    """Let the branches of a conditional that read its condition read what it is there; return whether any did."""
    changed = False
    for place, value in enumerate(node.inputs[1:]):
        for key, body in node.bodies.items() if value is node.inputs[0] else ():
            formal = body.inputs[place]
            if body.use_count(formal):
                shape = formal.static_shape or ()
                body.replace_uses(formal, body.add_const(np.full(shape, key == "then_branch"), formal.name))
                changed = True
    return changed


def evaluated(node: Node, operands: Sequence[np.ndarray | None]) -> list[np.ndarray] | str:
    """Return one array per result of a node, or why there are none."""
    arrays = _results(node, operands)
    return arrays if isinstance(arrays, str) else [_stored(array) for array in arrays]


def _results(node: Node, operands: Sequence[np.ndarray | None]) -> list[np.ndarray] | str:
    """Return the results of a node, which may be views, or why there are none."""
    try:
        with np.errstate(all="ignore"):
            run, _ = bind(node)
            results = run(*operands)
    except Exception as error:  # a kernel may fail in any way; the node then fails, if it does, when it runs
        return f"it could not be computed: {error}"
    arrays = [np.asarray(result) if isinstance(result, (np.ndarray, np.generic)) else None for result in results]
    for value, array in zip(node.outputs, arrays, strict=True):
        if value.name and (array is None or not compatible(value.type, type_of(array))):
            return f"its result {value.name} is not of type {value.type}"
    return [array if array is not None else np.empty(0) for array in arrays]


def _lacks_contents(node: Node) -> bool:
    """Tell whether the elements of a result may follow from sizes that nobody has looked at: texts give types alone."""
    if not node.outputs or node.output.dtype not in contents.INTEGERS:
        return False
    return node.output.contents is None and has_contents(node)


def _is_ready(node: Node) -> bool:
    """Tell whether the operands of a node are constants, and the sizes of its results known."""
    for value in node.inputs:
        if value is not None and value.const is None:
            return False
    return all(value.static_shape is not None for value in node.outputs if value.name)


def _reshape_target(target: Value) -> np.ndarray | None:
    """Return a constant for the target of a Reshape of which one element is not known.

    The open element becomes -1: whatever it is at run time, the number of elements says the same. A zero among the
    others would make that ambiguous, as would a second -1.
    """
    elements = target.contents
    if elements is None or target.rank != 1:
        return None
    known = [element for element in elements if isinstance(element, int)]
    if len(known) != len(elements) - 1 or any(element < 1 for element in known):
        return None
    return np.array([element if isinstance(element, int) else -1 for element in elements], np.int64)


def _from_sizes(node: Node) -> list[np.ndarray] | None:
    """Return the results of a node that follow from sizes, if all that are used are known."""
    arrays = []
    for value in node.outputs:
        elements = value.contents if value.name else ()
        if elements is None:
            return None
        shape = value.static_shape
        if not value.name:
            arrays.append(np.empty(0))
        elif shape is None or not all(isinstance(element, int) for element in elements):
            return None
        elif len(elements) == math.prod(shape):
            try:
                arrays.append(np.array(elements, numpy_dtype(value.dtype)).reshape(shape))
            except OverflowError:  # the product of declared sizes is no number of the type
                return None
        else:  # the model declares another size than there is
            return None
    return arrays


def _stored(result: np.ndarray) -> np.ndarray:
    """Return a kernel's result as an array fit for a constant.

    A view is copied where it would keep a larger array alive or is not row-major.
    """
    array = np.asarray(result, order="C")
    base = array.base
    return array.copy() if isinstance(base, np.ndarray) and base.nbytes > array.nbytes else array


def _work(node: Node, operands: Iterable[np.ndarray]) -> int:
    """Return the elements that a node reads and writes, and its multiply-accumulates."""
    written = sum(math.prod(value.static_shape or ()) for value in node.used_outputs())
    return sum(map(_elements, operands)) + written + macs([node])


def _elements(array: np.ndarray) -> int:
    """Return how many elements an array has, where one that is repeated counts once."""
    if array.flags.c_contiguous:
        return array.size
    return math.prod([size for size, step in zip(array.shape, array.strides, strict=True) if step])


def _bytes_of(array: np.ndarray) -> int:
    return _elements(array) * array.itemsize


def _nbytes(value: Value) -> int:
    """Return the bytes of a result in memory, where elements below one byte take a whole one."""
    width = 1 if value.dtype == "?" else max(bits(value.dtype) // 8, 1)
    return math.prod(value.static_shape or ()) * width
