"""Automata of regular expressions against Python's own engine, which answers the same on what both know."""

from __future__ import annotations

import random
import re

import pytest

from tinycomp.ops.automaton import automaton

LETTERS = "abcdex. @-é\u0301à😀一龥12_]{,}\n\0"


@pytest.mark.parametrize(
    "pattern",
    [
        "", "[a-zA-Z]+", "a*b?c{2,3}", "(ab|cd)*e", ".*", "[^a-c]x.", r"\d+\.\d*", "é[à-ÿ]?",
        r"[\w.-]+@[\w-]+\.\w{2,4}",
        "(?:a|b)+?c", "(?P<name>a)x{0}", "[]a]+", "[^]a]+", r"\s*\S+", "😀+[一-龥]", r"a.*\b.*d", r".+\Bx.*", "^a|b$",
        r"(\W|^)[\w.\-]{0,25}@(a|c)\.d(\W|$)", "^a$", r"(^|a)b\z", r"\x41\D?", "[\\x{1f600}-\U0001f64f]{1,2}",
    ],
)  # fmt: skip
def test_matches_as_python_does(pattern: str) -> None:
    made = automaton(pattern)
    assert made is not None
    python = re.compile(pattern.replace(r"\z", r"\Z").replace("$", r"\Z").replace("\\x{1f600}", "😀"), re.ASCII)
    rng = random.Random(pattern)
    for _ in range(500):
        text = "".join(rng.choice(LETTERS) for _ in range(rng.randrange(7)))
        assert made.matches(text) == (python.fullmatch(text) is not None), text


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)a", "[[:alpha:]]", "a**", "(a", "a)", "*a", "[a", "\\", "a++", "(?=x)", "^*", r"\pL", r"\1", "[b-a]",
        "a{3,2}",
        "(" * 60 + ")" * 60, "(a|b)*a(a|b){12}", "x{5000}",
    ],
)  # fmt: skip
def test_what_is_none_or_too_large_is_declined(pattern: str) -> None:
    assert automaton(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "gives_up"), [("[a-z]+", True), ("é+", True), ("a*b", False), ("ab|a.*b", False), ("a(bc)?", True)]
)
def test_a_search_that_may_read_on_for_ever_is_told(pattern: str, gives_up: bool) -> None:
    made = automaton(pattern)
    assert made is not None
    assert made.gives_up == gives_up
