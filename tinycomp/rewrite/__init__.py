"""Finding and changing parts of a graph: pattern language, matcher, rewrite rules, and the worklist engine."""

from tinycomp.rewrite.engine import Engine, FunctionRule, Rule, open_graphs, rule

__all__ = ["Engine", "FunctionRule", "Rule", "open_graphs", "rule"]
