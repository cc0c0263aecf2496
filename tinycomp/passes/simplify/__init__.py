"""Simplify: rewrites that are right for every target.

>>> from tinycomp.ir.text.parser import parse_graph
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[N, 1, 4, 4]) -> (%y) {
...   %w: float32[1, 1, 1, 1] = const [3.0]
...   %gamma: float32[1] = const [2.0]
...   %beta: float32[1] = const [1.0]
...   %mean: float32[1] = const [0.0]
...   %variance: float32[1] = const [1.0]
...   %c: float32[N, 1, 4, 4] = Conv(%x, %w) from ["conv"]
...   %b: float32[N, 1, 4, 4] = BatchNormalization(%c, %gamma, %beta, %mean, %variance) {epsilon = 0.0} from ["bn"]
...   %d: float32[N, 1, 4, 4] = Dropout(%b)
...   %y: float32[N, 16] = Flatten(%d) from ["flatten"]
... }''')
>>> Simplify().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[N, 1, 4, 4]) -> (%y) {
  %w: float32[1, 1, 1, 1] = const [6.0]
  %c_bias: float32[1] = const [1.0]
  %b: float32[N, 1, 4, 4] = Conv@11(%x, %w, %c_bias) from ["conv", "bn"]
  %y_shape: int64[2] = const [-1, 16]
  %y: float32[N, 16] = Reshape@14(%b, %y_shape) from ["flatten"]
}

The rules are in the files beside this one, a file per subject. No rule computes anything twice, and none changes NaN,
infinities or rounding by more than another order of the same operations would.
"""

from __future__ import annotations

from tinycomp.ir.graph import Graph
from tinycomp.passes.base import Pass
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.simplify import affine, movement, no_ops, quantized
from tinycomp.records import dataclass
from tinycomp.rewrite import Engine, Rule, RuleGroup

_INDEXING = RuleGroup(f"{__name__}.indexing", "GatherElements GatherND NonZero ScatterElements Slice")
_LATE = (
    RuleGroup(f"{__name__}.classical", "Concat Scan Sum ai.onnx.ml::TreeEnsembleClassifier"),
    RuleGroup(f"{__name__}.sequences", """
        ConcatFromSequence If OptionalGetElement OptionalHasElement SequenceAt SequenceLength SequenceMap
        SplitToSequence
    """),
    RuleGroup(f"{__name__}.carried", "If Loop Scan"),
)  # fmt: skip
RULES: tuple[Rule | RuleGroup, ...] = (
    *no_ops.RULES, *movement.RULES, _INDEXING, *affine.RULES, *quantized.RULES, *_LATE,
)  # fmt: skip
PLAIN: tuple[Rule, ...] = tuple([rule for rule in no_ops.RULES if rule not in no_ops.HIDING])
"""The rules that only remove nodes, which no pattern asks for; the others replace operators by others."""
_ENGINE = Engine(RULES, claimed=False)
_PLAIN_ENGINE = Engine(PLAIN, claimed=False)


def all_rules() -> list[Rule]:
    """Return the rules, those in groups included."""
    return [rule for entry in RULES for rule in (entry.rules if isinstance(entry, RuleGroup) else [entry])]


@dataclass(frozen=True)
class Simplify(Pass):
    """Apply every rule until none applies, in the graph and in the bodies of unclaimed nodes; claimed nodes stay.

    Attributes:
        hiding: Whether to apply also the rules that replace operators by others, and so hide them from patterns.
    """

    hiding: bool = True

    def run(self, graph: Graph) -> bool:
        """Run the engine until nothing changes.

        Some rules need a value that has no other reader. So dead nodes are removed first, and a run that changed
        something is followed by another one, which finds nothing in most graphs.
        """
        sweep = EliminateDeadCode()
        changed = sweep.run(graph)
        engine = _ENGINE if self.hiding else _PLAIN_ENGINE
        while engine.run(graph):
            sweep.run(graph)
            changed = True
        return changed
