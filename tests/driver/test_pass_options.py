"""The text form of passes, option by option, and the four partitioning passes one by one."""

from __future__ import annotations

import re

import pytest

import tinycomp
from tests.partition_tools import graph_of, target_of
from tinycomp.driver.pipeline import Pipeline, parse_passes, pass_types
from tinycomp.errors import PatternError, TargetError, TinycompError
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.passes.partition_graph import PartitionGraph
from tinycomp.passes.simplify import Simplify
from tinycomp.target import find


def test_the_four_passes_one_by_one():
    npu = target_of("npu", "Neg", "Abs")
    passes = [MergeComposite(npu), AnnotateTarget([npu, "c"]), MergeRegions(), PartitionGraph()]
    graph = tinycomp.Pipeline(passes, check=True)(graph_of("%a = Neg(%x)\n%b = Abs(%a)\n%y = Relu(%b)", "y"))
    assert [(n.op, n.target) for n in graph.nodes] == [("npu_0", "npu"), ("c_0", "c")]
    assert tinycomp.to_onnx(graph).functions


def test_names_follow_from_classes_and_files():
    for name, kind in pass_types().items():
        assert re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower() == name


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", []),
        (" simplify , eliminate-dead-code", [Simplify(), EliminateDeadCode()]),
        ("fold-constants{keep-quantized=false max_bytes=64}", [FoldConstants(keep_quantized=False, max_bytes=64)]),
        ("annotate-target{targets=npu_sim+c}", [AnnotateTarget((find("npu_sim"), find("c")))]),
        ("annotate-target{targets=c}", [AnnotateTarget((find("c"),))]),
        ("merge-regions{barriers=binding}", [MergeRegions(barriers="binding")]),
        ("merge-composite{target=c}", [MergeComposite(find("c"))]),
    ],
)
def test_texts_of_passes(text, passes):
    assert parse_passes(text) == passes


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("simplfy", PatternError, 'there is no pass "simplfy". Did you mean "simplify"?'),
        ("zzz", PatternError, "There are: annotate-target, assign-border-layouts, assign-layout"),
        ("simplify,,simplify", PatternError, ",simplify: cannot read the list of passes"),
        ("simplify simplify", PatternError, "cannot read the list of passes"),
        ("eliminate-dead-code{x=1}", PatternError, 'eliminate-dead-code has no option "x". It has: none.'),
        ("simplify{x=1}", PatternError, 'the pass simplify has no option "x". It has: hiding.'),
        ("fold-constants{max-byte=1}", PatternError, 'Did you mean "max-bytes"?'),
        ("annotate-target{targets=d}", TargetError, 'there is no target "d"'),
        ("merge-regions{barriers=loose}", TinycompError, "expected one of transparent, binding"),
        ("merge-regions{barriers=3}", PatternError, 'the pass merge-regions cannot take "3" as barriers'),
        ("merge-regions{policy=small}", PatternError, "a value of type Policy. Options other than numbers, words"),
        ("assign-layout{rules=mine}", PatternError, "can be given in Python only"),
        ("fold-constants{max-bytes=many}", PatternError,
            'cannot take "many" as max-bytes; expected a value of type int'),
        ("fold-constants{max-bytes=true}", PatternError, "a value of type int"),
        ("fold-constants{keep-quantized=1}", PatternError, "a value of type bool"),
        ("merge-composite", PatternError, "lacks an option; expected merge-composite{target=…}; found none"),
        ("fold-constants{max-bytes}", PatternError, 'cannot take "" as max-bytes'),
    ],
)  # fmt: skip
def test_texts_that_are_refused(text, error, message):
    with pytest.raises(error, match=re.escape(message)):
        parse_passes(text)


@pytest.mark.parametrize("passes", ["simplify", [3]])
def test_a_pipeline_wants_passes(passes):
    with pytest.raises(
        PatternError, match=r"not a pass; expected a list of passes; found .* Use tinycomp.driver.pipeline"
    ):
        Pipeline(passes)
