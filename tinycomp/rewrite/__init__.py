"""Finding and changing parts of a graph: pattern language, matcher, rewrite rules, and the worklist engine."""

from tinycomp.rewrite.builder import Builder, P
from tinycomp.rewrite.compiled import Pattern, pattern
from tinycomp.rewrite.engine import Engine, FunctionRule, Rule, open_graphs, rule
from tinycomp.rewrite.match import Match, Rejection, reject
from tinycomp.rewrite.matcher import Check, find, matches
from tinycomp.rewrite.pattern import ValuePattern

__all__ = [
    "Builder",
    "Check",
    "Engine",
    "FunctionRule",
    "Match",
    "P",
    "Pattern",
    "Rejection",
    "Rule",
    "ValuePattern",
    "find",
    "matches",
    "open_graphs",
    "pattern",
    "reject",
    "rule",
]
