"""Finding and changing parts of a graph: pattern language, matcher, rewrite rules, and the worklist engine."""

from tinycomp.remark import Remark, reject
from tinycomp.rewrite.composites import Composite, partition
from tinycomp.rewrite.matcher import Check, Match, Pattern, find, matches, pattern
from tinycomp.rewrite.pattern import Builder, P, ValuePattern
from tinycomp.rewrite.rules import (
    Engine,
    FunctionRule,
    GraphBuilder,
    RewriteRule,
    Rule,
    RuleGroup,
    open_graphs,
    replaces,
    rewrite,
    rule,
)

__all__ = [
    "Builder",
    "Check",
    "Composite",
    "Engine",
    "FunctionRule",
    "GraphBuilder",
    "Match",
    "P",
    "Pattern",
    "Remark",
    "RewriteRule",
    "Rule",
    "RuleGroup",
    "ValuePattern",
    "find",
    "matches",
    "open_graphs",
    "partition",
    "pattern",
    "reject",
    "replaces",
    "rewrite",
    "rule",
]
