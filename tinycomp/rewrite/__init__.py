"""Finding and changing parts of a graph: pattern language, matcher, rewrite rules, and the worklist engine."""

from tinycomp.rewrite.builder import Builder, P
from tinycomp.rewrite.compiled import Pattern, pattern
from tinycomp.rewrite.composite import Composite
from tinycomp.rewrite.emit import Emitter
from tinycomp.rewrite.engine import Engine, FunctionRule, Rule, open_graphs, rule
from tinycomp.rewrite.match import Match, Rejection, reject
from tinycomp.rewrite.matcher import Check, find, matches
from tinycomp.rewrite.partition import partition
from tinycomp.rewrite.pattern import ValuePattern
from tinycomp.rewrite.rules import RewriteRule, rewrite

__all__ = [
    "Builder",
    "Check",
    "Composite",
    "Emitter",
    "Engine",
    "FunctionRule",
    "Match",
    "P",
    "Pattern",
    "Rejection",
    "RewriteRule",
    "Rule",
    "ValuePattern",
    "find",
    "matches",
    "open_graphs",
    "partition",
    "pattern",
    "reject",
    "rewrite",
    "rule",
]
